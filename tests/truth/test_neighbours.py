"""One person more, less or changed: nobody else's row moves, and no file tells."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

import pffl
from pffl.engines import Local
from pffl.errors import DataError, UsageError
from tests.cli.helpers import Command
from tests.cli.helpers import pffl as command
from tests.declared import columns, columns_file
from tests.inside import partition
from tests.raising import raises

PEOPLE = 40
LAYOUTS: dict[str, dict[str, Any]] = {
    "column": {"silo": "branch"},
    "one": {},
    "three": {"silos": 3},
    "dirichlet": {"silos": 3, "partition": ("dirichlet", "hired", 0.3)},
    "dirichlet by": {"silos": 3, "partition": ("dirichlet", "city")},
    "bands": {"silos": 3, "partition": ("quantile_bands", "income")},
}
#: What else is said of the table, and how its columns are declared.
CONTENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "indicator": ({"group": ("sex",)}, {"age": {"indicator": True}}),
    "marked, crossed": (
        {"group": ("sex", "race"), "test_fraction": 0.4},
        {"age": {"indicator": True}},
    ),
    "hashed, all trained": (
        {"group": ("race",), "test_fraction": 0.0, "drop": ("age",)},
        {"notes": {"kind": "text", "hash": 16, "indicator": True}},
    ),
}
CASES = [
    (ids, layout, content)
    for ids in (False, True)
    for layout in LAYOUTS
    for content in CONTENTS
]
CITIES, RACES = ["A", "B"], ["p", "q", "other"]


def people(seed: int, n: int = PEOPLE, most: int = 3) -> pd.DataFrame:
    """People with one to `most` rows each, as they stand in a file."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n), rng.integers(1, most + 1, n))
    m = len(who)
    frame = pd.DataFrame(
        {
            "pid": [f"{i:03d}" for i in who],
            "sex": rng.choice(["f", "m"], m),
            "race": rng.choice(["p", "q"], m),
            "age": rng.integers(18, 30, m).astype(str),
            "income": rng.integers(0, 6, m).astype(str),
            "city": rng.choice(CITIES, m),
            "code": rng.choice(["01", "02"], m),
            "notes": rng.choice(["good work", "late", ""], m),
            "branch": rng.choice(["a", "b"], m),
            "hired": rng.choice(["n", "y"], m),
        }
    )
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def strange(seed: int, who: str) -> pd.DataFrame:
    """Somebody unlike all others: alone in a town, in a group, without an age."""
    rows = people(seed, 1).assign(pid=who)
    return rows.assign(city="Tinytown", race="r", age="", code="x", income="7.5")


def declared(more: dict[str, Any]) -> dict[str, Any]:
    own = columns(people(0), leave=["pid"], **more)
    own["race"]["values"] = RACES
    own["branch"]["values"] = ["a", "b", "c"]  # nobody is there
    for name, ends in {"age": (18, 30), "income": (0, 6)}.items():
        own[name] = {"kind": "number", "range": list(ends), **more.get(name, {})}
    return own


def dealt(
    frame: pd.DataFrame, case: tuple[bool, str, str], path: Path
) -> Counter[tuple[str, str, bytes, float, int]]:
    """Part, silo and encoded row of everybody who counts."""
    ids, layout, content = case
    said, more = CONTENTS[content]
    drop = (*said.get("drop", ()), *(() if ids else ("pid",)))
    frame.to_csv(path, index=False)
    known = {n: c for n, c in declared(more).items() if n not in drop}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = pffl.Federation.from_table(
            path,
            label="hired",
            columns=known,
            id="pid" if ids else None,
            **{**said, "drop": drop},
            **LAYOUTS[layout],
        ).keyed()
    if ids:
        who = [p for s in rows.silos for r in s.splits.values() for p in r.person]  # type: ignore[union-attr]
        assert len(who) == len(set(who)) == frame["pid"].nunique()
    return Counter(
        (split, silo.name, np.asarray(X).tobytes(), float(y), int(group))
        for silo in rows.silos
        for split, own in silo.splits.items()
        for X, y, group in zip(own.X, own.y, own.group, strict=True)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: ", ".join(map(str, case)))
