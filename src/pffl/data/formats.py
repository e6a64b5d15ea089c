"""What a file is, by its first bytes: so that a table in another form is named."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib

from pffl.errors import DataError

GZIP = b"\x1f\x8b"
ZIP = b"PK\x03\x04"
PARQUET = b"PAR1"
BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel file (.xls)"),
    (b"<stata_dta>", "a Stata file"),
    (b"$FL2@(#)", "an SPSS file"),
    (b"$FL3@(#)", "an SPSS file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"ARROW1", "a Feather (Arrow) file"),
    (b"RDX2\n", "an R data file"),
    (b"RDX3\n", "an R data file"),
    (b"Obj\x01", "an Avro file"),
    (b"%PDF-", "a PDF document"),
    *((f"BZh{k}".encode() + b"1AY&SY", "packed with bzip2") for k in range(1, 10)),
    (b"\xfd7zXZ\0", "packed with xz"),
    (b"(\xb5/\xfd", "packed with zstd"),
    (b"\x80\x03", "a Python pickle, which is never opened"),
    (b"\x80\x04", "a Python pickle, which is never opened"),
    (b"\x80\x05", "a Python pickle, which is never opened"),
    (b"\x93NUMPY", "a NumPy array"),
)
SAS = bytes.fromhex("c2ea8160b31411cfbd92080009c7318c181f1011")
OLD_STATA = range(102, 116)  # versions 3 to 12, then 1 or 2 for the byte order
INSIDE = {  # a ZIP archive
    "xl/workbook.xml": "an Excel file (.xlsx)",
    "xl/workbook.bin": "an Excel file (.xlsb)",
    "content.xml": "an OpenDocument file",
    "word/document.xml": "a Word document",
}


def unpacked(data: bytes, name: str) -> tuple[bytes, list[str]]:
    """Return the bytes of a file, out of gzip where they are in it, with a note."""
    if not data.startswith(GZIP):
        return data, []
    try:
        return gzip.decompress(data), ["unpacked with gzip"]
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"'{name}' is a damaged gzip file: {error}") from error


def refuse_other_forms(data: bytes, name: str) -> None:
    """Refuse a file that is known not to be a text table, by what it is."""
    kind = _kind(data)
    if kind is not None:
        raise DataError(
            f"'{name}' is {kind}, not a table as text: save the table as CSV (or "
            "Parquet) in the program that made it"
        )


def _kind(data: bytes) -> str | None:
    for beginning, kind in BEGINNINGS:
        if data.startswith(beginning):
            return kind
    if data.startswith(ZIP):
        return _archive(data)
    if data[12:32] == SAS:
        return "a SAS file"
    if len(data) > 3 and data[0] in OLD_STATA and data[1] in (1, 2) and data[2] == 1:
        return "a Stata file"
    if data.lstrip()[:1] in (b"{", b"["):
        return "JSON" if _is_json(data) else None
    if data.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html", b"<?xml")):
        return "a web page or XML"
    return None


def _archive(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
    except zipfile.BadZipFile:
        return "a damaged ZIP archive"
    kinds = [kind for member, kind in INSIDE.items() if member in names]
    return kinds[0] if kinds else "a ZIP archive (unpack it)"


def _is_json(data: bytes) -> bool:
    """Whether all of it, or its first line, is JSON."""
    for text in (data, data.lstrip().split(b"\n", 1)[0]):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            continue
        return True
    return False
