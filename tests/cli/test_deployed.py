"""`pffl run --engine flower`: what it refuses before anything is started."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pffl import config
from pffl.errors import FederationError
from pffl.records import read_toml
from tests.cli.helpers import one_line, pffl
from tests.inside import Address, Launch, deploy, follow
from tests.inside import cli_deployed_launch as launch
from tests.inside import flower_launch as launching
from tests.raising import raises

RUN_FILE = """
[data]
name = "synthetic"
rows = 600
silos = 3

[constraint]
bound = 0.6

[run]
engine = "flower"

[privacy]
secure_sum = false
"""


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(RUN_FILE)
    return path


@pytest.fixture
def app(tmp_path, run_file):
    address = Address.parse("127.0.0.1:8000")
    made = deploy(
        config.load(run_file),
        read_toml(run_file),
        tmp_path / "d",
        address=address,
    )
    return made.folder / "app"


def test_what_is_refused_at_once(capsys, run_file, app, tmp_path):
    full, run = tmp_path / "o", ("run", run_file)
    full.mkdir()
    (full / "letters.txt").touch()
    assert pffl(capsys, *run).error == "not-an-app"
    assert (
        pffl(capsys, *run, "--engine", "local", "--app", app).error
        == "options-conflict"
    )
    assert pffl(capsys, *run, "--app", app, "--out", full).code == 6


@pytest.mark.parametrize(
    ("option", "named"),
    [
        (("--bound", "0.7"), "[constraint]"),
        (("--method", "pffl"), "[method]"),
        (("--l2", "0.5"), "[model]"),
        (("--weighting", "rows"), "[run]"),
        (("--set", "policy.seconds=5.0"), "[policy]"),
    ],
)
def test_an_app_of_another_run_file(capsys, run_file, app, option, named):
    done = pffl(capsys, "run", str(run_file), "--app", str(app), *option)
    assert (done.code, done.error) == (2, "other-run")
    assert named in one_line(done.err)


def test_a_superlink_that_is_not_there_is_exit_5(
    capsys, run_file, app, tmp_path, monkeypatch
):
    pytest.importorskip("flwr")
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "x"\n[superlink.x]\naddress = "127.0.0.1:1"\n'
        f'root-certificates = "{tmp_path / "none.crt"}"\n'
    )
    monkeypatch.setenv("FLWR_HOME", str(home))
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setenv("FLWR_DISABLE_UPDATE_CHECK", "1")
    done = pffl(
        capsys, "run", str(run_file), "--app", str(app), "--out", str(tmp_path / "o")
    )
    assert (done.code, done.error) == (5, "flwr-failed")


def ended(code):
    entry = {"event": "ended", "code": code, "message": "", "time": code}
    return json.dumps(entry) + "\n"


def test_the_record_of_an_earlier_run_is_passed_over(tmp_path):
    """A second run into the same directory must not end as the first one did."""
    path = tmp_path / "record.jsonl"
    path.write_text(ended(5))
    found = follow(tmp_path)
    with path.open("a") as stream:
        stream.write(ended(0) + '{"b"')  # goes on from there, by whole lines
    assert next(found)["code"] == 0
    path.write_text(ended(0))
    found = follow(tmp_path)
    assert next(found) is None
    path.unlink()
    assert next(found) is None
    path.write_text(ended(4))  # as long as the old one
    assert next(found)["code"] == 4


class Started(Launch):
    """A launch whose ServerApp writes this as its record's last line."""

    def start(self):
        self.out.mkdir(exist_ok=True)
        (self.out / "record.jsonl").write_text(ended(5))
        return 7


def test_how_to_go_on_names_the_app(capsys, run_file, app, tmp_path):
    planned = Started(app, "other", tmp_path / "o", False, False)
    assert launch(config.load(run_file), planned, quiet=True) == 5
    assert "to go on" not in capsys.readouterr().err  # nothing was saved
    (tmp_path / "o" / "record.jsonl").unlink()
    (tmp_path / "o" / "checkpoint.toml").touch()
    again = replace(planned, resume=True)
    assert launch(config.load(run_file), again, quiet=True) == 5
    said = one_line(capsys.readouterr().err)
    assert f"--resume {tmp_path / 'o'} --app {app} --superlink other" in said


class Gone(Launch):
    """A launch whose SuperLink is gone once the run has begun."""

    def start(self):
        self.out.mkdir(exist_ok=True)
        (self.out / "checkpoint.toml").touch()
        return 7

    def call(self, *arguments):
        raise FederationError(f"[flwr-failed] flwr {arguments[0]} failed")


def test_ctrl_c_is_130_even_if_the_superlink_is_gone(
    capsys, run_file, app, tmp_path, monkeypatch
):
    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(launching.time, "sleep", interrupted)
    planned = Gone(app, None, tmp_path / "o", False, False)
    with pytest.raises(KeyboardInterrupt):
        launch(config.load(run_file), planned, quiet=True)
    assert "pffl run --resume" in one_line(capsys.readouterr().err)


def test_a_superlink_that_goes_away_says_how_to_go_on(
    capsys, run_file, app, tmp_path, monkeypatch
):
    monkeypatch.setattr(launching, "ASK_AFTER", 0.0)
    planned = Gone(app, None, tmp_path / "o", False, False)
    with raises(FederationError, "flwr-failed"):
        launch(config.load(run_file), planned, quiet=True)
    assert "pffl run --resume" in one_line(capsys.readouterr().err)
