"""American Community Survey: persons of the Census's 1-year files, by state.

US Census Bureau, Public Use Microdata Sample: a work of the US government, in the
public domain. The tasks are those of folktables (Ding et al., NeurIPS 2021).

Per-state archives are ``csv_p{st}.zip`` with ``psam_p{FIPS}.csv`` inside, up to 2016
``ss{yy}p{st}.csv``; with ``us`` in place of the state a file is about all of them.
Column names changed over the years; here they all have the older name and coding.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pffl.data import Attribute, Federation, Rows, Schema
from pffl.data.checks import check_choice, check_whole, listing
from pffl.data.partition import check_fractions, distribute, split_index
from pffl.datasets._acs_tasks import (
    COLUMNS,
    FIFTY_STATES,
    FIPS,
    PROTECTED,
    RELP_OF_RELSHIPP,
    TASKS,
    Encoding,
    Filter,
    Input,
    Task,
    TaskName,
    holds,
)
from pffl.datasets._fetch import (
    DAMAGED,
    Progress,
    RemoteFile,
    cache_folder,
    fetch,
    open_member,
)
from pffl.datasets._tables import check_lengths, framed, protected_names
from pffl.errors import DataError, MissingExtraError, Problems, UsageError
from pffl.typing import IntArray

if TYPE_CHECKING:
    import pandas as pd

ADDRESS = "https://www2.census.gov/programs-surveys/acs/data/pums"
FIRST_YEAR = 2014
RENAMED_FILES = 2017  # from then on psam_p…, before ss{yy}p…
NOT_PUBLISHED = 2020  # no standard 1-year file: too few people answered
SERIAL, WEIGHT = "SERIALNO", "PWGTP"
EMPLOYED = "ESR1"  # how an extract may call the label of employment, as 0 and 1
CHUNK_ROWS = 1 << 16
BLOCK_ROWS = 1 << 10  # rows whose inputs stay in the processor's cache
MAX_HEADER = 1 << 16
STATE_OF = {code: state for state, code in FIPS.items()}
PERSONS = re.compile(
    r"(psam_p|ss(?P<yy>\d\d)p)(?P<whom>\d\d|us[a-d]?|[a-z][a-z])\.csv", re.IGNORECASE
)


@framed
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
        check_choice(problems, "task", task, get_args(TaskName))
        filters = [known for name, known in TASKS if name == task]
        check_choice(problems, "filter", filter, filters)
        protected = protected_names(group, tuple(PROTECTED), problems)
        wanted = _check_request(year, states, problems)
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
        files = _fetch_states(year, wanted, cache_dir, progress)
    else:
        files = _find_files(Path(source), year, wanted)
    hidden = [PROTECTED[name][0] for name in protected]
    named = [*hidden, *([] if weight is None else [weight])]
    persons, read, absent = _read(files, chosen, named, wanted, year)
    notes = _notes(chosen, read, len(persons), absent)
    names = tuple(state for state in FIPS if state in (wanted or read))
    lookup = {FIPS[name]: k for k, name in enumerate(names)}
    codes: IntArray = np.asarray(persons["state"].map(lookup), dtype=np.int64)
    drawn = _draw(codes, people, seed)
    if len(drawn) < len(codes):
        notes.append(f"{len(drawn):,} drawn: at most {people:,} of each state")
    if weight is not None:
        counting = persons[weight].to_numpy()[drawn] != 0
        if not counting.all():
            many = len(drawn) - int(counting.sum())
            notes.append(f"{many:,} persons of weight 0 were left out")
        drawn = drawn[counting]
    inputs = tuple(
        Input.of(COLUMNS[column], encoding, chosen.lowest_age)
        for column in chosen.inputs
        if column not in (*hidden, *absent)
    )
    attributes, groups = [], []
    for name, column in zip(protected, hidden, strict=True):
        there, own = np.unique(persons[column], return_inverse=True)
        words = tuple(PROTECTED[name][1][int(code)] for code in there)
        attributes.append(Attribute(name, words))
        groups.append(own.reshape(-1))
    features = tuple(name for each in inputs for name in each.features)
    schema = Schema(features, tuple(attributes), chosen.labels, chosen.labels[1])
    group_codes = schema.combine(np.stack(groups, axis=1))

    def take(rows: IntArray) -> Rows:
        X = np.empty((len(rows), len(features)), dtype=dtype)
        columns = [(each, persons[each.column.name].to_numpy()) for each in inputs]
        for begin in range(0, len(rows), BLOCK_ROWS):
            block = rows[begin : begin + BLOCK_ROWS]
            written = [each.write(values[block]) for each, values in columns]
            X[begin : begin + BLOCK_ROWS] = np.concatenate(written, axis=1)
        y, weights = persons["label"].to_numpy(np.float64)[rows], None
        if weight is not None:
            weights = persons[weight].to_numpy(np.float64)[rows]
        return Rows(X, y, group_codes[rows], weight=weights)

    drawn_by = seed if split_seed is None else split_seed
    plan, _ = split_index(codes, names, fractions, among=drawn, seed=drawn_by)
    name = files[0].path.name if files[0].extract else str(year)
    # What is in files as published is known; in others it is looked up.
    looked_up = () if source is None else protected
    looked_up += () if people is None else ("people",)  # drawn by their places
    return Federation(
        schema,
        distribute(take, plan),
        f"ACS {task} ({name})",
        notes=tuple(notes),
        ranges={n: ends for each in inputs for n, ends in each.between.items()},
        test_fraction=test_fraction,
        undeclared=looked_up,
    )


def _notes(
    task: Task, read: Counter[str], kept: int, absent: Sequence[str]
) -> list[str]:
    """Say what was read and kept, and what the source lacks."""
    words = ", ".join(task.conditions) or "everyone"
    notes = [f"{read.total():,} persons read, {kept:,} kept ({words})"]
    lacking = [column for column in absent if column in task.inputs]
    unfiltered = [c for c in task.conditions if c.split()[0] in absent]
    if lacking:
        notes.append(f"inputs that the source does not have: {', '.join(lacking)}")
    if unfiltered:
        notes.append(f"not applied, for want of the column: {', '.join(unfiltered)}")
    negative, positive = task.labels
    return [*notes, f"label: '{negative}' → 0, '{positive}' → 1 (positive)"]


def _draw(codes: IntArray, people: int | None, seed: int) -> IntArray:
    """Places of at most so many persons of each silo, in their order."""
    import pandas as pd

    if people is None:
        return np.arange(len(codes))
    shuffled = np.random.default_rng(seed).permutation(len(codes))
    drawn = pd.Series(shuffled).groupby(codes[shuffled]).head(people)
    return np.sort(drawn.to_numpy())


@dataclass(frozen=True)
class PersonFile:
    """One file of persons.

    Parameters
    ----------
    path, member
        The file, and the one inside if it is an archive.
    state
        The state it is about, if it is about one.
    extract
        Whether it is a table with some of the columns, and not as the Census published
        it.
    """

    path: Path
    member: str = ""
    state: str | None = None
    extract: bool = False

    def __str__(self) -> str:
        return f"'{self.path.name}'" + (f" ('{self.member}')" if self.member else "")

    def open(self) -> AbstractContextManager[IO[bytes]]:
        """Open the file, or the one in an archive."""
        if self.member:
            return open_member(self.path, self.member)
        return self.path.open("rb")

    def chunks(self, wanted: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Yield those of the wanted columns that there are, some rows at a time."""
        import pandas as pd

        if self.path.suffix.lower() in (".parquet", ".pq"):
            try:
                frame = pd.read_parquet(self.path).rename(columns=_plain)
            except ImportError as error:
                raise MissingExtraError("parquet", "reading Parquet files") from error
            except (OSError, ValueError) as error:
                raise DataError(
                    f"[cannot-read] {self} cannot be read: {error}"
                ) from error
            yield frame[[name for name in frame if name in wanted]]
            return
        with self.open() as stream:
            first = stream.readline(MAX_HEADER)
        if b"\0" in first or not first.strip():
            raise DataError(f"[not-text] {self} is empty, or is not UTF-8 text")
        header = first.decode("utf-8-sig", errors="replace")
        delimiter = max(",;\t", key=header.count)
        names = [_plain(name) for name in header.split(delimiter)]
        twice = [name for name in wanted if names.count(name) > 1]
        if twice:
            raise DataError(f"[repeated-column] {self}: several columns {twice}")
        with self.open() as stream:
            check_lengths(stream, self, delimiter, len(names))
        with self.open() as stream:
            yield from pd.read_csv(
                stream,
                sep=delimiter,
                header=0,
                names=names,
                usecols=[name for name in names if name in wanted],
                chunksize=CHUNK_ROWS,
                low_memory=False,
                skipinitialspace=True,
                encoding_errors="replace",
            )


