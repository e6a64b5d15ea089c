"""Read a table: CSV and other files by pandas, frames of other libraries by narwhals.

All records of a text file (CSV) are looked at before pandas reads it: pandas would fill
up a record that is too short, and its values would move. Records of a wrong length are
named together, with their lines. Separator, encoding and compression are recognised and
noted. A file whose first line holds values, not names, is refused.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice, pairwise, repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeGuard

from pffl.data.checks import listing
from pffl.errors import DataError, MissingExtraError, Problems

if TYPE_CHECKING:
    import pandas as pd

    from pffl.data.columns import Column

#: A DataFrame (pandas, polars, Arrow, …), or a file.
Table: TypeAlias = "pd.DataFrame | str | os.PathLike[str]"

PARQUET = (".parquet", ".pq")
EXCEL = (".xlsx", ".xls", ".xlsb", ".ods")
JSON = (".json", ".jsonl", ".ndjson")
BINARY = (*PARQUET, *EXCEL, *JSON, ".feather", ".arrow", ".dta")
PACKERS: dict[bytes, Any] = {b"\x1f\x8b": gzip, b"\xfd7zXZ\0": lzma}
PACKERS |= {f"BZh{level}1AY&SY".encode(): bz2 for level in range(1, 10)}
ZIP, UTF_16 = b"PK\x03\x04", (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
NOT_TEXT = {b"%PDF": "PDF", b"\x80": "a pickle", b"\x08": "ONNX", b"<": "HTML or XML"}
NOT_TEXT |= {b"x\x9c": "joblib", b"x\xda": "joblib"}
JSON_START = re.compile(rb"\s*[\[{]\s*[\"{]")
DAMAGED = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile),
)
PROBED_RECORDS, HEAD_BYTES, BLOCK_BYTES = 50, 1 << 20, 1 << 20
CHUNK_ROWS = 250_000
MOST_SHOWN = 5  # bad records
MAX_GROWTH = 200  # of a packed file
LATIN = "read as Latin-1 (Windows-1252)"
TOTALS = frozenset({"total", "totals", "grand total", "sum", "summe"})


def is_table(value: object) -> TypeGuard[pd.DataFrame | str | os.PathLike[str]]:
    """Whether it is what `read_table` takes: a frame of any library, or a path."""
    return hasattr(value, "columns") or isinstance(value, str | os.PathLike)


def read_table(
    table: Table, texts: Sequence[str] = ()
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table as a pandas DataFrame, and notes on how it was read.

    Columns of a text file that are named in `texts` stay as they are written.
    """
    import pandas as pd

    if not isinstance(table, str | os.PathLike):
        return _with_names(_as_pandas(table))
    path = _existing(table)
    if _is_binary(path):
        frame, notes = _read_binary(path)
    else:
        with _opened(path) as data:
            text = TextFile.scan(data, path)
            places = {k: str for k, name in enumerate(text.header) if name in texts}
            frame = pd.read_csv(data, dtype=places or None, **text.options)
        frame, notes = frame.set_axis(text.header, axis=1), text.notes
        if "" in text.header:
            notes.append("columns without a name were left out")
            frame = frame.drop(columns="")
        _refuse_total(frame, path.name)
    frame, repeated = _with_names(frame)
    return frame, notes + repeated


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a table: inputs, columns to keep, and where each row is."""

    frame: pd.DataFrame
    kept: pd.DataFrame
    place: Callable[[int], str]
    subject: str = "table"


def read_chunks(
    table: Table, columns: Sequence[Column], keep: Sequence[str] = ()
) -> Iterator[Chunk]:
    """Yield the rows of a table in pieces, so that a file may have any size.

    Parameters
    ----------
    table
        A DataFrame, which is one piece, or a file.
    columns
        Those that are inputs. Only they are read. What a value is called does not
        depend on the other rows of its piece: all but numbers are read as text.
    keep
        Names of columns to keep as they are.
    """
    names = [column.name for column in columns]
    wanted, first = list(dict.fromkeys([*names, *keep])), 0
    path = _existing(table) if isinstance(table, str | os.PathLike) else None
    subject = "table" if path is None else f"'{path.name}'"
    if path is not None and not _is_binary(path):
        pieces = _text_chunks(path, columns, keep)
    elif path is not None and path.suffix.lower() in PARQUET:
        pieces = ((frame, frame) for frame in _parquet_chunks(path, wanted))
    else:
        frame, _ = read_table(table)
        require(wanted, list(map(str, frame.columns)), subject)
        pieces = iter([(frame, frame)])
    for inputs, beside in pieces:

        def place(row: int, start: int = first) -> str:
            return place_of(table, start + row)

        yield Chunk(inputs[names], beside[list(keep)], place, subject)
        first += len(inputs)


def place_of(table: Table, row: int) -> str:
    """Say where a row of a table is, counted from 0: its line, in a text file.

    The file is read again: this is for messages.
    """
    if not isinstance(table, str | os.PathLike) or _is_binary(path := Path(table)):
        return f"row {row:,}"
    with _opened(path) as data:
        text = TextFile.scan(data, path)
        with _decoded(data, text.encoding) as lines:
            records, seen, begin = _records(lines, text.delimiter), -1, 0
            for record in records:
                if record:
                    if seen == row:
                        break
                    seen += 1
                begin = records.line_num
    return f"line {begin + 1:,}"


def require(names: Sequence[str], there: Sequence[str], subject: str) -> None:
    """Refuse a table without some columns; say which ones may be meant."""
    with Problems(subject, DataError) as problems:
        unknown = []
        for name in dict.fromkeys(names):
            if name in there:
                continue
            if close := get_close_matches(name, there, n=1):
                hint = f"did you mean '{close[0]}'?"
                problems.add(f"[missing-column] no column '{name}': {hint}")
            else:
                unknown.append(f"'{name}'")
        if unknown:
            problems.add(
                f"[missing-column] no column {listing(unknown)}: there are "
                f"{listing(map(repr, there))}"
            )


def is_number(text: str) -> bool:
    """Whether a text is a plain number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


