"""A site's folder: made by `pffl site init`, filled by `join`, opened by `serve`.

    site.key    the site's key; no one else ever sees it
    site.db     what it remembers: consents, answers, privacy account
    rows.npz    prepared rows
    runs/       secrets of runs that have not ended

`FOLDER.node` is for the account of Flower's node alone: its key. `FOLDER.socket` has
what both accounts reach: the socket, and the server's certificate.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pffl import files
from pffl.data.rows import Silo
from pffl.deploy import rows as prepared
from pffl.deploy.federation import Agreement, changes, new_keys, plan_of, run_lines
from pffl.deploy.keys import FILE as KEY
from pffl.deploy.keys import NAME, SiteKey, SiteLine, node_key
from pffl.deploy.messages import read_answer, read_request, shown
from pffl.deploy.site import Limits, Site, adding_of
from pffl.deploy.store import BEGIN, CONSENT, SiteMemory
from pffl.errors import ArtefactError, PFFLError, Problems, Refused, UsageError
from pffl.prepare import Setting
from pffl.privacy.run import planned
from pffl.privacy.terms import composed, epsilon_of
from pffl.processors import blas_threads, processors
from pffl.queries.validation import MIN_SITES
from pffl.records import suggestion

MARKS = "marks.json"  # of rows that were answered about
SOCKET = "pffl.sock"
NODE_PORT = 9094  # of the first site's node, on loopback: sites may share a machine
MALICE = "It promises nothing against a server or site that cheats; only noise does."


@dataclass(frozen=True)
class SiteFolder:
    """Where a site keeps what is its own."""

    path: Path

    @property
    def node(self) -> Path:
        """Folder of the node's account."""
        return self.path.with_name(f"{self.path.name}.node")

    @property
    def socket(self) -> Path:
        """The socket by which the node's account reaches the site."""
        return self.path.with_name(f"{self.path.name}.socket") / SOCKET

    @property
    def trust(self) -> Path:
        """The server's certificate, which the node's account reads."""
        return self.socket.with_name("ca.crt")

    @classmethod
    def make(cls, path: Path, name: str) -> tuple[SiteFolder, str]:
        """Make a site with its keys; return the line for the coordinator, too."""
        if not NAME.fullmatch(name):
            raise UsageError("wrong-name", name=name)
        found = cls(path.absolute())
        if found.path.exists() or found.node.exists():
            raise UsageError("file-exists:make", path=found.path)
        for place in (found.path, found.node):
            files.folder(place, private=True)
        key, (private, public) = SiteKey.generate(), node_key()
        key.write(found.path / KEY)
        files.write(found.node / "node_key", private, private=True)
        memory = SiteMemory(found.path)
        memory.add(BEGIN, {"site": name, "node": public})
        memory.close()
        return found, SiteLine(name, key.public, public).text(key)

    @classmethod
    def find(cls, path: Path | None) -> SiteFolder:
        """Return the folder that was named, or the only one here."""
        keys = [*Path().glob(KEY), *Path().glob(f"*/{KEY}")]
        keys = keys if path is None else [*path.glob(KEY)]
        if len(keys) != 1:
            where = "here" if path is None else f"in '{path}'"
            raise UsageError("no-site", n_keys=len(keys), where=where)
        return cls(keys[0].parent.absolute())

    @property
    def key(self) -> SiteKey:
        """The site's key."""
        return SiteKey.read(self.path / KEY)

    def memory(self) -> SiteMemory:
        """Open what the site remembers."""
        return SiteMemory(self.path, new=False)

    def name(self, memory: SiteMemory) -> str:
        """Return the site's name."""
        first = memory.last(BEGIN)
        if first is None:
            raise ArtefactError("bad-memory:name")
        return str(first.body["site"])

    def open(self) -> Site:
        """Return the site, as its people joined."""
        memory = self.memory()
        (agreed, limits), last = consented(memory), memory.last(CONSENT)
        name = self.name(memory)
        memory.close()
        if agreed is None or last is None:
            raise UsageError("not-joined", path=self.path)
        silo = prepared.read(self.path, name=name, schema_hash=agreed.schema.hash)
        if prepared.digest(silo) != last.body["rows"]:
            raise ArtefactError("changed-file:open")
        return Site(silo, agreed, limits, self.path, key=self.key)


