"""The paper's figures, run again: `python -m reproduction --help`, from a checkout."""
