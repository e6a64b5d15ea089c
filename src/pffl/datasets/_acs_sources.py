"""Which files hold the persons of which states.

Per-state archives are ``csv_p{st}.zip`` with ``psam_p{FIPS}.csv`` inside, up to 2016
``ss{yy}p{st}.csv``; with ``us`` in place of the state a file is about all of them.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pffl.data.checks import listing
from pffl.datasets._acs_columns import FIPS
from pffl.datasets._acs_files import PARQUET, PersonFile
from pffl.errors import DataError, Problems, UsageError

FIRST_YEAR = 2014
RENAMED_FILES = 2017  # from then on psam_p…, before ss{yy}p…
NOT_PUBLISHED = 2020  # no standard 1-year file: too few people answered

STATE_OF = {code: state for state, code in FIPS.items()}
PERSONS = re.compile(
    r"(?:psam_p(?P<fips>\d\d)|ss(?P<yy>\d\d)p(?P<state>[a-z][a-z])|psam_pus[a-d]?"
    r"|ss(?P<all>\d\d)pus[a-d]?)\.csv",
    re.IGNORECASE,
)
ARCHIVE = re.compile(r"csv_p(?P<state>[a-z][a-z])\.zip", re.IGNORECASE)


@dataclass(frozen=True)
class Name:
    """What the name of a file of persons says."""

    state: str | None  # None: all
    yy: str | None  # None: 2017 or later

    @classmethod
    def of(cls, name: str) -> Name | None:
        """Read a file's name; None if it is not one of persons."""
        found = PERSONS.fullmatch(name)
        if found is None:
            return None
        yy = found["yy"] or found["all"]
        state = (found["state"] or "").upper()
        if found["fips"]:
            state = STATE_OF.get(int(found["fips"]), "")
            return cls(state, yy) if state else None
        if found["yy"] and state != "US":
            return cls(state, yy) if state in FIPS else None
        return cls(None, yy)

    def is_of(self, year: int) -> bool:
        """Whether a file of that year may be called so."""
        return self.yy == (None if year >= RENAMED_FILES else f"{year % 100:02d}")


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


def check_request(year: int, states: Sequence[str] | None) -> tuple[str, ...] | None:
    """States in the order of their FIPS codes; refuse what does not exist."""
    with Problems("acs", UsageError) as problems:
        if isinstance(year, bool) or int(year) != year or year < FIRST_YEAR:
            problems.add(f"'year' must be {FIRST_YEAR} or later. Got {year} instead.")
        elif year == NOT_PUBLISHED:
            problems.add(
                f"the Census published no standard 1-year file for {NOT_PUBLISHED}"
            )
        if isinstance(states, str):
            problems.add(f"'states' must be a list, such as ['{states}']")
        named = [str(state).upper() for state in states or ()]
        unknown = [f"'{state}'" for state in named if state not in FIPS]
        if unknown:
            problems.add(f"'states' are two letters; unknown: {listing(unknown)}")
        if len(set(named)) < len(named):
            problems.add(f"'states' names a state twice: {named}")
        if states is not None and not named:
            problems.add("'states' is empty")
    return None if states is None else tuple(s for s in FIPS if s in named)


def find_files(
    source: Path, year: int, states: Sequence[str] | None
) -> list[PersonFile]:
    """Files of persons that a path of the user stands for."""
    if source.is_dir():
        return _in_folder(source, year, states)
    if not source.is_file():
        raise DataError(f"'{source}' is neither a file nor a folder")
    if source.suffix.lower() == ".zip":
        return _in_archive(source)
    name = None if source.suffix.lower() in PARQUET else Name.of(source.name)
    if name is None:
        return [PersonFile(source, extract=True)]
    return [PersonFile(source, state=name.state)]


def _in_archive(path: Path) -> list[PersonFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"archive '{path.name}' is damaged: {error}") from error
    named = [(member, Name.of(member)) for member in sorted(members)]
    files = [PersonFile(path, member, name.state) for member, name in named if name]
    if not files:
        raise DataError(
            f"archive '{path.name}' holds no file of persons such as 'psam_p06.csv': "
            f"there are {listing(members)}"
        )
    return files


def _in_folder(
    folder: Path, year: int, states: Sequence[str] | None
) -> list[PersonFile]:
    """One file for each state; a file of all states for those without their own."""
    places = [folder, folder / f"{year}" / "1-Year"]
    found = [p for place in places if place.is_dir() for p in sorted(place.iterdir())]
    own: dict[str, PersonFile] = {}
    everyone: list[PersonFile] = []
    for path in found:
        name, archive = Name.of(path.name), ARCHIVE.fullmatch(path.name)
        if name is not None and name.is_of(year):
            if name.state is None:
                everyone.append(PersonFile(path))
            else:
                own[name.state] = PersonFile(path, state=name.state)
        elif archive and archive["state"].upper() in FIPS:
            state = archive["state"].upper()
            member = member_name(year, state)
            own.setdefault(state, PersonFile(path, member, state))
        elif archive and archive["state"].upper() == "US" and not everyone:
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
            f"'{folder}' has no persons of {year} for {listing(expected)}"
            if states
            else f"'{folder}' has no file of persons of {year}, such as {expected[0]}"
        )
    return [own[s] for s in states or () if s in own] + (everyone if missing else [])
