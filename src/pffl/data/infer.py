"""What each column of a table is: found out, and said, with a remedy.

Nothing is decided for good here: a finding is a `Column` that is plain to read, or
None, and warnings. Whether all values are what most of them are, encoding will say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl.data import columns as kinds
from pffl.data.checks import listing
from pffl.data.columns import Column, TableEncoder
from pffl.data.rows import Rows
from pffl.data.schema import MISSING
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

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
    codes, distinct = kinds.factorize(series)
    rows = int((codes >= 0).sum())
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
        numbers, wrong = kinds.read_numbers(series)
        if 2 * int(wrong.sum()) < rows or mostly(WRITTEN):
            marked = missing and rows < len(codes)
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
