"""What all silos must agree on before the first round: names, and their order.

Every example belongs to one **stratum**: its group (one value of each protected
attribute) and its label. All cells of all constraints are unions of strata, within one
silo or over all, so weights and sums per stratum are all that ever has to be known.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pffl.errors import DataError, Problems
from pffl.files import digest
from pffl.typing import BoolArray, FloatArray, IntArray

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")
MISSING = "missing"
CODES = frozenset({"true", "false", "yes", "no", "y", "n"})


def named(column: str, values: Sequence[str]) -> tuple[str, ...]:
    """Call values by their column, too, where one says nothing alone.

    >>> named("sex", ("f", "m")), named("nonwhite", ("0", "1"))
    (('f', 'm'), ('nonwhite = 0', 'nonwhite = 1'))
    """
    bare = (v.lower() in CODES or NUMBER.fullmatch(v.lower()) for v in values)
    return tuple(f"{column} = {v}" for v in values) if any(bare) else tuple(values)


@dataclass(frozen=True)
class Attribute:
    """A protected attribute and the values it may take, in a fixed order."""

    name: str
    values: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What to call the values: with the attribute where one is a bare code."""
        return named(self.name, self.values)


@dataclass(frozen=True)
class Schema:
    """Names of features, protected attributes and labels.

    Parameters
    ----------
    features
        Column names of the inputs, in order.
    attributes
        The protected attributes; a group is one value of each.
    labels
        Class names in the order of their codes 0, 1, …; the last one of two is
        "positive". Empty for a numeric target.
    target
        What is predicted, in words.
    indicators
        Places of inputs that may be missing, each with that of its indicator: where
        this is 1, the input is written as 0 and stands at the mean of the others.
    words
        Where the inputs of each hashed text begin and end.
    """

    features: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    labels: tuple[str, ...]
    target: str = "label"
    indicators: tuple[tuple[int, int], ...] = ()
    words: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        with Problems("schema", DataError) as problems:
            lists = {
                "features": self.features,
                "protected attributes": tuple(a.name for a in self.attributes),
                "labels": self.labels,
                **{f"attribute '{a.name}'": a.values for a in self.attributes},
            }
            for what, names in lists.items():
                if twice := sorted(n for n, k in Counter(names).items() if k > 1):
                    problems.add("repeated-name:schema", what=what, twice=twice)
            if not self.attributes or not all(a.values for a in self.attributes):
                problems.add("needs-group:schema")

    @property
    def n_features(self) -> int:
        """Number of input columns."""
        return len(self.features)

    @cached_property
    def gaps(self) -> IntArray:
        """The `indicators`: inputs and their indicators, shape (2, pairs)."""
        return np.array(self.indicators, dtype=np.int64).reshape(-1, 2).T

    @property
    def texts(self) -> tuple[slice, ...]:
        """Where the inputs of each hashed text are."""
        return tuple(slice(*ends) for ends in self.words)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Names of all groups: every combination of attribute values, in code order."""
        names = (attribute.names for attribute in self.attributes)
        return tuple(" × ".join(chosen) for chosen in itertools.product(*names))

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """What to call the labels: with the target where one is a bare code."""
        return named(self.target, self.labels)

    @property
    def n_labels(self) -> int:
        """Number of classes; 1 for a numeric target."""
        return max(1, len(self.labels))

    @property
    def n_strata(self) -> int:
        """Number of (group, label) combinations."""
        return len(self.groups) * self.n_labels

    def strata(self, group: IntArray, y: FloatArray) -> IntArray:
        """Code of each example's stratum: ``group · n_labels + label``."""
        if not self.labels:
            return np.asarray(group, dtype=np.int64)
        return np.asarray(group * self.n_labels + y.astype(np.int64))

    def stratum_name(self, stratum: int) -> str:
        """Return what to call a stratum."""
        group, label = divmod(stratum, self.n_labels)
        name = self.groups[group]
        return f"{name}, {self.label_names[label]}" if self.labels else name

    def combine(self, codes: IntArray) -> IntArray:
        """Turn one code per attribute, shape (n, attributes), into group codes."""
        sizes = tuple(len(a.values) for a in self.attributes)
        flat = np.ravel_multi_index(tuple(codes.T), sizes)
        return np.asarray(flat, dtype=np.int64)

    def attribute_codes(self, name: str) -> IntArray:
        """Code of the named attribute's value in each of `groups`."""
        names = [a.name for a in self.attributes]
        if name not in names:
            raise DataError("unknown-group:attribute-codes", name=name, names=names)
        sizes = tuple(len(a.values) for a in self.attributes)
        codes = np.unravel_index(np.arange(len(self.groups)), sizes)
        return codes[names.index(name)].astype(np.int64)

    def as_dict(self) -> dict[str, object]:
        """Plain form, for files and messages."""
        more = {"indicators": self.indicators, "words": self.words}
        return {
            "features": list(self.features),
            "attributes": {a.name: list(a.values) for a in self.attributes},
            "labels": list(self.labels),
            "target": self.target,
            **{name: places for name, places in more.items() if places},
        }

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the plain form; silos with another hash are refused."""
        text = json.dumps(self.as_dict(), ensure_ascii=False)  # order matters
        return digest(text)


def counted_alike(
    stratum: IntArray, weight: FloatArray | None, n_strata: int
) -> IntArray:
    """Count the rows of each stratum, for floors.

    Of rows that have weights, as many as would count as much together: one heavy
    row among many light ones is nearly alone in their sums.
    """
    counts = np.bincount(stratum, minlength=n_strata)
    if weight is None:
        return counts
    first, second = (np.bincount(stratum, weight**power, n_strata) for power in (1, 2))
    effective = first**2 / np.where(counts > 0, second, 1.0)  # Kish
    return np.minimum(counts, np.floor(effective * (1 + 1e-9)).astype(np.int64))


def withheld(counts: IntArray, few: BoolArray, floor: int) -> BoolArray:
    """Say which strata to withhold, given the rows of each, and which are too few.

    The next smallest as well, until at least two strata and `floor` rows are: what all
    rows have more than those that are shown is the sum over what is withheld.

    >>> counts = np.array([3, 40, 12, 0])
    >>> withheld(counts, counts < 10, floor=10).tolist()
    [True, False, True, False]
    """
    hidden = few & (counts > 0)
    if not hidden.any():
        return hidden
    for stratum in np.argsort(counts, kind="stable"):
        if hidden.sum() > 1 and counts[hidden].sum() >= floor:
            break
        hidden[stratum] |= counts[stratum] > 0
    return hidden
