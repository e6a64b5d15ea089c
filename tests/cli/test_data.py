from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pffl import progress
from pffl.cli.counts import MOST_DRAWN, picture
from pffl.datasets import DATASETS, _acs_files, _fetch
from tests.cli.helpers import one_line, pffl, program
from tests.datasets.acs_files import archive, persons
from tests.datasets.test_acs_download import Census, path_of, serve


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
    assert "without training rows anywhere: b, label = yes" in text
    assert "pairs of silo and group without rows: 1 of 6" in text


def test_info_names_empty_cells_of_a_constraint(
    capsys: pytest.CaptureFixture[str], people: Path
) -> None:
    columns = ("--label", "label", "--group", "group", "--silo", "site")
    constraint = ("--constraint", "cbgl", "--bound", "1", "--labels", "yes")
    seen = pffl(capsys, "data", "info", people, *columns, *constraint)
    text = one_line(seen.out)
    assert "cells of the constraint without training rows anywhere: b, label = yes" in (
        text
    )


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


def test_info_draws_rows_and_label_rates(
    capsys: pytest.CaptureFixture[str], people: Path
) -> None:
    columns = ("--label", "label", "--group", "group", "--silo", "site")
    lines = pffl(capsys, "data", "info", people, *columns).out.splitlines()
    start = lines.index("rows of 3 silos, large to small")
    assert lines[start + 1 : start + 3] == ["a  ▒▒▒", "b  ░░·"]
    rates = lines[lines.index("share of the positive label") :]
    assert rates[1].startswith("a  ")
    assert rates[2] == "b  ▁▁·"


def test_picture_joins_silos_that_do_not_fit() -> None:
    counts = np.zeros((1000, 30, 2), dtype=np.int64)
    counts[:, :, 0], counts[:, :, 1] = 5, 15
    counts[990:] = 0
    lines = [line.plain for line in picture([f"g{i}" for i in range(30)], counts, 60)]
    assert "up to 19 silos in a character" in lines[0]
    assert max(map(len, lines)) <= 80
    drawn = [line for line in lines if line.startswith("g")]
    assert len(drawn) == 2 * MOST_DRAWN
    assert drawn[0].split()[1].startswith("▒▒▒")
    assert set(drawn[-1].split()[1]) == {"▆"}  # 15 of 20
    assert lines[-1] == "10 smaller groups are not drawn"


def test_picture_of_a_numeric_target_has_no_rates() -> None:
    lines = picture(["a"], np.full((2, 1, 1), 2000), 60)
    assert [line.plain for line in lines][1] == "a  ██"
    assert len(lines) == 3


def test_picture_is_spelt_out_without_unicode(
    monkeypatch: pytest.MonkeyPatch, people: Path
) -> None:
    columns = ("--label", "label", "--group", "group", "--silo", "site")
    run = subprocess.run(
        program("data", "info", people, *columns),
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=60,
        check=True,
    )
    assert b"a  +++" in run.stdout


def test_fetch_shows_bytes_and_keeps_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = Census()
    packed = archive(tmp_path / "drawn", 2018, "WY", persons("WY", 80))
    site.files[path_of("WY")] = packed.read_bytes()
    monkeypatch.setenv("PFFL_CACHE_DIR", str(tmp_path / "cache"))
    asked = ("data", "fetch", "acs", "--set", 'data.states=["WY"]')
    with serve(site):
        monkeypatch.setattr(_acs_files, "ADDRESS", site.address)
        monkeypatch.setattr(_fetch, "STEP", 100)
        seen = pffl(capsys, *asked)
    whole = progress.size(len(site.files[path_of("WY")]))
    assert seen.code == 0
    assert "80 rows, ready" in seen.out
    assert f"csv_pwy.zip: 100 B of {whole}\n" in seen.err
    assert f"csv_pwy.zip: {whole} of {whole}\n" in seen.err
    assert pffl(capsys, *asked).err == ""  # from the cache: nothing to show


def test_lines_say_how_long_it_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 10.0, 12.0])
    fake = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(progress, "time", fake)
    with progress.arriving() as show:
        show("a.zip", 0, 4000)
        show("a.zip", 500, 4000)  # too soon for another line
        show("a.zip", 1000, 4000)
        show("b.zip", 7, None)
    assert capsys.readouterr().err.splitlines() == [
        "a.zip: 0 B of 4.0 kB",
        "a.zip: 1.0 kB of 4.0 kB, 30 s left",
        "b.zip: 7 B",
    ]


def test_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    with progress.arriving() as show:
        show("a.zip", 1000, 4000)
        show("b.zip", 2000, None)
        show("pictures", 3, 4000)
    assert "3 of 4,000" in capsys.readouterr().err
