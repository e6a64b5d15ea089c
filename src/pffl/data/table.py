"""Any table → encoded rows: types inferred and shown, all flaws reported together.

Nothing is imputed unless the user says so, and nothing is left out in silence.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from pffl.data import oddities, partition
from pffl.data.checks import check_choice, listing, refuse_or_warn, warn
from pffl.data.column import (
    MISSING,
    Column,
    as_number,
    as_numbers,
    category_codes,
)
from pffl.data.encoding import TableEncoding
from pffl.data.numbers import Decimal, decimal_of
from pffl.data.reading import read_table
from pffl.data.schema import Attribute
from pffl.data.silo import Rows
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
MAX_NUMERIC_GROUPS = 50
MAX_CATEGORIES = 1_000
MANY_CATEGORIES = 100
ENOUGH_ROWS = 50


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """The keywords of `Federation.from_silos`: what the columns are, and the split."""

    label: str
    group: str | Sequence[str]
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    id: str | None = None
    positive: object = None
    labels: Sequence[object] | None = None
    classification: bool = True
    missing: Missing = "refuse"
    missing_group: MissingGroup = "refuse"
    include_protected: bool = False
    strict: bool = False
    test_fraction: float = 0.2
    validation_fraction: float = 0.0
    name: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("group", "features", "drop", "categorical", "labels"):
            given = vars(self)[key]
            if given is not None:
                names = (given,) if isinstance(given, str) else tuple(map(str, given))
                object.__setattr__(self, key, names)


@dataclass(frozen=True, kw_only=True)
class TableOptions(ColumnOptions):
    """The keywords of `Federation.from_table`: also where the silos come from."""

    silo: str | None = None
    silos: int | None = None
    partition: Partition = "equal"
    by: str | None = None
    alpha: float = 1.0
    drop_empty: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        with Problems("table options", UsageError) as problems:
            check_choice(problems, "partition", self.partition, get_args(Partition))
            check_choice(problems, "missing", self.missing, get_args(Missing))
            kept = get_args(MissingGroup)
            check_choice(problems, "missing_group", self.missing_group, kept)
            if not self.group:
                problems.add("name at least one protected column: `group=`")
            if self.silo is not None and self.silos is not None:
                problems.add("give the silo column (`silo=`) or a number (`silos=`)")
            if self.partition != "equal" and not (self.silo or self.silos):
                problems.add("a partition needs a number of silos: `silos=`")
            if self.partition == "quantile_bands" and self.by is None:
                problems.add("quantile bands need a column: `by=`")

    @property
    def mentioned(self) -> tuple[str, ...]:
        """All columns that are named anywhere."""
        single = (self.label, self.silo, self.id, self.by)
        several = (*self.group, *(self.features or ()), *self.drop, *self.categorical)
        return (*(name for name in single if name is not None), *several)


def encode_table(
    table: Table, options: TableOptions
) -> tuple[
    TableEncoding, Rows, partition.Partition, partition.People | None, list[str]
]:
    """Encoding, rows, silos, people and notes; all problems raised in one error."""
    frame, notes = read_table(table)
    _check_names(frame, options)
    with Problems("table", DataError) as problems:
        inputs = _Inference(options, problems)
        inputs.add_all(frame, _inputs(frame, options))
        labels = _labels(frame[options.label], options, problems)
        attributes = [_attribute(frame[g], options, problems) for g in options.group]
        silo, silo_names = _silos(frame, options, problems)
        _check_label_sets(frame, options, silo, silo_names, problems)
        if options.id is not None:
            _check_missing(frame[options.id], "id", problems)
        if not inputs.columns:
            problems.add("no column is left as an input")
    _warn_protected(frame, inputs.columns, options)
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
        inputs.columns, attributes, labels, options.label, options.label
    )
    people = None if options.id is None else category_codes(frame[options.id])
    notes += inputs.notes + inputs.warnings
    if options.silo is None and options.silos is None:
        notes.append("no silo column is named: all rows are in one silo")
    mapping = ", ".join(f"'{name}' → {code}" for code, name in enumerate(labels))
    positive = " (positive)" if len(labels) == 2 else ""
    notes.append(f"label '{options.label}': {mapping or 'a number'}{positive}")
    copies = int(frame.duplicated().sum())
    if copies:
        notes.append(f"{copies:,} rows are copies of earlier ones, and were kept")
    return encoding, encoding.rows(frame), (silo, silo_names), people, notes


def _check_names(frame: pd.DataFrame, options: TableOptions) -> None:
    with Problems("table", DataError) as problems:
        for name in dict.fromkeys(options.mentioned):
            if name not in frame.columns:
                columns = [str(column) for column in frame.columns]
                close = difflib.get_close_matches(name, columns, n=1)
                hint = (
                    f"did you mean '{close[0]}'?" if close else f"there are {columns}"
                )
                problems.add(f"no column '{name}': {hint}")
        if not len(frame):
            problems.add("no rows")
        if options.label in options.group:
            problems.add(f"'{options.label}' cannot be label and protected attribute")
        if options.id in (options.label, *options.group):
            problems.add(f"'{options.id}' cannot be the id and label or group as well")


def _inputs(frame: pd.DataFrame, options: TableOptions) -> list[str]:
    if options.features is not None:
        return list(dict.fromkeys(options.features))
    out = {options.label, options.silo, options.id, *options.drop}
    if not options.include_protected:
        out |= set(options.group)
    return [str(name) for name in frame.columns if name not in out]


def _check_missing(series: pd.Series, what: str, problems: Problems) -> None:
    absent = int(series.isna().sum())
    if absent:
        problems.add(f"{what} '{series.name}': {absent} missing values")


@dataclass
class _Inference:
    """What is found out about the columns: to use, to note, to warn about."""

    options: TableOptions
    problems: Problems
    columns: list[Column] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add_all(self, frame: pd.DataFrame, names: Sequence[str]) -> None:
        """Decide for each named column what it is."""
        for name in names:
            series, missing = frame[name], self.options.missing
            absent = int(series.isna().sum())
            if absent and missing == "drop_column":
                self.notes.append(f"column '{name}' left out: {absent} missing values")
                continue
            if absent and missing == "refuse":
                self.problems.add(
                    f"column '{name}': {absent} missing values; `missing='indicator'` "
                    "marks them, `missing='drop_column'` leaves the column out"
                )
            if absent == len(series):
                self.notes.append(f"column '{name}' left out: it has no values")
            elif name in self.options.categorical:
                self._add_category(series, name)
            else:
                self._add_column(series, name)
        kinds: dict[str, list[str]] = {"number": [], "category": []}
        for column in self.columns:
            count = f" ({len(column.values)})" if column.kind == "category" else ""
            kinds[column.kind].append(f"{column.name}{count}")
        self.notes.append(f"numbers: {', '.join(kinds['number']) or 'none'}")
        self.notes.append(
            f"categories (values): {', '.join(kinds['category']) or 'none'}"
        )

    def _add_column(self, series: pd.Series, name: str) -> None:
        if series.dtype.kind in "mM":
            self.warnings.append(
                f"column '{name}' holds dates and was left out: turn it into a number"
            )
            return
        decimal, numbers = None, as_numbers(series)
        if numbers is None:
            decimal = decimal_of({v for v in series.dropna() if isinstance(v, str)})
            numbers = None if decimal is None else as_numbers(series, decimal)
        if numbers is None:
            self._add_text(series, name)
            return
        if decimal is not None:
            self.warnings.append(_as_read(series, name, decimal))
        elif series.dtype.kind not in "iufb":
            self.notes.append(f"column '{name}': text read as numbers")
        infinite = int(np.isinf(numbers).sum())
        if infinite:
            self.problems.add(f"column '{name}': {infinite} infinite values")
        whole = (np.floor(numbers) == numbers) | np.isnan(numbers)
        if whole.all() and _is_identifier(series):
            self.warnings.append(
                f"column '{name}' has a different whole number in every row, like an "
                "identifier; it is kept as an input: leave it out, or name it as the "
                "id, if it is one"
            )
        marked = self.options.missing == "indicator" and bool(series.isna().any())
        self.columns.append(Column(name, "number", (), marked, decimal))

    def _add_text(self, series: pd.Series, name: str) -> None:
        strange = _not_numbers(series)
        if strange:
            self.problems.add(
                f"column '{name}': numbers mixed with {listing(strange)}: repair it, "
                "or name it in `categorical=`"
            )
        elif _is_identifier(series):
            self.warnings.append(
                f"column '{name}' has a different text in (nearly) every row, like an "
                "identifier, and was left out"
            )
        else:
            self._add_category(series, name)

    def _add_category(self, series: pd.Series, name: str) -> None:
        values, _ = category_codes(series)
        if len(values) > MAX_CATEGORIES:
            self.problems.add(
                f"column '{name}': {len(values)} categories, at most {MAX_CATEGORIES}: "
                "join some of them, or name it in `drop=`"
            )
            return
        if len(values) > MANY_CATEGORIES:
            self.warnings.append(
                f"column '{name}' has {len(values)} categories, each an input of its "
                "own: training will be slow, and may learn single rows by heart"
            )
        self.columns.append(Column(name, "category", values))


def _as_read(series: pd.Series, name: str, decimal: Decimal) -> str:
    """Say how text was read as numbers, by an example that is no plain number."""
    odd = next(value for value in series.dropna() if as_number(value) is None)
    read = as_number(odd, decimal)
    return f"column '{name}': text read as numbers, such as '{odd}' as {read:.12g}"


def _not_numbers(series: pd.Series) -> list[str]:
    """Values that are no numbers in a column where most are, each with its count."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        return []
    counts = series.value_counts()
    marks: tuple[Decimal | None, ...] = (None, ".", ",")
    wrong = min(
        (
            {v: int(n) for v, n in counts.items() if as_number(v, mark) is None}
            for mark in marks
        ),
        key=lambda found: sum(found.values()),
    )
    if 2 * sum(wrong.values()) >= int(counts.sum()):
        return []
    return [f"'{value}' ({count})" for value, count in wrong.items()]


