"""Read a table: files by pandas, frames of other libraries by narwhals.

The fields of every record of a text file (CSV) are counted before pandas reads it:
pandas would fill up a record that is too short, and its values would move. Records of
a wrong length are named together, with their lines. Separator and encoding are
recognised and noted. A file whose first line holds values, not names, is refused.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
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
    **dict.fromkeys(
        (".xlsx", ".xls", ".xlsb", ".ods"), ("read_excel", {"sheet_name": None})
    ),
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
#: pandas' own list.
MISSING_TEXTS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
    *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
PROBED_RECORDS, HEAD_BYTES = 50, 1 << 20
CHUNK_ROWS = 50_000
MOST_SHOWN = 5  # bad records
LINE = "line of the file"  # the name of an index
LATIN = "read as Latin-1 (Windows-1252)"
TOTALS = frozenset({"total", "totals", "grand total", "sum", "summe"})


def is_table(value: object) -> TypeGuard[pd.DataFrame | str | os.PathLike[str]]:
    """Whether it is what `read_table` takes: a frame of any library, or a path."""
    return hasattr(value, "columns") or isinstance(value, str | os.PathLike)


def read_table(
    table: Table, texts: Sequence[str] = (), *, numbered: bool = False
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table as a pandas DataFrame, and notes on how it was read.

    Parameters
    ----------
    table
        A frame, or a file.
    texts
        Columns of a text file that stay as they are written.
    numbered
        Whether the index holds the lines of a text file, for messages.
    """
    if not isinstance(table, str | os.PathLike):
        frame, notes = _as_pandas(table), list[str]()
    elif Path(table).suffix.lower() in READERS:
        frame, notes = _read_binary(Path(table))
    else:
        text = TextFile.scan(Path(table))
        kinds = dict.fromkeys(text.places(texts), str)
        frame, notes = next(text.frames(dtype=kinds)), text.notes
        for column, last in frame.iloc[-1].items():
            if isinstance(last, str) and last.strip(" :").casefold() in TOTALS:
                where = f"('{last}' in column '{column}')"
                raise DataError("total-line", name=text.path.name, where=where)
    names = [str(name).strip() for name in frame.columns]
    first = {name: names.index(name) for name in names if name}
    notes = notes + ["columns without a name were left out"] * ("" in names)
    for place, name in enumerate(names):
        if first.get(name, place) != place:
            notes.append(f"column '{name}' is repeated with the same values")
            if not frame.iloc[:, place].equals(frame.iloc[:, first[name]]):
                told = f"column '{name}' occurs twice with different values: rename one"
                raise DataError(f"[repeated-column] {told}")
    kept = frame.iloc[:, list(first.values())].set_axis(list(first), axis=1)
    keeps = numbered and frame.index.name == LINE
    return kept if keeps else kept.reset_index(drop=True), notes


def read_chunks(
    table: Table, columns: Sequence[Column], keep: Sequence[str] = ()
) -> Iterator[pd.DataFrame]:
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
    wanted = list(dict.fromkeys([*names, *keep]))
    path = Path(table) if isinstance(table, str | os.PathLike) else None
    subject = "table" if path is None else f"'{path.name}'"
    if path is not None and path.suffix.lower() in PARQUET:
        frames = _parquet_chunks(path)
    elif path is None or path.suffix.lower() in READERS:
        frames = iter([read_table(table)[0]])
    else:
        text = TextFile.scan(path)
        texts = [column.name for column in columns if column.kind != "number"]
        require(wanted, text.header, subject)
        written = set(keep).difference(names)  # without missing values
        frames = text.frames(
            CHUNK_ROWS,
            usecols=text.places(wanted),
            dtype=dict.fromkeys(text.places([*texts, *written]), str),
            na_values=dict.fromkeys(text.places(names), MISSING_TEXTS),
            keep_default_na=False,
        )
    for frame in frames:
        there = list(map(str, frame.columns))
        require(wanted, there, subject)
        if twice := [name for name in wanted if there.count(name) > 1]:
            raise DataError("repeated-column:read-chunks", twice=twice[0])
        yield frame


