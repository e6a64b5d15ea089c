"""What people try first in Python: each call works, or says what to do instead."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import pytest

import pffl
from pffl.errors import PFFLError, UsageError
from pffl.methods import Exact, FedAvg


@dataclass(frozen=True, kw_only=True)
class Own(FedAvg):
    """A method of somebody's own, in a notebook."""

    rounds: int = 3
    name: ClassVar[str] = "own"


@cache
def people():
    return pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], random_state=0)


@cache
def solved():
    return pffl.solve(people(), 0.65, random_state=0)


FEW = {"seeds": 1, "budget": 20}
WORKS = {
    "a number is a bound": lambda: solved().ok,
    "bounds by group": lambda: pffl.solve(people(), {"f": 0.65}, random_state=0).ok,
    "a constraint by name": lambda: (
        pffl.solve(people(), "minmax", random_state=0).cells
    ),
    "a method by name": lambda: (
        pffl.solve(people(), 0.7, method="exact", random_state=0).ok
    ),
    "a model by name": lambda: (
        pffl.solve(people(), 0.7, model="logistic", random_state=0).ok
    ),
    "methods by name and as objects": lambda: (
        pffl.compare(people(), methods=["fedavg", Own()], **FEW).methods
        == ("fedavg", "own")
    ),
    "methods with names of one's own": lambda: (
        pffl.compare(people(), methods={"a": Exact(), "b": Own()}, **FEW).methods
        == ("a", "b")
    ),
    "charts of a solution": lambda: all(
        solved().plot(kind) is not None
        for kind in ("group_losses", "group_rates", "convergence")
    ),
    "figures take a solution": lambda: pffl.figures.group_losses(solved()),
    "a page": lambda: solved().report().startswith("<!doctype html>"),
    "a card": lambda: "| Owner | Unit 7 |" in solved().card(owner="Unit 7"),
    "a certificate": lambda: pffl.certify(solved()).verdicts,
}


@pytest.mark.parametrize("name", WORKS)
def test_what_works(name):
    assert WORKS[name]() is not False


def test_what_is_saved_is_read_as_it_was(tmp_path):
    again = pffl.load(solved().save(tmp_path / "run"))
    assert again.as_dict() == solved().as_dict()
    assert pffl.certify(again).as_dict() == pffl.certify(solved()).as_dict()
    assert isinstance(again.predictor, pffl.Predictor)
    alone = pffl.load(again.predictor.save(tmp_path / "model.pffl"))
    assert isinstance(alone, pffl.Predictor)


REFUSED = {
    "a constraint that there is not": lambda: pffl.solve(people(), "parity"),
    "a method that there is not": lambda: pffl.solve(people(), 0.6, method="sgd"),
    "a model that there is not": lambda: pffl.solve(people(), 0.6, model="forest"),
    "methods that there are not": lambda: pffl.compare(people(), methods=["sgd"]),
    "a chart that there is not": lambda: solved().plot("spectrum"),
    "a model without rows": lambda: pffl.audit(object()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_has_a_code(name):
    with pytest.raises(UsageError) as caught:
        REFUSED[name]()
    assert caught.value.code
    assert isinstance(caught.value, PFFLError)
