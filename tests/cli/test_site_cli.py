"""`pffl site` and `pffl deploy`, as they are typed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pffl.site import Agreement, Site
from pffl.wire import read_answer
from tests.cli.helpers import one_line, pffl
from tests.site.sites import census, message, write_site


def test_prepare_shows_counts_and_what_is_withheld(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = '[site]\nname = "north"\ntable = "rows.csv"\n[limits]\nfloor = 35\n'
    folder = write_site(tmp_path / "north", text)
    seen = pffl(capsys, "site", "prepare", folder / "site.toml")
    assert seen.code == 0, seen.err
    shown = one_line(seen.out)
    assert "all 160 40" in shown
    assert "withheld" in shown


def test_dry_run_prints_exactly_the_bytes_that_leave(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = write_site(tmp_path)
    assert pffl(capsys, "site", "prepare", folder).code == 0
    site = Site.open(folder)
    query = tmp_path / "query"
    query.write_bytes(message(site, census(site, "test"), (3, 4)))
    arguments = ("site", "answer", folder, "--dry-run", "--query", query)
    seen = pffl(capsys, *arguments, "--json")
    assert not (folder / "guard.json").exists()
    content = site.answer(query.read_bytes())  # what does leave
    assert bytes.fromhex(seen.json["bytes"]) == content
    assert seen.json["size"] == len(content)
    assert seen.json["sha256"] == hashlib.sha256(content).hexdigest()
    assert seen.json["arrays"]["rows"] == [25]  # the others are few
    refused = pffl(capsys, *arguments, "--json").json
    assert "answered twice" in refused["header"]["refusal"]


def test_dry_run_is_readable_and_whole(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = write_site(tmp_path)
    assert pffl(capsys, "site", "prepare", folder).code == 0
    assert pffl(capsys, "site", "answer", folder).code == 2  # nothing is sent from here
    seen = pffl(capsys, "site", "answer", folder, "--dry-run")
    assert seen.code == 0
    head, _, dump = seen.out.partition("\nbytes\n")
    content = b"".join(bytes.fromhex(line[10:57]) for line in dump.splitlines())
    assert hashlib.sha256(content).hexdigest() in head
    assert read_answer(content).silo == "north"
    assert "counts int64[1, 4]" in head


def test_describe_writes_names_and_no_rows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = tmp_path / "sample.csv"
    rows = [
        f"{i * 7 % 101},{'fm'[i % 2]},{'no' if i % 3 else 'yes'}" for i in range(90)
    ]
    table.write_text("\n".join(["age,sex,sick", *rows]) + "\n")
    out = tmp_path / "federation.json"
    columns = ("--label", "sick", "--group", "sex")
    seen = pffl(
        capsys, "site", "describe", table, *columns, "--sites", "a,b, c", "-o", out
    )
    assert seen.code == 0, seen.err
    agreed = Agreement.read(out)
    assert agreed.sites == ("a", "b", "c")
    assert agreed.columns == ("age", "sex", "sick")


def test_from_a_run_file_to_an_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spec = tmp_path / "run.toml"
    spec.write_text(
        '[data]\nname = "synthetic"\nrows = 900\nsilos = 3\n'
        '[constraint]\nkind = "bgl"\nbound = 0.62\n'
        "[privacy]\nsecure_sum = false\n"
    )
    out = tmp_path / "out"
    trial = ("--trial-data", "--sites", "a,b,c", "--address", "127.0.0.1:8441")
    seen = pffl(capsys, "deploy", spec, "-o", out, *trial)
    assert seen.code == 0, seen.err
    assert pffl(capsys, "site", "prepare", out / "sites" / "b").code == 0
    answer = pffl(capsys, "site", "answer", out / "sites" / "b", "--dry-run", "--json")
    assert answer.json["header"]["silo"] == "b"
    file = out / "app" / "run.toml"
    here = ("--engine", "local", "--out", tmp_path / "run")
    assert pffl(capsys, "run", file, *here).error == "rows-elsewhere"


def test_deploy_refuses_every_interface_and_a_full_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen = pffl(
        capsys, "deploy", "synthetic", "-o", tmp_path / "x", "--address", "0.0.0.0:1"
    )
    assert (seen.code, seen.error) == (2, "every-interface")
    (tmp_path / "mine").write_text(json.dumps({}))
    plain = ("--set", "privacy.secure_sum=false")
    seen = pffl(capsys, "deploy", "synthetic", "-o", tmp_path, *plain)
    assert seen.code == 6


def test_status_log_pause_and_resume(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = write_site(tmp_path / "site")
    seen = pffl(capsys, "site", "status", folder)
    assert seen.code == 0
    assert "pffl site prepare" in one_line(seen.out)
    assert pffl(capsys, "site", "prepare", folder).code == 0
    site = Site.open(folder)
    first = site.answer(message(site, census(site)))
    site.answer(b"xx")
    seen = pffl(capsys, "site", "status", folder)
    assert "train 160, test 40" in seen.out
    assert "answered 1 messages, refused 1" in seen.out
    plain = pffl(capsys, "site", "status", folder, "--json").json
    assert plain["runs"][0]["size"] == len(first)
    seen = pffl(capsys, "site", "log", folder)
    assert [line.split("  ")[1] for line in seen.out.splitlines()] == [
        "run",
        "unreadable",
    ]
    seen = pffl(capsys, "site", "log", folder, "--refused", "--json")
    assert json.loads(seen.out)["refused"] == "2 bytes are no parcel"
    assert pffl(capsys, "site", "pause", folder, "--because", "backup").code == 0
    assert "paused since" in pffl(capsys, "site", "status", folder).out
    assert pffl(capsys, "site", "resume", folder).code == 0
    assert "paused since" not in pffl(capsys, "site", "status", folder).out


def test_show_says_what_the_run_asks_and_what_the_site_allows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = write_site(tmp_path)
    path = folder / "federation.json"
    agreed = Agreement.read(path)
    run = {"constraint": {"kind": "bgl", "bound": 0.7}, "run": {"seed": 1}}
    path.write_text(replace(agreed, run=run).text(), "utf-8")
    assert pffl(capsys, "site", "prepare", folder).code == 0
    shown = one_line(pffl(capsys, "site", "show", folder).out)
    assert "kind bgl, bound 0.7" in shown
    assert "200 queries" in shown
    assert "No secure sums" in shown
    whole = pffl(capsys, "site", "show", folder, "--json").json
    assert whole["run"] == run
    assert whole["limits"]["queries"] == 200
