"""Persons of all silos, packed: one byte a column, before they become inputs.

All states of a year have more than three million persons. Packed they take some 50 MB,
so that the inputs (about a gigabyte) are the only large array, written once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import listing
from pffl.data.partition import Plan
from pffl.data.silo import Rows, Silo
from pffl.datasets._acs_columns import COLUMNS, FIPS, PROTECTED, Encoding, Input, Packed
from pffl.datasets._acs_files import Columns, Layout, PersonFile
from pffl.datasets._acs_sources import RENAMED_FILES, STATE_OF
from pffl.datasets._acs_tasks import Task
from pffl.errors import DataError, Problems
from pffl.typing import BoolArray, IntArray

BLOCK = 1 << 11
OLDEST = 130
# How an extract may call the label of employment, as 0 and 1.
LABELS = {"ESR": "ESR1"}


@dataclass(frozen=True, eq=False)
class Persons:
    """Packed rows that passed the filter, in the order of the files.

    Attributes
    ----------
    inputs, columns
        How each column becomes inputs, and its packed values.
    label, state, protected
        Label, FIPS code, and code of each protected attribute.
    read
        Persons of each state before the filter.
    absent
        Wanted columns that the source does not have.
    """

    inputs: tuple[Input, ...]
    columns: dict[str, Packed]
    label: NDArray[np.uint8]
    state: NDArray[np.uint8]
    protected: dict[str, NDArray[np.uint8]]
    read: Counter[str]
    absent: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.label)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all inputs."""
        return tuple(name for column in self.inputs for name in column.features)

    def silos(
        self, plan: Plan, group: IntArray, dtype: type[np.floating]
    ) -> tuple[Silo, ...]:
        """Write each silo's splits next to each other into one array of inputs."""
        splits = list(plan[0][1])
        total = sum(len(rows) for _, index in plan for rows in index.values())
        X = np.zeros((total, len(self.features)), dtype=dtype)
        y, groups = np.empty(total), np.empty(total, dtype=np.int64)
        views: list[dict[str, Rows]] = [{} for _ in plan]
        start = 0
        for split in splits:
            for silo, (_, index) in zip(views, plan, strict=True):
                rows = index[split]
                part = slice(start, start + len(rows))
                self._write(rows, X[part])
                y[part], groups[part] = self.label[rows], group[rows]
                silo[split] = Rows(X[part], y[part], groups[part])
                start = part.stop
        return tuple(Silo(name, k, views[k]) for k, (name, _) in enumerate(plan))

    def _write(self, rows: IntArray, out: NDArray[np.floating]) -> None:
        for begin in range(0, len(rows), BLOCK):
            block = rows[begin : begin + BLOCK]
            at = 0
            for column in self.inputs:
                width = len(column.features)
                target = out[begin : begin + BLOCK, at : at + width]
                column.write(self.columns[column.column.name][block], target)
                at += width


def read_persons(
    files: Sequence[PersonFile],
    task: Task,
    *,
    encoding: Encoding,
    protected: Sequence[str],
    states: Sequence[str] | None,
    year: int,
) -> Persons:
    """Read, filter and pack all files, a number of rows at a time."""
    layouts = [_layout(file, task, protected, year) for file in files]
    hidden = tuple(PROTECTED[name][0] for name in protected)
    absent = layouts[0].absent
    packing = _Packing(
        task, task.bind(encoding, hidden, absent), tuple(protected), states
    )
    for file, layout in zip(files, layouts, strict=True):
        only = _only_state(file, layout, states)
        for chunk in layout.chunks(file):
            packing.add(chunk, file, only)
        packing.raise_if_unknown(file)
    return packing.finish(absent)


