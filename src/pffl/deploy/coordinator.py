"""The coordinator: writes a folder (`pffl deploy`), starts runs and follows them.

    federation.json   what every site gets, and joins
    spec.toml         the run
    app/              the Flower app: two small files
    server/           certificate, proxy, SuperLink; for the coordinator's account alone
    COMMANDS.md       what to type, in order

`flwr run` starts the ServerApp on the SuperLink's machine, which is this one; what it
writes into the run directory is read here as it comes. `check` looks at all that can
be wrong before: ports, certificate, versions, keys, who is there.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import re
import secrets
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pffl import files
from pffl.config import RunSpec, dumps
from pffl.constraints import Cells
from pffl.data.federation import Federation
from pffl.data.partition import CALIBRATION
from pffl.deploy.federation import FILE as FEDERATION
from pffl.deploy.federation import RUN, Agreement
from pffl.deploy.join import noise_of, promise
from pffl.deploy.keys import SiteLine, primitives
from pffl.deploy.server import ALL_SITES
from pffl.engines import DEPLOYED
from pffl.errors import FederationError, PFFLError, UsageError
from pffl.methods import Auto, Exact, FirstOrder, Method
from pffl.methods.auto import hessians_fit
from pffl.prepare import Setting, check_pooled
from pffl.privacy.run import sharing
from pffl.problem import Access
from pffl.queries.validation import MIN_SITES
from pffl.runs import RECORD, SPEC

OLDEST_FLOWER = "1.41.0"
SPARE = 50  # queries beyond those that a method plans: start, gap, verdict
UNPLANNED = 200  # queries of a method that asks until it is done
SECONDS = 8.0  # of a message, on an idle machine
DAYS = 730  # that the server's certificate is good for
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - refused, not bound
HOST_PORT = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):(\d+)")
TEMPLATES = {
    "app/client_app.py": "client_app.txt",
    "app/server_app.py": "server_app.txt",
    "app/pyproject.toml": "pyproject.txt",
    "app/LICENSE": "LICENSE",
    "server/nginx.conf": "nginx.txt",
    "server/superlink.sh": "superlink.txt",
    "COMMANDS.md": "COMMANDS.md",
}
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
        found = HOST_PORT.fullmatch(text)
        host, port = (found[1].strip("[]"), int(found[2])) if found else ("", 0)
        if not 0 < port < 65535 or host in EVERYWHERE:
            raise UsageError("wrong-address", text=text)
        return cls(host, port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

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
    """
    if spec.constraint is not None and spec.constraint.open:
        raise UsageError("auto-refused:deploy")
    if spec.method.participation < 1:
        raise UsageError(f"[not-over-sites] {ALL_SITES}")
    data = spec.data.open()
    run = {"seed": secrets.randbits(32), **sections.get("run", {}), "engine": DEPLOYED}
    sections = {**sections, "run": run}
    agreed = replace(
        Agreement.of(data, tuple(lines)),
        keys={name: one.key for name, one in lines.items()},
        shares={s: SHARES[s] for s in data.splits if s in SHARES},
        run=agreed_run(spec, sections),
        queries=planned_queries(spec, data),
        address=str(address),
    )
    agreed = replace(agreed, secure_sum=_secured(spec, agreed))
    if agreed.private:
        noise_of(agreed)  # refused here what would be refused there
    with files.whole_folder(Path(out)) as place:
        server = files.folder(place / "server", private=True)
        agreed = replace(agreed, certificate=_write_certificate(server, address))
        agreed.check()
        _write(place / FEDERATION, agreed.text())
        _write(place / SPEC, dumps({**sections, "data": {"federation": FEDERATION}}))
        values = _values(agreed, address, Path(out).absolute())
        for path, template in TEMPLATES.items():
            _write(place / path, _filled(template, values))
        (server / "superlink.sh").chmod(0o755)
        trust = Path(out).absolute() / "server" / "server.crt"
        own = f"127.0.0.1:{address.inner}"
        inner = {"address": own, "root-certificates": str(trust)}
        connection = {"superlink": {"default": "pffl", "pffl": inner}}
        _write(server / "flwr" / "config.toml", dumps(connection))
        for name, one in lines.items():
            _write(server / "keys" / f"{name}.pub", f"{one.node}\n")
    return agreed


