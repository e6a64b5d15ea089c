"""A suite: many data sets, ranks over them, settings that are varied."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import pffl
from pffl.errors import DataError
from reproduction import suite
from reproduction.suite import NATURAL, Benchmark, page, ranked, run_suite

FOLDER = Path(__file__).parents[2] / "reproduction"
METHODS = ("fedavg", "group-weighted", "exact")


def opened(section, seed):
    if section["name"] == "acs":
        raise DataError("no such file\nat all")
    number = 200 + 20 * list(NATURAL).index("compas")
    return pffl.datasets.synthetic(
        number, silos=2, features=2, seed=seed, validation_fraction=0.2
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("suite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite, "VARIED", {"local_steps": ("method", (5,))})
        patch.setattr(suite, "VARIED_METHODS", ("fedavg", "group-weighted"))
        some = {"methods": METHODS, "seeds": 2, "budget": 10, "out": out}
        names = ["acs", "compas", "colleges"]
        return run_suite("natural", opened, data_sets=names, **some), out


def test_methods_are_ranked_over_the_data_sets_that_could_be_opened(found):
    benchmark, _ = found
    record = benchmark.record
    assert record["absent"] == {"acs": "no such file"}
    assert list(record["data_sets"]) == ["compas", "colleges"]
    assert benchmark.ranks.methods == METHODS
    assert benchmark.ranks.data_sets == 2
    assert sum(benchmark.ranks.ranks) == pytest.approx(6.0)
    for one in record["data_sets"].values():
        assert set(one["values"]) == set(METHODS)
        assert {line["method"] for line in one["differences"]} <= set(METHODS[1:])
    steps = {line["local_steps"] for line in record["varied"]["local_steps"]}
    assert steps <= {5}


def test_the_page_and_the_pictures_follow_from_the_record(found, tmp_path):
    benchmark, _ = found
    benchmark.save(tmp_path)
    again = json.loads((tmp_path / "benchmark.json").read_text())
    assert (tmp_path / "README.md").read_text() == page(again)
    assert Benchmark(again).ranks == benchmark.ranks
    names = {path.name for path in tmp_path.glob("*.svg")}
    assert names == {"ranks.svg", "varied-local_steps.svg"} | {
        f"{name}-differences.svg" for name in ("compas", "colleges")
    }


def test_the_benchmark_of_the_repository_is_what_its_record_says():
    folder = FOLDER / "benchmark"
    record = Benchmark.load(folder).record
    assert len(record["data_sets"]) >= 6
    assert (folder / "README.md").read_text() == page(record)
    found = suite._ranks(record["data_sets"], record["methods"])
    assert found == Benchmark(record).ranks
    for name, one in record["data_sets"].items():
        assert set(one["values"]) == set(record["methods"]), name


def test_ranks_friedman_and_the_critical_difference_by_hand():
    # Demšar 2006, table 6: k = 4, N = 14, q.05 = 2.569 → CD = 1.25
    rng = np.random.default_rng(0)
    values = {name: rng.normal(i, 1.0, 14) for i, name in enumerate("abcd")}
    found = ranked(values)
    assert found.critical == pytest.approx(1.25, abs=0.005)
    assert found.p == pytest.approx(stats.friedmanchisquare(*values.values()).pvalue)
    table = np.array(list(values.values())).T
    by_hand = np.array([stats.rankdata(row) for row in table]).mean(axis=0)
    assert found.ranks == pytest.approx(by_hand)
    ties = ranked({"a": [1.0, 1.0], "b": [1.0, 2.0], "c": [3.0, 3.0]})
    assert ties.ranks == pytest.approx([1.25, 1.75, 3.0])
    assert ranked({"a": [1.0], "b": [2.0], "c": [3.0]}).critical is None


@pytest.mark.parametrize("critical", [0.0, 0.5, 1.0, 2.0, 9.0])
def test_groups_are_those_that_the_definition_names(critical):
    """Every two in a group are near, and no group can be made larger (by trying)."""
    rng = np.random.default_rng(int(10 * critical))
    ranks = {f"m{i}": float(r) for i, r in enumerate(rng.uniform(1, 6, 6))}
    table = [{"method": name, "rank": rank} for name, rank in ranks.items()]
    found = {
        frozenset(row.name.split(", "))
        for row in suite.ranks_chart(table, critical=critical).rows
        for mark in row.marks
        if mark.series == "alike"
    }
    every = [
        frozenset(name for i, name in enumerate(ranks) if n >> i & 1) for n in range(64)
    ]
    near = [
        one
        for one in every
        if len(one) > 1
        and max(ranks[n] for n in one) - min(ranks[n] for n in one) <= critical
    ]
    assert found == {one for one in near if not any(one < other for other in near)}
