"""A table in another form than text: known by its first bytes, read where pandas can.

What is not read is named, with what to do. A pickle is never opened: it may hold code.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pffl.data.packed import PACKERS, ZIP
from pffl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

PARQUET = b"PAR1"
XLSX, XLSB = "an Excel file (.xlsx)", "an Excel file (.xlsb)"
XLS, ODS = "an Excel file (.xls)", "an OpenDocument file"
STATA, FEATHER, JSON = "a Stata file", "a Feather (Arrow) file", "JSON"
PICKLE = "a Python pickle, which is never opened"
PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
JOBLIB, ONNX = "a joblib file, which is never opened", "an ONNX model"
BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", XLS),
    (b"<stata_dta>", STATA),
    (b"$FL2@(#)", "an SPSS file"),
    (b"$FL3@(#)", "an SPSS file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"ARROW1", FEATHER),
    (b"RDX2\n", "an R data file"),
    (b"RDX3\n", "an R data file"),
    (b"Obj\x01", "an Avro file"),
    (b"%PDF-", "a PDF document"),
    *((beginning, f"packed twice ({name})") for beginning, name, _ in PACKERS),
    (b"(\xb5/\xfd", "packed with zstd"),
    *((first, PICKLE) for first in PICKLES),
    (b"\x93NUMPY", "a NumPy array"),
)
SAS = bytes.fromhex("c2ea8160b31411cfbd92080009c7318c181f1011")
OLD_STATA = range(102, 116)  # versions 3 to 12, then 1 or 2 for the byte order
INSIDE = {  # a ZIP archive
    "xl/workbook.xml": XLSX,
    "xl/workbook.bin": XLSB,
    "content.xml": ODS,
    "word/document.xml": "a Word document",
}
MODELS = (PICKLE, JOBLIB, ONNX)
BROKEN = (ValueError, KeyError, TypeError, IndexError, OSError, EOFError)


Engine = Literal["openpyxl", "xlrd", "pyxlsb", "odf"]


@dataclass(frozen=True)
class Form:
    """How pandas reads a form, and the package that it needs for that."""

    read: Callable[[bytes], tuple[pd.DataFrame, list[str]]]
    package: str | None = None


def read(data: bytes, name: str) -> tuple[pd.DataFrame, list[str]] | None:
    """Return a table in another form than text, with notes; None if it may be text.

    What is known not to be a table, or cannot be read, is refused by what it is.
    """
    kind = kind_of(data)
    if kind is None:
        return None
    form = FORMS.get(kind)
    if form is None:
        raise DataError(
            f"[not-a-table] '{name}' is {kind}, not a table: {_advice(kind)}"
        )
    try:
        return form.read(data)
    except ImportError as error:
        raise DataError(
            f"[missing-package] '{name}' is {kind}: to read it, pip install "
            f"{form.package}; or save the table as CSV in the program that made it"
        ) from error
    except (*BROKEN, zipfile.BadZipFile) as error:
        raise DataError(
            f"[cannot-read] '{name}' is {kind} that cannot be read: {error}"
        ) from error


def _advice(kind: str) -> str:
    if kind in MODELS:
        return (
            "rows are given as CSV, Parquet, Excel, Stata or JSON. Of a model, "
            "`pffl audit` takes the coefficients, or a table of its predictions"
        )
    return "save the table as CSV (or Parquet) in the program that made it"


def kind_of(data: bytes) -> str | None:
    """What a file is, if it is known not to be text."""
    for beginning, kind in BEGINNINGS:
        if data.startswith(beginning):
            return kind
    if data.startswith(ZIP):
        return _archive(data)
    if data[12:32] == SAS:
        return "a SAS file"
    if len(data) > 3 and data[0] in OLD_STATA and data[1] in (1, 2) and data[2] == 1:
        return STATA
    if data[:1] == b"x" and _is_packed_pickle(data[:1024]):
        return JOBLIB
    if data[:1] == b"\x08" and data[2:3] in (b"\x12", b"\x3a") and b"\0" in data[:4096]:
        return ONNX
    start = data[:1024].lstrip()
    if start[:1] in (b"{", b"["):
        return JSON if _is_json(data) else None
    if start[:14].lower().startswith((b"<!doctype html", b"<html", b"<?xml")):
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


def _is_packed_pickle(data: bytes) -> bool:
    try:
        return zlib.decompressobj().decompress(data).startswith(b"\x80")
    except zlib.error:
        return False


def _is_json(data: bytes) -> bool:
    """Whether all of it, or its first line, is JSON."""
    for text in (data.lstrip().split(b"\n", 1)[0], data):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            continue
        return True
    return False


def _excel(engine: Engine) -> Callable[[bytes], tuple[pd.DataFrame, list[str]]]:
    def read(data: bytes) -> tuple[pd.DataFrame, list[str]]:
        import pandas as pd

        with pd.ExcelFile(io.BytesIO(data), engine=engine) as book:
            first, *others = map(str, book.sheet_names)
            frame = pd.read_excel(book, sheet_name=first)
        more = f", the first of {1 + len(others)}" if others else ""
        return frame, [f"sheet '{first}'{more}"]

    return read


def _stata(data: bytes) -> tuple[pd.DataFrame, list[str]]:
    import pandas as pd

    try:
        return pd.read_stata(io.BytesIO(data)), []
    except ValueError as error:
        if "not unique" not in str(error):
            raise
    plain = pd.read_stata(io.BytesIO(data), convert_categoricals=False)
    return plain, ["value labels are not unique: numbers are kept"]


def _feather(data: bytes) -> tuple[pd.DataFrame, list[str]]:
    import pandas as pd

    return pd.read_feather(io.BytesIO(data)), []


def _json(data: bytes) -> tuple[pd.DataFrame, list[str]]:
    import pandas as pd

    text = data.decode("utf-8-sig")
    try:
        records: Any = json.loads(text)
    except ValueError:
        records = [json.loads(line) for line in text.splitlines() if line.strip()]
    flat = isinstance(records, list) and all(
        isinstance(record, dict)
        and not any(isinstance(value, dict | list) for value in record.values())
        for record in records
    )
    if not flat or not records:
        raise ValueError(
            "a table is a list of records without lists inside, [{…}, {…}], or one "
            "record {…} a line"
        )
    return pd.DataFrame(records), []


FORMS = {
    XLSX: Form(_excel("openpyxl"), "openpyxl"),
    XLS: Form(_excel("xlrd"), "xlrd"),
    XLSB: Form(_excel("pyxlsb"), "pyxlsb"),
    ODS: Form(_excel("odf"), "odfpy"),
    STATA: Form(_stata),
    FEATHER: Form(_feather, "pyarrow"),
    JSON: Form(_json),
}
