"""Any table → encoded rows: types inferred and shown, all flaws reported together.

Columns may be declared instead (`columns=`). What is read off the rows tells of them:
that a category is there, say, tells that somebody has it. A run with a privacy budget
takes a table with declared columns only.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from pffl.data import inference, partition
from pffl.data.checks import check_choice, check_whole, listing, refuse_or_warn, warn
from pffl.data.encoding import (
    OTHER,
    Column,
    Decimal,
    Part,
    Place,
    TableEncoding,
    Unseen,
    as_numbers,
    category_codes,
    label_type_of,
    match_names,
    plain_text,
    read_day,
    read_numbers,
    shown_values,
    unknown_remarks,
    weights_of,
)
from pffl.data.inference import looks_protected
from pffl.data.reading import LATIN, Table, place_of, read_chunks, read_table, require
from pffl.data.schema import MISSING, Attribute
from pffl.data.silo import Rows
from pffl.errors import DataError, Problems, UsageError
from pffl.records import read
from pffl.typing import IntArray

if TYPE_CHECKING:
    import pandas as pd

    from pffl.data.encoding import Found

Partition = Literal["equal", "dirichlet", "quantile_bands"]
Missing = Literal["refuse", "indicator", "drop_column"]
MissingGroup = Literal["refuse", "missing"]
MissingLabel = Literal["refuse", "drop"]
Entry: TypeAlias = bool | int | float | str | Sequence[int | float | str]
Declared: TypeAlias = Mapping[str, Mapping[str, Entry]]

SITE = "(site)"
MAX_CLASSES = 100
MAX_NUMERIC_GROUPS = 50
RANGE = "range"
REMEDY = "`pffl data TABLE --columns` writes them from a public or made-up table"
#: Options by which columns are read off the rows: none goes with declared columns.
READ_OFF = (
    *("categorical", "dates", "date_format", "date_origin", "decimal", "rare", "hash"),
    *("labels", "missing", "missing_group"),
)


@contextmanager
def noted(problems: Problems) -> Iterator[None]:
    """Note a `DataError` as one of several problems instead of raising it."""
    try:
        yield
    except DataError as error:
        problems.add(error)


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
    date_format: str | None = None
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
    missing_label: MissingLabel = "refuse"
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
        if self.decimal is not None:
            check_choice(problems, "decimal", self.decimal, get_args(Decimal))
        check_whole(problems, rare=self.rare)
        for key, kind in (
            ("missing", Missing),
            ("missing_group", MissingGroup),
            ("missing_label", MissingLabel),
            ("unseen", Unseen),
        ):
            check_choice(problems, key, vars(self)[key], get_args(kind))
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
        for column, width in self.hash.items():
            with noted(problems):
                Column.from_dict({"name": column, "kind": "text", "hash": width})
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


class EncodedTable(NamedTuple):
    """A table that was read: encoding, rows, silos, people, and notes."""

    encoding: TableEncoding
    rows: Rows
    silos: partition.Partition
    people: partition.People | None
    notes: list[str]


def encode_table(table: Table, options: TableOptions) -> EncodedTable:
    """Read and encode a table; all problems are raised in one error."""
    frame, notes = read_table(table)
    _check_names(frame, options)
    if options.columns is not None:
        refuse_latin(notes)
        return _as_declared(table, frame, columns_of(options.columns), options)
    frame, more, numbers = _labelled(frame, options)
    notes += more

    def place(row: int) -> str:
        return place_of(table, int(numbers[row]))

    columns, warnings = list[Column](), list[str]()
    with Problems("table", DataError) as problems:
        chosen, apart = _inputs(frame, options)
        for name in chosen:
            distinct = inference.Distinct(frame[name])
            found = inference.infer(distinct, name, options, problems, place)
            columns += [] if found.column is None else [found.column]
            notes += found.notes
            warnings += found.warnings
        notes += inference.kinds_of(columns)
        labels = _labels(frame[options.label], options, problems, place)
        attributes = [_attribute(frame[g], options, problems) for g in options.group]
        silo, silo_names = silos_of(frame, options, problems)
        _check_label_sets(frame, options, silo, silo_names, problems)
        if options.id is not None:
            _check_missing(frame[options.id], "id", problems)
        if options.weight is not None:
            weights_of(frame[options.weight], problems, place)
        if not columns:
            problems.add("[no-inputs] no column is left as an input")
    _warn_protected(frame, columns, options)
    if apart:
        notes.append(
            f"not used as inputs, because they look protected: {listing(apart)}; "
            "`inputs=` keeps those that it names"
        )
    if labels:
        warnings += inference.label_warnings(frame[options.label], labels)
    for attribute in attributes:
        where = f"protected attribute '{attribute.name}'"
        warnings += inference.spellings(where, attribute.values)
        if len(attribute.values) == 1:
            warnings.append(
                f"{where} has one value only ('{attribute.values[0]}'): everybody is "
                "in one group, and a bound on it is one on the mean loss of all rows"
            )
    coded = [column.name for column in columns if column.kind == "category"]
    coded = [options.label, *options.group, *filter(None, [options.silo]), *coded]
    warnings += inference.gap_warnings(frame, coded)
    for warning in warnings:
        warn(warning)
    encoding = TableEncoding.of(
        columns,
        attributes,
        labels,
        options.label,
        label_type=label_type_of(frame[options.label], labels),
        unseen=options.unseen,
        weight=options.weight,
        sparse=options.sparse,
    )
    notes += warnings
    if options.silo is None and options.silos is None:
        notes.append("no silo column is named: all rows are in one silo")
    mapping = ", ".join(f"'{name}' → {code}" for code, name in enumerate(labels))
    positive = " (positive)" if len(labels) == 2 else ""
    notes.append(f"label '{options.label}': {mapping or 'a number'}{positive}")
    notes += inference.copies_note(frame)
    people = _people(frame, options, notes)
    rows = encoding.rows(frame, place=place)
    return EncodedTable(encoding, rows, (silo, silo_names), people, notes)


def _labelled(
    frame: pd.DataFrame, options: TableOptions
) -> tuple[pd.DataFrame, list[str], IntArray]:
    """Return the rows to use, a note on those left out, and their numbers."""
    kept = np.arange(len(frame))
    absent = frame[options.label].isna().to_numpy(dtype=bool)
    if options.missing_label == "refuse" or not absent.any():
        return frame, [], kept
    if absent.all():
        raise DataError(f"[no-rows] label '{options.label}': no row has one")
    told = f"{int(absent.sum()):,} rows without a label were left out"
    return frame[~absent].reset_index(drop=True), [told], kept[~absent]


def _people(
    frame: pd.DataFrame, options: TableOptions, notes: list[str]
) -> partition.People | None:
    """Return ids and whom each row is about, where an id says so."""
    if options.id is None:
        return None
    people = category_codes(frame[options.id])
    rows = np.bincount(people[1])
    several = int((rows > 1).sum())
    if several:
        notes.append(
            f"id '{options.id}': {len(rows):,} people in {len(frame):,} rows; "
            f"{several:,} have several, at most {rows.max():,}, which stay in one split"
        )
    return people


def read_alike(
    table: Table,
    encoding: TableEncoding,
    options: TableOptions,
    *,
    unseen: Unseen | None = None,
    name: str = "table",
) -> EncodedTable:
    """Read another table with labels as the first one was.

    Parameters
    ----------
    table
        A DataFrame, or a file.
    encoding
        How the first table became rows; so will this one.
    options
        Silos and splits; a column of silos or ids need not be there.
    unseen
        What becomes of unknown categories, other than the encoding says; it is noted.
    name
        What to call the rows.
    """
    frame, notes = read_table(table)
    columns = list(map(str, frame.columns))
    if encoding.label not in columns:
        raise DataError(
            f"[missing-column] '{name}' has no column '{encoding.label}', the label: "
            "without it nobody knows where the model is wrong (pffl predict needs "
            "none)"
        )
    require([a.name for a in encoding.schema.attributes], columns, f"'{name}'")
    options = replace(
        options,
        silo=options.silo if options.silo in columns else None,
        id=options.id if options.id in columns else None,
        partition=options.partition if options.by in (None, *columns) else "equal",
    )
    found: Found = {}
    rows = encoding.rows(
        frame, place=lambda row: place_of(table, row), unseen=unseen, found=found
    )
    with Problems(f"'{name}'", DataError) as problems:
        silos = silos_of(frame, options, problems)
    notes += unknown_remarks(found)
    return EncodedTable(encoding, rows, silos, _people(frame, options, []), notes)


# Declared columns


def columns_of(declared: Declared) -> dict[str, Column]:
    """Return the columns by name, or raise all that is wrong with them."""
    found: dict[str, Column] = {}
    with Problems("columns", UsageError) as problems:
        for name, given in declared.items():
            plain = {key: value for key, value in given.items() if key != RANGE}
            values = plain.get("values", ())
            if isinstance(values, Sequence) and not isinstance(values, str):
                plain["values"] = [str(value) for value in values]
            where, whole = f"column '{name}'", {"name": name, **plain}
            with noted(problems):
                column = read(Column, whole, source=where, error=DataError)
                if (column.kind == "category") != bool(column.values):
                    problems.add(
                        f"[bad-column] {where}: categories, and they alone, have values"
                    )
                if RANGE in given and column.kind != "number":
                    problems.add(f"[bad-column] {where}: only numbers have a range")
                found[name] = column
        with noted(problems):
            ranges_of(declared)
    return found


def ranges_of(declared: Declared) -> dict[str, tuple[float, float]]:
    """Return what numbers are between, as far as that is declared."""
    ranges = {}
    for name, given in declared.items():
        if RANGE in given:
            ends = given[RANGE]
            if not isinstance(ends, Sequence) or isinstance(ends, str):
                ends = ()
            low, high = (*map(float, ends), np.nan, np.nan)[:2]
            if len(ends) != 2 or not low < high:
                raise DataError(
                    f"[wrong-value] column '{name}': its range is two numbers, the "
                    "lower first"
                )
            ranges[name] = (low, high)
    return ranges


def refuse_latin(notes: Sequence[str]) -> None:
    """Refuse text whose one odd letter changed how all letters were read."""
    if LATIN in notes:
        raise DataError(
            "[not-text] declared columns are read from UTF-8 text: nobody's letters "
            "may change how others' are read: save the file as UTF-8"
        )


def read_as_declared(
    table: Table, columns: Mapping[str, Column], others: Sequence[str] = ()
) -> pd.DataFrame:
    """Read a table by what was declared, and `others` as text.

    Each value is read by itself. What pandas makes of a column depends on all of its
    values: with one letter among them, ``01`` is no longer 1. Values that are not
    declared are ``other``, where that is declared.
    """
    import pandas as pd

    texts = [Column(name, "category") for name in others]
    wanted = [*columns.values(), *texts]
    frame = pd.concat([c.frame for c in read_chunks(table, wanted)], ignore_index=True)
    for column in wanted:
        if column.kind == "category":
            text = frame[column.name].map(str, na_action="ignore").astype(object)
            for fallback in (MISSING, OTHER):
                if fallback in column.values:
                    text = text.fillna(fallback)
            known = set(column.values)
            names = {t: plain_text(t.replace(",", ".")) for t in set(text.dropna())}
            names = {t: name for t, name in names.items() if t not in known}
            names = {t: name if name in known else OTHER for t, name in names.items()}
            if OTHER not in known:
                names = {t: name for t, name in names.items() if name != OTHER}
            frame[column.name] = text.replace(names) if names else text
    return frame


def declare(frame: pd.DataFrame, encoding: TableEncoding, *coded: str) -> Declared:
    """Return columns as a table has them, to be declared for others like it.

    Parameters
    ----------
    frame
        A public table, or one that is made up.
    encoding
        How it was read.
    coded
        Columns besides label, groups and inputs whose values are declared.
    """
    known = {a.name: list(a.values) for a in encoding.schema.attributes}
    if encoding.schema.labels:
        known[encoding.label] = list(encoding.schema.labels)
    for name in coded:
        known[name] = sorted(frame[name].dropna().map(str).unique().tolist())
    out: dict[str, dict[str, Entry]] = {
        name: {"kind": "category", "values": values} for name, values in known.items()
    }
    for column in encoding.columns:
        own = {k: v for k, v in column.as_dict().items() if k != "name"}
        numbers = as_numbers(frame[column.name], column.decimal)
        if column.kind == "number" and numbers is not None:
            low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
            own |= {RANGE: [low, high]} if low < high else {}
        out[column.name] = own  # type: ignore[assignment]
    return out


def _as_declared(
    table: Table,
    frame: pd.DataFrame,
    columns: Mapping[str, Column],
    options: TableOptions,
) -> EncodedTable:
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
    columns = {n: _with_other(c) if n in names else c for n, c in columns.items()}
    frame = read_as_declared(table, columns, texts)
    frame, notes, _ = _labelled(frame, options)
    _warn_protected(frame, [columns[name] for name in names], options)
    labels = columns[options.label].values
    if options.positive is not None and str(options.positive) in labels:
        chosen = str(options.positive)
        labels = (*(name for name in labels if name != chosen), chosen)
    given = np.array((options.columns or {})[options.label].get("values", ()))
    encoding = TableEncoding.of(
        [columns[name] for name in names],
        [Attribute(name, columns[name].values) for name in options.group],
        labels,
        options.label,
        label_type=label_type_of(given, labels),
        unseen=options.unseen,
        weight=options.weight,
        sparse=options.sparse,
    )
    with Problems("table", DataError) as problems:
        silo, silo_names = silos_of(frame, options, problems)
        if options.silo is not None and options.silo in columns:
            silo_names = columns[options.silo].values
            silo = match_names(frame[options.silo], silo_names, "silo", problems)
        if options.id is not None:
            _check_missing(frame[options.id], "id", problems)
    people = None if options.id is None else category_codes(frame[options.id])
    if apart:
        told = f"not used as inputs, because they look protected: {listing(apart)}"
        notes.append(told)
    silos = silo, silo_names
    return EncodedTable(encoding, encoding.rows(frame), silos, people, notes)


def _with_other(column: Column) -> Column:
    """Return a declared column as an input: values that are not declared are other."""
    if column.kind != "category":
        return column
    values = tuple(v for v in column.values if v != OTHER)
    return replace(column, values=(*values, OTHER), other=True)


# One table per silo


def join_sites(
    tables: Mapping[str, Table], columns: Mapping[str, Column]
) -> tuple[pd.DataFrame, list[str]]:
    """Stack the tables with a column `SITE`; refuse different columns, with a diff.

    Declared columns are read as declared, and the others as they are.
    """
    import pandas as pd

    if not tables:
        raise DataError("[no-silos] no silos")
    frames: dict[str, pd.DataFrame] = {}
    notes: list[str] = []
    with Problems("silos", DataError) as problems:
        for name, table in tables.items():
            try:
                frame, more = read_table(table)
                if columns:
                    refuse_latin(more)
                    others = [c for c in map(str, frame.columns) if c not in columns]
                    frame = read_as_declared(table, columns, others)
                frames[str(name)] = frame
            except DataError as error:
                problems.add(f"[silo-refused] silo '{name}': {error}")
            else:
                notes.extend(f"silo '{name}': {note}" for note in more)
    _compare_columns(frames)
    stacked = [frame.assign(**{SITE: name}) for name, frame in frames.items()]
    return pd.concat(stacked, ignore_index=True), notes


def _compare_columns(frames: Mapping[str, pd.DataFrame]) -> None:
    """Raise one error with every difference to the first silo's columns (fault 11)."""
    kinds = {
        name: {str(column): _kind(frame[column]) for column in frame.columns}
        for name, frame in frames.items()
    }
    first, expected = next(iter(kinds.items()))
    with Problems(f"silos differ from '{first}'", DataError) as problems:
        for name, found in kinds.items():
            lines = [f"- {column}" for column in expected if column not in found]
            lines += [f"+ {column}" for column in found if column not in expected]
            lines += [
                f"~ {column}: {kind} → {found[column]}"
                for column, kind in expected.items()
                if "empty" not in (kind, found.get(column, kind))
                and kind != found.get(column, kind)
            ]
            if not lines and list(found) != list(expected):
                lines = [f"order {list(found)}, expected {list(expected)}"]
            if not len(frames[name]):
                lines.append("no rows")
            if lines:
                problems.add(f"[silos-differ] '{name}': {'; '.join(lines)}")


def _kind(series: pd.Series) -> str:
    """Whether a column holds numbers or text; nothing is known of an empty one."""
    if not series.notna().any():
        return "empty"
    if series.dtype.kind in "mM":
        return "date"
    return "text" if as_numbers(series) is None else "number"


# Roles of columns


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
    series: pd.Series, options: TableOptions, problems: Problems, place: Place
) -> tuple[str, ...]:
    """Class names in the order of their codes; the positive one of two is the last."""
    where = f"label '{options.label}'"
    if series.isna().any():
        problems.add(
            f"[missing-values] {where}: {int(series.isna().sum())} missing values; "
            "`missing_label='drop'` leaves these rows out"
        )
    if not options.classification:
        wrong = read_numbers(series)[1]
        if wrong.any():
            shown = shown_values(series, wrong, place)
            problems.add(f"[not-numbers] {where}: not all values are numbers: {shown}")
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
    elif series.dtype.kind not in "iuf" and inference.Distinct(series).is_identifier:
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
        if options.strict and len(frame) >= inference.ENOUGH_ROWS
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
