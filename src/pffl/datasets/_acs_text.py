"""Read a few columns of a large delimited file, a chunk of rows at a time.

Every line is counted on the way: pandas fills a short line up with missing values, and
here missing means 0, so a line cut off by a broken copy would become a person.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from pffl.data.reading import find_delimiter
from pffl.errors import DataError
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Buffer

CHUNK_ROWS = 50_000
BUFFER = 1 << 20
LONGEST_HEADER = 1 << 16
NEWLINE = 10


class NotNumbersError(Exception):
    """A value that was wanted as a number is not one."""


class TextTable:
    """A delimited file, opened: its columns, and its rows in chunks.

    Parameters
    ----------
    stream
        The file's bytes.
    name
        What to call it in messages.
    """

    def __init__(self, stream: IO[bytes], name: str) -> None:
        first = stream.readline(LONGEST_HEADER)
        if b"\0" in first:
            raise DataError(f"{name}, line 1: a zero byte: save the file as UTF-8 text")
        if not first.strip():
            raise DataError(f"{name} is empty")
        text = first.decode("utf-8-sig", errors="replace")
        self.name = name
        self._stream = stream
        self.delimiter = find_delimiter(text)
        self.columns = [
            field.strip().strip('"').upper() for field in text.split(self.delimiter)
        ]
        fields = len(self.columns)
        self._lines = EvenLines(stream, name, self.delimiter, fields, len(first))

    def chunks(self, places: Mapping[str, int]) -> Iterator[dict[str, FloatArray]]:
        """Yield some columns, given by place, as numbers; missing ones are NaN."""
        rows = 0
        try:
            for frame in self._frames(places, np.float64):
                yield {
                    column: frame[place].to_numpy(dtype=np.float64)
                    for column, place in places.items()
                }
                rows += len(frame)
        except DataError:
            raise
        except ValueError as error:
            raise NotNumbersError(str(error)) from error
        if rows == 0:
            raise DataError(f"{self.name}: no rows after the header")

    def first(self, place: int) -> str:
        """Value of the first row in one column, as text; the table is used up."""
        line = self._stream.readline(LONGEST_HEADER).decode("utf-8", errors="replace")
        fields = line.split(self.delimiter)
        return fields[place].strip().strip('"') if place < len(fields) else ""

    def first_text(self, places: Mapping[str, int]) -> str:
        """Say where the first value stands that is not a number."""
        import pandas as pd

        line = 2
        for frame in self._frames(places, str):
            for column, place in places.items():
                numbers = pd.to_numeric(frame[place], errors="coerce")
                bad = np.flatnonzero(numbers.isna() & frame[place].notna())
                if len(bad):
                    value = frame[place].iloc[bad[0]]
                    where = f"{self.name}, line {line + int(bad[0])}, column '{column}'"
                    return f"{where}: '{value}' is not a number"
            line += len(frame)
        return f"{self.name}: not all values are numbers"

    def _frames(self, places: Mapping[str, int], dtype: type) -> Iterator[pd.DataFrame]:
        import pandas as pd

        try:
            with pd.read_csv(
                io.BufferedReader(self._lines, BUFFER),
                sep=self.delimiter,
                header=None,
                names=list(range(len(self.columns))),
                usecols=sorted(set(places.values())),
                index_col=False,
                dtype=dtype,
                skipinitialspace=True,
                encoding_errors="replace",
                chunksize=CHUNK_ROWS,
            ) as reader:
                yield from reader
        except pd.errors.EmptyDataError:
            return
        except pd.errors.ParserError as error:
            raise DataError(f"{self.name}: {error}") from error


class EvenLines(io.RawIOBase):
    """Pass bytes on, and refuse a line with another number of fields than the header.

    Delimiters are counted without regard to quotes: ACS fields are numbers and short
    identifiers. Empty lines are let through, as pandas skips them.
    """

    def __init__(
        self, stream: IO[bytes], name: str, delimiter: str, fields: int, start: int
    ) -> None:
        self._stream = stream
        self._name = name
        self._delimiter = ord(delimiter)
        self._fields = fields
        self._byte = start  # of the file, where the unfinished line begins
        self._line = 2
        self._delimiters = 0  # in the unfinished line so far
        self._length = 0
        self._blank = True

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Read some bytes; at the end, check the last line too."""
        view = memoryview(buffer)
        data = self._stream.read(len(view))
        view[: len(data)] = data
        if data:
            self._check(np.frombuffer(data, dtype=np.uint8))
        elif not self._blank and self._delimiters != self._fields - 1:
            self._refuse(0, self._delimiters, 0)
        return len(data)

    def _check(self, data: NDArray[np.uint8]) -> None:
        ends = np.flatnonzero(data == NEWLINE)
        starts = np.concatenate([[0], ends + 1])
        ended = starts[-1] == len(data)
        marks = (data == self._delimiter).view(np.uint8)
        counts = np.zeros(len(starts), dtype=np.int64)
        lines = starts[:-1] if ended else starts
        counts[: len(lines)] = np.add.reduceat(marks, lines, dtype=np.int64)
        counts[0] += self._delimiters
        for line in np.flatnonzero(counts[:-1] != self._fields - 1).tolist():
            blank = line > 0 or self._blank
            if not (blank and _is_blank(data[starts[line] : ends[line]])):
                before = int(starts[line]) + (self._length if line else 0)
                self._refuse(line, int(counts[line]), before)
        if len(ends):
            self._byte += self._length + int(starts[-1])
            self._line += len(ends)
            self._length, self._blank = 0, True
        rest = data[starts[-1] :]
        self._delimiters = int(counts[-1])
        self._length += len(rest)
        self._blank = self._blank and _is_blank(rest)

    def _refuse(self, line: int, delimiters: int, before: int) -> NoReturn:
        """Raise: so many lines and bytes after the last that was complete."""
        raise DataError(
            f"{self._name}, line {self._line + line}, byte {self._byte + before + 1}: "
            f"{delimiters + 1} fields, expected {self._fields} "
            "(a file that was cut off, or is not this table)"
        )


def _is_blank(data: NDArray[np.uint8]) -> bool:
    return len(data) < 3 and not data.tobytes().strip()
