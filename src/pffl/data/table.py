"""Any table → encoded rows: types inferred and shown, all flaws reported together.

Nothing is imputed unless the user says so, and nothing is left out in silence.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from pffl.data import oddities, partition
from pffl.data.arrays import noted
from pffl.data.checks import check_choice, check_whole, listing, refuse_or_warn, warn
from pffl.data.column import MISSING, Column, as_numbers, category_codes, match_names
from pffl.data.dates import Order, Part, read_day
from pffl.data.declared import (
    REMEDY,
    Declared,
    as_input,
    columns_of,
    read_as_declared,
    refuse_latin,
)
from pffl.data.encoding import TableEncoding
from pffl.data.inference import ENOUGH_ROWS, Distinct, Inference
from pffl.data.labels import label_type_of
from pffl.data.newcomers import Unseen
from pffl.data.numbers import Decimal
from pffl.data.reading import place_of, read_table
from pffl.data.roles import looks_protected
from pffl.data.schema import Attribute
from pffl.data.silo import Rows
from pffl.data.weights import weights_of
from pffl.data.words import check_widths
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import IntArray

if TYPE_CHECKING:
    import pandas as pd

Table: TypeAlias = "pd.DataFrame | str | os.PathLike[str]"
Partition = Literal["equal", "dirichlet", "quantile_bands"]
Missing = Literal["refuse", "indicator", "drop_column"]
MissingGroup = Literal["refuse", "missing"]

SITE = "(site)"
MAX_CLASSES = 100
FEW = 5  # wrong values that are named
MAX_NUMERIC_GROUPS = 50
#: Options by which columns are read off the rows: none goes with declared columns.
READ_OFF = (
    *("categorical", "dates", "date_order", "date_origin", "decimal", "rare", "hash"),
    *("labels", "missing", "missing_group"),
)


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """The keywords of `Federation.from_silos`: what the columns are, and the split."""

    label: str
    group: str | Sequence[str]
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()
    columns: Declared | None = None
    categorical: Sequence[str] = ()
    dates: Part | Sequence[Part] = ()
    date_order: Order | None = None
    date_origin: str | None = None
    decimal: Decimal | None = None
    rare: int = 1
    hash: Mapping[str, int] = field(default_factory=dict)
    sparse: bool | None = None
    id: str | None = None
    weight: str | None = None
    positive: object = None
    labels: Sequence[object] | None = None
    classification: bool = True
    missing: Missing = "refuse"
    missing_group: MissingGroup = "refuse"
    unseen: Unseen = "refuse"
    inputs: Sequence[str] = ()
    strict: bool = False
    test_fraction: float = 0.2
    validation_fraction: float = 0.0
    name: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for key in (
            *("group", "features", "inputs", "drop"),
            *("categorical", "dates", "labels"),
        ):
            given = vars(self)[key]
            if given is not None:
                names = (given,) if isinstance(given, str) else tuple(map(str, given))
                object.__setattr__(self, key, names)
        with Problems("table options", UsageError) as problems:
            self._check(problems)

    def _check(self, problems: Problems) -> None:
        for part in self.dates:
            check_choice(problems, "dates", part, get_args(Part))
        if self.date_order is not None:
            check_choice(problems, "date_order", self.date_order, get_args(Order))
        if self.decimal is not None:
            check_choice(problems, "decimal", self.decimal, get_args(Decimal))
        check_whole(problems, rare=self.rare)
        check_choice(problems, "missing", self.missing, get_args(Missing))
        kept = get_args(MissingGroup)
        check_choice(problems, "missing_group", self.missing_group, kept)
        check_choice(problems, "unseen", self.unseen, get_args(Unseen))
        if not self.group:
            problems.add("[needs-group] name at least one protected column: `group=`")
        if self.date_origin is not None:
            with noted(problems):
                read_day(self.date_origin)
        self._check_hashed(problems)
        if self.columns is not None:
            plain = ColumnOptions(label="", group="group")
            given = [k for k in READ_OFF if vars(self)[k] != vars(plain)[k]]
            if given:
                problems.add(
                    f"[options-conflict] `columns=` declares what columns hold: leave "
                    f"out {listing(given)}"
                )
            with noted(problems):
                columns_of(self.columns)

    def _check_hashed(self, problems: Problems) -> None:
        """Note widths that are none, and columns that are no inputs, or otherwise."""
        check_widths(problems, self.hash)
        others: dict[str, Collection[str | None]] = {
            "label": [self.label],
            "id": [self.id],
            "weight": [self.weight],
            "drop": self.drop,
            "categorical": self.categorical,
            "group": [name for name in self.group if name not in self.inputs],
        }
        for name in self.hash:
            problems.extend(
                f"[wrong-column] column '{name}' cannot be hashed: "
                f"it is given as `{key}=`"
                for key, names in others.items()
                if name in names
            )
            if self.features is not None and name not in self.features:
                problems.add(
                    f"[wrong-column] column '{name}' cannot be hashed: not in "
                    "`features=`"
                )


@dataclass(frozen=True, kw_only=True)
class TableOptions(ColumnOptions):
    """The keywords of `Federation.from_table`: also where the silos come from."""

    silo: str | None = None
    silos: int | None = None
    partition: Partition = "equal"
    by: str | None = None
    alpha: float = 1.0
    drop_empty: bool = False
    split_seed: int | None = None

    def _check(self, problems: Problems) -> None:
        super()._check(problems)
        check_choice(problems, "partition", self.partition, get_args(Partition))
        if self.silo is not None and self.silos is not None:
            problems.add(
                "[needs-silos] give the silo column (`silo=`) or a number (`silos=`)"
            )
        if self.partition != "equal" and not (self.silo or self.silos):
            problems.add("[needs-silos] a partition needs a number of silos: `silos=`")
        if self.partition == "quantile_bands" and self.by is None:
            problems.add("[needs-column] quantile bands need a column: `by=`")
        if self.silo in self.hash:
            problems.add(
                f"[wrong-column] column '{self.silo}' cannot be hashed: it is the silo"
            )

    @property
    def mentioned(self) -> tuple[str, ...]:
        """All columns that are named anywhere."""
        single = (self.label, self.silo, self.id, self.weight, self.by)
        several = (*self.group, *(self.features or ()), *self.inputs, *self.drop)
        several += (*self.categorical,)
        return (*(name for name in single if name is not None), *several, *self.hash)


def encode_table(
    table: Table, options: TableOptions
) -> tuple[
    TableEncoding, Rows, partition.Partition, partition.People | None, list[str]
]:
    """Encoding, rows, silos, people and notes; all problems raised in one error."""
    frame, notes = read_table(table)
    _check_names(frame, options)
    if options.columns is not None:
        refuse_latin(notes)
        return _as_declared(table, frame, columns_of(options.columns), options)
    with Problems("table", DataError) as problems:
        inputs = Inference(options, problems, lambda row: place_of(table, row))
        chosen, apart = _inputs(frame, options)
        inputs.add_all(frame, chosen)
        labels = _labels(frame[options.label], options, inputs)
        attributes = [_attribute(frame[g], options, problems) for g in options.group]
        silo, silo_names = silos_of(frame, options, problems)
        _check_label_sets(frame, options, silo, silo_names, problems)
        if options.id is not None:
            _check_missing(frame[options.id], "id", problems)
        if options.weight is not None:
            here = partial(place_of, table)
            weights_of(frame[options.weight], problems, here)
        if not inputs.columns:
            problems.add("[no-inputs] no column is left as an input")
    _warn_protected(frame, inputs.columns, options)
    if apart:
        inputs.notes.append(
            f"not used as inputs, because they look protected: {listing(apart)}; "
            "`inputs=` keeps those that it names"
        )
    if labels:
        inputs.warnings += oddities.of_labels(frame[options.label], labels)
    for attribute in attributes:
        inputs.warnings += oddities.of_groups(attribute)
    coded = [column.name for column in inputs.columns if column.kind == "category"]
    coded = [options.label, *options.group, *filter(None, [options.silo]), *coded]
    inputs.warnings += oddities.of_gaps(frame, coded)
    for warning in inputs.warnings:
        warn(warning)
    encoding = TableEncoding.of(
        inputs.columns,
        attributes,
        labels,
        options.label,
        options.label,
        label_type=label_type_of(frame[options.label], labels),
        unseen=options.unseen,
    )
    encoding = replace(encoding, weight=options.weight, sparse=options.sparse)
    people = None if options.id is None else category_codes(frame[options.id])
    notes += inputs.notes + inputs.warnings
    if options.silo is None and options.silos is None:
        notes.append("no silo column is named: all rows are in one silo")
    mapping = ", ".join(f"'{name}' → {code}" for code, name in enumerate(labels))
    positive = " (positive)" if len(labels) == 2 else ""
    notes.append(f"label '{options.label}': {mapping or 'a number'}{positive}")
    notes += oddities.of_copies(frame)
    if people is not None:
        notes += oddities.of_people(people[1], str(options.id))
    return encoding, encoding.rows(frame), (silo, silo_names), people, notes


def _as_declared(
    table: Table,
    frame: pd.DataFrame,
    columns: Mapping[str, Column],
    options: TableOptions,
) -> tuple[
    TableEncoding, Rows, partition.Partition, partition.People | None, list[str]
]:
    """Return what `encode_table` does, by what was declared and by no other row."""
    with Problems("table", DataError) as problems:
        texts = [n for n in (options.id, SITE) if n is not None and n in frame.columns]
        there = [str(n) for n in frame.columns if n not in {*texts, *options.drop}]
        absent = [name for name in there if name not in columns]
        if absent:
            problems.add(
                f"[needs-columns] not declared: {listing(map(repr, absent))}; declare "
                f"them in `columns=`, or `drop=` them: {REMEDY}"
            )
        strange = [name for name in columns if name not in there]
        if strange:
            problems.add(
                f"[missing-column] declared, and not in the table: "
                f"{listing(map(repr, strange))}"
            )
        coded = [*options.group, *filter(None, [options.silo])]
        coded += [options.label] if options.classification else []
        problems.extend(
            f"[bad-column] '{name}' is label, group or silo: declare its values"
            for name in coded
            if name in columns and columns[name].kind != "category"
        )
        names, apart = _inputs(frame, options)
        if not names:
            problems.add("[no-inputs] no column is left as an input")
    columns = {n: as_input(c) if n in names else c for n, c in columns.items()}
    frame = read_as_declared(table, columns, texts)
    _warn_protected(frame, [columns[name] for name in names], options)
    labels = columns[options.label].values
    if options.positive is not None and str(options.positive) in labels:
        chosen = str(options.positive)
        labels = (*(name for name in labels if name != chosen), chosen)
    encoding = TableEncoding.of(
        [columns[name] for name in names],
        [Attribute(name, columns[name].values) for name in options.group],
        labels,
        options.label,
        options.label,
        label_type=label_type_of(
            np.array((options.columns or {})[options.label].get("values", ())), labels
        ),
        unseen=options.unseen,
    )
    encoding = replace(encoding, weight=options.weight, sparse=options.sparse)
    with Problems("table", DataError) as problems:
        silo, silo_names = silos_of(frame, options, problems)
        if options.silo is not None and options.silo in columns:
            silo_names = columns[options.silo].values
            silo = match_names(frame[options.silo], silo_names, "silo", problems)
        if options.id is not None:
            _check_missing(frame[options.id], "id", problems)
    people = None if options.id is None else category_codes(frame[options.id])
    notes = [f"not used as inputs, because they look protected: {listing(apart)}"]
    rows = encoding.rows(frame)
    return encoding, rows, (silo, silo_names), people, notes if apart else []


def _check_names(frame: pd.DataFrame, options: TableOptions) -> None:
    with Problems("table", DataError) as problems:
        for name in dict.fromkeys(options.mentioned):
            if name not in frame.columns:
                columns = list(map(str, frame.columns))
                close = difflib.get_close_matches(name, columns, n=1)
                hint = (
                    f"did you mean '{close[0]}'?"
                    if close
                    else f"there are {listing(map(repr, columns))}"
                )
                problems.add(f"[missing-column] no column '{name}': {hint}")
        if not len(frame):
            problems.add("[no-rows] no rows")
        if options.label in options.group:
            problems.add(
                f"[wrong-column] '{options.label}' cannot be label and protected "
                "attribute"
            )
        if options.id in (options.label, *options.group):
            problems.add(
                f"[wrong-column] '{options.id}' cannot be the id and label or group "
                "as well"
            )
        taken = (options.label, *options.group, options.id, options.silo)
        if options.weight is not None and options.weight in taken:
            problems.add(
                f"[wrong-column] '{options.weight}' cannot be the weight and label, "
                "group, silo or id as well"
            )


def _inputs(frame: pd.DataFrame, options: TableOptions) -> tuple[list[str], list[str]]:
    """Return the inputs, and the columns left out because they look protected."""
    if options.features is not None:
        return list(dict.fromkeys(options.features)), []
    out = {options.label, options.silo, options.id, options.weight, *options.drop}
    out |= set(options.group) - set(options.inputs)
    names = [str(name) for name in frame.columns if name not in out]
    apart = [n for n in names if looks_protected(n) and n not in options.inputs]
    return [name for name in names if name not in apart], [repr(n) for n in apart]


def _check_missing(series: pd.Series, what: str, problems: Problems) -> None:
    absent = int(series.isna().sum())
    if absent:
        problems.add(
            f"[missing-values] {what} '{series.name}': {absent} missing values"
        )


def _labels(
    series: pd.Series, options: TableOptions, inputs: Inference
) -> tuple[str, ...]:
    """Class names in the order of their codes; the positive one of two is the last."""
    problems = inputs.problems
    where = f"label '{options.label}'"
    _check_missing(series, "label", problems)
    if not options.classification:
        if as_numbers(series) is None:
            found = Distinct(series)
            wrong = listing(inputs.shown(found, code) for code in found.odd[:FEW])
            more = f" and {len(found.odd) - FEW} more" if len(found.odd) > FEW else ""
            problems.add(
                f"[not-numbers] {where}: not all values are numbers: {wrong}{more}"
            )
        return ()
    seen, codes = category_codes(series.dropna())
    if len(seen) > MAX_CLASSES:
        problems.add(
            f"[too-many-classes] {where}: {len(seen)} different values, at most "
            f"{MAX_CLASSES} classes; for a numeric target say `classification=False`"
        )
        return ()
    names = seen
    if options.labels is not None:
        names = tuple(map(str, options.labels))
        problems.extend(
            f"[unknown-label] {where}: value '{name}' "
            f"({int((codes == code).sum())}) is not declared"
            for code, name in enumerate(seen)
            if name not in names
        )
    if len(seen) < 2:
        problems.add(
            f"[one-class] {where}: one value only ({listing(seen)}): nothing to learn"
        )
    if options.positive is not None:
        chosen = str(options.positive)
        if chosen not in names or len(names) != 2:
            problems.add(
                f"[unknown-label] {where}: `positive='{chosen}'` is not one of two: "
                f"{names}"
            )
        else:
            names = (*(name for name in names if name != chosen), chosen)
    return names


def _attribute(
    series: pd.Series, options: TableOptions, problems: Problems
) -> Attribute:
    where = f"protected attribute '{series.name}'"
    absent = int(series.isna().sum())
    if absent and options.missing_group == "refuse":
        problems.add(
            f"[missing-values] {where}: {absent} missing values; "
            f"`missing_group='{MISSING}'` makes them a group of their own"
        )
    known = series.dropna() if options.missing_group == "refuse" else series
    values, _ = category_codes(known)
    if series.dtype.kind in "iuf" and len(values) > MAX_NUMERIC_GROUPS:
        problems.add(
            f"[too-many-groups] {where}: {len(values)} different numbers: cut it into "
            "bands"
        )
    elif series.dtype.kind not in "iuf" and Distinct(series).is_identifier:
        problems.add(
            f"[looks-like-id] {where}: {len(values)} values in {len(series)} rows, "
            "like an id"
        )
    return Attribute(str(series.name), values)


def silos_of(
    frame: pd.DataFrame, options: TableOptions, problems: Problems
) -> partition.Partition:
    """Return the silo of each row, and the silos' names."""
    if options.silo is not None:
        _check_missing(frame[options.silo], "silo", problems)
        names, codes = category_codes(frame[options.silo])
        return codes, names
    silos = 1 if options.silos is None else options.silos
    by = frame[options.by or options.label]
    if options.partition != "equal" and by.isna().any():
        problems.add(
            f"[missing-values] column '{by.name}' of the cut: {int(by.isna().sum())} "
            "missing"
        )
    elif options.partition == "dirichlet":
        return partition.dirichlet(by.to_numpy(), options.alpha, silos, options.seed)
    elif options.partition == "quantile_bands":
        return partition.quantile_bands(by.to_numpy(), silos)
    return partition.equal(len(frame), silos, options.seed)


