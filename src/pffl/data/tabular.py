"""The two class methods of `Federation` that start from tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from pffl.data.checks import warn
from pffl.data.columns import Missing
from pffl.data.overlap import shared_ids, shared_rows
from pffl.data.sites import SITE, join_sites
from pffl.data.table import EncodedTable, TableOptions, encode_table

if TYPE_CHECKING:
    import pandas as pd

    from pffl.data.federation import Federation

Table: TypeAlias = "pd.DataFrame | str | os.PathLike[str]"


def from_table(
    cls: type[Federation],
    table: Table,
    *,
    label: str,
    group: str | Sequence[str],
    silo: str | None = None,
    silos: int | None = None,
    partition: Literal["equal", "dirichlet", "quantile_bands"] = "equal",
    by: str | None = None,
    alpha: float = 1.0,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    id: str | None = None,
    positive: object = None,
    labels: Sequence[object] | None = None,
    classification: bool = True,
    missing: Missing = "refuse",
    missing_group: Literal["refuse", "missing"] = "refuse",
    include_protected: bool = False,
    strict: bool = False,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    drop_empty: bool = False,
    name: str | None = None,
    seed: int = 0,
) -> Federation:
    """Build from one table; what was inferred is written to `Federation.notes`.

    Numbers stay as they are, categories become one input per value with one vocabulary
    for all silos, rows are never dropped. All flaws are reported in one error.

    Parameters
    ----------
    table
        A DataFrame, or a CSV or Parquet file.
    label, group
        Column to predict; protected column or columns (out of the inputs).
    silo
        Column that says where a row lives; or else:
    silos, partition, by, alpha
        Number of silos to simulate, cut at random into ``equal`` parts, by a
        ``dirichlet`` draw with concentration `alpha` on the column `by` (default: the
        label), or into ``quantile_bands`` of `by`.
    features, drop
        Columns to use (default: all others), columns to leave out.
    categorical
        Columns of numbers that are codes of categories.
    id
        Column that says who a row is about: not an input; people on both sides of a
        split are then counted exactly.
    positive, labels
        Which of two label values is the positive one (default: the last in order); all
        label values in the order of their codes.
    classification
        Whether the label is a class; otherwise a number.
    missing
        Missing inputs: ``refuse``; ``indicator``: 0 and an extra input, or an extra
        category; ``drop_column``.
    missing_group
        Missing protected values: ``refuse``, or ``missing`` as a group of its own.
    include_protected, strict
        Use the protected columns as inputs, with a warning; an error under `strict`.
    test_fraction, validation_fraction, drop_empty, name, seed
        As for `Federation.from_arrays`.
    """
    options = TableOptions(
        label=label,
        group=_names(group),
        silo=silo,
        silos=silos,
        partition=partition,
        by=by,
        alpha=alpha,
        features=None if features is None else _names(features),
        drop=_names(drop),
        categorical=_names(categorical),
        id=id,
        positive=positive,
        labels=None if labels is None else tuple(map(str, labels)),
        classification=classification,
        missing=missing,
        missing_group=missing_group,
        include_protected=include_protected,
        strict=strict,
        seed=seed,
    )
    if name is None:
        name = Path(table).stem if isinstance(table, str | os.PathLike) else "table"
    return _build(
        cls,
        encode_table(table, options),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        drop_empty=drop_empty,
        name=name,
        seed=seed,
    )


def from_silos(
    cls: type[Federation],
    tables: Mapping[str, Table],
    *,
    label: str,
    group: str | Sequence[str],
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    id: str | None = None,
    positive: object = None,
    labels: Sequence[object] | None = None,
    classification: bool = True,
    missing: Missing = "refuse",
    missing_group: Literal["refuse", "missing"] = "refuse",
    include_protected: bool = False,
    strict: bool = False,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    name: str = "tables",
    seed: int = 0,
) -> Federation:
    """Build from one table per silo; the columns must agree in name, order and kind.

    Parameters
    ----------
    tables
        From the silo's name to its DataFrame or file.
    label, group, features, drop, categorical, id, positive, labels, classification
        As for `Federation.from_table`.
    missing, missing_group, include_protected, strict
        As for `Federation.from_table`.
    test_fraction, validation_fraction, name, seed
        As for `Federation.from_arrays`.
    """
    frame, notes = join_sites(tables)
    options = TableOptions(
        label=label,
        group=_names(group),
        silo=SITE,
        features=None if features is None else _names(features),
        drop=_names(drop),
        categorical=_names(categorical),
        id=id,
        positive=positive,
        labels=None if labels is None else tuple(map(str, labels)),
        classification=classification,
        missing=missing,
        missing_group=missing_group,
        include_protected=include_protected,
        strict=strict,
        seed=seed,
    )
    encoded = encode_table(frame, options)
    return _build(
        cls,
        replace(encoded, notes=(*notes, *encoded.notes)),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        drop_empty=False,
        name=name,
        seed=seed,
    )


def _build(
    cls: type[Federation],
    encoded: EncodedTable,
    *,
    test_fraction: float,
    validation_fraction: float,
    drop_empty: bool,
    name: str,
    seed: int,
) -> Federation:
    federation = cls.from_rows(
        encoded.encoding.schema,
        encoded.rows,
        encoded.silo,
        encoded.silo_names,
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        drop_empty=drop_empty,
        name=name,
        seed=seed,
        notes=encoded.notes,
        encoding=encoded.encoding,
        ids=encoded.ids,
    )
    if encoded.ids is None:
        shared = shared_rows([silo.rows("train") for silo in federation.silos])
    else:
        shared = shared_ids(encoded.ids, encoded.silo)
    if federation.overlap:
        warn(f"{federation.overlap} test rows are also training rows")
    if shared:
        warn(f"{shared} rows are in more than one silo")
    return federation


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(map(str, names))
