"""`pffl deploy`: from a run file and the sites' lines to one folder of the coordinator.

federation.json   what every site gets, and joins
spec.toml         the run
app/              the Flower app: two small files
server/           certificate, proxy, SuperLink; for the coordinator's account alone
COMMANDS.md       what to type, in order
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pffl import files
from pffl.config import RunSpec, dumps
from pffl.constraints import Cells
from pffl.data.columns import TableEncoding
from pffl.data.federation import Federation
from pffl.data.partition import CALIBRATION
from pffl.data.rows import Rows, Silo
from pffl.deploy.federation import FILE as FEDERATION
from pffl.deploy.federation import RUN, Agreement
from pffl.deploy.join import noise_of, promise
from pffl.deploy.keys import SiteLine
from pffl.engines import DEPLOYED
from pffl.errors import MissingExtraError, Problems, UsageError
from pffl.methods import Auto, Exact, FirstOrder, Method
from pffl.methods.auto import hessians_fit
from pffl.prepare import Setting, check_pooled
from pffl.privacy.run import sharing
from pffl.problem import Access
from pffl.queries.validation import MIN_SITES
from pffl.runs import SPEC

OLDEST_FLOWER = "1.41.0"
SPARE = 50  # queries beyond those that a method plans: start, gap, verdict
UNPLANNED = 200  # queries of a method that asks until it is done
MANY = 200  # queries, above which a run takes hours
SECONDS = 8.0  # of a message, on an idle machine
DAYS = 730  # that the server's certificate is good for
SPLIT = "split"  # column of a trial's rows
EVERYWHERE = ("0.0.0.0", "::", "*", "")  # noqa: S104 - refused, not bound
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
PLACE = re.compile(r"@([A-Z_]+)@")
SHARES = {"test": 0.2, "validation": 0.1, CALIBRATION: 0.2}


@dataclass(frozen=True)
class Address:
    """Where sites reach the server: one interface of its machine."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read HOST:PORT; all interfaces at once are refused."""
        host, _, port = text.rpartition(":")
        host = host.strip("[]")
        with Problems("--address", UsageError) as problems:
            if not port.isdecimal() or not 0 < int(port) < 65535:
                problems.add(
                    f"[wrong-address] must be HOST:PORT. Got {text!r} instead."
                )
            elif host in EVERYWHERE:
                problems.add(
                    f"[every-interface] '{host}' is every interface: name the one that "
                    "sites reach"
                )
            elif not _is_ip(host) and not HOST.fullmatch(host):
                problems.add(
                    f"[wrong-address] '{host}' is neither a name nor an address of a "
                    "machine"
                )
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def listen(self) -> str:
        """What the proxy listens on: of a name, the port on every interface."""
        return str(self) if _is_ip(self.host) else str(self.port)

    @property
    def inner(self) -> int:
        """Port of the SuperLink, on loopback."""
        return self.port + 1


