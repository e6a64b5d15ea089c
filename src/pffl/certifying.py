"""`certify`: measure a model again, on other rows, at another confidence, for one cell.

What a run measured is in its evidence already: a certificate at another confidence asks
nothing. Rows are needed for other splits, other data, or the bound of a single cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pffl._solve import open_engine, setting_of
from pffl.bounds.checks import positive, probability, whole
from pffl.constraints import EVERY_SILO, Cells, find_cell
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.driver import drive
from pffl.engines.base import Engine
from pffl.errors import DataError, UsageError
from pffl.evidence.certificate import Certificate
from pffl.evidence.conclude import conclude
from pffl.evidence.looks import Looks
from pffl.evidence.measure import Known, Wanted, evidence_of, measure
from pffl.evidence.record import Data, Declared, Evidence, Least, Missing, known
from pffl.models.base import Model
from pffl.models.predictor import Predictor
from pffl.prepare import count, deviations, sizes_of, stored_of, task_of
from pffl.problem import Point, Problem
from pffl.typing import FloatArray


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of a certificate; None leaves what the run declared.

    Attributes
    ----------
    confidence, candidates, target_gap, weight_bound
        As in `evidence.Terms`.
    splits
        The splits whose rows stand for unseen people; their sums are added.
    cell
        A cell whose smallest attainable bound is wanted, the others' bounds kept.
    """

    confidence: float | None = None
    candidates: int | None = None
    splits: tuple[str, ...] | None = None
    target_gap: float | None = None
    weight_bound: float | None = None
    cell: str | None = None

    def __post_init__(self) -> None:
        if self.confidence is not None:
            probability("confidence", self.confidence)
        if self.candidates is not None:
            whole("candidates", self.candidates, least=1)
        for name in ("target_gap", "weight_bound"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))

    def terms(self, terms: Declared) -> Declared:
        """Return the terms with what was asked for."""
        names = ("confidence", "candidates", "target_gap", "weight_bound")
        asked = {name: getattr(self, name) for name in names}
        return replace(terms, **{k: v for k, v in asked.items() if v is not None})

    @property
    def needs_rows(self) -> bool:
        """Whether it takes more than the sums that evidence holds."""
        more = (self.splits, self.cell, self.weight_bound)
        return any(part is not None for part in more)


class Certifiable(Protocol):
    """A model and what was measured of it: a `Solution`, or a run directory."""

    @property
    def evidence(self) -> Evidence:
        """All that was declared and measured."""

    @property
    def looks(self) -> Looks:
        """The looks at held-out rows that are known."""

    @property
    def model(self) -> Model:
        """The model, bound to its schema and scaling."""

    @property
    def w(self) -> FloatArray:
        """Its parameters."""

    @property
    def multipliers(self) -> FloatArray:
        """λ of each cell."""


def certify(
    solution: Certifiable,
    federation: Federation | Engine | None = None,
    *,
    confidence: float | None = None,
    candidates: int | None = None,
    split: str | None = None,
    target_gap: float | None = None,
    weight_bound: float | None = None,
    cell: str | None = None,
) -> Certificate:
    """Say what holds for a model: on the training rows, for unseen people, at best.

    A number is stated only where its assumptions hold; otherwise the statement says
    "not available" and why. Without further wishes it is ``solution.certificate``.

    Parameters
    ----------
    solution
        What `solve` returned, or a run directory that `pffl.runs.load` has read.
    federation
        The silos, or an engine that reaches them, where something new is to be
        measured. Other data than the model was trained on are measured, too, and
        labelled "other data".
    confidence
        1 − δ of the statements on unseen people. Default: as the run declared.
    candidates
        How many models were compared on the held-out rows before this one was chosen,
        all fixed before the first look: δ is shared among them. What the folder of a
        run directory counts need not be said.
    split
        The rows that stand for unseen people.
    target_gap
        A duality gap to judge by.
    weight_bound
        What no row's weight is above, seen or unseen, where rows have weights.
    cell
        A cell whose smallest attainable bound is wanted, the others' bounds kept.

    Returns
    -------
    Certificate
        Every claim with its grounds.

    Raises
    ------
    UsageError
        Something new is wanted, and there are no silos to measure it on; or a cell, a
        split or a confidence is not one.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0)
    >>> told = pffl.certify(solution, people, cell="m")
    >>> told.of_kind("attainable")[-1].text
    "The smallest bound that 'm' can meet while the others keep theirs lies between ...
    """
    if isinstance(solution, Predictor):
        raise UsageError(
            "[no-evidence] a predictor alone has no evidence: pffl.runs.read_run(DIR) "
            "reads all of a run"
        )
    request = Request(
        confidence=confidence,
        candidates=candidates,
        splits=None if split is None else (split,),
        target_gap=target_gap,
        weight_bound=weight_bound,
        cell=cell,
    )
    engine = None if federation is None else open_engine(federation, "local")
    found = solution.looks.counted(examine(solution, engine, request))
    return conclude(found).certificate


