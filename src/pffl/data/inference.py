"""What each column of a table is: found out, and said; what is wrong, with a line.

Nothing is decided for good here: every finding is a `Column` that is plain to read, a
note, a warning with a remedy, or a problem.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl.data.checks import listing
from pffl.data.encoding import (
    OTHER,
    WRITTEN,
    Column,
    Place,
    TableEncoding,
    category_codes,
    days_of,
    read_numbers,
    shown_values,
    word_counter,
)
from pffl.data.schema import MISSING
from pffl.data.silo import Rows
from pffl.errors import Problems
from pffl.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

    from pffl.data.table import ColumnOptions

MAX_CATEGORIES, MANY_CATEGORIES = 100_000, 100
ENOUGH_ROWS = 50
SAMPLE = 1_000  # values that show what most of them are
SIGN = re.compile(r"[$€£¥%]")
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ].*)?")
GONE = ("?", "-", "--", ".", "*")  # what some files write for a missing value
GONE_NUMBERS = (-99.0, -999.0, -9999.0, -99999.0)
RARE, RARE_SHARE = 10, 0.005  # rows of a label that looks like a slip
LIMITS = (5, 10, 20, 50, 100, 200, 500, 1_000)  # rows that make a value a frequent one
PROSE = 3  # words of a text
MOST_COLUMNS, MOST_ROWS = 500, 10_000  # in which leaks are looked for
LEAK, PROXY = 0.99, 0.8  # Gini coefficients, 2·AUC − 1
FEW, MANY = 20, 500  # values of a group, of a silo


@dataclass(frozen=True, eq=False)
class Distinct:
    """The different values of a column, in order of appearance.

    Attributes
    ----------
    series
        The column.
    """

    series: pd.Series

    @cached_property
    def _factorized(self) -> tuple[IntArray, list[object]]:
        import pandas as pd

        codes, values = pd.factorize(self.series)
        return codes, pd.Index(values).tolist()

    @property
    def codes(self) -> IntArray:
        """Which value each row has; −1 where it is missing."""
        return self._factorized[0]

    @property
    def values(self) -> list[object]:
        """The values."""
        return self._factorized[1]

    @cached_property
    def counts(self) -> IntArray:
        """How many rows have each."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))

    @property
    def is_identifier(self) -> bool:
        """Whether (nearly) every one of many rows has a value of its own."""
        known = int(self.counts.sum())
        if known < ENOUGH_ROWS:
            return False
        numbers = self.series.dtype.kind in "iuf"
        return len(self.values) >= known * (1.0 if numbers else 0.9)

    def mostly(self, holds: Callable[[str], object]) -> bool:
        """Whether something holds of most texts, as far as a sample says."""
        texts = [v for v in self.values[:: -(-len(self.values) // SAMPLE)]
                 if isinstance(v, str)]  # fmt: skip
        return 2 * sum(bool(holds(text.strip())) for text in texts) > len(texts) > 0


@dataclass
class Finding:
    """What one column is: how to use it, or why not."""

    kind: str
    column: Column | None = None
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()


def infer(
    found: Distinct,
    name: str,
    options: ColumnOptions,
    problems: Problems,
    place: Place = "row {:,}".format,
) -> Finding:
    """Find out what a column is; note what is wrong with it in `problems`."""
    series, what = found.series, f"column '{name}'"
    missing = series.isna().to_numpy(dtype=bool)
    absent = int(missing.sum())
    if absent == len(missing):
        return Finding("nothing", notes=[f"{what} left out: it has no values"])
    if absent and options.missing == "drop_column":
        return Finding("left out", notes=[f"{what} left out: {absent} missing values"])
    if absent and options.missing == "refuse":
        problems.add(
            f"[missing-values] {what}: {absent} missing values (first: "
            f"{place(int(missing.argmax()))}); `missing='indicator'` marks them, "
            "`missing='drop_column'` leaves the column out"
        )
    marked = bool(absent) and options.missing == "indicator"
    if name in options.hash:
        width = options.hash[name]
        return Finding("text", Column(name, "text", indicator=marked, hash=width))
    if name in options.categorical:
        return _category(found, name, options, problems)
    if series.dtype.kind == "m":
        told = f"{what} holds durations and was left out: make it a number"
        return Finding("durations", warnings=[told])
    if series.dtype.kind == "M" or found.mostly(DATE.fullmatch):
        return _dates(found, name, options, problems, marked, place)
    numbers, wrong = read_numbers(series, options.decimal)
    if series.dtype.name == "category":
        wrong = np.zeros_like(wrong)
    elif not wrong.any():
        return _numbers(found, name, numbers, options, problems, marked, place)
    return _text(found, name, wrong, options, problems, place)


def _numbers(
    found: Distinct, name: str, numbers: FloatArray, options: ColumnOptions,
    problems: Problems, marked: bool, place: Place,
) -> Finding:  # fmt: skip
    what, notes, warnings = f"column '{name}'", list[str](), list[str]()
    written = found.series.dtype.kind not in "iufb"
    if written:
        notes.append(f"{what}: text read as numbers")
    infinite = np.isinf(numbers)
    if infinite.any():
        problems.add(
            f"[not-finite] {what}: {int(infinite.sum())} infinite values (first: "
            f"{place(int(infinite.argmax()))})"
        )
    known = numbers[~np.isnan(numbers)]
    low = float(known.min())
    if low in GONE_NUMBERS and (known[known != low] >= 0).all():
        warnings.append(
            f"{what}: {low:g} ({int((known == low).sum()):,} rows) looks like a "
            "missing value and is taken as a number: leave these cells empty if it is"
        )
    whole = bool((np.floor(known) == known).all())
    if whole and len(found.values) == len(known) >= ENOUGH_ROWS:
        warnings.append(
            f"{what} has a different whole number in every row, like an identifier; "
            "it is kept as an input: leave it out, or name it as the id, if it is one"
        )
    decimal = options.decimal if written else None
    column = Column(name, "number", indicator=marked, decimal=decimal)
    kind = "numbers, few values" if len(found.values) <= FEW else "numbers"
    return Finding(kind, column, notes, warnings)


def _dates(
    found: Distinct, name: str, options: ColumnOptions, problems: Problems,
    marked: bool, place: Place,
) -> Finding:  # fmt: skip
    days = days_of(found.series, options.date_format)
    wrong = np.isnat(days) & found.series.notna().to_numpy(dtype=bool)
    what = f"column '{name}'"
    if wrong.any():
        form = options.date_format or "year-month-day"
        said = (
            f"dates that are not written as {form}: "
            f"{shown_values(found.series, wrong, place)}; say how they are written "
            "(`date_format='%d/%m/%Y'`), or write year-month-day"
        )
        if options.dates:
            problems.add(f"[bad-date] {what}: {said}")
        return Finding("dates", warnings=[f"{what} was left out: it holds {said}"])
    known = days[~np.isnat(days)]
    if not options.dates:
        told = (
            f"{what} holds dates ({known.min()} to {known.max()}) and was left out: "
            "`dates='year'` makes it a number; there are also age, month and weekday"
        )
        return Finding("dates", warnings=[told])
    aged = "age" in options.dates
    if aged and options.date_origin is None:
        problems.add(
            f"[needs-origin] {what}: an age is counted until a day that you name: "
            f"`date_origin='{known.max()}'`"
        )
        return Finding("dates")
    parts: Any = tuple(options.dates)
    column = Column(
        name, "date", indicator=marked, parts=parts,
        format=None if found.series.dtype.kind == "M" else options.date_format,
        origin=options.date_origin if aged else None,
    )  # fmt: skip
    return Finding("dates", column)


def _text(
    found: Distinct, name: str, wrong: BoolArray, options: ColumnOptions,
    problems: Problems, place: Place,
) -> Finding:  # fmt: skip
    """Take text as categories, unless it is numbers in disguise, names or prose."""
    what = f"column '{name}'"
    repair = "repair it, or name it in `categorical=`"
    texts = [str(value).strip() for value in found.values]
    marks = [m for m in WRITTEN if all(re.fullmatch(WRITTEN[m], t) for t in texts)]
    plain = 2 * int(wrong.sum()) < int(found.counts.sum())
    if found.mostly(lambda text: SIGN.search(text) and _is_written(SIGN.sub("", text))):
        shown = next(v for v in found.values if SIGN.search(str(v)))
        problems.add(
            f"[signed-numbers] {what}: numbers with a sign, such as '{shown}': write "
            "the numbers alone, or name it in `categorical=`"
        )
    elif wrong.any() and plain:
        shown = shown_values(found.series, wrong, place)
        problems.add(f"[mixed-types] {what}: numbers mixed with {shown}: {repair}")
    elif wrong.any() and found.mostly(_is_written):
        shown = shown_values(found.series, wrong, place)
        ways = " or ".join(f"`decimal='{mark}'`" for mark in marks)
        said = f"say {ways}, or write" if ways and not options.decimal else "write"
        problems.add(
            f"[written-numbers] {what}: no plain numbers: {shown}: {said} plain "
            "numbers, or name it in `categorical=`"
        )
    elif not found.is_identifier:
        return _category(found, name, options, problems)
    elif (advice := _as_words(found, name)) is not None:
        told = (
            f"{what} holds free text and was left out: an input for each of its "
            f"{len(found.values):,} texts would tell nothing; {advice}"
        )
        return Finding("free text", warnings=[told])
    else:
        told = (
            f"{what} has a different text in (nearly) every row, like an identifier, "
            "and was left out"
        )
        return Finding("text", warnings=[told])
    return Finding("mixed" if plain else "numbers as text")


def _is_written(text: str) -> bool:
    return any(re.fullmatch(form, text.strip()) for form in WRITTEN.values())


def _category(
    found: Distinct, name: str, options: ColumnOptions, problems: Problems
) -> Finding:
    what, notes, warnings = f"column '{name}'", list[str](), list[str]()
    values, codes = category_codes(found.series)
    counts = np.bincount(codes, minlength=len(values))
    rare = (counts < options.rare) & (np.array(values) != MISSING)
    if rare.any():
        notes.append(
            f"{what}: {int(rare.sum()):,} of {len(counts):,} values have fewer than "
            f"{options.rare} rows; they ({int(counts[rare].sum()):,} rows), and "
            f"unknown values, count as '{OTHER}'"
        )
        kept = [v for v, few in zip(values, rare, strict=True) if not few]
        values = (*(v for v in kept if v != OTHER), OTHER)
    if len(values) > MANY_CATEGORIES:
        frequent = {limit: int((counts >= limit).sum()) for limit in LIMITS}
        limit = next((k for k, n in frequent.items() if 0 < n < MANY_CATEGORIES), None)
        advice = _as_words(found, name) or (
            "" if limit is None
            else f"`rare={limit}` joins values with fewer than {limit} rows "
            f"({frequent[limit]:,} have more)"
        )  # fmt: skip
        said = f"{what}: {len(values):,} categories, each an input of its own"
        remedy = f"{advice}{'; ' * bool(advice)}`drop=` leaves the column out"
        if len(values) > MAX_CATEGORIES:
            most = f"at most {MAX_CATEGORIES:,}"
            problems.add(f"[too-many-categories] {said}, {most}: {remedy}")
            return Finding("text")
        warnings.append(f"{said}: rare ones may be learnt by heart; {remedy}")
    column = Column(name, "category", values, other=bool(rare.any()))
    kind = "categories" if len(found.values) <= FEW else "text"
    return Finding(kind, column, notes, warnings)


def _as_words(found: Distinct, name: str) -> str | None:
    """Say how a column of prose can be used; None where it is none."""
    find = word_counter(2).build_analyzer()
    step = -(-len(found.values) // (10 * SAMPLE))
    words = [find(str(value)) for value in found.values[::step]]
    if sum(map(len, words)) < PROSE * len(words):
        return None
    different = len({word for own in words for word in own})
    width = min(max(1 << (4 * different - 1).bit_length(), 1 << 10), 1 << 20)
    return f"`hash={{{name!r}: {width}}}` counts its words in {width:,} inputs"


def kinds_of(columns: Sequence[Column]) -> list[str]:
    """Say which columns are what."""
    coded = [f"{c.name} ({len(c.values)})" for c in columns if c.kind == "category"]
    numbers = [c.name for c in columns if c.kind == "number"]
    texts = [f"{c.name} ({c.hash:,})" for c in columns if c.kind == "text"]
    dates = [
        f"{c.name} ({', '.join(c.parts)}{f'; age until {c.origin}' * bool(c.origin)})"
        for c in columns
        if c.kind == "date"
    ]
    said = {"numbers": numbers, "categories (values)": coded}
    more = {"texts, by counts of hashed words (inputs)": texts, "dates": dates}
    said |= {what: names for what, names in more.items() if names}
    return [f"{what}: {', '.join(names) or 'none'}" for what, names in said.items()]


# What is allowed and looks like a slip


def label_warnings(series: pd.Series, labels: Sequence[str]) -> list[str]:
    """Say what looks like a slip: a third label of few rows, two spellings of one."""
    names, codes = category_codes(series)
    counts = dict(zip(names, np.bincount(codes, minlength=len(names)), strict=True))
    few = max(RARE, RARE_SHARE * len(series))
    common = {name.casefold(): name for name, n in counts.items() if n >= few}
    rare = []
    for name, n in counts.items():
        if n < few:
            close = difflib.get_close_matches(name.casefold(), common, n=1)
            meant = f"; did you mean '{common[close[0]]}'?" if close else ""
            rare.append(f"'{name}' ({n}{meant})")
    where = f"label '{series.name}'"
    found = spellings(where, labels)
    if len(labels) > 2 and rare and len(common) >= 2:
        found.append(
            f"{where} has {len(labels)} classes; few rows have {listing(rare)}: if "
            f"{len(common)} classes are meant, repair it"
        )
    return found


def spellings(where: str, values: Sequence[str]) -> list[str]:
    """Say which values may be several spellings of one: "M", "male" and "M "."""
    alike: dict[str, list[str]] = {}
    for value in [value for value in values if value != MISSING]:
        alike.setdefault(" ".join(value.split()).casefold(), []).append(value)
    for short in [word for word in alike if len(word) == 1 and word.isalpha()]:
        longer = [w for w in alike if len(w) > 2 and w.startswith(short)]
        if len(longer) == 1:
            alike[longer[0]] += alike.pop(short)
    twins = [" and ".join(map(repr, same)) for same in alike.values() if len(same) > 1]
    if not twins:
        return []
    return [
        f"{where}: {listing(twins)} count as different values: if they mean the same, "
        "write them alike"
    ]


def gap_warnings(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Say which values of columns count although they look like missing ones."""
    found = []
    for name in dict.fromkeys(columns):
        if frame[name].dtype.kind not in "iufb":
            counts = frame[name].value_counts()
            seen = [(mark, int(counts[mark])) for mark in GONE if mark in counts.index]
            found += [f"'{mark}' in '{name}' ({count:,})" for mark, count in seen]
    if not found:
        return []
    return [f"values that look like missing ones count as values: {listing(found)}"]


def copies_note(frame: pd.DataFrame) -> list[str]:
    """Say how many rows are copies of earlier ones."""
    # Rows that differ in a decimal number are no copies, and these are soon compared.
    decimals = [name for name in frame.columns if frame[name].dtype.kind == "f"]
    if decimals:
        frame = frame[frame.duplicated(decimals, keep=False)]
    copies = int(frame.duplicated().sum())
    return [f"{copies:,} rows are copies of earlier ones, and were kept"] * bool(copies)


def leak_warnings(encoding: TableEncoding, parts: Sequence[Rows]) -> list[str]:
    """Say which columns alone predict the label, or a protected attribute.

    By the area under the curve (AUC) of the column on training rows: of a number as it
    is, of a category by the rates of the other half of the rows.
    """
    count = sum(map(len, parts))
    if not count or len(encoding.columns) > MOST_COLUMNS:
        return []
    step, schema = -(-count // MOST_ROWS), encoding.schema
    rows = Rows.joined([part.take(np.arange(0, len(part), step)) for part in parts])
    rows = rows.take(np.random.default_rng(0).permutation(len(rows)))
    targets: dict[str, tuple[FloatArray, float]] = {}
    if schema.labels:
        targets[f"label '{encoding.label}'"] = rows.y, LEAK
    for attribute in schema.attributes:
        codes = schema.attribute_codes(attribute.name)[rows.group]
        what = f"protected attribute '{attribute.name}'"
        targets[what] = codes.astype(np.float64), PROXY
    out, start = [], 0
    stored = rows.X if isinstance(rows.X, np.ndarray) else rows.X.tocsc()
    for column in encoding.columns:
        stop = start + column.width
        own = stored[:, start:stop]
        dense = np.asarray(own if isinstance(own, np.ndarray) else own.toarray())
        if column.kind == "number":
            values = dense[:, 0].astype(np.float64)
            if column.indicator:
                values[dense[:, 1] == 1] = values.min() - 1  # missing can tell, too
        elif column.kind == "category":
            values = dense.argmax(axis=1)
        for what, (target, limit) in targets.items():
            if column.kind in ("date", "text") or what.endswith(f"'{column.name}'"):
                continue
            gini = _gini(values, target, numeric=column.kind == "number")
            if gini > limit:
                out.append(
                    f"column '{column.name}' alone predicts the {what} (AUC "
                    f"{int(500 * (gini + 1)) / 1000:.3f}): leave it out if it is known "
                    "only afterwards, or stands for it"
                )
        start = stop
    return out


def _gini(values: FloatArray, target: FloatArray, *, numeric: bool) -> float:
    """Return 2·AUC − 1 of a column for each class against the others, in the mean."""
    half = np.arange(len(target)) % 2 == 0
    kinds, codes = np.unique(values, return_inverse=True)
    total, many = 0.0, len(kinds)
    for value in np.unique(target):
        positive = (target == value).astype(np.float64)
        score = codes.astype(np.float64)
        if not numeric or many <= FEW:
            for known in (half, ~half):
                hits = np.bincount(codes[known], positive[known], many)
                seen = np.bincount(codes[known], minlength=many)
                score[~known] = ((hits + positive.mean()) / (seen + 1))[codes[~known]]
        total += float(positive.mean()) * _area(score, positive)
    return total


def _area(score: FloatArray, positive: FloatArray) -> float:
    """Return |2·AUC − 1|; ties count half."""
    _, codes = np.unique(score, return_inverse=True)
    hits = np.bincount(codes, positive)
    misses = np.bincount(codes) - hits
    below = np.cumsum(misses) - misses
    pairs = float(hits.sum() * misses.sum())
    return abs(2 * float(hits @ (below + misses / 2)) / pairs - 1) if pairs else 0.0


# What columns of an unknown table may be, by name. Guesses, which are shown.

PROTECTED = re.compile(
    r"sex|gender|(fe)?male|race|ethnic\w*|nationality|citizenship|religion\w*|"
    r"disab(led|ility)\w*|(non)?white|black|hispanic|minority|caste|"
    r"(country|place)_of_birth|native_country|sexual_orientation|marital(_?status)?|"
    r"pregnan(t|cy)|(date_of_)?birth(_?da(te|y))?|dob"
)
ROLES = {
    "label": r"y|label|target|class|outcome|response|result|approved?|accepted|hired?|"
    r"admitted|rejected?|denied|default.*|churn(ed)?|survived|died|death|readmitted|"
    r"recidivism|(two_year_|is_)?recid|income|salary|wage|credit|risk|loan|fraud|"
    r"(bad|good)(_loan)?|score|pass(ed)?|diagnosis|employed|mortality",
    "group": rf"{PROTECTED.pattern}|age_?(group|band|cat)\w*|protected|group|"
    r"sensitive\w*|foreign\w*",
    "silo": r"silo|site|hospital\w*|clinic|cent(er|re)|state|region|county|country|"
    r"branch|bank|school|university|college|store|shop|city|district|province|"
    r"location|institution|department|plant|agency|cluster",
    "id": r"(.*[_\s])?(id|uuid|guid|key|ssn|nr|no|number|index)|id[_\s].*|\w*id|"
    r"e?-?mail|(full_?)?name|person|patient|customer|client|case",
}


def looks_protected(name: str) -> bool:
    """Whether a column is called like a protected attribute, whatever is in it."""
    return PROTECTED.fullmatch(_plain(name)) is not None


def _plain(name: str) -> str:
    return re.sub(r"[-\s]+", "_", name.strip().casefold())


def guess_roles(columns: Mapping[str, Distinct]) -> dict[str, list[str]]:
    """Return columns that may be label, group, silo or id, the likeliest first."""

    def called(role: str, names: Sequence[str]) -> list[str]:
        return [n for n in names if re.fullmatch(ROLES[role], _plain(n))]

    values = {name: len(found.values) for name, found in columns.items()}
    ids = [
        name
        for name, found in columns.items()
        if found.series.dtype.kind not in "fMmb" and found.values
        and (found.is_identifier or (called("id", [name])
             and values[name] > max(FEW, 0.05 * len(found.series))))
    ]  # fmt: skip
    few = [n for n, k in values.items() if 2 <= k <= FEW and n not in ids]
    groups = called("group", few)
    some = [n for n, k in values.items() if 2 <= k <= MANY and n not in (*ids, *groups)]
    silos = called("silo", some)
    left = [n for n in few if n not in (*groups, *silos)]
    # Many tables have what is predicted in their last column.
    labels = called("label", left) or [n for n in left if values[n] == 2][-1:]
    ids.sort(key=lambda name: not called("id", [name]))
    return {"label": labels, "group": groups, "silo": silos, "id": ids}
