from __future__ import annotations

from pffl.datasets import DATASETS
from tests.datasets.acs_files import archive, persons
from tests.datasets.server import serve
from tests.datasets.test_acs import path_of
from tests.inside import datasets_acs


def test_data_sets_are_listed_and_fetched_by_name(command):
    seen = command("data")
    assert (seen.code, all(name in seen.out for name in DATASETS)) == (0, True)
    assert command("data", "synthetic").code == 0
    wrong = command("data", "sinthetic")
    assert (wrong.code, wrong.error) == (2, "unknown-data")
    assert "'synthetic'" in wrong.err


def test_a_download_is_said_and_kept(command, monkeypatch, tmp_path):
    packed = archive(tmp_path / "drawn", 2018, "WY", persons("WY", 80)).read_bytes()
    monkeypatch.setenv("PFFL_CACHE_DIR", str(tmp_path / "cache"))
    asked = ("data", "acs", "--set", 'data.states=["WY"]')
    with serve({path_of("WY"): packed}) as web:
        monkeypatch.setattr(datasets_acs, "ADDRESS", web.address)
        seen = command(*asked)
    assert (seen.code, "80" in seen.out) == (0, True)
    assert seen.err == f"downloading {web.address}{path_of('WY')}\n"
    assert command(*asked).err == ""  # from the cache: nothing to show