def require(names: Sequence[str], there: Sequence[str], subject: str) -> None:
    """Refuse a table without some columns; say which ones may be meant."""
    with Problems(subject, DataError) as problems:
        absent = [name for name in dict.fromkeys(names) if name not in there]
        close = {name: get_close_matches(name, there, n=1) for name in absent}
        for name, known in close.items():
            if known:
                hint = f"did you mean '{known[0]}'?"
                problems.add("missing-column:require", name=name, hint=hint)
        if strange := [repr(name) for name, known in close.items() if not known]:
            hint = f"there are {listing(map(repr, there))}"
            problems.add("missing-column:several", names=listing(strange), hint=hint)


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
    scores = {",": (0, 1)}
    for delimiter in ",;\t|":
        lengths = [len(record) for record in _first(text, delimiter)]
        if lengths and lengths[0] > 1:
            even = lengths.count(lengths[0])
            scores[delimiter] = 2 * even // len(lengths), lengths[0]
    return max(scores, key=lambda delimiter: scores[delimiter])


def _first(text: str, delimiter: str) -> list[list[str]]:
    """Return the first records of a text, as far as they can be read."""
    records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    found: list[list[str]] = []
    with suppress(csv.Error):
        found.extend(islice(filter(None, records), PROBED_RECORDS))
    return found


@dataclass
class TextFile:
    """A text table that was scanned: how it is written. All its records fit.

    `lines` says where each record after the header begins.
    """

    path: Path
    delimiter: str
    encoding: str
    decimal: str
    header: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: Sequence[int] = ()

    @classmethod
    def scan(cls, path: Path) -> TextFile:
        """Look at every record once; raise all that is wrong, with lines."""
        with open_file(path) as data:
            start = data.read(HEAD_BYTES)
        kind = next((k for first, k in NOT_TEXT.items() if start.startswith(first)), "")
        utf_16 = start[:2] in (b"\xff\xfe", b"\xfe\xff")
        if not start.strip():
            raise DataError("empty-file", name=path.name)
        if kind:
            raise DataError("not-a-table:scan", name=path.name, kind=kind)
        if b"\0" in start and not utf_16:
            told = "a zero byte: not a text table (a packed one ends with .gz or .zip)"
            raise DataError(f"[not-text] '{path.name}': {told}")
        known = ["utf-16"] if utf_16 else ["utf-8-sig", "cp1252"]
        for encoding in known:
            head = start.decode(encoding, "replace")
            delimiter = find_delimiter(head[: head.rfind("\n") + 1] or head)
            fields = [f for record in _first(head, delimiter) for f in record]
            commas = [f.replace(",", ".", 1) for f in fields if "," in f]
            decimal = "," if delimiter == ";" and any(map(is_number, commas)) else "."
            text = cls(path, delimiter, encoding, decimal)
            notes = {
                f"read as {encoding.upper()}": encoding == "utf-16",
                LATIN: encoding == "cp1252",
                f"fields are separated by {delimiter!r}": delimiter != ",",
                "numbers have decimal commas": decimal == ",",
            }
            text.notes += [note for note, holds in notes.items() if holds]
            with suppress(UnicodeDecodeError):
                text._check_records(head)
                return text
        told = f"no text in {' or '.join(known)}: save it as UTF-8"
        raise DataError("not-text:scan-2", name=path.name, told=told)

    @contextmanager
    def records(self) -> Iterator[Any]:
        """Open a reader of the records."""
        with open_file(self.path) as data:
            yield csv.reader(
                io.TextIOWrapper(data, self.encoding, newline=""),
                delimiter=self.delimiter,
                skipinitialspace=True,
                strict=True,
            )

    def _check_records(self, head: str) -> None:
        """Find header and lines; raise all records of a wrong length, with lines."""
        begin, bad, first, lines = 1, list[str](), list[list[str]](), list[int]()
        plain, count = False, 0  # whether every line is a record, as long as the first
        with self.records() as records, suppress(csv.Error):
            lengths = Counter(map(len, records))
            count = records.line_num
            plain = list(lengths.values()) == [count]
        with self.records() as records, Problems(f"'{self.path.name}'", DataError) as p:
            try:
                for record in islice(records, 2 if plain else None):
                    if record:
                        if len(first) < 2:
                            first.append(record)
                        if len(record) != len(first[0]):
                            told = f"{len(record)} fields, expected {len(first[0])}"
                            bad.append(f"line {begin:,}: {told}")
                        lines.append(begin)
                    begin = records.line_num + 1
            except csv.Error as error:
                bad.append(f"line {begin:,}: {error} (a quote that is not closed?)")
            if len(bad) > MOST_SHOWN:
                bad[MOST_SHOWN:] = [f"and {len(bad) - MOST_SHOWN:,} more such lines"]
            for told in bad:
                p.add(f"[bad-record] {told}")
            header, values = [*first, [], []][:2]
            _check_header(header, values, head, p)
            if not values and not p.found:
                p.add("[no-rows] no rows after the header")
        self.header = [name.strip() for name in header]
        self.lines = range(2, count + 1) if plain else lines[1:]

    def frames(self, rows: int | None = None, **options: Any) -> Iterator[pd.DataFrame]:
        """Yield the table by pandas, some rows at a time (None: all at once).

        Columns are called by their places: names may be repeated.
        """
        import pandas as pd

        with open_file(self.path) as data:
            read: Any = pd.read_csv(
                data,
                sep=self.delimiter,
                encoding=self.encoding,
                decimal=self.decimal,
                header=0,
                names=list(range(len(self.header))),
                skipinitialspace=True,
                index_col=False,
                low_memory=False,
                chunksize=rows,
                **options,
            )
            first = 0
            for frame in [read] if rows is None else read:
                lines = self.lines[first : (first := first + len(frame))]
                names = [self.header[place] for place in frame.columns]
                frame = frame.set_axis(names, axis=1)
                yield frame.set_axis(pd.Index(lines, name=LINE), axis=0)

    def places(self, names: Iterable[str]) -> list[int]:
        """Return where columns of some names are."""
        wanted = set(names)
        return [place for place, name in enumerate(self.header) if name in wanted]


