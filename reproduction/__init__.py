"""What is run from a checkout and is not shipped: drawn faces, tables, solved optima.

`python -m reproduction …` is the command `pffl …` with all of it; the benchmark of
methods is `python -m reproduction.suite`.
"""

from __future__ import annotations


def extend() -> None:
    """Let `pffl` of this process know the data sets and the optima of this folder."""
    from pffl.datasets import DATASETS, Dataset
    from pffl.study import shares
    from pffl.study.trial import Footing
    from reproduction import optimum
    from reproduction.faces import faces
    from reproduction.natural import natural

    DATASETS["faces"] = Dataset(faces, "drawn faces in the shape of CelebA, 472 people")
    DATASETS["natural"] = Dataset(natural, "four tables by region or birth place, real")
    Footing.optima = optimum
    shares.PROGRAM = "reproduction"
