"""From a run file to ten hospitals: a Flower app, and a folder for each machine."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pffl import files
from pffl.config import RunSpec, dumps
from pffl.constraints.base import Cells
from pffl.data.encoding import TableEncoding
from pffl.data.federation import Federation
from pffl.data.partition import CALIBRATION
from pffl.data.silo import Rows, Silo
from pffl.engines import DEPLOYED
from pffl.errors import UsageError
from pffl.flower.address import Address
from pffl.methods import Auto, Exact, FirstOrder, Method
from pffl.methods.auto import hessians_fit
from pffl.preparation import Setting, check_pooled
from pffl.problem import Access
from pffl.site import Agreement, Rules, SiteConfig, consent
from pffl.site.agreement import FEWEST, RUN
from pffl.site.agreement import FILE as FEDERATION
from pffl.site.outlook import NoiseOutlook
from pffl.solving import sharing
from pffl.text import up
from pffl.wire.keys import FILE as KEY
from pffl.wire.keys import PUBLIC_FILE as PUBLIC_KEY
from pffl.wire.keys import SiteKeys, collect

RUN_FILE = "run.toml"
FIRST_PORT = 9094  # of the nodes' loopback interfaces, one for each
SPARE = 50  # queries beyond those that a method plans: start, gap, verdict
OLDEST_FLOWER = "1.41.0"
SPLIT = "split"  # column of a trial's rows
APP = {  # files of a folder, and their templates
    "server_app.py": "server_app.txt",
    "client_app.py": "client_app.txt",
    "LICENSE": "LICENSE",
    "pyproject.toml": "pyproject.txt",
}
SERVER = {
    "start.sh": "server_start.sh",
    "flwr.sh": "server_flwr.sh",
    "pffl-server.service": "server.service",
    "README.md": "server_README.md",
}
SITE = {"README.md": "site_README.md", "start.sh": "site_start.sh"}
PLACE = re.compile(r"@([A-Z_]+)@")


@dataclass(frozen=True)
class Deployment:
    """What was written.

    Attributes
    ----------
    folder
        Where.
    sites
        From the name of each site to its folder.
    """

    folder: Path
    sites: Mapping[str, Path]


def deploy(
    spec: RunSpec,
    sections: Mapping[str, Any],
    out: str | os.PathLike[str],
    *,
    address: Address,
    sites: Sequence[str] | None = None,
    keys: str | os.PathLike[str] | None = None,
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
    keys
        Folder with the public keys that the sites made (`pffl site key`): they are
        pinned in federation.json.
    trial_certificates
        Make a certificate authority, a server's certificate and the nodes' keys; and,
        unless `keys` are given, the sites' own and their consent.
    trial_data
        Write each silo's rows into its site's folder. Otherwise no rows are written;
        the data are opened for their names only.
    progress
        Handed to what opens the data.
    """
    if spec.options.l2 is not None:
        raise UsageError(
            "[auto-refused] l2 = 'auto' sets training rows aside, and they will be at "
            "the sites: give a number"
        )
    if spec.constraint is not None and spec.constraint.open:
        raise UsageError(
            "[auto-refused] bound = 'auto' sets training rows aside, and they will be "
            "at the sites: give a number"
        )
    sections = _seeded(spec, sections)
    agreed, opened = _agreement(spec, sites, rows=trial_data, progress=progress)
    federation = opened if trial_data else None
    spec, sections = _ranged(spec, sections, opened)
    noise = NoiseOutlook.of(spec, agreed)
    made = _site_keys(agreed.sites) if trial_certificates and keys is None else {}
    public = {name: own.public for name, own in made.items()}
    agreed = replace(
        agreed,
        keys=public or agreed.keys
        if keys is None
        else collect(Path(keys), agreed.sites),
        run=_run(spec, sections),
    )
    agreed = replace(agreed, secure_sum=_secured(spec, agreed))
    names, values = folders(agreed.sites), _values(address)
    values |= _listings(agreed, names)
    with files.whole_folder(Path(out)) as place:
        paths = {name: place / "sites" / names[name] for name in agreed.sites}
        _write_app(place / "app", agreed, sections)
        files.folder(place / "server", private=True)
        files.folder(place / "server" / "keys", private=True)
        _write_all(place / "server", SERVER, values)
        for index, (name, folder) in enumerate(paths.items()):
            silo = None if federation is None else federation.silos[index]
            own = {"NAME": name, "FOLDER": names[name], "NODE_PORT": FIRST_PORT + index}
            _write_site(folder, agreed, spec, silo, noise, values | own)
            if name in made:
                made[name].write(folder / KEY)
                made[name].write_public(folder / PUBLIC_KEY, name)
                consent.give(SiteConfig.load(folder), agreed)
        if trial_certificates:
            _write_keys(place / "server", paths.values(), address)
        _write_all(place, {"README.md": "README.md"}, values)
    own_places = {name: Path(out) / "sites" / names[name] for name in agreed.sites}
    return Deployment(Path(out), own_places)


