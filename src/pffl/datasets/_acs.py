"""American Community Survey: persons of the Census's 1-year files, by state.

US Census Bureau, Public Use Microdata Sample: a work of the US government, in the
public domain. The tasks are those of folktables 0.0.12 (Ding, Hardt, Miller, Schmidt:
*Retiring Adult: New Datasets for Fair Machine Learning*, NeurIPS 2021), with their
inputs, filters and labels. A comparison with a missing value is false there, so a row
whose filter column is missing is left out; only then do missing values become 0.

A state's archive is ``csv_p{st}.zip`` with ``psam_p{FIPS}.csv`` inside. Two columns
changed over the years; here they have the older name and coding. Codes are those of
the Census data dictionaries. The vocabulary of a category is fixed (it does not depend
on the rows given), so models of different states and years have the same inputs.
Where a question is not put to everyone, 0 is a separate category.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from pffl.data import Attribute, Federation, Rows, Schema
from pffl.data.checks import check_choice, check_whole, listing
from pffl.data.partition import check_fractions, distribute, split_index
from pffl.data.read import read_table
from pffl.datasets._fetch import (
    DAMAGED,
    PathLike,
    RemoteFile,
    cache_folder,
    fetch,
    known,
)
from pffl.datasets._people import protected_names
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

TaskName = Literal["employment", "income", "public_coverage"]
Filter = Literal["folktables", "filtered"]

ADDRESS = "https://www2.census.gov/programs-surveys/acs/data/pums"
FIRST_YEAR = 2017
NOT_PUBLISHED = 2020  # no standard 1-year file: too few people answered
SERIAL = "SERIALNO"  # begins with the year
EMPLOYED = "ESR1"  # how a table may call the label of employment, as 0 and 1
DICTIONARY = known("acs.json")
FIPS: dict[str, int] = DICTIONARY["fips"]
FIFTY_STATES = tuple(state for state in FIPS if state not in ("DC", "PR"))
# RELSHIPP (from 2019) in the words of RELP. Spouses and partners of either sex are
# one code in RELP; "roomer or boarder" (11) no longer has a code.
RELP_OF_RELSHIPP = {int(k): v for k, v in DICTIONARY["relp_of_relshipp"].items()}
RACES, SEXES = (dict(enumerate(DICTIONARY[n], 1)) for n in ("races", "sexes"))
PROTECTED = {"race": ("RAC1P", RACES), "sex": ("SEX", SEXES)}
#: Groups of codes, by the first code of each: of occupations, and of birthplaces.
RANGES = {n: {int(k): v for k, v in d.items()} for n, d in DICTIONARY["ranges"].items()}
#: Codes of categories; all other columns are numbers.
CODES: dict[str, tuple[int, ...]] = {
    n: tuple(c) for n, c in DICTIONARY["codes"].items()
}
CODES |= {
    "ST": tuple(FIPS.values()),
    **{n: tuple(first) for n, first in RANGES.items()},
}
#: Age from which everybody has a value; of some never (999).
ASKED_FROM: dict[str, int] = DICTIONARY["asked_from"]
LARGEST: dict[str, float] = DICTIONARY["largest"]  # years; hours a week
COMPARISONS = {"<": "lt", ">": "gt", "<=": "le", ">=": "ge", "==": "eq"}
OLDEST = 130


@dataclass(frozen=True)
class AcsTask:
    """Target, people and inputs of a task.

    Attributes
    ----------
    columns
        Names of the inputs, protected ones included.
    positive, labels
        The condition for label 1, and the names of labels 0 and 1.
    conditions
        The filter. No condition holds of a missing value.
    lowest_age
        Nobody younger passes the filter.
    """

    columns: str
    positive: str
    labels: tuple[str, str]
    conditions: tuple[str, ...]
    lowest_age: int

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that are inputs."""
        return tuple(self.columns.split())


TASKS = {
    (task, people): AcsTask(**terms)
    for task, versions in DICTIONARY["tasks"].items()
    for people, terms in versions.items()
}


