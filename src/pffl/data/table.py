"""Any table → encoded rows: columns as declared or inferred, all flaws at once.

What is read off the rows tells of them: that a category is there, say, tells that
someone has it. So a run with a privacy budget takes only tables of which all columns
in use are declared (`columns=`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from pffl.data import columns as kinds
from pffl.data import infer, partition
from pffl.data.checks import check_choice, check_whole, listing, warn
from pffl.data.columns import (
    OTHER,
    Column,
    Place,
    TableEncoding,
    Unseen,
    category_codes,
    in_row,
    read_numbers,
    weights_of,
)
from pffl.data.read import LATIN, Table, place_of, read_table, require
from pffl.data.rows import Rows
from pffl.data.schema import MISSING, Attribute
from pffl.errors import DataError, Problems, UsageError
from pffl.records import read
from pffl.typing import IntArray

if TYPE_CHECKING:
    import pandas as pd

Partition = Literal["equal", "dirichlet", "quantile_bands"]
Missing = Literal["refuse", "indicator", "drop_column"]
MissingLabel = Literal["refuse", "drop"]
Entry: TypeAlias = bool | int | float | str | Sequence[int | float | str]
Declared: TypeAlias = Mapping[str, Mapping[str, Entry]]
Known: TypeAlias = dict[str, Column]

SITE = "(site)"  # the column that says which of several tables a row is from
MAX_CLASSES = 100
MAX_NUMERIC_GROUPS = 50
REMEDY = "`pffl data TABLE --columns` writes them from a public or made-up table"
#: The kind of a declared column, where another key tells it.
KINDS = {"values": "category", "hash": "text", "range": "number", "fill": "number"}


@contextmanager
def noted(problems: Problems) -> Iterator[None]:
    """Note a `DataError` as one of several problems instead of raising it."""
    try:
        yield
    except DataError as error:
        problems.add(error)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The keywords of `Federation.from_table`, which describes them."""

    label: str
    group: str | Sequence[str]
    silo: str | None = None
    silos: int | None = None
    partition: Partition = "equal"
    by: str | None = None
    alpha: float = 1.0
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()
    inputs: Sequence[str] = ()
    columns: Declared = field(default_factory=dict)
    id: str | None = None
    weight: str | None = None
    classification: bool = True
    missing: Missing = "refuse"
    missing_label: MissingLabel = "refuse"
    rare: int = 1
    unseen: Unseen = "refuse"
    test_fraction: float = 0.2
    validation_fraction: float = 0.0
    drop_empty: bool = False
    name: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("group", "features", "inputs", "drop"):
            given = vars(self)[key]
            if given is not None:
                names = (given,) if isinstance(given, str) else tuple(map(str, given))
                object.__setattr__(self, key, names)
        with Problems("table options", UsageError) as problems:
            check_whole(problems, rare=self.rare)
            for key, kind in (
                ("partition", Partition),
                ("missing", Missing),
                ("missing_label", MissingLabel),
                ("unseen", Unseen),
            ):
                check_choice(problems, key, vars(self)[key], get_args(kind))
            if not self.group:
                problems.add("[needs-group] name a protected column: `group=`")
            if self.silo is not None and self.silos is not None:
                told = "give the silo column (`silo=`) or a number (`silos=`)"
                problems.add(f"[needs-silos] {told}")
            if self.partition != "equal" and not (self.silo or self.silos):
                problems.add("[needs-silos] a partition needs a number: `silos=`")
            if self.partition == "quantile_bands" and self.by is None:
                problems.add("[needs-column] quantile bands need a column: `by=`")
            with noted(problems):
                columns_of(self.columns)

    @property
    def mentioned(self) -> list[str]:
        """All columns that are named anywhere."""
        single = (self.label, self.silo, self.id, self.weight, self.by)
        several = (*self.group, *(self.features or ()), *self.inputs, *self.drop)
        return [n for n in (*single, *several, *self.columns) if n is not None]


class EncodedTable(NamedTuple):
    """A table that was read: encoding, rows, silos, people, notes.

    `undeclared`: columns of which something was read off the rows.
    """

    encoding: TableEncoding
    rows: Rows
    silos: partition.Partition
    people: partition.People | None
    notes: list[str]
    undeclared: tuple[str, ...] = ()