def _check_header(
    header: Sequence[str], first: Sequence[str], head: str, problems: Problems
) -> None:
    """Refuse a first line that holds values, and fields that blanks separate.

    Rising whole numbers may be names of columns: their places, or years.
    """
    lines = [line.split() for line in head.splitlines()[:PROBED_RECORDS]]
    fields = {len(line) for line in lines if line}
    if len(header) == 1 and len(lines) > 2 and len(fields) == 1 and fields != {1}:
        problems.add("blank-separated")
    pairs = zip(header, first, strict=False)
    numbers = [float(n) for n, v in pairs if is_number(n) and is_number(v)]
    rising = all(a < b and b.is_integer() for a, b in pairwise([-1.0, *numbers]))
    years = numbers and numbers[0] >= 1900 and numbers[-1] <= 2100
    if numbers and not (rising and (years or numbers[-1] <= len(header))):
        problems.add("no-header", header=listing(header[:4]))


# Other files and frames


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, unpacked where its suffix says that it is packed.

    Of a ZIP archive its only file. Nothing is written to the disk.
    """
    with _readable(path), ExitStack() as stack:
        if path.suffix.lower() != ".zip":
            open_packed = PACKERS.get(path.suffix.lower(), open)
            yield stack.enter_context(open_packed(path, "rb"))
            return
        archive = stack.enter_context(zipfile.ZipFile(path))
        names = [n for n in archive.namelist() if n[-1] != "/" and "__MACOSX" not in n]
        if len(names) != 1:
            told = f"an archive of {len(names)} files: unpack the one that is meant"
            raise DataError("several-files", name=path.name, told=told)
        yield stack.enter_context(archive.open(names[0]))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say which file cannot be read, or which package is missing."""
    if not path.is_file():
        raise DataError("file-missing:readable", path=path)
    try:
        yield
    except (DataError, UnicodeDecodeError):
        raise
    except ImportError as error:
        if path.suffix.lower() in PARQUET:
            raise MissingExtraError("parquet", "reading Parquet files") from error
        raise DataError("missing-package", name=path.name, error=error) from error
    except DAMAGED as error:
        told = f"'{path.name}' cannot be read, or is damaged: {error}"
        raise DataError(f"[cannot-read] {told}") from error


def _read_binary(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Read a table that is not text, by its suffix; of a workbook the first sheet."""
    import pandas as pd

    reader, options = READERS[path.suffix.lower()]
    with _readable(path):
        found = getattr(pd, reader)(path, **options)
        if not isinstance(found, dict):
            return found, []
        (name, frame), *others = found.items()
        more = f", the first of {1 + len(others)}" if others else ""
        return frame, [f"sheet '{name}'{more}"]


def _parquet_chunks(path: Path) -> Iterator[pd.DataFrame]:
    with _readable(path):
        from pyarrow.parquet import ParquetFile

        first = 0
        for batch in ParquetFile(path).iter_batches(CHUNK_ROWS):
            frame, _ = read_table(batch.to_pandas())
            yield frame.set_index(frame.index + first)
            first += len(frame)


def _as_pandas(table: Any) -> pd.DataFrame:
    """Return a frame of any library as pandas'."""
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    import narwhals

    try:
        return narwhals.from_native(table, eager_only=True).to_pandas()
    except ImportError as error:
        raise MissingExtraError("parquet", "taking this frame") from error
    except TypeError as error:
        raise DataError("not-a-table:as-pandas", name=type(table).__name__) from error
