"""From a site's table to rows that can be asked about, once and for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pffl.data.checks import listing
from pffl.data.encoding import category_codes
from pffl.data.partition import keyed_rows, split_rows
from pffl.data.reading import read_table
from pffl.data.schema import Schema
from pffl.data.silo import Rows, Silo
from pffl.errors import ArtefactError, DataError, Problems, Refused
from pffl.records import suggestion
from pffl.site import store
from pffl.site.account import Account
from pffl.site.agreement import Agreement
from pffl.site.answer import Site
from pffl.site.config import SiteConfig
from pffl.site.floor import agreed_sets, left_out
from pffl.site.guard import FILE as GUARD
from pffl.site.log import FILE as ANSWERS
from pffl.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class Summary:
    """What a site will answer from; for its own eyes.

    Attributes
    ----------
    site
        The site, over its rows.
    counts, hidden
        Per split: rows of each (group, label), and which of them are withheld, as far
        as the site alone decides that.
    notes
        How the table was read.
    """

    site: Site
    counts: dict[str, IntArray]
    hidden: dict[str, BoolArray]
    notes: tuple[str, ...] = ()


def prepare(config: SiteConfig) -> Summary:
    """Read, check, split and store the rows; or check those stored already."""
    agreed, notes = config.agreement(), list[str]()
    before = (config.prepared / store.MANIFEST, config.folder / GUARD)
    key = _key(config, fresh=not any(one.exists() for one in before))
    if config.table is not None:
        frame, notes = read_table(config.table)
        splits = _split(frame, config, agreed, key)
        _check(splits, config, agreed)
        silo = Silo(config.name, 0, splits)
        apart = key is not None or config.split.column is not None
        store.write(config.prepared, silo, agreed.schema.hash, apart=apart)
    schema = agreed.schema
    silo = store.read(config.prepared, name=config.name, schema_hash=schema.hash)
    site = Site(silo, schema, config.rules)
    if config.rules.epsilon:  # all is told with noise, and nothing is withheld
        return _summary(site, tuple(notes), noise=True)
    summary = _summary(site, tuple(notes))
    return _masked(summary, config, agreed) if agreed.secure_sum else summary


def _key(config: SiteConfig, *, fresh: bool) -> bytes | None:
    """Return the key that rows are cut by; None where the site has no budget.

    With the first rows of a site its privacy account is begun.
    """
    rules = config.rules
    if not rules.epsilon:
        return None
    account = Account(config.folder, rules.epsilon, rules.delta)
    with account.turn():
        if fresh and not account.begun and not (config.folder / ANSWERS).exists():
            account.begin()
        try:
            return account.key
        except Refused as error:
            raise ArtefactError(error) from error


def _masked(summary: Summary, config: SiteConfig, agreed: Agreement) -> Summary:
    """Return the summary where the floor acts on the agreed constraint's sets."""
    floor, site = max(config.rules.floor, agreed.floor), summary.site
    sets = agreed_sets(agreed)
    hidden = {
        split: left_out(site.silo.rows(split), site.schema, sets, floor)
        for split in summary.hidden
    }
    return replace(summary, hidden=hidden)


def _summary(site: Site, notes: tuple[str, ...], *, noise: bool = False) -> Summary:
    counts = {split: site.counts(split) for split in site.silo.splits}
    if noise:
        none = {split: np.zeros(len(of), dtype=bool) for split, of in counts.items()}
        return Summary(site, counts, none, notes)
    hidden = {split: site.hidden(split) for split in counts}
    rare = rare_inputs(site.silo.rows("train"), site.schema, site.rules.floor)
    if rare:
        notes += (
            f"inputs that set fewer than {site.rules.floor} training rows apart: "
            f"{listing(rare)}. Their sums tell of these few, and the floor does not "
            "withhold them: agree to merge such values (to hash a text to fewer "
            "inputs), or to leave the column out",
        )
    return Summary(site, counts, hidden, notes)


