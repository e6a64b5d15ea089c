"""American Community Survey: persons of the Census's 1-year files, by state.

US Census Bureau, Public Use Microdata Sample: a work of the US government, in the
public domain. The tasks are those of folktables (Ding et al., NeurIPS 2021).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import check_choice, check_whole, listing
from pffl.data.federation import Federation
from pffl.data.partition import check_fractions, distribute, split_index
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import Rows
from pffl.datasets._acs_files import (
    RENAMED_FILES,
    STATE_OF,
    Columns,
    PersonFile,
    check_request,
    check_rows,
    fetch_states,
    find_files,
)
from pffl.datasets._acs_tasks import (
    COLUMNS,
    FIFTY_STATES,
    FIPS,
    PROTECTED,
    TASKS,
    Encoding,
    Filter,
    Input,
    Task,
    TaskName,
    check_task,
    holds,
)
from pffl.datasets._fetch import Progress
from pffl.datasets._people import protected_names
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import BoolArray, IntArray

WEIGHT = "PWGTP"
BLOCK = 1 << 10
OLDEST = 130
# How an extract may call the label of employment, as 0 and 1.
LABELS = {"ESR": "ESR1"}
# Persons in the files as published, before any filter.
KNOWN_ROWS = {(2018, "CA"): 378_817}
KNOWN_TOTALS = {2018: 3_207_990}  # of the fifty states


def acs(
    task: TaskName = "employment",
    *,
    year: int = 2018,
    states: Sequence[str] | None = None,
    filter: Filter = "folktables",
    encoding: Encoding = "onehot",
    group: str | Sequence[str] = "race",
    people: int | None = None,
    weight: Literal["PWGTP"] | None = None,
    seed: int = 0,
    split_seed: int | None = None,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    dtype: Literal["float64", "float32"] = "float64",
    source: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Federation:
    """Load ACS persons as a federation whose silos are states.

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

    ``encoding="onehot"`` keeps AGEP, WKHP and PINCP as numbers, adds AGEP² (employment
    rises and falls with age), and gives each code of every other column its own input;
    two codes share one. Vocabularies are those of the data dictionary, so they do not
    depend on the states or the year; 0 ("not asked") is a category where the filter
    lets people in who are not asked. Occupation (OCCP) becomes the 26 major groups of
    its code list, birthplace (POBP) eight regions of the world. ``"ordinal"`` is
    folktables' own matrix: one number per column, the code. Files are read a chunk at a
    time and inputs are written once: all fifty states of 2018, one-hot, take 2.2 GB
    (half as ``float32``) and little more while loading.

    Parameters
    ----------
    task, filter
        What is predicted of whom.
    year
        Survey year, 2014 or later; there is no 1-year file for 2020.
    states
        Postal codes. Default: the fifty states when downloading, otherwise all states
        that the source holds.
    encoding
        How codes become inputs.
    group
        ``"race"``, ``"sex"`` or both; races and sexes that do not occur are left out.
    people
        At most so many of each state's persons, drawn at random. Default: all.
    weight
        ``"PWGTP"``: each person counts as often as the survey says that there are such
        people. Default: once.
    seed, split_seed
        Seeds of that draw and of each state's split; by default the same.
    test_fraction, validation_fraction
        Share of each state's rows kept for testing and validation.
    dtype
        Floating type of the inputs.
    source
        What you already have: a folder of the Census's files (``csv_pca.zip``,
        ``psam_p06.csv``, ``ss14pca.csv``; also in ``{year}/1-Year`` below it), one such
        file, or an *extract*: a CSV or Parquet table with the label, the protected
        attribute and some of the inputs under their ACS names. What an extract lacks
        is said in `Federation.notes`; without ST, name its one state in `states`.
    cache_dir
        Where to keep downloads, see `pffl.datasets`.
    progress
        Called while downloading with a file's name, its bytes so far, and in all.
    """
    fractions = {"test": test_fraction, "validation": validation_fraction}
    with Problems("acs", UsageError) as problems:
        check_task(task, filter, problems)
        protected = protected_names(group, tuple(PROTECTED), problems)
        wanted = check_request(year, states, problems)
        check_choice(problems, "encoding", encoding, get_args(Encoding))
        check_choice(problems, "dtype", dtype, ("float64", "float32"))
        if people is not None:
            check_whole(problems, people=people)
        if weight is not None:
            check_choice(problems, "weight", weight, (WEIGHT,))
    check_fractions(fractions)
    chosen = TASKS[task, filter]
    if source is None:
        wanted = wanted or FIFTY_STATES
        files = fetch_states(year, wanted, cache_dir=cache_dir, progress=progress)
    else:
        files = find_files(Path(source), year, wanted)
    persons = _read(files, chosen, encoding, protected, wanted, year, weight)
    notes = _notes(persons, chosen, files, year, downloaded=source is None)
    names = tuple(state for state in FIPS if state in (wanted or persons.read))
    lookup = np.zeros(256, dtype=np.int64)
    lookup[[FIPS[name] for name in names]] = np.arange(len(names))
    codes = lookup[persons.column("state")]
    drawn = _drawn(codes, people, seed)
    if len(drawn) < len(codes):
        notes = (*notes, f"{len(drawn):,} drawn: at most {people:,} of each state")
    if weight is not None:
        counting = persons.column(WEIGHT)[drawn] != 0
        if not counting.all():
            absent = len(drawn) - int(counting.sum())
            notes = (*notes, f"{absent:,} persons of weight 0 were left out")
        drawn = drawn[counting]
    own = seed if split_seed is None else split_seed
    plan, _ = split_index(codes, names, fractions, among=drawn, seed=own)
    schema, groups = _schema(persons, chosen, protected)
    kind = np.dtype(dtype).type
    silos = distribute(lambda rows: persons.take(rows, groups, kind), plan)
    name = files[0].path.name if files[0].extract else str(year)
    known = {n: ends for e in persons.inputs for n, ends in e.between.items()}
    title = f"ACS {task} ({name})"
    # What is in files as published is known; in others it is looked up.
    looked_up = () if source is None else protected
    looked_up += () if people is None else ("people",)  # drawn by their places
    return Federation(
        schema,
        silos,
        title,
        notes=notes,
        ranges=known,
        test_fraction=test_fraction,
        undeclared=looked_up,
    )


@dataclass(eq=False)
class _Persons:
    """Rows that passed the filter, packed: one byte a column, until they become inputs.

    All states of a year have more than three million persons. Packed they take some
    50 MB, so that the inputs (about a gigabyte) are the only large array, written once.

    Attributes
    ----------
    task, inputs, protected
        What is predicted, how each column becomes inputs, and the protected attributes.
    states
        States to keep; None for all.
    absent
        Wanted columns that the source does not have.
    weight
        Column of weights, if they are wanted.
    chunks
        Packed columns, ``label``, ``state`` and ``protected …``, in the files' order;
        weights as they are.
    read
        Persons of each state before the filter.
    unknown
        Values that the data dictionary does not have.
    """

    task: Task
    inputs: tuple[Input, ...]
    protected: Sequence[str]
    states: Sequence[str] | None
    absent: tuple[str, ...]
    weight: str | None = None
    chunks: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)
    unknown: dict[str, Counter[float]] = field(default_factory=dict)

    def column(self, name: str) -> NDArray[Any]:
        """All chunks of a packed column as one."""
        if len(self.chunks[name]) > 1:
            self.chunks[name] = [np.concatenate(self.chunks[name])]
        return self.chunks[name][0]

    def __len__(self) -> int:
        return len(self.column("label"))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all inputs."""
        return tuple(name for entry in self.inputs for name in entry.features)

    def add(self, chunk: Columns, file: PersonFile, only: str | None) -> None:
        """Filter and pack one chunk."""
        state = self._count(chunk, file, only)
        kept: BoolArray = self.task.keep(chunk)
        if self.states is not None:
            kept &= np.isin(state, [FIPS[name] for name in self.states])
        self._append("label", holds(self.task.positive, chunk)[kept])
        self._append("state", state[kept])
        if self.weight is not None:
            self._append(self.weight, chunk[self.weight][kept])
        for name in self.protected:
            entry = Input(COLUMNS[PROTECTED[name][0]], "onehot", 0)
            self._pack(f"protected {name}", entry, chunk, kept)
        for entry in self.inputs:
            self._pack(entry.column.name, entry, chunk, kept)
        ages = chunk["AGEP"][kept] if "AGEP" in chunk else np.zeros(1)
        odd = ages[~((ages >= 0) & (ages <= OLDEST))]
        self.unknown.setdefault("AGEP", Counter()).update(odd.tolist())

    def raise_if_unknown(self, file: PersonFile) -> None:
        """Refuse values that the data dictionary does not have, all at once."""
        with Problems(str(file), DataError) as problems:
            for name, counts in self.unknown.items():
                if counts:
                    values = [f"{v:g} ({n})" for v, n in counts.most_common()]
                    problems.add(
                        f"[unknown-category] column '{name}' has values that the data "
                        "dictionary does not have (missing counts as 0): "
                        f"{listing(values)}"
                    )

    def _pack(self, key: str, entry: Input, chunk: Columns, kept: BoolArray) -> None:
        packed, unknown = entry.pack(chunk[entry.column.name][kept])
        self._append(key, packed)
        self.unknown.setdefault(entry.column.name, Counter()).update(unknown)

    def _append(self, key: str, values: NDArray[Any]) -> None:
        self.chunks.setdefault(key, []).append(values)

    def _count(
        self, chunk: Columns, file: PersonFile, only: str | None
    ) -> NDArray[np.uint8]:
        """FIPS code of each row; a file about one state must not hold another."""
        rows = len(next(iter(chunk.values())))
        if only is not None:
            self.read[only] += rows
            return np.full(rows, FIPS[only], dtype=np.uint8)
        codes, counts = np.unique(chunk["ST"], return_counts=True)
        known = {code: STATE_OF.get(int(code)) for code in codes[~np.isnan(codes)]}
        wrong = [
            f"{code:g}"
            for code in codes
            if known.get(code) is None or file.state not in (None, known[code])
        ]
        if wrong:
            expected = (
                f"of {file.state} ({FIPS[file.state]})" if file.state else "known"
            )
            raise DataError(
                f"[other-states] {file}: states that are not {expected}: "
                f"{listing(wrong)}"
            )
        for code, count in zip(codes, counts, strict=True):
            self.read[str(known[code])] += int(count)
        return chunk["ST"].astype(np.uint8)

    def take(self, rows: IntArray, group: IntArray, dtype: type[np.floating]) -> Rows:
        """Write the inputs of some rows, a block that stays in cache at a time."""
        X = np.empty((len(rows), len(self.features)), dtype=dtype)
        columns = np.empty((len(self.features), BLOCK), dtype=dtype)
        widths = [len(entry.features) for entry in self.inputs]
        ends = np.cumsum(widths).tolist()
        packed = [self.column(entry.column.name) for entry in self.inputs]
        for begin in range(0, len(rows), BLOCK):
            block = rows[begin : begin + BLOCK]
            out = columns[:, : len(block)].T  # a column's numbers stand together
            for entry, values, width, end in zip(
                self.inputs, packed, widths, ends, strict=True
            ):
                entry.write(values[block], out[:, end - width : end])
            X[begin : begin + BLOCK] = out
        y = self.column("label")[rows].astype(np.float64)
        weight = None if self.weight is None else self.column(self.weight)[rows]
        return Rows(X, y, group[rows], weight=weight)