@dataclass(eq=False)
class _Packing:
    """Chunks of packed rows so far, and the values that had no place."""

    task: Task
    inputs: tuple[Input, ...]
    protected: tuple[str, ...]
    states: Sequence[str] | None
    parts: dict[str, list[NDArray[np.generic]]] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)
    unknown: dict[str, Counter[float]] = field(default_factory=dict)

    def add(self, chunk: Columns, file: PersonFile, only: str | None) -> None:
        """Filter and pack one chunk."""
        state = self._states(chunk, file, only)
        kept: BoolArray = self.task.keep(chunk)
        if self.states is not None:
            kept &= np.isin(state, [FIPS[name] for name in self.states])
        label = self.task.positive.holds(chunk[self.task.positive.column][kept])
        self._append("label", label.astype(np.uint8))
        self._append("state", state[kept])
        for name in self.protected:
            entry = Input(COLUMNS[PROTECTED[name][0]], "onehot", 0)
            self._pack(f"protected {name}", entry, chunk, kept)
        for entry in self.inputs:
            self._pack(entry.column.name, entry, chunk, kept)
        ages = chunk["AGEP"][kept] if "AGEP" in chunk else np.zeros(1)
        odd = ages[~((ages >= 0) & (ages <= OLDEST))]
        self.unknown.setdefault("AGEP", Counter()).update(odd.tolist())

    def raise_if_unknown(self, file: PersonFile) -> None:
        """Refuse values that the data dictionary does not have, all at once."""
        with Problems(str(file), DataError) as problems:
            for name, counts in self.unknown.items():
                if counts:
                    values = [f"{v:g} ({n})" for v, n in counts.most_common()]
                    problems.add(
                        f"column '{name}' has values that the data dictionary does "
                        f"not have (missing counts as 0): {listing(values)}"
                    )

    def finish(self, absent: tuple[str, ...]) -> Persons:
        """Join the chunks."""
        joined = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        return Persons(
            self.inputs,
            {e.column.name: joined[e.column.name] for e in self.inputs},
            joined["label"],
            joined["state"],
            {name: joined[f"protected {name}"] for name in self.protected},
            self.read,
            absent,
        )

    def _pack(self, key: str, entry: Input, chunk: Columns, kept: BoolArray) -> None:
        packed, unknown = entry.pack(chunk[entry.column.name][kept])
        self._append(key, packed)
        self.unknown.setdefault(entry.column.name, Counter()).update(unknown)

    def _append(self, key: str, values: NDArray[np.generic]) -> None:
        self.parts.setdefault(key, []).append(values)

    def _states(
        self, chunk: Columns, file: PersonFile, only: str | None
    ) -> NDArray[np.uint8]:
        """FIPS code of each row; a file about one state must not hold another."""
        rows = len(next(iter(chunk.values())))
        if only is not None:
            self.read[only] += rows
            return np.full(rows, FIPS[only], dtype=np.uint8)
        codes, counts = np.unique(chunk["ST"], return_counts=True)
        known = {code: STATE_OF.get(int(code)) for code in codes[~np.isnan(codes)]}
        wrong = [
            f"{code:g}"
            for code in codes
            if known.get(code) is None or file.state not in (None, known[code])
        ]
        if wrong:
            expected = (
                f"of {file.state} ({FIPS[file.state]})" if file.state else "known"
            )
            raise DataError(f"{file}: states that are not {expected}: {listing(wrong)}")
        for code, count in zip(codes, counts, strict=True):
            self.read[str(known[code])] += int(count)
        return chunk["ST"].astype(np.uint8)


def _layout(
    file: PersonFile, task: Task, protected: Sequence[str], year: int
) -> Layout:
    """Find the columns; a file as published must have all of them."""
    positive = task.positive.column
    other = LABELS.get(positive) if positive not in task.inputs else None
    hidden = [PROTECTED[name][0] for name in protected]
    wanted = tuple(dict.fromkeys((*task.needed, *hidden, "ST")))
    layout = Layout.of(file, wanted, (positive, other) if other else None)
    needed = [positive, *hidden] if file.extract else list(wanted)
    absent = [f"'{column}'" for column in needed if column in layout.absent]
    if absent:
        raise DataError(f"{file} is not such a table: no columns {', '.join(absent)}")
    if not file.extract and year >= RENAMED_FILES:
        _check_year(file, year)
    return layout


def _check_year(file: PersonFile, year: int) -> None:
    """From 2017 on files of all years are called alike, but numbers hold the year."""
    names = file.column_names()
    if "SERIALNO" not in names:
        return
    number = file.first_value(names.index("SERIALNO"))
    if len(number) == 13 and number[:4].isdigit() and int(number[:4]) != year:
        raise DataError(f"{file} holds persons of {number[:4]}, expected {year}")


def _only_state(
    file: PersonFile, layout: Layout, states: Sequence[str] | None
) -> str | None:
    """The state of a file without a column for it."""
    if "ST" in layout.places:
        return None
    if file.state is None and len(states or ()) != 1:
        raise DataError(
            f"{file} does not say which state its rows are from: name it, for "
            "instance states=['NY']"
        )
    return file.state or (states or ("",))[0]
