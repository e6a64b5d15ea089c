"""The kit of `pffl.testing`: ours pass it, and planted bugs do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest

import pffl
from pffl import testing
from pffl.constraints import CONSTRAINTS, Cells, Constraint
from pffl.methods import METHODS, FedAvg, Method
from pffl.queries import Train, TrainTotal
from pffl.testing import (
    CONSTRAINT_CHECKS,
    METHOD_CHECKS,
    KitSetting,
    PlainRows,
    check_constraint,
    check_method,
    check_optimum,
    sample_federation,
)
from tests.helpers import repartition

BUDGET = 10  # gradients per silo
SETTING = KitSetting()


def few(name: str) -> Method:
    """A method with few rounds, whoever it is from."""
    short = {"rounds_per_dual": 2, "local_steps": 2, "iterations": 6}
    kind = METHODS[name]
    known = kind.__dataclass_fields__
    return kind.within(BUDGET, **{k: v for k, v in short.items() if k in known})


#: Bounds on rates are certified, and no method trains by them.
ON_LOSSES = [name for name, kind in CONSTRAINTS.items() if kind.goal == "loss"]
#: Silos have weights or losses of their own in them.
WEIGH_SILOS = {"afl", "qffl", "fedfair", "fcfl", "fairfed", "local-bgl"}


def counts_copies_once(method, setting):
    """Silos alike are one silo, with step sizes that do not depend on them."""
    silo, steady = setting.federation.silos[0], testing._fixed(method)
    one = setting.with_silos([silo])
    copies = [replace(silo, name=f"copy {k}") for k in range(3)]
    for weighting in ("rows", "silos"):
        point = one.run(steady, weighting=weighting)
        three = setting.with_silos(copies).run(steady, weighting=weighting)
        testing._same(method, point, three, "three copies of a silo differ from one")


def ignores_the_split(method, setting):
    """With one step a round and weights by rows, who has which rows does not matter."""
    if method.name in WEIGH_SILOS:
        return
    pooled = setting.federation.pooled("train")
    steady = testing._fixed(method, local_steps=1)
    part = np.random.default_rng(1).integers(4, size=len(pooled.y))
    other = setting.with_silos(repartition(setting.federation, part).silos).run(steady)
    what = "rows shared out otherwise give another model"
    testing._same(method, setting.run(steady), other, what)


OURS = (*METHOD_CHECKS, counts_copies_once, ignores_the_split)
VARIANTS = {
    "fedprox": FedAvg(rounds=5, proximal=0.4),
    "fedyogi": FedAvg(rounds=5, server="yogi", server_step_size=0.02),
    "fedminmax, local steps": METHODS["fedminmax"](rounds=8, local_steps=3),
    "afl, local steps": METHODS["afl"](rounds=8, local_steps=3),
    "q-fedsgd": METHODS["qffl"](q=2.0, rounds=5, local_steps=1),
    "fedfb, eo": METHODS["fedfb"](notion="eo", rounds=5, by=("sex",)),
}


@pytest.mark.parametrize("check", OURS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", [*METHODS, *VARIANTS])
def test_every_registered_method_passes(name, check):
    check(VARIANTS[name] if name in VARIANTS else few(name), SETTING)


def test_an_optimum_that_is_not_reached_is_told():
    with pytest.raises(AssertionError, match=r"FedAvg: it ends .* above a model"):
        check_optimum(FedAvg(rounds=1), PlainRows.risk, tolerance=1e-5)


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("check", CONSTRAINT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ON_LOSSES)
def test_every_registered_constraint_passes(name, check, labels):
    bound = {"bound": 0.9} if "bound" in CONSTRAINTS[name].__dataclass_fields__ else {}
    check(CONSTRAINTS[name](**bound), sample_federation(labels=labels))


# Planted bugs, each caught by the check of its kind


@dataclass(frozen=True, kw_only=True)
class Broken(FedAvg):
    """FedAvg under another name, with whatever bug is asked for."""

    rounds: int = 4
    local_steps: int = 2
    bug: str = "none"
    name: ClassVar[str] = "broken"

    def run(self, problem, start=None):
        steps, value = super().run(problem, start), None
        while True:
            try:
                signal = steps.send(value)
            except StopIteration as done:
                return done.value
            value = yield self.asked(problem, signal)
            if isinstance(value, TrainTotal):
                value = self.heard(problem, value)

    def asked(self, problem, query):
        shares = np.array(problem.task.shares)
        if self.bug == "the first silo is asked in vain":
            shares[0] = 1e-12
        if self.bug == "the mean over silos, not over rows":
            shares[:] = 1 / len(shares)
        if not isinstance(query, Train):
            return query
        return replace(query, task=replace(problem.task, shares=shares))

    def heard(self, problem, total):
        kept, update = self.__dict__, total.update
        if self.bug == "a step that grows with silos":
            update = update * len(problem.task.shares)
        if self.bug == "steps that count elsewhere":
            kept["seen"] = kept.get("seen", 0) + 1
            update = update * (1 + 0.01 * kept["seen"])
        if self.bug == "dice":
            update = update * np.random.default_rng().random()
        if self.bug == "a step that writes into the total":
            update *= 0.5
        return replace(total, update=update)


class Plain(Method):
    """Not a dataclass."""

    name: ClassVar[str] = "plain"

    def run(self, problem, start=None):
        return problem.start_point()
        yield


@dataclass(frozen=True, kw_only=True)
class Hidden(Broken):
    """A parameter that no file can hold."""

    weights: Mapping[str, float] = field(default_factory=dict)
    scale: float = 1.0

    def describe(self):
        return {k: v for k, v in super().describe().items() if k != "rounds"}


@dataclass(frozen=True, kw_only=True)
class Borrowed(Broken):
    """A name of ours."""

    name: ClassVar[str] = "exact"


@dataclass(frozen=True, kw_only=True)
class Overtime(Broken):
    """More queries than planned."""

    @property
    def planned_rounds(self):
        return 3


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (Plain(), "not a frozen dataclass"),
        (Hidden(scale=2.0, rounds=3), "built from its plain form"),
        (Borrowed(), "'exact' is the name of another class"),
        (Broken(bug="steps that count elsewhere"), "it asks something else"),
        (Broken(bug="dice"), "it asks something else"),
        (Broken(bug="a step that writes into the total"), "changes a total"),
        (Overtime(), "it asked 5 queries, and planned 3"),
        (Broken(bug="the first silo is asked in vain"), "the order of silos matters"),
        (Broken(bug="the mean over silos, not over rows"), "rows shared out otherwise"),
        (Broken(bug="a step that grows with silos"), "three copies of a silo differ"),
    ],
    ids=lambda part: getattr(part, "bug", None) or getattr(part, "name", ""),
)
def test_planted_bugs_of_methods_are_caught(method, reason):
    with pytest.raises(AssertionError, match=reason):
        any(check(method, SETTING) for check in OURS)


def test_a_silo_that_is_never_heard_is_missed():
    @dataclass(frozen=True, kw_only=True)
    class Deaf(Broken):
        def silos(self, problem, round):
            return (0, 1)

    with pytest.raises(AssertionError, match="other labels in silo 2 change nothing"):
        testing.hears_every_silo(Deaf(), SETTING)


def test_a_method_that_only_one_engine_answers_alike_is_caught(monkeypatch):
    true = testing.Local.ask_many

    def crooked(self, queries):
        totals = true(self, queries)
        for total in totals:
            if isinstance(total, TrainTotal):
                total.update[:] *= 1.001
        return totals

    monkeypatch.setattr(testing.Local, "ask_many", crooked)
    with pytest.raises(AssertionError, match="Local and Reference disagree"):
        testing.runs_on_every_engine(Broken(step_size=0.1), SETTING)


@dataclass(frozen=True)
class Cut(Constraint):
    """Two groups, with whatever bug is asked for."""

    bug: str = "none"
    name: ClassVar[str] = "cut"

    def cells(self, schema, silos):
        names = ("f", "f") if self.bug == "names" else ("f", "m")
        member = np.repeat(schema.attribute_codes("sex"), schema.n_labels)
        membership = np.stack([member == 0, member == 1])
        if self.bug == "empty":
            membership[1] = False
        if self.bug == "drawn":
            membership[0] = np.random.default_rng().random(len(member)) < 0.5
        bounds = np.array([0.7, -0.1 if self.bug == "bound" else 0.8])
        silo = np.array([-1, 9 if self.bug == "silo" else -1])
        if self.bug == "order":
            bounds[0] = 0.5 + 0.01 * int(silos[0][-1])
        if self.bug == "shape":
            bounds = bounds[:, None]
        if self.bug == "type":
            membership = membership.astype(float)
        return Cells(names, bounds, membership, silo)

    def describe(self):
        plain = {"kind": self.name, "bug": self.bug}
        if self.bug == "kind":
            plain["kind"] = "other"
        if self.bug == "plain":
            plain["bug"] = "none"
        return plain


@dataclass(frozen=True)
class Loose(Cut):
    """Minimax that fixes no price."""

    minimax: ClassVar[bool] = True


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (Cut("kind"), "kind is not its name"),
        (Cut("plain"), "built from its plain form it is another"),
        (Cut("names"), "two cells have one name"),
        (Cut("empty"), "a cell has no strata"),
        (Cut("drawn"), "other cells|its cells differ"),
        (Cut("bound"), "not numbers ≥ 0"),
        (Cut("silo"), "of a silo that there is not"),
        (Cut("order"), "depend on the order of silos"),
        (Cut("shape"), "one a cell"),
        (Cut("type"), "not a table of truth values"),
        (Loose(), "fixes no risk_weight"),
    ],
    ids=lambda part: getattr(part, "bug", None),
)
def test_planted_bugs_of_constraints_are_caught(constraint, reason):
    with pytest.raises(AssertionError, match=reason):
        check_constraint(constraint)


def test_what_is_sound_passes():
    check_method(Broken())
    check_constraint(Cut())
    check_constraint(pffl.BoundedGroupLoss(0.8), sample_federation(labels=3))
