"""Read a table from a file, or say at which line and byte one cannot.

Of text (CSV): byte-order marks, ``;`` or tab between fields, CRLF, Latin-1, line breaks
inside quotes and decimal commas are read, packed or not; what was assumed is noted. A
line with another number of fields than the header is refused: filled up silently, its
values would move. Parquet is read as it is, other forms as `formats` can.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pffl.data import formats
from pffl.data.packed import unpacked
from pffl.errors import DataError, MissingExtraError, Problems
from pffl.typing import BoolArray

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = ",;\t|"
PARQUET = (".parquet", ".pq")
SHOWN = 5
PROBE = 50  # records
HEAD = 1 << 20  # characters that are sure to hold them
QUOTE, NEWLINE, RETURN = b'"\n\r'
BLOCK = 1 << 18  # bytes


LATIN = "read as Latin-1 (Windows-1252)"


def is_table(value: object) -> TypeGuard[pd.DataFrame | str | os.PathLike[str]]:
    """Whether it is what `read_table` takes: a DataFrame or a path."""
    return hasattr(value, "columns") or isinstance(value, str | os.PathLike)


def read_table(
    table: pd.DataFrame | str | os.PathLike[str],
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table as a DataFrame, and notes on how it was read."""
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return named_columns(table)
    path = Path(table)
    if not path.is_file():
        raise DataError(f"[file-missing] '{path}' is not a file")
    if not is_parquet(path):
        data, notes = unpacked(path.read_bytes(), path.name)
        found = formats.read(data, path.name)
        if found is None:
            frame, more = read_csv(data, path.name)
        else:
            frame, repeated = named_columns(found[0])
            more = [*found[1], *repeated]
        return frame, notes + more
    open_parquet(path)
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except (OSError, ValueError) as error:
        raise DataError(
            f"[cannot-read] '{path.name}' cannot be read: {error}"
        ) from error
    return named_columns(frame)


