"""What is watched: a model in use, its cells and bounds, and all that is settled.

Everything is settled before the first row is seen, and stays: cells, bounds, confidence
and bets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from pffl import files
from pffl._audit import Audit
from pffl.bounds import alarm
from pffl.bounds.checks import positive
from pffl.bounds.mean import MOMENTS, Moments
from pffl.constraints import (
    AUTO,
    EVERY_SILO,
    Bound,
    BoundedGroupLoss,
    Cells,
    ConditionalBoundedGroupLoss,
    Constraint,
)
from pffl.data.schema import Schema
from pffl.errors import ArtefactError, DataError, PFFLError, UsageError
from pffl.evidence.monitor import STATE, Settings, Watched
from pffl.evidence.record import Evidence, Training, known
from pffl.models.predictor import Predictor
from pffl.runs import EVIDENCE, MODEL, SavedRun, load, read_evidence
from pffl.solution import Solution
from pffl.typing import FloatArray

CONFIDENCE = 0.95


def run_of(model: Path) -> Path | None:
    """Return the run directory that a path is, or that the file of a model is in."""
    folder = model if model.is_dir() else model.parent
    inside = model.name == MODEL and (folder / EVIDENCE).is_file()
    return folder if model.is_dir() or inside else None


def default_state(model: Path) -> Path:
    """Return where the state of a model lies: in its run directory, or beside it."""
    folder = run_of(model)
    return model.with_suffix(".monitor.jsonl") if folder is None else folder / STATE


@dataclass(frozen=True, eq=False)
class Deployed:
    """A model that is in use: what was shipped, and what is known of its training."""

    predictor: Predictor
    evidence: Evidence | None = None

    @classmethod
    def of(cls, model: object) -> Deployed:
        """Return a model that was solved for, audited or saved."""
        match model:
            case Deployed():
                return model
            case Solution() | Audit() | SavedRun():
                return cls(model.predictor, model.evidence)
            case Predictor():
                return cls(model)
            case str() | os.PathLike():
                return cls._read(Path(model))
        raise UsageError(
            f"[not-a-model] a {type(model).__name__} cannot be monitored: give a "
            "solution, an audit, a predictor, or the path of one"
        )

    @classmethod
    def _read(cls, path: Path) -> Deployed:
        """Read a run directory, or a file; evidence beside it tells more."""
        predictor, folder = load(path), run_of(path)
        if folder is not None:
            evidence = read_evidence(folder)
            own = predictor.model.fingerprint(predictor.w)
            if evidence.model.fingerprint == own:
                return cls(predictor, evidence)
        return cls(predictor)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the predictor: of the model, and of its limits."""
        own = self.predictor.model.fingerprint(self.predictor.w)
        return files.digest(own, repr(self.loss_bound))

    @property
    def loss_bound(self) -> float:
        """M of the predictor that is in use; infinite where it has none."""
        M = self.predictor.model.loss_bound(self.predictor.loss_bound)
        return np.inf if M is None else M

    @property
    def weighted(self) -> bool:
        """Whether it was trained, or measured, with weights."""
        known = self.evidence is not None and self.evidence.seen.weighted
        return known or self.predictor.preparation.weight is not None

    @property
    def watched(self) -> list[Watched]:
        """Its cells; NaN is the bound of those that have none.

        Of a file alone the names tell who belongs to a cell.
        """
        schema, e = self.predictor.schema, self.evidence
        if e is not None:
            none = not e.promise or e.minimax
            return [
                Watched(c.cell, np.nan if none else c.bound, c.silo, c.of)
                for c in e.cells
            ]
        names, bounds = self.predictor.cells, self.predictor.bounds
        for kind in (BoundedGroupLoss, ConditionalBoundedGroupLoss):
            try:
                found = kind(dict.fromkeys(names, 1.0)).cells(schema, ())
            except PFFLError:
                continue
            if set(found.names) == set(names):
                order = [names.index(name) for name in found.names]
                return watched_of(found.with_bounds(bounds[order]), schema, ())
        if names:
            raise UsageError(
                f"[unknown-cells] who belongs to the cells {list(names)[:3]} is not "
                "known from the model's file alone: give its run directory"
            )
        groups = BoundedGroupLoss(1.0).cells(schema, ())
        unknown = groups.with_bounds(np.full(len(groups), np.nan))
        return watched_of(unknown, schema, ())

    def is_trained_on(self, count: FloatArray, loss: FloatArray) -> bool:
        """Whether rows with these counts and losses, atom by atom, are its own.

        Those that it was trained on, alone or with others that its run had.
        """
        e = self.evidence
        if e is None or not isinstance(e.training, Training):
            return False
        held, path = known(e.heldout), known(e.path)
        others = [sample for sample in (held,) if sample is not None]
        others += [] if path is None else [path.shipped.calibration]
        for some in range(len(others) + 1):
            for more in combinations(others, some):
                parts = (e.seen, *more)
                rows = np.sum([part.column("count") for part in parts], axis=0)
                sums = np.sum([part.column("bounded_loss") for part in parts], axis=0)
                near = np.allclose(loss, sums, rtol=1e-9, atol=1e-9)
                if np.array_equal(count, rows) and near:
                    return True
        return False


