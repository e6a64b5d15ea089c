# ruff: noqa: E501
"""Write docs/commands.md, the reference of commands, run-file keys, files and exit codes.

``python docs/commands.py``, from the root of the checkout.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic_core import PydanticUndefined
from typer.main import get_command

from pffl.cli import app
from pffl.cli.options import COMMANDS_GONE, OPTIONS
from pffl.config import APART, KINDS, SECTIONS, SHARE, keys
from pffl.data import Federation
from pffl.data.table import TableOptions

PAGE = Path(__file__).with_name("commands.md")
HEAD = """# Commands, run file, exit codes

<!-- written by docs/commands.py -->

This page is the reference of the command line. Every command has a function of the same name in Python ([API](api/index.md)).

## Exit codes

| code | means | in Python | what to do |
|---|---|---|---|
| 0 | done; every bound is met, and a certificate that was asked for is given | | |
| 1 | a bug in pffl | any other exception | report it with its message |
| 2 | usage or run file | `UsageError`, `MissingExtraError` | the message names all problems at once |
| 3 | data | `DataError` | `pffl data FILE`; the message has lines and columns |
| 4 | a training verdict other than *met*, a certificate that was asked for and not given, an audit that exceeded its bound, an alarm | `NotMetError` | below |
| 5 | federation: a site is absent, refuses, or its answer cannot be true | `FederationError`, `Refused` | the site is named; `pffl run --resume DIR` |
| 6 | artefact: a file is damaged, edited or cannot be written; `verify` found a difference | `ArtefactError` | the file is named |
| 7 | privacy budget | `PrivacyBudgetError` | raise the site's budget, then `--resume` |
| 130, 143 | interrupted (Ctrl-C, SIGTERM) | `KeyboardInterrupt` | `pffl run --resume DIR` ends with the same model |

Errors also have a `code` for programs (`error.code`); sentences may change.

## Training verdicts

`status` in `result.json`, `Solution.status`, `clf.status_`:

