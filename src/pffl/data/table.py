"""Any table → encoded rows: columns as declared or inferred, all flaws at once.

What is read off the rows tells of them: that a category is there, say, tells that
someone has it. So a run with a privacy budget takes only tables of which all columns
in use are declared (`columns=`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from pffl.data import columns as kinds
from pffl.data import partition
from pffl.data.checks import check_choice, listing, warn
from pffl.data.columns import OTHER, Column, TableEncoder, read_numbers
from pffl.data.read import LATIN, Table, read_table, require
from pffl.data.rows import Rows
from pffl.data.schema import MISSING, Attribute
from pffl.errors import DataError, Problems, UsageError
from pffl.records import read
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

Missing = Literal["refuse", "indicator"]
MissingLabel = Literal["refuse", "drop"]
Entry: TypeAlias = bool | int | float | str | Sequence[int | float | str]
Declared: TypeAlias = Mapping[str, Mapping[str, Entry]]
Known: TypeAlias = dict[str, Column]

PARTITIONS = ("equal", "dirichlet", "quantile_bands")
MAX_CLASSES = 100
MAX_NUMERIC_GROUPS = 50
REMEDY = "`pffl data TABLE --columns` writes them from a public or made-up table"
#: The kind of a declared column, where another key tells it.
KINDS = {"values": "category", "hash": "text", "range": "number"}
MANY_CATEGORIES = 100
ENOUGH_ROWS = 50  # to tell an identifier
SAMPLED_VALUES = 1_000  # that show what most of them are
WRITTEN = re.compile(r"[-+−$€£¥]?[ \d.,'\u00a0\u202f]*\d[ \d.,'\u00a0\u202f]*[$€£¥%]?")
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ].*)?")
MISSING_MARKS = ("?", "-", "--", ".", "*")  # what some files write for a missing value
MISSING_NUMBERS = (-99.0, -999.0, -9999.0, -99999.0)
PROSE_WORDS = 3  # of a text
TEXT_WIDTH = 1 << 16  # of a text's counts, as it is advised
LEAK_COLUMNS, LEAK_ROWS = 500, 10_000  # among which leaks are looked for
LEAK, PROXY = 0.99, 0.8  # Gini coefficients, 2·AUC − 1
BANDS = 20  # of a number
PROTECTED = re.compile(
    r"sex|gender|(fe)?male|race|ethnic\w*|nationality|citizenship|religion\w*|"
    r"disab(led|ility)\w*|(non)?white|black|hispanic|minority|caste|"
    r"(country|place)_of_birth|native_country|sexual_orientation|marital(_?status)?|"
    r"pregnan(t|cy)|(date_of_)?birth(_?da(te|y))?|dob"
)


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
    partition: str | Sequence[str | float] = "equal"
    drop: Sequence[str] = ()
    inputs: Sequence[str] = ()
    columns: Declared = field(default_factory=dict)
    id: str | None = None
    weight: str | None = None
    classification: bool = True
    missing: Missing = "refuse"
    missing_label: MissingLabel = "refuse"
    test_fraction: float = 0.2
    validation_fraction: float = 0.0
    random_state: int = 0

    def __post_init__(self) -> None:
        for key in ("group", "inputs", "drop", "partition"):
            given = vars(self)[key]
            names = (given,) if isinstance(given, str) else tuple(given)
            object.__setattr__(self, key, names)
        with Problems("table options", UsageError) as problems:
            kind, by, _ = self.cut
            check_choice(problems, "partition", kind, PARTITIONS)
            for key, kinds in (("missing", Missing), ("missing_label", MissingLabel)):
                check_choice(problems, key, vars(self)[key], get_args(kinds))
            if not self.group:
                problems.add("needs-group:tableoptions")
            if self.silo is not None and self.silos is not None:
                told = "give the silo column (`silo=`) or a number (`silos=`)"
                problems.add(f"[needs-silos] {told}")
            if kind != "equal" and not (self.silo or self.silos):
                problems.add("needs-silos:tableoptions-2")
            if kind == "quantile_bands" and by is None:
                told = "bands need a column: `partition=('quantile_bands', COLUMN)`"
                problems.add(f"[needs-column] {told}")
            with noted(problems):
                columns_of(self.columns)

    @property
    def cut(self) -> tuple[str, str | None, float]:
        """Kind, column and concentration of the partition."""
        given: Any = self.partition
        kind, by, alpha = (*given, *(None, 1.0)[len(given) - 1 :])[:3]
        return str(kind), None if by is None else str(by), float(alpha)

    @property
    def coded(self) -> list[str]:
        """Columns of the label, the groups and the silos."""
        return [self.label, *self.group, *([self.silo] if self.silo else [])]

    @property
    def mentioned(self) -> list[str]:
        """All columns that are named anywhere."""
        names = (*self.coded, self.id, self.weight, self.cut[1], *self.inputs)
        return [n for n in (*names, *self.drop, *self.columns) if n is not None]


def encode_table(table: Table, options: TableOptions) -> dict[str, Any]:
    """Read and encode a table; return what `Federation.from_rows` takes.

    All problems are raised in one error.
    """
    declared, label = columns_of(options.columns), options.label
    texts = [n for n, c in declared.items() if c.values or c.kind == "text"]
    frame, notes = read_table(table, [*texts, options.id or ""], numbered=True)
    chosen, apart = _inputs(frame, options)
    known = {n: c for n, c in declared.items() if c.kind != "category" or c.values}
    for name, column in known.items():
        if column.kind == "category":
            if name in chosen:
                values = tuple(v for v in column.values if v != OTHER)
                column = replace(column, values=(*values, OTHER), other=True)
                known[name] = column
            frame[name] = _as_declared(frame[name], column)
    if options.missing_label == "drop" and (absent := int(frame[label].isna().sum())):
        notes.append(f"{absent:,} rows without a label were left out")
        frame = frame[frame[label].notna()]
    if not len(frame):
        raise DataError("no-rows:encode-table", label=label)

    columns, warnings = list[Column](), list[str]()
    read_off = {*chosen, *options.coded} - {*known}
    marks = options.missing == "indicator"
    with Problems("table", DataError) as problems:
        for name in chosen:
            column_of, odd = known.get(name), list[str]()
            if column_of is None:
                told: Any = {"missing": marks, "category": name in declared}
                column_of, odd = infer(frame[name], **told)
            elif marks and column_of.unmarked and frame[name].isna().any():
                column_of = replace(column_of, indicator=True)
                read_off.add(name)
            columns += [] if column_of is None else [column_of]
            warnings += odd
        if not columns:
            problems.add("no-inputs")
        labels = _labels(frame, options, known, problems)
        groups = [_attribute(frame[n], known, problems) for n in options.group]
        given: Any = known[label].values if label in known else frame[label].unique()
        encoder = TableEncoder(
            tuple(columns),
            tuple(groups),
            labels,
            label,
            typed=kinds.classes_of(given, labels),
            weight=options.weight,
        )
        placed = _placed(frame, encoder, options, known, problems)
    if read_off:
        warnings += odd_values(f"label '{label}'", labels)
        for group in groups:
            where = f"protected attribute '{group.name}'"
            warnings += odd_values(where, group.values)
    elif marks:
        raise UsageError("options-conflict:encode-table")
    elif LATIN in notes:  # one odd letter says how all of the text is read
        raise DataError("not-text:encode-table")
    if among := [repr(c.name) for c in columns if c.name in options.group]:
        warn(f"protected attribute among the inputs: {', '.join(among)}")
    for warning in warnings:
        warn(warning)
    if apart:
        notes.append(
            f"not used as inputs, because they look protected: {listing(apart)}; "
            "name those to keep (`inputs=COLUMN`)"
        )
    notes += [*kinds_of(columns), *warnings]
    if options.silo is None and options.silos is None:
        notes.append("no silo column is named: all rows are in one silo")
    mapping = ", ".join(f"'{name}' → {code}" for code, name in enumerate(labels))
    positive = " (positive)" if len(labels) == 2 else ""
    notes.append(f"label '{label}': {mapping or 'a number'}{positive}")
    used = dict.fromkeys([*chosen, *options.coded])
    undeclared = tuple(name for name in used if name in read_off)
    return {
        **placed,
        "notes": [*notes, *placed["notes"]],
        "ranges": {c.name: c.range for c in columns if c.range is not None},
        "simulated": options.silo is None,
        "sites": placed["silo_names"] if options.silo and not undeclared else (),
        "undeclared": undeclared,
    }


def encode_alike(
    table: Table, encoder: TableEncoder, options: TableOptions, name: str
) -> dict[str, Any]:
    """Read another table with labels as the first one was: see `Federation.alike`."""
    frame, notes = read_table(table, [options.id or ""], numbered=True)
    there = list(map(str, frame.columns))
    groups = [attribute.name for attribute in encoder.attributes]
    require([encoder.label, *groups], there, f"'{name}' (pffl predict needs no label)")
    options = replace(
        options,
        silo=options.silo if options.silo in there else None,
        id=options.id if options.id in there else None,
        partition=options.partition if options.cut[1] in (None, *there) else "equal",
    )
    with Problems(f"'{name}'", DataError) as problems:
        placed = _placed(frame, encoder, options, {}, problems)
    return {**placed, "notes": [*notes, *placed["notes"]]}


def _placed(
    frame: pd.DataFrame,
    encoder: TableEncoder,
    options: TableOptions,
    known: Known,
    problems: Problems,
) -> dict[str, Any]:
    """Return rows with their silos, people and split; note all that is wrong."""
    rows, people, notes = encoder.encode_rows(frame, problems), None, list[str]()
    silo, silo_names = _silos(frame, options, known, problems)
    if options.id is not None:
        series = frame[options.id]
        where, absent = f"id '{options.id}'", series.isna().to_numpy(dtype=bool)
        kinds.note(problems, "missing-values", where, series, absent)
        people = kinds.category_codes(series)
        counts = np.bincount(people[1])
        if several := int((counts > 1).sum()):
            notes.append(
                f"id '{options.id}': {len(counts):,} people in {len(frame):,} rows; "
                f"{several:,} have several, at most {counts.max():,}, which stay in "
                "one split"
            )
    return {
        "schema": encoder.schema,
        "rows": rows,
        "silo": silo,
        "silo_names": silo_names,
        "people": people,
        "notes": notes,
        "encoding": encoder,
        "test_fraction": options.test_fraction,
        "validation_fraction": options.validation_fraction,
        "random_state": options.random_state,
    }


# Declared columns


def columns_of(declared: Declared) -> Known:
    """Return the columns by name, or raise all that is wrong with them.

    The kind may be left out where another key tells it. Categories without values are
    read off the rows.
    """
    found: Known = {}
    with Problems("columns", UsageError) as problems:
        entries = declared.items() if isinstance(declared, Mapping) else [("", None)]
        for name, given in entries:
            if not isinstance(given, Mapping):
                told = "say what each column holds by keys: {'age': {'kind': 'number'}}"
                problems.add("bad-column:columns-of", name=name, told=told)
                continue
            told = [{"kind": kind} for key, kind in KINDS.items() if key in given]
            plain: dict[str, Any] = {"name": name, **(told or [{}])[0], **given}
            if isinstance(values := plain.get("values"), list | tuple):
                plain["values"] = [str(value) for value in values]
            with noted(problems):
                where = f"column '{name}'"
                found[name] = read(Column, plain, source=where, error=DataError)
    return found


def _as_declared(series: pd.Series, column: Column) -> pd.Series:
    """Return the values of a declared category, each read alone.

    What pandas makes of a column depends on all of its values: with one letter among
    them, ``01`` is no longer 1. Values that are not declared are ``other``, where that
    is declared.
    """
    text = series.map(str, na_action="ignore").astype(object)
    names, told = np.array(column.values, dtype=object), Problems("", DataError)
    codes = kinds.match_names(text, column.values, "", told, other=OTHER in names)
    return text.where(codes < 0, names[codes])


def declare(frame: pd.DataFrame, encoder: TableEncoder, *coded: str) -> Declared:
    """Return columns as a table has them, to be declared for others like it.

    Parameters
    ----------
    frame
        A public table, or one that is made up.
    encoder
        How it was read.
    coded
        Columns besides label, groups and inputs whose values are declared.
    """
    known = {a.name: list(a.values) for a in encoder.attributes}
    if encoder.labels:
        known[encoder.label] = list(encoder.labels)
    known |= {n: sorted(frame[n].dropna().map(str).unique().tolist()) for n in coded}
    out: dict[str, Any] = {
        name: {"kind": "category", "values": values} for name, values in known.items()
    }
    for column in encoder.columns:
        own = {k: v for k, v in column.as_dict().items() if k != "name"}
        if column.kind == "number":
            numbers = read_numbers(frame[column.name])[0]
            low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
            own |= {"range": [low, high]} if low < high else {}
        out[column.name] = own
    return out


# Roles of columns


def _inputs(frame: pd.DataFrame, options: TableOptions) -> tuple[list[str], list[str]]:
    """Return the inputs, and the columns left out because they look protected.

    Refuse columns that are not there, or would be two things at once.
    """
    require(options.mentioned, list(map(str, frame.columns)), "table")
    single = [options.label, options.id, options.weight]
    given = [n for n in (*single, *options.group, options.silo) if n is not None]
    given += set(options.inputs) & set(single)
    with Problems("table", DataError) as problems:
        for name in dict.fromkeys(given):
            if given.count(name) > 1 and {name} != {options.silo} & set(options.group):
                problems.add("wrong-column:inputs", name=name)
    out = {*single, options.silo, *options.drop}
    out |= set(options.group) - set(options.inputs)
    names = [str(name) for name in frame.columns if name not in out]
    apart = [n for n in names if looks_protected(n) and n not in options.inputs]
    return [name for name in names if name not in apart], [repr(n) for n in apart]


def _values(series: pd.Series, known: Known, problems: Problems) -> tuple[str, ...]:
    """Return the values of a label, group or silo: as declared, or as they occur."""
    declared = known.get(str(series.name))
    if declared is None:
        return kinds.category_codes(series.dropna())[0]
    if declared.kind != "category":
        told = "is label, group or silo: declare its values"
        problems.add(f"[bad-column] '{series.name}' {told}")
    return declared.values


def _labels(
    frame: pd.DataFrame, options: TableOptions, known: Known, problems: Problems
) -> tuple[str, ...]:
    """Class names in the order of their codes; the positive one of two is the last."""
    if not options.classification:
        return ()
    series, where = frame[options.label], f"label '{options.label}'"
    names = _values(series, known, problems)
    if len(names) > MAX_CLASSES:
        problems.add("too-many-classes", where=where, n=len(names), most=MAX_CLASSES)
    if len(names) == 1:
        told = f"one value only ({names[0]}): nothing to learn"
        problems.add(f"[one-class] {where}: {told}")
    if options.silo and options.label not in known and len(names) > 2:
        sets = series.groupby(frame[options.silo], observed=True).unique()
        if sets.map(len).max() <= 2:  # here {0, 1}, there {1, 2}
            coded = {k: list(kinds.category_codes(own)[0]) for k, own in sets.items()}
            shown = listing(f"'{name}' {own}" for name, own in coded.items())
            problems.add("silos-differ", where=where, shown=shown, n_names=len(names))
    return names


def _attribute(series: pd.Series, known: Known, problems: Problems) -> Attribute:
    name, values = str(series.name), _values(series, known, problems)
    where, numbers = f"protected attribute '{name}'", series.dtype.kind in "iuf"
    if name in known:
        return Attribute(name, values)
    if numbers and len(values) > MAX_NUMERIC_GROUPS:
        told = f"{len(values)} different numbers: cut it into bands"
        problems.add(f"[too-many-groups] {where}: {told}")
    elif not numbers and is_identifier(len(values), int(series.count())):
        told = f"{len(values)} values in {len(series)} rows, like an id"
        problems.add(f"[looks-like-id] {where}: {told}")
    if len(values) == 1:
        told = "a bound on it is one on the mean loss of all rows"
        warn(f"{where} has one value only ('{values[0]}'): {told}")
    return Attribute(name, values)


def _silos(
    frame: pd.DataFrame, options: TableOptions, known: Known, problems: Problems
) -> partition.Partition:
    """Return the silo of each row, and the silos' names."""
    if options.silo is not None:
        series, where = frame[options.silo], f"silo '{options.silo}'"
        names = _values(series, known, problems)
        return kinds.match_names(series, names, where, problems), names
    kind, by, alpha = options.cut
    silos, seed = 1 if options.silos is None else options.silos, options.random_state
    values = frame[by or options.label].to_numpy()
    if kind == "dirichlet":
        return partition.dirichlet(values, alpha, silos, seed)
    if kind == "quantile_bands":
        return partition.quantile_bands(values, silos)
    return partition.equal(len(frame), silos, seed)