def watched_of(cells: Cells, schema: Schema, silos: Sequence[str]) -> list[Watched]:
    """Return cells by the names of their groups, labels and silos."""
    atoms = _atoms(schema)
    return [
        Watched(
            name,
            float(cells.bounds[z]),
            None if cells.everywhere[z] else silos[cells.silo[z]],
            [atoms[a] for a in np.flatnonzero(cells.membership[z])],
        )
        for z, name in enumerate(cells.names)
    ]


def cells_of(watched: Sequence[Watched], schema: Schema, silos: Sequence[str]) -> Cells:
    """Return cells over these silos; one of a silo that is not there has no rows."""
    there = [cell.silo is None or cell.silo in silos for cell in watched]
    if not any(there):
        raise DataError(
            "[other-silos] the cells are silos, and these rows are of others: "
            f"{list(silos)[:5]}, not {[cell.silo for cell in watched][:5]}"
        )
    atoms = _atoms(schema)
    return Cells(
        tuple(cell.cell for cell in watched),
        np.array([cell.bound for cell in watched], dtype=np.float64),
        np.array(
            [
                [here and atom in cell.of for atom in atoms]
                for cell, here in zip(watched, there, strict=True)
            ]
        ),
        np.array(
            [
                silos.index(cell.silo) if cell.silo in silos else EVERY_SILO
                for cell in watched
            ]
        ),
    )


def _atoms(schema: Schema) -> list[tuple[str, str | None]]:
    labels: tuple[str | None, ...] = schema.labels or (None,)
    return [(group, label) for group in schema.groups for label in labels]


def _moments(
    e: Evidence, at: Sequence[int], cells: Sequence[Watched], s_max: float | None
) -> dict[str, FloatArray]:
    """Return the variance of the cells' training losses: bets are planned by it.

    `at` are their places among the run's cells, −1 where nothing is known. Of weighted
    rows that of t(ℓ − ζ), and the mean of t (`bounds.alarm`).
    """
    seen, M = e.seen, e.terms.loss_bound
    if s_max is None:
        return {"variance": np.append(seen.variances, np.nan)[list(at)]}
    out = {"variance": np.full(len(at), np.nan), "weight": np.ones(len(at))}
    scale = (e.terms.weight_bound or s_max) / s_max  # of t, as it was counted then
    for z, place in enumerate(at):
        if place < 0 or not seen.stakes or M is None:
            continue
        sums = np.array([seen.stakes[name][place] for name in MOMENTS])
        sums *= scale ** np.array([1, 1, 2, 2, 2])
        known = Moments.of(sums, seen.stakes["count"][place])
        if known is not None and known.t <= 1.0:
            width = known.diluted(min(cells[z].bound / M, 1.0))[1]
            out["variance"][z], out["weight"][z] = M * M * width, known.t
    return out


