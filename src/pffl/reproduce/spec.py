"""A figure to reproduce, as its spec file describes it.

``reproduction/<figure>/spec.toml`` holds the claim of the paper, the data, and the
curves: methods with the values that are swept. The files are shipped with the package.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from pffl.errors import ArtefactError, UsageError

FIGURES = ("local-vs-global", "tradeoff", "parity", "fedminmax", "qffl")


@dataclass(frozen=True)
class Curve:
    """One method with the values that are swept.

    Attributes
    ----------
    label, method
        What to call it, and its name in `METHODS`.
    bounds
        Bounds to try, in the panel's notion; empty where the method has none.
    grid
        Parameters to try, every combination.
    """

    label: str
    method: str
    bounds: tuple[float, ...]
    grid: Mapping[str, tuple[Any, ...]]

    def points(self, fallback: float) -> list[tuple[float, dict[str, Any]]]:
        """Return every (bound, parameters) of the curve."""
        names = list(self.grid)
        combinations = itertools.product(*(self.grid[name] for name in names))
        return [
            (bound, dict(zip(names, values, strict=True)))
            for values in combinations
            for bound in (self.bounds or (fallback,))
        ]


@dataclass(frozen=True)
class Claim:
    """What the paper says, made checkable.

    Attributes
    ----------
    text
        The claim in words.
    better, others
        Label of the curve that should win, and of those it is compared with.
    measure
        The measure that should be smaller.
    within
        How much more error than the best curve's is allowed when a point is chosen.
    """

    text: str
    better: str
    others: tuple[str, ...]
    measure: str
    within: float


@dataclass(frozen=True)
class Panel:
    """One plot: data, notion and curves.

    `budget` is of this panel alone: gradients per silo, where the figure's would take
    too long. `model` is the section of a network; by default what the labels ask for.
    """

    name: str
    data: Mapping[str, Any]
    notion: str
    fallback: float
    measures: tuple[str, ...]
    curves: tuple[Curve, ...]
    claims: tuple[Claim, ...]
    budget: int | None = None
    model: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Figure:
    """A figure of the paper."""

    name: str
    seeds: int
    budget: int
    panels: tuple[Panel, ...]


def load(figure: str, path: Path | None = None) -> Figure:
    """Read the spec of a figure, the shipped one unless a file is given."""
    if figure not in FIGURES and path is None:
        raise UsageError(f"no figure '{figure}': there are {', '.join(FIGURES)}")
    text = (path or spec_path(figure)).read_text("utf-8")
    try:
        return parse(figure, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"spec of '{figure}': {error!r}") from error


def spec_path(figure: str) -> Path:
    """Where the shipped spec lies: in the package, or in the source tree."""
    packaged = Path(str(files("pffl.reproduce"))) / "specs" / figure / "spec.toml"
    if packaged.is_file():
        return packaged
    source = Path(__file__).parents[3] / "reproduction" / figure / "spec.toml"
    if not source.is_file():
        raise ArtefactError(f"the spec of '{figure}' was not shipped")
    return source


def parse(name: str, table: Mapping[str, Any]) -> Figure:
    """Build the figure from its file."""
    panels = tuple(
        Panel(
            panel["name"],
            panel["data"],
            panel["notion"],
            float(panel["fallback_bound"]),
            tuple(panel["measures"]),
            tuple(_curve(c) for c in panel["curve"]),
            tuple(_claim(c) for c in panel["claim"]),
            panel.get("budget"),
            panel.get("model"),
        )
        for panel in table["panel"]
    )
    return Figure(name, int(table["seeds"]), int(table["budget"]), panels)


def _curve(table: Mapping[str, Any]) -> Curve:
    grid = {name: _tuple(value) for name, value in table.get("grid", {}).items()}
    return Curve(table["label"], table["method"], _tuple(table.get("bounds", [])), grid)


def _claim(table: Mapping[str, Any]) -> Claim:
    return Claim(
        table["text"],
        table["better"],
        tuple(table["than"]),
        table["measure"],
        float(table["within_error"]),
    )


def _tuple(value: Any) -> tuple[Any, ...]:
    return (
        tuple(value)
        if isinstance(value, Sequence) and not isinstance(value, str)
        else (value,)
    )
