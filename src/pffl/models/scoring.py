"""A file of rows becomes a file of scores, piece by piece: both may be of any size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pffl import files
from pffl.data.encoding import Found, Unseen, unknown_remarks
from pffl.data.reading import PARQUET, read_chunks
from pffl.errors import ArtefactError, MissingExtraError, UsageError
from pffl.models.predictor import PREDICTION, PROBABILITY, Predictor

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Scored:
    """How many rows were scored, and what there is to say of them."""

    rows: int
    remarks: tuple[str, ...]


def score_file(
    predictor: Predictor,
    rows: str | os.PathLike[str],
    out: str | os.PathLike[str] | BinaryIO,
    *,
    keep: Sequence[str] = (),
    unseen: Unseen | None = None,
) -> Scored:
    """Write a prediction for each row of a file, and the probability of each class.

    Parameters
    ----------
    predictor
        The model.
    rows
        A table: CSV, Parquet, or what else `pffl` reads.
    out
        A new file, Parquet by its ending and otherwise CSV, which appears when it is
        whole; or a stream, for CSV.
    keep
        Columns of the table to write beside the scores.
    unseen
        As for `Predictor.predict`.
    """
    own = [PREDICTION, *(f"{PROBABILITY}_{name}" for name in predictor.schema.labels)]
    taken = [name for name in keep if name in own or keep.count(name) > 1]
    if taken:
        raise UsageError(
            f"[repeated-column] column '{taken[0]}' cannot be kept: it is one of the "
            "scores"
        )
    scoring = _Scoring(predictor, rows, tuple(keep), unseen)
    if not isinstance(out, str | os.PathLike):
        scoring.as_csv(out)
        return scoring.done()
    path = Path(out)
    if path.exists():
        raise ArtefactError(
            f"[file-exists] '{path}' is there already: choose another name"
        )
    is_parquet = path.suffix.lower() in PARQUET
    files.write(path, scoring.as_parquet if is_parquet else scoring.as_csv)
    return scoring.done()


class _Scoring:
    """Scores on their way from a table into a stream."""

    def __init__(
        self,
        predictor: Predictor,
        table: str | os.PathLike[str],
        keep: tuple[str, ...],
        unseen: Unseen | None,
    ) -> None:
        self.predictor, self.table, self.keep = predictor, table, keep
        self.unseen, self.found = unseen, Found()
        self.rows = 0

    def done(self) -> Scored:
        """Say how many rows there were."""
        return Scored(self.rows, tuple(unknown_remarks(self.found)))

    def parts(self) -> Iterator[pd.DataFrame]:
        """Yield kept columns and scores, in pieces."""
        import pandas as pd

        for chunk in read_chunks(
            self.table, self.predictor.preparation.columns, self.keep
        ):
            scores = self.predictor.score(chunk, self.unseen, self.found)
            self.rows += len(scores)
            yield pd.concat([chunk.kept, scores], axis=1)

    def as_csv(self, stream: BinaryIO) -> None:
        """Write CSV; what a spreadsheet would run is disarmed (fault 76)."""
        for number, part in enumerate(self.parts()):
            for name in part:
                if part[name].dtype.kind not in "iufb":
                    part[name] = _disarmed(part[name])
            part = part.rename(columns=lambda name: files.disarm(str(name)))
            text = part.to_csv(index=False, header=number == 0, lineterminator="\n")
            stream.write(text.encode())

    def as_parquet(self, stream: BinaryIO) -> None:
        """Write Parquet."""
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise MissingExtraError("parquet", "writing Parquet files") from error
        writer: Any = None
        try:
            for part in self.parts():
                table = pa.Table.from_pandas(
                    part,
                    schema=None if writer is None else writer.schema,
                    preserve_index=False,
                )
                if writer is None:
                    writer = parquet.ParquetWriter(stream, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()


def _disarmed(column: pd.Series) -> pd.Series:
    """Return a column of text without formulas; a number is none, by its sign."""
    texts = {value for value in column if isinstance(value, str)}
    changed = {value: safe for value in texts if (safe := _safe(value)) != value}
    return column.replace(changed) if changed else column


def _safe(text: str) -> str:
    try:
        float(text)
    except ValueError:
        return files.disarm(text)
    return text