def _is_identifier(series: pd.Series) -> bool:
    """Whether a column has a value of its own in (nearly) every one of many rows."""
    known = series.dropna()
    if len(known) < ENOUGH_ROWS:
        return False
    distinct = known.nunique()
    if known.dtype.kind in "iuf":
        return bool(distinct == len(known))
    return bool(distinct > 0.9 * len(known))


def _labels(
    series: pd.Series, options: TableOptions, problems: Problems
) -> tuple[str, ...]:
    """Class names in the order of their codes; the positive one of two is the last."""
    where = f"label '{options.label}'"
    _check_missing(series, "label", problems)
    if not options.classification:
        if as_numbers(series) is None:
            problems.add(f"{where}: not all values are numbers")
        return ()
    seen, codes = category_codes(series.dropna())
    if len(seen) > MAX_CLASSES:
        problems.add(
            f"{where}: {len(seen)} different values, at most {MAX_CLASSES} classes; "
            "for a numeric target say `classification=False`"
        )
        return ()
    names = seen
    if options.labels is not None:
        names = tuple(map(str, options.labels))
        problems.found.extend(
            f"{where}: value '{name}' ({int((codes == code).sum())}) is not declared"
            for code, name in enumerate(seen)
            if name not in names
        )
    if len(seen) < 2:
        problems.add(f"{where}: one value only ({listing(seen)}): nothing to learn")
    if options.positive is not None:
        chosen = str(options.positive)
        if chosen not in names or len(names) != 2:
            problems.add(f"{where}: `positive='{chosen}'` is not one of two: {names}")
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
            f"{where}: {absent} missing values; `missing_group='{MISSING}'` makes them "
            "a group of their own"
        )
    known = series.dropna() if options.missing_group == "refuse" else series
    values, _ = category_codes(known)
    if series.dtype.kind in "iuf" and len(values) > MAX_NUMERIC_GROUPS:
        problems.add(f"{where}: {len(values)} different numbers: cut it into bands")
    elif series.dtype.kind not in "iuf" and _is_identifier(series):
        problems.add(f"{where}: {len(values)} values in {len(series)} rows, like an id")
    return Attribute(str(series.name), values)


def _silos(
    frame: pd.DataFrame, options: TableOptions, problems: Problems
) -> partition.Partition:
    if options.silo is not None:
        _check_missing(frame[options.silo], "silo", problems)
        names, codes = category_codes(frame[options.silo])
        return codes, names
    silos = 1 if options.silos is None else options.silos
    by = frame[options.by or options.label]
    if options.partition != "equal" and by.isna().any():
        problems.add(f"column '{by.name}' of the cut: {int(by.isna().sum())} missing")
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
            f"label '{options.label}' is coded differently in the silos: "
            f"{listing(shown)}; declare `labels=` if these are {len(names)} classes"
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
            f"protected attribute among the inputs: {', '.join(found)}",
            strict=options.strict,
        )


def _same_partition(one: pd.Series, count: int, other: IntArray) -> bool:
    """Whether a column is a renaming of another one, given by its codes."""
    if count < 2 or one.nunique(dropna=False) != count:
        return False
    _, codes = category_codes(one)
    return len(np.unique(codes * count + other)) == count
