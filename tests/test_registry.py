"""Methods and constraints of other packages: found by entry point, loaded late."""

from __future__ import annotations

import sys

import pytest

import pffl
from pffl.config import parse
from pffl.constraints import CONSTRAINTS, Constraint
from pffl.errors import UsageError
from pffl.methods import METHODS, Exact, FedAvg, Method
from tests.helpers import make_federation
from tests.raising import raises

MODULE = """
from dataclasses import dataclass
from typing import ClassVar

from pffl.constraints import BoundedGroupLoss
from pffl.methods import FedAvg


@dataclass(frozen=True, kw_only=True)
class Slow(FedAvg):
    rounds: int = 7
    name: ClassVar[str] = "slow-avg"


@dataclass(frozen=True)
class Strict(BoundedGroupLoss):
    name: ClassVar[str] = "strict"


class Stranger:
    name = "stranger"
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package of this name, with these entry points."""

    def install(name, methods="", constraints="", module=MODULE):
        place = tmp_path / name
        info = place / f"{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (place / f"{name}.py").write_text(module)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n"
        )
        (info / "entry_points.txt").write_text(
            f"[pffl.methods]\n{methods}\n[pffl.constraints]\n{constraints}\n"
        )
        monkeypatch.syspath_prepend(str(place))
        monkeypatch.delitem(sys.modules, name, raising=False)

    return install


def test_ours_need_no_other_package(monkeypatch):
    def refuse(**group):
        raise AssertionError("looked for other packages")

    monkeypatch.setattr("pffl.registry.entry_points", refuse)
    for name, kind in METHODS.own.items():
        assert METHODS[name] is kind
        assert name in METHODS
        assert kind.name == name
        assert issubclass(kind, Method)
    assert all(issubclass(kind, Constraint) for kind in CONSTRAINTS.own.values())


def test_another_package_s_method_and_constraint_run(package):
    package("other", "slow-avg = other:Slow", "strict = other:Strict")
    assert list(METHODS)[-1] == "slow-avg"
    assert len(METHODS) == len(METHODS.own) + 1
    spec = parse(
        {
            "data": {"name": "synthetic"},
            "constraint": {"kind": "strict", "bound": 0.6},
            "method": {"kind": "slow-avg", "rounds": 3},
        }
    )
    assert spec.method.describe()["kind"] == "slow-avg"
    assert spec.constraint.describe()["kind"] == "strict"
    federation = make_federation(0)
    theirs = pffl.solve(federation, spec.constraint, method=spec.method, random_state=0)
    ours = pffl.solve(
        federation,
        pffl.BoundedGroupLoss(0.6),
        method=FedAvg(rounds=3),
        random_state=0,
    )
    assert (theirs.w == ours.w).all()
    assert theirs.as_dict()["method"]["kind"] == "slow-avg"


@pytest.mark.parametrize(
    ("entry", "code", "reason"),
    [
        ("bad:Missing", "cannot-load", "AttributeError"),
        ("absent_module:Missing", "cannot-load", "ModuleNotFoundError"),
        ("bad:Stranger", "wrong-class", "Method"),
        ("bad:Strict", "wrong-class", "Method"),
        ("bad:Slow", "wrong-class", "'slow-avg'"),
        ("raising:Slow", "cannot-load", "no licence"),
    ],
)
def test_a_broken_package_breaks_nothing_but_its_own_name(package, entry, code, reason):
    package("bad", f"broken = {entry}")
    package("raising", module="raise RuntimeError('no licence')")
    assert METHODS["exact"] is Exact
    spec = parse({"data": {"name": "synthetic"}, "constraint": {"bound": 0.6}})
    assert spec.method.name == "auto"
    with raises(UsageError, "unknown-name", "exat", "exact"):
        parse({"data": {"name": "synthetic"}, "method": {"kind": "exat"}})
    assert "broken" in METHODS
    for use in (lambda: METHODS["broken"], lambda: dict(METHODS)):
        with raises(UsageError, code, "bad 1.2", reason):
            use()


def test_a_name_of_ours_stays_ours(package):
    package("one", "exact = one:Slow")
    assert METHODS["exact"] is Exact
