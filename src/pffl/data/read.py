"""Read a table: files by pandas, frames of other libraries by narwhals.

The fields of every record of a text file (CSV) are counted before pandas reads it:
pandas would fill up a record that is too short, and its values would move. Records of
a wrong length are named together, with their lines. Separator and encoding are
recognised and noted. A file whose first line holds values, not names, is refused.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice, pairwise
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
JSON = {"dtype": False, "precise_float": True}
#: By suffix: the reader of pandas, and its options.
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    **dict.fromkeys(PARQUET, ("read_parquet", {})),
    **dict.fromkeys((".feather", ".arrow"), ("read_feather", {})),
    **dict.fromkeys((".xlsx", ".xls", ".xlsb", ".ods"), ("read_excel", {})),
    ".dta": ("read_stata", {}),
    ".json": ("read_json", JSON),
    **dict.fromkeys((".jsonl", ".ndjson"), ("read_json", {**JSON, "lines": True})),
}
PACKERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
NOT_TEXT = {b"%PDF": "PDF", b"\x80": "a pickle", b"<": "HTML", b"[{": "JSON"}
DAMAGED = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile),
)
MISSING_TEXTS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
    *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
PROBED_RECORDS, HEAD_CHARACTERS, BLOCK_BYTES = 50, 1 << 20, 1 << 20
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
    if not isinstance(table, str | os.PathLike):
        return _with_names(_as_pandas(table))
    path = _existing(table)
    if path.suffix.lower() in READERS:
        frame, notes = _read_binary(path)
    else:
        text = TextFile.scan(path)
        frame, notes = next(text.frames(texts=texts)), text.notes
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
        Names of columns to keep, as they are written unless they are inputs.
    """
    names = [column.name for column in columns]
    wanted, first = list(dict.fromkeys([*names, *keep])), 0
    path = _existing(table) if isinstance(table, str | os.PathLike) else None
    subject = "table" if path is None else f"'{path.name}'"
    suffix = "" if path is None else path.suffix.lower()
    if path is not None and suffix in PARQUET:
        frames = _parquet_chunks(path, wanted)
    elif path is None or suffix in READERS:
        frame, _ = read_table(table)
        require(wanted, list(map(str, frame.columns)), subject)
        frames = iter([frame])
    else:
        text = TextFile.scan(path)
        require(wanted, text.header, subject)
        if twice := [n for n in wanted if text.header.count(n) > 1]:
            told = f"column '{twice[0]}' occurs twice: rename one"
            raise DataError(f"[repeated-column] {subject}: {told}")
        written = [name for name in keep if name not in names]
        texts = [column.name for column in columns if column.kind != "number"]
        frames = text.frames(wanted, texts, written, CHUNK_ROWS)
    for frame in frames:

        def place(row: int, start: int = first) -> str:
            return place_of(table, start + row)

        yield Chunk(frame[names], frame[list(keep)], place, subject)
        first += len(frame)


def place_of(table: Table, row: int) -> str:
    """Say where a row of a table is, counted from 0: its line, in a text file.

    The file is read again: this is for messages.
    """
    path = Path(table) if isinstance(table, str | os.PathLike) else None
    if path is None or path.suffix.lower() in READERS:
        return f"row {row:,}"
    line, _ = next(islice(TextFile.scan(path).records(), row + 1, None))
    return f"line {line:,}"


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
    """A text table that was scanned: how it is written. All its records fit.

    `member` is that of a ZIP archive; empty where it has one file.
    """

    path: Path
    header: list[str]
    delimiter: str
    encoding: str
    decimal: str
    notes: list[str]
    member: str = ""

    @classmethod
    def scan(cls, path: Path, member: str = "") -> TextFile:
        """Look at every record once; raise all that is wrong, with lines."""
        name = f"'{path.name}'"
        encoding, head = _find_encoding(path, member)
        if not head.strip():
            raise DataError(f"[empty-file] {name} is empty")
        delimiter = find_delimiter(head[: head.rfind("\n") + 1] or head)
        commas = delimiter == ";" and _has_decimal_commas(head)
        notes = {"utf-16": ["read as UTF-16"], "cp1252": [LATIN]}.get(encoding, [])
        notes += [f"fields are separated by {delimiter!r}"] * (delimiter != ",")
        notes += ["numbers have decimal commas"] * commas
        decimal = "," if commas else "."
        text = cls(path, [], delimiter, encoding, decimal, notes, member)
        first, bad, header = list[str](), list[str](), list[str]()
        try:
            for line, record in text.records():
                if header and len(record) != len(header):
                    wrong = f"{len(record)} fields, expected {len(header)}"
                    bad.append(f"[bad-record] line {line:,}: {wrong}")
                first = first or (record if header else first)
                header = header or record
        except csv.Error as error:
            bad.append(f"[bad-record] {error} (a quote that is not closed?)")
        with Problems(name, DataError) as problems:
            problems.extend(bad[:MOST_SHOWN])
            if len(bad) > MOST_SHOWN:
                more = len(bad) - MOST_SHOWN
                problems.add(f"[bad-record] and {more:,} more such lines")
            if not bad:
                _check_header(header, first, head, problems)
            if not first and not problems.found:
                problems.add("[no-rows] no rows after the header")
        text.header.extend(field.strip() for field in header)
        return text

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line on which each record begins, and its fields."""
        with open_file(self.path, self.member) as data:
            text, begin = io.TextIOWrapper(data, self.encoding, newline=""), 1
            options: Any = {"skipinitialspace": True, "strict": True}
            records = csv.reader(text, delimiter=self.delimiter, **options)
            try:
                for record in records:
                    if record:
                        yield begin, record
                    begin = records.line_num + 1
            except csv.Error as error:
                raise csv.Error(f"line {begin:,}: {error}") from error

    def frames(
        self,
        names: Sequence[str] | None = None,
        texts: Sequence[str] = (),
        written: Sequence[str] = (),
        rows: int | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Yield some columns (None: all), some rows at a time (None: all at once).

        Of repeated columns the first. Columns in `texts` stay as they are written, but
        for missing values; those that are `written` have none.
        """
        import pandas as pd

        places = dict(enumerate(self.header))
        if names is not None:
            places = {self.header.index(name): name for name in names}
        plain = {k for k, name in places.items() if name in {*texts, *written}}
        options: dict[str, Any] = {
            "sep": self.delimiter,
            "encoding": self.encoding,
            "decimal": self.decimal,
            "header": 0,
            "names": list(range(len(self.header))),
            "usecols": list(places),
            "dtype": dict.fromkeys(plain, str),
            "skipinitialspace": True,
            "index_col": False,
            "low_memory": False,
            "chunksize": rows,
        }
        if written:  # pandas' own list, for all other columns
            others = [k for k, name in places.items() if name not in written]
            options |= {"na_values": dict.fromkeys(others, MISSING_TEXTS)}
            options |= {"keep_default_na": False}
        with open_file(self.path, self.member) as data:
            read: Any = pd.read_csv(data, **options)
            for frame in [read] if rows is None else read:
                frame = frame.set_axis([places[k] for k in frame.columns], axis=1)
                yield frame.reset_index(drop=True)


