"""Whatever is changed, `verify` says what no longer agrees."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pffl.certify import restate

import pffl
from pffl.data import Federation, Rows
from pffl.errors import ArtefactError, PFFLError
from pffl.evidence.certificate import Certificate
from pffl.models import Inputs
from pffl.solution import Solution
from pffl.verify import Check, verify
from pffl.verify.bounds import mean_loss_upper, rate_upper
from pffl.verify.check import leaves, same
from pffl.verify.least import least
from pffl.verify.plain import Plain
from tests.helpers import Oracle, group_masks, make_federation, make_schema
from tests.test_certify import Record


@cache
def federation() -> Federation:
    schema = make_schema(features=2)
    return make_federation(5, sizes=(60, 45), test=40, schema=schema)


@cache
def solved(bound: float) -> Solution:
    return pffl.solve(federation(), pffl.BoundedGroupLoss(bound), seed=0)


@cache
def certified(bound: float) -> Certificate:
    return pffl.certify(
        solved(bound), federation(), feature_bound=9.0, target_gap=1e-2, cell="f"
    )


MET, INFEASIBLE = 0.685, 0.4


def declared(solution: Solution) -> dict[str, Any]:
    problem = solution.problem
    return {
        "risk_weight": problem.risk_weight,
        "multiplier_bound": problem.multiplier_bound,
        "radius": problem.radius,
        "loss_bound": solution.loss_bound,
        "weighting": solution.weighting,
        "fingerprint": solution.data["fingerprint"],
        "bounds": {cell.cell: cell.bound for cell in solution.cell_results},
    }


def wrong(
    certificate: Certificate,
    bound: float = MET,
    *,
    record: Any = None,
    rows: Federation | None = None,
) -> list[Check]:
    solution = solved(bound)
    checks = verify(
        certificate,
        record or Record.of(solution),
        rows or federation(),
        declared=declared(solution),
    )
    return [check for check in checks if not check.agrees]


def changed(certificate: Certificate, change: Callable[[dict[str, Any]], None]) -> Any:
    plain = copy.deepcopy(certificate.as_dict())
    change(plain)
    return Certificate.from_dict(plain)


def inputs(plain: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(s for s in plain["statements"] if s["kind"] == kind)
    return found["inputs"]


@pytest.mark.parametrize("bound", [MET, INFEASIBLE])
def test_nothing_is_wrong_with_what_was_certified(bound: float) -> None:
    assert solved(bound).status == {MET: "met", INFEASIBLE: "infeasible"}[bound]
    assert wrong(certified(bound), bound) == []


def with_row(change: Callable[[Rows], Rows], split: str) -> Federation:
    first, *others = federation().silos
    splits = {**first.splits, split: change(first.rows(split))}
    return replace(federation(), silos=(replace(first, splits=splits), *others))


@pytest.mark.parametrize("split", ["train", "test"])
def test_one_changed_row_is_noticed_in_its_cell_and_nowhere_else(split: str) -> None:
    rows = federation().silos[0].rows(split)
    cell = ("f", "m")[rows.group[4]]
    other = {"f": "m", "m": "f"}[cell]

    def change(rows: Rows) -> Rows:
        X = rows.X.copy()
        X[4, 0] += 0.1
        return replace(rows, X=X)

    found = {
        check.what for check in wrong(certified(MET), rows=with_row(change, split))
    }
    assert "fingerprint of the data" in found
    assert "fingerprint of the model" not in found
    assert f"{split}: loss sum of cell '{cell}'" in found
    assert f"{split}: sum of squared losses of cell '{cell}'" in found
    assert not any(f"'{other}'" in what and "sum" in what for what in found)
    assert not any(
        what.startswith({"train": "test", "test": "train"}[split]) for what in found
    )
    if split == "test":
        assert f"holdout: upper bound of '{cell}'" in found
        assert "gap: upper end" not in found
    else:
        assert "gap: upper end" in found
        assert not any(what.startswith("holdout") for what in found)


def test_one_changed_label_and_one_removed_row_change_counts() -> None:
    def relabel(rows: Rows) -> Rows:
        y = rows.y.copy()
        y[0] = 1 - y[0]
        return replace(rows, y=y)

    found = {
        check.what for check in wrong(certified(MET), rows=with_row(relabel, "test"))
    }
    assert any("number of rows of group and label" in what for what in found)
    assert not any("number of rows of cell" in what for what in found)
    fewer = with_row(lambda rows: rows.take(np.arange(1, len(rows))), "test")
    cell = ("f", "m")[federation().silos[0].rows("test").group[0]]
    gone = {check.what: check for check in wrong(certified(MET), rows=fewer)}
    assert gone[f"test: number of rows of cell '{cell}'"].difference == -1


def test_one_changed_weight_is_noticed() -> None:
    solution = solved(MET)
    w = solution.w.copy()
    w[1] += 1e-3
    model = solution.problem.task.model
    found = {
        c.what
        for c in wrong(certified(MET), record=Record(model, w, solution.multipliers))
    }
    assert "fingerprint of the model" in found
    assert "fingerprint of the data" not in found
    for cell in ("f", "m"):
        assert f"train: loss sum of cell '{cell}'" in found
        assert f"train: number of rows of cell '{cell}'" not in found
    scaled = replace(model, inputs=Inputs(model.inputs.mean + 1e-6, model.inputs.scale))
    found = {
        c.what
        for c in wrong(
            certified(MET), record=Record(scaled, solution.w, solution.multipliers)
        )
    }
    assert "fingerprint of the model" in found


@pytest.mark.parametrize(
    ("kind", "path", "by", "name"),
    [
        (
            "measured",
            ("samples", "train", "cells", "count", 0),
            1,
            "train: number of rows of cell 'f'",
        ),
        (
            "measured",
            ("samples", "test", "cells", "loss", 1),
            0.01,
            "test: loss sum of cell 'm'",
        ),
        (
            "measured",
            ("samples", "test", "cells", "loss_squared", 0),
            0.01,
            "test: sum of squared losses of cell 'f'",
        ),
        ("measured", ("cells", 1, "bound"), 0.01, "bound of 'm'"),
        ("measured", ("multiplier_bound",), 1.0, "declared: multiplier_bound"),
        ("measured", ("multipliers", 0), 0.1, "multiplier of 'f'"),
        ("gap", ("upper",), 0.01, "gap: upper end"),
        ("gap", ("lower",), 0.01, "gap: lower end"),
        ("attainable", ("lower",), 0.001, "smallest common bound: lower end"),
        ("attainable", ("upper",), 0.01, "smallest common bound: upper end"),
        ("holdout", ("upper", 0), -0.001, "holdout: upper bound of 'f'"),
        ("holdout_error", ("upper", 1), -0.001, "error rates: upper bound of 'm'"),
        ("dp_gap", ("upper",), -0.001, "dp_gap: upper end"),
        ("uniform", ("upper", 0), -0.001, "uniform: upper bound of 'f'"),
    ],
)
def test_each_changed_number_is_named(
    kind: str, path: tuple[Any, ...], by: float, name: str
) -> None:
    def change(plain: dict[str, Any]) -> None:
        place: Any = inputs(plain, kind)
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] += by

    found = {check.what: check for check in wrong(changed(certified(MET), change))}
    assert name in found
    assert found[name].difference == pytest.approx(-by, abs=2e-2)


def numbers(plain: Any) -> Iterator[str]:
    """One path of each sort: lists are represented by their last entry."""
    seen: dict[str, str] = {}
    for path, value in leaves(plain):
        if isinstance(value, int | float) and not isinstance(value, bool):
            seen[re.sub(r"(?<!statements)\[\d+\]", "[]", path)] = path
    yield from seen.values()


def put(plain: Any, path: str, by: float) -> None:
    place, last = plain, None
    for key in re.findall(r"[^.\[\]]+|\[\d+\]", path):
        if last is not None:
            place = place[last]
        last = int(key[1:-1]) if key.startswith("[") else key
    whole = isinstance(place[last], int) and not isinstance(place[last], bool)
    place[last] += 1 if whole else by * max(1.0, abs(place[last]))


@pytest.mark.parametrize("bound", [MET, INFEASIBLE])
def test_no_number_can_be_changed_unnoticed(bound: float) -> None:
    certificate, unnoticed, tried = certified(bound), [], 0
    kinds = [statement.kind for statement in certificate.statements]
    for path in numbers(certificate.as_dict()):
        number = re.match(r"statements\[(\d+)\]", path)
        kind = kinds[int(number[1])] if number else ""
        # The second certificate adds its witness; all else is tried with the first.
        if path == "version" or (bound == INFEASIBLE and kind != "infeasible"):
            continue
        plain = copy.deepcopy(certificate.as_dict())
        put(plain, path, 1e-3)
        try:
            found = wrong(Certificate.from_dict(plain), bound)
        except PFFLError:
            found = [same(path, 0, 1)]
        tried += 1
        if not found:
            unnoticed.append(path)
    assert unnoticed == []
    assert tried > {MET: 80, INFEASIBLE: 2}[bound]


@pytest.mark.parametrize("place", ["text", "sentence", "confidence", "verdict", "note"])
def test_changed_words_are_noticed(place: str) -> None:
    def change(plain: dict[str, Any]) -> None:
        if place == "text":
            statement = next(s for s in plain["statements"] if s["kind"] == "holdout")
            statement["text"] = statement["text"].replace("95", "99")
        elif place == "note":
            plain["notes"][0] = "All is well."
        else:
            new = {"sentence": "All is well.", "confidence": 0.99, "verdict": "not_met"}
            plain[place] = new[place]

    found = [check.what for check in wrong(changed(certified(MET), change))]
    word = {"text": "statement 'holdout', text", "note": "notes[0]"}.get(place, place)
    assert any(word in what for what in found)


def rewritten(bound: float, change: Callable[[dict[str, Any]], None]) -> Certificate:
    """A forger who writes all words anew, so that they fit his figures."""
    plain = copy.deepcopy(certified(bound).as_dict())
    change(plain)
    return restate(Certificate.from_dict(plain))


def test_a_gap_that_is_too_good_is_disproved_by_a_search() -> None:
    rows = federation()
    rough = pffl.solve(
        rows, pffl.BoundedGroupLoss(MET), method=pffl.PFFL(dual_rounds=2), seed=0
    )
    honest = pffl.certify(rough, rows)
    plain = copy.deepcopy(honest.as_dict())
    figures = inputs(plain, "gap")
    assert figures["upper"] - figures["lower"] > 1e-4
    figures["lower"] = figures["upper"]
    statement = next(s for s in plain["statements"] if s["kind"] == "gap")
    statement["value"] = 1e-15
    forged = restate(Certificate.from_dict(plain))
    checks = verify(forged, Record.of(rough), rows)
    assert [c.what for c in checks if not c.agrees] == ["gap: lower end"]


def test_a_false_witness_is_disproved_by_a_search() -> None:
    def claim(plain: dict[str, Any]) -> None:
        inputs(plain, "infeasible")["bound"] = 0.4

    found = {c.what for c in wrong(rewritten(INFEASIBLE, claim), INFEASIBLE)}
    assert found == {"infeasible: bound of the witness", "infeasible: how far above"}


def test_an_impossible_claim_about_possible_bounds_is_disproved() -> None:
    proof = copy.deepcopy(
        next(
            s
            for s in certified(INFEASIBLE).as_dict()["statements"]
            if s["kind"] == "infeasible"
        )
    )

    def claim(plain: dict[str, Any]) -> None:
        plain["statements"].append(proof)

    found = {c.what for c in wrong(changed(certified(MET), claim))}
    what = "infeasible: independent search for a model that meets all bounds"
    assert what in found


def test_other_inputs_are_said_not_computed() -> None:
    other = make_federation(5, sizes=(60, 45), test=40)
    found = {check.what for check in wrong(certified(MET), rows=other)}
    assert {"fingerprint of the data", "the rest"} <= found


def test_a_certificate_without_its_basis_is_refused() -> None:
    plain = copy.deepcopy(certified(MET).as_dict())
    plain["statements"] = plain["statements"][1:]
    with pytest.raises(ArtefactError, match="what was measured"):
        verify(Certificate.from_dict(plain), Record.of(solved(MET)), federation())


@given(data=st.data())
@settings(max_examples=40)
def test_garbage_is_refused_or_reported_never_a_crash(data: st.DataObject) -> None:
    plain = copy.deepcopy(certified(MET).as_dict())
    paths = [path for path, _ in leaves(plain["statements"])]
    path = data.draw(st.sampled_from(paths))
    junk = data.draw(st.sampled_from([None, "x", [], {}, -1, 1e300, True]))
    place: Any = plain["statements"]
    *before, last = re.findall(r"[^.\[\]]+|\[\d+\]", path)
    for key in before:
        place = place[int(key[1:-1]) if key.startswith("[") else key]
    key = int(last[1:-1]) if last.startswith("[") else last
    if json.dumps(place[key]) == json.dumps(junk):
        return
    place[key] = junk
    try:
        found = wrong(Certificate.from_dict(plain))
    except PFFLError:
        return
    assert found


def test_plain_losses_are_those_of_the_oracle() -> None:
    from pffl.certify import basis_of

    rows, solution = federation(), solved(MET)
    oracle = Oracle.of(rows, group_masks(rows), [MET, MET])
    plain = Plain.of(
        solution.problem.task.model, rows, basis_of(certified(MET)), ["train"]
    )
    w = np.array([0.3, -0.2, 0.1])
    np.testing.assert_allclose(plain.losses(w), oracle.losses(w), rtol=1e-10)
    np.testing.assert_allclose(plain.means(w) - MET, oracle.violation(w), rtol=1e-9)
    lam = np.array([0.5, 2.0])
    weights = plain.risk_weights + plain.cell_weights(lam)
    gradient = plain.gradient(w, weights) + 1e-3 * w
    np.testing.assert_allclose(gradient, oracle.gradient(w, lam), rtol=1e-9)
    step = 1e-5 * np.eye(3)
    slopes = [
        plain.gradient(w + h, weights) - plain.gradient(w - h, weights) for h in step
    ]
    hessian = plain.hessian(w, weights)
    np.testing.assert_allclose(hessian, np.array(slopes) / 2e-5, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("radius", [0.3, 2.0, None])
def test_independent_search_finds_the_minimum(radius: float | None) -> None:
    from pffl.certify import basis_of

    rows, solution = federation(), solved(MET)
    plain = Plain.of(
        solution.problem.task.model, rows, basis_of(certified(MET)), ["train"]
    )
    lam = np.array([0.7, 0.3])
    oracle = Oracle.of(rows, group_masks(rows), [0.0, 0.0], beta=0.0, l2=0.0)
    found = least(plain, plain.cell_weights(lam), radius=radius)
    assert found.value == pytest.approx(oracle.least(lam, radius), abs=1e-8)
    if radius is not None:
        assert np.linalg.norm(found.w) <= radius * (1 + 1e-9)


def test_second_implementations_of_the_bounds_agree_with_the_first() -> None:
    from pffl.bounds.holdout import upper_bounds
    from pffl.bounds.rates import clopper_pearson_upper

    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 30, 500):
        losses = np.minimum(rng.exponential(0.5, size=n), 3.0)
        first = upper_bounds(
            n, losses.sum(), (losses**2).sum(), loss_bound=3.0, delta=0.01
        )
        assert mean_loss_upper(losses, 3.0, 0.01) == pytest.approx(float(first))
        for k in {0, 1, n // 2, n - 1, n} & set(range(n + 1)):
            first = clopper_pearson_upper(k, n, delta=0.01)
            assert rate_upper(k, n, 0.01) == pytest.approx(float(first))
