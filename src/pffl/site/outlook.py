"""What the agreed run will ask of a site, and what its rows can bear of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pffl.constraints.base import Cells
from pffl.errors import UsageError
from pffl.methods.auto import EXACT_ASKED, FIRST_ROUNDS, Auto, hessians_fit
from pffl.methods.base import Method
from pffl.methods.exact import Exact
from pffl.methods.first_order import FirstOrder
from pffl.models import Inputs
from pffl.noisy.running import planned
from pffl.preparation import Setting
from pffl.privacy.accounting import composed, epsilon_of
from pffl.problem import Access
from pffl.questions import Curvature, Evaluate, Question, Slopes, Task, Train
from pffl.questions.released import Atoms, Charges, bears, charges_of, summed, told_by
from pffl.sections import Plan
from pffl.site.agreement import Agreement
from pffl.site.answer import Site
from pffl.site.follow import plan_of
from pffl.typing import BoolArray, FloatArray

FIRST_ASKED = 35  # gradients that FirstOrder asks for, with its proofs, as a rule
EITHER = "exact, or by first-order where the rows of all sites do not bear Hessians"
BETS = 9  # of a cell of held-out rows, as a rule


@dataclass(frozen=True)
class Line:
    """What left about a set of rows, what a run would add, and what may leave.

    Attributes
    ----------
    split, rows
        Which rows, in words.
    told, more
        Numbers that left in all runs so far, and that a run tells as a rule.
    room
        Numbers that may leave in all; None where it is up to the rows of other sites.
    needed
        Rows that both need.
    """

    split: str
    rows: str
    told: int
    more: int
    room: int | None
    needed: int


@dataclass(frozen=True)
class Outlook:
    """What is ahead of a site.

    Attributes
    ----------
    method, asked
        How the run trains, and how many questions it asks of training rows as a rule.
    most
        How many questions of a model are answered in a run at most.
    lines
        One for each set of rows that is told of.
    """

    method: str
    asked: int
    most: int
    lines: tuple[Line, ...]

    @classmethod
    def of(cls, site: Site, agreed: Agreement) -> Outlook:
        """Look at what was agreed on, and at the account of the rows."""
        if not agreed.run:
            raise UsageError(
                "no run was agreed on in federation.json: pffl deploy writes one"
            )
        plan, schema = plan_of(agreed), site.schema
        inputs = Inputs(np.zeros(schema.n_features), np.ones(schema.n_features))
        none = Cells.none(schema)
        cells = plan.constraint.cells(schema, agreed.sites) if plan.constraint else none
        model = plan.model_for(schema).bind(schema, inputs)
        task = Task(model, cells, np.ones(len(agreed.sites)))
        shown = {split: site.shown(split) for split in site.silo.splits}
        own = site.ledger.room("train", shown["train"])
        room = None if agreed.secure_sum else own
        name, asked = _asked(plan.method, task, shown["train"] > 0, room)
        runs = {"train": asked, "test": _measured(task, "test")}
        spent = site.ledger.read().spent
        lines: list[Line] = []
        for split in shown:
            there = shown[split] > 0
            more = charges_of(
                summed(told_by(question, there) for question in runs.get(split, []))
            )
            told = charges_of(spent.get(split, {}))
            per_row = site.ledger.per_row(split)
            free = site.ledger.room(split, shown[split])
            for atoms in sorted({*told, *more}, key=lambda one: (-len(one), one)):
                both = (_within(told, atoms), _within(more, atoms))
                lines.append(
                    Line(
                        split,
                        schema.set_name(atoms),
                        *both,
                        None if agreed.secure_sum else int(free[list(atoms)].sum()),
                        int(np.ceil(sum(both) / per_row)) if per_row else 0,
                    )
                )
        return cls(name, len(asked), site.rules.questions, tuple(lines))


@dataclass(frozen=True)
class NoiseOutlook:
    """What a run with noise will release, and what that costs each site's people.

    Attributes
    ----------
    lines
        The releases in words.
    mu
        μ of all of them, training and held-out rows together, as accounts add up.
    """

    lines: tuple[str, ...]
    mu: float

    @classmethod
    def of(cls, plan: Plan, agreed: Agreement) -> NoiseOutlook | None:
        """Plan an agreed run, or one to be agreed on; None where it has no noise.

        Refuse what is not available under noise, or not between machines.
        """
        terms, many = plan.privacy.terms, len(agreed.sites)
        if terms is None:
            return None
        if terms.repeatable or terms.split == "keyed":
            raise UsageError(
                "[privacy] noise_seed and split = 'keyed' are for rows that are at "
                "hand: sites draw their noise in secret, and cut their own rows"
            )
        setting = Setting.pooled(agreed.name, agreed.encoding, agreed.splits, many)
        model = plan.model_for(agreed.schema)
        noise, _ = planned(
            setting, plan.constraint, model, plan.method, plan.options, terms
        )
        return cls(
            tuple(noise.lines()), composed([noise.mu("train"), noise.mu("test")])
        )

    def cost(self, delta: float, spent: float = 0.0) -> float:
        """Return ε of an account with Σμ² = `spent`, and the run."""
        return epsilon_of(math.sqrt(self.mu**2 + spent), delta)


def _asked(
    method: Method[Any], task: Task, there: BoolArray, room: FloatArray | None
) -> tuple[str, list[Question[Any]]]:
    """Return the method that a run takes, and about what it asks of training rows."""
    w = np.zeros(task.model.n_parameters)
    seen = _measured(task, "train")
    exact = [*[Curvature(task, w)] * EXACT_ASKED, *seen]
    first = [*[Slopes(task, w)] * FIRST_ASKED, Curvature(task, w), *seen]
    if isinstance(method, Auto):
        told = charges_of(summed(told_by(question, there) for question in exact))
        cheap, _ = hessians_fit(
            len(w), len(task.cells), entries=0, access=Access(elsewhere=True)
        )
        if cheap and room is None:
            return EITHER, exact
        borne = room is None or bears(told, room)
        method = Exact() if cheap and borne else FirstOrder()
    if isinstance(method, Exact):
        return method.name, exact
    if isinstance(method, FirstOrder):
        return method.name, first
    rounds = method.planned_rounds or method.most_rounds or FIRST_ROUNDS
    weights = np.zeros(len(task.cells))
    train = Train(task, w, 1.0, weights, np.ones(1))
    return method.name, [*[train] * rounds, *seen]


def _measured(task: Task, split: str) -> list[Question[Any]]:
    """Return what is measured of the model at the end, and of one without bounds."""
    w, cells = np.zeros(task.model.n_parameters), len(task.cells)
    if split == "train" or not task.model.n_classes:
        return [Evaluate(task, w, split)] * 2
    bets = np.full((cells, BETS), 0.5)
    bound = task.model.loss_bound(5.0)
    with_bets = Evaluate(task, w, split, bound or np.inf, bets=bets)
    return [with_bets, Evaluate(task, w, split)]


def _within(charges: Mapping[Atoms, int] | Charges, atoms: Atoms) -> int:
    inside = set(atoms)
    return sum(many for one, many in charges.items() if inside.issuperset(one))
