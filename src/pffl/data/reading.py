"""Read a table: CSV and other files by pandas, frames of other libraries by narwhals.

Text (CSV) is scanned once by the `csv` module before pandas reads it. pandas would fill
up a record that is too short, and its values would move. All records of a wrong length
are named together, with their lines. Separator, encoding and packing are recognised and
noted. A file whose first line is data, not names, is refused.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice, pairwise, repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeGuard

from pffl.data.checks import listing
from pffl.errors import DataError, MissingExtraError, Problems

if TYPE_CHECKING:
    import pandas as pd

    from pffl.data.encoding import Column

#: A DataFrame (pandas, polars, Arrow, …), or a file.
Table: TypeAlias = "pd.DataFrame | str | os.PathLike[str]"

PARQUET = (".parquet", ".pq")
EXCEL = (".xlsx", ".xls", ".xlsb", ".ods")
JSON = (".json", ".jsonl", ".ndjson")
OTHERS = (*PARQUET, *EXCEL, *JSON, ".feather", ".arrow", ".dta")
PACKERS: dict[bytes, Any] = {b"\x1f\x8b": gzip, b"\xfd7zXZ\0": lzma}
PACKERS |= {f"BZh{level}1AY&SY".encode(): bz2 for level in range(1, 10)}
ZIP = b"PK\x03\x04"
NOT_TEXT = {b"%PDF": "PDF", b"\x80": "a pickle", b"\x08": "ONNX", b"<": "HTML or XML"}
NOT_TEXT |= {b"x\x9c": "joblib", b"x\xda": "joblib"}
JSON_START = re.compile(rb"\s*[\[{]\s*[\"{]")
BROKEN = (OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError)
DAMAGED = (*BROKEN, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
DELIMITERS = ",;\t|"
PROBE, HEAD, BLOCK = 50, 1 << 20, 1 << 20  # records, characters, bytes
ROWS = 250_000  # of a chunk
SHOWN = 5  # bad records
MOST_GROWTH, LEAST_LIMIT, LARGEST = 200, 1 << 20, 8 << 30  # bytes out of a packed one
LATIN = "read as Latin-1 (Windows-1252)"
TOTALS = frozenset({"total", "totals", "grand total", "sum", "summe"})


def is_table(value: object) -> TypeGuard[pd.DataFrame | str | os.PathLike[str]]:
    """Whether it is what `read_table` takes: a frame of any library, or a path."""
    return hasattr(value, "columns") or isinstance(value, str | os.PathLike)


def read_table(table: Table) -> tuple[pd.DataFrame, list[str]]:
    """Return the table as a pandas DataFrame, and notes on how it was read."""
    import pandas as pd

    if not isinstance(table, str | os.PathLike):
        return _named_columns(_as_pandas(table))
    path = _existing(table)
    if path.suffix.lower() in OTHERS:
        frame, notes = _read_other(path)
    else:
        with _opened(path) as data:
            text = _Text.scan(data, path.name)
            frame = pd.read_csv(data, **text.options)
        frame, notes = frame.set_axis(text.header, axis=1), text.notes
        if "" in text.header:
            notes.append("columns without a name were left out")
            frame = frame.drop(columns="")
        _refuse_total(frame, path.name)
    frame, repeated = _named_columns(frame)
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
    if path is not None and path.suffix.lower() not in OTHERS:
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
    if not isinstance(table, str | os.PathLike):
        return f"row {row:,}"
    path = Path(table)
    if path.suffix.lower() in OTHERS:
        return f"row {row:,}"
    with _opened(path) as data:
        return f"line {_Text.scan(data, path.name).line(data, row):,}"


def require(names: Sequence[str], there: Sequence[str], subject: str) -> None:
    """Refuse a table without some columns; say which ones may be meant."""
    absent = [name for name in dict.fromkeys(names) if name not in there]
    close = {name: get_close_matches(name, there, n=1) for name in absent}
    with Problems(subject, DataError) as problems:
        problems.extend(
            f"[missing-column] no column '{name}': did you mean '{found[0]}'?"
            for name, found in close.items()
            if found
        )
        unknown = [f"'{name}'" for name, found in close.items() if not found]
        if unknown:
            problems.add(
                f"[missing-column] no column {listing(unknown)}: there are "
                f"{listing(map(repr, there))}"
            )


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


# Text


def find_delimiter(text: str) -> str:
    r"""Return the separator that cuts the first records into most fields, evenly.

    >>> find_delimiter("a;b;c\n1,5;2;3\n")
    ';'
    """
    best, most = ",", (0, 1)
    for delimiter in DELIMITERS:
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        lengths: list[int] = []
        with suppress(csv.Error):
            lengths.extend(islice((len(r) for r in records if r), PROBE))
        if lengths and lengths[0] > 1:
            even = sum(length == lengths[0] for length in lengths)
            score = (2 * even // len(lengths), lengths[0])
            if score > most:
                best, most = delimiter, score
    return best


@dataclass(frozen=True)
class _Text:
    """A text table that was scanned: how it is written. All its records fit."""

    header: list[str]
    delimiter: str
    encoding: str
    decimal: str
    notes: list[str]

    @classmethod
    def scan(cls, data: IO[bytes], name: str) -> _Text:
        """Look at every record once; raise all that is wrong, with lines."""
        start = _check_bytes(data, name)
        candidates = ["utf-8-sig", "cp1252"]
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            candidates = ["utf-16"]
        for encoding in candidates:
            try:
                return cls._scan_as(encoding, data, name)
            except UnicodeDecodeError:
                continue
        raise DataError(
            f"[not-text] '{name}' is no text in {' or '.join(candidates)}: save the "
            "file as UTF-8"
        )

    @classmethod
    def _scan_as(cls, encoding: str, data: IO[bytes], name: str) -> _Text:
        notes = {"utf-16": ["read as UTF-16"], "cp1252": [LATIN]}.get(encoding, [])
        with _decoded(data, encoding) as text:
            head = text.read(HEAD)
        if not head.strip():
            raise DataError(f"[empty-file] '{name}' is empty")
        delimiter = find_delimiter(head[: head.rfind("\n", 0, HEAD) + 1] or head)
        if delimiter != ",":
            notes.append(f"fields are separated by {delimiter!r}")
        header: list[str] = []
        first: list[str] = []
        even = False
        with _decoded(data, encoding) as text, suppress(csv.Error):
            records = filter(None, _records(text, delimiter))
            header = [field.strip() for field in next(records, [])]
            first = next(records, [])
            lengths = {len(first or header), *map(len, records)}
            even = lengths == {len(header)}
        bad = [] if even else cls._bad_records(data, encoding, delimiter)
        with Problems(f"'{name}'", DataError) as problems:
            problems.extend(bad[:SHOWN])
            if len(bad) > SHOWN:
                problems.add(f"[bad-record] and {len(bad) - SHOWN:,} more such lines")
            if not bad:
                _check_header(header, first, head, problems)
            if not first and not problems.found:
                problems.add("[no-rows] no rows after the header")
        commas = delimiter == ";" and _has_decimal_commas(head)
        if commas:
            notes.append("numbers have decimal commas")
        return cls(header, delimiter, encoding, "," if commas else ".", notes)

    @staticmethod
    def _bad_records(data: IO[bytes], encoding: str, delimiter: str) -> list[str]:
        """Name every record of another length than the header, with its line."""
        bad: list[str] = []
        begin = width = 0
        with _decoded(data, encoding) as text:
            records = _records(text, delimiter)
            try:
                for record in records:
                    width = width or len(record)
                    if record and len(record) != width:
                        wrong = f"{len(record)} fields, expected {width}"
                        bad.append(f"[bad-record] line {begin + 1:,}: {wrong}")
                    begin = records.line_num
            except csv.Error as error:
                open_ = f"{error} (a quote that is not closed?)"
                bad.append(f"[bad-record] line {begin + 1:,}: {open_}")
        return bad

    @property
    def options(self) -> dict[str, Any]:
        """What pandas is told; columns are called by their places."""
        return {
            "sep": self.delimiter,
            "encoding": self.encoding,
            "decimal": self.decimal,
            "header": 0,
            "names": list(range(len(self.header))),
            "skipinitialspace": True,
            "index_col": False,
            "low_memory": False,
        }

    def line(self, data: IO[bytes], row: int) -> int:
        """Return the line at which a row begins, counted from 1."""
        with _decoded(data, self.encoding) as text:
            records, seen, begin = _records(text, self.delimiter), -1, 0
            for record in records:
                if record:
                    if seen == row:
                        break
                    seen += 1
                begin = records.line_num
        return begin + 1


def _text_chunks(
    path: Path, columns: Sequence[Column], keep: Sequence[str]
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield inputs, and columns to keep as they are written."""
    import pandas as pd

    names = [column.name for column in columns]
    texts = {c.name for c in columns if c.kind != "number" or c.decimal is not None}
    with _opened(path) as data, _opened(path) as again:
        text = _Text.scan(data, path.name)
        require([*names, *keep], text.header, f"'{path.name}'")
        twice = [n for n in (*names, *keep) if text.header.count(n) > 1]
        if twice:
            raise DataError(
                f"[repeated-column] '{path.name}': column '{twice[0]}' occurs twice: "
                "rename one"
            )
        every: dict[str, Any] = {**text.options, "chunksize": ROWS}

        def read(source: IO[bytes], wanted: Sequence[str], **more: Any) -> Any:
            places = {text.header.index(name): name for name in wanted}
            types = {place: str for place, name in places.items() if name in texts}
            frames = pd.read_csv(
                source, usecols=list(places), **{"dtype": types, **more, **every}
            )
            for frame in frames:
                yield frame.rename(columns=places).reset_index(drop=True)

        beside = repeat(pd.DataFrame())
        if keep:
            beside = read(again, keep, dtype=str, na_filter=False)
        yield from zip(read(data, names), beside, strict=False)


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