def _plain(name: object) -> str:
    return str(name).strip().strip('"').upper()


def _read(
    files: Sequence[PersonFile],
    task: Task,
    named: Sequence[str],
    states: Sequence[str] | None,
    year: int,
) -> tuple[pd.DataFrame, Counter[str], tuple[str, ...]]:
    """Read and filter all files, a number of rows at a time.

    Return the persons who are kept, in small whole numbers (missing ones are 0), with
    label and state; how many of each state were read; and columns that are absent.
    """
    import pandas as pd

    wanted = tuple(dict.fromkeys((*task.needed, *named, "ST")))
    asked = (*wanted, "RELSHIPP", "STATE", EMPLOYED, SERIAL)
    absent: tuple[str, ...] | None = None
    parts, read = [], Counter[str]()
    for file in files:
        unknown: dict[str, Counter[float]] = {}
        rows = 0
        for frame in file.chunks(asked):
            persons = _standardise(frame, file, task, rows)
            if rows == 0:
                needed = [task.label, *named] if file.extract else wanted
                _check_columns(persons, file, needed, year)
            rows += len(persons)
            if absent is None:
                absent = tuple(column for column in wanted if column not in persons)
            persons["state"] = _state_codes(persons, file, states, read)
            kept = task.keep(persons)
            if states is not None:
                kept &= persons["state"].isin([FIPS[name] for name in states])
            persons["label"] = holds(task.positive, persons)
            used = [c for c in (*task.inputs, *named) if c not in absent]
            chosen = persons.loc[kept, [*dict.fromkeys(used), "label", "state"]]
            chosen = chosen.fillna(0.0)
            for column in COLUMNS.keys() & set(used):
                entry = Input.of(COLUMNS[column], "onehot", task.lowest_age)
                odd = entry.unknown(chosen[column].to_numpy(np.float64))
                unknown.setdefault(column, Counter()).update(odd.tolist())
            parts.append(chosen.apply(pd.to_numeric, downcast="integer"))
        _refuse_unknown(file, unknown)
    if not sum(map(len, parts)):
        raise DataError("[no-rows] no person of these files passes the filter")
    return pd.concat(parts, ignore_index=True), read, absent or ()


