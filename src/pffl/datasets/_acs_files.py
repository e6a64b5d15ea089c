"""A file of ACS persons: text, inside an archive or not, or Parquet.

Column names drift over the years; here they all have the older name and coding.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

import numpy as np

from pffl.datasets._acs_columns import RELP_OF_RELSHIPP
from pffl.datasets._acs_text import NotNumbersError, TextTable
from pffl.datasets._archive import check_archive
from pffl.errors import DataError, MissingExtraError
from pffl.typing import FloatArray

if TYPE_CHECKING:
    import pyarrow.parquet

Columns: TypeAlias = dict[str, FloatArray]

LARGEST = 8 << 30  # bytes of an unpacked file
BATCH_ROWS = 1 << 17
PARQUET = (".parquet", ".pq")
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
# Older name → newer name (RELSHIPP since 2019, STATE since 2023).
RENAMED = {"RELP": "RELSHIPP", "ST": "STATE"}


@dataclass(frozen=True)
class PersonFile:
    """One file of persons.

    Parameters
    ----------
    path, member
        The file, and the one inside if it is an archive.
    state
        The state it is about, if it is about one.
    extract
        Whether it is somebody's table with some of the columns, and not as the Census
        published it.
    """

    path: Path
    member: str = ""
    state: str | None = None
    extract: bool = False

    def __str__(self) -> str:
        return f"'{self.path.name}'" + (f" ('{self.member}')" if self.member else "")

    def column_names(self) -> list[str]:
        """Names of all its columns, in upper case."""
        if self._is_parquet:
            with _parquet(self.path) as opened:
                return [str(name).upper() for name in opened.schema_arrow.names]
        with self._text() as table:
            return table.columns

    def chunks(self, places: Mapping[str, int]) -> Iterator[Columns]:
        """Yield some of the columns, given by place, a number of rows at a time."""
        if self._is_parquet:
            yield from self._batches(places)
            return
        try:
            with self._text() as table:
                yield from table.chunks(places)
        except NotNumbersError as error:
            with self._text() as table:
                raise DataError(table.first_text(places)) from error

    def first_value(self, place: int) -> str:
        """Value of the first row in one column of a text file."""
        with self._text() as table:
            return table.first(place)

    @property
    def _is_parquet(self) -> bool:
        return self.path.suffix.lower() in PARQUET

    def _batches(self, places: Mapping[str, int]) -> Iterator[Columns]:
        with _parquet(self.path) as opened:
            own = {name: opened.schema_arrow.names[at] for name, at in places.items()}
            for batch in opened.iter_batches(BATCH_ROWS, columns=list(own.values())):
                yield {
                    name: np.asarray(
                        batch.column(column).to_numpy(zero_copy_only=False),
                        dtype=np.float64,
                    )
                    for name, column in own.items()
                }

    @contextmanager
    def _text(self) -> Iterator[TextTable]:
        with self._bytes() as stream:
            yield TextTable(stream, str(self))

    @contextmanager
    def _bytes(self) -> Iterator[IO[bytes]]:
        try:
            if self.member:
                with zipfile.ZipFile(self.path) as archive:
                    check_archive(archive, self.path.name, self.member, LARGEST)
                    with archive.open(self.member) as stream:
                        yield stream
            else:
                with self.path.open("rb") as file:
                    yield file
        except DAMAGED as error:
            raise DataError(f"archive {self} is damaged: {error}") from error
        except OSError as error:
            raise DataError(f"{self} cannot be read: {error}") from error


@dataclass(frozen=True)
class Layout:
    """Where the wanted columns stand in one file.

    Attributes
    ----------
    places
        Place of each column that is there, under its older name.
    absent
        Wanted columns that are not there.
    recoded
        Columns with the newer coding.
    """

    places: Mapping[str, int]
    absent: tuple[str, ...]
    recoded: frozenset[str]

    @classmethod
    def of(
        cls, file: PersonFile, wanted: Collection[str], label: tuple[str, str] | None
    ) -> Layout:
        """Find the columns of a file by either name.

        `label` is a column, and the name under which an extract may have it.
        """
        names = file.column_names()
        others = {**RENAMED, **dict([label] if label and file.extract else [])}
        places: dict[str, int] = {}
        recoded = set()
        for column in wanted:
            other = others.get(column, column)
            found = [name for name in (column, other) if name in names]
            if not found:
                continue
            if names.count(found[0]) > 1:
                raise DataError(f"{file}: column '{found[0]}' occurs more than once")
            places[column] = names.index(found[0])
            if found[0] == "RELSHIPP":
                recoded.add(column)
        absent = tuple(column for column in wanted if column not in places)
        return cls(places, absent, frozenset(recoded))

    def chunks(self, file: PersonFile) -> Iterator[Columns]:
        """Yield the columns in their older coding."""
        for chunk in file.chunks(self.places):
            if "RELP" in self.recoded:
                chunk["RELP"] = relp(chunk["RELP"])
            yield chunk


def relp(relshipp: FloatArray) -> FloatArray:
    """Turn codes of RELSHIPP into codes of RELP; others become −1, which is refused.

    >>> relp(np.array([20.0, 21.0, 23.0, 38.0, 99.0]))
    array([ 0.,  1.,  1., 17., -1.])
    """
    lookup = np.full(max(RELP_OF_RELSHIPP) + 1, -1.0)
    lookup[list(RELP_OF_RELSHIPP)] = list(RELP_OF_RELSHIPP.values())
    inside = (relshipp >= 0) & (relshipp < len(lookup))
    codes = np.where(inside, relshipp, 0.0).astype(np.int64)
    return np.asarray(np.where(inside, lookup[codes], -1.0))


@contextmanager
def _parquet(path: Path) -> Iterator[pyarrow.parquet.ParquetFile]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("parquet", "reading Parquet files") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as opened:
            yield opened
    except DataError:
        raise
    except pyarrow.ArrowException as error:
        raise DataError(f"'{path.name}' is not a Parquet file: {error}") from error
    except ValueError as error:
        raise DataError(
            f"'{path.name}': not all values are numbers: {error}"
        ) from error
    except OSError as error:
        raise DataError(f"'{path.name}' cannot be read: {error}") from error
