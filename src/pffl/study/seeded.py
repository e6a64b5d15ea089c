"""A sweep on several seeds: fronts with bands, on the experiment layer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl import files
from pffl.data.federation import Federation
from pffl.figures import Plot, fronts
from pffl.files import Journal
from pffl.methods.base import Method
from pffl.models.base import Model
from pffl.models.linear import default_model
from pffl.preparation import Options
from pffl.study import experiment
from pffl.study.compare import overlap
from pffl.study.experiment import LEAST_PEOPLE, Split, Study
from pffl.study.sweep import GridPoint, Report, quiet
from pffl.study.trial import Footing, Trial

if TYPE_CHECKING:
    import pandas as pd

STEPS = 11
WIDEST = 0.05  # error above the smallest that fronts go to


@dataclass(frozen=True, repr=False)
class SeededSweep:
    """One notion's points on all seeds."""

    notion: str
    study: Study

    def front(
        self, *, y: str = "worst_cell_loss", chosen_on: Split = "validation"
    ) -> pd.DataFrame:
        """Each method's trade-off on test rows: means over seeds, with 95 % bands.

        On each seed the point with the smallest measure within an allowance of error is
        taken, by the rows that choose; a line for each allowance.
        """
        import pandas as pd

        allowances = [float(a) for a in np.linspace(0.0, WIDEST, STEPS)]
        found = self.study.front(y, allowances, chosen_on)
        columns = ["curve", "allowance", "error", y, f"{y}_low", f"{y}_high"]
        lines = [
            [label, p["allowance"], p["error"], p["value"], p["low"], p["high"]]
            for label, points in found.items()
            for p in points
        ]
        return pd.DataFrame(lines, columns=columns)

    def chart(self, y: str = "worst_cell_loss") -> Plot:
        """Draw the front, chosen on validation rows."""
        words = f"{self.notion}: fronts chosen on validation rows, with 95 % bands"
        return fronts(self.front(y=y), y=y, words=words)


def sweep_seeds(
    load: Callable[[int], Federation],
    points: Sequence[GridPoint],
    *,
    methods: Sequence[Method[Any]],
    seeds: int = experiment.SEEDS,
    training: int | None = None,
    model: Model | None = None,
    options: Options | None = None,
    least_people: int = LEAST_PEOPLE,
    out: str | os.PathLike[str] | None = None,
    report: Report = quiet,
) -> list[SeededSweep]:
    """Train every point with every method on every seed; one result per notion.

    Parameters
    ----------
    load
        What returns the federation of a seed, with a validation split.
    points, methods
        As for `sweep`: each method trains every point.
    training
        Seed of training, the same for all seeds; by default each seed's own.
    out
        A folder: finished rows are kept in ``rows.jsonl`` and not run again; the fronts
        are written there, too.
    """
    folder = None if out is None else Path(out)
    journal = Journal(None if folder is None else folder / "rows.jsonl")
    first = load(0)
    bound_model = model or default_model(first.schema)

    def at(seed: int) -> Footing:
        own = seed if training is None else training
        shared = (None, seed, own, options or Options(), journal)
        federation = first if seed == 0 else load(seed)
        return Footing(federation, bound_model, *shared)

    results = []
    for notion in dict.fromkeys(point.notion for point in points):
        of = [point for point in points if point.notion == notion]
        plans = {m.name: [_trial(m, point) for point in of] for m in methods}
        study = experiment.run(
            plans,
            range(seeds),
            at,
            measure="worst_cell_loss",
            least=least_people,
            overlap=0.0 if first.synthetic else overlap(first),
            reasons=dict.fromkeys(plans, "that is what was asked for"),
            all_on_test=True,
            report=report,
        )
        results.append(SeededSweep(notion, study))
        if folder is not None:
            text = results[-1].front().to_csv(index=False)
            files.write(folder / f"front-{notion}.csv", text.encode())
    return results


def _trial(method: Method[Any], point: GridPoint) -> Trial:
    """A point of the grid, with what the method was given besides."""
    own = {
        f.name: getattr(method, f.name)
        for f in fields(method)  # type: ignore[arg-type]
        if f.default is MISSING or getattr(method, f.name) != f.default
    }
    values = {**own, "multiplier_bound": point.multiplier_bound}
    return Trial(method.name, method.name, values, point.constraint, point.bound)
