"""`pffl audit` of anybody's model: without silos, with a page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from pffl.runs import read_run
from tests.cli.helpers import SMALL, one_line

TABLE = ("people.csv", "--label", "y", "--group", "sex")
X = ["age", "income"]
ROWS = (*SMALL[:-2], "--set", "data.seed=1")


@pytest.fixture
def people(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, 300).round(2),
            "income": rng.normal(3, 1, 300).round(2),
            "sex": rng.choice(["f", "m"], 300),
        }
    )
    odds = frame.age - 40 + rng.logistic(size=300) * 8
    frame["y"] = np.where(odds > 0, "yes", "no")
    frame.to_csv("people.csv", index=False)
    return frame


def fitted(frame):
    return LogisticRegression().fit(frame[X], frame.y)


def test_probabilities_in_a_folder_of_its_own_with_a_page(people, command):
    score = fitted(people).predict_proba(people[X])[:, 1]
    pd.DataFrame({"probability": score}).to_csv("p.csv", index=False)
    seen = command("audit", "p.csv", *TABLE, "--bound", "0.6", "-v")
    assert seen.code == 0
    assert "'probability'" in seen.out  # taken as the probability of yes
    wrong = float(((score > 0.5) != (people.y == "yes")).mean())
    said = f"On the 300 audited rows the error rate is {100 * wrong:.1f} %"
    assert said in one_line(seen.out)  # whatever a split would be
    place = Path("audits/people-001")
    page = (place / "report.html").read_text("utf-8")
    assert '<td data-title="rows of">training</td>' not in page
    assert command("report", place, "-o", "again.html").code == 0
    assert Path("again.html").read_text("utf-8") == page
    assert command("report", place, "--card", "--set", "about.owner=We").code == 0
    assert command("audit", "p.csv", *TABLE, "--json").code == 0
    assert Path("audits/people-002").is_dir()
    checked = command("verify", place, "--model", "p.csv")
    assert (checked.code, "not checked" in checked.out) == (0, False)
    sure = command("audit", "p.csv", *TABLE, "--certify", "0.99", "--json")
    assert sure.json["confidence"] == 0.99
    bounded = (*TABLE, "--bound", "0.61")  # within it, and too near to certify
    assert command("audit", "p.csv", *bounded).code == 0
    assert command("audit", "p.csv", *bounded, "--certify").code == 4
    alone = command("verify", place)
    assert (alone.code, "--model FILE" in one_line(alone.err)) == (0, True)


def test_probabilities_are_joined_by_an_id(people, command):
    people = people.assign(pid=np.arange(300))
    people.to_csv("people.csv", index=False)
    model = Path("m.csv")
    model.write_text("feature,coef\nage,0.1\n(intercept),-4\n", "utf-8")
    score = pd.DataFrame(
        {"pid": people.pid, "probability": 1 / (1 + np.exp(4 - 0.1 * people.age))}
    )
    score.sample(frac=1, random_state=0).to_csv("p.csv", index=False)
    table = (*TABLE, "--drop", "pid")
    refused = command("audit", "p.csv", *table)
    assert (refused.code, "--id pid" in one_line(refused.err)) == (3, True)
    plain = command(
        "audit", "p.csv", *table, "--id", "pid", "--json", "--out", "a"
    ).json
    same = command("audit", "m.csv", *table, "--json", "--out", "apart/b").json
    for a, b in zip(plain["statements"], same["statements"], strict=True):
        assert a["value"] == b["value"] or a["value"] == pytest.approx(b["value"])
    assert command("verify", "a", "--model", "p.csv").code == 0
    assert command("audit", "p.csv", *ROWS).code == 2  # which needs no table
    # Of coefficients: they are beside their certificate, and read as verified.
    assert read_run("apart/b").verified
    assert command("verify", "apart/b", "--model", model).code == 0
    model.write_text(model.read_text("utf-8").replace("0.1\n", "0.1001\n"), "utf-8")
    changed = command("verify", "apart/b", "--model", model)
    assert (changed.code, "fingerprint of the model" in changed.out) == (6, True)
    assert command("verify", "apart/b").code == 0
    assert command("audit", model, *table, "--bound", "0.01").code == 4


@pytest.mark.parametrize("name", ["m.joblib", "model"])
def test_a_pickle_is_never_opened_and_its_probabilities_are_audited(
    people, command, name
):
    import joblib

    model = fitted(people)
    joblib.dump(model, name)
    seen = command("audit", name, *TABLE)
    assert (seen.code, seen.error, "a pickle" in seen.err) == (3, "not-a-table", True)
    table = pd.DataFrame(model.predict_proba(people[X]), columns=model.classes_)
    table.to_csv("probabilities.csv", index=False)
    assert command("audit", "probabilities.csv", *TABLE).code == 0
    cells = read_run("audits/people-001").as_dict()["cells"]
    found = {cell["cell"]: cell["train_loss"] for cell in cells}
    expected = -np.log(model.predict_proba(people[X])[people.sex == "f"])
    column = (people.y[people.sex == "f"] == "yes").astype(int)
    mean = expected[np.arange(len(column)), column].mean()
    assert found["f"] == pytest.approx(mean)
    assert not Path("audits/people-002").exists()