def planned_queries(spec: RunSpec, data: Federation) -> int:
    """Return how many queries a run asks at most."""
    most = _method(spec, data).most_rounds
    return UNPLANNED if most is None else most + SPARE


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


def agreed_run(spec: RunSpec, sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run that sites join; [privacy] is part of it if noise is added.

    Then what it relies on is spelt out. Whether answers are added under masks is agreed
    on alone.
    """
    found = {name: sections[name] for name in RUN if name in sections}
    section, terms = found.pop("privacy", {}), spec.privacy
    if terms is None:
        return found
    given = {key: value for key, value in section.items() if key != "secure_sum"}
    known = ("epsilon", "delta", "colluding", "clip", "loss_bound")
    spelt = {name: getattr(terms, name) for name in known}
    return {**found, "privacy": {**given, **spelt}}


def _secured(spec: RunSpec, agreed: Agreement) -> bool:
    """Whether answers are added under masks: from three sites on, unless refused."""
    asked, many = spec.secure_sum, len(agreed.sites)
    if asked is False or (asked is None and many < MIN_SITES):
        return False
    setting = Setting.pooled(agreed.name, agreed.encoding, agreed.splits, many)
    try:
        check_pooled(setting, spec.constraint, spec.method)
        if spec.privacy is not None:
            sharing(many, spec.privacy)
    except UsageError as error:
        other = "'[privacy] secure_sum = false': the server reads each site's sums"
        raise UsageError(f"[{error.code}] {error}; or {other}") from error
    return True


# Texts


def _values(agreed: Agreement, address: Address, folder: Path) -> dict[str, object]:
    prints = [f"    {s}: {key.fingerprint}" for s, key in agreed.keys.items()]
    return {
        "DATA": f"{agreed.name}: {len(agreed.sites)} sites",
        "PROMISE": f"Mode: {agreed.mode}. {' '.join(promise(agreed))}",
        "ADDRESS": address,
        "HOST": address.host,
        "LISTEN": address if _is_ip(address.host) else address.port,  # of a name, all
        "INNER": address.inner,
        "FOLDER": folder,
        "FLOWER": OLDEST_FLOWER,
        "ESTIMATE": estimate(agreed),
        "FINGERPRINTS": "\n".join(prints),
    }


def estimate(agreed: Agreement) -> str:
    """Say how long a run takes; one that asks until it is done asks about 12 times."""
    many = agreed.queries if agreed.queries > UNPLANNED else 12
    minutes = f"{many * SECONDS / 60:,.0f} minutes"
    return f"A message takes 6 to 8 seconds; about {many:,} of them: about {minutes}."


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
    ec = primitives("ec")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    key, now = ec.generate_private_key(ec.SECP384R1()), datetime.now(UTC)
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, address.host[:64])])
    others = [
        x509.IPAddress(ipaddress.ip_address(h)) if _is_ip(h) else x509.DNSName(h)
        for h in dict.fromkeys([address.host, "localhost", "127.0.0.1"])
    ]
    uses = x509.KeyUsage(*(use in (0, 5) for use in range(9)))  # TLS, and itself
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(named)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName(others), critical=False)
        .add_extension(own, critical=False)
        .add_extension(uses, critical=True)
        .sign(key, hashes.SHA384())
    )
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none)
    files.write(folder / "server.key", private, private=True)
    text: bytes = made.public_bytes(pem)
    files.write(folder / "server.crt", text)
    return text.decode()


def _is_ip(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdecimal()


# A run: started, followed, stopped

PATIENCE = 120.0  # seconds that a command of Flower's may take
PAUSE = 0.5  # seconds between two looks at the record
ASK_AFTER = 30.0  # seconds of silence, after which Flower is asked about the run
CLOCK = 5.0  # seconds that Flower lets a clock be ahead
NOT_ONLINE = "look at the others' clocks (pffl site show), and at their nodes' logs"
BEGUN, ROUND, ASKING, ENDED = "begun", "round", "asking", "ended"  # events


@dataclass(frozen=True)
class Launch:
    """How a deployed run is started.

    Attributes
    ----------
    folder
        What `pffl deploy` wrote.
    out
        The run directory.
    resume, check
        Go on with a run that was stopped; only see who is there.
    """

    folder: Path
    out: Path
    resume: bool = False
    check: bool = False

    @property
    def agreed(self) -> Agreement:
        """What the sites are to join."""
        path = self.folder / FEDERATION
        if not path.is_file():
            raise UsageError("not-deployed:agreed", path=path)
        return Agreement.read(path)

    def call(self, *arguments: str) -> dict[str, Any]:
        """Run a command of Flower's; return the JSON that it prints."""
        home = str(self.folder / "server" / "flwr")
        switches = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        program = Path(sys.executable).with_name("flwr")
        try:
            done = subprocess.run(
                [str(program), *arguments, "--format", "json"],
                env={**os.environ, **switches, "FLWR_HOME": home},
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FederationError(
                "flwr-failed:call", argument=arguments[0], error=error
            ) from error
        plain: dict[str, Any] = {}
        with suppress(ValueError):
            plain = json.loads(done.stdout)
            if plain.get("success", True):
                return plain
        said = str(plain.get("error-message") or done.stderr or done.stdout).split()
        why = f"flwr {arguments[0]} failed: {' '.join(said)[-500:]}"
        raise FederationError(f"[flwr-failed] {why}")

    def register(self) -> None:
        """Let the sites' nodes in; those that are known already stay."""
        for path in sorted((self.folder / "server" / "keys").glob("*.pub")):
            try:
                self.call("supernode", "register", str(path), "pffl")
            except FederationError as error:
                if "already" not in str(error) and "in use" not in str(error):
                    raise

    def start(self) -> int:
        """Submit the run, and return its id."""
        places = {"folder": self.folder, "out": self.out}
        config: dict[str, Any] = {n: str(path.absolute()) for n, path in places.items()}
        config |= {"resume": self.resume, "check": self.check}
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        said = self.call("run", str(self.folder / "app"), "pffl", "-c", pairs)
        return int(said["run-id"])

    def stop(self, run: int) -> None:
        """Stop the run."""
        self.call("stop", str(run), "pffl")

    def watch(self, run: int, show: Callable[[str], object]) -> dict[str, Any]:
        """Show what the record of a run says, until its last entry; return that."""
        heard, finished = time.monotonic(), False
        for entry in follow(self.out / RECORD, run_begun=not self.resume):
            if entry is not None:
                heard = time.monotonic()
                if entry.get("event") == ENDED:
                    return entry
                if text := told(entry):
                    show(text)
                continue
            if finished:
                raise FederationError("server-gone:watch", run=run)
            if time.monotonic() - heard > ASK_AFTER:
                heard = time.monotonic()
                known = self.call("list", "pffl", "--run-id", str(run))
                finished = '"status": "finished' in json.dumps(known)
            time.sleep(PAUSE)
        raise AssertionError("a record is followed for ever")


def told(entry: Mapping[str, Any]) -> str:
    """Say what an entry of a record tells an operator; empty if it is nothing new."""
    texts = [f"{who}: {why}" for who, why in entry.get("refused", ())]
    if entry.get("event") == ROUND:
        texts = [line(entry)]
    if entry.get("event") == ASKING:
        texts = [f"asking: {entry['what']}"]
    return "; ".join(dict.fromkeys(texts))


def line(entry: Mapping[str, Any]) -> str:
    """One line about a round, from its entry in the record.

    Without planned rounds a method ends when its gap is small: its end is unknown.

    >>> line({"round": 3, "planned": 10, "what": "risk 0.63", "left": 45.0})
    'round 3 of 10: risk 0.63, 45 s left'
    >>> line({"round": 3, "planned": None, "what": "gap 1e-3", "seconds": 21.0})
    'round 3, until the gap is small: gap 1e-3, 21 s so far'
    """
    planned, left = entry["planned"], entry.get("left")
    of = ", until the gap is small" if planned is None else f" of {planned}"
    time = "" if left is None else f", {left:.0f} s left"
    if planned is None:
        time = f", {entry['seconds']:.0f} s so far"
    return f"round {entry['round']}{of}: {entry['what']}{time}"


def follow(path: Path, *, run_begun: bool) -> Iterator[dict[str, Any] | None]:
    """Yield the entries that a record gets from now on; None when there is no more.

    A run that begins writes a new file; one that resumes adds to what is there.
    """
    if run_begun:
        path.unlink(missing_ok=True)
    known = len(path.read_bytes()) if path.exists() else 0
    while True:
        content = path.read_bytes()[known:] if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        known += len(whole)
        yield from map(json.loads, whole.splitlines())
        yield None


# What can be wrong before a run


def check(folder: Path) -> Iterator[tuple[bool, str]]:
    """Look at ports, certificate, versions, keys and sites; yield what was found."""
    launch = Launch(folder, folder)
    agreed, many = launch.agreed, len(launch.agreed.sites)
    yield True, f"pffl {version('pffl')}, flwr {version('flwr')}"
    inner = f"127.0.0.1:{Address.parse(agreed.address).inner}"
    closed = _closed(inner)
    yield not closed, f"SuperLink on {inner}: {closed or 'it listens'}"
    yield from server_seen(agreed)
    if closed:
        return
    try:
        launch.register()
        yield True, f"keys of {len(agreed.keys)} nodes are registered"
        nodes = launch.call("supernode", "list", "pffl").get("nodes", [])
        online = sum(str(n.get("status", "")).lower() == "online" for n in nodes)
        hint = "" if online >= many else f": {NOT_ONLINE}"
        yield online >= many, f"{online} of {many} nodes are online{hint}"
        if online:
            yield _greeted(folder)
    except PFFLError as error:
        yield False, str(error)


def _greeted(folder: Path) -> tuple[bool, str]:
    """Ask the sites that are there whether they would take part."""
    with TemporaryDirectory() as place:
        launch = Launch(folder, Path(place), check=True)
        ended = launch.watch(launch.start(), lambda text: None)
    return ended["code"] == 0, str(ended["message"])


def server_seen(agreed: Agreement) -> Iterator[tuple[bool, str]]:
    """Look at the server from where this runs: port, certificate, door, clock."""
    address, server = Address.parse(agreed.address), f"server at {agreed.address}"
    if closed := _closed(agreed.address):
        yield False, f"{server}: {closed}"
        return
    context = ssl.create_default_context(cadata=agreed.certificate or None)
    connection = http.client.HTTPSConnection(
        address.host, address.port, timeout=10.0, context=context
    )
    try:
        with closing(connection):
            connection.request("GET", "/v1/control/")
            answer = connection.getresponse()
            date, status = answer.getheader("Date"), answer.status
    except (OSError, http.client.HTTPException) as error:
        wrong = "not the certificate of federation.json, or a wrong clock: "
        tls = wrong if isinstance(error, ssl.SSLError) else ""
        yield False, f"{server}: {tls}{type(error).__name__}"
        return
    yield True, f"{server}: TLS with the certificate of federation.json"
    how = "refused" if status == 403 else "NOT refused: start the proxy"
    yield status == 403, f"commands from outside are {how} ({status})"
    if date:
        ahead = datetime.now(UTC) - parsedate_to_datetime(date)
        seconds = abs(ahead.total_seconds())
        limit = "" if seconds <= CLOCK else f": at most {CLOCK:.0f} s, set the clock"
        text = f"this machine's clock and the server's differ by {seconds:.0f} s"
        yield seconds <= CLOCK, f"{text}{limit}"


def _closed(address: str) -> str:
    """Return why an address does not answer; empty if it does."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10.0):
            return ""
    except OSError as error:
        return f"no answer ({type(error).__name__}): start it, or open the port"
