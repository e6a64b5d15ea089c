"""`pffl audit` of anybody's model: without silos, with a page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from pffl.runs import load
from tests.cli.helpers import one_line, pffl

AUDIT = (Path(__file__).parents[2] / "docs" / "audit.md").read_text("utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TABLE = ("people.csv", "--label", "y", "--group", "sex")
X = ["age", "income"]


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


def test_no_silos_and_a_folder_of_its_own_with_the_page_of_a_run(people, capsys):
    score = fitted(people).predict_proba(people[X])[:, 1]
    pd.DataFrame({"prob": score}).to_csv("p.csv", index=False)
    seen = pffl(capsys, "audit", "p.csv", *TABLE, "--bound", "0.6")
    text = one_line(seen.out)
    assert seen.code == 0
    assert "people · 1 silo · 300 rows" in text
    assert "column 'prob' is taken as the probability of 'yes'" in text
    assert "On the training rows: NOT AVAILABLE" in text
    assert "✓ On the rows at hand: WITHIN On the 300 rows used" in text
    assert "if it was, they say nothing about people not seen" in text
    place = Path("audits/people-001")
    assert f"Report: {place / 'report.html'}" in text
    page = (place / "report.html").read_text("utf-8")
    assert "Nothing is known of how the model was trained." in page
    assert "On the 300 rows used no cell is above its bound" in page
    assert '<td data-title="rows of">training</td>' not in page
    again = pffl(capsys, "report", place, "-o", "again.html")
    assert again.code == 0
    assert Path("again.html").read_text("utf-8") == page
    own = -np.log(np.where(people.y == "yes", score, 1 - score))
    assert f"used 300 {own.mean():.4f}" in text  # whatever a split would be
    assert pffl(capsys, "card", place, "--purpose", "Triage", "--owner", "We").code == 0
    assert pffl(capsys, "audit", "p.csv", *TABLE, "--json").code == 0
    assert Path("audits/people-002").is_dir()
    checked = pffl(capsys, "verify", place, "--model", "p.csv")
    assert (checked.code, "not checked" in checked.out) == (0, False)
    sure = pffl(capsys, "certify", place, "--confidence", "0.99", "--json")
    assert (sure.code, sure.json["confidence"]) == (0, 0.99)
    alone = pffl(capsys, "verify", place)
    assert alone.code == 0
    assert "--model FILE gives them" in one_line(alone.err)


def test_an_audit_of_coefficients_is_read_as_verified(people, capsys):
    Path("m.json").write_text('{"features": ["age"], "coef": [0.1], "intercept": -4}')
    assert pffl(capsys, "audit", "m.json", *TABLE, "--out", "a").code == 0
    assert load("a").verified
    assert "the model audited: 'm.json'" in load("a").evidence.notes
    assert pffl(capsys, "certify", "a", "--confidence", "0.9").code == 0
    assert pffl(capsys, "verify", "a").code == 0


def test_of_its_own_data_a_model_is_judged_by_what_was_held_out(people, capsys):
    for i in range(20):  # more inputs than a card shows
        people[f"x{i}"] = np.random.default_rng(i + 1).normal(size=300).round(3)
    people.to_csv("people.csv", index=False)
    run = pffl(capsys, "run", *TABLE, "--bound", "0.8", "--out", "r-037", "--seed", "1")
    assert run.code == 0
    assert "7 more move it less" in Path("r-037/card.md").read_text("utf-8")
    assert pffl(capsys, "verify", "r-037").code == 0
    text = one_line(pffl(capsys, "audit", "r-037", "people.csv").out)
    assert "only the rows that its run held out are used" in text
    assert "On the 60 rows used" in text
    people.iloc[:100].assign(age=people.age + 0.5).to_csv("new.csv", index=False)
    text = one_line(pffl(capsys, "audit", "r-037", "new.csv").out)
    assert "held out are used" not in text
    assert "On the 100 rows used" in text
    assert "wrong predictions, all rows used" in text


def test_a_cell_that_can_be_told_apart_is_verified(people, capsys):
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(30)]
    people = pd.DataFrame(rng.normal(size=(400, 30)).round(3), columns=names)
    people["sex"] = np.where(np.arange(400) < 40, "f", "m")
    people["y"] = (people.x0 + 2 * rng.logistic(size=400) > 0).astype(int)
    people.to_csv("people.csv", index=False)
    run = ("run", *TABLE, "--seed", "0", "--out", "r")
    refused = pffl(capsys, *run, "--constraint", "bgl")
    assert (refused.code, "give --bound NUMBER" in refused.err) == (2, True)
    assert pffl(capsys, *run, "--bound", "f=0.4").code == 0
    assert pffl(capsys, "verify", "r").code == 0


def test_silos_of_one_person_have_a_card(people, capsys):
    people.assign(home=np.arange(300) % 250).to_csv("people.csv", index=False)
    run = ("run", *TABLE, "--silo", "home", "--bound", "0.8", "--seed", "0")
    assert pffl(capsys, *run, "--out", "r").code == 0
    assert "test rows" not in Path("r/card.md").read_text("utf-8")  # nobody is there
    assert pffl(capsys, "verify", "r").code == 0


@pytest.mark.parametrize("name", ["m.joblib", "model"])
def test_a_pickle_is_never_opened_and_its_probabilities_are_audited(
    people, capsys, name
):
    import joblib

    model = fitted(people)
    joblib.dump(model, name)
    seen = pffl(capsys, "audit", name, *TABLE)
    assert seen.code == 3
    assert "never opened" in seen.err
    assert "a table of its predictions" in one_line(seen.err)
    (code,) = [c for c in PYTHON.findall(AUDIT) if "predict_proba" in c and "csv" in c]
    exec(code, {"pd": pd, "model": model, "X": people[X]})  # noqa: S102
    assert pffl(capsys, "audit", "probabilities.csv", *TABLE).code == 0
    found = load_losses(Path("audits/people-001"))
    expected = -np.log(model.predict_proba(people[X])[people.sex == "f"])
    column = (people.y[people.sex == "f"] == "yes").astype(int)
    mean = expected[np.arange(len(column)), column].mean()
    assert found["f"] == pytest.approx(mean)
    assert not Path("audits/people-002").exists()


def load_losses(place):
    from pffl.files import read
    from pffl.records import read as parsed

    plain = parsed(dict, read(place / "result.json"), source="result")
    return {cell["cell"]: cell["train_loss"] for cell in plain["cells"]}


def test_a_folder_that_is_no_audit_gets_no_card(people, capsys):
    for place in ("people.csv", "nowhere"):
        seen = pffl(capsys, "card", place)
        assert (seen.code, "not a run directory" in seen.err) == (6, True)