def _read(
    files: Sequence[PersonFile],
    task: Task,
    encoding: Encoding,
    protected: Sequence[str],
    states: Sequence[str] | None,
    year: int,
    weight: str | None,
) -> _Persons:
    """Read, filter and pack all files, a number of rows at a time."""
    hidden = [PROTECTED[name][0] for name in protected]
    weights = [] if weight is None else [weight]
    wanted = tuple(dict.fromkeys((*task.needed, *hidden, *weights, "ST")))
    named = [*hidden, *weights]
    columns = [_columns(file, task, named, wanted, year) for file in files]
    absent = tuple(column for column in wanted if column not in columns[0])
    inputs = tuple(
        Input(COLUMNS[name], encoding, task.lowest_age)
        for name in task.inputs
        if name not in hidden and name not in absent
    )
    persons = _Persons(task, inputs, protected, states, absent, weight)
    for file, found in zip(files, columns, strict=True):
        if "ST" not in found and file.state is None and len(states or ()) != 1:
            raise DataError(
                f"[needs-states] {file} does not say which state its rows are from: "
                "name it, for instance states=['NY']"
            )
        only = None if "ST" in found else file.state or (states or ("",))[0]
        for chunk in file.chunks(found):
            persons.add(chunk, file, only)
        persons.raise_if_unknown(file)
    return persons


