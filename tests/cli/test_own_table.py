"""A user's own CSV, with the flaws that such files have: `pffl run people.csv …`."""

from __future__ import annotations

import random
from pathlib import Path

HEADER = ["âge", "revenu", "métier", "sexe", "race", "branche", "embauché"]
COLUMNS = ("--label", "embauché", "--group", "sexe,race", "--silo", "branche")
RUN = ("run", "people.csv", *COLUMNS, "--bound", "0.9", "--seed", "0")


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


def write(rows):
    """As Excel does in French: semicolons, decimal commas, Latin-1."""
    lines = [HEADER, *([a, b.replace(".", ","), *rest] for a, b, *rest in rows)]
    text = "\r\n".join(map(";".join, lines)) + "\r\n"
    Path("people.csv").write_bytes(text.encode("latin-1"))


def test_everything_wrong_is_listed_in_one_message(command):
    rows = people()
    rows[0][0] = rows[1][0] = "unknown"
    for row in rows[2:6]:
        row[1] = ""
    for row in rows[6:9]:
        row[3] = ""
    rows[10][6] = rows[11][5] = ""
    write(rows)
    seen = command(*RUN)
    assert (seen.code, seen.out) == (3, "")
    for part in (
        "5 problems",
        "'âge': 2 non-numeric values: 'unknown' (line 2, ",
        "'revenu': 4 missing values (line 4, ",
        "--missing indicator",
        "'embauché': 1 missing value",
        "to make them a group, declare it: "
        """--set 'columns.sexe.values=["f", "m", "missing"]'""",
        "'branche': 1 missing value",
    ):
        assert part in seen.err
    assert list(Path("runs").iterdir()) == []


def test_what_the_message_advises_works(command):
    rows = people()
    rows[0][0] = "unknown"
    rows[2][1] = rows[6][3] = ""
    write(rows)
    advised = ("--missing", "indicator")
    advised += ("--set", 'columns.sexe.values=["f", "m", "missing"]')
    advised += ("--set", 'columns."âge".kind=category')
    advised += ("--set", "run.empty_cells=remove")
    seen = command(*RUN, *advised, "--json")
    assert seen.code == 0
    assert any(c["cell"].startswith("missing × ") for c in seen.json["cells"])
