"""A monitor over sites: files of sums that add, floors, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.cli import main
from pffl.errors import ArtefactError, DataError, UsageError
from pffl.evidence.monitor import Monitor
from pffl.monitoring import SiteSums, add_sites, count_site, settle
from pffl.monitoring.federated import read_settings, read_sums
from tests.cli.helpers import Command, one_line
from tests.test_monitoring import people

BOUND = 0.55
RUN = ("--label", "y", "--group", "sex", "--id", "who", "--seed", "0", "--out", "run")


@pytest.fixture(scope="module")
def model() -> pffl.Solution:
    made = pffl.Federation.from_table(people(900, 0), label="y", group="sex", id="who")
    return pffl.solve(made, pffl.BoundedGroupLoss(BOUND), seed=0)


def sent(model: Any, tmp: Path, *tables: pd.DataFrame, **more: Any) -> list[SiteSums]:
    settle(model, tmp / "settings.json", **more)
    return [
        count_site(
            model, table, tmp / "settings.json", site=f"site {k}", id="who", floor=1
        )[0]
        for k, table in enumerate(tables)
    ]


def test_the_sums_of_sites_come_to_those_of_all_rows(model, tmp_path) -> None:
    """Two batches of three sites against one place with all rows."""
    whole: Monitor | None = None
    for batch in (1, 2):
        tables = [people(80 + 30 * k, 10 * batch + k) for k in range(3)]
        files = []
        for k, sums in enumerate(sent(model, tmp_path, *tables)):
            sums.save(tmp_path / f"{batch}-{k}.json")
            files.append(tmp_path / f"{batch}-{k}.json")
        found = add_sites(
            model, files, name=f"batch {batch}", state=tmp_path / "state.jsonl"
        )
        table = pd.concat(
            [t.assign(who=t["who"].astype(str) + f"-{k}") for k, t in enumerate(tables)]
        )
        whole = pffl.monitor(model, table, state=whole, id="who")
    assert whole is not None
    assert len(found.entries) == 2
    for one, other in zip(found.entries, whole.entries, strict=True):
        assert one.count == other.count
        np.testing.assert_allclose(one.loss, other.loss)
        np.testing.assert_allclose(one.log_e, other.log_e, rtol=1e-9, atol=1e-9)
    assert found.settings == whole.settings
    plain = json.loads((tmp_path / "state.json").read_text("utf-8"))
    assert plain["batches"] == 2


def changed(table: pd.DataFrame, who: Any) -> pd.DataFrame:
    """Other inputs of some people."""
    return table.assign(age=table["age"] + 13.0 * who)


def test_cells_with_few_people_leave_no_trace(model, tmp_path) -> None:
    """Other inputs of those who are left out: the same file, to the last digit."""
    settle(model, tmp_path / "settings.json")
    table = people(200, 3)
    women = table.index[table["sex"] == "f"]
    table = table.drop(women[15:]).reset_index(drop=True)
    few = table["sex"] == "f"
    one, two = (
        count_site(model, t, tmp_path / "settings.json", site="a")
        for t in (table, changed(table, few))
    )
    assert asdict(one[0]) == asdict(two[0])
    assert "15 of" in one[1][-1]
    assert one[0].rows == len(table) - 15
    assert sorted(one[0].count)[0] == 0
    seen, other = (
        count_site(model, t, tmp_path / "settings.json", site="a", floor=1)[0]
        for t in (table, changed(table, few))
    )
    assert seen.rows == len(table)
    assert seen.above != other.above  # without a floor they would be seen
    with pytest.raises(DataError, match="nothing of it may leave"):
        count_site(model, table.head(15), tmp_path / "settings.json", site="a")


def test_no_difference_of_cells_tells_of_few(model, tmp_path) -> None:
    """Groups, and groups by label: few women with one label are in neither sum."""
    both = pffl.BoundedGroupLoss(0.6) & pffl.ConditionalBoundedGroupLoss(0.9)
    settled = settle(model, tmp_path / "settings.json", constraint=both)
    table = people(300, 3)
    rare = (table["sex"] == "f") & (table["y"] == "yes")
    table = table.drop(table.index[rare][6:]).reset_index(drop=True)
    few = (table["sex"] == "f") & (table["y"] == "yes")
    sums, other = (
        count_site(model, t, tmp_path / "settings.json", site="a")[0]
        for t in (table, changed(table, few))
    )
    assert asdict(sums) == asdict(other)
    count = dict(zip(settled.names, sums.count, strict=True))
    assert count["f"] == sum(count[n] for n in settled.names if n.startswith("f,"))
    assert 0 in count.values()


def test_labels_inside_a_cell_do_not_decide_who_is_counted(model, tmp_path) -> None:
    """A group with few people of one label is counted whole."""
    settle(model, tmp_path / "settings.json")
    table = people(300, 3)
    rare = (table["sex"] == "f") & (table["y"] == "yes")
    table = table.drop(table.index[rare][2:]).reset_index(drop=True)
    sums, _ = count_site(model, table, tmp_path / "settings.json", site="a")
    assert sums.rows == len(table)


def test_people_with_many_rows_are_few(model, tmp_path) -> None:
    settle(model, tmp_path / "settings.json")
    table = people(300, 5)
    table["who"] = np.where(table["sex"] == "f", "one", table.index.astype(str))
    sums, notes = count_site(
        model, table, tmp_path / "settings.json", site="a", id="who"
    )
    z = read_settings(tmp_path / "settings.json").names.index("f")
    assert sums.count[z] == 0
    assert "are left out" in notes[-1]


def test_nobody_is_counted_twice(model, tmp_path) -> None:
    a, b, c = sent(model, tmp_path, *(people(100, k) for k in (1, 2, 3)))
    state = tmp_path / "state.jsonl"
    add_sites(model, [a, b], name="march", state=state)
    again = add_sites(model, [b, a], name="march", state=state)
    assert len(again.entries) == 1
    assert "not counted again" in again.notes[0]
    with pytest.raises(DataError, match="site 'site 1' were counted in batch 1"):
        add_sites(model, [c, b], name="april", state=state)
    with pytest.raises(DataError, match="site 'site 2' is there 2 times"):
        add_sites(model, [c, c], name="april", state=state)
    assert len(add_sites(model, [c], name="april", state=state).entries) == 2


def test_sums_that_no_rows_have_are_refused(model, tmp_path) -> None:
    (good,) = sent(model, tmp_path, people(100, 1))
    state = tmp_path / "state.jsonl"
    forged = {
        "losses": replace(good, loss=[9.0 * n for n in good.count]),
        "fewer": replace(good, loss=[-1.0 for _ in good.count]),
        "people": replace(good, count=[10 * n for n in good.count]),
        "negative": replace(good, count=[-n for n in good.count]),
        "log-sums": replace(good, above=[[1.0] * 9 for _ in good.above]),
        "long": replace(good, above=[row[:3] for row in good.above]),
        "cells": replace(good, count=good.count[:1]),
        "weights": replace(good, weight=[1.0] * len(good.count)),
        "floor": replace(good, floor=10_000),
        "settings": replace(good, settings="0" * 64),
    }
    for name, bad in forged.items():
        with pytest.raises(DataError, match="site 'site 0'"):
            add_sites(model, [bad], name=name, state=state)
    assert not state.exists() or not state.read_bytes()
    with pytest.raises(UsageError, match="no sums"):
        add_sites(model, [], name="none", state=state)


def test_what_was_settled_binds(model, tmp_path) -> None:
    state, own = tmp_path / "state.jsonl", tmp_path / "own.json"
    loose = settle(model, own, bound=0.7, confidence=0.9)
    (sums,) = (
        count_site(model, people(100, 1), own, site="a", floor=1)[0] for _ in range(1)
    )
    with pytest.raises(DataError, match="other settings"):
        add_sites(model, [sums], name="march", state=state)
    found = add_sites(model, [sums], name="march", state=state, settings=own)
    assert found.settings == loose
    # A site that comes later gets what the monitor began with.
    later = settle(model, tmp_path / "later.json", state=state)
    assert later == loose
    with pytest.raises(UsageError, match="which stay"):
        settle(model, tmp_path / "x.json", state=state, bound=0.6)
    other = pffl.solve(
        pffl.Federation.from_table(people(400, 9), label="y", group="sex", id="who"),
        pffl.BoundedGroupLoss(BOUND),
        seed=0,
    )
    with pytest.raises(ArtefactError, match="another model"):
        count_site(other, people(100, 1), own, site="a")
    with pytest.raises(UsageError, match="floor"):
        count_site(model, people(100, 1), own, site="a", floor=0)
    with pytest.raises(ArtefactError, match=r"no file of pffl\.monitor\.sums"):
        read_sums(own)
    own.write_text("{")
    with pytest.raises(ArtefactError):
        read_settings(own)


def test_weights_add_as_well(tmp_path) -> None:
    rng = np.random.default_rng(0)
    table = people(600, 0).assign(s=rng.uniform(0.5, 2.0, 600))
    made = pffl.Federation.from_table(
        table, label="y", group="sex", id="who", weight="s"
    )
    model = pffl.solve(made, pffl.BoundedGroupLoss(BOUND), seed=0)
    batches = [people(120, k).assign(s=rng.uniform(0.5, 2.0, 120)) for k in (1, 2)]
    sums = sent(model, tmp_path, *batches)
    assert sums[0].weight is not None
    found = add_sites(model, sums, name="one", state=tmp_path / "state.jsonl")
    both = pd.concat(
        [t.assign(who=t["who"].astype(str) + f"-{k}") for k, t in enumerate(batches)]
    )
    whole = pffl.monitor(model, both, id="who")
    assert whole.entries[0].weight is not None
    assert sum(whole.entries[0].weight) == pytest.approx(both["s"].sum())
    np.testing.assert_allclose(found.entries[0].log_e, whole.entries[0].log_e)
    assert [row["mean_loss"] for row in found.table] == pytest.approx(
        [row["mean_loss"] for row in whole.table]
    )


# On the command line


def test_three_steps_by_hand(tmp_path: Path, command: Command) -> None:
    people(900, 0).to_csv("people.csv", index=False)
    with pytest.raises(SystemExit):
        main(["run", "people.csv", "--bound", "0.55", "--no-extras", "-q", *RUN])
    settled = command("monitor", "run", "--settle", "settings.json")
    assert settled.code == 0
    assert "Settled: f 0.55, m 0.55; confidence 95 %" in one_line(settled.out)
    for k, name in enumerate(("north", "south")):
        people(160, 20 + k, 0.5).to_csv(f"{name}.csv", index=False)
        step = ("monitor", "run/model.safetensors", f"{name}.csv")
        step += ("--settings", "settings.json", "--sums", f"{name}.json")
        told = command(*step)
        assert told.code == 0
        assert f"site '{name}': 22 numbers leave with {name}.json" in one_line(told.out)
    assert not Path("run/monitor.jsonl").exists()
    found = command("monitor", "run", "north.json", "south.json", "--add", "march")
    assert found.code in (0, 4)
    assert "1 batch with 320 rows" in one_line(found.out)
    again = command("monitor", "run", "north.json", "--add", "april")
    assert again.code == 3
    assert "were counted in batch 1" in one_line(again.err)
    for wrong, text in (
        (("--settle", "x.json", "north.csv"), "leave out ROWS"),
        (("north.csv", "--sums", "x.json"), "--settings FILE"),
        (("north.csv", "--site", "a"), "go with --sums"),
        (("north.csv", "--settings", "settings.json"), "goes with --sums"),
        (("north.json", "--add", "a", "--confidence", "0.9"), "all is settled"),
        (("a.csv", "--sums", "x", "--add", "b"), "one at a time"),
        (
            ("a.csv", "b.csv", "--sums", "x", "--settings", "settings.json"),
            "one table",
        ),
        ((), "ROWS are missing"),
    ):
        refused = command("monitor", "run", *wrong)
        assert refused.code == 2, wrong
        assert text in one_line(refused.err), wrong
