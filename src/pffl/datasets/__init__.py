"""Data sets, each a function that returns a `Federation`.

A real data set is downloaded on first use, checked by its SHA-256 and kept in a cache
folder (``cache_dir=`` or the environment variable ``PFFL_CACHE_DIR`` name another one).
A function given as ``progress=`` is told what arrives (the name of a file, or
"pictures"), how much of it so far, and how much there is (None where nobody knows).
"""

from collections.abc import Callable
from typing import NamedTuple

from pffl.data.federation import Federation
from pffl.datasets._fetch import Progress as Progress
from pffl.datasets.acs import acs as acs
from pffl.datasets.adult import adult as adult
from pffl.datasets.celeba import celeba as celeba
from pffl.datasets.compas import compas as compas
from pffl.datasets.synthetic import synthetic as synthetic


class Dataset(NamedTuple):
    """A data set by name: the function that loads it, and what it is."""

    load: Callable[..., Federation]
    about: str


DATASETS = {
    load.__name__: Dataset(load, about)
    for load, about in (
        (acs, "US census persons by state, 2014 on: employment, income, insurance"),
        (adult, "income over $50,000, US census 1994: 48,842 people, real"),
        (celeba, "faces by person, real; from a folder, see docs/celeba.md"),
        (compas, "two-year recidivism, ProPublica 2016: 6,172 people, real"),
        (synthetic, "generated census-like rows, any size, offline"),
    )
}
