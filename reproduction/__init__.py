"""What is run from a checkout and is not shipped: drawn faces, tables, solved optima.

`python -m reproduction …` is the command `pffl …` with these data sets.
"""

from __future__ import annotations


def extend() -> None:
    """Let `pffl` of this process know the data sets of this folder."""
    from pffl.datasets import DATASETS, Dataset
    from reproduction.faces import faces
    from reproduction.natural import natural

    DATASETS["faces"] = Dataset(faces, "drawn faces in the shape of CelebA, 472 people")
    DATASETS["natural"] = Dataset(natural, "four tables by region or birth place, real")