def examine(solution: Certifiable, engine: Engine | None, request: Request) -> Evidence:
    """Return the evidence for a request: the same sums, or measured on these rows."""
    evidence = solution.evidence
    if evidence.noise is not None and (engine or request.needs_rows):
        raise UsageError(
            "[not-under-noise] the run has a privacy budget, and new figures of its "
            "rows would be outside of it: not available under noise"
        )
    terms = request.terms(evidence.terms)
    prints = None if engine is None else setting_of(engine).data.fingerprint
    same = engine is None or (
        prints is not None and prints == evidence.data.fingerprint
    )
    if same and not request.needs_rows:
        return replace(evidence, terms=terms)
    if engine is None:
        raise UsageError(
            "[needs-data] this asks for more than the run measured: give the data, too"
        )
    require_schema(engine, evidence.data.schema)
    if terms.counted and (request.splits is not None or not same):
        # What the folder counted was of the run's own rows.
        many = request.candidates or 1
        terms = replace(terms, candidates=many, counted=False, later=0, others=0)
    setting = setting_of(engine)
    held = known(evidence.heldout)
    heldout = request.splits or (("test",) if held is None else tuple(held.splits))
    names = evidence.names
    absent = [s for s in heldout if s not in engine.splits and s != "test"]
    if absent:
        raise UsageError(
            f"[unknown-split] no split '{absent[0]}': there are {list(engine.splits)}"
        )
    if request.cell is not None:
        place = find_cell(request.cell, names)
        if place is None:
            raise UsageError(
                f"[unknown-cell] no cell '{request.cell}': there are {list(names)}"
            )
        request = replace(request, cell=names[place])
    cells = Cells.none(engine.schema)
    if evidence.promise or evidence.minimax:
        cells = cells_of(evidence, engine.schema, engine.silo_names)
    here = problem_of(engine, evidence, solution.model, cells)
    if empty := [cells.names[z] for z in np.flatnonzero(here.counts == 0)]:
        raise DataError(
            f"[empty-cells] no training rows in any silo for {', '.join(empty)}"
        )
    point = Point(solution.w, solution.multipliers)
    wanted = Wanted(
        engine.splits,
        heldout=heldout,
        loss_bound=terms.loss_bound,
        weighted=setting.data.weighted,
        weight_bound=terms.weight_bound,
        confidence=terms.confidence,
        baseline=False,
        cells=() if request.cell is None or not evidence.promise else (request.cell,),
    )
    proved, known_parts = evidence.proofs, Known()
    if same:  # what the run proved of these rows stands
        pair = known(proved.gap)
        least, excess = known(proved.least), known(proved.excess)
        known_parts = Known(gap=pair, least=least, excess=excess)
    measured = drive(engine, measure(here, point, wanted, known_parts))
    recorded = evidence.data.trained_on
    data = replace(
        setting.data,
        trained_on=recorded,
        overlap=overlap_of(engine.federation, heldout, recorded),
    )
    proofs = measured.proofs
    if request.cell is not None and not evidence.promise:
        none: list[float] = []
        nothing = Least(0.0, None, none, none, none, 0.0, 0.0, 0.0, none)
        nothing = replace(nothing, cell=request.cell)
        proofs = replace(proofs, lowest=[nothing])
    found = evidence_of(
        data,
        here,
        point,
        replace(
            measured,
            proofs=proofs,
            before=evidence.before if same else Missing("not asked for"),
        ),
        terms,
        training=evidence.training,
        promise=evidence.promise,
        minimax=evidence.minimax,
        notes=evidence.notes,
        aimed=evidence.aimed if same and evidence.promise else None,
    )
    if same and request.splits is None:
        return replace(found, path=evidence.path)
    many = chosen_among(evidence, setting.data, heldout)
    if many == 1:
        return found
    terms = replace(terms, candidates=terms.candidates * many)
    return replace(found, terms=terms)


