"""From numbers to sentences: what is said is true, and said to the safe side."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pffl.certificates import CellLosses, Certificate, Interval, Statement, judge
from pffl.certificates import wording as w
from pffl.certificates import wording_unseen as unseen

from pffl.bounds.empirical import RiskBound
from pffl.bounds.infeasible import Witness
from pffl.bounds.plan import InnerProblem, plan
from pffl.bounds.rates import spread
from pffl.errors import UsageError
from pffl.text import down, up


def cells(
    losses: tuple[float, ...] = (0.61, 0.5), bounds: tuple[float, ...] = (0.62, 0.62)
) -> CellLosses:
    counts = np.array([100.0, 50.0])[: len(losses)]
    names = ("female", "male")[: len(losses)]
    return CellLosses.of(names, counts, counts * np.array(losses), bounds)


@given(st.floats(-1e12, 1e12, allow_subnormal=False))
def test_rounding_keeps_the_words_true(number: float) -> None:
    assert float(up(number)) >= number
    assert float(down(number)) <= number


@pytest.mark.parametrize(
    ("losses", "slack", "impossible", "tolerance", "verdict"),
    [
        ((0.61, 0.5), None, False, 0.0, "met"),
        ((0.61, 0.5), None, True, 0.0, "met"),
        ((0.63, 0.5), 0.02, False, 0.0, "within_slack"),
        ((0.63, 0.5), 0.001, False, 0.0, "not_met"),
        ((0.63, 0.5), None, False, 0.0, "not_met"),
        ((0.63, 0.5), 0.02, True, 0.0, "infeasible"),
        ((0.62 + 1e-9, 0.5), None, False, 1e-6, "met"),
        ((0.62 + 1e-9, 0.5), None, False, 0.0, "not_met"),
    ],
)
def test_verdicts_name_the_worst_cell(
    losses: tuple[float, ...],
    slack: float | None,
    impossible: bool,
    tolerance: float,
    verdict: str,
) -> None:
    got, sentence = judge(
        cells(losses), slack=slack, impossible=impossible, tolerance=tolerance
    )
    assert got == verdict
    for word in ("'female'", f"{losses[0]:.2g}", "0.62"):
        assert word in sentence


def test_verdict_needs_rows_in_every_cell() -> None:
    empty = CellLosses.of(("a", "b"), [0, 3], [0.0, 1.0], [0.5, 0.5])
    assert empty.empty == ("a",)
    with pytest.raises(UsageError, match="each with rows"):
        judge(empty)
    with pytest.raises(UsageError, match="one per name"):
        CellLosses.of(("a",), [1, 2], [0.0, 1.0], [0.5, 0.5])


def test_gap() -> None:
    out = w.gap_statement(1.23401e-7, convex=True, modulus=1e-3, target=1e-6)
    assert out.holds
    assert "1.235e-07" in out.text
    for bad in (
        w.gap_statement(0.1, convex=False, modulus=1e-3),
        w.gap_statement(0.1, convex=True, modulus=0.0),
        w.gap_statement(np.inf, convex=True, modulus=1.0),
    ):
        assert not bad.available
        assert bad.text.startswith("not available: ")
    assert w.gap_statement(0.1, convex=True, modulus=0.0, radius=3.0).available


def test_empirical() -> None:
    met = w.empirical_statement(cells())
    assert met.holds
    assert met.value == pytest.approx(-0.01)
    assert "slack" not in met.text
    missed = w.empirical_statement(
        cells((0.63, 0.5)), slack=0.02, risk_bound=RiskBound(0.6, "feasible model")
    )
    assert missed.holds is False
    assert "more than 0.02" in missed.text
    assert missed.inputs["risk_bound"] == 0.6
    assert missed.per_cell is not None
    assert [row["holds"] for row in missed.per_cell] == [False, True]
    empty = CellLosses.of(("a", "b"), [0, 3], [0.0, 1.0], [0.5, 0.5])
    assert w.empirical_statement(empty).text == "not available: no training rows in a"
    none = CellLosses.of((), [], [], [])
    assert w.empirical_statement(none).text == "not available: no bound was set"


def test_infeasible_and_attainable() -> None:
    lam, point = np.array([0.5, 0.5]), np.zeros(2)
    proof = Witness.of(lam, [0.1, 0.1], np.zeros((2, 2)), point, 4.0)
    out = w.infeasible_statement(proof, ("a", "b"), convex=True)
    assert out.holds
    assert "length at most 4" in out.text
    assert out.inputs["multipliers"] == [0.5, 0.5]
    none = Witness.of(lam, [-0.1, 0.0], np.zeros((2, 2)), point, 4.0)
    assert not w.infeasible_statement(none, ("a", "b"), convex=True).available
    assert not w.infeasible_statement(proof, ("a", "b"), convex=False).available
    smallest = w.attainable_statement(Interval(0.6001, 0.60015), convex=True, radius=4)
    assert "between 0.6001 and 0.6002" in smallest.text
    one = w.attainable_statement(Interval(0.1, 0.2), convex=True, radius=4, cell="a")
    assert "'a'" in one.text


def test_plan() -> None:
    inner = InnerProblem(4.0, 0.1, 2.0, 3.0, heterogeneity=0.5)
    steps = plan(0.5, inner, cells=2, multiplier_bound=5.0, violation_bound=1.0)
    out = w.plan_statement(steps, convex=True)
    assert f"{steps.rounds:,} rounds" in out.text
    assert not w.plan_statement(steps, convex=False).available


def test_holdout() -> None:
    grounds = (unseen.SAMPLING, unseen.separate(0), unseen.chosen_among(3, False))
    args = {"confidence": 0.95, "loss_bound": 3.0, "assumptions": grounds}
    out = unseen.holdout_statement(cells(), [0.6190001, 0.6], **args)
    assert out.holds
    assert "95 %" in out.text
    assert "0.6191" in out.text
    missed = unseen.holdout_statement(cells(), [0.7, 3.0], **args)
    assert missed.holds is False
    assert "0 of 2" in missed.text
    assert missed.per_cell is not None
    assert [row["vacuous"] for row in missed.per_cell] == [False, True]
    clipped = unseen.holdout_statement(cells(), [0.6, 0.6], clipped=True, **args)
    assert "cut at 3" in clipped.text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"loss_bound": None}, "not available: needs a loss bound"),
        (
            {"assumptions": (unseen.separate(7),)},
            "not available: needs separate rows: 7",
        ),
    ],
)
def test_holdout_is_refused(change: dict[str, object], reason: str) -> None:
    args = {"confidence": 0.95, "loss_bound": 3.0, **change}
    out = unseen.holdout_statement(cells(), [0.6, 0.6], **args)  # type: ignore[arg-type]
    assert out.text.startswith(reason)
    assert out.value is None


def test_assumptions_say_what_is_known() -> None:
    assert unseen.separate(None).state == "assumed"
    assert unseen.separate(0).state == "checked"
    assert unseen.chosen_among(1, False).state == "assumed"
    assert "candidates" in unseen.chosen_among(5, False).text
    assert unseen.chosen_among(5, True).state == "checked"
    assert unseen.bounded_loss(2.0).state == "assumed"
    assert unseen.bounded_loss(2.0, clipped=True).state == "checked"


def test_an_empty_held_out_cell_is_shown() -> None:
    some = CellLosses.of(("a", "b"), [0, 3], [0.0, 1.0], [0.5, 0.5])
    out = unseen.holdout_statement(some, [3.0, 0.4], confidence=0.9, loss_bound=3.0)
    assert out.per_cell is not None
    assert out.per_cell[0]["loss"] is None
    assert out.per_cell[0]["vacuous"] is True
    assert out.holds is False


def test_errors_uniform_metrics() -> None:
    wrong = unseen.error_statement(
        ("a", "b"), [1, 0], [10, 0], [0.394, 1.0], confidence=0.9
    )
    assert "'b'" in wrong.text
    args = {"confidence": 0.9, "loss_bound": 3.0}
    out = unseen.uniform_statement(
        cells(), [1.0, 3.0], radius=2.0, printed=[0.01, 0.02], **args
    )
    assert "vacuous in 1 of 2" in out.text
    assert out.per_cell is not None
    assert out.per_cell[0]["as printed, not valid"] == pytest.approx(0.62)
    for bad in (
        unseen.uniform_statement(cells(), [1.0, 3.0], radius=None, **args),
        unseen.uniform_statement(cells(), [1, 3], radius=2.0, inside=False, **args),
        unseen.uniform_statement(
            cells(), [1.0, 3.0], radius=2.0, confidence=0.9, loss_bound=None
        ),
    ):
        assert not bad.available
    for kind in unseen.METRICS:
        found = spread([5, 2, 0], [10, 10, 0], delta=0.1)
        said = unseen.metric_statement(kind, found, "abc", confidence=0.9)
        assert "undefined: no rows for ['c']" in said.text
        assert said.value is None
        assert said.available
    fine = spread([5, 2], [10, 10], delta=0.1)
    assert (
        "it is 0.3."
        in unseen.metric_statement("dp_gap", fine, "ab", confidence=0.9).text
    )


def test_a_whole_certificate() -> None:
    verdict, sentence = judge(cells())
    parts: tuple[Statement, ...] = (
        w.gap_statement(1e-8, convex=True, modulus=1e-3),
        w.empirical_statement(cells()),
        unseen.holdout_statement(cells(), [0.7, 0.6], confidence=0.95, loss_bound=3.0),
    )
    out = Certificate(parts, verdict, sentence, 0.95)
    assert Certificate.from_dict(json.loads(json.dumps(out.as_dict()))) == out
    assert "female" in str(out)
    assert "nan" not in str(out).lower()
