"""Write the folders of a deployment: the app, the server, and one for each site."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pffl import files
from pffl.data.federation import Federation
from pffl.data.silo import Silo
from pffl.deploy import certificates, fab
from pffl.deploy.names import Address, folders
from pffl.deploy.rows import table_of
from pffl.deploy.texts import filled, pyproject, site_file
from pffl.errors import ArtefactError, UsageError
from pffl.site import Agreement, Rules
from pffl.site.agreement import FILE as FEDERATION
from pffl.spec import RunSpec, dumps

RUN_FILE = "spec.toml"
FIRST_PORT = 9094  # of the nodes' loopback interfaces, one for each
SPARE = 50  # questions beyond those that a method plans: start, gap, verdict
OLDEST_FLOWER = "1.41.0"
UNPINNED = (
    "Flower is not installed here, so the sites get no .fab file and would run any app "
    "of the server: pip install 'pffl[flower]' and deploy again"
)


@dataclass(frozen=True)
class Deployment:
    """What was written.

    Attributes
    ----------
    folder
        Where.
    sites
        From the name of each site to its folder.
    notes
        What to know about it.
    """

    folder: Path
    sites: Mapping[str, Path]
    notes: tuple[str, ...]


def deploy(
    spec: RunSpec,
    sections: Mapping[str, Any],
    out: str | os.PathLike[str],
    *,
    address: Address,
    sites: Sequence[str] | None = None,
    trial_certificates: bool = False,
    trial_data: bool = False,
    progress: object = None,
) -> Deployment:
    """Write a Flower app, a folder for the server, and one for each site.

    Parameters
    ----------
    spec, sections
        The run file, checked and as it was given.
    out
        A new or empty folder.
    address
        Where the server will be reached.
    sites
        Names of the sites, in the order of the silos; default: the silos' own.
    trial_certificates
        Make a certificate authority, a server's certificate and the nodes' keys.
    trial_data
        Write each silo's rows into its site's folder. Otherwise no rows are written;
        the data are opened for their names only.
    progress
        Handed to what opens the data.
    """
    agreed, federation = _agreement(spec, sites, rows=trial_data, progress=progress)
    place = _new(Path(out))
    try:
        bundle = _write_app(place / "app", agreed, sections)
        root = _write_server(place / "server", agreed, address, trial_certificates)
        names = folders(agreed.sites)
        paths = {name: place / "sites" / names[name] for name in agreed.sites}
        for index, (name, folder) in enumerate(paths.items()):
            silo = None if federation is None else federation.silos[index]
            values = _values(agreed, address) | {
                "NAME": name,
                "FOLDER": names[name],
                "NODE_PORT": str(FIRST_PORT + index),
            }
            _write_site(folder, agreed, spec, silo, values)
            if bundle is not None:
                (folder / bundle[0]).write_bytes(bundle[1])
            if root is not None:
                (folder / "ca.crt").write_bytes(root)
                public = certificates.write_node_key(folder)
                (place / "server" / "keys" / f"{names[name]}.pub").write_bytes(public)
        _write(place / "README.md", filled("README.md", _values(agreed, address)))
    except OSError as error:
        raise ArtefactError(
            f"'{error.filename or place}' cannot be written: {error.strerror}"
        ) from error
    return Deployment(place, paths, () if bundle else (UNPINNED,))


def _agreement(
    spec: RunSpec, sites: Sequence[str] | None, *, rows: bool, progress: object
) -> tuple[Agreement, Federation | None]:
    """Return what the sites agree on, and the rows if they are wanted."""
    if spec.data.agreement is not None:
        if rows:
            raise UsageError("--trial-data: [data] names a federation, and no rows")
        agreed = spec.data.agreement()
        if sites is not None and tuple(sites) != agreed.sites:
            raise UsageError(
                f"--sites: the federation file names {', '.join(agreed.sites)}"
            )
        return agreed, None
    federation = spec.data.open(progress=progress)
    if sites is not None and len(sites) != len(federation):
        raise UsageError(
            f"--sites: {len(sites)} names for {len(federation)} silos "
            f"({', '.join(federation.silo_names[:5])} …)"
        )
    return Agreement.of(federation, sites), federation if rows else None


def _write_app(
    folder: Path, agreed: Agreement, sections: Mapping[str, Any]
) -> tuple[str, bytes] | None:
    """Write the Flower app; return its bundle, if Flower is here to make it."""
    folder.mkdir()
    run = {**sections, "data": {"federation": FEDERATION}}
    _write(folder / RUN_FILE, dumps(run))
    _write(folder / FEDERATION, agreed.text())
    for name in ("server_app", "client_app"):
        _write(folder / f"{name}.py", filled(f"{name}.txt", {}))
    _write(folder / "LICENSE", filled("LICENSE", {}))
    text = pyproject(agreed, version("pffl"), _flower())
    _write(folder / "pyproject.toml", text)
    return fab.bundle(folder)


def _write_server(
    folder: Path, agreed: Agreement, address: Address, trial: bool
) -> bytes | None:
    """Write the server's folder; return the authority's certificate of a trial."""
    files.folder(folder, private=True)
    files.folder(folder / "keys", private=True)
    values = _values(agreed, address)
    _write(folder / "start.sh", filled("server_start.sh", values), runs=True)
    _write(folder / "flwr.sh", filled("server_flwr.sh", values), runs=True)
    _write(folder / "pffl-server.service", filled("server.service", values))
    _write(folder / "README.md", filled("server_README.md", values))
    return certificates.write_server(folder, address) if trial else None


def _write_site(
    folder: Path,
    agreed: Agreement,
    spec: RunSpec,
    silo: Silo | None,
    values: Mapping[str, str],
) -> None:
    """Write one site's folder; its rows, too, if they are given."""
    files.folder(folder, private=True)
    split = None
    if silo is not None:
        table, split = table_of(silo, agreed.encoding)
        content = table.to_csv(index=False).encode()
        files.write(folder / "rows.csv", content, private=True)
    rules, asks = _limits(spec)
    text = site_file(values["NAME"], agreed, rules, asks, split)
    _write(folder / "site.toml", text)
    _write(folder / FEDERATION, agreed.text())
    _write(folder / "README.md", filled("site_README.md", values))
    _write(folder / "start.sh", filled("site_start.sh", values), runs=True)
    unit = f"pffl-{values['FOLDER']}.service"
    _write(folder / unit, filled("site.service", values))