def _columns(
    file: PersonFile,
    task: Task,
    named: Sequence[str],
    wanted: Sequence[str],
    year: int,
) -> dict[str, str]:
    """Find the columns; a file as published must have all of them."""
    label = task.label
    other = {column: name for column, name in LABELS.items() if column == label}
    found = file.find(wanted, {} if label in task.inputs else other)
    needed = [label, *named] if file.extract else wanted
    absent = [f"'{column}'" for column in needed if column not in found]
    if absent:
        raise DataError(
            f"[missing-column] {file} is not such a table: no columns "
            f"{', '.join(absent)}"
        )
    if file.extract or year < RENAMED_FILES:
        return found
    # From then on files of all years are called alike, but numbers hold the year.
    number = dict(zip(*file.head(), strict=False)).get("SERIALNO", "")
    if len(number) == 13 and number[:4].isdigit() and int(number[:4]) != year:
        raise DataError(
            f"[other-year] {file} holds persons of {number[:4]}, expected {year}"
        )
    return found


def _drawn(codes: IntArray, people: int | None, seed: int) -> IntArray:
    """Places of at most so many persons of each silo, in their order."""
    import pandas as pd

    if people is None:
        return np.arange(len(codes))
    shuffled = np.random.default_rng(seed).permutation(len(codes))
    drawn = pd.Series(shuffled).groupby(codes[shuffled]).head(people)
    return np.sort(drawn.to_numpy())


