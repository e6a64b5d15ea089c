"""Files of ACS persons: which ones hold whom, where they come from, and their columns.

Per-state archives are ``csv_p{st}.zip`` with ``psam_p{FIPS}.csv`` inside, up to 2016
``ss{yy}p{st}.csv``; with ``us`` in place of the state a file is about all of them.
Column names drift over the years; here they all have the older name and coding.
Every line is counted on the way: pandas fills a short line up with missing values, and
here missing means 0, so a line cut off by a broken copy would become a person.

Apart from `acs`, its one user: this is where persons are, that is what becomes of them.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pffl.data.checks import listing
from pffl.data.reading import PARQUET, find_delimiter, first_uneven, open_parquet
from pffl.datasets import _fetch
from pffl.datasets._acs_tasks import FIPS, RELP_OF_RELSHIPP
from pffl.datasets._archive import DAMAGED, open_member
from pffl.errors import DataError, Problems
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd

Columns: TypeAlias = dict[str, FloatArray]
# Some rows, what to call one of them in a message, and the number of the first.
Part: TypeAlias = "tuple[pd.DataFrame | dict[int, pd.Series[Any]], str, int]"

ADDRESS = "https://www2.census.gov/programs-surveys/acs/data/pums"
MAX_BYTES = 2 << 30  # of one archive; all states together have less
BUFFER = 4 << 20
LONGEST_HEADER = 1 << 16
BATCH_ROWS = 1 << 17

FIRST_YEAR = 2014
RENAMED_FILES = 2017  # from then on psam_p…, before ss{yy}p…
NOT_PUBLISHED = 2020  # no standard 1-year file: too few people answered
# Older name → newer name (RELSHIPP since 2019, STATE since 2023).
RENAMED = {"RELP": "RELSHIPP", "ST": "STATE"}

STATE_OF = {code: state for state, code in FIPS.items()}
PERSONS = re.compile(
    r"psam_p(?P<fips>\d\d)|ss(?P<yy>\d\d)p(?P<state>(?!us)[a-z][a-z])"
    r"|(?:psam_|ss(?P<all>\d\d))pus[a-d]?",
    re.IGNORECASE,
)
ARCHIVE = re.compile(r"csv_p(?P<state>[a-z][a-z])\.zip", re.IGNORECASE)


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
        Whether it is somebody's table with some of the columns, and not as the Census
        published it.
    """

    path: Path
    member: str = ""
    state: str | None = None
    extract: bool = False

    def __str__(self) -> str:
        return f"'{self.path.name}'" + (f" ('{self.member}')" if self.member else "")

    def head(self) -> tuple[list[str], list[str]]:
        """Names of all its columns, in upper case, and the first row of a text file."""
        if self._is_parquet:
            names = open_parquet(self.path).schema_arrow.names
            return [str(name).upper() for name in names], []
        with self._text() as (stream, columns, delimiter, _):
            line = stream.readline(LONGEST_HEADER).decode("utf-8", errors="replace")
        return columns, [field.strip().strip('"') for field in line.split(delimiter)]

    def find(self, wanted: Collection[str], other: Mapping[str, str]) -> dict[str, str]:
        """Return under which name the file has each column that is there.

        `other` are names that an extract may have besides those of other years.
        """
        names, _ = self.head()
        others = {**RENAMED, **(other if self.extract else {})}
        found: dict[str, str] = {}
        for column in wanted:
            either = (column, others.get(column, column))
            there = [name for name in either if name in names]
            if there and names.count(there[0]) > 1:
                raise DataError(
                    f"[repeated-column] {self}: column '{there[0]}' occurs more than "
                    "once"
                )
            if there:
                found[column] = there[0]
        return found

    def chunks(self, found: Mapping[str, str]) -> Iterator[Columns]:
        """Yield columns as numbers in their older coding, some rows at a time."""
        import pandas as pd

        names, _ = self.head()
        places = {column: names.index(name) for column, name in found.items()}
        for frame, where, first in (
            self._batches(places) if self._is_parquet else self._blocks(places)
        ):
            chunk = {}
            for column, place in places.items():
                values = frame[place]
                numbers = pd.to_numeric(values, errors="coerce")
                bad = np.flatnonzero(numbers.isna() & values.notna())
                if len(bad):
                    raise DataError(
                        f"[not-numbers] {self}, {where} {first + int(bad[0])}, column "
                        f"'{column}': '{values.iloc[bad[0]]}' is not a number"
                    )
                chunk[column] = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
            if found.get("RELP") == RENAMED["RELP"]:
                chunk["RELP"] = relp(chunk["RELP"])
            yield chunk

    @property
    def _is_parquet(self) -> bool:
        return self.path.suffix.lower() in PARQUET

    def _batches(self, places: Mapping[str, int]) -> Iterator[Part]:
        import pyarrow

        wanted, rows = sorted(set(places.values())), 0
        try:
            for batch in open_parquet(self.path).iter_batches(BATCH_ROWS):
                yield {i: batch.column(i).to_pandas() for i in wanted}, "row", rows + 1
                rows += len(batch)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(
                f"[cannot-read] '{self.path.name}' cannot be read: {error}"
            ) from error

    def _blocks(self, places: Mapping[str, int]) -> Iterator[Part]:
        import pandas as pd

        rows = 0
        with self._text() as (stream, columns, delimiter, byte):
            line, fields = 1, len(columns)
            while block := stream.read(BUFFER):
                block += stream.readline()
                if block.strip():
                    uneven = first_uneven(block, delimiter, fields)
                    if uneven is not None:
                        later, place, found = uneven
                        raise DataError(
                            f"[bad-record] {self}, line {line + later + 1}, byte "
                            f"{byte + place + 1}: {found} fields, expected {fields} "
                            "(a file that was cut off, or is not this table)"
                        )
                    try:
                        frame = pd.read_csv(
                            io.BytesIO(block),
                            sep=delimiter,
                            header=None,
                            names=list(range(fields)),
                            usecols=sorted(set(places.values())),
                            index_col=False,
                            low_memory=False,
                            skipinitialspace=True,
                            encoding_errors="replace",
                        )
                    except pd.errors.ParserError as error:
                        raise DataError(f"[cannot-read] {self}: {error}") from error
                    yield frame, "line", line + 1
                    rows += len(frame)
                line, byte = line + block.count(b"\n"), byte + len(block)
        if rows == 0:
            raise DataError(f"[no-rows] {self}: no rows after the header")

    @contextmanager
    def _text(self) -> Iterator[tuple[IO[bytes], list[str], str, int]]:
        """Open after the header: the rest, the columns, the separator, the place."""
        try:
            opening = (
                open_member(self.path, self.member)
                if self.member
                else self.path.open("rb")
            )
            with opening as stream:
                first = stream.readline(LONGEST_HEADER)
                if b"\0" in first:
                    raise DataError(
                        f"[not-text] {self}, line 1: a zero byte: save the file as "
                        "UTF-8 text"
                    )
                if not first.strip():
                    raise DataError(f"[empty-file] {self} is empty")
                text = first.decode("utf-8-sig", errors="replace")
                delimiter = find_delimiter(text)
                fields = text.split(delimiter)
                columns = [field.strip().strip('"').upper() for field in fields]
                yield stream, columns, delimiter, len(first)
        except OSError as error:
            raise DataError(f"[cannot-read] {self} cannot be read: {error}") from error


