"""From numbers to sentences: what is said is true, and said to the safe side."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pffl.bounds import logsum
from pffl.bounds.rates import spread
from pffl.errors import UsageError
from pffl.evidence import training, unseen
from pffl.evidence.certificate import Certificate
from pffl.evidence.evidence import (
    Cell,
    Data,
    Evidence,
    Least,
    Lowest,
    Missing,
    Model,
    Pair,
    Proofs,
    Sample,
    Terms,
    Training,
)
from pffl.evidence.training import CellLosses
from pffl.evidence.verdict import certificate, judge, verdicts
from pffl.text import down, up

NAMES = ("female", "male")
NONE = Missing("not asked for")


def sample(
    losses: Any, counts: Any = (100, 50), positive: Any = (5, 2), wrong: Any = (30, 10)
) -> Sample:
    """Sums of rows that all have their cell's mean loss; the second label is empty."""
    count, loss = np.array(counts, dtype=float), np.array(losses, dtype=float)
    capped = np.minimum(loss, 3.0)
    columns = {
        "count": count,
        "weight": count,
        "loss": count * loss,
        "loss_squared": count * loss**2,
        "bounded_loss": count * capped,
        "bounded_loss_squared": count * capped**2,
        "correct": count - np.minimum(wrong, count),
        "positive": np.minimum(positive, count),
    }
    cells = {name: column.tolist() for name, column in columns.items()}
    atoms = {k: np.stack([0 * v, v], axis=1).reshape(-1) for k, v in columns.items()}
    plain = {name: column.tolist() for name, column in atoms.items()}
    risks = float(loss.mean()), float(capped.mean())
    return Sample(["test"], *risks, 1.0, cells, plain)


def least(lower: float, upper: float, risk: float = 0.6) -> Least:
    zero, half = [0.0], [0.5, 0.5]
    return Least([0.0] * 2, lower, upper, half, zero, zero, 1e7, 0.0, 1.0, zero, risk)


def evidence(
    losses: Any = (0.61, 0.5), bounds: Any = (0.62, 0.62), **changes: Any
) -> Evidence:
    """A logistic regression of two groups that was trained by bounds."""
    cells = [
        Cell(name, bound, None, [(name, "no"), (name, "yes")], 0.1)
        for name, bound in zip(NAMES, bounds, strict=True)
    ]
    made = Evidence(
        promise=True,
        minimax=False,
        data=Data("people", 2, "hash", False, "ab", "ab", 0),
        model=Model("logistic", 3, 1, 1.0, 1e-3, 1.0, True, True, {}, "cd"),
        terms=Terms("silos", 1.0, 10.0, 4.0, 3.0, 0.95),
        groups=list(NAMES),
        labels=["no", "yes"],
        cells=cells,
        training=Training({}, {}, 0, 3, None, {}, 0.1),
        seen=sample(losses),
        heldout=sample(losses),
        before=NONE,
        proofs=Proofs(Pair(1.0, 1.0 - 1.23401e-7, [0.0]), NONE, NONE),
    )
    for key, value in changes.items():
        name, _, part = key.partition("__")
        inner = replace(getattr(made, name), **{part: value}) if part else value
        made = replace(made, **{name: inner})
    return made


@given(st.floats(-1e12, 1e12, allow_subnormal=False))
def test_rounding_keeps_the_words_true(number: float) -> None:
    assert float(up(number)) >= number
    assert float(down(number)) <= number


FAR = least(0.65, 0.66)  # impossible: all bounds are 0.62
CLOSE = least(0.5, 0.6, risk=0.7)  # possible; slack is (β(F(w°) − F) + ν)/B


