"""Download the Census's per-state archives once, and know them again.

The Census publishes no hashes. So the first complete, sound download of a file is
recorded in ``hashes.json`` beside it (SHA-256, size, and the number of persons once
they were counted), and every later use is checked against that record. A download that
breaks off stays as ``….part`` and is taken up where it ended, if the server says that
its file is still the same; it is never read before it is complete.
"""

from __future__ import annotations

import json
import logging
import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pffl.data.checks import listing
from pffl.datasets import _fetch
from pffl.datasets._acs_files import DAMAGED, LARGEST, PersonFile
from pffl.datasets._acs_sources import archive_name, member_name
from pffl.datasets._archive import check_archive
from pffl.errors import DataError

if TYPE_CHECKING:
    import requests

logger = logging.getLogger(__name__)

ADDRESS = "https://www2.census.gov/programs-surveys/acs/data/pums"
RECORD = "hashes.json"
STEP = 1 << 16
MAX_BYTES = 2 << 30  # of one archive; all states together have less

# What to call the file, bytes so far, bytes in all (None if the server does not say).
Progress = Callable[[str, int, int | None], None]


class _Broken(Exception):
    """The connection ended early: take up again."""


class _Damaged(Exception):
    """What arrived is not what was expected: start again."""


def fetch_states(
    year: int,
    states: Sequence[str],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[PersonFile]:
    """Verified local archives of the states, downloading those that are not there."""
    from filelock import FileLock, Timeout

    folder = _fetch.cache_folder(cache_dir) / "acs" / str(year) / "1-Year"
    files = [
        PersonFile(folder / archive_name(state), member_name(year, state), state)
        for state in states
    ]
    for place, file in enumerate(files):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{file.path}.lock", timeout=_fetch.LOCK_SECONDS):
                if not _known(file):
                    logger.info("fetching %s (%d of %d)", file, place + 1, len(files))
                    _download(file, year, files[place:], progress or _silent)
        except Timeout as error:
            raise DataError(
                f"{file}: another process has been fetching it for more than "
                f"{_fetch.LOCK_SECONDS:.0f} s; remove '{error.lock_file}' if there is "
                "none"
            ) from error
        except OSError as error:
            raise DataError(f"{file}: cannot use '{folder}': {error}") from error
    return files


def check_rows(file: PersonFile, rows: int) -> None:
    """Compare the number of persons with the recorded one, or record it."""
    known = read_record(file.path.parent).get(file.path.name, {})
    recorded = known.get("rows", rows)
    if recorded != rows:
        raise DataError(f"{file}: {rows} persons, but {recorded} were recorded")
    if "rows" not in known:
        _write_record(file.path, {"rows": rows})


def read_record(folder: Path) -> dict[str, dict[str, Any]]:
    """What is known of the files in a folder."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"'{folder / RECORD}' cannot be read: {error}") from error
    if not isinstance(record, dict):
        raise DataError(f"'{folder / RECORD}' is not a record of hashes")
    return record


def _write_record(path: Path, facts: Mapping[str, object]) -> None:
    from filelock import FileLock

    place = path.parent / RECORD
    with FileLock(f"{place}.lock", timeout=_fetch.LOCK_SECONDS):
        record = read_record(path.parent)
        record[path.name] = {**record.get(path.name, {}), **facts}
        arriving = place.with_suffix(".new")
        text = json.dumps(record, indent=2, sort_keys=True)
        arriving.write_text(text + "\n", encoding="utf-8")
        os.replace(arriving, place)


def _known(file: PersonFile) -> bool:
    """Whether the file is there and sound; one put there by hand is recorded."""
    if not file.path.is_file():
        return False
    try:
        _accept(file, file.path)
    except _Damaged as error:
        logger.warning("%s is fetched anew: %s", file, error)
        return False
    return True


def _accept(file: PersonFile, path: Path) -> None:
    """Compare with the recorded hash; a new file must be sound, then it is recorded."""
    import pooch

    found = pooch.file_hash(str(path), alg="sha256")
    size = path.stat().st_size
    record = read_record(file.path.parent)
    recorded = record.get(file.path.name, {}).get("sha256")
    if recorded is None:
        _check_sound(file, path)
        _write_record(file.path, {"sha256": found, "bytes": size})
    elif recorded != found:
        raise _Damaged(f"SHA-256 {found} of {size} bytes, recorded was {recorded}")


def _check_sound(file: PersonFile, path: Path) -> None:
    """Read the archive once, so that no damaged file is ever recorded."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, file.path.name, file.member, LARGEST)
            if archive.testzip() is not None:
                raise _Damaged("a wrong checksum inside the archive")
    except DAMAGED as error:
        raise _Damaged(f"not a complete archive: {error}") from error


def _download(
    file: PersonFile, year: int, missing: Sequence[PersonFile], progress: Progress
) -> None:
    """Try, and try once more; on success the file appears under its name at once."""
    import requests

    url = f"{ADDRESS}/{year}/1-Year/{file.path.name}"
    part = file.path.with_name(file.path.name + ".part")
    reasons = []
    for _ in range(_fetch.TRIES):
        try:
            _transfer(url, part, lambda now, all_: progress(file.path.name, now, all_))
            _accept(file, part)
        except _Broken as error:
            reasons.append(f"broken off: {error}")
        except (_Damaged, DataError) as error:
            reasons.append(str(error))
            _forget(part)
        except requests.RequestException as error:
            reasons.append(_first_line(error))
            break
        else:
            os.replace(part, file.path)
            _forget(part)
            return
    absent = [other for other in missing if other is file or not other.path.is_file()]
    names = [f"'{other.path.name}'" for other in absent]
    raise DataError(
        f"{file} could not be downloaded from {url}: {'; then: '.join(reasons)}\n"
        f"To go on without a connection, put {listing(names)} of {year} into "
        f"'{file.path.parent}' (no hash is published), or name a folder that has them "
        f"with source=. A file that the Census replaced on purpose is accepted once "
        f"its entry is removed from '{RECORD}' there."
    )


def _transfer(
    url: str, part: Path, progress: Callable[[int, int | None], None]
) -> None:
    """Fetch the rest of a file into `part`, or all of it."""
    import requests

    stamp = _stamp(part)
    start = part.stat().st_size if stamp and part.is_file() else 0
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": stamp}
    timeout = (_fetch.CONNECT_SECONDS, _fetch.READ_SECONDS)
    with requests.get(url, headers=headers, stream=True, timeout=timeout) as reply:
        if reply.status_code == requests.codes.requested_range_not_satisfiable:
            _forget(part)
            raise _Broken("the server no longer has that part")
        reply.raise_for_status()
        begin, total = _extent(reply)
        if begin not in (0, start):
            raise _Damaged(f"the server answered from byte {begin}, not {start}")
        _remember(part, reply)
        done = _save(reply, part, begin, total, progress)
    if total is not None and done != total:
        raise _Broken(f"{done} bytes of {total}")


def _save(
    reply: requests.Response,
    part: Path,
    begin: int,
    total: int | None,
    progress: Callable[[int, int | None], None],
) -> int:
    import requests

    done = begin
    with part.open("ab" if begin else "wb") as stream:
        try:
            for chunk in reply.iter_content(STEP):
                done += stream.write(chunk)
                if done > MAX_BYTES:
                    raise _Damaged(f"more than {MAX_BYTES} bytes, the limit")
                progress(done, total)
        except requests.RequestException as error:
            raise _Broken(_first_line(error)) from error
    return done


def _extent(reply: requests.Response) -> tuple[int, int | None]:
    """First byte of the reply, and size of the whole file."""
    if reply.status_code == 206:
        found = re.fullmatch(
            r"bytes (\d+)-\d+/(\d+)", reply.headers.get("Content-Range", "")
        )
        if found is None:
            raise _Damaged("the server does not say which part it sends")
        return int(found[1]), int(found[2])
    length = reply.headers.get("Content-Length")
    return 0, int(length) if length and length.isdigit() else None


def _stamp(part: Path) -> str:
    """By what the server will know whether its file is still the same."""
    try:
        return part.with_suffix(".stamp").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _remember(part: Path, reply: requests.Response) -> None:
    tag = reply.headers.get("ETag", "")
    stamp = tag if tag and not tag.startswith("W/") else ""
    stamp = stamp or reply.headers.get("Last-Modified", "")
    part.with_suffix(".stamp").write_text(stamp, encoding="utf-8")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    part.with_suffix(".stamp").unlink(missing_ok=True)


def _silent(name: str, done: int, total: int | None) -> None:
    """Show nothing."""


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
