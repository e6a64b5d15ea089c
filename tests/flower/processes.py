"""A deployed federation as real processes on the loopback interface.

The folders are those that `pffl deploy` writes. Every process is ended by its id, with
whatever it started, also when a test fails.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pffl import config
from pffl.records import read_toml
from pffl.site import SiteConfig, prepare
from tests.cli.helpers import program
from tests.inside import Address, deploy

SWITCHES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    "OMP_NUM_THREADS": "1",
    "PFFL_ALLOW_ROOT": "1",  # CI is a container
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}
LINK = "trial"
PATIENCE = 120.0  # seconds for a process to come up
MINUTES = 600.0  # seconds for a run: the machine may be busy with other things


def unlimited(site: Path) -> SiteConfig:
    """Let a site's rows be asked about in as many runs as tests have."""
    path = site / "site.toml"
    path.write_text(path.read_text().replace("runs = 100", "runs = 10000"))
    return SiteConfig.load(site)


class Net:
    """A SuperLink and SuperNodes, with TLS, registered keys and a database.

    Parameters
    ----------
    folder
        A new folder for everything.
    run_file
        Text of the run file; its data are shared out to the sites.
    limited
        Whether sites keep to the numbers that they let out by default.
    """

    def __init__(self, folder: Path, run_file: str, *, limited: bool = False) -> None:
        self.folder = folder
        self.home = folder / "flwr"
        self.home.mkdir(parents=True)
        self.port = free_port()
        self.ports: dict[str, int] = {}  # of the nodes, by name
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.started: list[subprocess.Popen[bytes]] = []
        self.app, self.sites = self.write(run_file, "deployment", data=True)
        self.server = self.app.parent / "server"
        for site in self.sites.values():
            prepare(SiteConfig.load(site) if limited else unlimited(site))
        self.write_connection(self.server / "ca.crt")

    def write(
        self, run_file: str, name: str, *, data: bool = False
    ) -> tuple[Path, Mapping[str, Path]]:
        """Write a deployment; return its app and its sites."""
        path = self.folder / f"{name}.toml"
        path.write_text(run_file)
        made = deploy(
            config.load(path),
            read_toml(path),
            self.folder / name,
            address=Address.parse(self.address),
            trial_certificates=data,
            trial_data=data,
        )
        return made.folder / "app", made.sites

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What every process is started with."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if "proxy" not in name.lower() and not name.startswith(("FLWR", "PYTEST"))
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return kept | SWITCHES | {"FLWR_HOME": str(self.home), "PATH": path}

    def write_connection(self, authority: Path) -> None:
        """Tell the `flwr` command where the SuperLink is."""
        trust = f'root-certificates = "{authority}"'
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "{LINK}"\n\n'
            f'[superlink.{LINK}]\naddress = "{self.address}"\n{trust}\n'
        )

    def start(self) -> None:
        """Start everything, and let the sites in."""
        self.start_link()
        self.register(*self.sites)
        for name in self.sites:
            self.start_node(name)

    def start_link(self, server: Path | None = None) -> None:
        """Start the SuperLink."""
        server = server or self.server
        self.spawn(
            "link",
            "python",
            "-m",
            "pffl.flower.superlink",  # as start.sh does
            f"--ssl-ca-certfile={server / 'ca.crt'}",
            f"--ssl-certfile={server / 'server.crt'}",
            f"--ssl-keyfile={server / 'server.key'}",
            "--enable-supernode-auth",
            f"--database={self.folder / 'link.db'}",
            "--disable-runtime-dependency-installation",
            "--host=127.0.0.1",
            f"--port={self.port}",
        )
        wait_for(self.listening, "the SuperLink", PATIENCE)

    def listening(self) -> bool:
        """Whether somebody answers at the SuperLink's port."""
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def register(self, *names: str) -> None:
        """Make the keys of sites known to the SuperLink, all at once."""
        calls = []
        for name in names:
            key = self.sites[name] / "node_key.pub"
            command = [*FLWR, "supernode", "register", str(key), LINK]
            calls.append(
                subprocess.Popen(
                    command, env=self.environment, stdout=-1, stderr=-1, text=True
                )
            )
        for call in calls:
            said = call.communicate(timeout=PATIENCE)
            assert call.returncode == 0, said

    def start_node(self, name: str, **given: object) -> subprocess.Popen[bytes]:
        """Start a node as start.sh does; `given` replaces what it presents or believes.

        With ``plain=True`` it is Flower's own.
        """
        site = self.sites[name]
        key = given.get("key", site / "node_key")
        authority = given.get("authority", site / "ca.crt")
        secure = [f"--root-certificates={authority}"] if authority else ["--insecure"]
        program = ["python", "-m", "pffl.flower.node"]
        if given.get("plain"):
            program = ["flower-supernode", "--host=127.0.0.1"]
        self.ports[name] = free_port()
        return self.spawn(
            str(given.get("log", name)),
            *program,
            f"--superlink={self.address}",
            f"--port={self.ports[name]}",
            f"--node-config=site='{site}'",
            *secure,
            *([f"--auth-supernode-private-key={key}"] if key else []),
            folder=site,
        )

    def spawn(
        self, name: str, program: str, *rest: str, folder: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that writes to a log of its own."""
        command = [str(Path(sys.executable).parent / program), *rest]
        with open(self.log_path(name), "ab") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                cwd=folder or self.folder,
            )
        self.processes[name] = process
        self.started.append(process)
        return process

    def call(
        self, *command: str, seconds: float = MINUTES
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=seconds,
            check=False,
        )

    def pffl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the `pffl` command to its end."""
        return self.call(*program(*arguments))

    def submit(self, app: Path, out: Path, *, resume: bool = False) -> int:
        """Start a run with Flower's own command, and return its id."""
        config = {"out": str(out), "resume": resume, "extras": False}
        pairs = " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())
        done = self.call(*FLWR, "run", str(app), LINK, "-c", pairs, "--format", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        return int(json.loads(done.stdout)["run-id"])

    def log_path(self, name: str) -> Path:
        """Where a process writes."""
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        """What a process wrote, without colours."""
        path = self.log_path(name)
        text = path.read_text(errors="replace") if path.exists() else ""
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    def logs(self) -> str:
        """The last of what all processes wrote."""
        names = sorted(path.stem for path in self.folder.glob("*.log"))
        return "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in names)

    def kill(self, name: str) -> None:
        """End a process and what it started, at once (SIGKILL)."""
        end_tree(self.processes.pop(name))

    def server_apps(self) -> list[int]:
        """Return the ids of the ServerApps' processes."""
        link = self.processes["link"].pid
        return [pid for pid in descendants(link) if pid not in children(link)]

    def stop(self) -> None:
        """End everything that was started here."""
        for process in reversed(self.started):
            end_tree(process)
        # A node that was turned away may leave its child behind: it has our home.
        for pid in with_environment(f"FLWR_HOME={self.home}"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


FLWR = (sys.executable, "-m", "flwr.cli.app")


@contextmanager
def running(folder: Path, run_file: str, *, limited: bool = False) -> Iterator[Net]:
    """A federation with all its sites, for the time of a `with`."""
    net = Net(folder, run_file, limited=limited)
    try:
        net.start()
        yield net
    finally:
        net.stop()


def entries(out: Path) -> list[dict]:
    """What the record of a run holds."""
    path = out / "record.jsonl"
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]  # the last line may be being written
    return [json.loads(line) for line in whole.splitlines()]


def ended(out: Path, after: int = 0) -> dict | None:
    """How a run ended, if it did, as its record says after so many entries."""
    last = [e for e in entries(out)[after:] if e.get("event") == "ended"]
    return last[-1] if last else None


def wait_for(condition, what: str, seconds: float = MINUTES):
    """Wait until something is so, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        time.sleep(0.2)
    return found


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants, and wait until it is gone.

    Flower's children watch their parent and leave when it is gone; those that were seen
    are ended anyway.
    """
    if process.poll() is not None:
        return
    below = descendants(process.pid)
    process.kill()
    process.wait(10)
    for pid in below:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Ids of the processes that a process started."""
    return _children().get(pid, [])


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def descendants(pid: int) -> list[int]:
    """Ids of the processes that a process started, and they, and so on."""
    started = _children()
    found, unseen = [], [pid]
    while unseen:
        below = started.get(unseen.pop(), [])
        found += below
        unseen += below
    return found


def with_environment(setting: str) -> list[int]:
    """Ids of the processes that were started with a setting."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            known = entry.name.isdigit() and (entry / "environ").read_bytes()
            if known and setting.encode() in known.split(b"\0"):
                found.append(int(entry.name))
    return found


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
