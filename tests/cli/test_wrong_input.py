"""Wrong or odd input: said, and right, before a model is trained."""

from __future__ import annotations

import io
import json
import random
import shlex
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.helpers import one_line

COLUMNS = ("--label", "y", "--group", "sex")
RUN = ("run", "people.csv", "--seed", "0", "--no-extras", "--quiet")


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
CASES = {
    "a stray label": (at("y", [7], "yess"), "", None, "3 classes", "'yess' (1;"),
    "labels that differ in case": (at("y", [7], "Yes"), "", None, "'Yes' and 'yes'"),
    "one group": (lambda f: f.assign(sex="f"), "", None, "one value only ('f')"),
    "thousands": (ages(lambda v: f"{1200 + v:,}.50"), "", None, "'age': text", ".50'"),
    "decimal commas": (
        ages(lambda v: f"{v / 10:.1f}".replace(".", ",")), "", None, "'age': text",
    ),
    "shares": (ages(lambda v: f"{v} %"), "", "signed-numbers", " %'", "categorical="),
    "money": (ages(lambda v: f"€ {v}"), "", "signed-numbers", "'€ ", "categorical="),
    "money, told": (ages(lambda v: f"€ {v}"), "--categorical age", None, "age ("),
    "a word": (
        lambda f: at("age", [3], "unknown")(ages(lambda v: f"{v},5")(f)),
        "", "mixed-types", "'unknown' (1, line 5)", "categorical=",
    ),
    "both marks": (
        cells("price", lambda i: ["1.234,50", "1,234.50"][i % 2]),
        "", "mixed-decimals", "'1,234.50'", "'1.234,50'",
    ),
    "missing or not": (at("site", range(5), "?"), "", None, "'?' in 'site' (5)"),
    "beyond a computer": (at("score", [5], 1e300), "", "too-large-numbers", "1e+300"),
    "missing": (
        at("score", range(4), None),
        "", "missing-values", "4 missing values (first: line 2)", "--missing indicator",
    ),
    "silos for nobody": (
        at("y", [], ""),
        "--silos 5000", "no-training-rows", "silo 0201", "4790", "data.drop_empty=true",
    ),
    "no silos": (at("y", [], ""), "", None, "all rows are in one silo"),
    "a silo for every second row": (
        cells("site", lambda i: f"place {i % 100:04d}"),
        "--silo site", None, "100 silos", "75 more",
    ),
    "many categories": (
        cells("place", lambda i: f"z{i % 150}"), "", None, "'place' has 150 categories",
    ),
    "a number as label": (
        at("y", [], ""), "--label score", "too-many-classes", "--model least-squares",
    ),
    "letters of others": (
        lambda f: f.rename(columns={"score": "Größe in cm", "site": "地点"}),
        "", None, "numbers: age, Größe in cm", "地点 (3)",
    ),
    "dates": (cells("born", lambda i: "1980-02-29"), "", None, "1980-02-29", "dates="),
    "an order of dates": (
        cells("born", lambda i: f"{1 + i % 9}/{1 + i % 12}/1950"),
        "--dates age", "bad-date", "data.date_order=dmy", "data.date_order=mdy",
    ),
    "dates as told": (
        cells("born", lambda i: f"{1 + i % 9}/{1 + i % 12}/1950"),
        "--dates=age,month --date-order=dmy", None, "born (age, month", "1950-12-",
    ),
    "no part of a date": (
        at("y", [], ""), "--dates day", "wrong-value", "'year', 'month'",
    ),
    "rare": (
        cells("place", lambda i: f"z{i % 50 if i > 99 else i % 3}"),
        "--rare 20", None, "47 of 50 values", "place (4)",
    ),
    "an id": (cells("who", lambda i: f"person {i}"), "", None, "'who' has a different"),
    "several rows of one": (
        cells("who", lambda i: f"person {i // 3}"),
        "--id who", None, "67 people in 200 rows; 67 have several, at most 3",
    ),
    "copies": (lambda f: f.iloc[[0, *range(199)]], "", None, "1 rows are copies"),
    "three classes": (
        lambda f: f.assign(y=f["site"]), "--model logistic", "wrong-model", "softmax",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_odd_is_said_and_what_is_wrong_refused(command, name):
    change, options, error, *said = CASES[name]
    change(people()).to_csv("people.csv", index=False)
    asked = ("people.csv", *COLUMNS, *options.split())
    model = "--model" in options
    seen = command(
        *(("run", *asked, "--bound=1") if model else ("data", "info", *asked))
    )
    text = one_line(seen.err + seen.out)
    assert (seen.error, bool(seen.code)) == (error, bool(error)), seen.err
    assert [part for part in said if part not in text] == [], text
    assert "Traceback" not in text


def test_nothing_is_said_of_what_is_usual(command):
    people().to_csv("people.csv", index=False)
    text = one_line(command("data", "info", "people.csv", *COLUMNS).out)
    assert not [w for w in ("classes;", "look like", "gives") if w in text]


def test_a_bound_far_above_every_loss(command):
    people().to_csv("people.csv", index=False)
    told, quiet = (command(*RUN, *COLUMNS, "--bound", b).err for b in ("60", "0.65"))
    assert ("ask for nothing" in told, "ask for nothing" in quiet) == (True, False)
    assert "0.6" in told
    assert " 60" in one_line(told)


def archive(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for name, text in members.items():
            packed.writestr(name.replace("__", "/").replace("_xml", ".xml"), text)
    return stream.getvalue()


FILES = {
    "people.ods": ("OpenDocument", archive(content_xml="<office/>")),
    "people.sav": ("SPSS", b"$FL2@(#) IBM SPSS" * 9),
    "people.doc": ("Word", archive(word__document_xml="<w/>")),
    "run.json": ("JSON", json.dumps({"a": 1}).encode()),
    "people.pkl": ("never opened", b"\x80\x04\x95" + b"a" * 99),
    "people.html": ("web page", b"<!DOCTYPE html><table></table>"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_in_another_form_is_named(command, name):
    kind, content = FILES[name]
    Path(name).write_bytes(content)
    seen = command("run", name, *COLUMNS, "--bound", "0.7")
    assert (seen.code, kind in one_line(seen.err), name in seen.err) == (3, True, True)


# Words of the command line


def test_options_are_asked_for_by_name(command):
    people().to_csv("people.csv", index=False)
    seen = command(*RUN, "--bound", "1")
    assert (seen.code, "--label" in seen.err, "--group" in seen.err) == (2, True, True)
    both = ("--silo", "site", "--silos", "3", "--bound", "1")
    seen = command(*RUN, *COLUMNS, *both)
    assert (seen.code, "--silos" in seen.err) == (2, True)
    numeric = ("--label", "score", "--group", "sex", "--model", "least-squares")
    assert command(*RUN, *numeric, "--bound", "5").code == 0


def test_free_text_is_hashed_when_told_so(command):
    frame = people()
    frame["my notes"] = [f"text number {i} of all" for i in range(len(frame))]
    frame.to_csv("people.csv", index=False)
    info = ("data", "people.csv")
    advised = """--set 'data.hash."my notes"=1024'"""
    assert advised in command(*info).out.splitlines()[-1]
    told = one_line(command(*info, *COLUMNS).err)
    assert f"{advised} counts its words in 1,024 inputs" in told
    wide = ("--set", 'data.hash."my notes"=262144')
    text = one_line(command(*info, *COLUMNS, *wide).out)
    assert "262,149 inputs" in text
    assert "my notes (262,144)" in text
    for given, code, said in (
        ('"my notes"=0', 2, "16,777,216"),
        ('"my notes"=33554432', 2, "33554432"),
        ('"my notes"=3.5', 2, "'hash'"),
        ("y=64", 2, "--label"),
        ("notes=64", 3, "'my notes'"),
    ):
        seen = command(*info, *COLUMNS, "--set", f"data.hash.{given}")
        assert (seen.code, said in one_line(seen.err)) == (code, True), seen.err


def test_a_file_is_shown_before_anything_is_named(command):
    frame = people()
    frame["price"] = [f"{1000 + age:,}" for age in frame["age"]]
    frame["born"] = [f"19{age}-01-31" for age in frame["age"]]
    frame["who"] = [f"p{i}" for i in range(len(frame))]
    frame["weight"] = frame["age"].astype(str).where(frame.index != 9, "12x")
    frame.loc[:9, "score"] = None
    frame.to_csv("people.csv", index=False)
    seen = command("data", "info", "people.csv")
    lines = [" ".join(line.split()) for line in seen.out.splitlines()]
    assert "200 rows, 9 columns" in lines
    shown = ("age numbers 5", "score numbers 190 10 (5.0 %) ", "sex categories 2 ")
    shown += ("price numbers as text ", "born dates 5", "who text 200 ")
    for start in (*shown, "weight mixed 5"):
        assert any(line.startswith(start) for line in lines), start
    assert "'12x' (1, line 11)" in one_line(seen.out)
    roles = "--label y --group sex --silo site --id who --set data.dates=age "
    assert lines[-1] == f"pffl data people.csv {roles}--missing indicator"


def test_the_next_command_can_be_pasted(command):
    people().rename(columns={"y": "was it paid"}).to_csv("my people.csv", index=False)
    seen = command("data", "info", "my people.csv", "--group", "sex")
    pasted = shlex.split(seen.out.splitlines()[-1])
    assert pasted[:3] == ["pffl", "data", "my people.csv"]
    assert pasted[3:] == ["--group", "sex", "--label", "was it paid", "--silo", "site"]
    assert command(*pasted[1:]).code == 0
