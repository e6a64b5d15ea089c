"""An audit certifies a model that somebody uses, or says that it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.errors import DataError, UsageError
from tests.cli.helpers import Command
from tests.declared import columns_file
from tests.raising import raises

TABLE = ("people.csv", "--label", "hired", "--group", "sex")
#: Probability of the truth when the model is wrong, and how often it is wrong.
SETTINGS = [(1e-3, 0.02), (1e-4, 0.01), (1e-6, 0.01), (1e-15, 0.01)]
RIGHT = 0.95  # probability of the truth when it is right


def population(wrong: float, share: float) -> float:
    """The true mean loss of new people."""
    return float(-share * np.log(wrong) - (1 - share) * np.log(RIGHT))


def drawn(seed: int, wrong: float, share: float, n: int = 1500) -> dict[str, Any]:
    """Somebody's probabilities of the last label, labels, and one group."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    truth = np.where(rng.random(n) < share, wrong, RIGHT)
    p = np.where(y == 1, truth, 1 - truth)
    return {"audited": p, "y": y, "sensitive_features": {"g": np.full(n, "all")}}


def certified(seed: int, wrong: float, share: float, **limits: float) -> float | None:
    """The figure that is certified for the loss of new people; None where none is."""
    found = pffl.audit(
        constraint=pffl.BoundedGroupLoss(9.0), **drawn(seed, wrong, share), **limits
    )
    (statement,) = found.certificate.of_kind("holdout")
    (cell,) = found.certificate.of_kind("empirical")[0].per_cell
    if not statement.available:
        assert found.certificate.of_kind("holdout_error")[0].available
        assert "unbounded" in statement.text
        return None
    upper = float(statement.per_cell[0]["upper"])
    assert upper >= cell["loss"]  # no certified figure is below the measured mean
    return upper


def clipped(wrong: float, share: float, clip: float) -> float:
    """The true mean loss of the clipped model."""
    return population(max(wrong, clip), share)


def check(wrong: float, share: float, audits: int) -> None:
    """Count audits whose figure is below the truth: 5 % may be."""
    free = [certified(k, wrong, share) for k in range(min(audits, 3))]
    assert free == [None] * len(free)
    clip, most = 0.01, 0.05 + 3 * np.sqrt(0.05 * 0.95 / audits)
    figures = [certified(k, wrong, share, clip=clip) for k in range(audits)]
    assert None not in figures
    missed = [one < clipped(wrong, share, clip) for one in figures if one is not None]
    assert np.mean(missed) <= most
    declared = [certified(k, wrong, share, p_min=wrong / 2) for k in range(audits)]
    low = [one < population(wrong, share) for one in declared if one is not None]
    assert len(low) == audits
    assert np.mean(low) <= most


@pytest.mark.parametrize(("wrong", "share"), SETTINGS)
def test_nothing_or_the_truth_is_certified(wrong: float, share: float) -> None:
    check(wrong, share, audits=6)


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "share"), SETTINGS)
def test_sixty_audits_miss_no_more_often_than_stated(
    wrong: float, share: float
) -> None:
    check(wrong, share, audits=60)


def test_a_declared_range_that_does_not_hold_is_refused_with_the_count() -> None:
    rows = drawn(0, 0.02, 0.02)
    many = int((np.minimum(rows["audited"], 1 - rows["audited"]) < 0.03).sum())
    assert many > 10
    with raises(DataError, "outside-range", many):
        pffl.audit(p_min=0.03, **rows)
    found = pffl.audit(p_min=0.02, **rows)
    (statement,) = found.certificate.of_kind("holdout")
    grounds = {g.state: g.text for g in statement.assumptions if "declared" in g.text}
    assert list(grounds) == ["assumed"]
    assert statement.figures["loss_bound"] == pytest.approx(-np.log(0.02))
    with raises(UsageError, "options-conflict"):
        pffl.audit(**rows, clip=0.01, p_min=0.01)
    for bad in (0.0, 0.5, -1.0, np.nan):
        with raises(UsageError, "wrong-value", "clip"):
            pffl.audit(clip=bad, **rows)


def test_several_classes_are_as_declared_or_clipped() -> None:
    rng = np.random.default_rng(0)
    p = 0.05 + 0.85 * rng.dirichlet(np.ones(3), 900)
    y = np.array([rng.choice(3, p=one) for one in p])
    rows = {"y": y, "sensitive_features": {"g": rng.choice(["a", "b"], 900)}}
    own = -np.log(p[np.arange(900), y])
    for limits in ({"p_min": 0.05}, {"clip": 0.01}, {}):
        found = pffl.audit(p, constraint=pffl.BoundedGroupLoss(2.0), **rows, **limits)
        said = found.certificate.of_kind("empirical")[0].per_cell
        mean = sum(row["loss"] * row["rows"] for row in said) / 900
        assert (mean == pytest.approx(own.mean(), rel=1e-9)) == ("clip" not in limits)
        assert found.certificate.of_kind("holdout")[0].available == bool(limits)
    with raises(UsageError, "wrong-value", "1/3"):
        pffl.audit(p, p_min=0.34, **rows)


# The command line


