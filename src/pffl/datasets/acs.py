"""American Community Survey: persons of the Census's 1-year files, by state.

US Census Bureau, Public Use Microdata Sample: a work of the US government, in the
public domain. The tasks are those of folktables (Ding et al., NeurIPS 2021).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from pffl.data.checks import listing
from pffl.data.federation import Federation
from pffl.data.partition import check_fractions, split_index
from pffl.data.schema import Attribute, Schema
from pffl.datasets._acs_columns import FIFTY_STATES, FIPS, PROTECTED
from pffl.datasets._acs_download import Progress, check_rows, fetch_states
from pffl.datasets._acs_files import PersonFile
from pffl.datasets._acs_persons import Persons, read_persons
from pffl.datasets._acs_sources import check_request, find_files
from pffl.datasets._acs_tasks import Filter, Task, TaskName, find_task
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import IntArray

# Persons in the files as published, before any filter.
KNOWN_ROWS = {(2018, "CA"): 378_817}
KNOWN_TOTALS = {2018: 3_207_990}  # of the fifty states


def acs(
    task: TaskName = "employment",
    *,
    year: int = 2018,
    states: Sequence[str] | None = None,
    filter: Filter = "folktables",
    encoding: Literal["onehot", "ordinal"] = "onehot",
    group: str | Sequence[str] = "race",
    people: int | None = None,
    seed: int = 0,
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
    seed
        Seed of that draw and of each state's split.
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
    chosen = find_task(task, filter)
    protected = _attribute_names(group)
    wanted = check_request(year, states)
    check_fractions({"test": test_fraction, "validation": validation_fraction})
    _check_choice("encoding", encoding, ("onehot", "ordinal"))
    _check_choice("dtype", dtype, ("float64", "float32"))
    if source is None:
        wanted = wanted or FIFTY_STATES
        files = fetch_states(year, wanted, cache_dir=cache_dir, progress=progress)
    else:
        files = find_files(Path(source), year, wanted)
    persons = read_persons(
        files, chosen, encoding=encoding, protected=protected, states=wanted, year=year
    )
    notes = _notes(persons, chosen, files, year, downloaded=source is None)
    codes, names = _silo_codes(persons, wanted)
    drawn = _drawn(codes, people, seed)
    if len(drawn) < len(codes):
        notes = (*notes, f"{len(drawn):,} drawn: at most {people:,} of each state")
    plan, _ = split_index(
        codes[drawn],
        names,
        {"test": test_fraction, "validation": validation_fraction},
        seed=seed,
    )
    plan = [
        (name, {split: drawn[rows] for split, rows in index.items()})
        for name, index in plan
    ]
    schema, groups = _schema(persons, chosen, protected)
    silos = persons.silos(plan, groups, np.dtype(dtype).type)
    name = files[0].path.name if files[0].extract else str(year)
    return Federation(schema, silos, f"ACS {task} ({name})", notes=notes)


def _silo_codes(
    persons: Persons, states: Sequence[str] | None
) -> tuple[IntArray, tuple[str, ...]]:
    """Silos in the order of FIPS codes: the named states, or those that occur."""
    there = states or persons.read
    names = tuple(state for state in FIPS if state in there)
    lookup = np.zeros(256, dtype=np.int64)
    lookup[[FIPS[name] for name in names]] = np.arange(len(names))
    return lookup[persons.state], names


def _drawn(codes: IntArray, people: int | None, seed: int) -> IntArray:
    """Places of at most so many persons of each silo, in their order."""
    if people is None:
        return np.arange(len(codes))
    if isinstance(people, bool) or int(people) != people or people < 1:
        raise UsageError(f"'people' must be a whole number ≥ 1. Got {people} instead.")
    shuffled = np.random.default_rng(seed).permutation(len(codes))
    ordered = shuffled[np.argsort(codes[shuffled], kind="stable")]
    counts = np.bincount(codes)
    rank = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(ordered[rank < people])


def _schema(
    persons: Persons, task: Task, protected: Sequence[str]
) -> tuple[Schema, IntArray]:
    """Names of everything, and the group of each person."""
    attributes, codes = [], []
    for name in protected:
        places = persons.protected[name]
        words = list(PROTECTED[name][1].values())
        occurring = np.unique(places)
        attributes.append(Attribute(name, tuple(words[place] for place in occurring)))
        codes.append(np.searchsorted(occurring, places))
    schema = Schema(persons.features, tuple(attributes), task.labels, task.labels[1])
    return schema, schema.combine(np.stack(codes, axis=1))


def _notes(
    persons: Persons,
    task: Task,
    files: Sequence[PersonFile],
    year: int,
    *,
    downloaded: bool,
) -> tuple[str, ...]:
    """Count what was read, compare with what is known, and say what was done."""
    if not len(persons):
        raise DataError("no person of these files passes the filter")
    read = sum(persons.read.values())
    words = ", ".join(map(str, task.conditions)) or "everyone"
    notes = [f"{read:,} persons read, {len(persons):,} kept ({words})"]
    if not files[0].extract:
        notes += _counted(persons, files, year, downloaded=downloaded)
    lacking = [column for column in persons.absent if column in task.inputs]
    unfiltered = [str(c) for c in task.conditions if c.column in persons.absent]
    if lacking:
        notes.append(f"inputs that the source does not have: {', '.join(lacking)}")
    if unfiltered:
        notes.append(f"not applied, for want of the column: {', '.join(unfiltered)}")
    notes.append(f"label: '{task.labels[0]}' → 0, '{task.labels[1]}' → 1 (positive)")
    return tuple(notes)


def _counted(
    persons: Persons, files: Sequence[PersonFile], year: int, *, downloaded: bool
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
        raise DataError(f"not the files that the Census published: {listing(found)}")
    if downloaded:
        for file in files:
            check_rows(file, persons.read[str(file.state)])
    return found


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UsageError(f"'{name}' must be one of {choices}. Got '{value}' instead.")


def _attribute_names(group: str | Sequence[str]) -> tuple[str, ...]:
    names = (group,) if isinstance(group, str) else tuple(group)
    with Problems("group", UsageError) as problems:
        if not names or len(set(names)) < len(names):
            problems.add(f"name each protected attribute once. Got {names} instead.")
        problems.found.extend(
            f"'{name}' is not one of 'race', 'sex'"
            for name in names
            if name not in PROTECTED
        )
    return names