def _values(agreed: Agreement, address: Address) -> dict[str, str]:
    names = folders(agreed.sites)
    return {
        "DATA": agreed.name,
        "VERSION": version("pffl"),
        "ADDRESS": str(address),
        "HOST": address.host,
        "PORT": str(address.port),
        "COLUMNS": "\n".join(f"- `{column}`" for column in agreed.columns),
        "SITES": "\n".join(f"- `sites/{names[n]}/`: {n}" for n in agreed.sites),
        "REGISTER": "\n".join(
            f"    ./flwr.sh supernode register keys/{names[n]}.pub --name {names[n]}"
            for n in agreed.sites
        ),
    }


def _limits(spec: RunSpec) -> tuple[Rules, str]:
    """Return limits that the planned run keeps, and how many questions it asks."""
    name, planned = spec.method.name, spec.method.planned_rounds
    rules = Rules(batches=spec.method.batch_size is not None)
    if planned is None:
        return rules, f"The method is {name}, which asks until it is done."
    if planned + SPARE <= rules.questions:
        return rules, f"The method is {name}."
    asks = f"The method is {name}, which asks about {planned:,}."
    return replace(rules, questions=planned + SPARE), asks


def _flower() -> str:
    try:
        return version("flwr")
    except PackageNotFoundError:
        return OLDEST_FLOWER


def _new(place: Path) -> Path:
    """Make a folder; refuse one that holds something."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ArtefactError(f"'{place}' is there already and not empty: choose another")
    try:
        (place / "sites").mkdir(parents=True)
    except OSError as error:
        raise ArtefactError(f"'{place}' cannot be made: {error.strerror}") from error
    return place


def _write(path: Path, text: str, *, runs: bool = False) -> None:
    path.write_text(text, "utf-8")
    if runs:
        path.chmod(0o755)
