"""Tables in pieces, so that a file of any size is read in the same memory.

A piece of text ends where a record ends, and is read as a whole table would be: only
the columns that are asked for, categories and dates as text, so that what a value is
called does not hang on what else is in its piece.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from pffl.data import formats
from pffl.data.checks import listing
from pffl.data.codes import plain_text
from pffl.data.column import Column
from pffl.data.packed import DAMAGED, PACKERS, ZIP, grows, most
from pffl.data.reading import (
    NEWLINE,
    decimal_commas,
    find_delimiter,
    header_of,
    inside_quotes,
    is_parquet,
    looks_even,
    named_columns,
    open_parquet,
    plain_quotes,
    read_table,
    records_of,
)
from pffl.errors import DataError, Problems

if TYPE_CHECKING:
    import pandas as pd

BLOCK = 1 << 20  # bytes
LONGEST = 64 << 20  # of one record
BATCH = 1 << 16  # rows of a Parquet file


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a table.

    Attributes
    ----------
    frame
        The columns that are inputs.
    kept
        Columns that are only to be kept, as they are.
    place
        Says where a row is, counted from 0 in the chunk: its line, in a text file.
    file
        Name of the file, if it is one.
    """

    frame: pd.DataFrame
    kept: pd.DataFrame
    place: Callable[[int], str]
    file: str | None = None


def read_chunks(
    table: pd.DataFrame | str | os.PathLike[str],
    columns: Sequence[Column],
    keep: Sequence[str] = (),
) -> Iterator[Chunk]:
    """Yield the rows of a table in pieces; other columns are not even read.

    Parameters
    ----------
    table
        A DataFrame, which is one piece, or a file.
    columns
        Those that are inputs.
    keep
        Names of columns to keep as they are.
    """
    path = Path(table) if isinstance(table, str | os.PathLike) else None
    if path is not None and not path.is_file():
        raise DataError(f"[file-missing] '{path}' is not a file")
    if path is not None and is_parquet(path):
        yield from _parquet(path, columns, keep)
    elif path is not None and _is_text(path):
        yield from _Text(path, columns, keep).chunks()
    else:
        frame, _ = read_table(table)
        yield _chosen(frame, columns, keep, 0, None if path is None else path.name)


def require(names: Sequence[str], there: Sequence[str], subject: str) -> None:
    """Refuse a table without some columns; say which ones may be meant."""
    absent = [name for name in dict.fromkeys(names) if name not in there]
    close = {name: get_close_matches(name, there, n=1) for name in absent}
    with Problems(subject, DataError) as problems:
        for name, found in close.items():
            if found:
                problems.add(
                    f"[missing-column] no column '{name}': did you mean '{found[0]}'?"
                )
        unknown = [f"'{name}'" for name, found in close.items() if not found]
        if unknown:
            word = "column" if len(unknown) == 1 else "columns"
            known = listing(there)
            problems.add(
                f"[missing-column] no {word} {listing(unknown)}: there are {known}"
            )


def _chosen(
    frame: pd.DataFrame,
    columns: Sequence[Column],
    keep: Sequence[str],
    first: int,
    file: str | None,
) -> Chunk:
    names, subject = [c.name for c in columns], "table" if file is None else f"'{file}'"
    require([*names, *keep], list(map(str, frame.columns)), subject)
    return Chunk(
        frame[names], frame[list(keep)], lambda row: f"row {first + row:,}", file
    )


def _parquet(
    path: Path, columns: Sequence[Column], keep: Sequence[str]
) -> Iterator[Chunk]:
    file, first = open_parquet(path), 0
    names = {str(name).strip(): name for name in file.schema_arrow.names}
    wanted = list(dict.fromkeys([*(c.name for c in columns), *keep]))
    require(wanted, list(names), f"'{path.name}'")
    chosen = [names[name] for name in wanted]
    for batch in file.iter_batches(BATCH, columns=chosen):
        frame, _ = named_columns(batch.to_pandas())
        yield _chosen(frame, columns, keep, first, path.name)
        first += len(frame)


