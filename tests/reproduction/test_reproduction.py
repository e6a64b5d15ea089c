"""The paper's figures: records, words, pictures and page belong together."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pffl
from pffl.experiments import judge
from reproduction import __main__ as command
from reproduction import bench as benches
from reproduction import claims, page, studies
from reproduction.bench import UNIT

FOLDER = Path(studies.__file__).parent


@pytest.fixture(scope="module")
def records():
    """What the repository holds."""
    return studies.load(FOLDER / "records")


@pytest.fixture
def people(monkeypatch):
    """A draw of made-up people."""
    monkeypatch.setattr(benches, "LEAST_ROWS", 5)

    def draw(_, seed):
        return pffl.datasets.synthetic(
            500, silos=3, features=3, random_state=seed, validation_fraction=0.2
        )

    return draw


def made(first, second, draws=40):
    """A record in which a method has one error and `first` or `second` as loss."""
    rng = np.random.default_rng(0)
    out = []
    for _ in range(draws):
        a, b = (round(UNIT * (x + rng.normal(0, 0.005))) for x in (first, second))
        panel = {
            "FedAvg": [[30_000, b, 30_000, b]],
            "weighted FedAvg": [[30_000, b, 30_000, b]],
            "PFFL": [[30_000, a, 30_000, a]],
            "constant guess": [[45_000, 69_315, 45_000, 69_315]],
            "range": [b, a],
        }
        out.append(dict.fromkeys(("bgl", "cbgl-y1", "cbgl-y0"), panel))
    return {"study": "compas", "title": "made", "correlation": 0.0, "draws": out}


def test_the_page_follows_from_the_records(records):
    text = (FOLDER / "README.md").read_text("utf-8")
    assert text == page.page(records)
    assert text.count("\n") <= 150
    assert ("celeba" in records) != (page.NO_CELEBA in text)


def test_records_are_small_and_none_is_in_the_wheel():
    files = list((FOLDER / "records").glob("*.json"))
    assert files
    assert sum(file.stat().st_size for file in files) <= 1_000_000
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text("utf-8"))
    assert "reproduction" not in str(
        project["tool"]["hatch"]["build"]["targets"]["wheel"]
    )


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [(0.6, 0.7, "better"), (0.7, 0.7, "same"), (0.7, 0.6, "worse")],
)
def test_words_are_those_of_the_statistics(first, second, word):
    """A front holds FedAvg, too, so that only a method of one model can be worse."""
    record = made(first, second)
    for draw in record["draws"]:
        for panel in draw.values():
            panel["FedMinMax"] = panel["PFFL"]
    claim = claims.Claim("test", "compas", "bgl", "FedMinMax", "FedAvg")
    kept, claims.CLAIMS[:] = claims.CLAIMS[:], [claim]
    try:
        (found,) = claims.findings({"compas": record}, "test")
    finally:
        claims.CLAIMS[:] = kept
    assert found.words == (word, word)
    for number in range(len(claims.REFERENCES)):
        mine, other = (
            claims.areas(record, "bgl", arm, number) for arm in ("FedMinMax", "FedAvg")
        )
        difference = (mine - other) / other.mean()
        alone = judge({"": difference}, better="higher", margin=claims.SAME_AREA)[""]
        assert alone.conditional.word == word
        if number == claims.SHOWN:
            assert found.area.conditional.interval == alone.conditional.interval
    assert found.headroom == pytest.approx(second - first, abs=0.01)


def test_a_study_from_rows_to_page(people, tmp_path, monkeypatch):
    """Two draws of made-up people; a study that was stopped goes on."""
    pytest.importorskip("matplotlib")
    few = studies.group_panels("compas", extra=1, algorithm_1=1)
    small = replace(studies.STUDIES["compas"], draw=people, panels=few, seeds=2)
    silos = replace(studies.STUDIES["compas-silos"], draw=people, seeds=1)
    monkeypatch.setattr(studies, "PRICES", (0.1, 100.0))
    monkeypatch.setattr(command, "STUDIES", {"compas": small})
    monkeypatch.setattr(command, "FIGURES", {"figure2": ("compas",)})
    assert command.main(["figure2", "--seeds", "1", "--out", str(tmp_path)]) == 0
    first = studies.load(tmp_path / "records")["compas"]
    assert command.main(["figure2", "--out", str(tmp_path)]) == 0
    record = studies.load(tmp_path / "records")["compas"]
    assert [len(r["draws"]) for r in (first, record)] == [1, 2]
    assert record["draws"][0] == first["draws"][0]
    assert (tmp_path / "figures" / "figure2.svg").is_file()
    assert "PFFL against FedAvg" in (tmp_path / "README.md").read_text("utf-8")
    for panel in first["draws"][0].values():
        assert {"FedAvg", "PFFL", "local BGL", "Algorithm 1"} <= set(panel)
        assert all(len(row) == 4 for row in panel["PFFL"])
    studies.run(silos, studies.Sources(), tmp_path / "records")
    assert "q-FFL" in page.page(studies.load(tmp_path / "records"))


def test_celebas_row_is_made_of_a_folder_of_pictures(tmp_path, monkeypatch):
    """Drawn ones, a network of four rounds and few points."""
    pytest.importorskip("torch", reason="networks need the extra 'torch'")
    pytest.importorskip("PIL", reason="pictures need the extra 'celeba'")
    from reproduction import celeba
    from tests.datasets.celeba_files import Drawn

    monkeypatch.setenv("PFFL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(benches, "LEAST_ROWS", 1)
    monkeypatch.setattr(studies, "GROUP_NOTIONS", ("bgl",))
    monkeypatch.setattr(celeba, "PARTS", (0.7,))
    monkeypatch.setattr(celeba, "PAPER", (0.3,))
    drawn = Drawn(tmp_path / "files")
    drawn.unzipped()
    sources = studies.Sources(celeba=str(drawn.folder))
    draw = celeba.draw(12, silos=2, test_fraction=0.3)
    network, pixels = celeba.STUDIES

    def short(bench):
        return celeba.network_panels(
            bench, dual_rounds=2, rounds_per_dual=2, participation=1.0
        )

    small = celeba.cnn(12, width=2)
    for study in (
        replace(network, draw=draw, panels=short, model=small),
        replace(pixels, draw=draw),
    ):
        record = studies.run(study, sources, tmp_path / "records", 1)
        panel = record["draws"][0]["bgl"]
        assert {"FedAvg", "weighted FedAvg", "PFFL", "constant guess"} <= set(panel)
    found = studies.load(tmp_path / "records")
    assert set(found) == {"celeba", "celeba-pixels"}


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=6))
def test_the_hypervolume_is_the_share_of_a_fine_lattice_that_is_dominated(points):
    side = (np.arange(200) + 0.5) / 200 * 0.8
    x, y = np.meshgrid(side, side)
    dominated = np.zeros_like(x, dtype=bool)
    for e, v in points:
        dominated |= (x >= e) & (y >= v)
    area = claims.hypervolume(points, (0.8, 0.8))
    assert area == pytest.approx(0.64 * dominated.mean(), abs=0.02)


def test_a_front_is_chosen_on_validation_rows_and_measured_on_test_rows():
    validation = [[0.1, 0.5], [0.2, 0.4], [0.3, 0.45]]
    test = [[0.15, 0.6], [0.2, 0.5], [0.1, 0.1]]
    assert claims.chosen_front(validation, test).tolist() == test[:2]
    assert claims.chosen_front(test, test).tolist() == test[2:]