def consented(memory: SiteMemory) -> tuple[Agreement | None, Limits]:
    """Return what the site's people joined last, and their limits."""
    last = memory.last(CONSENT)
    if last is None:
        return None, Limits()
    agreed = Agreement.from_dict(last.body["federation"])
    return agreed, Limits(**last.body["limits"])


@dataclass(frozen=True)
class Joining:
    """What joining a federation means for a site, before anybody agrees to it.

    Attributes
    ----------
    folder, memory, key, name
        The site.
    agreed, before
        What is to be joined, and what was before; None if nothing was.
    limits
        The site's own.
    cost
        ε of the account with this run; 0 without noise.
    releases
        With noise: what is released, in words.
    """

    folder: SiteFolder
    memory: SiteMemory
    key: SiteKey
    name: str
    agreed: Agreement
    before: Agreement | None
    limits: Limits
    cost: float = 0.0
    releases: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: SiteFolder, path: Path, limits: Limits) -> Joining:
        """Read a federation.json for a site that it names."""
        memory, key, agreed = folder.memory(), folder.key, Agreement.read(path)
        name = folder.name(memory)
        if name not in agreed.sites:
            hint = suggestion(name, agreed.sites)
            raise UsageError("unknown-site:of", path=path, name=name, hint=hint)
        if agreed.keys.get(name) != key.public:
            raise UsageError("other-key:of", path=path, name=name)
        mu, lines = noise_of(agreed) if agreed.private else (0.0, ())
        cost = epsilon_of((mu**2 + memory.spent) ** 0.5, limits.delta) if mu else 0.0
        known = (folder, memory, key, name, agreed, consented(memory)[0], limits)
        return cls(*known, cost, lines)

    @property
    def peers(self) -> list[str]:
        """Sites whose fingerprints must be compared: of keys that are new here."""
        known = {} if self.before is None else self.before.keys
        keys = self.agreed.keys
        return [s for s in keys if s != self.name and known.get(s) != keys[s]]

    def lines(self) -> list[str]:
        """Say what the site would agree to; what protects it comes first."""
        agreed, limits, weaker = self.agreed, self.limits, self.limits.weaker()
        found = [
            *promise(agreed),
            "",
            f"federation '{agreed.name}': {len(agreed.sites)} sites "
            f"({', '.join(agreed.sites)})",
            f"columns: {', '.join(agreed.columns)}",
            *run_lines(agreed),
            f"asks at most {agreed.queries:,} queries",
            *self.releases,
        ]
        if agreed.private:
            found.append(
                f"privacy account with this run: ε = {self.cost:.3g} of "
                f"{limits.epsilon:g}"
            )
        else:
            floor = max(agreed.floor, limits.floor)
            found.append(
                f"floor: your people of a set with fewer than {floor} are left out"
            )
            if agreed.floor < Limits().floor:
                weaker.append(f"the federation's floor is {agreed.floor} people")
        found += [f"WEAKER THAN THE DEFAULT: {text}" for text in weaker]
        if self.before is not None:
            found += [f"CHANGES: {text}" for text in changes(self.before, agreed)]
        found += ["", "fingerprints, to be compared with each site by telephone:"]
        found += [f"  {s}: {key.fingerprint}" for s, key in agreed.keys.items()]
        return found

    def check(self, peers: Mapping[str, str] | None, flags: Sequence[str] = ()) -> None:
        """Refuse what needs a flag; all of it at once.

        Parameters
        ----------
        peers
            Fingerprints as other sites' people said them; None where they were not
            compared, and that is accepted.
        flags
            Words that were given: end-secure-sums, new-keys, other-sites.
        """
        agreed = self.agreed
        with Problems("pffl site join", UsageError) as problems:
            for flag, text in self._worse():
                if flag not in flags:
                    problems.add(f"[not-agreed] {text}: --{flag}")
            for site in self.peers if peers is not None else ():
                own = agreed.keys[site].fingerprint
                said = (peers or {}).get(site, "")
                if not said:
                    problems.add("not-compared", site=site)
                elif said.replace(" ", "").lower() != own.replace(" ", ""):
                    other = f"the key of '{site}' ({own}) is not what its people read"
                    problems.add("other-key:check", other=other)
            left = self.limits.queries - self.memory.queries
            if agreed.queries > left:
                asks = f"the run asks up to {agreed.queries:,} queries"
                problems.add("too-many-queries:check", asks=asks, left=left)
            if agreed.private and self.cost > self.limits.epsilon:
                total = f"the account would come to ε = {self.cost:.4g}"
                allowed = f"and {self.limits.epsilon:g} is allowed: --epsilon"
                problems.add(f"[no-privacy-budget] {total}, {allowed}")

    def _worse(self) -> Iterator[tuple[str, str]]:
        """Say what changes for the worse, each with the flag that it needs."""
        before, agreed = self.before, self.agreed
        if before is None:
            return
        if before.secure_sum and not agreed.secure_sum:
            yield "end-secure-sums", "secure sums END: the server reads your sums"
        if names := new_keys(before, agreed):
            yield "new-keys", f"a NEW KEY of {', '.join(names)}"
        apart = sorted(set(before.sites) ^ set(agreed.sites))
        if apart and self.memory.answered and not agreed.private:
            yield (
                "other-sites",
                f"the sites are others ({', '.join(apart)}): whoever sees totals of "
                "both sets can subtract them, and no mask hides what is left",
            )

    def prepare(self, table: Path, *, changed: bool = False) -> tuple[Site, list[str]]:
        """Read the table, and compare its rows with those that were answered about.

        Parameters
        ----------
        table
            CSV, Parquet or Excel.
        changed
            Whether rows of few people may have changed since.
        """
        agreed, floor = self.agreed, max(self.limits.floor, self.agreed.floor)
        known = (table, agreed, self.name, self.key.split)
        silo, notes = prepared.prepare(*known, floor=floor)
        if not changed and not agreed.private and self.memory.answered:
            self._refuse_few_changes(silo, floor)
        # For a look at the counts only: what is remembered is elsewhere.
        return Site(silo, agreed, self.limits, key=self.key), notes

    def _refuse_few_changes(self, silo: Silo, floor: int) -> None:
        """Refuse rows that differ by few people from those answered about.

        The difference of two totals would be about these few.
        """
        path = self.folder.path / MARKS
        old = json.loads(files.read(path)) if path.exists() else {}
        new = prepared.row_marks(silo, self.agreed.schema, self.key.split)
        few = []
        for stratum in dict.fromkeys([*old, *new]):
            n = len(set(old.get(stratum, ())) ^ set(new.get(stratum, ())))
            few += [f"{stratum} ({n})"] if 0 < n < floor else []
        if old and few:
            raise UsageError("changed-rows:refuse-few-changes", few=", ".join(few[:5]))

    def agree(self, silo: Silo, *, compared: bool) -> None:
        """Put the federation in force at the site, with these rows; on disk then."""
        place, schema = self.folder.path, self.agreed.schema
        prepared.write(place, silo, schema.hash)
        if not self.agreed.private:
            marks = prepared.row_marks(silo, schema, self.key.split)
            files.write(place / MARKS, json.dumps(marks).encode(), private=True)
        known: dict[str, Any] = {"compared": compared, "rows": prepared.digest(silo)}
        body = {"federation": self.agreed.as_dict(), "limits": asdict(self.limits)}
        self.memory.add(CONSENT, {**body, **known})
        self.memory.close()
        files.folder(self.folder.trust.parent).chmod(0o711)
        files.write(self.folder.trust, self.agreed.certificate.encode())
        self.folder.trust.chmod(0o644)

    def commands(self) -> list[str]:
        """Return what is typed next: as the site, and as the node's account."""
        node, socket = self.folder.node, self.folder.socket
        address, trust = self.agreed.address, str(self.folder.trust)
        port = str(NODE_PORT + self.agreed.sites.index(self.name))
        start = ["flower-supernode", "--superlink", address, "--port", port]
        start += ["--root-certificates", trust, "--node-config", f'socket="{socket}"']
        start += ["--auth-supernode-private-key", str(node / "node_key")]
        return [
            "as this account:",
            f"  pffl site serve --site {shlex.quote(str(self.folder.path))} "
            "--node-account ACCOUNT",
            "as root, once, with an account that can read nothing of yours:",
            f"  chown -R ACCOUNT: {shlex.quote(str(node))}",
            "as that account (for good: a service that is started again when it ends):",
            f"  {SWITCHES} FLWR_HOME={shlex.quote(str(node / 'flwr'))} \\",
            f"  {shlex.join(start)}",
        ]