def encode_table(table: Table, options: TableOptions) -> EncodedTable:
    """Read and encode a table; all problems are raised in one error."""
    declared = columns_of(options.columns)
    frame, notes = read_table(table, _texts(options))
    _check_roles(frame, options)
    chosen, apart = _inputs(frame, options)
    known = {n: c for n, c in declared.items() if c.kind != "category" or c.values}
    for name, column in known.items():
        if column.kind == "category":
            if name in chosen:
                values = tuple(v for v in column.values if v != OTHER)
                column = replace(column, values=(*values, OTHER), other=True)
                known[name] = column
            frame[name] = _as_declared(frame[name], column)
    numbers = np.arange(len(frame))
    if options.missing_label == "drop":
        numbers = np.flatnonzero(frame[options.label].notna())
        if not len(numbers):
            raise DataError(f"[no-rows] label '{options.label}': no row has one")
        if absent := len(frame) - len(numbers):
            notes.append(f"{absent:,} rows without a label were left out")
        frame = frame.iloc[numbers].reset_index(drop=True)

    def place(row: int) -> str:
        return place_of(table, int(numbers[row]))

    columns, warnings = list[Column](), list[str]()
    used = [*chosen, options.label, *options.group, *filter(None, [options.silo])]
    read_off = set(used) - {*known, SITE}
    with Problems("table", DataError) as problems:
        for name in chosen:
            if name in known:
                column, gaps = known[name], frame[name].isna().any()
                bare = not column.indicator and column.fill is None
                if gaps and bare and options.missing == "indicator":
                    column = replace(column, indicator=column.kind != "category")
                    read_off.add(name)
                columns.append(column)
                continue
            found = infer.infer(
                infer.Distinct(frame[name]), name, problems, place,
                missing=options.missing, rare=options.rare, category=name in declared,
            )  # fmt: skip
            columns += [] if found.column is None else [found.column]
            notes += found.notes
            warnings += found.warnings
        labels = _labels(frame[options.label], options, known, problems, place)
        attributes = [_attribute(frame[n], known, problems) for n in options.group]
        silos = silos_of(frame, options, problems, known)
        if options.label not in known and options.silo and options.classification:
            _check_label_sets(frame[options.label], *silos, problems)
        if options.id is not None:
            _check_missing(frame[options.id], "id", problems)
        if options.weight is not None:
            weights_of(frame[options.weight], problems, place)
        if not columns:
            problems.add("[no-inputs] no column is left as an input")
    undeclared = tuple(name for name in dict.fromkeys(used) if name in read_off)
    notes += infer.kinds_of(columns)
    if apart:
        notes.append(
            f"not used as inputs, because they look protected: {listing(apart)}; "
            "`inputs=` keeps those that it names"
        )
    if undeclared:
        coded = [options.label, *options.group, *filter(None, [options.silo])]
        coded += [column.name for column in columns if column.kind == "category"]
        warnings += infer.spellings(f"label '{options.label}'", labels)
        for attribute in attributes:
            where = f"protected attribute '{attribute.name}'"
            warnings += infer.spellings(where, attribute.values)
        warnings += infer.gap_warnings(frame, coded)
    else:
        _check_private(options, notes)
    among = [f"'{column.name}'" for column in columns if column.name in options.group]
    if among:
        warn(f"protected attribute among the inputs: {', '.join(among)}")
    for warning in warnings:
        warn(warning)
    given: Any = declared[options.label].values if options.label in known else None
    encoding = TableEncoding.of(
        columns,
        attributes,
        labels,
        options.label,
        label_type=kinds.label_type_of(given or frame[options.label], labels),
        unseen=options.unseen,
        weight=options.weight,
    )
    notes += warnings
    if options.silo is None and options.silos is None:
        notes.append("no silo column is named: all rows are in one silo")
    mapping = ", ".join(f"'{name}' → {code}" for code, name in enumerate(labels))
    positive = " (positive)" if len(labels) == 2 else ""
    notes.append(f"label '{options.label}': {mapping or 'a number'}{positive}")
    people = _people(frame, options, notes)
    rows = encoding.rows(frame, place=place)
    return EncodedTable(encoding, rows, silos, people, notes, undeclared)


def _check_private(options: TableOptions, notes: Sequence[str]) -> None:
    """Refuse options that would have no effect."""
    given = ["rare"] * (options.rare != 1)
    given += ["missing"] * (options.missing != "refuse")
    if given:
        told = f"declares all columns: leave out {listing(given)}"
        raise UsageError(f"[options-conflict] `columns=` {told}")
    _check_letters(notes)


def _check_letters(notes: Sequence[str]) -> None:
    """Refuse text of which one odd letter says how all of it is read."""
    if LATIN in notes:
        raise DataError(
            "[not-text] declared columns are read from UTF-8 text: no one's letters "
            "may change how others' are read: save the file as UTF-8"
        )


