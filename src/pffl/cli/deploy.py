"""`pffl deploy`: from a run file to a folder for each machine of the federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pffl.cli import console
from pffl.cli.options import COLUMNS, Draft, takes


@takes(*COLUMNS, "constraint", "bound", "model", "method", "l2", "seed", "epsilon")
def deploy(
    draft: Draft,
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder.")],
    sites: Annotated[
        str | None,
        typer.Option(help="Names of the sites, with commas; default: the silos'."),
    ] = None,
    address: Annotated[
        str,
        typer.Option(
            help="Where sites reach the server: one interface.", metavar="HOST:PORT"
        ),
    ] = "127.0.0.1:8000",
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder with the sites' public keys (pffl site key)."),
    ] = None,
    trial_certificates: Annotated[
        bool,
        typer.Option(
            "--trial-certificates", help="Also make certificates and keys, for trials."
        ),
    ] = False,
    trial_data: Annotated[
        bool,
        typer.Option("--trial-data", help="Also write each site's rows, for trials."),
    ] = False,
) -> None:
    """Write a Flower app, and folders for the server and for every site.

    The data are opened for the names of columns, groups and silos; no rows are written.

    Example: pffl deploy run.toml -o deployment --address fl.example.org:8443
    """
    from pffl.flower.address import Address
    from pffl.flower.deploy import deploy as write
    from pffl.flower.deploy import site_names
    from pffl.progress import arriving

    spec = draft.check()
    with arriving() as show:
        made = write(
            spec,
            draft.sections,
            out,
            address=Address.parse(address),
            sites=None if sites is None else site_names(sites),
            keys=keys,
            trial_certificates=trial_certificates,
            trial_data=trial_data,
            progress=show,
        )
    console.show(f"Server and app: {made.folder / 'server'}")
    for name, folder in made.sites.items():
        console.show(f"Site {name}: {folder}")
    console.show(f"Begin with {made.folder / 'README.md'}")