# Nothing calls home, and nothing is installed at run time.
SWITCHES = (
    "FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 "
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1"
)


def promise(agreed: Agreement) -> list[str]:
    """Say what the mode protects this site's people from."""
    many = len(agreed.sites)
    if agreed.private:
        terms = agreed.run["privacy"]
        return [
            f"Private mode: (ε, δ) = ({terms['epsilon']:g}, {terms['delta']:g}) for "
            "each person at one site, against everybody: a server that cheats, and up "
            f"to {terms.get('colluding', 1)} sites with it."
            + ("" if agreed.secure_sum else " Each site adds all of the noise itself.")
        ]
    if not agreed.secure_sum:
        return [f"NOT PROTECTED: the server reads this site's sums. {MALICE}"]
    only = f"Masked mode: a curious server or site learns totals of {many} sites only."
    three = (
        "With three sites, the server and one site together learn the sum of the other "
        "two; so does one site from a published report. Of a group that two of them "
        "have, each learns the other's sum."
    )
    return [f"{only} {MALICE}", *([three] if many == MIN_SITES else [])]


def noise_of(agreed: Agreement) -> tuple[float, tuple[str, ...]]:
    """Return what a run with noise costs a site's people (μ), and releases, in words.

    Refuse what is not available under noise, or not between machines.
    """
    adding_of(agreed)
    plan: Any = plan_of(agreed)
    names = (agreed.name, agreed.encoding, agreed.splits, len(agreed.sites))
    about = (plan.constraint, plan.model_for(agreed.schema), plan.method, plan.options)
    noise, _ = planned(Setting.pooled(*names), *about, plan.privacy)
    mu = composed([noise.mu("train"), noise.mu("test")])
    return mu, tuple(noise.lines())


