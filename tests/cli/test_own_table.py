"""A user's own CSV, with the flaws that such files have: `pffl run people.csv …`."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pffl import runs
from tests.cli.helpers import one_line, pffl

Table = list[list[str]]
HEADER = ["âge", "revenu", "métier", "sexe", "race", "branche", "embauché"]
COLUMNS = ("--label", "embauché", "--group", "sexe,race", "--silo", "branche")
RUN = (*COLUMNS, "--bound", "0.9", "--seed", "0", "--no-extras")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def people(number=300):
    rng = random.Random(1)  # noqa: S311
    rows = []
    for _ in range(number):
        age, sex = rng.randint(18, 70), rng.choice("fm")
        income = f"{rng.gauss(3, 1):.4f}"
        hired = age / 70 + float(income) / 5 + rng.gauss(0, 0.4) > 1.2
        place = [rng.choice(["noir", "blanc"]), rng.choice(["Zürich", "Bern"])]
        job = rng.choice(["fermière", "clerc"])
        rows.append([str(age), income, job, sex, *place, "oui" if hired else "non"])
    return rows


def write(rows, *, separator=",", encoding="utf-8", decimal=".", end="\n"):
    lines = [HEADER, *([a, b.replace(".", decimal), *rest] for a, b, *rest in rows)]
    text = end.join(separator.join(line) for line in lines) + end
    Path("people.csv").write_bytes(text.encode(encoding))


DIALECTS: dict[str, Callable[[Table], None]] = {
    "plain": write,
    "byte-order mark": lambda rows: write(rows, encoding="utf-8-sig", end="\r\n"),
    "Excel, French": lambda rows: write(
        rows, separator=";", encoding="latin-1", decimal=",", end="\r\n"
    ),
    "tabs, UTF-16": lambda rows: write(rows, separator="\t", encoding="utf-16"),
}


def test_dialects_give_the_same_run(capsys):
    found = {}
    for name, dialect in DIALECTS.items():
        dialect(people())
        seen = pffl(capsys, "run", "people.csv", *RUN, "--json", "--quiet")
        assert seen.code == 0, name
        found[name] = seen.json["cells"]
    assert all(cells == found["plain"] for cells in found.values())
    assert [cell["cell"] for cell in found["plain"]] == [
        "f × blanc",
        "f × noir",
        "m × blanc",
        "m × noir",
    ]


def test_odd_rows_make_a_run_that_says_so(capsys):
    rows = people()
    for row in rows[:8]:
        row[4:6] = ["autre", "Bern"]  # a group in one silo only
    rows.append([*rows[20][:5], "Genève", "oui"])  # a silo with one row
    rows += [list(row) for row in rows[30:37]]  # copies
    write(rows, encoding="utf-8-sig")
    seen = pffl(capsys, "run", "people.csv", *RUN)
    text = one_line(seen.out + seen.err)
    assert seen.code == 0
    assert "7 rows are copies of earlier ones, and were kept" in text
    assert "cells with fewer than 10 training rows: f × autre, m × autre" in text
    assert "few training rows: Genève (1); weighting by rows counts rows" in text
    result = runs.load("runs/people-001").result
    assert result["data"]["silos"] == 3
    assert sum(cell["count"] for cell in result["cells"]) == result["train"]["rows"]
    by_rows = pffl(capsys, "run", "people.csv", *RUN, "--weighting", "rows")
    assert "few training rows: Genève" not in one_line(by_rows.out)


def test_everything_wrong_is_listed_in_one_message(capsys):
    rows = people()
    rows[0][0] = rows[1][0] = "unknown"
    for row in rows[2:6]:
        row[1] = ""
    for row in rows[6:9]:
        row[3] = ""
    rows[10][6] = rows[11][5] = ""
    write(rows, encoding="utf-8-sig")
    seen = pffl(capsys, "run", "people.csv", *RUN)
    assert seen.code == 3
    assert seen.out == ""
    assert "table: 5 problems" in seen.err
    for part in (
        "column 'âge': numbers mixed with 'unknown' (2, first: line 2)",
        "column 'revenu': 4 missing values (first: line 4); --missing indicator marks",
        "label 'embauché': 1 missing values",
        "protected attribute 'sexe': 3 missing values; --missing-group missing",
        "silo 'branche': 1 missing values",
    ):
        assert part in seen.err
    assert list(Path("runs").iterdir()) == []


def test_what_the_message_advises_works(capsys):
    rows = people()
    rows[0][0] = "unknown"
    rows[2][1] = rows[6][3] = ""
    write(rows)
    advised = ("--missing", "indicator", "--missing-group", "missing")
    advised += ("--categorical", "âge", "--set", "run.empty_cells=remove")
    seen = pffl(capsys, "run", "people.csv", *RUN, *advised)
    assert seen.code == 0
    names = [c["cell"] for c in runs.load("runs/people-001").result["cells"]]
    assert any(name.startswith("missing × ") for name in names)


def test_names_may_be_repeated_or_joined_by_commas(capsys):
    write(people())
    apart = ("--group", "sexe", "--group", "race", "--drop", "âge", "--drop", "métier")
    joined = ("--group", "sexe, race", "--drop", "âge,métier")
    outs = [
        pffl(capsys, "data", "info", "people.csv", *COLUMNS[:2], *COLUMNS[4:], *way).out
        for way in (apart, joined)
    ]
    assert outs[0] == outs[1]
    assert "1 inputs" in outs[0]


def test_nobody_is_on_both_sides_with_an_id(capsys):
    rows = [row for row in people(150) for _ in range(2)]
    lines = [["pid", *HEADER], *([str(i // 2), *row] for i, row in enumerate(rows))]
    Path("people.csv").write_text("\n".join(map(",".join, lines)) + "\n", "utf-8")
    seen = pffl(capsys, "run", "people.csv", *RUN, "--id", "pid", "--json", "--quiet")
    assert seen.code == 0
    record = runs.load("runs/people-001")
    assert record.evidence.data.by_person
    assert record.evidence.data.overlap == 0
    assert record.result["test"]["rows"] % 2 == 0
    assert pffl(capsys, "verify", "runs/people-001").code == 0


def test_people_without_a_bound_explain_a_risk_above_every_cell(capsys):
    """The risk is that of all: also of those whom no cell has."""
    write(people())
    run = ("run", "people.csv", "--label", "embauché", "--group", "sexe,race")
    bounds = ("--constraint", "cbgl", "--bound", "f × noir, non=0.3")
    seen = pffl(capsys, *run, *bounds, "--seed", "0", "--no-extras")
    text = one_line(seen.out)
    assert "f × noir, non" in text
    assert "no bound was given for f × blanc, non" in text
    assert "The risk is above the loss of every cell" not in text
