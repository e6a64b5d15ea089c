"""What each column of a table is: found out, and said; what is wrong, with a line.

Nothing is decided for good here: every finding is a `Column` that is plain to read, a
note, a warning with a remedy, or a problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pffl.data import columns as kinds
from pffl.data.checks import listing
from pffl.data.columns import OTHER, Column, Place, TableEncoding, category_codes
from pffl.data.rows import Rows
from pffl.data.schema import MISSING
from pffl.errors import Problems
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

MAX_CATEGORIES, MANY_CATEGORIES = 100_000, 100
ENOUGH_ROWS = 50  # to tell an identifier
FEW_VALUES = 20
SAMPLED_VALUES = 1_000  # that show what most of them are
WRITTEN = re.compile(r"[-+−$€£¥]?[ \d.,'\u00a0\u202f]*\d[ \d.,'\u00a0\u202f]*[$€£¥%]?")
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ].*)?")
MISSING_MARKS = ("?", "-", "--", ".", "*")  # what some files write for a missing value
MISSING_NUMBERS = (-99.0, -999.0, -9999.0, -99999.0)
PROSE_WORDS = 3  # of a text
TEXT_WIDTH = 1 << 16  # of a text's counts, as it is advised
LEAK_COLUMNS, LEAK_ROWS = 500, 10_000  # among which leaks are looked for
LEAK, PROXY = 0.99, 0.8  # Gini coefficients, 2·AUC − 1
PROTECTED = re.compile(
    r"sex|gender|(fe)?male|race|ethnic\w*|nationality|citizenship|religion\w*|"
    r"disab(led|ility)\w*|(non)?white|black|hispanic|minority|caste|"
    r"(country|place)_of_birth|native_country|sexual_orientation|marital(_?status)?|"
    r"pregnan(t|cy)|(date_of_)?birth(_?da(te|y))?|dob"
)


def looks_protected(name: str) -> bool:
    """Whether a column is called like a protected attribute, whatever is in it."""
    plain = re.sub(r"[-\s]+", "_", name.strip().casefold())
    return PROTECTED.fullmatch(plain) is not None


class Distinct:
    """The different values of a column, in order of appearance.

    `codes` says which value each row has (−1: missing), `counts` how many rows have it.
    """

    def __init__(self, series: pd.Series) -> None:
        self.series = series
        self.codes, self.values = kinds.factorize(series)
        known = self.codes[self.codes >= 0]
        self.counts = np.bincount(known, minlength=len(self.values))

    @property
    def is_identifier(self) -> bool:
        """Whether (nearly) every one of many rows has a different value."""
        known = int(self.counts.sum())
        numbers = self.series.dtype.kind in "iuf"
        enough = len(self.values) >= known * (1.0 if numbers else 0.9)
        return known >= ENOUGH_ROWS and enough

    def mostly(self, holds: Callable[[str], object]) -> bool:
        """Whether something holds of most texts, as far as a sample says."""
        step = -(-len(self.values) // SAMPLED_VALUES) or 1
        texts = [v for v in self.values[::step] if isinstance(v, str)]
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
    problems: Problems,
    place: Place = kinds.in_row,
    *,
    missing: str = "indicator",
    rare: int = 1,
    category: bool = False,
) -> Finding:
    """Find out what a column is; note what is wrong with it in `problems`.

    Parameters
    ----------
    found, name
        The column.
    problems, place
        Where to note what is wrong, and what says where a row is.
    missing, rare
        As for `Federation.from_table`.
    category
        Whether it is known to be one.
    """
    series, what = found.series, f"column '{name}'"
    as_category = f"`columns={ {name: {'kind': 'category'}}!r}`"
    absent = found.codes < 0
    if absent.all():
        return Finding("nothing", notes=[f"{what} left out: it has no values"])
    if absent.any() and missing == "drop_column":
        told = f"{what} left out: {int(absent.sum())} missing values"
        return Finding("left out", notes=[told])
    if absent.any() and missing == "refuse":
        problems.add(
            f"[missing-values] {what}: {int(absent.sum())} missing values (first: "
            f"{place(int(absent.argmax()))}); `missing='indicator'` marks them, "
            "`missing='drop_column'` leaves the column out"
        )
    if category or series.dtype.name == "category":
        return _category(found, name, rare, problems)
    if series.dtype.kind in "mM" or found.mostly(DATE.fullmatch):
        told = "make a number of it, such as a year or an age"
        told = f"{what} holds dates or times and was left out: {told}"
        return Finding("dates", warnings=[told])
    numbers, wrong = kinds.read_numbers(series)
    if not wrong.any():
        marked = bool(absent.any()) and missing == "indicator"
        return _number(found, name, numbers, problems, place, indicator=marked)
    mixed = 2 * int(wrong.sum()) < int(found.counts.sum())
    if mixed or found.mostly(WRITTEN.fullmatch):
        shown = kinds.shown_values(series, wrong, place)
        told = f"{shown}: write plain numbers, or say {as_category}"
        if mixed:
            problems.add(f"[mixed-types] {what}: numbers mixed with {told}")
        else:
            problems.add(f"[written-numbers] {what}: no plain numbers: {told}")
        return Finding("mixed" if mixed else "numbers as text")
    if not found.is_identifier:
        return _category(found, name, rare, problems)
    find = kinds.word_counter(2).build_analyzer()
    words = [len(find(str(value))) for value in found.values[:SAMPLED_VALUES]]
    if sum(words) >= PROSE_WORDS * len(words):
        told = f"`columns={ {name: {'hash': TEXT_WIDTH}}!r}` counts its words"
        told = f"{what} holds free text and was left out: {told}"
        return Finding("free text", warnings=[told])
    told = f"{what} has a different text in (nearly) every row and was left out"
    return Finding("text", warnings=[told])


def _number(
    found: Distinct, name: str, numbers: FloatArray, problems: Problems, place: Place,
    *, indicator: bool,
) -> Finding:  # fmt: skip
    what, warnings = f"column '{name}'", list[str]()
    kinds.note_infinite(numbers, what, problems, place)
    known = numbers[~np.isnan(numbers)]
    low = float(known.min())
    if low in MISSING_NUMBERS and (known[known != low] >= 0).all():
        warnings.append(
            f"{what}: {low:g} ({int((known == low).sum()):,} rows) looks like a "
            "missing value and is taken as a number: leave these cells empty if it is"
        )
    many = len(found.values) == len(known) >= ENOUGH_ROWS
    if many and (np.floor(known) == known).all():
        warnings.append(
            f"{what} has a different whole number in every row and is an input: leave "
            "it out, or name it as the id, if it is one"
        )
    few = ", few values" if len(found.values) <= FEW_VALUES else ""
    column = Column(name, "number", indicator=indicator)
    return Finding(f"numbers{few}", column, warnings=warnings)


def _category(found: Distinct, name: str, rare: int, problems: Problems) -> Finding:
    what, notes, warnings = f"column '{name}'", list[str](), list[str]()
    values, codes = category_codes(found.series)
    counts = np.bincount(codes, minlength=len(values))
    few = (counts < rare) & (np.array(values) != MISSING)
    if few.any():
        notes.append(
            f"{what}: {int(few.sum()):,} of {len(counts):,} values have fewer than "
            f"{rare} rows; they ({int(counts[few].sum()):,} rows), and unknown values, "
            f"count as '{OTHER}'"
        )
        kept = [v for v, seldom in zip(values, few, strict=True) if not seldom]
        values = (*(v for v in kept if v != OTHER), OTHER)
    advice = "`rare=` joins values with few rows, `drop=` leaves the column out"
    if len(values) > MAX_CATEGORIES:
        told = f"{len(values):,} categories, at most {MAX_CATEGORIES:,}: {advice}"
        problems.add(f"[too-many-categories] {what}: {told}")
        return Finding("text")
    if len(values) > MANY_CATEGORIES:
        told = f"{len(values):,} categories, one input each; {advice}"
        warnings.append(f"{what}: {told}")
    kind = "categories" if len(found.values) <= FEW_VALUES else "text"
    column = Column(name, "category", values, other=bool(few.any()))
    return Finding(kind, column, notes, warnings)


def kinds_of(columns: Sequence[Column]) -> list[str]:
    """Say which columns are what."""
    said: dict[str, list[str]] = {}
    for c in columns:
        size = c.hash or len(c.values)
        called = f"{c.name} ({size:,})" if size else c.name
        said.setdefault(c.kind, []).append(called)
    words = {"number": "numbers", "category": "categories (values)"}
    words["text"] = "texts, by counts of hashed words (inputs)"
    return [f"{words[k]}: {', '.join(said[k])}" for k in words if k in said]


# What is allowed and looks like a slip


def spellings(where: str, values: Sequence[str]) -> list[str]:
    """Say which values may be several spellings of one: "M", "male" and "M "."""
    spellings: dict[str, list[str]] = {}
    for value in [value for value in values if value != MISSING]:
        spellings.setdefault(" ".join(value.split()).casefold(), []).append(value)
    for short in [word for word in spellings if len(word) == 1 and word.isalpha()]:
        longer = [w for w in spellings if len(w) > 2 and w.startswith(short)]
        if len(longer) == 1:
            spellings[longer[0]] += spellings.pop(short)
    several = [same for same in spellings.values() if len(same) > 1]
    twins = [" and ".join(map(repr, same)) for same in several]
    if not twins:
        return []
    told = "count as different values: if they mean the same, write them the same way"
    return [f"{where}: {listing(twins)} {told}"]


def gap_warnings(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Say which values of columns count although they look like missing ones."""
    found = []
    for name in dict.fromkeys(columns):
        if frame[name].dtype.kind not in "iufb":
            counts = frame[name].value_counts()
            marks = [mark for mark in MISSING_MARKS if mark in counts.index]
            found += [f"'{mark}' in '{name}' ({counts[mark]:,})" for mark in marks]
    told = "values that look like missing ones count as values"
    return [f"{told}: {listing(found)}"] if found else []