def _people(
    frame: pd.DataFrame, options: TableOptions, notes: list[str]
) -> partition.People | None:
    """Return ids and the person of each row, where ids are known."""
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
    """Read another table with labels as the first one was: see `Federation.alike`."""
    frame, notes = read_table(table, list(filter(None, [options.id])))
    columns = list(map(str, frame.columns))
    if encoding.label not in columns:
        raise DataError(
            f"[missing-column] '{name}' has no column '{encoding.label}', the label "
            "(pffl predict needs none)"
        )
    require([a.name for a in encoding.schema.attributes], columns, f"'{name}'")
    options = replace(
        options,
        silo=options.silo if options.silo in columns else None,
        id=options.id if options.id in columns else None,
        partition=options.partition if options.by in (None, *columns) else "equal",
    )
    rows = encoding.rows(frame, place=lambda row: place_of(table, row), unseen=unseen)
    with Problems(f"'{name}'", DataError) as problems:
        silos = silos_of(frame, options, problems)
    return EncodedTable(encoding, rows, silos, _people(frame, options, []), notes)


# Declared columns


def columns_of(declared: Declared) -> Known:
    """Return the columns by name, or raise all that is wrong with them.

    The kind may be left out where another key tells it. Categories without values are
    read off the rows.
    """
    found: Known = {}
    with Problems("columns", UsageError) as problems:
        if not isinstance(declared, Mapping):
            problems.add("[bad-column] `columns=` has an entry for each column")
            declared = {}
        for name, given in declared.items():
            if not isinstance(given, Mapping):
                told = "say what it holds by keys, such as {'kind': 'number'}"
                problems.add(f"[bad-column] column '{name}': {told}")
                continue
            told = [{"kind": kind} for key, kind in KINDS.items() if key in given]
            plain: dict[str, Any] = {"name": name, **(told or [{}])[0], **given}
            if isinstance(values := plain.get("values"), list | tuple):
                plain["values"] = [str(value) for value in values]
            with noted(problems):
                where = f"column '{name}'"
                found[name] = read(Column, plain, source=where, error=DataError)
    return found


def _texts(options: TableOptions) -> list[str]:
    """Return the columns of a file that are read as they are written, value by value.

    Those that are declared, but for numbers, and the id.
    """
    declared = columns_of(options.columns).items()
    texts = [n for n, c in declared if c.values or c.kind == "text"]
    return texts if options.id is None else [*texts, options.id]


def _as_declared(series: pd.Series, column: Column) -> pd.Series:
    """Return the values of a declared category, each read alone.

    What pandas makes of a column depends on all of its values: with one letter among
    them, ``01`` is no longer 1. Values that are not declared are ``other``, where that
    is declared.
    """
    text = series.map(str, na_action="ignore").astype(object)
    for fallback in (MISSING, OTHER):
        if fallback in column.values:
            text = text.fillna(fallback)
    names = {}
    for written in set(text.dropna()) - set(column.values):
        name = kinds.plain_text(written.replace(",", "."))
        if name in column.values or OTHER in column.values:
            names[written] = name if name in column.values else OTHER
    return text.replace(names) if names else text


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
    out: dict[str, Any] = {
        name: {"kind": "category", "values": values} for name, values in known.items()
    }
    for column in encoding.columns:
        own = {k: v for k, v in column.as_dict().items() if k != "name"}
        if column.kind == "number":
            numbers = read_numbers(frame[column.name])[0]
            low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
            own |= {"range": [low, high]} if low < high else {}
        out[column.name] = own
    return out


# One table per silo


def join_sites(
    tables: Mapping[str, Table], options: TableOptions
) -> tuple[pd.DataFrame, list[str]]:
    """Stack the tables with a column `SITE`; refuse different columns, with a diff."""
    import pandas as pd

    if not tables:
        raise DataError("[no-silos] no silos")
    frames: dict[str, pd.DataFrame] = {}
    notes: list[str] = []
    with Problems("silos", DataError) as problems:
        for name, table in tables.items():
            try:
                frame, more = read_table(table, _texts(options))
                if options.columns:
                    _check_letters(more)
            except DataError as error:
                problems.add(f"[silo-refused] silo '{name}': {error}")
            else:
                frames[str(name)] = frame
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
    return "text" if read_numbers(series)[1].any() else "number"


# Roles of columns


def _check_roles(frame: pd.DataFrame, options: TableOptions) -> None:
    """Refuse columns that are not there, or would be two things at once."""
    require(options.mentioned, list(map(str, frame.columns)), "table")
    with Problems("table", DataError) as problems:
        if not len(frame):
            problems.add("[no-rows] no rows")
        single = [options.label, options.id, options.weight]
        given = [n for n in (*single, *options.group, options.silo) if n is not None]
        given += {*(options.features or ()), *options.inputs} & set(single)
        for name in dict.fromkeys(given):
            if given.count(name) > 1 and {name} != {options.silo} & set(options.group):
                problems.add(f"[wrong-column] '{name}' cannot be two things at once")