class AcsInput:
    """How one column becomes inputs.

    Attributes
    ----------
    column, features
        Where values come from, and the names of the inputs.
    codes
        Codes in order; None: a number. The code of a group of codes is its first.
    ranges
        What inputs are between, by the questionnaire; incomes have no ends.
    """

    def __init__(self, column: str, lowest_age: int) -> None:
        self.column = column
        self.codes: IntArray | None = None
        self.features: tuple[str, ...] = (column,)
        if column not in CODES:
            if column == "AGEP":  # employment rises and falls with age
                self.features = ("AGEP", "AGEP²")
            end = LARGEST.get(column)
            powers = enumerate(self.features, 1)
            self.ranges = {f: (0.0, end**k) for k, f in powers} if end else {}
            return
        codes, words = CODES[column], RANGES.get(column, {})
        if ASKED_FROM.get(column, 0) > lowest_age:
            codes = (0, *codes)  # not asked
        called = {0: "none", **words} if words else {}
        self.codes = np.array(codes)
        names = tuple(f"{column}={called.get(code, code)}" for code in codes)
        self.features = names[:1] if len(codes) == 2 else names  # two share one input
        self.ranges = dict.fromkeys(self.features, (0.0, 1.0))

    def is_unknown(self, value: float) -> bool:
        """Whether the data dictionary does not have a value."""
        if self.codes is None:
            return self.column == "AGEP" and not 0 <= value <= OLDEST
        between = self.column in RANGES and value >= self.codes[0]
        return not between and value not in self.codes

    def write(self, values: FloatArray) -> FloatArray:
        """Return the inputs of some rows, shape (rows, features)."""
        if self.codes is None:
            powers = range(1, len(self.features) + 1)
            return np.stack([values.astype(np.float64) ** k for k in powers], axis=1)
        places = np.searchsorted(self.codes, values, side="right") - 1
        return np.eye(len(self.codes))[places, : len(self.features)]


def acs(
    task: TaskName = "employment",
    *,
    year: int = 2018,
    states: Sequence[str] | None = None,
    filter: Filter = "folktables",
    group: str | Sequence[str] = "race",
    people: int | None = None,
    random_state: int = 0,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    source: PathLike | None = None,
    cache_dir: PathLike | None = None,
) -> Federation:
    """Load people of the US census (ACS, from 2017); silos are states.

    Tasks, with inputs, filters and labels of folktables 0.0.12:

    ``employment``
        Works (ESR = 1) against all others. ``filter="folktables"`` keeps everyone,
        children too (ACSEmployment); ``"filtered"`` keeps ages 17 to 89 and adds the
        input GCL (ACSEmploymentFiltered).
    ``income``
        Income over $50,000, of people over 16 who worked and earned over $100.
    ``public_coverage``
        Publicly insured, of people under 65 with an income up to $30,000. The state is
        one of its inputs, as in folktables.

    The protected attribute is not an input; of ``race`` and ``sex``, the other one is,
    as in folktables. Missing values become 0 after the filter. RELSHIPP (from 2019) is
    mapped to RELP, STATE (from 2023) to ST.

    AGEP, WKHP and PINCP stay numbers, AGEP² is added (employment rises and falls with
    age), and each code of every other column has its own input; two codes share one.
    Vocabularies are those of the data dictionary, so they do not depend on the states
    or the year; 0 ("not asked") is a category where the filter lets people in who are
    not asked. Occupation (OCCP) becomes the 26 major groups of its code list,
    birthplace (POBP) eight regions of the world. Inputs are written once: all fifty
    states of 2018 take 2.2 GB.

    Parameters
    ----------
    task, filter
        What is predicted, and for which people.
    year
        Survey year, 2017 or later; there is no 1-year file for 2020.
    states
        Postal codes. Default: the fifty states when downloading, otherwise all states
        that the source holds.
    group
        ``"race"``, ``"sex"`` or both; races and sexes that do not occur are left out.
    people
        At most this number of each state's persons, drawn at random. Default: all.
    random_state
        Seed of that draw and of each state's split.
    test_fraction, validation_fraction
        Share of each state's rows kept for testing and validation.
    source
        What you already have: a folder of the Census's archives (``csv_pca.zip``), or
        one table (CSV, Parquet) with the label, the protected attribute and some of the
        inputs under their ACS names. What a table lacks is listed in
        `Federation.notes`; without ST, name its one state in `states`.
    cache_dir
        Where to keep downloads: see `pffl.datasets`.
    """
    fractions = {"test": test_fraction, "validation": validation_fraction}
    with Problems("acs", UsageError) as problems:
        check_choice(problems, "task", task, get_args(TaskName))
        filters = [known for name, known in TASKS if name == task]
        check_choice(problems, "filter", filter, filters)
        protected = protected_names(group, tuple(PROTECTED), problems)
        wanted = _check_request(year, states, problems)
        check_whole(problems, people=1 if people is None else people)
    check_fractions(fractions)
    chosen = TASKS[task, filter]
    if source is None:
        wanted = wanted or FIFTY_STATES
        source = cache_folder(cache_dir) / "acs" / str(year) / "1-Year"
        for name in map(archive_name, wanted):
            remote = RemoteFile(name, None, (f"{ADDRESS}/{year}/1-Year/{name}",))
            fetch(remote, cache_dir=source)
        looked_up = list[str]()
    else:  # what is in files as published is known; in others it is looked up
        looked_up = list(protected)
    place, hidden = Path(source), [PROTECTED[name][0] for name in protected]
    persons, absent, notes = _read(place, chosen, hidden, wanted, year)
    names = wanted or tuple(s for s in FIPS if FIPS[s] in set(persons["state"]))
    lookup = {FIPS[name]: k for k, name in enumerate(names)}
    codes: IntArray = np.asarray(persons["state"].map(lookup), dtype=np.int64)
    drawn = np.arange(len(codes))
    if people is not None:
        looked_up.append("people")  # drawn by their places
        shuffled = np.random.default_rng(random_state).permutation(len(codes))
        by_state = persons.iloc[shuffled].groupby("state", sort=False)
        drawn = np.sort(by_state.head(people).index.to_numpy())
        notes.append(f"{len(drawn):,} drawn: at most {people:,} of each state")
    inputs = [
        AcsInput(column, chosen.lowest_age)
        for column in chosen.inputs
        if column not in (*hidden, *absent)
    ]
    attributes, groups = [], []
    for name, column in zip(protected, hidden, strict=True):
        there, own = np.unique(persons[column], return_inverse=True)
        words = tuple(PROTECTED[name][1][int(code)] for code in there)
        attributes.append(Attribute(name, words))
        groups.append(own.reshape(-1))
    features = tuple(name for each in inputs for name in each.features)
    labels = tuple(chosen.labels)
    schema = Schema(features, tuple(attributes), labels, labels[1])
    group_codes = schema.combine(np.stack(groups, axis=1))

    def take(rows: IntArray) -> Rows:
        X, start = np.empty((len(rows), len(features))), 0
        for each in inputs:
            stop = start + len(each.features)
            X[:, start:stop] = each.write(persons[each.column].to_numpy()[rows])
            start = stop
        y = persons["label"].to_numpy(np.float64)[rows]
        return Rows(X, y, group_codes[rows])

    plan = split_index(codes, names, fractions, among=drawn, seed=random_state)
    return Federation(
        schema,
        distribute(take, plan),
        f"ACS {task} ({place.name if place.is_file() else year})",
        notes=tuple(notes),
        ranges={n: ends for each in inputs for n, ends in each.ranges.items()},
        test_fraction=test_fraction,
        undeclared=tuple(looked_up),
    )