def chosen_among(evidence: Evidence, data: Data, splits: Sequence[str]) -> int:
    """Return among how many models some of these rows chose the one of a run.

    Whatever else is said of it by the same rows has to pay for that.
    """
    path = known(evidence.path)
    if path is None:
        return 1
    then, now = evidence.data.splits.get(path.split), [*map(data.splits.get, splits)]
    same = then in now
    if then is None or None in now:  # rows out of reach: known by their name
        same = path.split in splits
    return len(path.candidates) if same else 1


def overlap_of(
    here: Federation | None, splits: Sequence[str], recorded: str | None
) -> int | None:
    """Rows of the splits that were trained on; None if nobody can know."""
    if here is None or (recorded is not None and recorded != here.fingerprint):
        return None
    found = 0
    for split in splits:
        if split == "train":
            found += here.rows("train")
        elif split == "test":
            found += here.overlap
        elif split in here.splits:
            found += here.repeated(split)
    return found


def require_schema(engine: Engine, known: str) -> None:
    """Refuse rows with other inputs, groups or labels than the model knows."""
    if engine.schema.hash != known:
        raise DataError(
            "[other-schema] these data have other inputs, groups or labels than the "
            f"model was trained with (schema {engine.schema.hash[:12]}, not "
            f"{known[:12]}): it says nothing about them"
        )


def problem_of(
    engine: Engine, evidence: Evidence, model: Model, cells: Cells
) -> Problem:
    """Return the problem that evidence is of, on the rows of these silos."""
    schema, terms, run = engine.schema, evidence.terms, evidence.training
    counted = drive(engine, count(schema))
    census = counted.census
    counts, access = cells.totals(census.weights), setting_of(engine).access
    return Problem(
        task_of(model, cells, census, terms.weighting, access),
        schema,
        engine.silo_names,
        counts,
        census.counts,
        census.weights,
        census.weight,
        deviations(counted),
        *sizes_of(counted, model),
        terms.risk_weight,
        terms.multiplier_bound,
        terms.radius,
        0 if isinstance(run, Missing) else run.seed,
        terms.fixed_ball,
        stored=stored_of(census),
        access=access,
    )


def cells_of(evidence: Evidence, schema: Schema, silos: Sequence[str]) -> Cells:
    """Return the cells of a run, for silos that have the same schema."""
    confined = [cell.silo for cell in evidence.cells if cell.silo is not None]
    absent = [silo for silo in confined if silo not in silos]
    if absent:
        raise DataError(
            "[other-silos] the cells are silos, and these data have other silos: "
            f"{list(silos)[:5]}, not {absent[:5]}"
        )
    labels: tuple[str | None, ...] = schema.labels or (None,)
    atoms = [(group, label) for group in schema.groups for label in labels]
    return Cells(
        evidence.names,
        evidence.bounds,
        np.array([[atom in cell.of for atom in atoms] for cell in evidence.cells]),
        np.array(
            [
                EVERY_SILO if cell.silo is None else silos.index(cell.silo)
                for cell in evidence.cells
            ]
        ),
    )