def _check_label_sets(
    frame: pd.DataFrame,
    options: TableOptions,
    silo: IntArray,
    silo_names: Sequence[str],
    problems: Problems,
) -> None:
    """Refuse silos that code two classes differently: here {0, 1}, there {1, 2}."""
    if options.silo is None or options.labels is not None or not options.classification:
        return
    known = frame[options.label].notna().to_numpy(dtype=bool)
    names, codes = category_codes(frame[options.label][known])
    if len(names) < 3:
        return
    sets: dict[int, list[str]] = {}
    for pair in np.unique(silo[known] * len(names) + codes).tolist():
        k, code = divmod(pair, len(names))
        sets.setdefault(k, []).append(names[code])
    if all(len(found) <= 2 for found in sets.values()):
        shown = [f"'{silo_names[k]}' {found}" for k, found in sets.items()]
        problems.add(
            f"[silos-differ] label '{options.label}' is coded differently in the "
            f"silos: {listing(shown)}; declare `labels=` if these are {len(names)} "
            "classes"
        )


def _warn_protected(
    frame: pd.DataFrame, columns: Sequence[Column], options: TableOptions
) -> None:
    """Warn of inputs that are a protected attribute; refuse also what repeats it.

    Where nothing is refused, what repeats it is said with how much it tells (fault 12).
    """
    found = [f"'{c.name}'" for c in columns if c.name in options.group]
    groups = {
        name: category_codes(frame[name])
        for name in options.group
        if options.strict and len(frame) >= ENOUGH_ROWS
    }
    for column in columns:
        if column.name not in options.group:
            found.extend(
                f"'{column.name}' (says the same as '{name}')"
                for name, (values, codes) in groups.items()
                if _same_partition(frame[column.name], len(values), codes)
            )
    if found:
        refuse_or_warn(
            "[protected-input] protected attribute among the inputs: "
            f"{', '.join(found)}",
            strict=options.strict,
        )


def _same_partition(one: pd.Series, count: int, other: IntArray) -> bool:
    """Whether a column is a renaming of another one, given by its codes."""
    if count < 2 or one.nunique(dropna=False) != count:
        return False
    _, codes = category_codes(one)
    return len(np.unique(codes * count + other)) == count
