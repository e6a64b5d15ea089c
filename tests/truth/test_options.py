"""An option that a command makes no use of is refused: exit code 2, with its name.

What a command is said to use must be in what it reads: each option that it takes
changes the run file that it describes, and for `feasible`, `compare`, `plan`
and `audit` those of one run alone are no options.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.helpers import SMALL, Command, pffl

#: What says how one run is trained and promised: nothing else trains such a run.
ONE_RUN = {"--promise": "unseen", "--models": "4", "--reach": None}
UNUSED = {
    "feasible": ["unseen", "l2", "weighting", "weight-bound"],
    "compare": ["unseen", "engine"],
    "plan": ["unseen", "engine", "error-at-most"],
    "audit": ["radius", "error-at-most"],
    "data info": ["unseen", "promise", "weighting"],
    "site describe": ["bound", "promise"],
}
RUN = ["run", "deploy"]


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: pffl(capsys, *arguments)


def commands() -> dict[str, Any]:
    """Return every command of the app, by its words."""
    from tests.inside import app

    found: dict[str, Any] = {}

    def walk(group: Any, before: str) -> None:
        for name, one in group.commands.items():
            words = f"{before} {name}".strip()
            if hasattr(one, "commands"):
                walk(one, words)
            else:
                found[words] = one

    walk(typer.main.get_command(app), "")
    return found


@pytest.mark.parametrize("name", ["feasible", "compare", "plan", "audit"])
@pytest.mark.parametrize("option", ONE_RUN)
def test_what_is_of_one_run_is_refused_elsewhere(
    name: str, option: str, command: Command
) -> None:
    first = ["audit", "model.json"] if name == "audit" else [name]
    value = ONE_RUN[option]
    found = command(*first, *SMALL, option, *([] if value is None else [value]))
    assert found.code == 2
    assert option in found.err
    key = f"run.{option[2:]}"
    found = command(*first, *SMALL, "--set", f"{key}={value or 'true'}")
    assert (found.code, found.error) == (2, "no-effect")
    assert key in found.err
    assert not list(Path().iterdir())


FILE = """
[data]
name = "synthetic"
rows = 300
groups = ["f", "m"]
[constraint]
kind = "bgl"
bound = 0.9
"""
KEYS = {"promise": '"unseen"', "reach": "true", "models": "4"}


@pytest.mark.parametrize("name", ["feasible", "compare", "plan", "audit"])
@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_a_run_file_is_refused_where_it_is_not_used(
    name: str, key: str, command: Command
) -> None:
    Path("my.toml").write_text(f"{FILE}[run]\n{key} = {KEYS[key]}\n")
    first = ["audit", "model.json"] if name == "audit" else [name]
    found = command(*first, "my.toml")
    assert (found.code, found.error) == (2, "no-effect")
    assert f"run.{key}" in found.err
    assert "my.toml" in found.err


def test_other_keys_without_effect_are_refused_and_usual_values_are_not(
    command: Command,
) -> None:
    one = Path("my.toml")
    one.write_text(f"{FILE}[model]\nl2 = 0.5\n[run]\nweighting = 'rows'\n")
    found = command("feasible", "my.toml")
    assert (found.code, found.error) == (2, "no-effect")
    assert "model.l2" in found.err
    assert "run.weighting" in found.err
    one.write_text(f"{FILE}[run]\nweighting = 'silos'\nreach = false\n")
    assert command("feasible", "my.toml").code == 0
    one.write_text(f"{FILE}[policy]\nquorum = 0.5\n")
    found = command("run", "my.toml")
    assert (found.code, found.error) == (2, "no-effect")
    assert "[policy]" in found.err
    assert [place.name for place in Path().iterdir()] == ["my.toml"]
    found = command("run", "my.toml", "--engine", "flower", "--app", "none")
    assert (found.code, found.error) == (2, "not-an-app")  # a deployed run uses it


def test_a_run_stands_for_its_data_whatever_it_promised(command: Command) -> None:
    Path("my.toml").write_text(f"{FILE}[run]\nreach = true\n")
    assert command("run", "my.toml", "--out", "one").code == 0
    assert command("feasible", "one").code == 0


def test_every_option_of_every_command_is_read() -> None:
    """An option is a parameter of its command's function, and named in its source.

    Shared options are a key of the run file; that each of those that a command takes
    says something there is the next test's.
    """
    for name, one in commands().items():
        body = inspect.getsource(inspect.unwrap(one.callback))
        shared = {key for options in shared_options().values() for key in options}
        for parameter in one.params:
            if parameter.name not in {*shared, "help", "set_", "data"}:
                used = body.count(parameter.name)
                assert used > 1, f"{name}: {parameter.name}"


def shared_options() -> dict[str, dict[str, Any]]:
    from tests.inside import OPTIONS

    return {s: {one.name: one for one in found} for s, found in OPTIONS.items()}


@pytest.mark.parametrize("name", [*UNUSED, *RUN])
def test_an_option_is_taken_where_it_is_used_and_refused_elsewhere(name: str) -> None:
    """All options of a run file × commands."""
    own = commands()[name]
    taken = {p.name for p in own.params}
    assert not taken & {flag.replace("-", "_") for flag in UNUSED.get(name, [])}
    for options in shared_options().values():
        for parameter, option in options.items():
            if parameter in taken:
                continue
            with pytest.raises(Exception, match=f"--{option.flag}") as refused:
                own.make_context(name, ["people.csv", f"--{option.flag}=1"])
            assert getattr(refused.value, "exit_code", None) == 2
    if name in RUN:
        assert {"promise", "models", "reach", "confidence"} <= taken