def _is_text(path: Path) -> bool:
    """Whether a file is text, packed or not; a table in another form is not cut."""
    with _unpacked(path) as stream:
        head = stream.read(BLOCK)
    whole = len(head) < BLOCK
    return not head.startswith(ZIP) and (formats.kind_of(head) is None or not whole)


def _unpacked(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        start = stream.read(16)
    for beginning, _, opened in PACKERS:
        if start.startswith(beginning):
            unpacked: IO[bytes] = opened(path)  # and it closes the file
            return unpacked
    return path.open("rb")


# Text


@dataclass(frozen=True, eq=False)
class _Text:
    """A text file that is read in pieces."""

    path: Path
    columns: Sequence[Column]
    keep: Sequence[str]

    def chunks(self) -> Iterator[Chunk]:
        """Yield its records, after the header."""
        delimiter, header = "", list[str]()
        rows = 0
        for data, line in self._blocks():
            if not header:
                text = data.decode()
                delimiter = find_delimiter(text)
                header = header_of(text, delimiter)
                names = [*(c.name for c in self.columns), *self.keep]
                require(names, header, f"'{self.path.name}'")
                size = _size_of_header(text, delimiter)
                line, data = line + data[:size].count(b"\n"), data[size:]
            if data.strip():
                self._check(data, delimiter, len(header), line)
                yield self._read(data, delimiter, header, line)
                rows += 1
        if not rows:
            what = "no rows after the header" if header else "it is empty"
            raise DataError(f"[no-rows] '{self.path.name}': {what}")

    def _blocks(self) -> Iterator[tuple[bytes, int]]:
        """Yield runs of whole records in UTF-8, and the number of lines before each."""
        try:
            with _unpacked(self.path) as stream:
                yield from self._cut(stream)
        except DAMAGED as error:
            raise DataError(
                f"[cannot-read] '{self.path.name}' cannot be read: {error}"
            ) from error

    def _cut(self, stream: IO[bytes]) -> Iterator[tuple[bytes, int]]:
        more, rest, line, plain = _in_utf8(stream), b"", 0, True
        delimiter = ""
        while True:
            new = more(BLOCK)
            data = rest + new
            cut = _end_of_records(data) if new else len(data)
            delimiter = delimiter or find_delimiter(data.decode(errors="replace"))
            if not plain_quotes(data[:cut], delimiter):
                data += self._rest(more)  # quotes that are hard to follow: all at once
                cut, new = len(data), b""
            if len(data) - cut > LONGEST:
                raise DataError(
                    f"[unclosed-quote] '{self.path.name}', line {line + 1:,}: a "
                    f"record of more than {LONGEST >> 20} MB (a quote that is never "
                    "closed?)"
                )
            if cut:
                yield self._decoded(data[:cut], line, plain), line
                plain &= data[:cut].isascii()
                line += data.count(b"\n", 0, cut)
            rest = data[cut:]
            if not new:
                return

    def _rest(self, more: Callable[[int], bytes]) -> bytes:
        size = self.path.stat().st_size
        limit = max(size, most(size))
        data = more(limit)
        if more(1):
            raise DataError(grows(self.path.name, limit))
        return data

    def _decoded(self, data: bytes, line: int, plain: bool) -> bytes:
        """Return UTF-8: Latin-1 is read, too, unless what was before was not plain."""
        try:
            data.decode()
        except UnicodeDecodeError as error:
            place = line + 1 + data.count(b"\n", 0, error.start)
            text = data.decode("cp1252", errors="replace")
            if not plain or "\ufffd" in text:
                raise DataError(
                    f"[not-text] '{self.path.name}', line {place:,}: "
                    f"0x{data[error.start]:02x} is not UTF-8 text; save the file as "
                    "UTF-8"
                ) from error
            data = text.encode()
        if b"\0" in data:
            place = line + 1 + data.count(b"\n", 0, data.find(b"\0"))
            raise DataError(
                f"[not-text] '{self.path.name}', line {place:,}: a zero byte: this is "
                "not a text table"
            )
        return data

    def _check(self, data: bytes, delimiter: str, fields: int, line: int) -> None:
        """Refuse a record of another length, with its line."""
        if looks_even(data, delimiter, fields):
            return
        records, begin = records_of(data.decode(), delimiter), 0
        try:
            for record in records:
                if record and len(record) != fields:
                    problem = f"{len(record)} fields, expected {fields}"
                    break
                begin = records.line_num
            else:
                return
        except csv.Error as error:
            problem = f"{error} (a quote that is never closed?)"
        raise DataError(
            f"[bad-record] '{self.path.name}', line {line + begin + 1:,}: {problem}"
        )

    def _read(
        self, data: bytes, delimiter: str, header: Sequence[str], line: int
    ) -> Chunk:
        import pandas as pd

        wanted = {c.name: c for c in self.columns}
        places = [j for j, name in enumerate(header) if name in wanted]
        options: dict[str, Any] = {
            "sep": delimiter,
            "skipinitialspace": True,
            "index_col": False,
            "header": None,
            "names": list(range(len(header))),
            "low_memory": False,
        }
        types = {j: _type_of(wanted[header[j]]) for j in places}
        frame = pd.read_csv(
            io.BytesIO(data),
            usecols=places,
            dtype={j: kind for j, kind in types.items() if kind},
            **options,
        )
        frame = frame.set_axis([header[j] for j in frame.columns], axis=1)
        if delimiter == ";":
            numbers = [c.name for c in self.columns if c.kind == "number"]
            frame[numbers] = decimal_commas(frame[numbers], [])
        frame, _ = named_columns(frame)
        for column in self.columns:
            if column.kind == "category":
                frame[column.name] = as_trained(frame[column.name], column.values)
        kept = pd.DataFrame(index=frame.index)
        if self.keep:
            places = [header.index(name) for name in self.keep]
            kept = pd.read_csv(
                io.BytesIO(data), usecols=places, dtype=str, na_filter=False, **options
            )[places].set_axis(list(self.keep), axis=1)
        names = [column.name for column in self.columns]
        return Chunk(
            frame[names],
            kept,
            lambda row: f"line {line + _line_of(data, delimiter, row):,}",
            self.path.name,
        )


def _type_of(column: Column) -> Any:
    """Return what pandas is to read a column as; None where it may find out."""
    return None if column.kind == "number" and column.decimal is None else str


def as_trained(series: pd.Series, values: Sequence[str]) -> pd.Series:
    """Return a category's texts as they were called in training.

    Where a column held numbers only, ``007`` was called ``7``.
    """
    known, names = set(values), {}
    for text in series.dropna().unique():
        if text not in known and (name := plain_text(text.replace(",", "."))) in known:
            names[text] = name
    return series.replace(names) if names else series


def _in_utf8(stream: IO[bytes]) -> Callable[[int], bytes]:
    """Return what reads a stream as UTF-8 without a mark, a number of bytes or so."""
    start = stream.read(4)
    stream.seek(0)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = io.TextIOWrapper(stream, "utf-16", newline="")
        return lambda size: text.read(size).encode()
    if start.startswith(codecs.BOM_UTF8):
        stream.seek(len(codecs.BOM_UTF8))
    return stream.read


def _end_of_records(data: bytes) -> int:
    """Return where the last whole record ends."""
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    array = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero((array == NEWLINE) & ~inside_quotes(array))
    return int(ends[-1]) + 1 if len(ends) else 0


def _size_of_header(text: str, delimiter: str) -> int:
    """Return the number of bytes of the first record, and of empty lines before it."""
    records = records_of(text, delimiter)
    next(filter(None, records))
    lines = islice(io.StringIO(text, newline=""), records.line_num)
    return len("".join(lines).encode())


def _line_of(data: bytes, delimiter: str, row: int) -> int:
    """Return the line of a record, counted from 1."""
    records, begin, seen = records_of(data.decode(), delimiter), 0, 0
    for record in records:
        if record:
            if seen == row:
                break
            seen += 1
        begin = records.line_num
    return begin + 1
