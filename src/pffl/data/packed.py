"""Files that are packed (gzip, bzip2, xz, ZIP): unpacked in memory, within limits."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Any

from pffl.errors import DataError

ZIP = b"PK\x03\x04"
PACKERS: tuple[tuple[bytes, str, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", "gzip", gzip.open),
    *((f"BZh{k}1AY&SY".encode(), "bzip2", bz2.open) for k in range(1, 10)),
    (b"\xfd7zXZ\0", "xz", lzma.open),
)
DAMAGED = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,  # a password
)
MEGABYTE = 1 << 20
MOST_GROWTH = 200  # bytes of a table out of one packed byte
LARGEST = 8 << 30


def most(size: int) -> int:
    """Return how many bytes a packed file of this size may hold."""
    return min(LARGEST, MEGABYTE + MOST_GROWTH * size)


def unpacked(data: bytes, name: str) -> tuple[bytes, list[str]]:
    """Return the bytes of a file, unpacked where they are packed, with a note."""
    limit = most(len(data))
    for beginning, packer, opened in PACKERS:
        if data.startswith(beginning):
            try:
                with opened(io.BytesIO(data)) as stream:
                    content = _read(stream, limit, name)
            except DAMAGED as error:
                raise DataError(
                    f"[damaged-file] '{name}' is a damaged {packer} file: {error}"
                ) from (error)
            return content, [f"unpacked with {packer}"]
    if data.startswith(ZIP):
        return _unzipped(data, limit, name)
    return data, []


def _unzipped(data: bytes, limit: int, name: str) -> tuple[bytes, list[str]]:
    """Return the one table of an archive; an archive that is one file stays."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            check_size(archive, limit, name)
            members = archive.namelist()
            if any(member.endswith((".xml", ".bin")) for member in members):
                return data, []  # of a workbook, a text document
            files = [m for m in members if not m.endswith("/") and "__MACOSX" not in m]
            if len(files) != 1:
                raise DataError(
                    f"[several-files] '{name}' is a ZIP archive of {len(files)} "
                    "files: unpack the one that is meant"
                )
            with archive.open(files[0]) as stream:
                return _read(stream, limit, name), [f"'{files[0]}', unpacked with ZIP"]
    except DAMAGED as error:
        raise DataError(
            f"[damaged-file] '{name}' is a damaged ZIP archive: {error}"
        ) from error


def check_size(archive: zipfile.ZipFile, limit: int, name: str) -> None:
    """Refuse an archive that would grow beyond the limit."""
    if sum(entry.file_size for entry in archive.infolist()) > limit:
        raise DataError(grows(name, limit))


def _read(stream: IO[bytes], limit: int, name: str) -> bytes:
    content = stream.read(limit + 1)
    if len(content) > limit:
        raise DataError(grows(name, limit))
    return content


def grows(name: str, limit: int) -> str:
    """Say that a file holds more than it may."""
    return (
        f"[too-large] '{name}' grows beyond {limit:,} bytes: no table is packed so "
        "tightly"
    )