def _inputs(frame: pd.DataFrame, options: TableOptions) -> tuple[list[str], list[str]]:
    """Return the inputs, and the columns left out because they look protected."""
    if options.features is not None:
        return list(dict.fromkeys(options.features)), []
    out = {options.label, options.silo, options.id, options.weight, *options.drop}
    out |= set(options.group) - set(options.inputs)
    names = [str(name) for name in frame.columns if name not in out]
    apart = [n for n in names if infer.looks_protected(n) and n not in options.inputs]
    return [name for name in names if name not in apart], [repr(n) for n in apart]


def _check_missing(
    series: pd.Series, what: str, problems: Problems, remedy: str = ""
) -> None:
    if absent := int(series.isna().sum()):
        told = f"{what} '{series.name}': {absent} missing values{remedy}"
        problems.add(f"[missing-values] {told}")


def _labels(
    series: pd.Series,
    options: TableOptions,
    known: Known,
    problems: Problems,
    place: Place = in_row,
) -> tuple[str, ...]:
    """Class names in the order of their codes; the positive one of two is the last."""
    where = f"label '{options.label}'"
    remedy = "; `missing_label='drop'` leaves these rows out"
    _check_missing(series, "label", problems, remedy)
    if not options.classification:
        kinds.present_numbers(series.dropna(), where, problems, place)
        return ()
    names, _ = category_codes(series.dropna())
    if len(names) > MAX_CLASSES:
        problems.add(
            f"[too-many-classes] {where}: {len(names)} different values, at most "
            f"{MAX_CLASSES} classes; for a numeric target say `classification=False`"
        )
        return ()
    if len(names) < 2:
        problems.add(
            f"[one-class] {where}: one value only ({listing(names)}): nothing to learn"
        )
    return _declared_values(options.label, known, problems) or names


def _declared_values(name: str, known: Known, problems: Problems) -> tuple[str, ...]:
    """Return the values of a label, group or silo; none where it is not declared."""
    if name in known and known[name].kind != "category":
        told = "is label, group or silo: declare its values"
        problems.add(f"[bad-column] '{name}' {told}")
    return known[name].values if name in known else ()


def _attribute(series: pd.Series, known: Known, problems: Problems) -> Attribute:
    name = str(series.name)
    if values := _declared_values(name, known, problems):
        return Attribute(name, values)
    where, (values, _) = (
        f"protected attribute '{name}'",
        category_codes(series.dropna()),
    )
    entry = {name: {"values": [*values, MISSING]}}
    remedy = f"; to make them a group, declare it: `columns={entry!r}`"
    _check_missing(series, "protected attribute", problems, remedy)
    series = series.dropna()
    numbers = series.dtype.kind in "iuf"
    if numbers and len(values) > MAX_NUMERIC_GROUPS:
        told = f"{len(values)} different numbers: cut it into bands"
        problems.add(f"[too-many-groups] {where}: {told}")
    elif not numbers and infer.Distinct(series).is_identifier:
        told = f"{len(values)} values in {len(series)} rows, like an id"
        problems.add(f"[looks-like-id] {where}: {told}")
    if len(values) == 1:
        told = "a bound on it is one on the mean loss of all rows"
        warn(f"{where} has one value only ('{values[0]}'): {told}")
    return Attribute(name, values)


def silos_of(
    frame: pd.DataFrame,
    options: TableOptions,
    problems: Problems,
    known: Known | None = None,
) -> partition.Partition:
    """Return the silo of each row, and the silos' names."""
    if options.silo is not None:
        series = frame[options.silo]
        _check_missing(series, "silo", problems)
        if names := _declared_values(options.silo, known or {}, problems):
            return kinds.match_names(series, names, "silo", problems), names
        names, codes = category_codes(series)
        return codes, names
    silos = 1 if options.silos is None else options.silos
    by = frame[options.by or options.label]
    if options.partition != "equal" and by.isna().any():
        _check_missing(by, "column of the cut", problems)
    elif options.partition == "dirichlet":
        return partition.dirichlet(by.to_numpy(), options.alpha, silos, options.seed)
    elif options.partition == "quantile_bands":
        return partition.quantile_bands(by.to_numpy(), silos)
    return partition.equal(len(frame), silos, options.seed)


def _check_label_sets(
    label: pd.Series, silo: IntArray, silo_names: Sequence[str], problems: Problems
) -> None:
    """Refuse silos that code two classes differently: here {0, 1}, there {1, 2}."""
    known = label.notna().to_numpy(dtype=bool)
    names, codes = category_codes(label[known])
    sets = [
        [names[c] for c in np.unique(codes[silo[known] == k])]
        for k in range(len(silo_names))
    ]
    if len(names) > 2 and all(len(found) <= 2 for found in sets):
        shown = [f"'{n}' {found}" for n, found in zip(silo_names, sets, strict=True)]
        problems.add(
            f"[silos-differ] label '{label.name}' is coded differently in the silos: "
            f"{listing(shown)}; declare its values (`columns=`) if these are "
            f"{len(names)} classes"
        )
