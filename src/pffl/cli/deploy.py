"""`pffl deploy`: from a run file and the sites' lines to the coordinator's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pffl.cli import console


def deploy(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="SPEC", help="A run file; its data tell the columns."),
    ] = None,
    sites: Annotated[
        Path | None,
        typer.Option(help="File with the line of each site (pffl site init)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A new folder.")
    ] = None,
    address: Annotated[
        str,
        typer.Option(help="Where sites reach the server.", metavar="HOST:PORT"),
    ] = "127.0.0.1:8443",
    trial_rows: Annotated[
        bool,
        typer.Option("--trial-rows", help="Also write each silo's rows, for a trial."),
    ] = False,
    insist: Annotated[
        bool, typer.Option("--insist", help="Deploy a run that takes hours.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of the run file."),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(help="Look at a folder that was deployed: ports, clocks, sites."),
    ] = None,
) -> None:
    """Write federation.json, the Flower app, the proxy's configuration, and commands.

    The data are opened for the names of columns and groups; no rows are written.

    Example: pffl deploy run.toml --sites lines.txt -o study
    """
    from pffl.errors import UsageError

    if check is not None:
        raise typer.Exit(_check(check))
    if spec is None or sites is None or out is None:
        raise UsageError(
            "[missing-option] give SPEC, --sites LINES and -o DIR, or --check DIR"
        )
    from pffl.config import merge, parse, parse_setting
    from pffl.deploy.bundle import Address
    from pffl.deploy.bundle import deploy as write
    from pffl.deploy.keys import read_lines
    from pffl.engines import DEPLOYED
    from pffl.files import read
    from pffl.progress import arriving
    from pffl.records import read_toml

    sections = read_toml(spec)
    for setting in set_ or ():
        sections = merge(sections, parse_setting(setting))
    sections = merge(sections, {"run": {"engine": DEPLOYED}})
    with arriving() as show:
        agreed = write(
            parse(sections, source=str(spec), base=spec.parent),
            sections,
            read_lines(read(sites).decode("utf-8", "replace")),
            out,
            address=Address.parse(address),
            trial_rows=trial_rows,
            insist=insist,
            progress=show,
        )
    console.show(f"{len(agreed.sites)} sites, {agreed.mode} mode: {out}")
    console.show(f"Go on with {out / 'COMMANDS.md'}")


def _check(folder: Path) -> int:
    """Show what was found; 5 if something is wrong."""
    from pffl.deploy.launch import check

    wrong = 0
    for good, text in check(folder):
        console.show(f"{'✓' if good else '✗'} {text}")
        wrong += not good
    return 5 if wrong else 0