def _read(
    source: Path,
    task: AcsTask,
    hidden: Sequence[str],
    states: Sequence[str] | None,
    year: int,
) -> tuple[pd.DataFrame, tuple[str, ...], list[str]]:
    """Read and filter all files.

    Return the persons who are kept, in small whole numbers (missing ones are 0), with
    label and state; columns that are absent; and notes.
    """
    import pandas as pd

    label, *compared = [c.split()[0] for c in (task.positive, *task.conditions)]
    wanted = dict.fromkeys((*task.inputs, label, *compared, *hidden, "ST"))
    parts, total = [], 0
    for name, state, frame in _tables(source, year, states, list(wanted)):
        persons = _standardised(frame, name, task)
        absent = tuple(column for column in wanted if column not in persons)
        needed = [label, *hidden] if state is None else wanted
        if lost := [f"'{column}'" for column in needed if column in absent]:
            told = f"'{name}' is not such a table: no columns {', '.join(lost)}"
            raise DataError(f"[missing-column] {told}")
        total += len(persons)
        persons["state"] = _state_codes(persons, name, state, states)
        persons["label"] = _holds(task.positive, persons)
        kept = np.ones(len(persons), dtype=bool)
        for condition in task.conditions:
            if condition.split()[0] in persons:
                kept &= _holds(condition, persons)
        if states is not None:
            kept &= persons["state"].isin([FIPS[name] for name in states])
        used = [c for c in dict.fromkeys([*task.inputs, *hidden]) if c in persons]
        chosen = persons.loc[kept, [*used, "label", "state"]].fillna(0.0)
        parts.append(chosen.apply(pd.to_numeric, downcast="integer"))
    found = pd.concat(parts, ignore_index=True)
    if found.empty:
        raise DataError("no-rows:read")
    with Problems("acs", DataError) as problems:
        for column in used:
            entry = AcsInput(column, task.lowest_age)
            counts = found[column].value_counts()
            odd = [f"{v:g} ({n})" for v, n in counts.items() if entry.is_unknown(v)]
            if odd:
                problems.add("unknown-category:read", column=column, odd=listing(odd))
    words = ", ".join(task.conditions) or "everyone"
    notes = [f"{total:,} persons read, {len(found):,} kept ({words})"]
    if lacking := [column for column in absent if column in task.inputs]:
        notes.append(f"inputs that the source does not have: {', '.join(lacking)}")
    if unfiltered := [c for c in task.conditions if c.split()[0] in absent]:
        notes.append(f"not applied, as the column is missing: {', '.join(unfiltered)}")
    negative, positive = task.labels
    notes.append(f"label: '{negative}' → 0, '{positive}' → 1 (positive)")
    return found, absent, notes


