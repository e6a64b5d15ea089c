"""From numbers to sentences: what is said is true, and said to the safe side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pffl.text import down, up
from tests.inside import (
    Cell,
    Conclusions,
    Data,
    Evidence,
    Judged,
    Least,
    Missing,
    Model,
    Moments,
    Pair,
    Proofs,
    Said,
    Sample,
    Terms,
    Training,
    figures,
    mean,
    statements,
)

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
    strata = {k: np.stack([0 * v, v], axis=1).reshape(-1) for k, v in columns.items()}
    plain = {name: column.tolist() for name, column in strata.items()}
    risks = float(loss.mean()), float(capped.mean())
    known = [Moments.alike(one, 0.0, 3.0) for one in capped.tolist()]
    bets, levels = mean.plan(count, delta=0.05, loss_bound=3.0, known=known)
    x, alike = capped / 3.0, count.tolist()
    logs = np.log1p(-bets.gammas * x[:, None]) * count[:, None]
    people = {"count": alike, "above": [0.0, 0.0], "t": alike, "tt": alike}
    people |= dict.fromkeys(("tx", "ttx"), (count * x).tolist())
    return Sample(
        ["test"],
        *risks,
        1.0,
        cells,
        plain,
        bets.gammas.tolist(),
        bets.weights.tolist(),
        {**people, "ttxx": (count * x**2).tolist()},
        levels.tolist(),
        np.stack([logs, logs], axis=-1).tolist(),
    )


def least(lower: float, upper: float, risk: float = 0.6) -> Least:
    zero, half = [0.0], [0.5, 0.5]
    return Least(lower, upper, half, zero, zero, 1e7, 0.0, 1.0, zero, [0.0] * 2, risk)


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
        proofs=Proofs(Pair(1.0, 1.0 - 1.23401e-7, [0.0]), NONE),
    )
    for key, value in changes.items():
        name, _, part = key.partition("__")
        inner = replace(getattr(made, name), **{part: value}) if part else value
        made = replace(made, **{name: inner})
    return made


def stated(made: Any, e: Evidence) -> Any:
    return made(Conclusions(e))


@given(st.floats(-1e12, 1e12, allow_subnormal=False))
def test_rounding_keeps_the_words_true(number):
    assert float(up(number)) >= number
    assert float(down(number)) <= number


FAR = least(0.65, 0.66)  # impossible: all bounds are 0.62
CLOSE = least(0.5, 0.6, risk=0.7)  # possible; slack is (β(F(w°) − F) + ν)/B


@pytest.mark.parametrize(
    ("losses", "excess", "trained", "verdict"),
    [
        ((0.61, 0.5), NONE, True, "met"),
        ((0.61, 0.5), FAR, True, "met"),
        ((0.625, 0.5), CLOSE, True, "not met"),
        ((0.64, 0.5), CLOSE, True, "not met"),
        ((0.64, 0.5), NONE, True, "not met"),
        ((0.64, 0.5), FAR, True, "impossible"),
        ((0.62 + 1e-9, 0.5), NONE, True, "met"),
        ((0.62 + 1e-9, 0.5), NONE, False, "not met"),
    ],
)
def test_verdicts_name_the_worst_cell(losses, excess, trained, verdict):
    e = evidence(losses, proofs__least=excess, terms__target_gap=1e-6)
    if not trained:
        e = replace(e, training=Missing("nothing is known"))
    found = Conclusions(e).judged
    assert found.word == verdict
    for word in ("'female'", f"{losses[0]:.2g}", "0.62"):
        assert word in found


def test_verdict_needs_rows_in_every_cell():
    e = evidence(seen=sample((0.5, 0.5), counts=(0, 3)))
    assert Conclusions(e).judged.word == "not measured"


def test_empirical_and_its_slack():
    met = stated(statements.empirical, evidence())
    assert met.holds
    assert met.value == pytest.approx(-0.01)
    close = evidence((0.63, 0.5), proofs__least=CLOSE, terms__target_gap=1e-6)
    missed = stated(statements.empirical, close)
    assert missed.holds is False
    assert [row["holds"] for row in missed.per_cell or ()] == [False, True]
    # (β(F(w°) − F(w)) + ν)/B with F(w) = 0.565 + 0.0005
    assert missed.figures["slack"] == pytest.approx(0.01345, abs=1e-5)
    late = replace(close, terms=replace(close.terms, target_gap=1e-9))
    told = stated(statements.empirical, late).figures
    assert (told["slack"], told["converged"]) == (None, "no")


def test_infeasible_as_far_as_it_is_proved():
    out = stated(statements.infeasible, evidence((0.7, 0.7), proofs__least=FAR))
    assert out.holds
    assert out.value == pytest.approx(0.03)
    assert out.figures["multipliers"] == [0.5, 0.5]
    near = replace(FAR, slope=1e-7)  # proved by 0.03 less 1e-7 for each unit of length
    limited = evidence((0.7, 0.7), proofs__least=replace(near, reach=0.0))
    text = stated(statements.infeasible, limited).text
    assert "1.5e+05" in text
    assert "0.015" in text
    steep = replace(near, reach=0.0, slope=0.01)  # not ten times the model's
    assert Judged(evidence((0.7, 0.7), proofs__least=steep)).proof is None


#: What is asked, changes of the evidence.
UNAVAILABLE: list[tuple[Any, dict[str, Any]]] = [
    (statements.gap, {"model__convex": False, "proofs__gap": Missing("not convex")}),
    (statements.empirical, {"seen": sample((0.5, 0.5), counts=(0, 3))}),
    (statements.infeasible, {"proofs__least": CLOSE}),
    (statements.infeasible, {"proofs__least": FAR, "model__convex": False}),
    (statements.holdout, {"terms__loss_bound": None}),
    (statements.holdout, {"terms__loss_bound": None, "labels": []}),
    (statements.holdout, {"data__overlap": 7, "data__by_person": True}),
    (statements.holdout, {"heldout": Missing("needs held-out rows")}),
]


@pytest.mark.parametrize(("asked", "changes"), UNAVAILABLE)
def test_nothing_is_said_without_its_grounds(asked, changes):
    out = stated(asked, evidence((0.7, 0.7), **changes))
    assert not out.available
    assert (out.value, out.holds, out.per_cell) == (None, None, None)


def test_figures_in_sentences_are_on_the_safe_side():
    gap = stated(statements.gap, evidence(terms__target_gap=1e-6))
    assert gap.holds
    assert "1.235e-07" in gap.text  # 1.23401e-07
    smallest = evidence(proofs__least=least(0.6001001, 0.6001501))
    text = stated(statements.attainable, smallest).text
    assert "0.6001 " in text
    assert "0.600151" in text
    pair = Pair(1.0, 1.0 - 1.23401e-7, [0.0], 4.0)
    ball = stated(statements.gap, evidence(model__l2=0.0, proofs__gap=pair))
    assert " 4" in ball.assumptions[1].text  # the radius
    (bounded,) = figures.bounded_loss(evidence(terms__loss_bound=2.0))
    assert "0.1353" in bounded.text


def test_holdout():
    many = sample((0.61, 0.5), counts=(10**7, 10**7))
    out = stated(statements.holdout, evidence(heldout=many))
    found = Judged(evidence(heldout=many)).upper
    assert out.holds
    assert f"'female', at most {up(found[0])}" in out.text
    missed = stated(
        statements.holdout, evidence(heldout=sample((0.61, 5.0), counts=(30, 30)))
    )
    assert missed.holds is False
    assert [row["vacuous"] for row in missed.per_cell] == [False, True]
    assert stated(statements.holdout, evidence(promise=False)).holds is None
    empty = stated(
        statements.holdout, evidence(heldout=sample((0.5, 0.5), counts=(0, 3)))
    )
    assert (empty.per_cell[0]["loss"], empty.per_cell[0]["vacuous"]) == (None, True)
    assert empty.holds is False


def test_fault_80_a_bound_that_is_not_below_m_is_called_trivial():
    idle, plain = (
        stated(statements.holdout, evidence(bounds=(b, 0.62))) for b in (3.0, 0.62)
    )
    assert ("trivial" in idle.text, "trivial" in plain.text) == (True, False)


def test_a_name_in_a_sentence_means_one_thing() -> None:
    assert not set(Terms.__dataclass_fields__) & set(dir(Conclusions))
    with pytest.raises(TypeError):
        Said("limit", {"reach": True})