def sharp(seed: int, n: int = 2000) -> pd.DataFrame:
    """Rows whose label is the sign of x, but for 2 %."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = (x > 0) ^ (rng.random(n) < 0.02)
    sex = rng.choice(["f", "m"], n)
    return pd.DataFrame({"x": x, "sex": sex, "hired": np.where(y, "y", "n")})


@pytest.fixture
def people(command: Command) -> Command:
    sharp(0).to_csv("people.csv", index=False)
    for k, slope in enumerate((1000.0, 900.0, 800.0)):
        Path(f"sharp{k}.csv").write_text(f"feature,coef\nx,{slope}\n", "utf-8")
    return command


def evidence(place: str) -> dict[str, Any]:
    found = json.loads(Path(place, "certificate.json").read_text("utf-8"))
    return dict(found["evidence"])


def result(place: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(place, "result.json").read_text("utf-8"))
    return found


def test_a_sharp_model_is_not_certified_and_ends_with_4(people: Command) -> None:
    seen = people("audit", "sharp0.csv", *TABLE, "--bound", "0.25", "--out", "a")
    verdicts = result("a")["verdicts"]
    assert seen.code == 4
    assert verdicts["test"]["verdict"] == "exceeded"
    assert verdicts["new_people"]["verdict"] == "not measured"
    assert all(row["test_upper"] is None for row in result("a")["cells"])
    assert all(row["test_loss"] > 10 for row in result("a")["cells"])
    assert people("verify", "a").code == 0
    sharp(1).to_csv("later.csv", index=False)
    watched = people("monitor", "a", "later.csv", "--json")
    assert (watched.code, watched.json["status"]) == (4, "alarm")
    assert all(row["mean_loss"] > 10 for row in watched.json["cells"])
    refused = people("audit", "sharp0.csv", *TABLE, "--p-min", "0.01", "--out", "b")
    assert (refused.code, refused.error) == (3, "outside-range")


def test_the_clipped_model_is_called_so_everywhere(people: Command) -> None:
    name = "the model, kept within 0.01–0.99"
    asked = ("--bound", "0.25", "--clip", "0.01", "--out", "a")
    seen = people("audit", "sharp0.csv", *TABLE, *asked, "--certify")
    assert seen.code == 0
    assert name in " ".join(seen.out.split())
    for file in ("card.md", "certificate.json", "result.json", "report.html"):
        assert name in Path("a", file).read_text("utf-8"), file
    own = sharp(0)
    right = (own.x > 0) == (own.hired == "y")
    losses = -np.log(np.where(right, 0.99, 0.01))  # but for the few in between
    cells = {row["cell"]: row for row in result("a")["cells"]}
    for sex, row in cells.items():
        assert row["test_loss"] == pytest.approx(
            losses[own.sex == sex].mean(), abs=0.01
        )
        assert row["test_loss"] <= row["test_upper"] <= 0.25
    assert people("verify", "a").code == 0
    sharp(1).to_csv("later.csv", index=False)
    watched = people("monitor", "a", "later.csv", "--json")
    assert (watched.code, watched.json["status"]) == (0, "no alarm")
    assert any(name in note for note in watched.json["notes"])


def test_audits_of_the_same_rows_share_the_risk(people: Command) -> None:
    later = []
    for k in (0, 1, 2, 1):
        asked = ("--bound", "0.25", "--clip", "0.01")
        assert people("audit", f"sharp{k}.csv", *TABLE, *asked).code == 0
        place = f"audits/people-{len(later) + 1:03d}"
        later.append(evidence(place)["terms"]["later"])
        assert people("verify", place).code == 0
    assert later == [0, 1, 2, 1]  # the same audit again has the part that it had
    p = pd.DataFrame({"probability": np.where(sharp(0).x > 0, 0.9, 0.1)})
    p.to_csv("p.csv", index=False)
    assert people("audit", "p.csv", *TABLE, "--clip", "0.01").code == 0
    assert evidence("audits/people-005")["terms"]["later"] == 3
    (0.9 * p + 0.05).to_csv("q.csv", index=False)  # other probabilities, another model
    assert people("audit", "q.csv", *TABLE, "--clip", "0.01").code == 0
    assert evidence("audits/people-006")["terms"]["later"] == 4
    sharp(7).to_csv("people.csv", index=False)
    assert people("audit", "sharp0.csv", *TABLE, "--clip", "0.01").code == 0
    assert evidence("audits/people-007")["terms"]["later"] == 0


def test_an_audit_of_a_run_has_its_constraint_and_its_predictor(
    people: Command,
) -> None:
    data = ("synthetic", "--set", "data.rows=900", "--silos", "3", "--seed", "1")
    asked = ("--constraint", "cbgl", "--bound", "0.9", "--out", "run")
    assert people("run", *data, *asked).code == 0
    for k, model in enumerate(("run", "run/model.safetensors")):
        assert people("audit", model, "synthetic", "--out", f"a{k}").code == 0
        e, own = evidence(f"a{k}"), evidence("run")
        assert [c["cell"] for c in e["cells"]] == [c["cell"] for c in own["cells"]]
        assert {c["bound"] for c in e["cells"]} == {0.9}
        assert e["seen"]["splits"] == ["test"]  # the rows that its run held out
        assert e["terms"]["loss_bound"] == own["terms"]["loss_bound"]
        held = [row["test_loss"] for row in result("run")["cells"]]
        found = [row["test_loss"] for row in result(f"a{k}")["cells"]]
        assert found == pytest.approx(held)
    refused = people("audit", "run", "synthetic", "--clip", "0.01", "--out", "b")
    assert (refused.code, refused.error) == (2, "options-conflict")


def test_an_audit_of_a_private_model_warns(people: Command) -> None:
    private = ("--epsilon", "2", "--out", "run")
    known = columns_file(Path("c.toml"), pd.read_csv("people.csv"))
    table = (*TABLE, "--set", f"columns={known}", "--seed", "0")
    people("run", *table, "--bound", "0.7", *private)
    for k, model in enumerate(("run", "run/model.safetensors")):
        seen = people("audit", model, *TABLE, "--bound", "3", "--out", f"a{k}")
        assert seen.code == 0
        notes = [n for n in evidence(f"a{k}")["notes"] if "budget" in n]
        assert len(notes) == 1
        assert "training rows" in notes[0]
