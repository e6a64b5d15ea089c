"""Every method on the same footing: same split, inputs, model and gradients.

Tuning, where asked for, happens on a validation part, with the same number of trials
for each method, and starts with FedAvg's l2, which all methods then use: it moves the
worst group more than most fair methods do (docs/methods.md, 14).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl.compare.candidates import Candidate, Parameters
from pffl.compare.trial import COSTS, MEASURES, Row, Setting, trial
from pffl.data.federation import Federation
from pffl.errors import NotMetError
from pffl.files import Journal, key_of
from pffl.models.linear import LinearModel

if TYPE_CHECKING:
    import pandas as pd

L2_GRID = (1e-3, 1e-4, 1e-2, 1e-1)

Load = Callable[[int], Federation]
Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Comparison:
    """The rows of a comparison, and their means."""

    rows: tuple[Row, ...]

    @property
    def table(self) -> pd.DataFrame:
        """Per method: mean and standard error of every measure and cost on test."""
        import pandas as pd

        out = []
        for method in dict.fromkeys(row.method for row in self.rows):
            rows = [r for r in self.rows if r.method == method and r.split == "test"]
            good = [r for r in rows if r.reason is None]
            line: dict[str, Any] = {"method": method, "seeds": len(good)}
            for name in (*MEASURES, *COSTS):
                values = [
                    float(value)
                    for r in good
                    if (value := {**r.measures, **r.costs}.get(name)) is not None
                ]
                line[name] = float(np.mean(values)) if values else np.nan
                line[f"{name}_se"] = standard_error(values)
            line["failed"] = "; ".join(
                dict.fromkeys(r.reason for r in rows if r.reason)
            )
            out.append(line)
        return pd.DataFrame(out).set_index("method")

    def as_dict(self) -> dict[str, Any]:
        """Plain form: all rows."""
        return {"rows": [row.as_dict() for row in self.rows]}


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; NaN for fewer than two values."""
    if len(values) < 2:
        return float("nan")
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def compare(
    load: Load,
    setting: Setting,
    candidates: Sequence[Candidate],
    *,
    seeds: Sequence[int],
    trials: int = 0,
    out: Path | None = None,
    report: Report = lambda what, done, total: None,
) -> Comparison:
    """Run every method on every seed.

    Parameters
    ----------
    load
        Returns the federation for a seed (with a ``validation`` split if tuned).
    trials
        Points of its grid that each method may try on validation; 0 for none.
    out
        A folder: finished rows are kept in ``rows.jsonl`` and not run again.
    report
        Called with what runs now, how many are done, and how many there are.
    """
    book = Book(out)
    count = len(seeds) * len(candidates) * (1 + trials)
    count += len(seeds) * len(L2_GRID) if trials else 0
    done = 0

    def once(federation: Federation, at: Setting, c: Candidate, **what: Any) -> Row:
        nonlocal done
        report(f"{c.name}, seed {what['seed']}", done, count)
        what["splits"] = (what.pop("split"),)
        (row,) = book.find_or_run(federation, at, c, **what)
        done += 1
        return row

    for seed in seeds:
        federation, at = load(seed), setting
        if trials:
            at = tuned_l2(once, federation, setting, candidates[0], seed)
        for candidate in candidates:
            chosen: Parameters = candidate.trials(1, seed)[0]
            if trials:
                tried = [
                    once(
                        federation,
                        at,
                        candidate,
                        parameters=p,
                        seed=seed,
                        split="validation",
                    )
                    for p in candidate.trials(trials, seed)
                ]
                chosen = best(tried).parameters
            once(federation, at, candidate, parameters=chosen, seed=seed, split="test")
    rows = book.rows
    if rows and all(row.reason for row in rows if row.split == "test"):
        raise NotMetError(f"every trial failed; the first: {rows[0].reason}")
    return Comparison(rows)


def tuned_l2(
    once: Callable[..., Row],
    federation: Federation,
    setting: Setting,
    first: Candidate,
    seed: int,
) -> Setting:
    """Choose l2 on validation with the first method (FedAvg)."""
    model = setting.model
    if not isinstance(model, LinearModel):
        return setting
    settings = [replace(setting, model=replace(model, l2=l2)) for l2 in L2_GRID]
    rows = [
        once(
            federation,
            at,
            first,
            parameters={"l2": l2},
            seed=seed,
            split="validation",
        )
        for at, l2 in zip(settings, L2_GRID, strict=True)
    ]
    return settings[rows.index(best(rows))]


def best(rows: Sequence[Row]) -> Row:
    """Return the row with the smallest worst-cell loss; failed ones come last."""

    def loss(row: Row) -> float:
        value = row.measures.get("worst_cell_loss")
        return float("inf") if value is None else value

    return min(rows, key=loss)


class Book:
    """Finished rows; with a folder, kept in ``rows.jsonl`` and not run again."""

    def __init__(self, folder: Path | None) -> None:
        self.journal = Journal(None if folder is None else folder / "rows.jsonl")
        self.asked: dict[str, None] = {}

    @property
    def rows(self) -> tuple[Row, ...]:
        """Rows of this comparison, in the order in which they were asked for."""
        return tuple(Row(**self.journal[key]) for key in self.asked)

    def find_or_run(
        self,
        federation: Federation,
        setting: Setting,
        candidate: Candidate,
        *,
        parameters: Parameters,
        seed: int,
        splits: Sequence[str] = ("test",),
    ) -> list[Row]:
        """Return the rows if they are there, and train otherwise, once for all."""
        keys = [
            key_of(
                federation.fingerprint,
                candidate.name,
                dict(setting.model.describe()),
                dict(setting.constraint.describe()),
                setting.options.weighting,
                setting.budget,
                seed,
                split,
                dict(parameters),
            )
            for split in splits
        ]
        self.asked |= dict.fromkeys(keys)
        if any(k not in self.journal or self.journal[k]["reason"] for k in keys):
            rows = trial(
                setting, federation, candidate, parameters, seed=seed, splits=splits
            )
            for key, row in zip(keys, rows, strict=True):
                self.journal.put(key, row.as_dict())
        return [Row(**self.journal[key]) for key in keys]
