"""Look into zip archives, after all of an archive was checked."""

from __future__ import annotations

import lzma
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from pffl.errors import DataError, Problems

MAX_MEMBERS = 100_000
MAX_RATIO = 200
MEGABYTE = 1 << 20
LARGEST = 8 << 30  # bytes of an unpacked file
# What the standard library raises on a broken, encrypted or foreign archive.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
)


def extract_member(
    archive: Path, member: str, target: Path, *, max_bytes: int = 4096 * MEGABYTE
) -> None:
    """Write one member of a zip file to `target`, or refuse and leave nothing behind.

    Refused are archives with a path that leaves the folder, an absolute path, a
    symbolic link, a member over the size limit, or one that is packed more tightly than
    real data ever are (a bomb). The copy stops at the announced size.
    """
    with open_member(archive, member, max_bytes=max_bytes) as source:
        try:
            with target.open("wb") as sink:
                shutil.copyfileobj(source, sink, MEGABYTE)
        except BaseException:
            target.unlink(missing_ok=True)
            raise


@contextmanager
def open_member(
    archive: Path, member: str, *, max_bytes: int = LARGEST
) -> Iterator[IO[bytes]]:
    """Open one member of a zip file, which ends at its announced size."""
    try:
        with zipfile.ZipFile(archive) as opened:
            info = check_archive(opened, archive.name, member, max_bytes)
            with opened.open(info) as stream:
                yield stream
    except DAMAGED as error:
        raise DataError(
            f"[damaged-file] archive '{archive.name}' is damaged: {error}"
        ) from error


def check_sound(archive: Path, name: str, member: str) -> str | None:
    """Read all of an archive once, and say what is wrong with its bytes."""
    try:
        with zipfile.ZipFile(archive) as opened:
            check_archive(opened, name, member, LARGEST)
            torn = opened.testzip()
    except DAMAGED as error:
        return f"not a complete archive: {error}"
    return None if torn is None else "a wrong checksum inside the archive"


def check_archive(
    opened: zipfile.ZipFile, name: str, member: str, max_bytes: int
) -> zipfile.ZipInfo:
    """Return the wanted member's entry; refuse an archive with any suspicious entry."""
    entries = opened.infolist()
    with Problems(f"archive '{name}'", DataError) as problems:
        check_entries(entries, MAX_MEMBERS, problems)
        wanted = [info for info in entries if info.filename == member]
        if len(wanted) != 1:
            problems.add(
                f"[wrong-members] {len(wanted)} members are called '{member}', "
                "expected one"
            )
        elif wanted[0].file_size > max_bytes:
            problems.add(
                f"[too-large] '{member}' has {wanted[0].file_size} bytes, limit "
                f"{max_bytes}"
            )
    return wanted[0]


def check_entries(
    entries: Sequence[zipfile.ZipInfo], most: int, problems: Problems
) -> None:
    """Note every suspicious entry of an archive, or that there are too many."""
    if len(entries) > most:
        problems.add(
            f"[too-many-members] {len(entries)} members, at most {most} are allowed"
        )
    else:
        problems.extend(filter(None, map(_suspicion, entries)))


def _suspicion(info: zipfile.ZipInfo) -> str | None:
    """What is wrong with an entry: where it would go, or how far it would grow."""
    path = info.filename
    windows = PureWindowsPath(path)
    if PurePosixPath(path).is_absolute() or windows.drive or windows.root:
        return f"[unsafe-path] absolute path '{path}'"
    if ".." in windows.parts:
        return f"[unsafe-path] path leaves the folder: '{path}'"
    if stat.S_ISLNK(info.external_attr >> 16):
        return f"[unsafe-path] symbolic link '{path}'"
    if info.file_size > MEGABYTE + MAX_RATIO * info.compress_size:
        sizes = f"{info.compress_size} to {info.file_size} bytes"
        return f"[too-large] '{path}' grows from {sizes}"
    return None