@dataclass(frozen=True)
class Wish:
    """What was asked to be watched; None leaves it as the model or the state has it."""

    bound: Bound = None
    constraint: Constraint | None = None
    confidence: float | None = None
    weight_bound: float | None = None

    def __post_init__(self) -> None:
        if self.bound is not None and self.constraint is not None:
            raise UsageError(
                "[bounds-mixed] give a constraint, which has its bounds, or a bound"
            )
        numbers = self.bound.values() if isinstance(self.bound, Mapping) else ()
        if AUTO in (self.bound, *numbers):
            raise UsageError(
                "[needs-bound] a bound to be watched is a number, and not 'auto'"
            )
        if self.confidence is not None:
            alarm.threshold(1, self.confidence)
        if self.weight_bound is not None:
            positive("weight_bound", self.weight_bound)

    def cells(self, deployed: Deployed, silos: Sequence[str]) -> list[Watched] | None:
        """Return the cells that were asked for; None where nobody said any."""
        schema, wanted = deployed.predictor.schema, self.constraint
        if self.bound is not None:
            BoundedGroupLoss(self.bound)  # which refuses what is no bound
            own = deployed.watched
            named = sorted({cell.silo for cell in own if cell.silo is not None})
            cells = cells_of(own, schema, named).bounded(self.bound, "monitor")
            return watched_of(cells, schema, named)
        if wanted is None:
            return None
        if wanted.minimax or wanted.open:
            raise UsageError(
                f"[needs-bound] {wanted.name} has no bound that could be crossed: "
                "give one with bounds that are numbers"
            )
        return watched_of(wanted.cells(schema, silos), schema, silos)

    def begin(self, deployed: Deployed, silos: Sequence[str]) -> Settings:
        """Settle everything, before the first row is seen."""
        own, e = deployed.watched, deployed.evidence
        asked = self.cells(deployed, silos) or own
        cells = [cell for cell in asked if np.isfinite(cell.bound)]
        if not cells:
            raise UsageError(
                "[needs-bound] the model has no bound that could be crossed: "
                "`bound=NUMBER` says which mean loss of a cell is too much"
            )
        moments, s_max = {}, self._heaviest(deployed)
        if e is not None:  # what is known of the same people
            atoms = [cell.of for cell in own]
            at = [atoms.index(c.of) if c.of in atoms else -1 for c in cells]
            moments = _moments(e, at, cells, s_max)
        bets = alarm.plan([cell.bound for cell in cells], **moments)
        return Settings(
            deployed.fingerprint,
            deployed.predictor.schema.hash,
            cells,
            [c.cell for c in own if c.cell not in {cell.cell for cell in cells}],
            CONFIDENCE if self.confidence is None else self.confidence,
            bets.gammas.tolist(),
            bets.weights.tolist(),
            s_max,
        )

    def _heaviest(self, deployed: Deployed) -> float | None:
        """Return s_max; None where rows count alike."""
        e = deployed.evidence
        if self.weight_bound is not None or not deployed.weighted:
            return self.weight_bound
        known = None if e is None else e.terms.weight_bound
        if known is None:
            raise UsageError(
                "[needs-weight-bound] the model was trained with weights, and it is "
                "not known what no weight is above: `weight_bound=NUMBER`"
            )
        return known

    def require(
        self, settings: Settings, deployed: Deployed, silos: Sequence[str]
    ) -> None:
        """Refuse a state of another model, and wishes that differ from it."""
        same = settings.model == deployed.fingerprint
        if not same or settings.schema != deployed.predictor.schema.hash:
            raise ArtefactError(
                "[other-model] the state is that of another model (fingerprint "
                f"{settings.model[:12]}, not {deployed.fingerprint[:12]}): a new "
                "model begins a new one (--state FILE)"
            )
        if self.confidence not in (None, settings.confidence):
            raise UsageError(
                f"[options-changed] a confidence of {self.confidence:g}, and the "
                f"monitor began with {settings.confidence:g}, which stays: leave it "
                "out, or begin another state"
            )
        if self.weight_bound not in (None, settings.weight_bound):
            first = settings.weight_bound
            raise UsageError(
                f"[options-changed] a weight bound of {self.weight_bound:g}, and the "
                f"monitor began with {'none' if first is None else f'{first:g}'}, "
                "which stays: leave it out, or begin another state"
            )
        if self.cells(deployed, silos) not in (None, settings.cells):
            began = ", ".join(f"{c.cell} {c.bound:g}" for c in settings.cells)
            raise UsageError(
                "[options-changed] other bounds than the monitor began with, which "
                f"stay ({began}): leave them out, or begin another state"
            )