def _check_bytes(data: IO[bytes], name: str) -> bytes:
    """Return the first bytes; refuse what is known not to be a text table."""
    start = data.read(16)
    kind = next((k for first, k in NOT_TEXT.items() if start.startswith(first)), None)
    if kind is not None or JSON_START.match(start):
        found = kind or "JSON (call the file .json)"
        raise DataError(
            f"[not-a-table] '{name}' is no text table but {found}: save it as CSV or "
            "Parquet in the program that made it. Of a model, `pffl audit` takes the "
            "coefficients, or a table of its predictions"
        )
    data.seek(0)
    line = 1
    wide = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    while (block := data.read(BLOCK)) and not wide:
        if b"\0" in block:
            line += block.count(b"\n", 0, block.find(b"\0"))
            raise DataError(
                f"[not-text] '{name}', line {line:,}: a zero byte: not a text table"
            )
        line += block.count(b"\n")
    data.seek(0)
    return start


def _check_header(
    header: Sequence[str], first: Sequence[str], head: str, problems: Problems
) -> None:
    """Refuse a first line that holds values, and fields that blanks separate.

    Rising whole numbers may be names of columns: their places, or years.
    """
    lines = [line.split() for line in head.splitlines()[:PROBE] if line.strip()]
    fields = {len(line) for line in lines}
    if len(header) == 1 and len(lines) > 2 and len(fields) == 1 and fields != {1}:
        problems.add(
            "[blank-separated] fields are separated by blanks: write commas between "
            "them, and a first line with the names of the columns"
        )
    pairs = zip(header, first, strict=False)
    numbers = [float(n) for n, v in pairs if is_number(n) and is_number(v)]
    rising = all(a < b for a, b in pairwise(numbers))
    if numbers and not (
        rising
        and all(number.is_integer() for number in numbers)
        and ((numbers[0] >= 1900 and numbers[-1] <= 2100) or numbers[-1] <= len(header))
    ):
        problems.add(
            f"[no-header] the first line holds values ({listing(header[:4])}, …), not "
            "names: add a line with the names of the columns above it"
        )