# What a column is, where that is not declared


def looks_protected(name: str) -> bool:
    """Whether a column is called like a protected attribute, whatever is in it."""
    plain = re.sub(r"[-\s]+", "_", name.strip().casefold())
    return PROTECTED.fullmatch(plain) is not None


def is_identifier(values: int, rows: int) -> bool:
    """Whether (nearly) every one of many rows has a different value."""
    return values >= 0.9 * rows >= 0.9 * ENOUGH_ROWS


def infer(
    series: pd.Series, *, missing: bool = True, category: bool = False
) -> tuple[Column | None, list[str]]:
    """Find out what a column is (None: not an input), and what is odd about it.

    Parameters
    ----------
    series
        The column.
    missing
        Whether missing values are marked: an indicator, or a category.
    category
        Whether it is known to be one.
    """
    name, what = str(series.name), f"column '{series.name}'"
    rows, plain = int(series.count()), series.dtype.kind in "iuf"
    distinct = [] if plain else kinds.factorize(series)[1]
    sample = distinct[:: -(-len(distinct) // SAMPLED_VALUES) or 1]

    def mostly(pattern: re.Pattern[str]) -> bool:
        texts = [value.strip() for value in sample if isinstance(value, str)]
        hits = sum(pattern.fullmatch(text) is not None for text in texts)
        return 2 * hits > len(texts) > 0

    if not rows:
        return None, [f"{what} left out: it has no values"]
    if not category and series.dtype.name != "category":
        if series.dtype.kind in "mM" or mostly(DATE):
            told = "make a number of it, such as a year or an age"
            return None, [f"{what} holds dates or times and was left out: {told}"]
        numbers, wrong = read_numbers(series)
        if 2 * int(wrong.sum()) < rows or mostly(WRITTEN):
            marked = missing and rows < len(series)
            odd = _odd_numbers(what, numbers[~np.isnan(numbers)])
            return Column(name, "number", indicator=marked), odd
        if is_identifier(len(distinct), rows):
            find = kinds.word_counter(2).build_analyzer()
            words = [len(find(str(value))) for value in sample]
            told = "has a different text in (nearly) every row and was left out"
            if sum(words) >= PROSE_WORDS * len(words):
                entry = f"`columns={ {name: {'hash': TEXT_WIDTH}}!r}` counts its words"
                told = f"holds free text and was left out: {entry}"
            return None, [f"{what} {told}"]
    values, _ = kinds.category_codes(series if missing else series.dropna())
    odd = odd_values(what, [value for value in values if value in MISSING_MARKS])
    if len(values) > MANY_CATEGORIES:
        odd.append(
            f"{what}: {len(values):,} categories, one input each; declare the `values` "
            "that count (others are one), or leave the column out (`drop=`)"
        )
    return Column(name, "category", values), odd


def _odd_numbers(what: str, known: FloatArray) -> list[str]:
    """Say which numbers look like missing values, or like names."""
    found, low = list[str](), float(known.min(initial=np.inf))
    if low in MISSING_NUMBERS and (known[known != low] >= 0).all():
        found.append(
            f"{what}: {low:g} ({int((known == low).sum()):,} rows) looks like a "
            "missing value and is taken as a number: leave these cells empty if it is"
        )
    whole = len(known) >= ENOUGH_ROWS and (np.floor(known) == known).all()
    if whole and len(np.unique(known)) == len(known):
        found.append(
            f"{what} has a different whole number in every row and is an input: leave "
            "it out, or name it as the id, if it is one"
        )
    return found


def kinds_of(columns: Sequence[Column]) -> list[str]:
    """Say which columns are what."""
    words = {"number": "numbers", "category": "categories (values)"}
    words["text"] = "texts, by counts of hashed words (inputs)"
    said: dict[str, list[str]] = {kind: [] for kind in words}
    for c in columns:
        size = c.hash or len(c.values)
        said[c.kind].append(f"{c.name} ({size:,})" if size else c.name)
    return [f"{words[kind]}: {', '.join(said[kind])}" for kind in words if said[kind]]


# What is allowed and looks like a slip


def odd_values(where: str, values: Sequence[str]) -> list[str]:
    """Say which values look like missing ones, or like several spellings of one.

    "M", "male" and "M " may be one group.
    """
    marks = [repr(value) for value in values if value in MISSING_MARKS]
    spellings: dict[str, list[str]] = {}
    for value in [value for value in values if value != MISSING]:
        spellings.setdefault(" ".join(value.split()).casefold(), []).append(value)
    for short in [word for word in spellings if len(word) == 1 and word.isalpha()]:
        longer = [w for w in spellings if len(w) > 2 and w.startswith(short)]
        if len(longer) == 1:
            spellings[longer[0]] += spellings.pop(short)
    several = [same for same in spellings.values() if len(same) > 1]
    twins = [" and ".join(map(repr, same)) for same in several]
    found = {
        "looks like a missing value and counts as a value": marks,
        "count as different values: if they mean the same, write them the same way": (
            twins
        ),
    }
    return [f"{where}: {listing(odd)} {told}" for told, odd in found.items() if odd]


def leak_warnings(encoder: TableEncoder, parts: Sequence[Rows]) -> list[str]:
    """Say which columns alone predict the label, or a protected attribute.

    By the area under the curve (AUC) on training rows, of the target's rate in the
    other half of the rows with the same value (of many numbers: in the same band).
    """
    count, schema = sum(map(len, parts)), encoder.schema
    if not count or len(encoder.columns) > LEAK_COLUMNS:
        return []
    step = slice(None, None, -(-count // LEAK_ROWS))
    rows = Rows.joined([part.take(step) for part in parts])
    rows = rows.take(np.random.default_rng(0).permutation(len(rows)))
    targets = [(f"label '{encoder.label}'", rows.y, LEAK)] if schema.labels else []
    for a in schema.attributes:
        codes = schema.attribute_codes(a.name)[rows.group].astype(np.float64)
        targets.append((f"protected attribute '{a.name}'", codes, PROXY))
    out, start = list[str](), 0
    X = rows.X if isinstance(rows.X, np.ndarray) else rows.X.tocsc()
    for column in encoder.columns:
        own: Any = X[:, start : (start := start + column.width)]
        if column.kind == "text":
            continue
        dense = own if isinstance(own, np.ndarray) else own.toarray()
        values = dense.argmax(axis=1) if column.values else dense[:, 0]
        if column.indicator:  # that it is missing can tell, too
            values = np.where(dense[:, 1] == 1, values.min() - 1, values)
        for what, target, limit in targets:
            gini = _gini(values, target, bands=column.kind == "number")
            if gini > limit and not what.endswith(f"'{column.name}'"):
                out.append(
                    f"column '{column.name}' alone predicts the {what} (AUC "
                    f"{int(500 * (gini + 1)) / 1000:.3f}): leave it out if it is known "
                    "only afterwards, or stands for it"
                )
    return out


def _gini(values: FloatArray, target: FloatArray, *, bands: bool) -> float:
    """Return |2·AUC − 1| of a column for each class against the others, in the mean."""
    from scipy.stats import rankdata

    codes, total = np.unique(values, return_inverse=True)[1], 0.0
    if bands and codes.max() >= BANDS:
        codes = ((rankdata(values) - 1) * BANDS // len(values)).astype(np.int64)
    half = np.arange(len(target)) % 2 == 0
    for value in np.unique(target):
        positive, score = (target == value).astype(np.float64), np.empty(len(target))
        for known in (half, ~half):
            hits = np.bincount(codes[known], positive[known], codes.max() + 1)
            seen = np.bincount(codes[known], minlength=codes.max() + 1)
            score[~known] = ((hits + positive.mean()) / (seen + 1))[codes[~known]]
        n = positive.sum()
        if pairs := n * (len(target) - n):
            area = (float(rankdata(score) @ positive) - n * (n + 1) / 2) / pairs
            total += float(positive.mean()) * abs(2 * area - 1)
    return total
