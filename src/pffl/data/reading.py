"""Read a table from a CSV or Parquet file, or say at which line and byte one cannot.

Byte-order marks, ``;`` or tab between fields, CRLF, Latin-1, line breaks inside quotes
and decimal commas are read; what was assumed is noted. A line with another number of
fields than the header is refused: filled up silently, its values would move.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pffl.errors import DataError, MissingExtraError, Problems

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = ",;\t|"
SHOWN = 5
PROBE = 50


def read_table(
    table: pd.DataFrame | str | os.PathLike[str],
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table as a DataFrame, and notes on how it was read."""
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return named_columns(table)
    path = Path(table)
    if not path.is_file():
        raise DataError(f"'{path}' is not a file")
    if path.suffix.lower() in (".parquet", ".pq"):
        return named_columns(_read_parquet(path))
    return read_csv(path)


def named_columns(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Column names as stripped text; repeated names only where the values agree."""
    names = [str(name).strip() for name in frame.columns]
    notes: list[str] = []
    kept: list[int] = []
    first: dict[str, int] = {}
    with Problems("table", DataError) as problems:
        for place, name in enumerate(names):
            if name not in first:
                first[name] = place
                kept.append(place)
            elif frame.iloc[:, place].equals(frame.iloc[:, first[name]]):
                notes.append(f"column '{name}' is repeated with the same values")
            else:
                problems.add(
                    f"column '{name}' occurs twice with different values: rename one"
                )
    chosen = frame.iloc[:, kept]
    chosen = chosen.set_axis([names[place] for place in kept], axis=1)
    return chosen.reset_index(drop=True), notes


def read_csv(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read a delimited text file of unknown dialect."""
    import pandas as pd

    data = path.read_bytes()
    text, encoding, notes = decode(data, path.name)
    delimiter = find_delimiter(text)
    if delimiter != ",":
        notes.append(f"fields are separated by {delimiter!r}")
    header = check_records(text, delimiter, encoding, path.name)
    frame = pd.read_csv(
        io.StringIO(text),
        sep=delimiter,
        skipinitialspace=True,
        index_col=False,
        header=0,
        names=list(range(len(header))),
        low_memory=False,
    )
    unnamed = [place for place, name in enumerate(header) if not name]
    if unnamed:
        notes.append(f"columns without a name left out: number {_numbers(unnamed)}")
    frame = frame.drop(columns=unnamed)
    frame = frame.set_axis([name for name in header if name], axis=1)
    if delimiter == ";":
        frame = _decimal_commas(frame, notes)
    frame, more = named_columns(frame)
    return frame, notes + more


def decode(data: bytes, name: str) -> tuple[str, str, list[str]]:
    """Text of a file, its encoding, and a note unless it is plain UTF-8."""
    encoding, notes = "utf-8", []
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
        notes.append("read as UTF-16")
    elif data.startswith(codecs.BOM_UTF8):
        encoding = "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        where = _place(data, error.start)
        if encoding == "utf-16":
            raise DataError(f"'{name}', {where}: not UTF-16") from error
        found = f"{where} is 0x{data[error.start]:02x}, not UTF-8"
        encoding = "cp1252"
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as second:
            raise DataError(
                f"'{name}', {_place(data, second.start)}: 0x{data[second.start]:02x} "
                "is neither UTF-8 nor Latin-1 text; save the file as UTF-8"
            ) from second
        notes.append(f"{found}: read as Latin-1 (Windows-1252)")
    if "\0" in text:
        where = _place(data, data.find(b"\0"))
        raise DataError(f"'{name}', {where}: a zero byte: this is not a text table")
    if not text.strip():
        raise DataError(f"'{name}' is empty")
    return text, encoding, notes


def find_delimiter(text: str) -> str:
    r"""Return the separator that cuts the first records into most fields, evenly.

    >>> find_delimiter("a;b;c\n1,5;2;3\n")
    ';'
    """
    best, most = ",", (0, 1)
    for delimiter in DELIMITERS:
        lengths: list[int] = []
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            for record in records:
                if record:
                    lengths.append(len(record))
                if len(lengths) == PROBE:
                    break
        except csv.Error:
            pass
        if lengths and lengths[0] > 1:
            even = sum(length == lengths[0] for length in lengths)
            score = (even * 100 // len(lengths) // 50, lengths[0])
            if score > most:
                best, most = delimiter, score
    return best


def check_records(text: str, delimiter: str, encoding: str, name: str) -> list[str]:
    """Return the header; refuse records of another length, with line and byte."""
    records = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        skipinitialspace=True,
        strict=True,
    )
    header: list[str] = []
    bad: list[tuple[int, str]] = []
    count, begin = 0, 0
    try:
        for record in records:
            if record and not header:
                header = [field.strip() for field in record]
            elif record:
                count += 1
                if len(record) != len(header):
                    bad.append((begin, f"{len(record)} fields, expected {len(header)}"))
            begin = records.line_num
    except csv.Error as error:
        bad.append((begin, f"{error} (a quote that is never closed?)"))
    with Problems(f"'{name}'", DataError) as problems:
        for line, problem in bad[:SHOWN]:
            byte = _bytes_before(text, line, encoding) + 1
            problems.add(f"line {line + 1}, byte {byte}: {problem}")
        if len(bad) > SHOWN:
            problems.add(f"and {len(bad) - SHOWN} more such lines")
        if not count and not bad:
            problems.add("no rows after the header")
    return header


def _bytes_before(text: str, lines: int, encoding: str) -> int:
    stream = io.StringIO(text, newline="")
    before = "".join(next(stream) for _ in range(lines))
    return len(before.encode(encoding))


def _place(data: bytes, start: int) -> str:
    line = data.count(b"\n", 0, start) + 1
    return f"line {line}, byte {start + 1}"


def _numbers(places: list[int]) -> str:
    return ", ".join(str(place + 1) for place in places)


def _decimal_commas(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Turn columns of numbers such as ``3,5`` into numbers."""
    import pandas as pd

    found = []
    for name in [n for n, c in Counter(frame.columns).items() if c == 1]:
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column) or column.notna().sum() == 0:
            continue
        text = column.astype("string")
        known = text.dropna()
        numeric = known.str.fullmatch(r"[-+]?\d+(,\d+)?")
        if numeric.all() and known.str.contains(",").any():
            numbers = pd.to_numeric(text.str.replace(",", ".")).astype("float64")
            frame = frame.assign(**{str(name): numbers})
            found.append(f"'{name}'")
    if found:
        notes.append(f"decimal commas in {', '.join(found)}")
    return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("parquet", "reading Parquet files") from error
    try:
        return pd.read_parquet(path, engine="pyarrow")
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"'{path.name}' is not a Parquet file: {error}") from error