def _standardise(
    frame: pd.DataFrame, file: PersonFile, task: Task, before: int
) -> pd.DataFrame:
    """Turn columns into numbers under their older names and in their older coding."""
    import pandas as pd

    persons = {}
    for name, values in frame.items():
        known = pd.to_numeric(values, errors="coerce")
        bad = np.flatnonzero(known.isna() & values.notna())
        if len(bad) and name != SERIAL:
            raise DataError(
                f"[not-numbers] {file}, line {before + int(bad[0]) + 2}, column "
                f"'{name}': '{values.iloc[bad[0]]}' is not a number"
            )
        persons[name] = known.to_numpy(dtype=np.float64, na_value=np.nan)
    if "RELSHIPP" in persons and "RELP" not in persons:  # since 2019
        # A code that RELP does not have becomes −1, which is refused.
        codes = pd.Series(persons["RELSHIPP"]).map(RELP_OF_RELSHIPP)
        persons["RELP"] = codes.fillna(-1.0).to_numpy(np.float64)
    if "STATE" in persons:  # since 2023
        persons.setdefault("ST", persons["STATE"])
    if file.extract and EMPLOYED in persons and "ESR" not in task.inputs:
        persons.setdefault("ESR", persons[EMPLOYED])
    if SERIAL in frame:
        persons[SERIAL] = frame[SERIAL].astype(str).to_numpy()
    return pd.DataFrame(persons)


def _check_columns(
    persons: pd.DataFrame, file: PersonFile, needed: Sequence[str], year: int
) -> None:
    """Refuse a file that lacks columns, or is of another year.

    From 2017 on files of all years have the same name, but serial numbers the year.
    """
    absent = [f"'{column}'" for column in needed if column not in persons]
    if absent:
        raise DataError(
            f"[missing-column] {file} is not such a table: no columns "
            f"{', '.join(absent)}"
        )
    number = str(next(iter(persons.get(SERIAL, ())), ""))
    other = number[:4] if len(number) == 13 and number[:4].isdigit() else str(year)
    if other != str(year) and not file.extract and year >= RENAMED_FILES:
        raise DataError(
            f"[other-year] {file} holds persons of {other}, expected {year}"
        )


def _state_codes(
    persons: pd.DataFrame,
    file: PersonFile,
    states: Sequence[str] | None,
    read: Counter[str],
) -> NDArray[np.uint8]:
    """FIPS code of each row; a file about one state must not hold another."""
    if "ST" not in persons:
        if file.state is None and len(states or ()) != 1:
            raise DataError(
                f"[needs-states] {file} does not say which state its rows are from: "
                "name it, for instance states=['NY']"
            )
        only = file.state or (states or ("",))[0]
        read[only] += len(persons)
        return np.full(len(persons), FIPS[only], dtype=np.uint8)
    counts = persons["ST"].value_counts(dropna=False, sort=False)
    known = {code: STATE_OF.get(code) for code in counts.index}
    allowed = (file.state,) if file.state else tuple(FIPS)
    wrong = [f"{code:g}" for code, state in known.items() if state not in allowed]
    if wrong:
        raise DataError(
            f"[other-states] {file}: codes of other states than "
            f"{file.state or 'there are'}: {listing(wrong)}"
        )
    read.update({str(known[code]): int(count) for code, count in counts.items()})
    return persons["ST"].to_numpy(np.uint8)


