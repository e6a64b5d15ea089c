"""`pffl run … --epsilon`: from the command line and from a run file."""

from __future__ import annotations

import hmac
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pffl as package
from pffl.data import DataWarning, Rows, Silo
from pffl.errors import UsageError
from tests.cli.helpers import one_line, pffl
from tests.helpers import make_federation
from tests.inside import at_one_site, keyed_split
from tests.raising import raises

RANGES = ["--range", "age=18,90", "--range", "income=0,100"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    random, n = np.random.default_rng(0), 6000
    age, income = random.integers(18, 90, n), random.gamma(2, 15, n)
    score = 0.03 * (age - 50) + 0.02 * (income - 30) + random.normal(size=n)
    frame = pd.DataFrame(
        {
            "age": age,
            "income": income.round(2),
            "town": random.choice(["a", "b", "c"], n),
            "sex": random.choice(["f", "m"], n),
            "site": random.choice(["north", "south", "west"], n),
            "hired": np.where(score > 0, "yes", "no"),
        }
    )
    path = tmp_path_factory.mktemp("data") / "people.csv"
    frame.to_csv(path, index=False)
    return path


def command(table, *more):
    columns = ["--label", "hired", "--group", "sex", "--silo", "site"]
    return ["run", str(table), *columns, "--bound", "0.69", "--method", "exact", *more]


def test_a_run_with_a_budget(table, tmp_path, capsys):
    out = tmp_path / "run"
    budget = ["--epsilon", "4", *RANGES, "--secure-sum"]
    found = pffl(capsys, *command(table, *budget, "--out", str(out)))
    assert found.code in (0, 4), found.err
    result = json.loads((out / "result.json").read_text())
    assert result["privacy"]["epsilon"] == 4.0
    assert result["privacy"]["spent"] == pytest.approx(4.0, rel=1e-6)
    assert result["privacy"]["split"] == "keyed hash"
    assert result["privacy"]["shared"] is True
    assert len(result["privacy"]["releases"]) == 11
    assert pffl(capsys, "verify", str(out)).code == 0
    spec = (out / "spec.toml").read_text()
    assert "epsilon = 4.0" in spec
    assert '"age=18,90"' in spec
    rows = pd.read_csv(table)
    text = (out / "evidence.json").read_text() + (out / "report.html").read_text()
    assert f"{len(rows):,}" not in text  # no exact count of rows anywhere
    refused = pffl(capsys, "certify", str(out), "--split", "train")
    assert refused.code == 2


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (["--epsilon", "1"], "needs-ranges"),
        (["--delta", "1e-6"], "needs-epsilon"),
        (["--epsilon", "1", "--range", "age"], "wrong-value"),
        (["--epsilon", "1", *RANGES, "--l2", "auto"], "not-under-noise"),
        (["--epsilon", "1", "--delta", "2", *RANGES], "wrong-value"),
    ],
    ids=["no range", "no budget", "no ends", "chosen ridge", "delta"],
)
def test_what_is_missing_or_wrong_is_said(table, tmp_path, capsys, more, error):
    found = pffl(capsys, *command(table, *more, "--out", str(tmp_path / "no")))
    assert (found.code, found.error) == (2, error), found.err


def test_the_parts_of_others_do_not_change():
    """One person more moves nobody else between training and held-out rows."""

    data = make_federation(0, sizes=(200, 150), test=50)
    before = keyed_split(data.silos, b"key", 0.2)
    less = []
    for silo in data.silos:
        rows = silo.splits["train"]
        kept = rows.take(np.delete(np.arange(len(rows)), 3))
        less.append(replace(silo, splits={**silo.splits, "train": kept}))
    after = keyed_split(less, b"key", 0.2)
    for one, other in zip(before, after, strict=True):
        for split in ("train", "test"):
            mine = {row.tobytes() for row in one.splits[split].X}
            theirs = {row.tobytes() for row in other.splits[split].X}
            assert theirs <= mine
            assert len(mine - theirs) <= 1
    shares = [len(s.splits["test"]) / (len(s) + len(s.splits["test"])) for s in before]
    assert 0.1 < np.mean(shares) < 0.3