def relp(relshipp: FloatArray) -> FloatArray:
    """Turn codes of RELSHIPP into codes of RELP; others become −1, which is refused.

    >>> relp(np.array([20.0, 21.0, 23.0, 38.0, 99.0]))
    array([ 0.,  1.,  1., 17., -1.])
    """
    import pandas as pd

    codes = pd.Series(relshipp).map(RELP_OF_RELSHIPP).fillna(-1)
    return codes.to_numpy(dtype=np.float64)


def member_name(year: int, state: str) -> str:
    """Name of the state's file inside its archive.

    >>> member_name(2018, "CA"), member_name(2014, "CA")
    ('psam_p06.csv', 'ss14pca.csv')
    """
    if year >= RENAMED_FILES:
        return f"psam_p{FIPS[state]:02d}.csv"
    return f"ss{year % 100:02d}p{state.lower()}.csv"


def archive_name(state: str) -> str:
    """Name of the state's archive."""
    return f"csv_p{state.lower()}.zip"


def check_request(
    year: int, states: Sequence[str] | None, problems: Problems
) -> tuple[str, ...] | None:
    """States in the order of their FIPS codes; what does not exist is noted."""
    if isinstance(year, bool) or int(year) != year or year < FIRST_YEAR:
        problems.add(
            f"[wrong-value] 'year' must be {FIRST_YEAR} or later. Got {year} instead."
        )
    elif year == NOT_PUBLISHED:
        problems.add(
            "[not-published] the Census published no standard 1-year file for "
            f"{NOT_PUBLISHED}"
        )
    if states is None:
        return None
    if isinstance(states, str):
        problems.add(f"[wrong-value] 'states' must be a list, such as ['{states}']")
    named = [str(state).upper() for state in states]
    unknown = [f"'{state}'" for state in named if state not in FIPS]
    if unknown:
        problems.add(
            f"[unknown-state] 'states' are two letters; unknown: {listing(unknown)}"
        )
    if len(set(named)) < len(named):
        problems.add(f"[repeated-name] 'states' names a state twice: {named}")
    if not named:
        problems.add("[needs-states] 'states' is empty")
    return tuple(s for s in FIPS if s in named)


