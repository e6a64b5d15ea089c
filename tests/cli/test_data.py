from __future__ import annotations

import pytest
from rich.filesize import decimal

from pffl.datasets import DATASETS
from tests.cli.helpers import one_line
from tests.datasets.acs_files import archive, persons
from tests.datasets.server import serve
from tests.datasets.test_acs import path_of
from tests.inside import datasets_acs, datasets_fetch

COLUMNS = ("--label", "label", "--group", "group", "--silo", "site")


@pytest.fixture
def people(tmp_path):
    """Three silos; nobody of group b is in silo s2, no b has label yes."""
    rows = ["x,group,site,label"]
    for i in range(60):
        group = "b" if i % 3 < 2 and i % 5 == 0 else "a"
        label = "yes" if group == "a" and i % 2 else "no"
        rows.append(f"{i * 7 % 11},{group},s{i % 3},{label}")
    path = tmp_path / "people.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_data_sets_are_listed_and_fetched_by_name(command):
    seen = command("data")
    assert (seen.code, all(name in seen.out for name in DATASETS)) == (0, True)
    assert command("data", "synthetic").code == 0
    wrong = command("data", "sinthetic")
    assert (wrong.code, wrong.error) == (2, "unknown-data")
    assert "'synthetic'" in wrong.err


def test_info_of_a_file(command, people):
    seen = command("data", people, *COLUMNS)
    text = one_line(seen.out)
    assert seen.code == 0
    assert "48 train, 12 test" in text
    assert "all 48 " in text


def test_the_largest_groups_are_shown(command):
    sizes = ("--set", "data.rows=3000", "--set", "data.groups=40")
    seen = command("data", "synthetic", "--silos", "60", *sizes)
    assert "and 34 more groups" in seen.out
    (total,) = (line for line in seen.out.splitlines() if line.startswith("all "))
    assert total.split()[1] == "2,400"


def test_fetch_shows_bytes_and_keeps_the_file(command, monkeypatch, tmp_path):
    packed = archive(tmp_path / "drawn", 2018, "WY", persons("WY", 80)).read_bytes()
    monkeypatch.setenv("PFFL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets_fetch, "CHUNK_BYTES", 100)
    asked = ("data", "acs", "--set", 'data.states=["WY"]')
    with serve({path_of("WY"): packed}) as web:
        monkeypatch.setattr(datasets_acs, "ADDRESS", web.address)
        seen = command(*asked)
    whole = decimal(len(packed))
    assert (seen.code, "80" in seen.out) == (0, True)
    assert f"csv_pwy.zip: 100 bytes of {whole}\n" in seen.err
    assert f"csv_pwy.zip: {whole} of {whole}\n" in seen.err
    assert command(*asked).err == ""  # from the cache: nothing to show