# `pffl site serve`: Flower runs any app that its SuperLink sends, with the rights of
# the node's account. So the rows belong to another account, which answers on a socket,
# and the app that is sent can do nothing but carry bytes there.

SECONDS = 60.0  # that a message may take on its way through the socket
ONE_ACCOUNT = (
    "Flower's node runs under the account that holds the rows: an app that the server "
    "sends can read them"
)
TWO = "Private mode needs two accounts (pffl site serve --node-account)"


class SiteServer:
    """Answers for a site on a socket.

    Parameters
    ----------
    folder
        The site's folder.
    node_account
        Name of the account that may ask; None for the site's own, with a warning.
    say
        Told a line for every message, and for everybody who is refused.
    """

    def __init__(
        self,
        folder: SiteFolder,
        node_account: str | None = None,
        say: Callable[[str], object] | None = None,
    ) -> None:
        about = folder.path.stat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise UsageError("open-folder", path=folder.path)
        self.site: Site = folder.open()
        self.path = folder.socket
        self.asker = _account(node_account)
        self._say = say or partial(print, file=sys.stderr, flush=True)
        self._stopped = threading.Event()
        self._listening = self._bound()
        if self.one_account and not self.site.agreement.private:
            self._log(f"warning: {ONE_ACCOUNT} (--node-account)")

    @property
    def one_account(self) -> bool:
        """Whether whoever asks can read the rows anyway."""
        return self.asker in (0, os.geteuid())

    def run(self) -> None:
        """Answer one message after the other, until it is stopped."""
        self._log(f"site '{self.site.name}' answers on {self.path}")
        try:
            while not self._stopped.is_set():
                try:
                    connection, _ = self._listening.accept()
                except (TimeoutError, OSError):
                    continue
                with connection:
                    self._serve(connection)
        finally:
            self._listening.close()
            self.path.unlink(missing_ok=True)
            self.site.memory.close()

    def stop(self) -> None:
        """End, once the message that is being answered is."""
        self._stopped.set()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(SECONDS)
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, user, _ = struct.unpack("3i", peer)
        if user != self.asker:
            self._log(f"refused: account {user} asks, and only {self.asker} may")
            return
        try:
            with connection.makefile("rwb") as stream:
                length = int.from_bytes(stream.read(8), "big")
                if length > self.site.limits.largest_message:
                    error = Refused("too-large:serve", length=length)
                    answer = self.site.refuse(error)
                    self._log(f"refused: {error}")
                else:
                    answer = self.answer(stream.read(length))
                stream.write(len(answer).to_bytes(8, "big") + answer)
        except (OSError, ValueError) as error:
            self._log(f"a message was cut short: {type(error).__name__}")

    def answer(self, content: bytes) -> bytes:
        """Answer a message, and write a line about it."""
        if self.one_account and self.site.agreement.private:
            answer = self.site.refuse(Refused(f"[one-account] {ONE_ACCOUNT}. {TWO}"))
        else:
            with blas_threads(processors()):
                answer = self.site.answer(content)
        self._log(described(content, answer))
        return answer

    def _bound(self) -> socket.socket:
        """Listen on the socket, which others may reach and no one may replace."""
        files.folder(self.path.parent)
        self.path.parent.chmod(0o711)
        listening = socket.socket(socket.AF_UNIX)
        try:
            with socket.socket(socket.AF_UNIX) as other:
                other.connect(str(self.path))
            raise UsageError("port-taken", path=self.path)
        except OSError:
            self.path.unlink(missing_ok=True)
        try:
            listening.bind(str(self.path))
        except OSError as error:
            why = f"'{self.path}': {error}. Move the site's folder to a shorter path"
            raise UsageError(f"[wrong-socket] {why}") from error
        self.path.chmod(0o666)
        listening.listen(16)
        listening.settimeout(0.5)
        return listening

    def _log(self, text: str) -> None:
        self._say(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}")


def described(content: bytes, answer: bytes) -> str:
    """Say in a line what was asked, and whether it was answered."""
    try:
        request = read_request(content)
        kinds = ", ".join(dict.fromkeys(request.kinds))
        what = f"run {shown(request.run, 20)} step {request.step}: {kinds}"
    except PFFLError:
        what = f"{len(content):,} bytes that are no query"
    if refusal := read_answer(answer).refusal:
        return f"{what}: REFUSED: {refusal}"
    return f"{what}: answered, {len(answer):,} bytes"


def _account(name: str | None) -> int:
    if name is None:
        return os.geteuid()
    import pwd

    try:
        return pwd.getpwnam(name).pw_uid if not name.isdecimal() else int(name)
    except KeyError as error:
        raise UsageError("unknown-account", name=name) from error
