"""An option or a key that a command makes no use of is refused: exit code 2, by name.

What a command is said to use must be in what it reads. Old names are told what they are
called now.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from pffl.constraints import CONSTRAINTS
from pffl.methods import METHODS
from tests.cli.helpers import Command
from tests.inside import COMMANDS_GONE, OPTIONS, OPTIONS_GONE, app, keys

#: Keys that say how one run is trained and certified: nothing else trains such a run.
ONE_RUN = {"run.certify": "true", "run.models": "4", "run.smallest_bound": "true"}
ELSEWHERE = ["feasible", "compare", "audit"]
UNUSED = {
    "feasible": {"l2", "certify", "threshold"},
    "compare": {"method", "l2", "certify", "seed", "epsilon", "threshold"},
    "audit": {"model", "method", "l2", "seed", "epsilon", "missing", "threshold"},
    "data": {
        "constraint",
        "bound",
        "certify",
        "model",
        "method",
        "l2",
        "seed",
        "epsilon",
        "threshold",
    },
    "run": set[str](),
}
FILE = """
[data]
name = "synthetic"
rows = 300
groups = ["f", "m"]
[constraint]
kind = "bgl"
bound = 0.9
"""


def commands() -> dict[str, Any]:
    """Return every command of the app, by its words."""
    found: dict[str, Any] = {}

    def walk(group: Any, before: str) -> None:
        for name, one in group.commands.items():
            words = f"{before} {name}".strip()
            if hasattr(one, "commands"):
                walk(one, words)
            else:
                found[words] = one

    walk(typer.main.get_command(app()), "")
    return found


def first(name: str) -> list[str]:
    return ["audit", "model.json"] if name == "audit" else [name]


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("key", ONE_RUN)
def test_what_is_of_one_run_is_refused_elsewhere(
    name: str, key: str, command: Command
) -> None:
    section, _, own = key.partition(".")
    Path("my.toml").write_text(f"{FILE}[{section}]\n{own} = {ONE_RUN[key]}\n")
    typed = ("synthetic", "--set", f"{key}={ONE_RUN[key]}")
    for asked, source in ((typed, "command line"), (["my.toml"], "my.toml")):
        found = command(*first(name), *asked)
        assert (found.code, found.error) == (2, "no-effect"), found.err
        assert key in found.err
        assert source in found.err
    assert [place.name for place in Path().iterdir()] == ["my.toml"]


def test_a_run_stands_for_its_data_whatever_it_certified(command: Command) -> None:
    Path("my.toml").write_text(f"{FILE}[run]\nsmallest_bound = true\n")
    assert command("run", "my.toml", "--out", "one").code == 0
    assert command("feasible", "one").code == 0


def test_every_option_of_every_command_is_read() -> None:
    """An option is a parameter of its command's function, and named in its source."""
    for name, one in commands().items():
        body = inspect.getsource(inspect.unwrap(one.callback))
        for parameter in one.params:
            if parameter.name not in {*OPTIONS, "help", "set_", "data"}:
                used = body.count(parameter.name)
                assert used > 1, f"{name}: {parameter.name}"


def test_every_shared_option_is_a_key_of_the_run_file() -> None:
    """And its help, which is written out to be quick, names values that there are."""
    assert {key for one in OPTIONS.values() for key in one.keys} <= set(keys())
    for name, known in (("constraint", CONSTRAINTS.own), ("method", METHODS.own)):
        words = re.findall(r"[\w-]+", OPTIONS[name].help.replace(" or ", " "))
        assert set(words) <= set(known), name
    told = set(re.findall(r"\w+", OPTIONS["missing"].help))
    assert set(get_args(keys()["data.missing"].kind)) <= told


@pytest.mark.parametrize("name", UNUSED)
def test_an_option_is_taken_where_it_is_used_and_refused_elsewhere(name: str) -> None:
    own = commands()[name]
    taken = {p.name for p in own.params} & set(OPTIONS)
    # Of these names they have something of their own.
    meant = {"feasible": {"certify"}, "audit": {"certify", "model", "threshold"}}.get(
        name, set()
    )
    assert taken - meant == set(OPTIONS) - UNUSED[name] - meant
    for flag in set(OPTIONS) - taken:
        with pytest.raises(Exception, match=f"--{flag}") as refused:
            own.make_context(name, ["people.csv", f"--{flag}=1"])
        assert getattr(refused.value, "exit_code", None) == 2


def test_there_are_twelve_commands_and_few_options() -> None:
    assert {name.split()[0] for name in commands()} == {
        *("run", "feasible", "predict", "audit", "verify", "monitor"),
        *("compare", "reproduce", "report", "deploy", "site", "data"),
    }
    shown = [p for p in commands()["run"].params if not getattr(p, "hidden", False)]
    assert len(shown) - 1 <= 22  # one is DATA


def test_helps_are_short(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in {words.split()[0] for words in commands()} - {"deploy", "site"}:
        lines = command(name, "--help").out.splitlines()
        assert len(lines) <= (60 if name == "run" else 40), (name, len(lines))


@pytest.mark.parametrize("name", COMMANDS_GONE)
def test_a_command_that_is_gone_names_the_new_one(name: str, command: Command) -> None:
    found = command_of(command, *name.split(), "compas")
    assert (found.code, found.out) == (2, "")
    assert COMMANDS_GONE[name] in found.err


@pytest.mark.parametrize("name", [*OPTIONS_GONE, "--local-steps", "--weighting"])
def test_an_option_that_is_gone_names_the_new_one(name: str, command: Command) -> None:
    found = command_of(command, "run", "compas", name, "1")
    assert (found.code, found.out) == (2, "")
    now = OPTIONS_GONE.get(name, f".{name[2:].replace('-', '_')}=")
    assert f"Now: {now}" in found.err or now in found.err


def command_of(command: Command, *arguments: str) -> Any:
    """Run a command as it is typed, whatever tests call it."""
    return command(*arguments)
