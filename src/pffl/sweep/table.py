"""The rows of a sweep: a table, its Pareto front, and the best of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pffl.errors import DataError, UsageError
from pffl.pareto import front

if TYPE_CHECKING:
    import pandas as pd

AXES = {
    "error": "error",
    "worst_loss": "worst_cell_loss",
    "worst_group_loss": "worst_group_loss",
    "risk": "risk",
    "dp_gap": "dp_gap",
    "eo_gap": "eo_gap",
}


@dataclass(frozen=True)
class Sweep:
    """All points of a sweep.

    Attributes
    ----------
    rows
        One plain mapping per point; failed ones have a ``reason``.
    data, synthetic
        Which data, and whether they were generated.
    """

    rows: tuple[Mapping[str, Any], ...]
    data: str = "data"
    synthetic: bool = False

    @cached_property
    def table(self) -> pd.DataFrame:
        """One line per point; per-cell figures are in `rows`."""
        import pandas as pd

        plain = [{k: v for k, v in row.items() if k != "cells"} for row in self.rows]
        return pd.DataFrame(plain)

    @property
    def trained(self) -> pd.DataFrame:
        """Points with a model."""
        table = self.table
        return table[table["reason"].isna() & table["status"].notna()]

    def front(
        self,
        *,
        x: str = "error",
        y: str = "worst_loss",
        notion: str | None = None,
        chosen_on: str | None = None,
    ) -> pd.DataFrame:
        """Points that no other beats in both measures.

        Parameters
        ----------
        x, y
            Measures: error, worst_loss (of the notion's cells), worst_group_loss, risk,
            dp_gap or eo_gap; smaller is better.
        notion
            Only points of this notion; to be given where there are several, because
            their cells differ.
        chosen_on
            Split on which the front is chosen: by default ``validation`` where there is
            one. The paper chooses it on ``test``, which flatters what it reports.
        """
        table, split = self._points(notion), self._choice(chosen_on)
        columns = [f"{split}_{_axis(name)}" for name in (x, y)]
        values = table[columns].to_numpy(dtype=float)
        return table[front(values)].sort_values(columns[0])

    def best(
        self,
        *,
        error_at_most: float | None = None,
        worst_loss_at_most: float | None = None,
        notion: str | None = None,
        chosen_on: str | None = None,
    ) -> pd.Series:
        """Return the fairest point within an error, or the most accurate within a loss.

        Chosen on the validation split where there is one; its test figures are then
        free of the choice.
        """
        if (error_at_most is None) == (worst_loss_at_most is None):
            raise UsageError(
                "give 'error_at_most' or 'worst_loss_at_most', one of them"
            )
        table, split = self._points(notion), self._choice(chosen_on)
        error, worst = f"{split}_error", f"{split}_worst_cell_loss"
        limited, wanted, limit = (
            (error, worst, error_at_most)
            if error_at_most is not None
            else (worst, error, worst_loss_at_most)
        )
        inside = table[table[limited] <= limit]
        if inside.empty:
            raise DataError(
                f"no point has {limited} ≤ {limit}: the smallest is "
                f"{table[limited].min():.4f}"
            )
        return inside.iloc[int(inside[wanted].to_numpy(dtype=float).argmin())]

    def _repr_html_(self) -> str:
        """Show every notion's front in a notebook; every text is escaped."""
        from pffl.certificates._render import element

        good = [row for row in self.rows if row["reason"] is None]
        failed = len(self.rows) - len(good)
        texts = [
            f"{len(good):,} points trained" + f", {failed:,} failed" * bool(failed)
        ]
        if not good:
            return element("sweep", f"Sweep: {self.data}", texts)
        chosen = self._choice(None)
        texts.append(f"Pareto fronts, chosen on {chosen} rows:")
        measured = "test" if self._has("test") else chosen
        keys = ["notion", "bound", "multiplier_bound", "status"]
        keys += [f"{measured}_{name}" for name in ("error", "worst_cell_loss")]
        keys += [f"{measured}_{name}" for name in ("dp_gap", "eo_gap")]
        fronts = [
            {key: row[key] for key in keys}
            for notion in dict.fromkeys(str(row["notion"]) for row in good)
            for row in self.front(notion=notion).to_dict("records")
        ]
        return element("sweep", f"Sweep: {self.data}", texts, fronts)

    def _points(self, notion: str | None) -> pd.DataFrame:
        table = self.trained
        notions = sorted(table["notion"].unique())
        if notion is None and len(notions) > 1:
            raise UsageError(f"the cells of notions differ: choose one of {notions}")
        table = table if notion is None else table[table["notion"] == notion]
        if table.empty:
            raise DataError("the sweep has no trained points of this kind")
        return table

    def _choice(self, chosen_on: str | None) -> str:
        splits = [s for s in ("validation", "test", "train") if self._has(s)]
        if chosen_on is None:
            return splits[0]
        if chosen_on not in splits:
            raise UsageError(f"no split '{chosen_on}': there are {splits}")
        return chosen_on

    def _has(self, split: str) -> bool:
        return f"{split}_error" in self.table.columns


def _axis(name: str) -> str:
    if name not in AXES:
        raise UsageError(f"no measure '{name}': there are {sorted(AXES)}")
    return AXES[name]