| status | exit code | meaning | what to do |
|---|---|---|---|
| `met` | 0 | every group is within its bound | read the other two verdicts |
| `no bounds` | 0 | no bound was given | `--bound`, or `--bound auto` |
| `not met` | 4 | a bound is missed | leave `method.multiplier_bound` out, or raise it |
| `not measured` | 4 | a group has no training rows | leave its bound out |
| `impossible` | 4 | no linear model meets all bounds (proved) | [four ways on](choosing.md#if-it-is-impossible) |
| `not decided` | 4 | the noise leaves it open | more rows or a larger ε |
| `not converged` | 4 | the gap is above its target | the message says what to raise; or `--method auto` |
| `diverged` | 4 | stopped at the last finite model | a smaller step size |
| `interrupted` | 130 | unfinished | `pffl run --resume DIR` |

## Files

| in a run folder | content |
|---|---|
| `report.html`, `card.md` | page and model card |
| `certificate.json` | verdicts, data, groups, bounds, statements, figures, evidence |
| `result.json`, `history.csv` | figures for programs; one line per round |
| `model.safetensors` | model and preparation of its columns; no code |
| `run.toml` | the run file that repeats the run |
| `manifest.json` | SHA-256 of the others |
| `checkpoint.log` | during a run only: totals received so far |

Each JSON file names its `format` and `version`; other versions are refused with exit code 6.

## Commands

An option is a key of the run file: `--bound 0.7` is `constraint.bound = 0.7`. `--set section.key=value` sets any other key. Lists may be written with commas. An option or key without effect is refused.

DATA is a data set (`adult`), a table (`people.csv`), a run file (`run.toml`) or a run folder.
"""
RUN_FILE = """
## Run file

Only `[data]` is needed; missing keys have the command line's defaults. `run.toml` of any run has every key: copy it to start one.

```toml
[data]
path = "people.csv"
label = "hired"
group = ["sex", "race"]
silo = "branch"

[constraint]
kind = "cbgl"
bound = 0.7

[run]
seed = 0
```"""
#: What no class or function says.
MEANINGS = {
    "data.name": "A data set; or what to call a table.",
    "data.path": "A table.",
    "data.federation": "federation.json: rows stay with sites.",
    f"data.{APART}": f"Training rows to certify on; with certify {SHARE}.",
    "privacy.secure_sum": "Whether answers are added under masks; default: from 3 sites.",
}
#: An entry of a docstring: names of parameters, and their descriptions.
ENTRY = re.compile(r"^([a-z_0-9]+(?:, [a-z_0-9]+)*)\n((?: {4}.*\n?|\n)+)", re.MULTILINE)
SCALARS = {
    int: "a whole number",
    float: "a finite number",
    str: "text",
    bool: "true or false",
}
TABLE = "\n| key | type | default | meaning |\n|---|---|---|---|"


def cell(text: object) -> str:
    """Text that a table can hold."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def words(kind: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in SCALARS:
        return SCALARS[kind]
    if origin is Literal:
        one_of = "one of " if len(arguments) > 1 else ""
        return one_of + ", ".join(repr(value) for value in arguments)
    if origin in (Union, UnionType):
        plain = [part for part in arguments if part is not NoneType]
        return " or ".join(dict.fromkeys(map(words, plain)))
    if origin is os.PathLike:
        return words(str)
    if origin in (list, tuple, Sequence):
        return f"a list ({words(arguments[0])})"
    if origin in (dict, Mapping):
        return f"a table ({words(arguments[1])} each)"
    return words(arguments[0])  # annotated


def meaning(name: str) -> str:
    """What the class or function that takes a key says of it."""
    section, _, own = name.partition(".")
    if section in KINDS and own == "kind":
        return (
            f"One of {', '.join(k for k in KINDS[section] if k in own_kinds(section))}."
        )
    for _, source in keys()[name].taken_by:
        told_by = Federation.from_table if source is TableOptions else source
        said = meanings(told_by)
        for called in (own, "random_state") if own == "seed" else (own,):
            if called in said:
                return said[called]
    return MEANINGS.get(name, "")


def own_kinds(section: str) -> Any:
    """Kinds of ours."""
    return getattr(KINDS[section], "own", KINDS[section])


def meanings(source: Any) -> dict[str, str]:
    """What the docstring of a class or function says of each parameter."""
    found: dict[str, str] = {}
    kinds = inspect.getmro(source) if inspect.isclass(source) else (source,)
    for kind in reversed(kinds):
        text = (inspect.getdoc(kind) or "").partition("\n----------\n")[2] + "\n"
        for names, told in ENTRY.findall(text):
            one = " ".join(told.replace("``", "`").split())
            found |= dict.fromkeys(names.split(", "), one)
    return found


def parts() -> dict[str, Any]:
    """Every command, by its name."""
    found = {}
    for name, command in get_command(app()).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= (
            {f"{name} {n}": c for n, c in inner.items()} if inner else {name: command}
        )
    return found


def options(command: Any) -> list[Any]:
    """Options of a command that its help shows."""
    shown = [p for p in command.params if p.param_type_name == "option"]
    return [p for p in shown if p.name != "help" and not getattr(p, "hidden", False)]


def is_shared(option: Any) -> bool:
    """Whether it is an option that sets a key, the same in all commands."""
    shared = OPTIONS.get(option.name)
    return shared is not None and shared.help == option.help and bool(shared.keys)


def commands() -> Iterator[str]:
    """Yield shared options, then a section for every command."""
    every = parts()
    shared = {o.name: o for c in every.values() for o in options(c) if is_shared(o)}
    yield "### Shared options\n\n| option | key | meaning |\n|---|---|---|"
    for name, option in shared.items():
        named = ", ".join(f"`{k}`" for k in OPTIONS[name].keys)
        yield f"| `{_written(option)}` | {named} | {cell(option.help)} |"
    for path, command in every.items():
        takes = [p for p in command.params if p.param_type_name == "argument"]
        usage = " ".join(["pffl", path, *map(_argument, takes), "[OPTIONS]"])
        yield f"\n### pffl {path}\n\n`{usage}`\n\n{cell(command.help)}\n"
        own = [o for o in options(command) if not is_shared(o)]
        common = [o for o in options(command) if is_shared(o)]
        if common:
            listed = ", ".join(f"`{o.opts[0]}`" for o in common)
            yield f"Shared options: {listed}.\n"
        if own:
            yield "| option | meaning |\n|---|---|"
        for one in own:
            yield f"| `{_written(one)}` | {cell(one.help or '')} |"


def _written(option: Any) -> str:
    value = f" {option.metavar}" if option.metavar else ""
    return f"{', '.join(option.opts)}{value}"


def _argument(parameter: Any) -> str:
    word = (parameter.metavar or parameter.name).strip("[]")
    return word if parameter.required else f"[{word}]"


def run_file() -> Iterator[str]:
    """Yield a table for every section of the run file."""
    yield RUN_FILE
    for section in SECTIONS:
        mine = {k: v for k, v in keys().items() if k.startswith(f"{section}.")}
        if not mine:
            yield f'\n### [{section}]\n\nWhat the columns of a table hold: [declared columns](tables.md#declared-columns). `columns = "FILE"` takes them from another file.'
            continue
        yield f"\n### [{section}]"
        yield TABLE
        for name, key in mine.items():
            plain = key.default in (None, PydanticUndefined)
            default = "" if plain else f"`{key.default!r}`"
            own = list(dict.fromkeys(kind for kind, _ in key.taken_by if kind))
            of = f" ({', '.join(own)})" if own and section in ("data", "model") else ""
            told = cell(meaning(name))
            yield f"| `{name}` | {cell(words(key.kind))} | {cell(default)} | {told}{of} |"


def page() -> str:
    """Return the whole page."""
    gone = [f"`pffl {old}` is `{new}`" for old, new in COMMANDS_GONE.items()]
    old = f"\n## Removed commands\n\n{'; '.join(gone)}.\n"
    return "\n".join([HEAD, *commands(), *run_file(), old])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
