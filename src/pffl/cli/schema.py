"""`pffl schema`: the JSON Schemas of pffl's files, by which editors complete them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

import typer

Name: TypeAlias = Literal["run", "site", "result", "certificate", "evidence"]
SCHEMAS: tuple[Name, ...] = get_args(Name)
WRITTEN_BY_PEOPLE = ("run", "site")


def shipped(name: Name) -> str:
    """Return a schema, as text."""
    home = "pffl.spec" if name in WRITTEN_BY_PEOPLE else "pffl.evidence"
    return files(home).joinpath("schemas", f"{name}.json").read_text("utf-8")


def schema(
    name: Annotated[
        Name, typer.Argument(metavar="NAME", help=f"One of {', '.join(SCHEMAS)}.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A new file to write it to.")
    ] = None,
) -> None:
    """Show the JSON Schema of a run file, a site file, or a file that a run leaves.

    An editor that knows TOML schemas completes and checks a run file by it: write it
    beside the file, and begin the file with the line  #:schema run.schema.json

    Example: pffl schema run -o run.schema.json
    """
    if out is None:
        typer.echo(shipped(name), nl=False)
        return
    from pffl.cli import console
    from pffl.errors import ArtefactError
    from pffl.files import write

    if out.exists():
        raise ArtefactError(f"'{out}' exists, and is kept")
    write(out, shipped(name).encode())
    console.show(f"Schema: {out}")