# Text


def find_delimiter(text: str) -> str:
    r"""Return the separator that cuts the first records into most fields, evenly.

    >>> find_delimiter("a;b;c\n1,5;2;3\n")
    ';'
    """
    best, most = ",", (0, 1)
    for delimiter in ",;\t|":
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        lengths: list[int] = []
        with suppress(csv.Error):
            lengths.extend(islice((len(r) for r in records if r), PROBED_RECORDS))
        if lengths and lengths[0] > 1:
            even = sum(length == lengths[0] for length in lengths)
            score = (2 * even // len(lengths), lengths[0])
            if score > most:
                best, most = delimiter, score
    return best


@dataclass(frozen=True)
class TextFile:
    """A text table that was scanned: how it is written. All its records fit."""

    header: list[str]
    delimiter: str
    encoding: str
    decimal: str
    notes: list[str]
    first: int | None = 0  # the line of the names; None: there is none

    @classmethod
    def scan(
        cls, data: IO[bytes], path: Path, names: Sequence[str] | None = None
    ) -> TextFile:
        """Look at every record once; raise all that is wrong, with lines.

        The file has no line of names where those of its columns are given.
        """
        encoding = _encoding_of(data, path)
        notes = {"utf-16": ["read as UTF-16"], "cp1252": [LATIN]}.get(encoding, [])
        with _decoded(data, encoding) as text:
            head = text.read(HEAD_BYTES)
        if not head.strip():
            raise DataError(f"[empty-file] '{path.name}' is empty")
        delimiter = find_delimiter(head[: head.rfind("\n", 0, HEAD_BYTES) + 1] or head)
        if delimiter != ",":
            notes.append(f"fields are separated by {delimiter!r}")
        header: list[str] = []
        first: list[str] = []
        with _decoded(data, encoding) as text, suppress(csv.Error):
            records = filter(None, _records(text, delimiter))
            named = next(records, []) if names is None else names
            header = [field.strip() for field in named]
            first = next(records, [])
        bad = []
        if encoding == "utf-16" or not _are_even(data, delimiter, len(header)):
            bad = _bad_records(data, encoding, delimiter, len(header))
        with Problems(f"'{path.name}'", DataError) as problems:
            problems.extend(bad[:MOST_SHOWN])
            if len(bad) > MOST_SHOWN:
                more = len(bad) - MOST_SHOWN
                problems.add(f"[bad-record] and {more:,} more such lines")
            if not bad and names is None:
                _check_header(header, first, head, problems)
            if not first and not problems.found:
                problems.add("[no-rows] no rows after the header")
        commas = delimiter == ";" and _has_decimal_commas(head)
        if commas:
            notes.append("numbers have decimal commas")
        data.seek(0)
        decimal, line = "," if commas else ".", 0 if names is None else None
        return cls(header, delimiter, encoding, decimal, notes, line)

    @property
    def options(self) -> dict[str, Any]:
        """What pandas is told; columns are called by their places."""
        return {
            "sep": self.delimiter,
            "encoding": self.encoding,
            "decimal": self.decimal,
            "header": self.first,
            "names": list(range(len(self.header))),
            "skipinitialspace": True,
            "index_col": False,
            "low_memory": False,
        }

    def chunks(
        self,
        data: IO[bytes],
        names: Sequence[str],
        texts: Sequence[str] = (),
        rows: int | None = None,
        **more: Any,
    ) -> Generator[pd.DataFrame]:
        """Yield some columns, a number of rows at a time; of repeated ones the first.

        Columns that are `texts` stay as they are written.
        """
        import pandas as pd

        places = {self.header.index(name): name for name in names}
        types = {place: str for place, name in places.items() if name in texts}
        options = {**self.options, "chunksize": rows or CHUNK_ROWS, "dtype": types}
        with pd.read_csv(data, usecols=list(places), **options, **more) as frames:
            for frame in frames:
                yield frame.rename(columns=places).reset_index(drop=True)


def _encoding_of(data: IO[bytes], path: Path) -> str:
    """Return the encoding of all bytes; refuse what is known not to be a text table."""
    start = data.read(16)
    kind = next((k for first, k in NOT_TEXT.items() if start.startswith(first)), None)
    if kind is not None or JSON_START.match(start):
        raise DataError(
            f"[not-a-table] '{path.name}' is {kind or 'JSON (call the file .json)'}, "
            "not a text table: save it as CSV or Parquet. Of a model, `pffl audit` "
            "takes coefficients, or a table of predictions"
        )
    known = ["utf-16"] if start.startswith(UTF_16) else ["utf-8-sig", "cp1252"]
    for encoding in known:
        decoder, size = codecs.getincrementaldecoder(encoding)(), 0
        data.seek(0)
        with suppress(UnicodeDecodeError):
            while block := data.read(BLOCK_BYTES):
                size += len(block)
                check_growth(size, path.stat().st_size, path.name)
                if "\0" in decoder.decode(block):
                    raise DataError(
                        f"[not-text] '{path.name}' has a zero byte: not a text table"
                    )
            decoder.decode(b"", final=True)
            return encoding
    raise DataError(
        f"[not-text] '{path.name}' is no text in {' or '.join(known)}: save the file "
        "as UTF-8"
    )


def _are_even(data: IO[bytes], delimiter: str, width: int) -> bool:
    """Whether all lines have `width` fields; quotes and odd line ends: not known."""
    data.seek(0)
    mark, expected = delimiter.encode(), {width - 1}
    while block := data.read(BLOCK_BYTES) + data.readline():
        block = block.replace(b"\r\n", b"\n")
        if b'"' in block or b"\r" in block:
            return False
        lines = filter(None, block.split(b"\n"))
        if not expected.issuperset(map(bytes.count, lines, repeat(mark))):
            return False
    return True


def _bad_records(
    data: IO[bytes], encoding: str, delimiter: str, width: int
) -> list[str]:
    """Name every record of another length than the header, with its line."""
    bad: list[str] = []
    begin = 0
    with _decoded(data, encoding) as text:
        records = _records(text, delimiter)
        try:
            for record in records:
                if record and len(record) != width:
                    wrong = f"{len(record)} fields, expected {width}"
                    bad.append(f"[bad-record] line {begin + 1:,}: {wrong}")
                begin = records.line_num
        except csv.Error as error:
            open_ = f"{error} (a quote that is not closed?)"
            bad.append(f"[bad-record] line {begin + 1:,}: {open_}")
    return bad


def _records(text: IO[str], delimiter: str) -> Any:
    return csv.reader(text, delimiter=delimiter, skipinitialspace=True, strict=True)


@contextmanager
def _decoded(data: IO[bytes], encoding: str) -> Iterator[IO[str]]:
    data.seek(0)
    text = io.TextIOWrapper(data, encoding, newline="")
    try:
        yield text
    finally:
        text.detach()
        data.seek(0)


def _check_header(
    header: Sequence[str], first: Sequence[str], head: str, problems: Problems
) -> None:
    """Refuse a first line that holds values, and fields that blanks separate.

    Rising whole numbers may be names of columns: their places, or years.
    """
    lines = [line.split() for line in head.splitlines()[:PROBED_RECORDS]]
    fields = {len(line) for line in lines if line}
    if len(header) == 1 and len(lines) > 2 and len(fields) == 1 and fields != {1}:
        problems.add(
            "[blank-separated] fields are separated by blanks: write commas between "
            "them, and a first line with the names of the columns"
        )
    pairs = zip(header, first, strict=False)
    numbers = [float(n) for n, v in pairs if is_number(n) and is_number(v)]
    rising = all(a < b and b.is_integer() for a, b in pairwise([-1.0, *numbers]))
    years = numbers and numbers[0] >= 1900 and numbers[-1] <= 2100
    if numbers and not (rising and (years or numbers[-1] <= len(header))):
        problems.add(
            f"[no-header] the first line holds values ({listing(header[:4])}, …), not "
            "names: add a line with the names of the columns above it"
        )


def _has_decimal_commas(head: str) -> bool:
    """Whether fields of the first records are numbers with decimal commas."""
    records = csv.reader(io.StringIO(head, newline=""), delimiter=";")
    fields = [f for r in islice(records, PROBED_RECORDS) for f in r if "," in f]
    return any(is_number(field.strip().replace(",", ".", 1)) for field in fields)


def _refuse_total(frame: pd.DataFrame, name: str) -> None:
    """Refuse a table whose last line adds up the others."""
    for place, column in enumerate(map(str, frame.columns)):
        last: object = frame.iloc[-1, place]
        total = isinstance(last, str) and last.strip(" :").casefold() in TOTALS
        if total and int((frame.iloc[:, place] == last).sum()) == 1:
            raise DataError(
                f"[total-line] '{name}': the last line is a total ('{last}' in column "
                f"'{column}'), not a row: remove it"
            )


def _text_chunks(
    path: Path, columns: Sequence[Column], keep: Sequence[str]
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield inputs, and columns to keep as they are written."""
    import pandas as pd

    names = [column.name for column in columns]
    texts = [column.name for column in columns if column.kind != "number"]
    with _opened(path) as data, _opened(path) as again:
        text = TextFile.scan(data, path)
        require([*names, *keep], text.header, f"'{path.name}'")
        twice = [n for n in (*names, *keep) if text.header.count(n) > 1]
        if twice:
            raise DataError(
                f"[repeated-column] '{path.name}': column '{twice[0]}' occurs twice: "
                "rename one"
            )
        with (
            closing(text.chunks(data, names, texts)) as inputs,
            closing(text.chunks(again, keep, keep, na_filter=False)) as kept,
        ):
            beside = kept if keep else repeat(pd.DataFrame())
            yield from zip(inputs, beside, strict=False)


# Other files and frames


def _existing(table: str | os.PathLike[str]) -> Path:
    path = Path(table)
    if not path.is_file():
        raise DataError(f"[file-missing] '{path}' is not a file")
    return path


def _is_binary(path: Path) -> bool:
    return path.suffix.lower() in BINARY


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a text file, unpacked where it is packed."""
    with path.open("rb") as file:
        start = file.read(16)
        file.seek(0)
        packer = next((p for k, p in PACKERS.items() if start.startswith(k)), None)
        try:
            if packer is not None:
                with packer.open(file) as data:
                    yield data
            elif start.startswith(ZIP):
                with zipfile.ZipFile(file) as archive:
                    every = archive.namelist()
                    names = [n for n in every if n[-1] != "/" and "__MACOSX" not in n]
                    if len(names) != 1:
                        raise DataError(
                            f"[several-files] '{path.name}' is an archive of "
                            f"{len(names)} files: unpack the one that is meant (an "
                            "Excel file is called .xlsx)"
                        )
                    with archive.open(names[0]) as data:
                        yield data
            else:
                yield file
        except (DataError, UnicodeDecodeError):
            raise
        except DAMAGED as error:
            raise DataError(
                f"[damaged-file] '{path.name}' is a damaged packed file: {error}"
            ) from error


def check_growth(size: int, packed: int, name: str) -> None:
    """Refuse a packed file that no table is: it would fill the memory (fault 21)."""
    if size > (1 << 20) + MAX_GROWTH * packed:
        raise DataError(
            f"[too-large] '{name}' grows from {packed:,} to {size:,} bytes or more: "
            "no table is packed so tightly"
        )


def _read_binary(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read a table that is not text, by its suffix."""
    import pandas as pd

    suffix = path.suffix.lower()
    try:
        if suffix in PARQUET:
            return _open_parquet(path).read().to_pandas(), []
        if suffix in EXCEL:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    size = sum(entry.file_size for entry in archive.infolist())
                check_growth(size, path.stat().st_size, path.name)
            with pd.ExcelFile(path) as book:
                first, *others = map(str, book.sheet_names)
                more = f", the first of {1 + len(others)}" if others else ""
                return pd.read_excel(book, sheet_name=first), [f"sheet '{first}'{more}"]
        if suffix in JSON:
            text = path.read_text("utf-8-sig")
            lines = [text] if suffix == ".json" else filter(str.strip, text.split("\n"))
            records = [json.loads(line) for line in lines]
            records = records[0] if suffix == ".json" else records
            flat = isinstance(records, list) and all(
                isinstance(record, dict)
                and not any(isinstance(v, dict | list) for v in record.values())
                for record in records
            )
            if not (flat and records):
                raise ValueError("a table is a list of records without lists inside")
            return pd.DataFrame(records), []
        if suffix == ".dta":
            return pd.read_stata(path), []
        return pd.read_feather(path), []
    except (DataError, MissingExtraError):
        raise
    except ImportError as error:
        raise DataError(
            f"[missing-package] to read '{path.name}', pandas needs another package "
            f"({error}); or save the table as CSV"
        ) from error
    except DAMAGED as error:
        raise DataError(
            f"[cannot-read] '{path.name}' cannot be read: {error}"
        ) from error


def _open_parquet(path: Path) -> Any:
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


def _parquet_chunks(path: Path, wanted: Sequence[str]) -> Iterator[pd.DataFrame]:
    file = _open_parquet(path)
    there = {str(name).strip(): name for name in file.schema_arrow.names}
    require(wanted, list(there), f"'{path.name}'")
    for batch in file.iter_batches(CHUNK_ROWS, columns=[there[n] for n in wanted]):
        yield _with_names(batch.to_pandas())[0]


def _as_pandas(table: Any) -> pd.DataFrame:
    """Return a frame of any library as pandas'."""
    import narwhals
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    try:
        return narwhals.from_native(table, eager_only=True).to_pandas()
    except ImportError as error:
        raise MissingExtraError("parquet", "taking this frame") from error
    except TypeError as error:
        raise DataError(
            f"[not-a-table] {type(table).__name__} is not a table: give a file, or a "
            "DataFrame of pandas, polars or Arrow (a lazy one: collect it)"
        ) from error


def _with_names(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Column names as stripped text; repeated names only where the values agree."""
    first: dict[str, int] = {}
    notes: list[str] = []
    with Problems("table", DataError) as problems:
        for place, name in enumerate(str(name).strip() for name in frame.columns):
            if first.setdefault(name, place) == place:
                continue
            if frame.iloc[:, place].equals(frame.iloc[:, first[name]]):
                notes.append(f"column '{name}' is repeated with the same values")
            else:
                problems.add(
                    f"[repeated-column] column '{name}' occurs twice with different "
                    "values: rename one"
                )
    kept = frame.iloc[:, list(first.values())].set_axis(list(first), axis=1)
    return kept.reset_index(drop=True), notes
