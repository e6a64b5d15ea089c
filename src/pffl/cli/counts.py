"""What is in a federation: rows per silo and group, labels, empty cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from pffl.cli.show import (
    LONGEST_NAME,
    LONGEST_TITLE,
    name,
    plain_table,
    print_whole,
    remarks,
)
from pffl.text import shorten, visible

if TYPE_CHECKING:
    from rich.console import Console

    from pffl.constraints import Constraint
    from pffl.data import Federation
    from pffl.typing import IntArray

MOST_SILOS = 25
MOST_GROUPS = 6
MOST_EMPTY = 10
WIDEST, NARROWEST = 12, 6  # columns of a group


def described(texts: Mapping[str, str]) -> Table:
    """Names and what they stand for."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for title, text in texts.items():
        table.add_row(title, text)
    return table


def show(
    console: Console, federation: Federation, constraint: Constraint | None = None
) -> None:
    """Show rows per silo and group, label rates, empty cells and notes."""
    schema = federation.schema
    counts = atom_counts(federation)
    kind = f"{len(schema.labels)} classes" if schema.labels else "a number"
    splits = ", ".join(f"{federation.rows(s):,} {s}" for s in federation.splits)
    silos = "silo" if len(federation) == 1 else "silos"
    facts = [
        f"{len(federation):,} {silos}; rows: {splits}",
        f"{schema.n_features:,} inputs; '{visible(schema.target)}' is {kind}",
        *federation.notes,
        f"fingerprint {federation.fingerprint[:16]}",
    ]
    console.print()
    console.print(Text(shorten(visible(federation.name), LONGEST_TITLE), "bold"))
    console.print(remarks(facts))
    console.print()
    print_whole(console, silo_table(federation, counts, console.width))
    console.print()
    if schema.labels:
        print_whole(console, group_table(federation, counts, console.width))
        console.print()
    for line in empty_cells(federation, counts, constraint):
        console.print(Text(line))


def atom_counts(federation: Federation) -> IntArray:
    """Training rows, shape (silos, groups, labels)."""
    schema = federation.schema
    counts = [
        np.bincount(schema.atoms(rows.group, rows.y), minlength=schema.n_atoms)
        for rows in (silo.rows("train") for silo in federation.silos)
    ]
    return np.array(counts).reshape(len(counts), len(schema.groups), schema.n_labels)


def silo_table(federation: Federation, counts: IntArray, width: int) -> Table:
    """Training rows per silo and group; the largest where not all can be shown."""
    groups = _fitting(federation.schema.groups, counts.sum(axis=(0, 2)), width)
    silos = _largest(counts.sum(axis=(1, 2)), MOST_SILOS)
    table = _table(
        width, "training rows", [federation.schema.groups[g] for g in groups]
    )
    others = len(federation.schema.groups) - len(groups)
    if others:
        table.add_column(f"{others} more", justify="right")
    table.add_column("all", justify="right")
    table.add_column("positive" if _binary(federation) else "", justify="right")
    for k in silos:
        _add(table, federation.silos[k].name, counts[k], groups, federation)
    if len(silos) < len(counts):
        rest = counts[np.setdiff1d(np.arange(len(counts)), silos)].sum(axis=0)
        left = f"{len(counts) - len(silos):,} more"
        _add(table, left, rest, groups, federation)
    table.add_section()
    _add(table, "all", counts.sum(axis=0), groups, federation)
    return table


def group_table(federation: Federation, counts: IntArray, width: int) -> Table:
    """Share of each label in each group."""
    schema = federation.schema
    labels = range(min(schema.n_labels, MOST_GROUPS))
    table = _table(width, "share of label", [schema.label_names[y] for y in labels])
    by_group = counts.sum(axis=0)
    for g in _largest(by_group.sum(axis=1), MOST_SILOS):
        total = by_group[g].sum()
        table.add_row(
            name(schema.groups[g]), *(_share(by_group[g, y], total) for y in labels)
        )
    return table


def empty_cells(
    federation: Federation, counts: IntArray, constraint: Constraint | None
) -> list[str]:
    """Say which cells have no training rows: nowhere, and in some silos."""
    schema = federation.schema
    if constraint is not None:
        cells = constraint.cells(schema, federation.silo_names)
        totals = cells.totals(counts.reshape(len(counts), -1).astype(np.float64))
        names = [n for n, total in zip(cells.names, totals, strict=True) if total == 0]
        what = "cells of the constraint"
    else:
        by_atom = counts.sum(axis=0)
        names = [
            f"{schema.groups[g]}, {schema.label_names[y]}"
            if schema.labels
            else schema.groups[g]
            for g, y in np.argwhere(by_atom == 0)
        ]
        what = "groups with a label" if schema.labels else "groups"
    missing = int((counts.sum(axis=2) == 0).sum())
    lines = [f"{what} without training rows anywhere: {_some(names) or 'none'}"]
    if missing:
        total = counts.shape[0] * counts.shape[1]
        lines.append(f"pairs of silo and group without rows: {missing:,} of {total:,}")
    return lines


def _add(
    table: Table,
    title: str,
    counts: IntArray,
    groups: Sequence[int],
    federation: Federation,
) -> None:
    """Add a row: counts, shape (groups, labels), of one silo or of several."""
    total = int(counts.sum())
    by_group = counts.sum(axis=1)
    cells = [f"{by_group[g]:,}" for g in groups]
    if len(groups) < len(by_group):
        cells.append(f"{total - sum(int(by_group[g]) for g in groups):,}")
    rate = _share(counts[:, 1].sum(), total) if _binary(federation) else ""
    table.add_row(name(title), *cells, f"{total:,}", rate)


def _table(width: int, first: str, names: Sequence[str]) -> Table:
    table = plain_table(width)
    table.add_column(first, overflow="fold", max_width=max(14, width - 46))
    for title in names:
        head = name(title)
        table.add_column(head, justify="right", overflow="fold", max_width=WIDEST)
    return table


def _binary(federation: Federation) -> bool:
    return len(federation.schema.labels) == 2


def _largest(sizes: IntArray, most: int) -> list[int]:
    """Places of the largest, in their own order."""
    chosen = np.argsort(-sizes, kind="stable")[:most]
    return [int(place) for place in np.sort(chosen)]


def _fitting(names: Sequence[str], sizes: IntArray, width: int) -> list[int]:
    """Places of the largest groups that have room side by side, at least two."""
    for most in range(MOST_GROUPS, 2, -1):
        chosen = _largest(sizes, most)
        needed = (max(NARROWEST, min(len(names[g]), WIDEST)) + 1 for g in chosen)
        if sum(needed) <= width - 36:
            return chosen
    return _largest(sizes, 2)


def _share(part: int, total: int) -> str:
    return f"{part / total:.1%}" if total else "–"


def _some(names: Sequence[str]) -> str:
    few = names[:MOST_EMPTY]
    shown = ", ".join(shorten(visible(name), LONGEST_NAME) for name in few)
    more = len(names) - MOST_EMPTY
    return f"{shown} and {more:,} more" if more > 0 else shown
