"""Models of the path of a promise, to go through with a slider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pffl import figures
from pffl.evidence import tables
from pffl.evidence.conclude import Conclusions
from pffl.evidence.record import known
from pffl.figures import Plot, Rows
from pffl.reports.grid import Grid

#: Figures of a cell, in this order: four a cell.
COLUMNS = ("bound", "train_loss", "test_loss", "test_upper")


@dataclass(frozen=True)
class Explorer:
    """Models of one kind, in an order that means something.

    Attributes
    ----------
    title, names
        What the models have in common, and the names of their cells.
    plot, cells
        All of them as points, and the cells of the one that is picked at first.
    data
        What the page moves figures, table and sentence by.
    first
        Place of the model that is shown at first.
    table
        Those that matter most.
    """

    title: str
    names: Sequence[str]
    plot: Plot
    cells: Rows
    data: Mapping[str, Any]
    first: int
    table: Grid
    ends: tuple[str, str] = ("smaller bound", "larger bound")
    about: str = "The Pareto front as a table"
    note: str = ""


def flat(cells: Iterable[Mapping[str, Any]]) -> list[float | None]:
    """Return `COLUMNS` of all cells, with digits as they are shown."""
    values = [cell.get(key) for cell in cells for key in COLUMNS]
    return [None if v is None or v != v else round(v, 5) for v in values]


def path_of(c: Conclusions) -> Explorer | None:
    """Lay out the models of a path; None where no promise was asked for in advance.

    Calibration rows are shown of those models that were tested on them, and what they
    promise of those that were shown: at most the bound, and no smaller figure.
    """
    e, path = c.evidence, known(c.evidence.path)
    if path is None or len(path.candidates) < 2:
        return None
    found, said = c.tested, tables.path_models(c)
    cells: list[list[dict[str, Any]]] = []
    for place, one in enumerate(path.candidates):
        tried = place < len(found)
        trained, held = one.training.own_means, one.calibration.means
        cells.append(
            [
                {
                    "cell": cell.cell,
                    "bound": cell.bound,
                    "train_loss": float(trained[z]),
                    "test_loss": float(held[z]) if tried else None,
                    "test_upper": cell.bound if tried and found[place] else None,
                }
                for z, cell in enumerate(e.cells)
            ]
        )
    places = [
        {
            "state": one["state"],
            "error": one["error"],
            "room": min(row["bound"] - row["train_loss"] for row in rows),
        }
        for one, rows in zip(said, cells, strict=True)
    ]
    plot = figures.path(places, shares=bool(e.labels))
    models = [
        {
            "t": one["text"],
            "s": [],
            "p": [
                round(plot.x.at(at["error"]), 2),
                round(100 - plot.y.at(at["room"]), 2),
            ],
            "c": flat(rows),
        }
        for one, at, rows in zip(said, places, cells, strict=True)
    ]
    every = [cell for rows in cells for cell in rows]
    # The first model that is drawn has all marks, so that the page can move them.
    full = [
        {**row, "test_loss": row["bound"], "test_upper": row["bound"]}
        for row in cells[0]
    ]
    return Explorer(
        "What could be certified: the path of models",
        list(e.names),
        plot,
        figures.group_losses(full, along=every, sort=False, held="calibration rows"),
        {
            "names": list(e.names),
            "models": models,
            "titles": ["bound", "training", "calibration", "certified at most"],
        },
        path.chosen,
        Grid.of("Models of the path", tables.path_table(c), "stack list"),
        ("safest", "least constrained"),
        "The path as a table",
        "All models were fixed before a calibration row was used, and tested from "
        "the safest on. Of the one that is shipped at most the bound is certified, and "
        "no smaller figure; of models that were not tested nothing is.",
    )
