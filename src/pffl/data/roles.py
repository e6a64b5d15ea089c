"""What columns of an unknown table may be: label, group, silo or id. Guesses only.

By their names and their values; nothing is decided by them, they are shown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pffl.data.inference import Distinct

FEW, MANY = 20, 500  # values of a group, of a silo
LABEL = re.compile(
    r"y|label|target|class|outcome|response|result|approved?|accepted|admitted|hired?|"
    r"rejected?|denied|default(ed)?|churn(ed)?|survived|died|death|readmitted|"
    r"recidivism|two_year_recid|recid|is_recid|income|salary|wage|credit|risk|loan|"
    r"(bad|good)(_loan)?|score|pass(ed)?|fraud|diagnosis|employed|mortality|zfygpa"
)
GROUP = re.compile(
    r"sex|gender|female|male|race|raced?1?p?|ethnic\w*|nationality|religion|"
    r"disab\w*|(non)?white|black|hispanic|minority|age_?(group|band|cat)\w*|protected|"
    r"group|caste|native\w*|foreign\w*|sensitive\w*"
)
PROTECTED = re.compile(
    r"sex|gender|(fe)?male|race|ethnic\w*|nationality|citizenship|religion\w*|"
    r"disab(led|ility)\w*|(non)?white|black|hispanic|minority|caste|"
    r"(country|place)_of_birth|native_country|sexual_orientation|marital(_?status)?|"
    r"pregnan(t|cy)|(date_of_)?birth(_?da(te|y))?|dob"
)
SILO = re.compile(
    r"silo|site|hospital\w*|provnum|clinic|cent(er|re)|state|region|county|country|"
    r"branch|bank|school|university|college|store|shop|city|district|province|"
    r"location|institution|department|plant|agency|fed_?region|cluster|bpl"
)
ID = re.compile(
    r"(.*[_\s])?(id|uuid|guid|key|ssn|nr|no|number|index)|id[_\s].*|\w*id|e?-?mail|"
    r"(full_?)?name|person|patient|customer|client|case"
)


@dataclass(frozen=True)
class Roles:
    """Columns that may have a role, the likeliest first."""

    label: tuple[str, ...]
    group: tuple[str, ...]
    silo: tuple[str, ...]
    id: tuple[str, ...]

    @classmethod
    def of(cls, columns: Mapping[str, Distinct]) -> Roles:
        """Guess from the names of columns and their values."""
        ids = [n for n, found in columns.items() if _may_be_id(n, found)]
        ids.sort(key=lambda name: not _is(ID, name))
        rest = {name: found for name, found in columns.items() if name not in ids}
        few = {n: len(found.values) for n, found in rest.items()}

        def named(words: re.Pattern[str], most: int) -> list[str]:
            return [n for n, k in few.items() if 2 <= k <= most and _is(words, n)]

        groups = named(GROUP, FEW)
        silos = [name for name in named(SILO, MANY) if name not in groups]
        taken = {*groups, *silos}
        return cls(_labels(few, taken), tuple(groups), tuple(silos), tuple(ids))

    def as_options(self, given: Mapping[str, object]) -> list[str]:
        """Options that name the likeliest column for each role that is not given."""
        words = []
        for role, found in vars(self).items():
            if role not in given and (found or role in ("label", "group")):
                words += [f"--{role}", found[0] if found else "COLUMN"]
        return words


def looks_protected(name: str) -> bool:
    """Whether a column is called like a protected attribute, whatever is in it."""
    return _is(PROTECTED, name)


def _is(words: re.Pattern[str], name: str) -> bool:
    plain = re.sub(r"[-\s]+", "_", name.strip().casefold())
    return words.fullmatch(plain) is not None


def _labels(values: Mapping[str, int], taken: Collection[str]) -> tuple[str, ...]:
    """Columns called like a label, of few values first; or the last one of two."""
    left = {name: count for name, count in values.items() if name not in taken}
    named = [name for name in left if _is(LABEL, name)]
    found = [name for name in named if 2 <= left[name] <= FEW]
    # Many tables have what is predicted in their last column.
    last = [name for name, count in left.items() if count == 2][-1:]
    return tuple(dict.fromkeys([*found, *([] if found else last), *named]))


def _may_be_id(name: str, found: Distinct) -> bool:
    """Whether a value of its own in (nearly) every row, or a name, speaks for an id."""
    if found.series.dtype.kind in "fMmb" or not found.values:
        return False
    if found.is_identifier:
        return True
    return _is(ID, name) and len(found.values) > max(FEW, 0.05 * len(found.series))