@settings(max_examples=5, deadline=None, phases=[Phase.generate])
@given(
    seed=st.integers(0, 999),
    change=st.sampled_from(["more", "less", "changed"]),
    place=st.sampled_from(["first", "last"]),
)
def test_one_person_moves_nobody_else(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[bool, str, str],
    seed: int,
    change: str,
    place: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / "neighbours.csv"
    ids = case[0]
    frame = people(seed, most=3 if ids else 1)
    new = strange(seed, "999" if change == "more" else "007")
    if not ids:
        new = new.iloc[:1]
    others = frame if change == "more" else frame[frame["pid"] != "007"]
    parts = [others] if change == "less" else [others, new]
    other = pd.concat(parts if place == "last" else parts[::-1], ignore_index=True)
    one, two = dealt(frame, case, path), dealt(other, case, path)
    moved = sum(((one - two) + (two - one)).values())
    assert moved <= (2 if change == "changed" else 1)
    assert moved or change == "changed"


def test_order_and_equal_rows_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    frame = pd.concat([people(1, most=1)] * 3, ignore_index=True)
    mixed = frame.sample(frac=1, random_state=0)
    for case in ((False, "three", "indicator"), (False, "column", "indicator")):
        assert dealt(frame, case, path) == dealt(mixed, case, path)
    wide = pd.concat([people(k, most=1) for k in range(60)], ignore_index=True)
    found = dealt(wide, (False, "three", "indicator"), path)
    held = sum(n for (part, *_), n in found.items() if part == "test") / len(wide)
    assert abs(held - 0.2) < 4 * np.sqrt(0.16 / len(wide))
    for silo in ("silo 1", "silo 2", "silo 3"):
        share = sum(n for (_, at, *_), n in found.items() if at == silo) / len(wide)
        assert abs(share - 1 / 3) < 4 * np.sqrt(2 / 9 / len(wide))


def test_nobody_s_letters_change_how_others_are_read(tmp_path: Path) -> None:
    path, frame = tmp_path / "p.csv", hiring(300).assign(city="Köln")
    known = columns(frame, leave=["pid"])
    asked = {"label": "hired", "group": "sex", "drop": ["pid"], "columns": known}
    path.write_bytes(frame.to_csv(index=False).encode() + b"p,f,0.1,\xc4,y\n")
    with raises(DataError, "not-text"):
        pffl.Federation.from_table(path, **asked)


# Refused


def hiring(n: int = 3000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, sex = rng.normal(size=n).clip(-4, 4).round(2), rng.choice(["f", "m"], n)
    return pd.DataFrame(
        {
            "pid": [f"p{i}" for i in range(n)],
            "sex": sex,
            "x": x,
            "city": rng.choice(CITIES, n),
            "hired": np.where(x + rng.normal(size=n) > 0, "y", "n"),
        }
    )


def federation(**more: Any) -> pffl.Federation:
    frame = more.pop("frame", hiring(300))
    options: dict[str, Any] = {"label": "hired", "group": "sex", "drop": ["pid"]}
    known = columns(frame, leave=["pid"], ranges={"x": (-4, 4)})
    return pffl.Federation.from_table(frame, **{**options, "columns": known, **more})


def test_what_is_not_declared_is_refused_by_name() -> None:
    bare = federation(columns={})
    budget, bound = pffl.Privacy(1.0, ranges={"x": (-4, 4)}), pffl.BoundedGroupLoss(1)
    with raises(UsageError, "needs-columns", "x", "city", "sex", "hired", "--columns"):
        pffl.solve(bare, bound, privacy=budget)
    some = columns(hiring(300), leave=["pid", "city"])
    with raises(UsageError, "needs-columns", "city", "--columns"):
        pffl.solve(federation(columns=some), bound, privacy=budget)
    arrays = pffl.Federation.from_arrays(
        hiring(300)[["x"]], hiring(300)["hired"], sensitive_features=hiring(300)["sex"]
    )
    with raises(UsageError, "needs-columns", "hired"):
        pffl.solve(arrays, bound, privacy=budget)
    with raises(UsageError, "needs-federation"):
        pffl.solve(Local(federation()), bound, privacy=budget)


def test_nothing_is_read_off_rows_beside_declared_columns() -> None:
    with raises(UsageError, "options-conflict", "missing"):
        federation(missing="indicator")


@pytest.mark.parametrize("apart", ["validation", "calibration"])
def test_rows_set_apart_are_refused(apart: str) -> None:
    if apart == "validation":
        rows = federation(validation_fraction=0.2)
    else:
        rows = federation().with_calibration(0.2)
    with raises(UsageError, "not-under-noise", apart):
        pffl.solve(rows, None, privacy=pffl.Privacy(1.0))


def test_weights_and_texts_are_refused() -> None:
    frame = hiring(300).assign(w=np.linspace(1, 2, 300))
    known = columns(frame, leave=["pid"])
    weighted = federation(frame=frame, columns=known, weight="w")
    with raises(UsageError, "not-under-noise", "weights"):
        pffl.solve(weighted, None, privacy=pffl.Privacy(1.0))
    own = {**columns(hiring(300), leave=["pid"]), "city": {"kind": "text", "hash": 8}}
    with raises(UsageError, "not-under-noise", "city"):
        pffl.solve(federation(columns=own), None, privacy=pffl.Privacy(1.0))


def test_a_stopped_private_run_leaves_nothing(tmp_path: Path) -> None:
    class Stops(Local):
        asked = 0

        def ask_many(self, queries: Any) -> Any:
            type(self).asked += len(queries)
            if self.asked > 4:
                raise RuntimeError("stopped")
            return super().ask_many(queries)

    rows = federation(frame=hiring()).keyed()
    with pytest.raises(RuntimeError, match="stopped"):
        pffl.solve(
            Stops(rows),
            pffl.BoundedGroupLoss(0.9),
            privacy=pffl.Privacy(4.0),
            checkpoint=tmp_path / "run",
        )
    assert not list(tmp_path.rglob("*"))


# Files


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: command(capsys, *arguments)


def private_run(here: Command, frame: pd.DataFrame, out: str, *more: str) -> Path:
    frame.to_csv("people.csv", index=False)
    data = ("people.csv", "--label", "hired", "--group", "sex", "--id", "pid")
    asked = ("--bound", "0.8", "--epsilon", "8", "--seed", "1", "--out", out, *more)
    fixed = ("--set", "columns=c.toml", "--set", "privacy.noise_seed=1")
    found = here("run", *data, *fixed, *asked)
    assert found.code in (0, 4), found.err
    return Path(out)


def texts(folder: Path) -> dict[str, str]:
    """All files, as far as they are text."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {p.name: p.read_bytes().decode("utf-8", "replace") for p in files}


def test_files_of_neighbours_differ_in_released_sums_only(here: Command) -> None:
    frame = hiring()
    known = Path(columns_file(Path("c.toml"), frame, leave=["pid"]))
    text = known.read_text()
    lone = pd.DataFrame([["new", "f", 0.5, "Tinytown", "y"]], columns=frame.columns)
    more = pd.concat([lone, frame], ignore_index=True)
    runs = [
        private_run(here, rows, out, "--silos", "4")
        for rows, out in ((frame, "without"), (more, "with"))
    ]
    one, two = map(texts, runs)
    assert set(one) == set(two)
    for found in (one, two):
        assert not [name for name, text in found.items() if "Tinytown" in text]
    assert "Tinytown" not in text
    for name in ("certificate.json", "card.md", "run.toml"):
        # The same words and names: numbers are released, times or hashes of them.
        plain = [
            re.sub(r"-?[0-9a-f]{64}|-?\d[\d.,e+-]*", "#", t[name]) for t in (one, two)
        ]
        assert plain[0] == plain[1], name
    # Without ids more rows are more people; with them, of two rows one counts.
    for rows in (frame, more):
        cut = federation(frame=rows, drop=[], id="pid", silos=4).keyed()
        for split in ("train", "test"):
            exact = re.compile(rf"(?<![\d.,]){cut.rows(split):,}(?![\d.,]*\d)")
            for found in (one, two):
                assert not [n for n, text in found.items() if exact.search(text)]
        for found in (one, two):
            assert not [n for n, text in found.items() if cut.fingerprint in text]


def test_a_row_that_does_not_count_changes_nothing(here: Command) -> None:
    """All that is written follows from released sums: equal sums, equal files."""
    frame = hiring()
    columns_file(Path("c.toml"), frame, leave=["pid"])
    twice = pd.concat([frame.iloc[::-1], frame.iloc[:50]], ignore_index=True)
    first = private_run(here, frame, "first", "--silos", "4")
    again = private_run(here, twice, "again", "--silos", "4")
    for name in ("model.safetensors", "certificate.json"):
        assert (first / name).read_bytes() == (again / name).read_bytes()


def test_the_attack_on_the_cut_into_silos_fails(here: Command) -> None:
    """Two rows each; which one counts used to depend on the cut, so on everybody."""
    many, silos = 1500, 5

    def counted(shift: int) -> Any:
        codes, _ = partition.equal(2 * many + shift, silos, 0)
        at = np.arange(many) + shift
        return (codes[at] > codes[at + many]).astype(int)

    before, after = counted(0), counted(1)
    x = np.full((many, 2), 0.5)
    moved = np.flatnonzero(before != after)
    assert len(moved) > many / 5
    x[moved, before[moved]], x[moved, after[moved]] = 0.0, 1.0
    rng = np.random.default_rng(3)
    sex, hired = rng.choice(["f", "m"], many), rng.choice(["n", "y"], many)
    frame = pd.DataFrame(
        {
            "pid": [f"p{i}" for i in range(many)] * 2,
            "sex": np.tile(sex, 2),
            "hired": np.tile(hired, 2),
            "x": x.T.ravel(),
            "z": rng.normal(size=2 * many).clip(-4, 4),
        }
    )
    new = pd.DataFrame([["new", "f", "y", 0.5, 0.0]], columns=list(frame.columns))
    columns_file(Path("c.toml"), frame, leave=["pid"], ranges={"z": (-4, 4)})
    means = []
    for rows, out in ((frame, "w0"), (pd.concat([new, frame]), "w1")):
        run = private_run(
            here, rows, out, "--silos", str(silos), "--set", "privacy.secure_sum=true"
        )
        means.append(load_file(run / "model.safetensors")["input_mean"])
        stated = json.loads((run / "certificate.json").read_text())["statements"][0]
        assert stated["kind"] == "privacy"
    # The same noise: what is left is one person of about 1,200.
    assert np.abs(means[0] - means[1]).max() < 8 / 1000


def test_columns_are_declared_from_a_table(here: Command) -> None:
    """What the command writes is what a private run takes."""
    frame = hiring().assign(age=30.0)
    frame.loc[:9, "age"] = np.nan
    frame.loc[10:, "age"] = np.arange(len(frame) - 10) % 70
    frame.to_csv("made_up.csv", index=False)
    said = ("--label", "hired", "--group", "sex", "--drop", "pid")
    found = here("data", "made_up.csv", *said, "--missing", "indicator", "--columns")
    assert found.code == 0, found.err
    assert found.out.startswith("# declared from a public or made-up table")
    Path("c.toml").write_text(found.out)
    run = private_run(here, frame, "run", "--drop", "pid")
    inputs = load_file(run / "model.safetensors")["input_mean"]
    assert len(inputs) == 6  # x, three of city with `other`, age and its indicator
    spec = (run / "run.toml").read_text()
    assert "[columns.age]" in spec
    assert here("verify", str(run)).code == 0