def deploy(
    spec: RunSpec,
    sections: Mapping[str, Any],
    lines: Mapping[str, SiteLine],
    out: str | os.PathLike[str],
    *,
    address: Address,
    trial_rows: bool = False,
    insist: bool = False,
    progress: object = None,
) -> Agreement:
    """Write the coordinator's folder; return what the sites are to join.

    Parameters
    ----------
    spec, sections
        The run file, checked and as it was given.
    lines
        What the sites sent, by name.
    out
        A new or empty folder.
    address
        Where the server will be reached.
    trial_rows
        Write each silo's rows, as tables that sites can join with. Otherwise no rows
        are written; the data are opened for their names only.
    insist
        Deploy a run that takes hours.
    progress
        Handed to what opens the data.
    """
    for name, open_ended in (
        ("l2", spec.options.l2 is not None),
        ("bound", spec.constraint is not None and spec.constraint.open),
    ):
        if open_ended:
            raise UsageError(
                f"[auto-refused] {name} = 'auto' sets training rows aside, and they "
                "will be at the sites: give a number"
            )
    data = spec.data.open(progress=progress)
    if trial_rows and len(data) != len(lines):
        raise UsageError(
            f"[other-sites] --trial-rows: {len(lines)} sites for {len(data)} silos"
        )
    seed = spec.settings.seed
    seed = secrets.randbits(32) if seed is None else seed
    run = {**sections.get("run", {}), "seed": seed, "engine": DEPLOYED}
    spec, sections = _ranged(spec, {**sections, "run": run}, data)
    agreed = replace(
        Agreement.of(data, tuple(lines)),
        keys={name: one.key for name, one in lines.items()},
        shares={s: SHARES[s] for s in data.splits if s in SHARES},
        run=agreed_run(spec, sections),
        queries=planned_queries(spec, data, insist=insist),
        address=str(address),
    )
    agreed = replace(agreed, secure_sum=_secured(spec, agreed))
    if agreed.private:
        noise_of(agreed)  # refused here what would be refused there
    with files.whole_folder(Path(out)) as place:
        server = files.folder(place / "server", private=True)
        agreed = replace(agreed, certificate=_write_certificate(server, address))
        agreed.check(agreed.schema.hash)
        _write(place / FEDERATION, agreed.text())
        _write(place / SPEC, dumps({**sections, "data": {"federation": FEDERATION}}))
        values = _values(agreed, address, Path(out).absolute())
        for name in ("client_app", "server_app"):
            _write(place / "app" / f"{name}.py", _filled(f"{name}.txt", values))
        _write(place / "app" / "pyproject.toml", _filled("pyproject.txt", values))
        _write(place / "app" / "LICENSE", _filled("LICENSE", values))
        _write(server / "nginx.conf", _filled("nginx.txt", values))
        _write(server / "superlink.sh", _filled("superlink.txt", values))
        (server / "superlink.sh").chmod(0o755)
        _write(server / "flwr" / "config.toml", _connection(address, Path(out)))
        for name, one in lines.items():
            _write(server / "keys" / f"{name}.pub", f"{one.node}\n")
        _write(place / "COMMANDS.md", _filled("COMMANDS.md", values))
        for name, silo in zip(lines, data.silos, strict=False):
            if trial_rows:
                table = table_of(silo, agreed.encoding).to_csv(index=False)
                _write(place / "rows" / f"{name}.csv", table)
    return agreed


def planned_queries(spec: RunSpec, data: Federation, *, insist: bool) -> int:
    """Return how many queries a run asks at most; refuse one that takes hours."""
    method = _method(spec, data)
    most = method.most_rounds
    asks = UNPLANNED if most is None else most + SPARE
    if asks > MANY and method.planned_rounds and not insist:
        hours = asks * SECONDS / 3600
        raise UsageError(
            f"[long-run] {method.name} asks about {asks:,} queries, at 6 to 8 seconds "
            f"each: {hours:.1f} hours. Take another method or fewer rounds (--set "
            "method.kind=exact), or --insist"
        )
    return asks


def _method(spec: RunSpec, data: Federation) -> Method:
    """Return the method that the run will take, as far as names tell."""
    if not isinstance(spec.method, Auto):
        return spec.method
    schema, none = data.schema, Cells.none(data.schema)
    outputs = len(schema.labels) if len(schema.labels) > 2 else 1
    cells = spec.constraint.cells(schema, data.silo_names) if spec.constraint else none
    p, access = outputs * (1 + schema.n_features), Access(elsewhere=True)
    exact, _ = hessians_fit(p, len(cells), access=access)
    return Exact() if exact else FirstOrder()


def _ranged(
    spec: RunSpec, sections: dict[str, Any], data: Federation
) -> tuple[RunSpec, dict[str, Any]]:
    """Add the ranges that data come with to those of [privacy], where noise is added.

    Sites agree on them: they have rows, and not what comes with a data set.
    """
    terms = spec.privacy.terms
    if terms is None or not data.ranges:
        return spec, sections
    known = {**data.ranges, **terms.ranges}
    between = tuple(f"{name}={low},{high}" for name, (low, high) in known.items())
    section = {**sections["privacy"], "range": list(between)}
    privacy = replace(spec.privacy, range=between)
    return replace(spec, privacy=privacy), {**sections, "privacy": section}


