"""`pffl data`: which data there are, and what is in them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pffl.cli import terminal
from pffl.cli.options import COLUMNS, Draft, flag, in_options, takes
from pffl.text import few, shorten, visible

if TYPE_CHECKING:
    from pffl.constraints import Constraint
    from pffl.data import Federation
    from pffl.typing import IntArray

COLUMNS_HELP = "Write [columns] for private runs, from a public or made-up table."
MAX_SILOS, MAX_GROUPS, MAX_EMPTY = 25, 6, 10
MAX_COLUMNS, MAX_REMARKS = 200, 10
EXAMPLES, MAX_EXAMPLE = 3, 16


@takes(
    *COLUMNS,
    "constraint",
    optional=True,
    unused="data.unseen model.* method.* run.* privacy.* policy.* about.*",
)
def data(
    draft: Draft | None,
    declare: Annotated[bool, flag("--columns", COLUMNS_HELP)] = False,
) -> None:
    """List data sets; or fetch one, or look into a table: columns, groups, silos.

    Without DATA, the data sets there are. Of a table without --label and --group, what
    its columns hold; with them, rows by silo and group, and what gives the label away.

    Example: pffl data people.csv --label income --group sex --silo state
    """
    if draft is None:
        from pffl.datasets import DATASETS

        terminal.show(*(f"{name:10} {text}" for name, (_, text) in DATASETS.items()))
        return
    given = draft.sections.get("data", {})
    path = given.get("path") if isinstance(given, Mapping) else None
    if isinstance(path, str) and not {"label", "group"} <= set(given):
        show_columns(str(draft.base / path), given)
        return
    if "constraint" in draft.sections:  # it names groups here
        draft, _ = draft.with_a_bound()
    from pffl.progress import arriving

    spec = draft.check()
    with arriving() as progress:
        federation = spec.data.open(progress=progress)
    if declare:
        typer.echo(_declared(federation, spec.data.values))
        return
    show_counts(federation, spec.constraint)


def _declared(federation: Federation, values: Mapping[str, object]) -> str:
    """Return [columns] as a run file has it."""
    from pffl.config import dumps
    from pffl.data.read import read_table
    from pffl.data.table import declare
    from pffl.errors import UsageError

    if not isinstance(path := values.get("path"), str):
        raise UsageError("[needs-rows] --columns declares the columns of a table")
    silo = [str(values["silo"])] if "silo" in values else []
    columns = declare(read_table(path)[0], federation.encoding, *silo)
    text = "# declared from a public or made-up table: never from the private one"
    return f"{text}\n{dumps({'columns': columns})}"


def _head(title: str, notes: Sequence[str]) -> None:
    target = terminal.stdout()
    target.print()
    target.print(shorten(visible(title), terminal.MAX_TITLE), style="bold")
    target.print(terminal.remarks(notes))


# Of a table whose columns were named


def show_counts(federation: Federation, constraint: Constraint | None = None) -> None:
    """Show rows per silo and group, label rates, empty cells and notes."""
    import numpy as np

    schema, target = federation.schema, terminal.stdout()
    parts = [silo.rows("train") for silo in federation.silos]
    strata = [
        np.bincount(schema.strata(r.group, r.y), minlength=schema.n_strata)
        for r in parts
    ]
    counts = np.array(strata).reshape(len(parts), len(schema.groups), schema.n_labels)
    kind = f"{len(schema.labels)} classes" if schema.labels else "a number"
    splits = ", ".join(f"{federation.rows(s):,} {s}" for s in federation.splits)
    silos = "silo" if len(federation) == 1 else "silos"
    facts = [
        f"{len(federation):,} {silos}; rows: {splits}",
        f"{schema.n_features:,} inputs; '{visible(schema.target)}' is {kind}",
        *federation.notes,
        f"fingerprint {federation.fingerprint[:16]}",
    ]
    _head(federation.name, facts)
    rows = _count_rows(federation, counts, target.width)
    target.print()
    table = terminal.text_rows(rows, target.width, len(rows))
    terminal.print_whole(target, table)
    if schema.labels:
        by_group = counts.sum(axis=0)
        shares = by_group / np.maximum(1, by_group.sum(axis=1, keepdims=True))
        names = schema.label_names[:MAX_GROUPS]
        terminal.print_rows(
            [
                {"share of label": group}
                | {name: f"{share[y]:.1%}" for y, name in enumerate(names)}
                for group, share in zip(schema.groups, shares, strict=True)
            ]
        )
    target.print()
    terminal.show(*_empty_cells(federation, counts, constraint))


def _count_rows(
    federation: Federation, counts: IntArray, width: int
) -> list[dict[str, Any]]:
    """Training rows per silo and group; the largest where not all can be shown."""
    import numpy as np

    def largest(sizes: IntArray, most: int) -> list[int]:
        return sorted(np.argsort(-sizes, kind="stable")[:most].tolist())

    names, by_group = federation.schema.groups, counts.sum(axis=(0, 2))
    longest = min(max(map(len, names)), terminal.MAX_NAME)
    room = (width - 36) // max(6, 1 + longest)
    groups = largest(by_group, max(2, min(MAX_GROUPS, room)))
    silos = largest(counts.sum(axis=(1, 2)), MAX_SILOS)
    others = np.setdiff1d(np.arange(len(counts)), silos)
    binary = len(federation.schema.labels) == 2

    def row(title: str, part: IntArray) -> dict[str, Any]:
        total, sizes = int(part.sum()), part.sum(axis=1)
        out: dict[str, Any] = {"training rows": title}
        out |= {visible(names[g]): int(sizes[g]) for g in groups}
        if len(groups) < len(names):
            left = f"{len(names) - len(groups)} more"
            out[left] = total - sum(int(sizes[g]) for g in groups)
        share = f"{part[:, 1].sum() / total:.1%}" if binary and total else ""
        return {**out, "all": total, "positive" if binary else " ": share}

    rows = [row(federation.silos[k].name, counts[k]) for k in silos]
    if len(others):
        rows.append(row(f"{len(others):,} more", counts[others].sum(axis=0)))
    rows.append(row("all", counts.sum(axis=0)))
    return rows


def _empty_cells(
    federation: Federation, counts: IntArray, constraint: Constraint | None
) -> list[str]:
    """Say which groups have no training rows: nowhere, and in some silos."""
    import numpy as np

    schema = federation.schema
    if constraint is not None:
        cells = constraint.cells(schema, federation.silo_names)
        totals = cells.totals(counts.reshape(len(counts), -1).astype(np.float64))
        names = [n for n, total in zip(cells.names, totals, strict=True) if total == 0]
        what = "groups of the constraint"
    else:
        empty = np.flatnonzero(counts.sum(axis=0).reshape(-1) == 0)
        names = [schema.stratum_name(int(stratum)) for stratum in empty]
        what = "groups with a label" if schema.labels else "groups"
    shown = few([shorten(visible(n), terminal.MAX_NAME) for n in names], MAX_EMPTY)
    lines = [f"{what} without training rows anywhere: {shown or 'none'}"]
    if missing := int((counts.sum(axis=2) == 0).sum()):
        total = counts.shape[0] * counts.shape[1]
        lines.append(f"pairs of silo and group without rows: {missing:,} of {total:,}")
    return lines


# Of a table of which nothing was said


def show_columns(path: str, options: Mapping[str, object]) -> None:
    """Show the columns of a file, what is odd about them, and the next command.

    Parameters
    ----------
    path
        The file.
    options
        Of the section [data], as far as they are known.
    """
    from pffl.data.infer import Distinct, infer, looks_protected
    from pffl.data.read import place_of, read_table
    from pffl.errors import DataError, Problems

    frame, notes = read_table(path)
    columns = {str(n): Distinct(frame[n]) for n in list(frame.columns)[:MAX_COLUMNS]}
    problems = Problems("table", DataError)
    inferred = {
        title: infer(found, title, problems, lambda row: place_of(path, row))
        for title, found in columns.items()
    }
    _head(
        Path(path).name,
        [f"{len(frame):,} rows, {len(frame.columns):,} columns", *notes],
    )
    target = terminal.stdout()
    table = terminal.plain_table(target.width, "column")
    for title in ("holds", "values", "missing", "such as"):
        right = title in ("values", "missing")
        table.add_column(title, justify="right" if right else "left")
    for title, found in columns.items():
        absent = int((found.codes < 0).sum())
        share = 100 * absent / max(1, len(found.codes))
        often = found.counts.argsort(kind="stable")[::-1][:EXAMPLES]
        examples = [shorten(str(found.values[k]), MAX_EXAMPLE) for k in often]
        table.add_row(
            terminal.name(title),
            inferred[title].kind,
            f"{len(found.values):,}",
            f"{absent:,} ({share:.1f} %)" if absent else "",
            terminal.name(", ".join(examples), 60),
        )
    if (left := len(frame.columns) - MAX_COLUMNS) > 0:
        table.add_row(f"{left:,} more")
    target.print()
    terminal.print_whole(target, table)
    warnings = [text for one in inferred.values() for text in one.warnings]
    told = [*problems.found, *warnings]
    more = [f"and {len(told) - MAX_REMARKS} more"] if len(told) > MAX_REMARKS else []
    named = [n for n in map(str, frame.columns) if looks_protected(n)]
    protected = [f"look protected, by name: {few(named)}"] if named else []
    target.print()
    target.print(terminal.remarks([*told[:MAX_REMARKS], *more, *protected]))
    target.print()
    words: list[str] = []
    for key, value in options.items():
        if key != "path":
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += in_options(f"`{key}={text}`").split(maxsplit=1)
    for role in ("label", "group"):
        words += [] if role in options else [f"--{role}", "COLUMN"]
    command = shlex.join(["pffl", "data", path, *words])
    target.print("Next:")
    target.print(f"  {visible(command)}", style="bold", soft_wrap=True)