def _find_encoding(path: Path, member: str) -> tuple[str, str]:
    """Return the encoding of all bytes and the first characters; refuse other files."""
    with open_file(path, member) as data:
        start = data.read(16)
    kind = next((k for first, k in NOT_TEXT.items() if start.startswith(first)), None)
    if kind is not None:
        raise DataError(
            f"[not-a-table] '{path.name}' is {kind}, not a text table: save it as CSV "
            "or Parquet. Of a model, `pffl audit` takes coefficients, or predictions"
        )
    utf_16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    known = ["utf-16"] if utf_16 else ["utf-8-sig", "cp1252"]
    for encoding in known:
        decoder, size, head = codecs.getincrementaldecoder(encoding)(), 0, ""
        with suppress(UnicodeDecodeError), open_file(path, member) as data:
            while block := data.read(BLOCK_BYTES):
                text, size = decoder.decode(block), size + len(block)
                head = head or text[:HEAD_CHARACTERS]
                check_growth(size, path.stat().st_size, path.name)
                if "\0" in text:
                    raise DataError(
                        f"[not-text] '{path.name}' has a zero byte: not a text table "
                        "(a packed one ends with .gz, .bz2, .xz or .zip)"
                    )
            decoder.decode(b"", final=True)
            return encoding, head
    raise DataError(
        f"[not-text] '{path.name}' is no text in {' or '.join(known)}: save the file "
        "as UTF-8"
    )


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
    for column, last in frame.iloc[-1].items():
        if isinstance(last, str) and last.strip(" :").casefold() in TOTALS:
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
def open_file(path: Path, member: str = "") -> Iterator[IO[bytes]]:
    """Open a file, unpacked where its suffix says that it is packed.

    Of a ZIP archive the `member`, or its only file. Nothing is written to the disk.
    """
    suffix = path.suffix.lower()
    try:
        if member or suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                info = archive.getinfo(member or _only_member(archive, path.name))
                check_growth(info.file_size, info.compress_size, info.filename)
                with archive.open(info) as data:
                    yield data
        else:
            with PACKERS.get(suffix, open)(path, "rb") as data:
                yield data
    except (DataError, UnicodeDecodeError):
        raise
    except DAMAGED as error:
        raise DataError(f"[damaged-file] '{path.name}' is damaged: {error}") from error


def _only_member(archive: zipfile.ZipFile, name: str) -> str:
    every = [n for n in archive.namelist() if n[-1] != "/" and "__MACOSX" not in n]
    if len(every) != 1:
        told = f"is an archive of {len(every)} files: unpack the one that is meant"
        raise DataError(f"[several-files] '{name}' {told}")
    return every[0]


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

    reader, options = READERS[path.suffix.lower()]
    with _readable(path):
        if reader != "read_excel":
            return getattr(pd, reader)(path, **options), []
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            check_growth(size, path.stat().st_size, path.name)
        with pd.ExcelFile(path) as book:
            first, *others = map(str, book.sheet_names)
            more = f", the first of {1 + len(others)}" if others else ""
            frame = pd.read_excel(book, sheet_name=first)
            return frame, [f"sheet '{first}'{more}"]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say what a file that cannot be read is, or which package is missing."""
    try:
        yield
    except DataError:
        raise
    except ImportError as error:
        if path.suffix.lower() in PARQUET:
            raise MissingExtraError("parquet", "reading Parquet files") from error
        raise DataError(
            f"[missing-package] to read '{path.name}', pandas needs another package "
            f"({error}); or save the table as CSV"
        ) from error
    except DAMAGED as error:
        told = f"'{path.name}' cannot be read: {error}"
        raise DataError(f"[cannot-read] {told}") from error


def _parquet_chunks(path: Path, wanted: Sequence[str]) -> Iterator[pd.DataFrame]:
    with _readable(path):
        from pyarrow.parquet import ParquetFile

        file = ParquetFile(path)
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