@pytest.mark.parametrize(
    ("losses", "excess", "trained", "verdict"),
    [
        ((0.61, 0.5), NONE, True, "met"),
        ((0.61, 0.5), FAR, True, "met"),
        ((0.625, 0.5), CLOSE, True, "within_slack"),
        ((0.64, 0.5), CLOSE, True, "not_met"),
        ((0.64, 0.5), NONE, True, "not_met"),
        ((0.64, 0.5), FAR, True, "infeasible"),
        ((0.62 + 1e-9, 0.5), NONE, True, "met"),
        ((0.62 + 1e-9, 0.5), NONE, False, "not_met"),
    ],
)
def test_verdicts_name_the_worst_cell(
    losses: tuple[float, ...], excess: Any, trained: bool, verdict: str
) -> None:
    e = evidence(losses, proofs__excess=excess, terms__target_gap=1e-6)
    if not trained:
        e = replace(e, training=Missing("nothing is known"))
    got, sentence = judge(e)
    assert got == verdict
    for word in ("'female'", f"{losses[0]:.2g}", "0.62"):
        assert word in sentence


def test_verdict_needs_rows_in_every_cell() -> None:
    e = evidence(seen=sample((0.5, 0.5), counts=(0, 3)))
    assert judge(e) == ("not_met", "No rows to judge by: female.")
    with pytest.raises(UsageError, match="one per name"):
        CellLosses.of(("a",), [1, 2], [0.0, 1.0], [0.5, 0.5])


def test_three_verdicts_are_told_apart() -> None:
    found = verdicts(evidence(heldout=sample((0.7, 0.5))))
    assert found["training"]["verdict"] == "met"
    assert found["heldout"] == {
        "verdict": "above",
        "sentence": "On 150 held-out rows 1 of 2 cells is above its bound; 'female' "
        "has a mean loss of 0.7 against a bound of 0.62: 0.08 above it.",
        "above": ["female"],
    }
    assert found["unseen"]["verdict"] == "not shown"
    bare = verdicts(evidence(heldout=Missing("there are none")))
    told = {"verdict": "not available", "sentence": "There are none."}
    assert bare["heldout"] == told
    assert bare["unseen"]["verdict"] == "not available"


def test_gap() -> None:
    out = training.gap(evidence(terms__target_gap=1e-6))
    assert out.holds
    assert "1.235e-07" in out.text
    rare = evidence(
        model__convex=False, proofs__gap=Missing("needs convexity, and it is not")
    )
    assert training.gap(rare).text == (
        "not available: needs convexity, and it is not; needs convexity, and the loss "
        "is not convex in the weights of this model"
    )
    pair = Pair(1.0, 1.0 - 1.23401e-7, [0.0], 4.0)
    ball = training.gap(evidence(model__l2=0.0, proofs__gap=pair))
    assert ball.available
    assert "length at most 4" in ball.assumptions[1].text


def test_empirical() -> None:
    met = training.empirical(evidence())
    assert met.holds
    assert met.value == pytest.approx(-0.01)
    assert "slack" not in met.text
    close = evidence((0.63, 0.5), proofs__excess=CLOSE, terms__target_gap=1e-6)
    missed = training.empirical(close)
    assert missed.holds is False
    # (β(F(w°) − F(w)) + ν)/B with F(w) = 0.565 + 0.0005
    assert "up to 0.01346 above them" in missed.text
    late = training.empirical(
        replace(close, terms=replace(close.terms, target_gap=1e-9))
    )
    assert "explains" not in late.text
    assert late.figures == {"slack": None, "converged": "no"}
    assert missed.per_cell is not None
    assert [row["holds"] for row in missed.per_cell] == [False, True]
    empty = evidence(seen=sample((0.5, 0.5), counts=(0, 3)))
    said = training.empirical(empty).text
    assert said == "not available: no training rows in female"
    none = training.empirical(evidence(promise=False))
    assert none.text == "not available: no bound was set"