def open_parquet(path: Path) -> Any:
    """Return a Parquet file that is open, or say why it is none."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("parquet", "reading Parquet files") from error
    try:
        return parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"[cannot-read] '{path.name}' is not a Parquet file: {error}"
        ) from error


def place_of(table: pd.DataFrame | str | os.PathLike[str], row: int) -> str:
    """Say where a row of a table is, counted from 0: its line, in a text file.

    The file is read again: this is for messages, of which there are few.
    """
    if isinstance(table, str | os.PathLike):
        path = Path(table)
        if not is_parquet(path):
            data, _ = unpacked(path.read_bytes(), path.name)
            if formats.kind_of(data) is None:
                return f"line {_line(decode(data, path.name)[0], row):,}"
    return f"row {row:,}"


def _line(text: str, row: int) -> int:
    lines = enumerate(io.StringIO(text))
    if '"' not in text:
        full = (number for number, line in lines if line.strip("\r\n"))
        return next(islice(full, row + 1, None)) + 1
    records = records_of(text, find_delimiter(text))
    begins = 0
    seen = -1  # the header
    for record in records:
        if record:
            if seen == row:
                break
            seen += 1
        begins = records.line_num
    return begins + 1


def is_parquet(path: Path) -> bool:
    """Whether a file is one, by its name or its first bytes."""
    with path.open("rb") as stream:
        start = stream.read(len(formats.PARQUET))
    return path.suffix.lower() in PARQUET or start == formats.PARQUET


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
                    f"[repeated-column] column '{name}' occurs twice with different "
                    "values: rename one"
                )
    chosen = frame.iloc[:, kept]
    chosen = chosen.set_axis([names[place] for place in kept], axis=1)
    return chosen.reset_index(drop=True), notes


def read_csv(data: bytes, name: str) -> tuple[pd.DataFrame, list[str]]:
    """Read delimited text of unknown dialect.

    pandas reads it once. Only where lines do not look alike at a glance does a slower
    pass look at each record, to say what is wrong where.
    """
    import pandas as pd

    text, encoding, notes = decode(data, name)
    delimiter = find_delimiter(text)
    if delimiter != ",":
        notes.append(f"fields are separated by {delimiter!r}")
    plain = data if encoding == "utf-8" else text.encode()
    header = header_of(text, delimiter)
    if not header or not looks_even(plain, delimiter, len(header)):
        header = check_records(text, delimiter, encoding, name)
    frame = pd.read_csv(
        io.BytesIO(plain),
        sep=delimiter,
        skipinitialspace=True,
        index_col=False,
        header=0,
        names=list(range(len(header))),
        low_memory=False,
    )
    if frame.empty:
        check_records(text, delimiter, encoding, name)
    unnamed = [place for place, name in enumerate(header) if not name]
    if unnamed:
        numbers = ", ".join(str(place + 1) for place in unnamed)
        notes.append(f"columns without a name left out: number {numbers}")
    frame = frame.drop(columns=unnamed)
    frame = frame.set_axis([name for name in header if name], axis=1)
    if delimiter == ";":
        frame = decimal_commas(frame, notes)
    frame, more = named_columns(frame)
    return frame, notes + more


def header_of(text: str, delimiter: str) -> list[str]:
    """Return the fields of the first record; none if it cannot be read."""
    records = records_of(_head(text), delimiter)
    try:
        first: list[str] = next(filter(None, records), [])
    except csv.Error:
        return []
    return [field.strip() for field in first]


def records_of(text: str, delimiter: str) -> Any:
    """Return a reader of the records of a text, strict about quotes."""
    return csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        skipinitialspace=True,
        strict=True,
    )


def looks_even(data: bytes, delimiter: str, fields: int) -> bool:
    """Whether all records surely have so many fields; False if a look is not enough."""
    if data.count(b"\r") != data.count(b"\r\n") or not plain_quotes(data, delimiter):
        return False
    return first_uneven(data, delimiter, fields) is None


def plain_quotes(data: bytes, delimiter: str) -> bool:
    """Whether each quote opens at the begin of a field or closes at its end.

    Then an odd number of them before a byte says that it is inside.
    """
    if data.count(b'"') % 2:
        return False
    array = np.frombuffer(data, dtype=np.uint8)
    begins = np.zeros(256, dtype=bool)
    begins[[ord(delimiter), NEWLINE, QUOTE]] = True
    ends = begins.copy()
    ends[RETURN] = True
    for start, block, inside in _blocks(array):
        quotes = np.flatnonzero(block == QUOTE) + start
        opens, closes = quotes[inside::2] - 1, quotes[1 - inside :: 2] + 1
        if not begins[array[opens[opens >= 0]]].all():
            return False
        if not ends[array[closes[closes < len(array)]]].all():
            return False
    return True


def inside_quotes(array: NDArray[np.uint8]) -> BoolArray:
    """Return which bytes are between quotes, or open some."""
    # Counting up to 255 and from 0 again keeps odd and even.
    return (np.cumsum(array == QUOTE, dtype=np.uint8) & 1).view(np.bool_)


def _blocks(
    array: NDArray[np.uint8],
) -> Iterator[tuple[int, NDArray[np.uint8], Literal[0, 1]]]:
    """Cut bytes into blocks that stay in a fast memory: begin, bytes, in quotes or not.

    Arrays as large as the file take longer to be had than to be filled.
    """
    inside: Literal[0, 1] = 0
    for start in range(0, len(array), BLOCK):
        block = array[start : start + BLOCK]
        yield start, block, inside
        if np.count_nonzero(block == QUOTE) % 2:
            inside = 0 if inside else 1


def first_uneven(
    data: bytes, delimiter: str, fields: int
) -> tuple[int, int, int] | None:
    r"""Find the first line with another number of fields: its number, byte and fields.

    Lines and bytes are counted from 0, and empty lines let through, as pandas skips
    them. Between quotes nothing ends a field or a line.

    >>> first_uneven(b'a,b\n\n1,"2,\n"\n3\n', ",", 2)
    (3, 13, 1)
    """
    array = np.frombuffer(data, dtype=np.uint8)
    line, begin, carried = 0, 0, 0  # of the line that goes on in the next block
    for start, block, inside in _blocks(array):
        mark, end = block == ord(delimiter), block == NEWLINE
        quote = block == QUOTE
        if inside or quote.any():
            outside = inside_quotes(block) == bool(inside)
            mark &= outside
            end &= outside
        ends = np.flatnonzero(end)
        marks = np.flatnonzero(mark)
        before = np.searchsorted(marks, ends)
        counts = np.diff(before, prepend=-carried) + 1
        starts = np.concatenate(([begin], ends[:-1] + start + 1))[: len(ends)]
        for found in np.flatnonzero(counts != fields).tolist():
            first = int(starts[found])
            if data[first : start + int(ends[found]) + 1] not in (b"\n", b"\r\n"):
                return line + found, first, int(counts[found])
        if len(ends):
            line += len(ends)
            begin = start + int(ends[-1]) + 1
            carried = len(marks) - int(before[-1])
        else:
            carried += len(marks)
    if begin < len(data) and carried + 1 != fields:
        return line, begin, carried + 1
    return None


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
            raise DataError(f"[not-text] '{name}', {where}: not UTF-16") from error
        found = f"{where} is 0x{data[error.start]:02x}, not UTF-8"
        encoding = "cp1252"
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as second:
            raise DataError(
                f"[not-text] '{name}', {_place(data, second.start)}: "
                f"0x{data[second.start]:02x} is neither UTF-8 nor Latin-1 text; save "
                "the file as UTF-8"
            ) from second
        notes.append(f"{found}: {LATIN}")
    if "\0" in text:
        where = _place(data, data.find(b"\0"))
        raise DataError(
            f"[not-text] '{name}', {where}: a zero byte: this is not a text table"
        )
    if not text.strip():
        raise DataError(f"[empty-file] '{name}' is empty")
    return text, encoding, notes


def find_delimiter(text: str) -> str:
    r"""Return the separator that cuts the first records into most fields, evenly.

    >>> find_delimiter("a;b;c\n1,5;2;3\n")
    ';'
    """
    best, most = ",", (0, 1)
    for delimiter in DELIMITERS:
        lengths: list[int] = []
        records = csv.reader(io.StringIO(_head(text), newline=""), delimiter=delimiter)
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


def _head(text: str) -> str:
    """The first lines, as far as they are whole."""
    return text if len(text) < HEAD else text[: text.rfind("\n", 0, HEAD) + 1 or HEAD]


def check_records(text: str, delimiter: str, encoding: str, name: str) -> list[str]:
    """Return the header; refuse records of another length, with line and byte."""
    records = records_of(text, delimiter)
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
            before = "".join(islice(io.StringIO(text, newline=""), line))
            byte = len(before.encode(encoding)) + 1
            problems.add(f"[bad-record] line {line + 1}, byte {byte}: {problem}")
        if len(bad) > SHOWN:
            problems.add(f"[bad-record] and {len(bad) - SHOWN} more such lines")
        if not count and not bad:
            problems.add("[no-rows] no rows after the header")
    return header


def _place(data: bytes, start: int) -> str:
    line = data.count(b"\n", 0, start) + 1
    return f"line {line}, byte {start + 1}"


def decimal_commas(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
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
