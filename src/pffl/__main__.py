"""Run the command line as ``python -m pffl``."""

from pffl.cli import main

if __name__ == "__main__":
    main()
