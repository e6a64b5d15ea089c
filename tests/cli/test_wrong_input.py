"""Wrong or odd input: said, and right, before a model is trained."""

from __future__ import annotations

import random

import pandas as pd
import pytest

from tests.cli.helpers import one_line

COLUMNS = ("--label", "y", "--group", "sex")
RUN = ("run", "people.csv", "--seed", "0")


def people(rows=200):
    rng = random.Random(0)  # noqa: S311
    lines = []
    for _ in range(rows):
        age, sex = rng.randint(18, 70), rng.choice("fm")
        y = "yes" if age + rng.gauss(0, 20) > 45 else "no"
        lines.append((age, rng.gauss(0, 1), sex, rng.choice("abc"), y))
    return pd.DataFrame(lines, columns=["age", "score", "sex", "site", "y"])


def ages(write):
    return lambda f: f.assign(age=[write(int(age)) for age in f["age"]])


def at(column, rows, value):
    """Put a value into some rows of a column."""
    kept = lambda f: f[column].astype(object).where(~f.index.isin(rows), value)  # noqa: E731
    return lambda f: f.assign(**{column: kept(f)})


def cells(name, make):
    return lambda f: f.assign(**{name: [make(i) for i in range(len(f))]})


#: What is changed, options, the code of the error (none: a note), and what is said.
#: The one table of wrong and odd input; files that are no tables: data/test_reading.py.
CASES = {
    # Labels
    "a stray label": (at("y", [7], "yess"), "", None, "3 classes", "'yess' → 2"),
    "labels that differ in case": (at("y", [7], "Yes"), "", None, "'Yes' and 'yes'"),
    "missing labels": (
        at("y", [7, 9], None), "", "missing-values", "missing_label=drop", "'y': 2",
    ),
    "missing labels, dropped": (
        at("y", [7, 9], None),
        "--set data.missing_label=drop", None, "2 rows without a label",
    ),
    "no labels": (
        lambda f: f.assign(y=None), "--set data.missing_label=drop", "no-rows", "'y'",
    ),
    "one label": (lambda f: f.assign(y="no"), "", "one-class", "'y'"),
    "a number as label": (
        at("y", [], ""), "--label score", "too-many-classes", "--model least-squares",
    ),
    "a label that is no number": (
        at("y", [], ""), "--model least-squares", "not-numbers", "'y'",
    ),
    "three classes": (
        lambda f: f.assign(y=f["site"]), "--model logistic", "wrong-model", "softmax",
    ),
    "the label twice": (at("y", [], ""), "--group y", "wrong-column", "'y'"),
    "a label that is not there": (
        at("y", [], ""), "--label Y", "missing-column", "'Y'", "'age'",
    ),
    "a label that gives itself away": (
        lambda f: f.assign(paid=(f["y"] == "yes") * 1), "", None, "'paid' alone", "1.0",
    ),
    # Groups
    "one group": (lambda f: f.assign(sex="f"), "", None, "one value only ('f')"),
    "M and male": (at("sex", range(30), "Male"), "", None, "'Male' and 'm'", "same"),
    "missing groups": (
        at("sex", [3], None),
        "", "missing-values", """'columns.sex.values=["f", "m", "missing"]'""",
    ),
    "missing groups, a group": (
        at("sex", [3], None),
        '--set columns.sex.values=["f","m","missing"]', None, "missing",
    ),
    "a continuous group": (
        at("y", [], ""), "--group score", "too-many-groups", "bands",
    ),
    "an id as group": (
        cells("who", lambda i: f"p{i}"), "--group who", "looks-like-id", "200 values",
    ),
    "a second protected column": (
        cells("Ethnicity", lambda i: "ab"[i % 2]), "", None, "'Ethnicity'", "inputs=",
    ),
    "a stand-in for the group": (
        lambda f: f.assign(title=f["sex"].map({"f": "Ms", "m": "Mr"})),
        "", None, "'title' alone predicts the protected",
    ),
    # Numbers
    "thousands": (
        ages(lambda v: f"{1200 + v:,}.50"), "", "not-numbers", "columns.age.kind",
    ),
    "money, told": (
        ages(lambda v: f"€ {v}"), "--set columns.age.kind=category", None, "age (",
    ),
    "a word": (
        at("age", [3], "unknown"),
        "", "not-numbers", "'unknown' (line 5)", "columns.age.kind",
    ),
    "a mark for missing": (at("age", [3], "?"), "", "not-numbers", "'?' (line 5)"),
    "-999": (at("age", [3, 4], -999), "", None, "-999 (2 rows) looks like a missing"),
    "beyond a computer": (at("score", [5], 1e300), "", "too-large-numbers", "1e+75"),
    "infinite": (at("score", [5], "inf"), "", "not-finite", "(line 7)"),
    "missing": (
        at("score", range(4), None),
        "", "missing-values", "4 missing values (line 2, 3", "--missing indicator",
    ),
    "missing, marked": (
        at("score", range(4), None), "--missing indicator", None, "6 inputs",
    ),
    "nothing in a column": (cells("n", lambda i: None), "", None, "'n' left out"),
    "a number in every row": (
        cells("nr", lambda i: 1000 + i), "", None, "'nr' has a different whole number",
    ),
    # Texts and categories
    "missing or not": (at("site", range(5), "?"), "", None, "'?' looks like a missing"),
    "many categories": (
        cells("place", lambda i: f"z{i % 150}"), "", None, "'place': 150 categories",
    ),
    "an id": (cells("who", lambda i: f"person {i}"), "", None, "'who' has a different"),
    "nothing left": (
        at("y", [], ""), "--drop age,score,site", "no-inputs", "no column",
    ),
    "a column that is not there": (
        at("y", [], ""), "--drop scor", "missing-column", "did you mean 'score'",
    ),
    # Dates
    "dates": (
        cells("born", lambda i: "1980-02-29"), "", None, "holds dates or times", "left",
    ),
    "dates as categories": (
        cells("born", lambda i: f"{1950 + i % 3}-02-28"),
        "--set columns.born.kind=category", None, "born (3)",
    ),
    "a kind that is none": (
        at("y", [], ""), "--set columns.age.kind=colour", "wrong-value", "colour",
    ),
    "a key that is none": (
        at("y", [], ""), "--set columns.age.hash=1 --set columns.age.comma=,",
        "unknown-key", "comma",
    ),
    "a column that is declared, and not there": (
        at("y", [], ""), "--set columns.agee.kind=number", "missing-column", "'age'",
    ),
    # Silos, people and weights
    "silos for nobody": (
        at("y", [], ""),
        "--silos 5000", "no-training-rows", "5,000 silos for 200 rows",
    ),
    "no silos": (at("y", [], ""), "", None, "all rows are in one silo"),
    "a missing silo": (
        at("site", [2], None), "--silo site", "missing-values", "'site'",
    ),
    "both silos": (at("y", [], ""), "--silo site --silos 3", "needs-silos", "--silos"),
    "a silo for every second row": (
        cells("site", lambda i: f"place {i % 100:04d}"),
        "--silo site", None, "silos: 100", "more",
    ),
    "several rows of one": (
        cells("who", lambda i: f"person {i // 3}"),
        "--id who", None, "67 people in 200 rows; 67 have several, at most 3",
    ),
    "a missing id": (
        lambda f: at("who", [1], None)(cells("who", lambda i: f"p{i}")(f)),
        "--id who", "missing-values", "'who'",
    ),
    "the id as label": (at("y", [], ""), "--id y", "wrong-column", "'y'"),
    "one heavy row": (
        cells("w", lambda i: 1e12 if i == 3 else 1.0),
        "--set data.weight=w", None, "one row of 200 has most of the weight",
    ),
    "weights below 0": (
        cells("w", lambda i: -1.0 if i == 3 else 1.0),
        "--set data.weight=w", "bad-weights", "line 5",
    ),
    # Files
    "an index without a name": (
        lambda f: f.rename_axis(None).reset_index(names=""), "", None, "without a name",
    ),
    "a total": (
        lambda f: pd.concat([f, f.tail(1).assign(site="Total")]), "", "total-line",
        "remove",
    ),
    "no header": (
        lambda f: f.set_axis(["39", "0.5", "f", "a", "yes"], axis=1),
        "", "no-header", "add a line",
    ),
    "no rows": (lambda f: f[:0], "", "no-rows", "people.csv"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_odd_is_said_and_what_is_wrong_refused(command, name):
    change, options, error, *said = CASES[name]
    change(people()).to_csv("people.csv", index=False)
    asked = ("people.csv", *COLUMNS, *options.split())
    model = "--model" in options
    seen = command(*(("run", *asked, "--bound=1") if model else ("data", *asked)))
    text = one_line(seen.err + seen.out)
    assert (seen.error, bool(seen.code)) == (error, bool(error)), seen.err
    assert [part for part in said if part not in text] == [], text
    assert "Traceback" not in text


def test_a_bound_far_above_every_loss(command):
    people().to_csv("people.csv", index=False)
    told, quiet = (command(*RUN, *COLUMNS, "--bound", b).err for b in ("60", "0.65"))
    assert ("ask for nothing" in told, "ask for nothing" in quiet) == (True, False)
    assert "0.6" in told
    assert " 60" in one_line(told)


# Words of the command line


def test_a_file_is_shown_before_anything_is_named(command):
    frame = people()
    frame["price"] = [f"{1000 + age:,}" for age in frame["age"]]
    frame["born"] = [f"19{age}-01-31" for age in frame["age"]]
    frame["who"] = [f"p{i}" for i in range(len(frame))]
    frame["weight"] = frame["age"].astype(str).where(frame.index != 9, "12x")
    frame.loc[:9, "score"] = None
    frame.to_csv("people.csv", index=False)
    seen = command("data", "people.csv")
    lines = [" ".join(line.split()) for line in seen.out.splitlines()]
    assert "200 rows, 9 columns" in lines
    shown = ("age number 5", "score number 190 10 ", "sex category 2 ")
    shown += ("price number ", "born left out 5", "who left out 200 ")
    for start in (*shown, "weight number 5"):
        assert any(line.startswith(start) for line in lines), start
    assert "'12x' (line 11)" in one_line(seen.out)
    assert "look protected, by name: sex" in one_line(seen.out)
    assert lines[-1] == "pffl data people.csv --label COLUMN --group COLUMN"