def is_number(text: str) -> bool:
    """Whether a text is a plain number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _has_decimal_commas(head: str) -> bool:
    """Whether fields of the first records are numbers with decimal commas."""
    records = csv.reader(io.StringIO(head, newline=""), delimiter=";")
    fields = [f for record in islice(records, PROBE) for f in record if "," in f]
    return any(is_number(field.strip().replace(",", ".", 1)) for field in fields)


def _refuse_total(frame: pd.DataFrame, name: str) -> None:
    """Refuse a table whose last line adds up the others."""
    for place, column in enumerate(frame.columns):
        values = frame.iloc[:, place]
        last = values.iloc[-1]
        total = isinstance(last, str) and last.strip(" :").casefold() in TOTALS
        if total and int((values == last).sum()) == 1:
            raise DataError(
                f"[total-line] '{name}': the last line is a total ('{last}' in column "
                f"'{column}'), not a row: remove it"
            )


# Other files and frames


def _existing(table: str | os.PathLike[str]) -> Path:
    path = Path(table)
    if not path.is_file():
        raise DataError(f"[file-missing] '{path}' is not a file")
    return path


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a text file, unpacked where it is packed."""
    with path.open("rb") as file:
        start = file.read(16)
        file.seek(0)
        packer = next((p for k, p in PACKERS.items() if start.startswith(k)), None)
        if packer is None and not start.startswith(ZIP):
            yield file
            return
        try:
            if packer is not None:
                with packer.open(file) as data:
                    yield _within_limit(data, path)
                return
            with zipfile.ZipFile(file) as archive:
                every = archive.namelist()
                names = [n for n in every if n[-1] != "/" and "__MACOSX" not in n]
                if len(names) != 1:
                    raise DataError(
                        f"[several-files] '{path.name}' is a ZIP archive of "
                        f"{len(names)} files: unpack the one that is meant (an Excel "
                        "file is called .xlsx)"
                    )
                with archive.open(names[0]) as data:
                    yield _within_limit(data, path)
        except (DataError, UnicodeDecodeError):
            raise
        except DAMAGED as error:
            raise DataError(
                f"[damaged-file] '{path.name}' is a damaged packed file: {error}"
            ) from error