def _refuse_unknown(file: PersonFile, unknown: Mapping[str, Counter[float]]) -> None:
    """Refuse values that the data dictionary does not have, all at once."""
    with Problems(str(file), DataError) as problems:
        for name, counts in unknown.items():
            if counts:
                values = [f"{v:g} ({n})" for v, n in counts.most_common()]
                problems.add(
                    f"[unknown-category] column '{name}' has values that the data "
                    "dictionary does not have (missing counts as 0): "
                    f"{listing(values)}"
                )


def _check_request(
    year: int, states: Sequence[str] | None, problems: Problems
) -> tuple[str, ...] | None:
    """States in the order of their FIPS codes; what does not exist is noted."""
    if isinstance(year, bool) or int(year) != year or year < FIRST_YEAR:
        problems.add(
            f"[wrong-value] 'year' must be {FIRST_YEAR} or later. Got {year} instead."
        )
    elif year == NOT_PUBLISHED:
        problems.add(
            f"[not-published] the Census published no standard 1-year file for {year}"
        )
    if states is None:
        return None
    named = [] if isinstance(states, str) else [str(s).upper() for s in states]
    if not named or len(set(named)) < len(named) or not set(named) <= set(FIPS):
        problems.add(
            "[wrong-value] 'states' must be a list of postal codes, each once, such as "
            f"['CA', 'NY']. Got {states!r} instead."
        )
    return tuple(s for s in FIPS if s in named)


def _fetch_states(
    year: int,
    states: Sequence[str],
    cache_dir: str | os.PathLike[str] | None,
    progress: Progress | None,
) -> list[PersonFile]:
    """Files of the states, downloading those that are not there."""
    folder = cache_folder(cache_dir) / "acs" / str(year) / "1-Year"
    files = []
    for state in states:
        name = archive_name(state)
        remote = RemoteFile(name, None, (f"{ADDRESS}/{year}/1-Year/{name}",))
        path = fetch(remote, cache_dir=folder, progress=progress)
        files += _find_files(path, year, (state,))
    return files


def _find_files(
    source: Path, year: int, states: Sequence[str] | None
) -> list[PersonFile]:
    """Files of persons that a path stands for; a state's own before one of all."""
    if not source.exists():
        raise DataError(f"[file-missing] '{source}' is neither a file nor a folder")
    folders = (source, source / str(year) / "1-Year") if source.is_dir() else ()
    kinds = ("*.csv", "csv_p*.zip")
    paths = [p for kind in kinds for f in folders for p in sorted(f.glob(kind))]
    is_extract = source.is_file() and source.suffix.lower() != ".zip"
    if is_extract and PERSONS.fullmatch(source.name) is None:
        return [PersonFile(source, extract=True)]
    there: dict[str, PersonFile] = {}  # by name: one may also be in an archive
    for path in paths or [source]:
        for member in _members(path):
            found = PERSONS.fullmatch(Path(member or path.name).name)
            yy = None if year >= RENAMED_FILES else f"{year % 100:02d}"
            if found is not None and found["yy"] == yy:
                whom = found["whom"].upper()
                state = STATE_OF.get(int(whom)) if whom.isdigit() else whom
                known = PersonFile(path, member, state if state in FIPS else None)
                there.setdefault(found[0].lower(), known)
    own = {file.state: file for file in there.values() if file.state}
    everyone = [file for file in there.values() if file.state is None]
    chosen = [own[state] for state in states or FIPS if state in own]
    missing = [state for state in states or () if state not in own]
    chosen += everyone if missing or not chosen else []
    if not chosen or (missing and not everyone):
        raise DataError(
            f"[file-missing] '{source}' has no file of persons of {year} for "
            f"{listing(missing) or 'any state'}, such as '{archive_name('CA')}'"
        )
    return chosen


def _members(path: Path) -> list[str]:
    """Names in an archive; of another file, one that is empty."""
    if path.suffix.lower() != ".zip":
        return [""]
    try:
        with zipfile.ZipFile(path) as archive:
            return sorted(archive.namelist())
    except (*DAMAGED, OSError) as error:
        raise DataError(
            f"[damaged-file] archive '{path.name}' is damaged: {error}"
        ) from error


def archive_name(state: str) -> str:
    """Name of the state's archive."""
    return f"csv_p{state.lower()}.zip"
