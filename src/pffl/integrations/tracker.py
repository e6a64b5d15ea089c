"""What every tracker is told: numbers of each round, the outcome, and files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl.callbacks import Callback, Round
from pffl.errors import MissingExtraError, UsageError
from pffl.evidence import summary
from pffl.files import json_text
from pffl.problem import Problem
from pffl.reports.card import card, seal
from pffl.reports.page import report
from pffl.runs.directory import CARD, CERTIFICATE, MODEL, REPORT

if TYPE_CHECKING:
    from pffl.solution import Solution

LONGEST = 100  # of a name
MEASURES = ("risk", "error", "worst_cell_loss", "worst_group_loss", "dp_gap", "eo_gap")


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes
    ----------
    settings
        What it was set to: method, constraint, model, seed, data.
    numbers
        Gap, rounds, and risk, error and fairness gaps of each split.
    words
        Status and the three verdicts, and hashes of model and certificate.
    """

    settings: Mapping[str, str]
    numbers: Mapping[str, float]
    words: Mapping[str, str]


class Tracker(Callback):
    """A callback that hands on what it is told; a tracker fills in two methods."""

    def record(self, numbers: Mapping[str, float], step: int) -> None:
        """Take the numbers of a round."""
        raise NotImplementedError

    def conclude(self, outcome: Outcome, folder: Path) -> None:
        """Take the outcome, and a folder: certificate, card, page and model."""
        raise NotImplementedError

    def after_round(self, problem: Problem, row: Round) -> bool:
        """Hand on a round."""
        self.record(numbers_of(problem, row), row.number)
        return False

    def solved(self, solution: Solution) -> None:
        """Hand on the outcome."""
        with TemporaryDirectory() as place:
            write_files(solution, Path(place))
            self.conclude(outcome_of(solution), Path(place))


def required(package: str) -> Any:
    """Import a tracker's package, or say how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        root = package.partition(".")[0]
        raise UsageError(
            f"this tracker needs the package {root}: pip install {root}"
        ) from error


def numbers_of(problem: Problem, row: Round) -> dict[str, float]:
    """Return risk, worst violation, gap, and each cell's loss and λ, where known."""
    cells, names = problem.cells, keys(problem.cells.names)
    known = row.violation[np.isfinite(row.violation)]
    found = {"risk": row.risk, "gap": math.nan if row.gap is None else row.gap}
    if len(known):
        found["worst_violation"] = float(known.max())
    for name, excess, bound, multiplier in zip(
        names, row.violation, cells.bounds, row.multipliers, strict=True
    ):
        found[f"loss/{name}"] = float(excess + bound)
        found[f"multiplier/{name}"] = float(multiplier)
    return {key: number for key, number in found.items() if math.isfinite(number)}


def outcome_of(solution: Solution) -> Outcome:
    """Return how a run ended, in plain form."""
    e, measured = solution.evidence, {"train": solution.train, "test": solution.test}
    numbers = {"gap": solution.gap, "rounds": float(solution.rounds)}
    for split, metrics in measured.items():
        for name in MEASURES if metrics is not None else ():
            numbers[f"{split}/{name}"] = getattr(metrics, name)
    words = {"status": solution.status, "message": solution.message}
    for one in summary.verdicts(e):
        words[one.title] = one.word
    words["model_fingerprint"] = e.model.fingerprint
    if solution.status != "interrupted":
        words["certificate_sha256"] = seal(solution.certificate)
    return Outcome(
        dict(_settings(solution)),
        {k: v for k, v in numbers.items() if v is not None and math.isfinite(v)},
        words,
    )


def _settings(solution: Solution) -> Iterator[tuple[str, str]]:
    yield "data", solution.data.name
    yield "seed", str(solution.seed)
    parts = {
        "method": solution.method,
        "constraint": solution.constraint,
        "model": solution.evidence.model.described,
    }
    for part, plain in parts.items():
        for key, value in plain.items():
            yield f"{part}.{key}", str(value)


def write_files(solution: Solution, folder: Path) -> None:
    """Write certificate, card, model and, where it can be made, the page.

    A run that was interrupted has no certificate.
    """
    if solution.status != "interrupted":
        certificate = json_text(solution.certificate.as_dict())
        (folder / CERTIFICATE).write_text(certificate, "utf-8")
    card(solution, out=folder / CARD)
    solution.save(folder / MODEL)
    with suppress(MissingExtraError):
        report(solution, out=folder / REPORT)


def keys(names: Sequence[str]) -> list[str]:
    """Return names that every tracker takes as part of a key, all different.

    >>> keys(["Female, yes", "Female; yes", "../x"])
    ['Female_ yes', 'Female_ yes_2', '_x']
    """
    out: list[str] = []
    for name in names:
        plain = re.sub(r"[^\w\- .]", "_", name)[:LONGEST].strip(" .") or "_"
        twin, number = plain, 2
        while twin in out:
            twin, number = f"{plain}_{number}", number + 1
        out.append(twin)
    return out