def _within_limit(data: IO[bytes], path: Path) -> IO[bytes]:
    size = 0
    while block := data.read(BLOCK):
        size += len(block)
        _check_growth(size, path)
    data.seek(0)
    return data


def _check_growth(size: int, path: Path) -> None:
    """Refuse a packed file that no table is: it would fill the memory."""
    limit = min(LARGEST, LEAST_LIMIT + MOST_GROWTH * path.stat().st_size)
    if size > limit:
        raise DataError(
            f"[too-large] '{path.name}' grows beyond {limit:,} bytes: no table is "
            "packed so tightly"
        )


def _read_other(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read a table that is not text, by its suffix."""
    import pandas as pd

    suffix = path.suffix.lower()
    try:
        if suffix in PARQUET:
            return open_parquet(path).read().to_pandas(), []
        if suffix in EXCEL:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    sizes = [entry.file_size for entry in archive.infolist()]
                _check_growth(sum(sizes), path)
            with pd.ExcelFile(path) as book:
                first, *others = map(str, book.sheet_names)
                more = f", the first of {1 + len(others)}" if others else ""
                return pd.read_excel(book, sheet_name=first), [f"sheet '{first}'{more}"]
        if suffix in JSON:
            return _json_frame(path.read_text("utf-8-sig")), []
        if suffix != ".dta":
            return pd.read_feather(path), []
        try:
            return pd.read_stata(path), []
        except ValueError as error:
            if "not unique" not in str(error):
                raise
        plain = pd.read_stata(path, convert_categoricals=False)
        return plain, ["value labels are not unique: numbers are kept"]
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


def _json_frame(text: str) -> pd.DataFrame:
    """Return records: one list of them, or one a line."""
    import pandas as pd

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
    return pd.DataFrame(records)


def _parquet_chunks(path: Path, wanted: Sequence[str]) -> Iterator[pd.DataFrame]:
    file = open_parquet(path)
    there = {str(name).strip(): name for name in file.schema_arrow.names}
    require(wanted, list(there), f"'{path.name}'")
    for batch in file.iter_batches(ROWS, columns=[there[name] for name in wanted]):
        yield _named_columns(batch.to_pandas())[0]


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


def _named_columns(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Column names as stripped text; repeated names only where the values agree."""
    names = [str(name).strip() for name in frame.columns]
    first: dict[str, int] = {}
    notes: list[str] = []
    with Problems("table", DataError) as problems:
        for place, name in enumerate(names):
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
