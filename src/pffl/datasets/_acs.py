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
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, get_args

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
OLDEST = 130
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
    persons = _read(files, chosen, encoding, protected, wanted, year, weight)
    names = tuple(state for state in FIPS if state in (wanted or persons.read))
    lookup = np.zeros(256, dtype=np.int64)
    lookup[[FIPS[name] for name in names]] = np.arange(len(names))
    codes = lookup[persons.columns["state"]]
    drawn, notes = _draw(codes, people, seed), _notes(persons, chosen)
    if len(drawn) < len(codes):
        notes.append(f"{len(drawn):,} drawn: at most {people:,} of each state")
    if weight is not None:
        counting = persons.columns[WEIGHT][drawn] != 0
        if not counting.all():
            absent = len(drawn) - int(counting.sum())
            notes.append(f"{absent:,} persons of weight 0 were left out")
        drawn = drawn[counting]
    own = seed if split_seed is None else split_seed
    plan, _ = split_index(codes, names, fractions, among=drawn, seed=own)
    schema, groups = _schema(persons, chosen, protected)
    kind = np.dtype(dtype)
    silos = distribute(lambda rows: _rows(persons, rows, groups, kind), plan)
    name = files[0].path.name if files[0].extract else str(year)
    # What is in files as published is known; in others it is looked up.
    looked_up = () if source is None else protected
    looked_up += () if people is None else ("people",)  # drawn by their places
    return Federation(
        schema,
        silos,
        f"ACS {task} ({name})",
        notes=tuple(notes),
        ranges={n: ends for each in persons.inputs for n, ends in each.between.items()},
        test_fraction=test_fraction,
        undeclared=looked_up,
    )


class Persons(NamedTuple):
    """Rows that passed the filter, packed: one byte a column, until they become inputs.

    All states of a year have more than three million persons. Packed they take some
    50 MB, so that the inputs (about a gigabyte) are the only large array, written once.

    Attributes
    ----------
    inputs
        How each column becomes inputs.
    columns
        Packed columns by name, also ``label``, ``state`` and ``protected …``.
    absent
        Wanted columns that the source does not have.
    read
        Persons of each state before the filter.
    """

    inputs: tuple[Input, ...]
    columns: dict[str, NDArray[Any]]
    absent: tuple[str, ...]
    read: Counter[str]


def _notes(persons: Persons, task: Task) -> list[str]:
    """Say what was read and kept, and what the source lacks."""
    read, kept = persons.read.total(), len(persons.columns["label"])
    words = ", ".join(task.conditions) or "everyone"
    notes = [f"{read:,} persons read, {kept:,} kept ({words})"]
    lacking = [column for column in persons.absent if column in task.inputs]
    unfiltered = [c for c in task.conditions if c.split()[0] in persons.absent]
    if lacking:
        notes.append(f"inputs that the source does not have: {', '.join(lacking)}")
    if unfiltered:
        notes.append(f"not applied, for want of the column: {', '.join(unfiltered)}")
    negative, positive = task.labels
    return [*notes, f"label: '{negative}' → 0, '{positive}' → 1 (positive)"]


def _schema(
    persons: Persons, task: Task, protected: Sequence[str]
) -> tuple[Schema, IntArray]:
    """Names of everything, and the group of each person."""
    attributes, codes = [], []
    for name in protected:
        words = list(PROTECTED[name][1].values())
        places = persons.columns[f"protected {name}"]
        there, own = np.unique(places, return_inverse=True)
        attributes.append(Attribute(name, tuple(words[place] for place in there)))
        codes.append(own.reshape(-1))
    features = tuple(name for each in persons.inputs for name in each.features)
    schema = Schema(features, tuple(attributes), task.labels, task.labels[1])
    return schema, schema.combine(np.stack(codes, axis=1))


def _rows(
    persons: Persons, rows: IntArray, group: IntArray, dtype: np.dtype[Any]
) -> Rows:
    """Write the inputs of some persons."""
    columns = persons.columns
    width = sum(len(each.features) for each in persons.inputs)
    X = np.empty((len(rows), width), dtype=dtype)
    for begin in range(0, len(rows), BLOCK_ROWS):
        block = rows[begin : begin + BLOCK_ROWS]
        written = [e.write(columns[e.column.name][block]) for e in persons.inputs]
        X[begin : begin + BLOCK_ROWS] = np.concatenate(written, axis=1)
    y = columns["label"][rows].astype(np.float64)
    weight = columns[WEIGHT][rows] if WEIGHT in columns else None
    return Rows(X, y, group[rows], weight=weight)


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
    encoding: Encoding,
    protected: Sequence[str],
    states: Sequence[str] | None,
    year: int,
    weight: str | None,
) -> Persons:
    """Read, filter and pack all files, a number of rows at a time."""
    hidden = [PROTECTED[name][0] for name in protected]
    named = [task.label, *hidden, *([] if weight is None else [weight])]
    wanted = tuple(dict.fromkeys((*task.needed, *named, "ST")))
    packed: dict[str, Input] = {}
    for name, column in zip(protected, hidden, strict=True):
        packed[f"protected {name}"] = Input.of(COLUMNS[column], "onehot", 0)
    absent: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    parts: dict[str, list[NDArray[Any]]] = {}
    read: Counter[str] = Counter()
    for file in files:
        unknown: dict[str, Counter[float]] = {}
        rows = 0
        for frame in file.chunks((*wanted, "RELSHIPP", "STATE", EMPLOYED, SERIAL)):
            persons = _standardise(frame, file, task, rows)
            if rows == 0:
                _check_columns(persons, file, named if file.extract else wanted, year)
            rows += len(persons)
            if not inputs:
                absent = tuple(column for column in wanted if column not in persons)
                used = [c for c in task.inputs if c not in (*hidden, *absent)]
                low = task.lowest_age
                inputs = tuple(Input.of(COLUMNS[c], encoding, low) for c in used)
                packed |= {each.column.name: each for each in inputs}
            codes = _state_codes(persons, file, states, read)
            kept = task.keep(persons)
            if states is not None:
                kept &= np.isin(codes, [FIPS[name] for name in states])
            own: dict[str, NDArray[Any]] = {
                "label": holds(task.positive, persons)[kept],
                "state": codes[kept],
            }
            if weight is not None:
                own[weight] = persons[weight].to_numpy()[kept]
            for key, entry in packed.items():
                values = persons[entry.column.name].to_numpy()[kept]
                own[key], odd = entry.pack(values)
                if entry.column.name == "AGEP":
                    odd = values[~((values >= 0) & (values <= OLDEST))]
                unknown.setdefault(entry.column.name, Counter()).update(odd.tolist())
            for key, part in own.items():
                parts.setdefault(key, []).append(part)
        _refuse_unknown(file, unknown)
    columns = {key: np.concatenate(parts.pop(key)) for key in list(parts)}
    if not len(columns.get("label", ())):
        raise DataError("[no-rows] no person of these files passes the filter")
    return Persons(inputs, columns, absent, read)


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