def test_the_plan_is_shown_before_anything_is_released(table, capsys):
    found = pffl(capsys, "plan", *command(table, "--epsilon", "2", *RANGES)[1:])
    assert found.code == 0, found.err
    assert "ε = 2, δ = 1e-06" in one_line(found.out)
    more = ("--epsilon", "2", *RANGES, "--secure-sum", "--json")
    shared = json.loads(pffl(capsys, "plan", *command(table, *more)[1:]).out)
    apart = json.loads(
        pffl(
            capsys, "plan", *command(table, "--epsilon", "2", *RANGES, "--json")[1:]
        ).out
    )
    margins = [
        float(plan["margins"][2]["margin"]) for plan in (shared, apart)
    ]  # 3,000 people, three sites
    # Each of three adds all, or a half: one of them is not counted on.
    assert margins[1] == pytest.approx(margins[0] * 2**0.5, rel=0.1)


def discrete(copies):
    """Rows of four kinds only, each as often as is said."""

    kinds = np.repeat(np.arange(len(copies)), copies)
    rows = Rows(kinds[:, None].astype(float), kinds % 2.0, kinds % 2, None, None)
    return Silo("a", 0, {"train": rows, "test": rows.take(np.zeros(0, np.int64))})


def test_equal_rows_go_different_ways():
    """Held-out rows are drawn like all: also where many rows are equal."""

    held = keyed_split([discrete([2000] * 4)], b"key", 0.2)[0].splits["test"]
    shares = np.bincount(held.X[:, 0].astype(int), minlength=4) / 2000
    assert (abs(shares - 0.2) < 4 * np.sqrt(0.16 / 2000)).all()

    # One row more or less, at any place, changes one part by that row and no other.
    def counts(copies):
        splits = keyed_split([discrete(copies)], b"key", 0.2)[0].splits
        kinds = [rows.X[:, 0].astype(int) for rows in splits.values()]
        return np.array([np.bincount(own, minlength=4) for own in kinds])

    for copies in ([1999, 2000, 2000, 2000], [2000, 2000, 2001, 2000]):
        assert abs(counts(copies) - counts([2000] * 4)).sum() == 1


def test_an_id_is_in_one_part_at_all_sites():
    """The part of a person is HMAC(key, id), whatever the row and whoever else."""

    random, n = np.random.default_rng(0), 900
    frame = pd.DataFrame(
        {
            "who": [f"p{i}" for i in random.integers(0, 300, n)],
            "age": random.integers(18, 90, n),
            "sex": random.choice(["f", "m"], n),
            "site": random.choice(["north", "south"], n),
            "hired": random.choice(["yes", "no"], n),
        }
    )

    with pytest.warns(DataWarning, match="in more than one silo"):
        data = package.Federation.from_table(
            frame, label="hired", group="sex", silo="site", id="who", name="people"
        )
    cut = keyed_split(data.silos, b"key", 0.2, data.ids)
    parts = {}
    for silo in cut:
        for split, rows in silo.splits.items():
            for code in rows.person.tolist():
                parts.setdefault(data.ids[code], set()).add(split)
    assert len(parts) > 200
    for who, found in parts.items():
        drawn = hmac.digest(b"key", f"id {who}".encode(), "sha256")
        held = int.from_bytes(drawn[:6], "big") / 2.0**48 < 0.2
        assert found == {"test" if held else "train"}
    # One row counts of somebody with rows at both sites.
    parted = at_one_site(data.silos)
    north, south = (
        {int(p) for rows in silo.splits.values() for p in rows.person}
        for silo in parted
    )
    assert not north & south
    assert north | south == set(range(len(data.ids)))
    with raises(UsageError, "needs-federation"):
        package.solve(package.engines.Local(data), None, privacy=package.Privacy(1.0))
    with raises(UsageError, "needs-ids"):
        keyed_split(data.silos, b"key", 0.2)