def test_infeasible_and_attainable() -> None:
    out = training.infeasible(evidence((0.7, 0.7), proofs__excess=FAR))
    assert out.holds
    assert out.value == pytest.approx(0.03)
    assert out.text.startswith("No linear model with its own, uncut loss meets all")
    assert "at least 0.03" in out.text
    assert out.figures["multipliers"] == [0.5, 0.5]
    near = replace(FAR, slope=1e-7)  # proved by 0.03 less 1e-7 for each unit of length
    limited = evidence((0.7, 0.7), proofs__excess=replace(near, reach=0.0))
    text = training.infeasible(limited).text
    assert "uncut loss and weights of length at most 1.5e+05 meets all" in text
    assert "at least 0.015" in text
    steep = replace(near, reach=0.0, slope=0.01)  # not ten times the model's
    assert not training.impossible(evidence((0.7, 0.7), proofs__excess=steep))
    none = evidence((0.7, 0.7), proofs__excess=CLOSE)
    assert not training.infeasible(none).available
    rare = evidence((0.7, 0.7), proofs__excess=FAR, model__convex=False)
    assert not training.infeasible(rare).available
    smallest = evidence(proofs__least=least(0.6001001, 0.6001501))
    assert "between 0.6001 and 0.600151" in training.attainable(smallest).text
    nothing = ([0.0, 0.0], [], [], 1e7, 0.0, 1.0, [])
    nobody = Lowest("male", 0.0, None, *nothing, impossible=True)
    one = replace(nobody, lower=0.1, upper=0.2, impossible=False)
    assert "'male'" in training.lowest(smallest, one).text
    assert "whatever that of 'male'" in training.lowest(smallest, nobody).text
    lost = replace(nobody, impossible=False)
    assert "all but 'male'" in training.lowest(smallest, lost).text


def test_holdout() -> None:
    many = sample((0.61, 0.5), counts=(10**7, 10**7))
    out = unseen.holdout(evidence(heldout=many))
    found = unseen.upper(evidence(heldout=many))
    assert found is not None
    assert out.holds
    assert "95 %, each cell by itself" in out.text
    assert "for the mixture of silos in the held-out rows of the cell" in out.text
    assert f"'female', at most {up(found[0])}" in out.text
    assert "By these figures every cell is within its bound" in out.text
    missed = unseen.holdout(evidence(heldout=sample((0.61, 5.0), counts=(30, 30))))
    assert missed.holds is False
    assert "the bounds of 0 of 2 cells are shown" in missed.text
    assert "does not hold" not in str(certificate(evidence(heldout=many)))
    assert missed.per_cell is not None
    assert [row["vacuous"] for row in missed.per_cell] == [False, True]
    for row in missed.per_cell:
        assert row["upper"] <= row["joint"]
    bare = unseen.holdout(evidence(promise=False))
    assert bare.holds is None
    assert "the largest is that of 'male'" in bare.text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"terms__loss_bound": None}, "not available: needs a predictor whose losses"),
        (
            {"terms__loss_bound": None, "labels": []},
            "not available: needs a range that all targets keep to (--target-range",
        ),
        (
            {"data__overlap": 7, "data__by_person": True},
            "not available: needs separate rows: 7",
        ),
        ({"heldout": Missing("needs held-out rows")}, "not available: needs held-out"),
    ],
)
def test_holdout_is_refused(change: dict[str, Any], reason: str) -> None:
    out = unseen.holdout(evidence(**change))
    assert out.text.startswith(reason)
    assert (out.value, out.holds, out.per_cell) == (None, None, None)


def test_assumptions_say_what_is_known() -> None:
    def apart(overlap: int | None, by_person: bool = False) -> str:
        e = evidence(data__overlap=overlap, data__by_person=by_person)
        assert isinstance(e.heldout, Sample)
        return unseen.separate(e, e.heldout).state

    assert apart(None) == apart(1) == "could not be checked"
    assert apart(0) == apart(0, True) == "checked"
    assert apart(1, True) == "failed"
    (bounded,) = unseen.bounded_loss(evidence(terms__loss_bound=2.0))
    assert bounded.state == "checked"
    assert "within 0.1353 and 0.8647, so that no loss is above 2." in bounded.text


