"""`pffl monitor`: what a person types, reads and gets as an exit code."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from pffl.cli import main
from tests.test_monitoring import people

RUN = ("--label", "y", "--group", "sex", "--id", "who", "--seed", "0", "--out", "run")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of people.csv in `run`, and eight weeks of new rows."""
    folder = tmp_path_factory.mktemp("people")
    people(900, 0).to_csv(folder / "people.csv", index=False)
    for week in range(1, 9):
        wrong = 0.0 if week <= 4 else 0.5
        people(150, week, wrong).to_csv(folder / f"week{week}.csv", index=False)
    with contextlib.chdir(folder), pytest.raises(SystemExit):
        main(["run", "people.csv", "--bound", "0.55", *RUN])
    return folder


@pytest.fixture
def trained(place, tmp_path, command):
    """The command line in a copy of it."""
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    return command


def test_weeks_one_by_one_until_an_alarm(trained):
    first = trained("monitor", "run", "week1.csv")
    assert (first.code, "NO ALARM" in first.out) == (0, True)
    assert trained("monitor", "run", "week2.csv", "week3.csv", "week4.csv").code == 0
    codes = [trained("monitor", "run", f"week{k}.csv").code for k in range(5, 9)]
    assert codes[-1] == 4
    last = trained("monitor", "run", "week8.csv")  # once more: nothing changes
    assert (last.code, "ALARM" in last.out) == (4, True)
    seen = trained("monitor", "run", "week8.csv", "--json")
    assert seen.code == 4
    plain = seen.json
    assert (plain["status"], plain["batches"]) == ("alarm", 8)
    rows = {row["cell"]: row for row in plain["cells"]}
    assert rows["m"]["crossed_at_row"] is None
    crossed = rows["f"]["crossed_in_batch"]
    assert crossed == 5 + codes.index(4)
    history = [r for r in plain["history"] if r["cell"] == "f"]
    assert rows["f"]["crossed_at_row"] == history[crossed - 1]["rows"]
    assert history[crossed - 1]["e_value"] >= plain["threshold"] == 40
    assert all(r["e_value"] < 40 for r in history[: crossed - 1])
    # The run itself is as it was, and its page shows the monitor.
    assert trained("verify", "run").code == 0
    pytest.importorskip("jinja2")
    for place in ("run", "run/monitor.json"):
        assert trained("report", place, "-o", "page.html").code == 0
        page = Path("page.html").read_text("utf-8")
        assert plain["digest"] in page


def test_what_is_wrong_is_named(trained):
    people(60, 1).drop(columns="y").to_csv("bare.csv", index=False)
    people(60, 1).assign(job="zz").to_csv("job.csv", index=False)
    for model, rows, code, error in (
        ("run", "bare.csv", 3, "missing-column"),
        ("run", "job.csv", 3, "unknown-category"),
        ("run", "people.csv", 3, "training-rows"),
        ("run", "nowhere.csv", 3, "file-missing"),
        ("nowhere", "week1.csv", 6, "file-missing"),
        ("people.csv", "week1.csv", 6, "bad-model-file"),
    ):
        seen = trained("monitor", model, rows)
        assert (seen.code, seen.error) == (code, error), seen.err
    assert not Path("run/monitor.json").exists()
    trained("run", "people.csv", "--l2", "0.3", *RUN[:-1], "free")
    assert trained("monitor", "free", "week1.csv").error == "needs-bound"
    assert trained("monitor", "free", "week1.csv", "--bound", "f=0.6").code == 0
    for more, error in (
        ("--bound=0.5", "options-changed"),
        ("--id=no", "missing-column"),
    ):
        assert trained("monitor", "free", "week2.csv", more).error == error
    seen = trained("monitor", "run", "week1.csv", "--state", "free/monitor.json")
    assert (seen.code, seen.error) == (6, "other-model")
    state = Path("free/monitor.json")
    state.write_text(state.read_text("utf-8").replace("week1", "week9"))
    seen = trained("monitor", "free", "week2.csv")
    assert (seen.code, seen.error) == (6, "changed-file")