def _schema(
    persons: _Persons, task: Task, protected: Sequence[str]
) -> tuple[Schema, IntArray]:
    """Names of everything, and the group of each person."""
    attributes, codes = [], []
    for name in protected:
        places = persons.column(f"protected {name}")
        words = list(PROTECTED[name][1].values())
        occurring = np.unique(places)
        attributes.append(Attribute(name, tuple(words[place] for place in occurring)))
        codes.append(np.searchsorted(occurring, places))
    schema = Schema(persons.features, tuple(attributes), task.labels, task.labels[1])
    return schema, schema.combine(np.stack(codes, axis=1))


def _notes(
    persons: _Persons,
    task: Task,
    files: Sequence[PersonFile],
    year: int,
    *,
    downloaded: bool,
) -> tuple[str, ...]:
    """Count what was read, compare with what is known, and say what was done."""
    if not len(persons):
        raise DataError("[no-rows] no person of these files passes the filter")
    read = sum(persons.read.values())
    words = ", ".join(task.conditions) or "everyone"
    notes = [f"{read:,} persons read, {len(persons):,} kept ({words})"]
    if not files[0].extract:
        notes += _counted(persons, files, year, downloaded=downloaded)
    lacking = [column for column in persons.absent if column in task.inputs]
    unfiltered = [c for c in task.conditions if c.split()[0] in persons.absent]
    if lacking:
        notes.append(f"inputs that the source does not have: {', '.join(lacking)}")
    if unfiltered:
        notes.append(f"not applied, for want of the column: {', '.join(unfiltered)}")
    notes.append(f"label: '{task.labels[0]}' → 0, '{task.labels[1]}' → 1 (positive)")
    return tuple(notes)


def _counted(
    persons: _Persons, files: Sequence[PersonFile], year: int, *, downloaded: bool
) -> list[str]:
    """Differences from known row counts: refused in a download, noted elsewhere."""
    found = []
    for state, rows in persons.read.items():
        known = KNOWN_ROWS.get((year, state), rows)
        if rows != known:
            found.append(f"{state} {year}: {rows:,} persons, published {known:,}")
    fifty = sum(persons.read[state] for state in FIFTY_STATES)
    if set(FIFTY_STATES) <= set(persons.read):
        known = KNOWN_TOTALS.get(year, fifty)
        if fifty != known:
            found.append(f"fifty states {year}: {fifty:,} persons, published {known:,}")
    if downloaded and found:
        raise DataError(
            f"[wrong-count] not the files that the Census published: {listing(found)}"
        )
    if downloaded:
        for file in files:
            check_rows(file, persons.read[str(file.state)])
    return found