def fetch_states(
    year: int,
    states: Sequence[str],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: _fetch.Progress | None = None,
) -> list[PersonFile]:
    """Verified local archives of the states, downloading those that are not there."""
    folder = _fetch.cache_folder(cache_dir) / "acs" / str(year) / "1-Year"
    files = [
        PersonFile(folder / archive_name(state), member_name(year, state), state)
        for state in states
    ]
    for file in files:
        name = file.path.name
        url = f"{ADDRESS}/{year}/1-Year/{name}"
        remote = _fetch.RemoteFile(
            name, url=url, max_bytes=MAX_BYTES, member=file.member
        )
        try:
            _fetch.fetch(remote, cache_dir=folder, progress=progress)
        except _fetch.FetchError as error:
            absent = [
                f"'{f.path.name}'" for f in files if f is file or not f.path.is_file()
            ]
            raise DataError(
                f"[download-failed] {file} could not be downloaded from {url}: "
                f"{'; then: '.join(error.reasons)}\n"
                f"To go on without a connection, put {listing(absent)} of {year} into "
                f"'{folder}' (no hash is published), or name a folder that has them "
                f"with source=. A file that the Census replaced on purpose is accepted "
                f"once its entry is removed from '{_fetch.RECORD}' there."
            ) from error
    return files


def check_rows(file: PersonFile, rows: int) -> None:
    """Compare the number of persons with the recorded one, or record it."""
    known = _fetch.recorded(file.path).get("rows")
    if known is None:
        _fetch.record(file.path, {"rows": rows})
    elif known != rows:
        raise DataError(
            f"[wrong-count] {file}: {rows} persons, but {known} were recorded"
        )


def find_files(
    source: Path, year: int, states: Sequence[str] | None
) -> list[PersonFile]:
    """Files of persons that a path of the user stands for."""
    if source.is_dir():
        return _in_folder(source, year, states)
    if not source.is_file():
        raise DataError(f"[file-missing] '{source}' is neither a file nor a folder")
    if source.suffix.lower() == ".zip":
        return _in_archive(source)
    named = _persons(source.name)
    if named is None:
        return [PersonFile(source, extract=True)]
    return [PersonFile(source, state=named[0] or None)]


def _persons(name: str) -> tuple[str, str] | None:
    """State ("" for all) and two digits of the year ("" from 2017) in a file's name.

    >>> _persons("psam_p06.csv"), _persons("ss14pus.csv"), _persons("people.csv")
    (('CA', ''), ('', '14'), None)
    """
    stem, _, ending = name.rpartition(".")
    found = PERSONS.fullmatch(stem) if ending.lower() == "csv" else None
    if found is None:
        return None
    state = (found["state"] or "").upper()
    if found["fips"]:
        state = STATE_OF.get(int(found["fips"]), "?")
    if state and state not in FIPS:
        return None
    return state, found["yy"] or found["all"] or ""


def _in_archive(path: Path) -> list[PersonFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (*DAMAGED, OSError) as error:
        raise DataError(
            f"[damaged-file] archive '{path.name}' is damaged: {error}"
        ) from error
    named = [(member, _persons(member)) for member in sorted(members)]
    files = [PersonFile(path, member, n[0] or None) for member, n in named if n]
    if not files:
        raise DataError(
            f"[missing-member] archive '{path.name}' holds no file of persons such as "
            f"'psam_p06.csv': there are {listing(members)}"
        )
    return files


def _in_folder(
    folder: Path, year: int, states: Sequence[str] | None
) -> list[PersonFile]:
    """One file for each state; a file of all states for those without their own."""
    places = [folder, folder / f"{year}" / "1-Year"]
    found = [p for place in places if place.is_dir() for p in sorted(place.iterdir())]
    yy = "" if year >= RENAMED_FILES else f"{year % 100:02d}"
    own: dict[str, PersonFile] = {}
    everyone: list[PersonFile] = []
    for path in found:
        named, archive = _persons(path.name), ARCHIVE.fullmatch(path.name)
        if named == ("", yy):
            everyone.append(PersonFile(path))
        elif named is not None and named[1] == yy:
            own[named[0]] = PersonFile(path, state=named[0])
        elif archive and (state := archive["state"].upper()) in FIPS:
            own.setdefault(state, PersonFile(path, member_name(year, state), state))
        elif archive and state == "US" and not everyone:
            everyone.extend(_in_archive(path))
    if states is None:
        chosen = [own[state] for state in FIPS if state in own] or everyone
        if chosen:
            return chosen
    missing = [state for state in states or ("CA",) if state not in own]
    if missing and not everyone:
        expected = [
            f"{state} ('{archive_name(state)}' or '{member_name(year, state)}')"
            for state in missing
        ]
        raise DataError(
            f"[file-missing] '{folder}' has no persons of {year} for "
            f"{listing(expected)}"
            if states
            else f"[file-missing] '{folder}' has no file of persons of {year}, such as "
            f"{expected[0]}"
        )
    return [own[s] for s in states or () if s in own] + (everyone if missing else [])
