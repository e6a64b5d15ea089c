# ruff: noqa: E501
"""Write docs/commands.md, the reference of commands, options and run-file keys.

``python docs/commands.py``, from the root of the checkout.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from pffl.cli.app import app
from pffl.cli.options import COMMANDS_GONE, OPTIONS
from pffl.config import SECTIONS, keys
from pffl.records import words

PAGE = Path(__file__).with_name("commands.md")
HEAD = """# Commands and the run file

<!-- written by docs/commands.py -->

Every command has a function of the same name in Python ([API](api/index.md)). An option is a key of the run file: `--bound 0.7` is `constraint.bound = 0.7`. All other keys are set by `--set section.key=value`, or in a file that is given as DATA. A list of names may be written with commas. An option or key without effect is refused.

Exit codes: 0 done and met · 2 usage · 3 data · 4 a training verdict other than *met*, a certificate that was asked for and not given, an audit that exceeded its bound, an alarm · 5 federation · 6 artefact · 7 privacy budget · 130, 143 interrupted.
"""
TABLE = "\n| key | type | default | meaning |\n|---|---|---|---|"


def cell(text: object) -> str:
    """Text that a table can hold."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def commands() -> Iterator[str]:
    """Yield a section for every command."""
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        parts = {f"{name} {own}": one for own, one in inner.items()} if inner else {}
        for path, one in (parts or {name: command}).items():
            given = [p for p in one.params if not getattr(p, "hidden", False)]
            takes = [p for p in given if p.param_type_name == "argument"]
            yield f"\n### pffl {path}\n"
            usage = " ".join(
                ["pffl", path, *(_argument(p) for p in takes), "[OPTIONS]"]
            )
            yield f"`{usage}`\n\n{cell(one.help)}\n"
            yield from options([p for p in given if p not in takes])


def _argument(parameter: Any) -> str:
    word = (parameter.metavar or parameter.name).strip("[]")
    return word if parameter.required else f"[{word}]"


def options(given: list[Any]) -> Iterator[str]:
    """Yield a table of options."""
    if not [p for p in given if p.name != "help"]:
        return
    yield "| option | key | meaning |\n|---|---|---|"
    for one in given:
        if one.name == "help":
            continue
        shared = OPTIONS.get(one.name)
        known = shared is not None and shared.help == one.help
        named = ", ".join(f"`{k}`" for k in shared.keys) if shared and known else ""
        value = f" {one.metavar}" if one.metavar else ""
        yield f"| `{', '.join(one.opts)}{value}` | {named} | {cell(one.help or '')} |"


def run_file() -> Iterator[str]:
    """Yield a table for every section of the run file."""
    yield "\n## Keys of the run file"
    for section in SECTIONS:
        mine = {k: v for k, v in keys().items() if k.startswith(f"{section}.")}
        if not mine:
            yield f'\n### [{section}]\n\nWhat the columns of a table hold, declared: see [privacy](privacy.md). `columns = "FILE"` takes them from another file.'
            continue
        yield f"\n### [{section}]"
        yield TABLE
        for name, key in mine.items():
            plain = key.default in (None, inspect.Parameter.empty, ...)
            default = "" if plain else f"`{key.default!r}`"
            own = list(dict.fromkeys(kind for kind in key.kinds if kind))
            of = f" ({', '.join(own)})" if own and section in ("data", "model") else ""
            told = cell(key.meaning)
            yield f"| `{name}` | {cell(words(key.kind))} | {cell(default)} | {told}{of} |"


def page() -> str:
    """Return the whole page."""
    gone = [f"`pffl {old}` is `{new}`" for old, new in COMMANDS_GONE.items()]
    old = f"\n## Names that are gone\n\n{'; '.join(gone)}. Options that are gone name their key.\n"
    return "\n".join([HEAD, "## Commands", *commands(), *run_file(), old])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