def _tables(
    source: Path, year: int, states: Sequence[str] | None, wanted: Sequence[str]
) -> Iterator[tuple[str, str | None, pd.DataFrame]]:
    """Yield the name of each file, the state of an archive, and its persons."""
    import pandas as pd

    asked = {*wanted, "RELSHIPP", "STATE", EMPLOYED, SERIAL}
    if source.is_file():
        frame = read_table(source)[0]
        yield source.name, None, frame[[name for name in frame if name in asked]]
        return
    paths = {state: source / archive_name(state) for state in states or FIPS}
    there = {state: path for state, path in paths.items() if path.is_file()}
    if not there or (states and len(there) < len(paths)):
        lost = listing(state for state in states or () if state not in there)
        raise DataError("file-missing:tables", source=source, lost=lost or "states")
    for state, path in there.items():
        try:
            with (
                zipfile.ZipFile(path) as archive,
                archive.open(f"psam_p{FIPS[state]:02d}.csv") as data,
            ):
                frame = pd.read_csv(data, usecols=asked.__contains__, low_memory=False)
        except (OSError, KeyError, ValueError, *DAMAGED) as error:
            told = f"archive '{path.name}' is damaged: {error}"
            raise DataError(f"[damaged-file] {told}") from error
        serial = str(next(iter(frame.get(SERIAL, ())), ""))
        if len(serial) == 13 and serial[:4] != str(year):
            told = f"holds persons of {serial[:4]}, expected {year}"
            raise DataError(f"[other-year] '{path.name}' {told}")
        yield path.name, state, frame


def _standardised(frame: pd.DataFrame, name: str, task: AcsTask) -> pd.DataFrame:
    """Turn columns into numbers under their older names and in their older coding."""
    import pandas as pd

    persons: dict[str, FloatArray] = {}
    for column in frame.columns.drop(SERIAL, errors="ignore"):
        try:
            known = pd.to_numeric(frame[column])
        except (TypeError, ValueError) as error:
            told = f"'{name}', column '{column}': not all numbers: {error}"
            raise DataError(f"[not-numbers] {told}") from error
        persons[column] = known.to_numpy(dtype=np.float64, na_value=np.nan)
    if "RELSHIPP" in persons and "RELP" not in persons:  # since 2019
        # A code that RELP does not have becomes −1, which is refused.
        codes = pd.Series(persons["RELSHIPP"]).map(RELP_OF_RELSHIPP)
        persons["RELP"] = codes.fillna(-1.0).to_numpy(np.float64)
    if "STATE" in persons:  # since 2023
        persons.setdefault("ST", persons["STATE"])
    if EMPLOYED in persons and "ESR" not in task.inputs:
        persons.setdefault("ESR", persons[EMPLOYED])
    return pd.DataFrame(persons)


def _holds(condition: str, persons: pd.DataFrame) -> pd.Series[bool]:
    """Where a condition such as ``AGEP > 16`` holds; never for a missing value."""
    column, sign, value = condition.split()
    return getattr(persons[column], COMPARISONS[sign])(float(value))


def _state_codes(
    persons: pd.DataFrame, name: str, state: str | None, states: Sequence[str] | None
) -> IntArray:
    """FIPS code of each row; a file about one state must not hold another."""
    if "ST" not in persons:
        if len(states or ()) != 1:
            raise DataError("needs-states", name=name)
        return np.full(len(persons), FIPS[(states or [""])[0]], dtype=np.uint8)
    allowed = [FIPS[state]] if state else list(FIPS.values())
    wrong = persons["ST"][~persons["ST"].isin(allowed)].unique()
    if len(wrong):
        told = f"codes of other states than {state or 'there are'}"
        codes = listing(f"{code:g}" for code in wrong)
        raise DataError(f"[other-states] '{name}': {told}: {codes}")
    return persons["ST"].to_numpy(np.uint8)


def _check_request(
    year: int, states: Sequence[str] | None, problems: Problems
) -> tuple[str, ...] | None:
    """States in the order of their FIPS codes; what does not exist is noted."""
    check_whole(problems, least=FIRST_YEAR, year=year)
    if year == NOT_PUBLISHED:
        problems.add("not-published", year=year)
    if states is None:
        return None
    named = [] if isinstance(states, str) else [str(s).upper() for s in states]
    if not named or len(set(named)) < len(named) or not set(named) <= set(FIPS):
        problems.add("wrong-value:check-request", states=states)
    return tuple(s for s in FIPS if s in named)


def archive_name(state: str) -> str:
    """Name of the state's archive."""
    return f"csv_p{state.lower()}.zip"
