from __future__ import annotations

from pathlib import Path

import pytest

from pffl.datasets import DATASETS
from tests.cli.helpers import one_line, pffl


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Three silos; nobody of group b is in silo s2, no b has label yes."""
    rows = ["x,group,site,label"]
    for i in range(60):
        site = f"s{i % 3}"
        group = "b" if i % 3 < 2 and i % 5 == 0 else "a"
        label = "yes" if group == "a" and i % 2 else "no"
        rows.append(f"{i * 7 % 11},{group},{site},{label}")
    path = tmp_path / "people.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_list_names_every_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    seen = pffl(capsys, "data", "list")
    assert seen.code == 0
    assert all(name in seen.out for name in DATASETS)


def test_fetch_of_generated_data(capsys: pytest.CaptureFixture[str]) -> None:
    seen = pffl(capsys, "data", "fetch", "synthetic")
    assert seen.code == 0
    assert "nothing to download" in seen.out


def test_fetch_suggests_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    seen = pffl(capsys, "data", "fetch", "sinthetic")
    assert seen.code == 2
    assert "did you mean 'synthetic'?" in seen.err


def test_info_of_a_file(capsys: pytest.CaptureFixture[str], people: Path) -> None:
    columns = ("--label", "label", "--group", "group", "--silo", "site")
    seen = pffl(capsys, "data", "info", people, *columns)
    assert seen.code == 0
    text = one_line(seen.out)
    assert "48 train, 12 test" in text
    assert "'no' → 0, 'yes' → 1 (positive)" in text
    assert "without training rows anywhere: b, yes" in text
    assert "pairs of silo and group without rows: 1 of 6" in text


def test_info_names_empty_cells_of_a_constraint(
    capsys: pytest.CaptureFixture[str], people: Path
) -> None:
    columns = ("--label", "label", "--group", "group", "--silo", "site")
    constraint = ("--constraint", "cbgl", "--bound", "1", "--labels", "yes")
    seen = pffl(capsys, "data", "info", people, *columns, *constraint)
    assert "cells of the constraint without training rows anywhere: b, yes" in seen.out


def test_info_of_a_file_collects_wrong_names(
    capsys: pytest.CaptureFixture[str], people: Path
) -> None:
    columns = ("--label", "lable", "--group", "group", "--silo", "cite")
    seen = pffl(capsys, "data", "info", people, *columns)
    assert seen.code == 3
    assert "did you mean 'label'?" in seen.err
    assert "did you mean 'site'?" in seen.err


@pytest.mark.parametrize("width", ["60", "200"])
def test_info_adds_up_what_it_does_not_show(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    sizes = ("--set", "data.rows=3000", "--set", "data.groups=40")
    seen = pffl(capsys, "data", "info", "synthetic", "--silos", "60", *sizes)
    assert seen.code == 0
    assert "35 more" in seen.out
    totals = next(line for line in seen.out.splitlines() if line.startswith("all "))
    *counts, total, _ = totals.replace(",", "").split()[1:]
    assert sum(map(int, counts)) == int(total)
