"""Wrong or odd input, one test a row: said, and right, before a model is trained."""

from __future__ import annotations

import io
import json
import random
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.helpers import one_line, pffl

COLUMNS = ("--label", "y", "--group", "sex")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def people(rows=200):
    rng = random.Random(0)  # noqa: S311
    lines = []
    for _ in range(rows):
        age, sex = rng.randint(18, 70), rng.choice("fm")
        y = "yes" if age + rng.gauss(0, 20) > 45 else "no"
        lines.append((age, rng.gauss(0, 1), sex, rng.choice("abc"), y))
    return pd.DataFrame(lines, columns=["age", "score", "sex", "site", "y"])


@pytest.fixture
def told(capsys):
    """What a command says of a table before anything is trained."""

    def tell(frame, *more, code=0):
        frame.to_csv("people.csv", index=False)
        seen = pffl(capsys, "data", "info", "people.csv", *COLUMNS, *more)
        assert seen.code == code, seen.err
        return one_line(seen.err + seen.out)

    return tell


Told = Callable[..., str]


# What was taken without a word


def test_a_stray_label_makes_a_third_class(told):
    frame = people()
    assert "classes;" not in told(frame)
    frame.loc[7, "y"] = "yess"
    text = told(frame)
    assert "label 'y' has 3 values, so there are 3 classes" in text
    assert (
        "few rows have 'yess' (1; did you mean 'yes'?): if that is a slip, and 2 "
        "classes are meant"
    ) in text
    frame.loc[7, "y"] = "Yes"
    assert "label 'y': 'Yes' and 'yes' count as different values" in told(frame)


def test_one_group_only(told):
    text = told(people().assign(sex="f"))
    assert "protected attribute 'sex' has one value only ('f')" in text
    assert "a bound on it is one on the mean loss of all rows" in text


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (lambda v: f"{1234.5 + v:,.2f}", "1,234.50 as 1234.5"),
        (lambda v: f"{v / 10:.1f}".replace(".", ","), "1,8 as 1.8"),
    ],
)
def test_written_numbers_are_numbers(told, write, read):
    frame = people()
    frame.loc[0, "age"] = 0 if "1234" in read else 18
    frame["age"] = [write(int(age)) for age in frame["age"]]
    text = told(frame)
    shown, value = read.split(" as ")
    assert f"column 'age': text read as numbers, such as '{shown}' as {value}" in text
    assert "categories (values): site (3)" in text


@pytest.mark.parametrize(
    "write", [lambda v: f"{v} %", lambda v: f"€ {v * 1000:,}"], ids=["share", "money"]
)
def test_numbers_with_a_sign_are_refused(told, write):
    frame = people()
    frame["age"] = [write(int(age)) for age in frame["age"]]
    text = told(frame, code=3)
    assert f"numbers with a sign, such as '{frame['age'][0]}': write the" in text
    assert "or name it in --categorical" in text
    assert "age" in told(frame, "--categorical", "age")


def test_numbers_and_words_are_not_mixed_in_silence(told):
    frame = people().astype({"age": object})
    frame["age"] = [f"{age},5" for age in frame["age"]]
    frame.loc[3, "age"] = "unknown"
    text = told(frame, code=3)
    assert "column 'age': numbers mixed with 'unknown' (1, line 5): repair it" in text
    assert "or name it in --categorical" in text


def test_values_that_look_missing(told):
    frame = people()
    assert "look like missing" not in told(frame)
    frame.loc[:4, "site"] = "?"
    frame.loc[:2, "sex"] = "-"
    text = told(frame)
    assert (
        "look like missing ones count as values: '-' in 'sex' (3), '?' in 'site'"
        in (text)
    )


def test_a_column_that_gives_the_label_away(told):
    frame = people()
    frame["reject"] = (frame["y"] == "no").astype(int)
    text = told(frame)
    assert (
        "column 'reject' gives the label 'y' away: by itself it tells 99 % of it"
        in (text)
    )
    assert "column 'age' gives" not in text
    assert "tells by itself of" in text


def test_a_column_that_gives_the_group_away(told):
    frame = people(600)
    frame["married"] = ["mr" if sex == "m" else "ms" for sex in frame["sex"]]
    frame.loc[::100, "married"] = "dr"
    text = told(frame)
    assert "column 'married' gives away the protected attribute 'sex'" in text
    frame.loc[::8, "married"] = "dr"
    text = told(frame)
    assert "column 'married' tells much of the protected attribute 'sex': 8" in text


