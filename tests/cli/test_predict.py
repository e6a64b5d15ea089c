"""`pffl predict`: new rows in, scores out, of any size, all or nothing."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl import runs
from tests.inside import reading
from tests.models.test_predictor import LABELS, people, solved

PROBABILITIES = ["probability_no", "probability_yes"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("model") / "run"
    return solved("text").save(place)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "CHUNK_ROWS", 7)  # many pieces
    table = people(labels=LABELS["text"]).assign(
        id=[f"p{k}" for k in range(120)], note=["=1+1", '"a,\nb"', "NA", "-5"] * 30
    )
    path = tmp_path / "rows.csv"
    table.to_csv(path, index=False)
    return path


def test_scores_are_those_of_the_model(command, model, rows, tmp_path):
    out = tmp_path / "scores.csv"
    seen = command("predict", model, rows, "-o", out, "--keep", "id", "--keep", "note")
    assert (seen.code, seen.out) == (0, "")
    assert "120 rows scored" in seen.err
    assert command("predict", model, rows, "--keep", "prediction").code == 2
    scores = pd.read_csv(out, keep_default_na=False)
    assert list(scores) == ["id", "note", "prediction", *PROBABILITIES]
    table, one = pd.read_csv(rows, keep_default_na=False), solved("text")
    assert scores["id"].tolist() == table["id"].tolist()
    assert scores["prediction"].tolist() == one.predict(table).tolist()
    wanted = one.predict_proba(table)
    np.testing.assert_allclose(scores["probability_yes"], wanted[:, 1], rtol=1e-14)
    assert scores["note"].tolist()[:4] == ["'=1+1", '"a,\nb"', "NA", "-5"]
    again = command("predict", model, rows)
    assert again.code == 0
    assert pd.read_csv(io.StringIO(again.out)).equals(
        pd.read_csv(out).drop(columns=["id", "note"])
    )


def test_nothing_is_overwritten_and_no_half_file_is_left(
    command, model, rows, tmp_path
):
    out = tmp_path / "scores.csv"
    lines = rows.read_text().splitlines()
    where = rows.read_text().count("\n") + 1
    rows.write_text(rows.read_text() + "old,nurse,f,north,yes,p,n\n")
    before = sorted(tmp_path.iterdir())
    seen = command("predict", model, rows, "-o", out)
    assert (seen.code, seen.out) == (3, "")
    assert f"column 'age': 1 non-numeric value: 'old' (line {where})" in " ".join(
        seen.err.split()
    )
    assert sorted(tmp_path.iterdir()) == before
    rows.write_text("\n".join(lines))
    out.write_text("mine")
    seen = command("predict", model, rows, "-o", out)
    assert (seen.code, out.read_text()) == (6, "mine")


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("", "empty-file", ""),
        ("age,job\n", "no-rows", ""),
        ("age,jobs\n30,cook\n", "missing-column", "'jobs'"),
        ("age,job\n30,cook\n31\n", "bad-record", "line 3"),
        ("age,job\n30,cook\n,cook\n", "missing-values", "(line 3)"),
        ("age,job\n30,cook\n\n\n31,pilot\n", "unknown-category", "line 5"),
        ('age,job\n30,"co\nok"\n', "unknown-category", "line 2"),
        ('age,job\n30,"cook\n31,cook\n', "bad-record", "line 2"),
        ("age,job\n30,cook\ninf,cook\n", "not-finite", "(line 3)"),
        ("age,job\n30,cook\n1,c\0k\n", "not-text", "zero byte"),
        ("age,age,job\n30,31,cook\n", "repeated-column", "'age'"),
        ('[{"age": 1}]', "not-a-table", "JSON"),
        (
            "age,job\nold,cook\n31,pilot\n,cook\ninf,cook\n",
            "not-numbers",
            "'pilot' (line 3)",  # all bad rows in one round
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    command, model, tmp_path, text, error, says
):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    seen = command("predict", model, path, "-o", tmp_path / "scores.csv")
    assert (seen.code, seen.error, seen.out) == (3, error, "")
    assert says in " ".join(seen.err.split())
    assert not (tmp_path / "scores.csv").exists()


# Audits of a model of ours


def bounds_of(place):
    return [cell["bound"] for cell in runs.read_run(place).as_dict()["cells"]]


def test_an_audit_knows_label_groups_and_bounds(command, model, rows):
    spec = "[data]\npath = 'x.csv'\nlabel = 'hired'\ngroup = 'sex'\nsilo = 'branch'\n"
    place = Path("run")
    runs.save(
        solved("text"), place, spec + "[constraint]\nkind = 'bgl'\nbound = 0.65\n"
    )
    table = pd.read_csv(rows).drop(columns=["branch", "note"])
    table = table[table["job"] != "cook"]  # a category less than in training
    table.to_csv("fresh.csv", index=False)
    seen = command("audit", place, "fresh.csv", "--out", "found")
    assert seen.code == 0, seen.err
    assert "0.650" in seen.out
    found = runs.read_run("found")
    assert [cell["cell"] for cell in found.as_dict()["cells"]] == ["f", "m"]
    assert found.predictor.loss_bound == solved("text").loss_bound
    np.testing.assert_array_equal(
        found.predictor.predict(table), solved("text").predict(table)
    )
    assert command("verify", "found").code == 0
    # What the run does not say, its model does; what is said now holds.
    file = pffl.load(model).save("alone.safetensors")
    seen = command("audit", file, "fresh.csv", "--bound", "0.9", "--out", "other")
    assert seen.code == 0, seen.err
    assert bounds_of("other") == [0.9] * 2
    # A bound that was chosen is kept.
    about = ("--label", "hired", "--group", "sex", "--drop", "note", "--seed", "1")
    done = command("run", rows, *about, "--bound", "auto", "--out", "chosen")
    assert done.code in (0, 4), done.err
    assert command("audit", "chosen", rows, "--out", "third").code in (0, 4)
    assert bounds_of("third") == bounds_of("chosen")


def test_an_audit_of_the_run_s_own_held_out_rows_is_a_further_look(command, rows):
    table = pd.read_csv(rows).drop(columns=["note"])
    table.to_csv("own.csv", index=False)
    about = ("--label", "hired", "--group", "sex", "--bound", "0.65", "--seed", "1")
    assert command("run", "own.csv", *about, "--out", "run").code in (0, 4)
    for name in ("one", "two"):  # the same certificate twice is one look
        seen = command("audit", "run", "own.csv", "--out", name)
        assert seen.code == 0, seen.err
        e = runs.read_run(name).evidence
        assert e.data.fingerprint == runs.read_run("run").evidence.data.fingerprint
        assert (e.heldout.splits, e.heldout.rows) == (["test"], 24)  # held out
        assert e.terms.later == 1
        assert command("verify", name).code == 0
    table.iloc[:60].to_csv("fresh.csv", index=False)
    assert command("audit", "run", "fresh.csv", "--out", "new").code == 0
    assert runs.read_run("new").evidence.terms.later == 0
    e = runs.read_run("new").evidence  # all of them are judged, and alike
    assert (e.heldout.splits, e.heldout.rows) == (["train", "test"], 60)
    assert command("verify", "new").code == 0
