"""Files that appear whole or not at all, logs that lose no line, and one way to hash.

A file is written next to its target, forced to the disk, and takes its name last, so a
crash, a full disk or `kill -9` leaves what was there (faults 65 and 69). Errors name
the path. Files of a site are for the site's own user alone (`private`).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl.errors import ArtefactError

OWN_FILE = 0o600
OWN_FOLDER = 0o700
Content: TypeAlias = bytes | Callable[[BinaryIO], None]  # or what a function writes


def write_all(
    directory: Path, files: Mapping[str, Content], *, private: bool = False
) -> None:
    """Write files so that a crash leaves either all old ones or whole new ones.

    All are first written next to their targets; only then do they take their names, one
    by one.
    """
    pending = {name: directory / f".{name}.tmp" for name in files}
    path = directory
    try:
        for name, content in files.items():
            path = pending[name]
            if private:
                make_private(path)
            write_through(path, content)
        for name in files:
            path = directory / name
            os.replace(pending[name], path)
        _force(directory)
    except OSError as error:
        raise cannot_write(path, error, "; earlier results are intact") from error
    finally:
        for path in pending.values():
            with suppress(OSError):
                path.unlink(missing_ok=True)


def write(path: Path, content: Content, *, private: bool = False) -> None:
    """Write one file."""
    write_all(path.parent, {path.name: content}, private=private)


def write_through(path: Path, content: Content) -> None:
    """Write where the file is to lie, and force it to the disk."""
    with open(path, "wb") as stream:
        if isinstance(content, bytes):
            stream.write(content)
        else:
            content(stream)
        stream.flush()
        os.fsync(stream.fileno())


def make_private(path: Path) -> None:
    """Make an empty file that was not there, for its owner alone."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_FILE))


def _force(path: Path) -> None:
    """Force a file, or a folder's new names, to the disk, where the system can."""
    with suppress(OSError):
        place = os.open(path, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)