def test_a_bound_far_above_every_loss(capsys):
    people().to_csv("people.csv", index=False)
    run = ("run", "people.csv", *COLUMNS, "--seed", "0", "--no-extras", "--quiet")
    seen = pffl(capsys, *run, "--bound", "60")
    said = one_line(seen.err)
    assert "note: the bounds ask for nothing: one guess for everybody" in said
    assert "already has a mean loss of at most 0.6" in said
    assert "the lowest bound is 60" in said
    assert "ask for nothing" not in pffl(capsys, *run, "--bound", "0.65").err


# What was refused with words that mislead


def refused(capsys, name, content):
    Path(name).write_bytes(content)
    seen = pffl(capsys, "run", name, *COLUMNS, "--bound", "0.7")
    assert seen.code == 3
    assert "Traceback" not in seen.err
    return one_line(seen.err)


def archive(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for name, text in members.items():
            packed.writestr(name.replace("__", "/").replace("_xml", ".xml"), text)
    return stream.getvalue()


FILES: dict[str, tuple[str, bytes]] = {
    "people.ods": ("an OpenDocument file", archive(content_xml="<office/>")),
    "people.sav": ("an SPSS file", b"$FL2@(#) IBM SPSS" * 9),
    "people.doc": ("a Word document", archive(word__document_xml="<w/>")),
    "run.json": ("JSON that cannot be read", json.dumps({"a": 1}).encode()),
    "people.pkl": (
        "a Python pickle, which is never opened",
        b"\x80\x04\x95" + b"a" * 99,
    ),
    "people.html": ("a web page or XML", b"<!DOCTYPE html><table></table>"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_in_another_form_is_named(capsys, name):
    kind, content = FILES[name]
    assert f"'{name}' is {kind}" in refused(capsys, name, content)


@pytest.mark.parametrize("form", ["xlsx", "dta", "json", "csv.gz", "csv.zip"])
def test_a_file_in_a_form_of_pandas_is_read(capsys, form):
    frame, path = people(), Path(f"people.{form}")
    if form == "xlsx":
        frame.to_excel(path, index=False)
    elif form == "dta":
        frame.to_stata(path, write_index=False)
    elif form == "json":
        frame.to_json(path, orient="records")
    else:
        frame.to_csv(path, index=False)
    seen = pffl(capsys, "data", "info", path, *COLUMNS)
    assert seen.code == 0, seen.err
    assert "numbers: age, score categories (values): site (3)" in one_line(seen.out)


def test_numbers_beyond_a_computer_s(told):
    frame = people()
    frame.loc[5, "score"] = 1e300
    text = told(frame, code=3)
    assert "numbers beyond 1e+75 in 'score' (up to 1e+300)" in text


def test_thousands_of_silos_are_not_listed(told):
    text = told(people(), "--silos", "5000", code=3)
    assert "silos without training rows: silo 0201, silo 0202" in text
    assert "and 4790 more (--set data.drop_empty=true leaves them out" in text
    assert len(text) < 700


# Words of the command line


def test_errors_speak_of_options(capsys, told):
    frame = people()
    frame.to_csv("people.csv", index=False)
    seen = pffl(capsys, "run", "people.csv", "--bound", "1")
    assert seen.code == 2
    assert "a table needs --label and --group" in one_line(seen.err)
    both = ("--silo", "site", "--silos", "3")
    seen = pffl(capsys, "run", "people.csv", *COLUMNS, *both, "--bound", "1")
    assert "give the silo column (--silo) or a number (--silos)" in one_line(seen.err)
    frame.loc[:3, "score"] = None
    text = told(frame, code=3)
    assert (
        "4 missing values (first: line 2); --missing indicator marks them, --missing "
        "drop_column" in (text)
    )
    numeric = ("data", "info", "people.csv", "--label", "score", "--group", "sex")
    people().to_csv("people.csv", index=False)
    seen = pffl(capsys, *numeric)
    assert "for a numeric target say --model least-squares" in one_line(seen.err)


def test_a_table_without_silos_is_one_silo(capsys, told):
    assert "no silo column is named: all rows are in one silo" in told(people())
    run = (
        "run",
        "people.csv",
        *COLUMNS,
        "--bound",
        "0.9",
        "--seed",
        "0",
        "--no-extras",
    )
    assert pffl(capsys, *run).code == 0


def test_a_numeric_model_takes_the_label_as_a_number(capsys):
    people().to_csv("people.csv", index=False)
    numeric = ("--label", "score", "--group", "sex", "--model", "least-squares")
    run = ("run", "people.csv", *numeric, "--bound", "5", "--seed", "0", "--no-extras")
    seen = pffl(capsys, *run)
    assert "label 'score': a number" in one_line(seen.out), seen.err


def test_a_column_of_many_categories_is_said_to_be_slow(told):
    frame = people(400)
    frame["place"] = [f"z{i % 150}" for i in range(400)]
    text = told(frame)
    assert "column 'place' has 150 categories, each an input of its own" in text


def test_free_text_is_hashed_when_told_so(told, capsys):
    frame = people()
    frame["my notes"] = [f"text number {i} of all" for i in range(len(frame))]
    assert "--hash 'my notes=1024' counts its words in 1,024 inputs" in told(frame)
    text = told(frame, "--hash", "my notes=2**18")
    assert "262,149 inputs" in text
    assert "texts, by counts of hashed words (inputs): my notes (262,144)" in text
    seen = pffl(capsys, "data", "info", "people.csv")
    assert "--hash 'my notes=1024'" in seen.out.splitlines()[-1]
    wrong = {
        "my notes=0": "must be a whole number from 2 to 16,777,216 (2**24). Got 0",
        "my notes=2**25": "Got 33554432 instead",
        "my notes=3.5": "--hash: must be COLUMN=INPUTS, such as notes=65536 or",
        "my notes": "Got 'my notes' instead",
        "y=64": "column 'y' cannot be hashed: it is given as --label",
    }
    for given, said in wrong.items():
        assert said in told(frame, "--hash", given, code=2)
    twice = told(frame, "--hash", "age=9", "--hash", "age=8", code=2)
    assert "column 'age' is there twice" in twice
    absent = told(frame, "--hash", "notes=64", code=3)
    assert "no column 'notes': did you mean 'my notes'?" in absent


def test_a_file_is_shown_before_anything_is_named(capsys):
    frame = people()
    frame["price"] = [f"{1000 + age:,}" for age in frame["age"]]
    frame["born"] = [f"19{age}-01-31" for age in frame["age"]]
    frame["who"] = [f"p{i}" for i in range(len(frame))]
    frame["weight"] = frame["age"].astype(str).where(frame.index != 9, "12x")
    frame.loc[:9, "score"] = None
    frame.to_csv("people.csv", index=False)
    seen = pffl(capsys, "data", "info", "people.csv")
    lines = [" ".join(line.split()) for line in seen.out.splitlines()]
    assert seen.code == 0
    assert "200 rows, 9 columns" in lines
    for start in (
        "age numbers 5",
        "score numbers 190 10 (5.0 %) ",
        "sex categories 2 ",
        "price numbers as text ",
        "born dates 5",
        "who text 200 ",
        "weight mixed 5",
    ):
        assert any(line.startswith(start) for line in lines), start
    text = one_line(seen.out)
    assert "numbers mixed with '12x' (1, line 11)" in text
    assert (
        "what is predicted (--label) y, score; who is protected (--group) sex; where "
        "a row lives (--silo) site; whom it is about (--id) who"
    ) in text
    assert lines[-1] == (
        "pffl data info people.csv --label y --group sex --silo site --id who --dates "
        "age --missing indicator"
    )


def test_the_next_command_can_be_pasted(capsys):
    people().rename(columns={"y": "was it paid"}).to_csv("my people.csv", index=False)
    seen = pffl(capsys, "data", "info", "my people.csv", "--group", "sex")
    command = shlex.split(seen.out.splitlines()[-1])
    assert command[:4] == ["pffl", "data", "info", "my people.csv"]
    assert command[4:] == ["--group", "sex", "--label", "was it paid", "--silo", "site"]
    assert pffl(capsys, *command[1:]).code == 0


def test_a_model_for_other_labels_is_refused_in_options(capsys):
    people().to_csv("people.csv", index=False)
    asked = ("--label", "site", "--group", "sex", "--model", "logistic", "--bound", "1")
    seen = pffl(capsys, "run", "people.csv", *asked)
    assert seen.code == 3
    assert "'site' has 3: use --model softmax" in one_line(seen.err)


# What is taken, and rightly


def said(capsys, content, *more):
    Path("people.csv").write_bytes(content)
    seen = pffl(capsys, "data", "info", "people.csv", *COLUMNS, *more)
    assert seen.code == 0, seen.err
    return one_line(seen.err + seen.out)


DIALECTS: dict[str, Callable[[pd.DataFrame], bytes]] = {
    "semicolons": lambda f: f.to_csv(index=False, sep=";", decimal=",").encode(),
    "tabs": lambda f: f.to_csv(index=False, sep="\t").encode(),
    "a byte-order mark": lambda f: f.to_csv(index=False).encode("utf-8-sig"),
    "UTF-16": lambda f: f.to_csv(index=False).encode("utf-16"),
    "Latin-1": lambda f: f.replace("a", "à").to_csv(index=False).encode("latin-1"),
    "quotes": lambda f: f.to_csv(index=False, quoting=1).encode(),
    "spaces": lambda f: f.to_csv(index=False).replace(",", ", ").encode(),
    "empty lines": lambda f: f.to_csv(index=False).replace("\n", "\n\n").encode(),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_text_table_as_programs_write_it(capsys, dialect):
    text = said(capsys, DIALECTS[dialect](people()))
    assert "rows: 160 train, 40 test" in text
    assert "numbers: age, score categories (values): site (3)" in text
    assert "label 'y': 'no' → 0, 'yes' → 1 (positive)" in text


def test_names_with_spaces_and_letters_of_others(told):
    frame = people().rename(columns={"score": "Größe in cm", "site": "地点"})
    text = told(frame)
    assert "numbers: age, Größe in cm categories (values): 地点 (3)" in text


def test_constant_columns_dates_and_ids_are_said(told):
    frame = people()
    frame["constant"] = 1
    frame["born"] = "1980-02-29"
    frame["who"] = [f"person {i}" for i in range(len(frame))]
    text = told(frame, "--test-fraction", "0")
    assert "rows: 200 train" in text
    assert "0 test" not in text
    assert "column 'born' holds dates (1980-02-29 to 1980-02-29) and was left" in text
    assert "--dates age makes it years before the last one" in text
    assert "column 'who' has a different text in (nearly) every row" in text
    assert "numbers: age, score, constant" in text


def test_people_with_several_rows_are_counted(told):
    frame = people()
    frame["who"] = [f"person {i // 3 * 2}" for i in range(len(frame))]
    frame.loc[1] = frame.loc[0]
    text = told(frame, "--id", "who")
    assert (
        "id 'who': 67 people in 200 rows; 67 have several, at most 3, which stay in "
        "one split"
    ) in text
    assert "1 rows are copies of earlier ones, and were kept" in text


def test_dates_and_rare_values_by_options(told):
    frame = people(400)
    frame["born"] = [f"{1 + i % 28}.{1 + i % 12}.{1950 + i % 50}" for i in range(400)]
    frame["place"] = [f"z{i % 150 if i > 200 else i % 3}" for i in range(400)]
    text = told(frame, "--dates=age,month", "--date-order=dmy", "--rare", "20")
    assert "dates: born (age, month; age in years until 1999-" in text
    assert "147 of 150 values have fewer than 20 rows" in text
    assert "categories (values): site (3), place (4)" in text
    frame["born"] = [f"{1 + i % 9}/{1 + i % 12}/1950" for i in range(400)]
    text = told(frame, "--dates", "age", code=3)
    assert "say --date-order dmy (day first) or --date-order mdy" in text
    assert "born" in told(frame, "--dates", "age", "--date-order", "dmy")
    assert "must be one of 'year', 'month'" in told(frame, "--dates", "day", code=2)


def test_a_silo_for_every_second_row_lists_none(told):
    frame = people(2_000)
    frame["site"] = [f"place {i % 1000:04d}" for i in range(2_000)]
    text = told(frame, "--silo", "site")
    assert "1,000 silos" in text
    assert "975 more" in text
    assert text.count("place 0") < 60


def test_marks_of_decimals_are_not_mixed(told):
    frame = people().assign(price=["1.234,50", "1,234.50"] * 100)
    text = told(frame, code=3)
    assert "such as '1,234.50' and '1.234,50': write them in one way" in text