def test_about_how_many_more_rows_would_show_it() -> None:
    few = evidence(losses=(0.5, 0.5), heldout=sample((0.5, 0.5), counts=(40, 10**6)))
    said, lacking = unseen.holdout(few).text, unseen.more_rows(few)
    assert list(lacking) == ["female"]
    assert f"{lacking['female']:,}"[:1] in said
    assert (
        "more held-out rows of 'female' would show its bound, if they were like" in said
    )
    # So many of these rows do show it, and half of them do not.
    for times, shown in ((1.1, True), (0.5, False)):
        count = int(times * (40 + (lacking["female"] or 0)))
        like = evidence(heldout=sample((0.5, 0.5), counts=(count, 10**6)))
        found = logsum.plan_bets(
            [count, 10**6], delta=0.05, mean=0.5, variance=0.0, loss_bound=3.0
        )
        below = np.log1p(-found.gammas * 0.5 / 3.0) * [[count], [10**6]]
        tables = {"bets": found.gammas, "bet_weights": found.weights, "below": below}
        plain = {name: table.tolist() for name, table in tables.items()}
        assert isinstance(like.heldout, Sample)
        like = replace(
            like, heldout=replace(like.heldout, above=plain["below"], **plain)
        )
        assert bool(unseen.holdout(like).holds) is shown
    never = unseen.holdout(evidence(heldout=sample((0.63, 0.5)))).text
    assert "mean loss of 0.63: more rows like these would not show" in never
    nobody = unseen.holdout(evidence(heldout=sample((0.5, 0.5), counts=(0, 3)))).text
    assert "There are no held-out rows of 'female'" in nobody


def test_fault_80_a_bound_that_is_not_below_m_is_called_trivial() -> None:
    idle = unseen.holdout(evidence(bounds=(3.0, 0.62)))
    assert "In 1 of 2 cells the bound is not below 3" in idle.text
    assert "true, and trivial" in idle.text
    assert "trivial" not in unseen.holdout(evidence()).text


@pytest.mark.parametrize(
    ("terms", "state", "shown"),
    [
        ({}, "assumed", "fixed before"),
        ({"candidates": 5}, "assumed", "each has 1/5 of the risk"),
        ({"candidates": 5, "counted": True}, "checked", "one of 5 models"),
        ({"others": 3}, "could not be checked", "of 3 others"),
    ],
)
def test_looks_say_how_they_were_paid(
    terms: dict[str, Any], state: str, shown: str
) -> None:
    e = evidence(**{f"terms__{name}": value for name, value in terms.items()})
    (ground,) = unseen.looked_at(e)
    assert ground.state == state
    assert shown in ground.text
    later = replace(e, terms=replace(e.terms, later=2))
    assert unseen.looked_at(later)[0] == ground
    assert "certificate 3" in unseen.looked_at(later)[1].text
    assert "1/6 of the risk" in unseen.looked_at(later)[1].text
    assert unseen.parts(later) == 6 * unseen.parts(e)


def test_an_empty_held_out_cell_is_shown() -> None:
    out = unseen.holdout(evidence(heldout=sample((0.5, 0.5), counts=(0, 3))))
    assert out.per_cell is not None
    assert out.per_cell[0]["loss"] is None
    assert out.per_cell[0]["vacuous"] is True
    assert out.holds is False


def test_errors() -> None:
    held = sample((0.5, 0.5), counts=(10, 0), wrong=(1, 0))
    assert "'male'" in unseen.holdout_error(evidence(heldout=held)).text


@pytest.mark.parametrize("kind", unseen.METRICS)
def test_metrics_of_groups_with_and_without_rows(kind: str) -> None:
    undefined = evidence(heldout=sample((0.5, 0.5), counts=(10, 0)))
    said = unseen.metric(kind, undefined)
    assert "undefined: no rows for [" in said.text
    assert "'male'" in said.text
    assert said.value is None
    assert said.available
    fine = evidence(heldout=sample((0.5, 0.5), counts=(10, 10)))
    found = unseen.metric("dp_gap", fine)
    assert "it is 0.3." in found.text
    delta = unseen.joint_delta(fine, "dp_gap")
    ends = spread([5, 2], [10, 10], delta=delta).interval
    assert (found.figures["lower"], found.figures["upper"]) == (ends.lower, ends.upper)


def test_one_number_per_promise() -> None:
    from pffl.evidence.verdict import cell_results, result

    e = evidence()
    table = unseen.holdout(e).per_cell
    assert table is not None
    shown = [row["upper"] for row in table]
    assert [row.test_upper for row in cell_results(e)] == shown
    assert [row["test_upper"] for row in result(e)["cells"]] == shown


def test_a_whole_certificate() -> None:
    out = certificate(evidence())
    assert Certificate.from_dict(json.loads(json.dumps(out.as_dict()))) == out
    assert "female" in str(out)
    assert "nan" not in str(out).lower()
