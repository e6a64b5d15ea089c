"""How much one column by itself tells of the label, and of a protected attribute.

The share of the uncertainty that is gone once the column is known: of the entropy, or
of the variance of a numeric label. Each half of the training rows is judged by the
other half, so a column that only tells rows apart tells nothing. No held-out row is
looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pffl.data.column import MISSING, Column
from pffl.data.encoding import TableEncoding
from pffl.data.silo import Rows
from pffl.data.sparse import Matrix, stored_width
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csc_array

MOST_ROWS, MOST_ENTRIES = 20_000, 10_000_000  # a sample of so many is enough
MOST_COLUMNS = 500
BINS, FINEST, PER_BIN = 20, 256, 20
PRIOR = 0.5  # rows that the overall shares count for in each bin
GIVES_AWAY = 0.98  # of the label
SAME, PROXY = 0.95, 0.5  # of a protected attribute
MOST_SAID = 5


@dataclass(frozen=True)
class Telling:
    """What a column tells by itself: shares from 0 to 1.

    Attributes
    ----------
    column
        Its name.
    label
        Of the label.
    attributes
        Of each protected attribute, in order.
    """

    column: str
    label: float
    attributes: tuple[float, ...]


def tell(encoding: TableEncoding, parts: Sequence[Rows]) -> list[Telling]:
    """Return what each column tells on training rows; nothing of many columns.

    Texts are left out: what single words tell is no query of one column.
    """
    schema = encoding.schema
    if not any(map(len, parts)) or len(encoding.columns) > MOST_COLUMNS:
        return []
    rows = _sample(parts)
    groups = [
        (schema.attribute_codes(attribute.name)[rows.group], len(attribute.values))
        for attribute in schema.attributes
    ]
    found = []
    for name, cuts in _columns(encoding, rows.X):
        label = (
            _of_classes(cuts, rows.y.astype(np.int64), schema.n_labels)
            if schema.labels
            else _of_numbers(cuts, rows.y)
        )
        others = tuple(_of_classes(cuts, *group) for group in groups)
        found.append(Telling(name, label, others))
    return found


def remarks(encoding: TableEncoding, found: Sequence[Telling]) -> list[str]:
    """Say which columns give the label or a protected attribute away."""
    out = [
        f"column '{one.column}' gives the label '{encoding.label}' away: by itself it "
        f"tells {percent(one.label)} of it; leave it out if it is known only afterwards"
        for one in found
        if one.label > GIVES_AWAY
    ]
    for place, attribute in enumerate(encoding.schema.attributes):
        told = [
            (one.attributes[place], one.column)
            for one in found
            if one.column != attribute.name and one.attributes[place] > PROXY
        ]
        words = [
            f"column '{column}' {'gives away' if share > SAME else 'tells much of'} "
            f"the protected attribute '{attribute.name}': {percent(share)} by itself"
            for share, column in sorted(told, reverse=True)
        ]
        out += words[:MOST_SAID]
        if len(words) > MOST_SAID:
            more = len(words) - MOST_SAID
            out.append(f"{more} more columns tell much of '{attribute.name}'")
    return out


def percent(share: float) -> str:
    """Write a share, rounded down: what is stated is told."""
    return f"{int(100 * share)} %"


def _sample(parts: Sequence[Rows]) -> Rows:
    """All rows, or an even sample of them, in an order that is drawn once."""
    count, width = sum(map(len, parts)), max(1, stored_width(parts[0].X))
    step = -(-count // min(MOST_ROWS, max(BINS, MOST_ENTRIES // width)))
    rows = Rows.joined(
        [Rows(p.X[::step], p.y[::step], p.group[::step]) for p in parts if len(p)]
    )
    return rows.take(np.random.default_rng(0).permutation(len(rows)))


@dataclass(frozen=True, eq=False)
class _Cuts:
    """Ways to cut rows into bins by a column: codes and how many; and its numbers."""

    bins: Sequence[tuple[IntArray, int]]
    values: FloatArray | None = None


def _columns(encoding: TableEncoding, X: Matrix) -> Iterator[tuple[str, _Cuts]]:
    """Name each column, and cut the rows by its values."""
    start, rows = 0, X.shape[0]
    stored = X if isinstance(X, np.ndarray) else X.tocsc()
    for column in _pieces(encoding):
        stop = start + column.width
        own = stored[:, start:stop]
        start = stop
        if column.kind == "text":
            continue
        if column.kind == "category":
            yield column.name, _Cuts([(_codes(own), len(column.values))])
            continue
        numbers = own if isinstance(own, np.ndarray) else own.toarray()
        values = numbers[:, 0].astype(np.float64)
        if column.indicator:
            values[numbers[:, 1] == 1] = values.min() - 1  # missing: a bin of its own
        fine = int(np.clip(rows // PER_BIN, BINS, FINEST))
        bins = [_bins(values, most) for most in sorted({BINS, fine})]
        yield column.name, _Cuts(bins, values)


def _codes(own: FloatArray | csc_array) -> IntArray:
    """Return which value of a category each row has; the first, where none."""
    if isinstance(own, np.ndarray):
        return own.argmax(axis=1)
    codes = np.zeros(own.shape[0], dtype=np.int64)
    codes[own.indices] = np.repeat(np.arange(own.shape[1]), np.diff(own.indptr))
    return codes


def _pieces(encoding: TableEncoding) -> Iterator[Column]:
    """Numbers and categories in the order of their inputs."""
    for column in encoding.columns:
        yield from column.pieces
        if column.kind == "date" and column.indicator:
            yield Column(f"{column.name}={MISSING}", "number")


def _bins(values: FloatArray, most: int) -> tuple[IntArray, int]:
    """Cut at quantiles; each value is a bin where there are few."""
    distinct, codes = np.unique(values, return_inverse=True)
    if len(distinct) > most:
        edges = np.unique(np.quantile(values, np.arange(1, most) / most))
        return np.searchsorted(edges, values, side="right"), len(edges) + 1
    return codes.reshape(-1), len(distinct)


def _of_classes(cuts: _Cuts, target: IntArray, classes: int) -> float:
    """Share of the entropy of a target that the best of the cuts explains."""
    half = np.arange(len(target)) % 2 == 0
    left, whole = np.zeros(len(cuts.bins) + 1), 0.0
    for known in (half, ~half):
        if not known.any() or classes < 2:
            return 0.0
        asked = ~known
        prior = np.bincount(target[known], minlength=classes) + PRIOR
        prior = prior / prior.sum()
        whole -= float(np.log(prior[target[asked]]).sum())
        ways = list(cuts.bins)
        if cuts.values is not None:
            edge = _best_edge(cuts.values[known], target[known], classes)
            ways.append(((cuts.values > edge).astype(np.int64), 2))
        for way, (codes, bins) in enumerate(ways):
            pairs = codes[known] * classes + target[known]
            table = np.bincount(pairs, minlength=bins * classes).reshape(bins, classes)
            shares = table + PRIOR * prior
            shares = shares / shares.sum(axis=1, keepdims=True)
            left[way] -= float(np.log(shares[codes[asked], target[asked]]).sum())
    left = left[: len(ways)]
    return max(0.0, 1 - float(left.min()) / whole) if whole > 0 else 0.0


def _best_edge(values: FloatArray, target: IntArray, classes: int) -> float:
    """Where one cut of the numbers leaves least entropy on both sides."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    below = np.cumsum(np.eye(classes)[target[order]], axis=0)[:-1]
    places = np.flatnonzero(ordered[1:] > ordered[:-1])
    if not len(places):
        return float(ordered[-1])
    total = np.bincount(target, minlength=classes)
    left = _entropy(below[places]) + _entropy(total - below[places])
    place = places[left.argmin()]
    return float((ordered[place] + ordered[place + 1]) / 2)


def _entropy(counts: FloatArray) -> FloatArray:
    """Entropy of the classes times rows, for each line of counts."""
    from scipy.special import xlogy

    sums = counts.sum(axis=1)
    return xlogy(sums, sums) - xlogy(counts, counts).sum(axis=1)


def _of_numbers(cuts: _Cuts, target: FloatArray) -> float:
    """Share of the variance of a target that the best of the cuts explains."""
    half = np.arange(len(target)) % 2 == 0
    left, whole = np.zeros(len(cuts.bins)), 0.0
    for known in (half, ~half):
        if not known.any():
            return 0.0
        asked, mean = ~known, target[known].mean()
        whole += float(((target[asked] - mean) ** 2).sum())
        for way, (codes, bins) in enumerate(cuts.bins):
            off = np.bincount(codes[known], target[known] - mean, minlength=bins)
            means = mean + off / (np.bincount(codes[known], minlength=bins) + PRIOR)
            left[way] += float(((target[asked] - means[codes[asked]]) ** 2).sum())
    return max(0.0, 1 - float(left.min()) / whole) if whole > 0 else 0.0