def _seeded(spec: RunSpec, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run file with a seed: sites agree to one run, and not to any."""
    seed = spec.settings.seed
    seed = secrets.randbits(32) if seed is None else seed
    return {**sections, "run": {**sections.get("run", {}), "seed": seed}}


def _ranged(
    spec: RunSpec, sections: dict[str, Any], data: Federation | None
) -> tuple[RunSpec, dict[str, Any]]:
    """Add the ranges that data come with to those of [privacy], where noise is added.

    Sites agree on them: they have rows, and not what comes with a data set.
    """
    terms = spec.privacy.terms
    if terms is None or data is None or not data.ranges:
        return spec, sections
    known = {**data.ranges, **terms.ranges}
    between = tuple(f"{name}={low},{high}" for name, (low, high) in known.items())
    section = {**sections["privacy"], "range": list(between)}
    privacy = replace(spec.privacy, range=between)
    return replace(spec, privacy=privacy), {**sections, "privacy": section}


def _run(spec: RunSpec, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run that sites agree to; [privacy] is part of it if noise is added.

    Then what it relies on is spelt out. Whether answers are added under masks is agreed
    on by itself.
    """
    found = {name: sections[name] for name in RUN if name in sections}
    section, terms = found.pop("privacy", {}), spec.privacy.terms
    if terms is None:
        return found
    given = {key: value for key, value in section.items() if key != "secure_sum"}
    known = ("epsilon", "delta", "colluding", "clip", "loss_bound", "scaling")
    spelt = {name: getattr(terms, name) for name in known}
    return {**found, "privacy": {**given, **spelt}}


def _secured(spec: RunSpec, agreed: Agreement) -> bool:
    """Whether answers are added under masks: from three sites on, unless refused."""
    asked, many = spec.privacy.secure_sum, len(agreed.sites)
    if asked is False or (asked is None and many < FEWEST):
        return False
    if many < FEWEST:
        raise UsageError(
            "[too-few-sites] [privacy] secure_sum = true: a secure sum is of "
            f"{FEWEST} sites or more, and there are {many}"
        )
    if spec.policy.quorum is not None:
        raise UsageError(
            "[secure-sum-quorum] [policy] quorum: a secure sum is over all sites, in "
            "every round; leave it out"
        )
    setting = Setting.pooled(agreed.name, agreed.encoding, agreed.splits, many)
    otherwise = "or '[privacy] secure_sum = false': the server reads each site's sums"
    try:
        check_pooled(setting, spec.constraint, spec.method, spec.options)
        if spec.privacy.terms is not None:
            sharing(many, spec.privacy.terms)
    except UsageError as error:
        raise UsageError(f"[{error.code}] {error}; {otherwise}") from error
    if not agreed.keys:
        raise UsageError(
            f"[missing-key] {many} sites: their answers are added under masks, and "
            "for that every site makes a key: 'pffl site key' there, and --keys "
            "FOLDER with what it writes here (for a trial, --trial-certificates); "
            f"{otherwise}"
        )
    return True


def _site_keys(names: Sequence[str]) -> dict[str, SiteKeys]:
    """Make the sites' own keys, for a trial: nobody else may know them otherwise."""
    return {name: SiteKeys.generate() for name in names}


def _agreement(
    spec: RunSpec, sites: Sequence[str] | None, *, rows: bool, progress: object
) -> tuple[Agreement, Federation | None]:
    """Return what the sites agree on, and the data if they were opened for it."""
    if spec.data.federation is not None:
        if rows:
            raise UsageError(
                "[no-rows] --trial-data: [data] names a federation, and no rows"
            )
        agreed = Agreement.read(spec.data.federation)
        if sites is not None and tuple(sites) != agreed.sites:
            raise UsageError(
                "[other-sites] --sites: the federation file names "
                f"{', '.join(agreed.sites)}"
            )
        return agreed, None
    federation = spec.data.open(progress=progress)
    if sites is not None and len(sites) != len(federation):
        raise UsageError(
            f"[other-sites] --sites: {len(sites)} names for {len(federation)} silos "
            f"({', '.join(federation.silo_names[:5])} …)"
        )
    return Agreement.of(federation, sites), federation


def _write_app(folder: Path, agreed: Agreement, sections: Mapping[str, Any]) -> None:
    """Write the Flower app."""
    folder.mkdir()
    engine = {"run": {**sections["run"], "engine": DEPLOYED}}  # also when it is resumed
    run = {**sections, "data": {"federation": FEDERATION}, **engine}
    _write(folder / RUN_FILE, dumps(run))
    _write(folder / FEDERATION, agreed.text())
    project = {
        "DESCRIPTION": _pair("description", f"pffl run on {agreed.name}"),
        "VERSION": version("pffl"),
        "FLOWER": _flower(),
    }
    _write_all(folder, APP, project)


def _write_site(
    folder: Path,
    agreed: Agreement,
    spec: RunSpec,
    silo: Silo | None,
    noise: NoiseOutlook | None,
    values: Mapping[str, object],
) -> None:
    """Write one site's folder; its rows and its budget, too, if they are given."""
    files.folder(folder, private=True)
    split = None
    if silo is not None:
        table, split = table_of(silo, agreed.encoding)
        content = table.to_csv(index=False).encode()
        files.write(folder / "rows.csv", content, private=True)
    (rules, asks), name = _limits(spec, agreed), str(values["NAME"])
    text = site_file(name, agreed, rules, asks, split)
    if noise is not None:
        cost = up(noise.cost(rules.delta))
        own = {"COST": cost, "EPSILON": cost if split else 0.0, "DELTA": rules.delta}
        text += filled("site_budget.txt", own)
    _write(folder / "site.toml", text)
    _write(folder / FEDERATION, agreed.text())
    unit = {f"pffl-{folder.name}.service": "site.service"}
    _write_all(folder, SITE | unit, values)


def _write_keys(server: Path, sites: Iterable[Path], address: Address) -> None:
    """Write a trial's certificates, and a key for each site."""
    from pffl.flower.tls import write_node_key, write_server

    root = write_server(server, address)
    for folder in sites:
        (folder / "ca.crt").write_bytes(root)
        public = server / "keys" / f"{folder.name}.pub"
        public.write_bytes(write_node_key(folder))


def _values(address: Address) -> dict[str, object]:
    return {
        "VERSION": version("pffl"),
        "ADDRESS": address,
        "HOST": address.host,
        "PORT": address.port,
    }


def _listings(agreed: Agreement, names: Mapping[str, str]) -> dict[str, object]:
    register = "    ./flwr.sh supernode register keys/{0}.pub --name {0}"
    return {
        "DATA": agreed.name,
        "COLUMNS": "\n".join(f"- `{column}`" for column in agreed.columns),
        "SITES": "\n".join(f"- `sites/{names[n]}/`: {n}" for n in agreed.sites),
        "REGISTER": "\n".join(register.format(names[n]) for n in agreed.sites),
    }


def _limits(spec: RunSpec, agreed: Agreement) -> tuple[Rules, str]:
    """Return limits that the planned run keeps, and how many queries it asks."""
    method = _method(spec, agreed)
    name, most = method.name, method.most_rounds
    rules = Rules(batches=spec.method.batch_size is not None)
    if most is None:
        return rules, f"The method is {name}, which asks until it is done."
    if most + SPARE <= rules.queries:
        return rules, f"The method is {name}."
    about = "about" if method.planned_rounds else "up to"
    asks = f"The method is {name}, which asks {about} {most:,}."
    return replace(rules, queries=most + SPARE), asks


def _method(spec: RunSpec, agreed: Agreement) -> Method:
    """Return the method that the run will take, as far as names tell."""
    if not isinstance(spec.method, Auto):
        return spec.method
    schema, none = agreed.schema, Cells.none(agreed.schema)
    outputs = len(schema.labels) if len(schema.labels) > 2 else 1
    cells = spec.constraint.cells(schema, agreed.sites) if spec.constraint else none
    p, access = outputs * (1 + schema.n_features), Access(elsewhere=True)
    exact, _ = hessians_fit(p, len(cells), entries=0, access=access)
    return Exact() if exact else FirstOrder()


def _flower() -> str:
    try:
        return version("flwr")
    except PackageNotFoundError:
        return OLDEST_FLOWER


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    if path.suffix == ".sh":
        path.chmod(0o755)


def _write_all(
    folder: Path, templates: Mapping[str, str], values: Mapping[str, object]
) -> None:
    for name, template in templates.items():
        _write(folder / name, filled(template, values))


# Texts


def filled(name: str, values: Mapping[str, object]) -> str:
    """Return a template with every @PLACE@ filled."""
    text = (resources.files(__package__) / "templates" / name).read_text("utf-8")
    return PLACE.sub(lambda place: str(values[place[1]]), text)


def site_file(
    name: str, agreed: Agreement, rules: Rules, asks: str, split: str | None
) -> str:
    """Return a site.toml with a remark at every line; a trial's names its `split`."""
    shares = {
        "TEST": 0.2 if "test" in agreed.splits else 0.0,
        "VALIDATION": 0.1 if "validation" in agreed.splits else 0.0,
        "CALIBRATION": 0.2 if CALIBRATION in agreed.splits else 0.0,
    }
    said = "  # says train, test, validation or calibration in each row"
    values = {
        "NAME": _pair("name", name),
        "COLUMNS": "\n".join(f"# {_pair(c, c)}" for c in agreed.columns),
        "SPLIT": _pair("column", split) + said
        if split
        else filled("site_split.txt", shares),
        "ASKS": asks,
        **{key.upper(): value for key, value in asdict(rules).items()},
        "BATCHES": str(rules.batches).lower(),
    }
    return filled("site_file.txt", values)


def _pair(name: str, value: str) -> str:
    return dumps({name: value}).strip()


# Rows of a trial


def table_of(silo: Silo, encoding: TableEncoding) -> tuple[pd.DataFrame, str]:
    """Return a table that `encoding` reads as these rows, and its split column."""
    taken = {column.name for column in encoding.columns} | {encoding.label}
    taken |= {attribute.name for attribute in encoding.schema.attributes}
    split = SPLIT
    while split in taken:
        split = f"{split}_"
    parts = [
        _decoded(rows, encoding).assign(**{split: name})
        for name, rows in silo.splits.items()
    ]
    return pd.concat(parts, ignore_index=True), split


def _decoded(rows: Rows, encoding: TableEncoding) -> pd.DataFrame:
    schema = encoding.schema
    found: dict[str, object] = {}
    start = 0
    X: Any = rows.X if isinstance(rows.X, np.ndarray) else rows.X.tocsc()
    for column in encoding.columns:
        if column.kind == "text":
            raise UsageError(
                f"[hashed-column] column '{column.name}' is hashed, and its texts "
                "cannot be made from counts of words: a trial needs a federation "
                "without it"
            )
        values = X[:, start : start + column.width]
        start += column.width
        if column.kind == "category":
            found[column.name] = np.array(column.values, object)[values.argmax(axis=1)]
        else:
            if not isinstance(values, np.ndarray):
                values = values.toarray()
            numbers = np.asarray(values[:, 0], np.float64).copy()
            if column.indicator:
                numbers[values[:, 1] == 1] = np.nan
            found[column.name] = numbers
    for attribute in schema.attributes:
        codes = schema.attribute_codes(attribute.name)[rows.group]
        found[attribute.name] = np.array(attribute.values, object)[codes]
    found[encoding.label] = (
        np.array(schema.labels, object)[rows.y.astype(np.int64)]
        if schema.labels
        else rows.y
    )
    return pd.DataFrame(found)


# Names of sites


def site_names(text: str) -> tuple[str, ...]:
    """Names of sites, with commas between them."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(
            f"[repeated-name] --sites: a name is empty or there twice: {text!r}"
        )
    return names


def folders(names: Sequence[str]) -> dict[str, str]:
    """Return a folder for each site: plain letters, digits and hyphens.

    >>> folders(["North Hospital", "Süd"])
    {'North Hospital': 'north-hospital', 'Süd': 's-d'}
    """
    plain: dict[str, str] = {}
    for name in names:
        stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "site"
        folder, number = stem, 1
        while folder in plain.values():
            number += 1
            folder = f"{stem}-{number}"
        plain[name] = folder
    return plain