def folder(path: Path, *, private: bool = False) -> Path:
    """Make a folder, if it is not there."""
    try:
        path.mkdir(OWN_FOLDER if private else 0o777, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    return path


@contextmanager
def whole_folder(place: Path) -> Iterator[Path]:
    """Give a folder to fill, which takes the name `place` last (fault 100).

    An empty folder of that name is replaced; one that holds something is refused.
    What a crash left unfinished next to it is removed the next time.
    """
    place = place.absolute()
    pending, held = (place.with_name(f".{place.name}.{end}") for end in ("tmp", "lock"))
    _refuse_used(place)
    folder(place.parent)
    with lock(held, private=True):
        try:
            _refuse_used(place)
            if pending.exists():
                shutil.rmtree(pending)
            yield folder(pending)
            for path in (pending, *pending.rglob("*")):
                _force(path)
            os.rename(pending, place)
            _force(place.parent)
        except OSError as error:
            raise cannot_write(Path(error.filename or place), error) from error
        finally:
            shutil.rmtree(pending, ignore_errors=True)
            held.unlink(missing_ok=True)


def _refuse_used(place: Path) -> None:
    """Refuse what is not a new or empty folder; and the one that this process is in."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ArtefactError("file-exists:refuse-used", place=place)
    if place == Path.cwd():
        raise ArtefactError("file-exists:refuse-used-2", place=place)


def remove(paths: Iterable[Path]) -> None:
    """Remove files, those that are there."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error


def read(path: Path, *, largest: int = -1) -> bytes:
    """Read a file, or say which one cannot be read.

    Of a file with more than `largest` bytes, if that is given, only one byte more is
    read: enough to refuse it.
    """
    try:
        with open(path, "rb") as stream:
            return stream.read(largest + 1 if largest >= 0 else -1)
    except OSError as error:
        raise cannot_read(path, error) from error


def cannot_read(path: Path, error: OSError) -> ArtefactError:
    """Say which path cannot be read, and why."""
    return ArtefactError(
        "cannot-read:cannot-read", path=path, strerror=error.strerror or error
    )


def cannot_write(path: Path, error: OSError, remark: str = "") -> ArtefactError:
    """Say which path cannot be written, and why."""
    return ArtefactError(
        "cannot-write:cannot-write",
        path=path,
        strerror=error.strerror or error,
        remark=remark,
    )


class Locked(ArtefactError):
    """Another process holds the lock."""


@contextmanager
def lock(path: Path, *, seconds: float = 0.0, private: bool = False) -> Iterator[None]:
    """Hold a lock file; `Locked` if another process still does after `seconds`."""
    from filelock import FileLock, Timeout

    held = FileLock(path, seconds, mode=OWN_FILE if private else 0o644)
    try:
        held.acquire()
    except Timeout as error:
        raise Locked("lock-held:lock", path=path) from error
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield
    finally:
        held.release()


def append(path: Path, entry: Mapping[str, Any], *, private: bool = False) -> None:
    """Add an entry to a log as a line of JSON, on disk before this returns."""
    line = json.dumps(entry, allow_nan=False).encode() + b"\n"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        number = os.open(path, flags, OWN_FILE if private else 0o666)
        with os.fdopen(number, "ab") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise cannot_write(path, error) from error


class Journal:
    """Finished work by key, in memory and (with a path) as lines of a log.

    A last line that a crash cut short is dropped on reading; damage anywhere else is
    refused.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._entries: dict[str, dict[str, Any]] = {}
        if path is not None:
            folder(path.parent)
            if path.exists():
                self._read(path)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self._entries[key]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield keys with their entries."""
        yield from self._entries.items()

    def put(self, key: str, entry: Mapping[str, Any]) -> None:
        """Keep an entry; a later one with the same key takes its place."""
        self._entries[key] = dict(entry)
        if self.path is not None:
            append(self.path, {"key": key, **entry})

    def _read(self, path: Path) -> None:
        whole, _, torn = read(path).rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                self._entries[entry.pop("key")] = entry
            except (ValueError, KeyError, AttributeError) as error:
                raise ArtefactError("bad-line", path=path, number=number) from error
        if torn:
            # Cut off what the crash left, so that the next line starts afresh.
            try:
                os.truncate(path, len(whole) + (1 if whole else 0))
            except OSError as error:
                raise cannot_write(path, error) from error


def key_of(*parts: object) -> str:
    """Return one stable text for anything that JSON can hold."""
    return json.dumps(parts, sort_keys=True, ensure_ascii=False)


def digest(*parts: str | bytes | NDArray[Any]) -> str:
    """SHA-256 of these one after another; of an array the bytes of its numbers."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        else:
            found.update(part.encode() if isinstance(part, str) else part)
    return found.hexdigest()


def digest_arrays(*arrays: NDArray[Any]) -> str:
    """SHA-256 of arrays, each with its type and shape."""
    return digest(*(p for a in arrays for p in (f"{a.dtype.str}{a.shape}", a)))


def digest_file(path: Path) -> str:
    """SHA-256 of a file, read piece by piece."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise cannot_read(path, error) from error


def plain(value: object) -> Any:
    """Return what JSON can hold: no NumPy types, and null for NaN and infinity.

    >>> plain({"a": np.array([1.0, np.nan]), "b": (np.int64(2),)})
    {'a': [1.0, None], 'b': [2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_text(value: object, *, ascii_only: bool = False) -> str:
    """Return the text of a JSON file; a number that is not finite becomes null."""
    text = json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=ascii_only)
    return text + "\n"


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return the text of a CSV file; what a spreadsheet would run is disarmed."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    if rows:
        writer.writerow([disarm(name) for name in rows[0]])
    for row in rows:
        writer.writerow([_entry(plain(value)) for value in row.values()])
    return stream.getvalue()


def disarm(text: str) -> str:
    """Put a quote before text that a spreadsheet takes for a formula (fault 76).

    >>> disarm("=1+1"), disarm("Female")
    ("'=1+1", 'Female')
    """
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


def _entry(value: object) -> str:
    if value is None:
        return ""
    return disarm(value) if isinstance(value, str) else repr(value)