def rare_inputs(rows: Rows, schema: Schema, floor: int) -> list[str]:
    """Name inputs of two values, one of which few rows have, but some."""
    if isinstance(rows.X, np.ndarray):
        few = np.array([_rarer(column) for column in rows.X.T])
    else:
        few = _stored_rarer(rows.X)
    rare = np.flatnonzero((few > 0) & (few < floor))
    return [f"'{schema.features[j]}'" for j in rare]


def _rarer(column: FloatArray) -> int:
    """Return how many rows have the rarer one of two values; 0 if not two."""
    if len(np.unique(column[:1000])) > 2:
        return 0  # no need to look at all of them
    values, counts = np.unique(column, return_counts=True)
    return int(counts.min()) if len(values) == 2 else 0


def _stored_rarer(X: csr_array) -> IntArray:
    """Return `_rarer` of each column; what is not stored is 0."""
    n, d = X.shape
    columns = X.tocsc()
    stored, found = np.diff(columns.indptr), np.zeros(d, dtype=np.int64)
    some = np.flatnonzero(stored)
    starts = columns.indptr[some]
    least, most = (f.reduceat(columns.data, starts) for f in (np.minimum, np.maximum))
    one = some[least == most]  # value, and 0 elsewhere
    found[one] = np.minimum(stored[one], n - stored[one])
    for j in np.flatnonzero(stored == n):
        found[j] = _rarer(columns.data[columns.indptr[j] : columns.indptr[j + 1]])
    return found


def _split(
    frame: pd.DataFrame, config: SiteConfig, agreed: Agreement, key: bytes | None
) -> dict[str, Rows]:
    _check_columns(frame, config, agreed)
    own = {name: frame[config.columns.get(name, name)] for name in agreed.columns}
    rows = agreed.encoding.rows(frame.assign(**own)[list(agreed.columns)])
    column = config.split.column
    if rows.weight is not None and not rows.weight.all():
        kept = np.flatnonzero(rows.weight)  # the others are as if not there
        rows, frame = rows.take(kept), frame.iloc[kept]
    if column is None and key is not None:
        return keyed_rows(rows, config.split.fractions, key)
    if column is None:
        generator = np.random.default_rng(config.split.seed)
        return split_rows(rows, config.split.fractions, generator)
    names, codes = category_codes(frame[column])
    unknown = [
        f"'{name}' ({int((codes == code).sum())})"
        for code, name in enumerate(names)
        if name not in store.SPLITS
    ]
    if unknown:
        raise DataError(
            f"[wrong-split] column '{column}' must say {', '.join(store.SPLITS)} in "
            f"every row: it says {listing(unknown)}"
        )
    return {
        split: rows.take(np.flatnonzero(codes == names.index(split)))
        for split in store.SPLITS
        if split in names
    }


def _check_columns(frame: pd.DataFrame, config: SiteConfig, agreed: Agreement) -> None:
    there = [str(name) for name in frame.columns]
    with Problems(f"site '{config.name}'", DataError) as problems:
        for name in config.columns:
            if name not in agreed.columns:
                hint = suggestion(name, agreed.columns)
                problems.add(
                    "[missing-column] [columns]: the federation has no column "
                    f"'{name}': {hint}"
                )
        for name in agreed.columns:
            own = config.columns.get(name, name)
            if own not in there:
                hint = suggestion(own, there)
                called = f"'{own}'" if own == name else f"'{own}' (for '{name}')"
                problems.add(
                    f"[missing-column] the table has no column {called}: {hint}"
                )
        column = config.split.column
        if column is not None and column not in there:
            hint = suggestion(column, there)
            problems.add(
                f"[missing-column] [split]: the table has no column '{column}': {hint}"
            )


def _check(splits: dict[str, Rows], config: SiteConfig, agreed: Agreement) -> None:
    with Problems(f"site '{config.name}'", DataError) as problems:
        for split in agreed.splits:
            if split not in splits:
                problems.add(
                    f"[no-rows] there are no rows for '{split}', which the federation "
                    "needs: see [split] of the site file"
                )
        floor = max(config.rules.floor, 1)
        for split, rows in splits.items():
            if len(rows) < floor and (len(rows) or split == "train"):
                problems.add(
                    f"[too-few-rows] '{split}' has {len(rows)} rows, and the floor is "
                    f"{floor}: nothing could be answered about it"
                )