def agreed_run(spec: RunSpec, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run that sites join; [privacy] is part of it if noise is added.

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
    terms = spec.privacy.terms
    if asked is False or (asked is None and many < MIN_SITES):
        return False
    if many < MIN_SITES:
        raise UsageError(
            "[too-few-sites] [privacy] secure_sum = true: a secure sum is of "
            f"{MIN_SITES} sites or more, and there are {many}"
        )
    setting = Setting.pooled(agreed.name, agreed.encoding, agreed.splits, many)
    try:
        check_pooled(setting, spec.constraint, spec.method, spec.options)
        if terms is not None:
            sharing(many, terms)
    except UsageError as error:
        raise UsageError(
            f"[{error.code}] {error}; or '[privacy] secure_sum = false': the server "
            "reads each site's sums"
        ) from error
    return True


# Texts


def _values(agreed: Agreement, address: Address, folder: Path) -> dict[str, object]:
    prints = [f"    {s}: {key.fingerprint}" for s, key in agreed.keys.items()]
    long = agreed.queries > UNPLANNED
    minutes = agreed.queries * SECONDS / 60
    return {
        "DATA": agreed.name,
        "SITES": f"{len(agreed.sites)} sites",
        "MODE": agreed.mode,
        "PROMISE": " ".join(promise(agreed)),
        "ADDRESS": address,
        "HOST": address.host,
        "LISTEN": address.listen,
        "INNER": address.inner,
        "FOLDER": folder,
        "FLOWER": _flower(),
        "MESSAGES": f"{agreed.queries:,}" if long else "12",
        "ESTIMATE": f"about {minutes:.0f} minutes" if long else "about 2 minutes",
        "FINGERPRINTS": "\n".join(prints),
    }


def _connection(address: Address, folder: Path) -> str:
    trust = folder.absolute() / "server" / "server.crt"
    inner = {"address": f"127.0.0.1:{address.inner}", "root-certificates": str(trust)}
    return dumps({"superlink": {"default": "pffl", "pffl": inner}})


def _flower() -> str:
    try:
        return version("flwr")
    except PackageNotFoundError:
        return OLDEST_FLOWER


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _filled(name: str, values: Mapping[str, object]) -> str:
    """Return a template with every @PLACE@ filled."""
    text = (resources.files(__package__) / "templates" / name).read_text("utf-8")
    return PLACE.sub(lambda place: str(values[place[1]]), text)


def _write_certificate(folder: Path, address: Address) -> str:
    """Write the server's key and its certificate, which sites pin; return the latter.

    It vouches for itself: sites get it with federation.json, from the coordinator.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise MissingExtraError("flower", "pffl deploy") from error
    key, now = (
        ec.generate_private_key(ec.SECP384R1()),
        datetime.datetime.now(datetime.UTC),
    )
    named = x509.Name(
        [x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, address.host[:64])]
    )
    hosts = dict.fromkeys([address.host, "localhost", "127.0.0.1"])
    others = [
        x509.IPAddress(ipaddress.ip_address(h)) if _is_ip(h) else x509.DNSName(h)
        for h in hosts
    ]
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(named)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName(others), critical=False)
        .add_extension(own, critical=False)
        .add_extension(
            # It signs: answers to TLS, and itself.
            x509.KeyUsage(*(use in (0, 5) for use in range(9))),
            critical=True,
        )
        .sign(key, hashes.SHA384())
    )
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none)
    files.write(folder / "server.key", private, private=True)
    text: bytes = made.public_bytes(pem)
    files.write(folder / "server.crt", text)
    return text.decode()


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# Rows of a trial


def table_of(silo: Silo, encoding: TableEncoding) -> pd.DataFrame:
    """Return a table that `encoding` reads as these rows, with a column of splits."""
    parts = [
        _decoded(rows, encoding).assign(**{SPLIT: name})
        for name, rows in silo.splits.items()
    ]
    return pd.concat(parts, ignore_index=True)


def _decoded(rows: Rows, encoding: TableEncoding) -> pd.DataFrame:
    schema = encoding.schema
    found: dict[str, object] = {}
    start = 0
    X: Any = rows.X if isinstance(rows.X, np.ndarray) else rows.X.tocsc()
    for column in encoding.columns:
        if column.kind == "text":
            raise UsageError(
                f"[hashed-column] column '{column.name}' is hashed, and its texts "
                "cannot be made from counts of words: a trial needs data without it"
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
