"""What each column of a table is: found out, and said; what is wrong, with a line.

Nothing is decided for good here: every finding is a `Column` that is plain to read, a
note, a warning with a remedy, or a problem.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl.data import columns as kinds
from pffl.data.checks import listing
from pffl.data.columns import Column, TableEncoder, category_codes
from pffl.data.rows import Rows
from pffl.data.schema import MISSING
from pffl.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

MANY_CATEGORIES = 100
ENOUGH_ROWS = 50  # to tell an identifier
FEW_VALUES = BANDS = 20
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


@dataclass
class Finding:
    """What one column is: how to use it, or why not.

    `values` are the different ones in order of appearance, `counts` how many rows have
    each, and `absent` says which rows have none.
    """

    values: Sequence[Any]
    counts: IntArray
    absent: BoolArray
    kind: str = ""
    column: Column | None = None
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, series: pd.Series) -> Finding:
        """Look at the values alone."""
        codes, values = kinds.factorize(series)
        counts = np.bincount(codes[codes >= 0], minlength=len(values))
        return cls(values, counts, codes < 0)

    @property
    def is_identifier(self) -> bool:
        """Whether (nearly) every one of many rows has a different value."""
        return len(self.values) >= 0.9 * self.counts.sum() >= 0.9 * ENOUGH_ROWS

    def mostly(self, pattern: re.Pattern[str]) -> bool:
        """Whether most texts are so written, as far as a sample says."""
        step = -(-len(self.values) // SAMPLED_VALUES) or 1
        texts = [v for v in self.values[::step] if isinstance(v, str)]
        hits = sum(pattern.fullmatch(text.strip()) is not None for text in texts)
        return 2 * hits > len(texts) > 0


def infer(
    series: pd.Series, *, missing: bool = True, category: bool = False
) -> Finding:
    """Find out what a column is; whether all its values are so, encoding will say.

    Parameters
    ----------
    series
        The column.
    missing
        Whether missing values are marked: an indicator, or a category.
    category
        Whether it is known to be one.
    """
    found, name = Finding.of(series), str(series.name)
    what, warnings, gaps = f"column '{name}'", found.warnings, bool(found.absent.any())
    if found.absent.all():
        found.kind = "nothing"
        warnings.append(f"{what} left out: it has no values")
        return found
    category = category or series.dtype.name == "category"
    if not category and (series.dtype.kind in "mM" or found.mostly(DATE)):
        found.kind = "dates"
        told = "make a number of it, such as a year or an age"
        warnings.append(f"{what} holds dates or times and was left out: {told}")
        return found
    if not category:
        numbers, wrong = kinds.read_numbers(series)
        mixed = 2 * int(wrong.sum()) < int(found.counts.sum())
        if mixed or found.mostly(WRITTEN):
            few = len(found.values) <= FEW_VALUES
            found.kind = "numbers, few values" if few else "numbers"
            found.kind = "numbers and text" if wrong.any() else found.kind
            found.column = Column(name, "number", indicator=gaps and missing)
            warnings += _odd_numbers(what, numbers[~np.isnan(numbers)])
            return found
    if category or not found.is_identifier:
        found.kind = "categories" if len(found.values) <= FEW_VALUES else "text"
        values, _ = category_codes(series if missing else series.dropna())
        found.column = Column(name, "category", values)
        marks = [value for value in values if value in MISSING_MARKS]
        warnings += odd_values(what, marks)
        if len(values) > MANY_CATEGORIES:
            warnings.append(
                f"{what}: {len(values):,} categories, one input each; declare the "
                "`values` that count (others are one), or leave the column out "
                "(`drop=`)"
            )
        return found
    find = kinds.word_counter(2).build_analyzer()
    words = [len(find(str(value))) for value in found.values[:SAMPLED_VALUES]]
    prose = sum(words) >= PROSE_WORDS * len(words)
    found.kind = "free text" if prose else "text"
    told = "has a different text in (nearly) every row and was left out"
    if prose:
        entry = {name: {"hash": TEXT_WIDTH}}
        told = f"holds free text and was left out: `columns={entry!r}` counts its words"
    warnings.append(f"{what} {told}")
    return found


def _odd_numbers(what: str, known: FloatArray) -> list[str]:
    """Say which numbers look like missing values, or like names."""
    found, low = list[str](), float(known.min(initial=np.inf))
    if low in MISSING_NUMBERS and (known[known != low] >= 0).all():
        found.append(
            f"{what}: {low:g} ({int((known == low).sum()):,} rows) looks like a "
            "missing value and is taken as a number: leave these cells empty if it is"
        )
    many = len(known) >= ENOUGH_ROWS and len(np.unique(known)) == len(known)
    if many and (np.floor(known) == known).all():
        found.append(
            f"{what} has a different whole number in every row and is an input: leave "
            "it out, or name it as the id, if it is one"
        )
    return found


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