def leak_warnings(encoding: TableEncoding, parts: Sequence[Rows]) -> list[str]:
    """Say which columns alone predict the label, or a protected attribute.

    By the area under the curve (AUC) of the column on training rows. A category, and a
    number of few values, is replaced by the rates of the other half of the rows.
    """
    count = sum(map(len, parts))
    if not count or len(encoding.columns) > LEAK_COLUMNS:
        return []
    step, schema = slice(None, None, -(-count // LEAK_ROWS)), encoding.schema
    rows = Rows.joined([part.take(step) for part in parts])
    rows = rows.take(np.random.default_rng(0).permutation(len(rows)))
    targets = [(f"label '{encoding.label}'", rows.y, LEAK)] if schema.labels else []
    for attribute in schema.attributes:
        codes = schema.attribute_codes(attribute.name)[rows.group].astype(np.float64)
        targets.append((f"protected attribute '{attribute.name}'", codes, PROXY))
    out, start = [], 0
    stored = rows.X if isinstance(rows.X, np.ndarray) else rows.X.tocsc()
    for column in encoding.columns:
        stop = start + column.width
        if column.kind != "text":
            own = stored[:, start:stop]
            dense = own if isinstance(own, np.ndarray) else own.toarray()
            values = dense.argmax(axis=1)
            if column.kind == "number":
                values = dense[:, 0].astype(np.float64)
                if column.indicator:
                    values[dense[:, 1] == 1] = values.min() - 1  # missing can tell, too
            for what, target, limit in targets:
                gini = _gini(values, target, numeric=column.kind == "number")
                if gini > limit and not what.endswith(f"'{column.name}'"):
                    out.append(
                        f"column '{column.name}' alone predicts the {what} (AUC "
                        f"{int(500 * (gini + 1)) / 1000:.3f}): leave it out if it is "
                        "known only afterwards, or stands for it"
                    )
        start = stop
    return out


def _gini(values: FloatArray, target: FloatArray, *, numeric: bool) -> float:
    """Return |2·AUC − 1| of a column for each class against the others, in the mean."""
    half = np.arange(len(target)) % 2 == 0
    kinds, codes = np.unique(values, return_inverse=True)
    total, many = 0.0, len(kinds)
    for value in np.unique(target):
        positive = (target == value).astype(np.float64)
        score = codes.astype(np.float64)
        if not numeric or many <= FEW_VALUES:
            for known in (half, ~half):
                hits = np.bincount(codes[known], positive[known], many)
                seen = np.bincount(codes[known], minlength=many)
                score[~known] = ((hits + positive.mean()) / (seen + 1))[codes[~known]]
        _, ranks = np.unique(score, return_inverse=True)
        hits = np.bincount(ranks, positive)
        misses = np.bincount(ranks) - hits
        below = np.cumsum(misses) - misses / 2  # ties count half
        pairs = float(hits.sum() * misses.sum())
        if pairs:
            area = float(hits @ below) / pairs
            total += float(positive.mean()) * abs(2 * area - 1)
    return total
