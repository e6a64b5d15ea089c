"""A deployed federation as real processes on loopback: what operators type, typed.

Every site has two accounts where the tests run as root (numbers, without names): one
with the rows, which runs `pffl site`, and one for Flower's node. They must be able to
run Python: where the tests' own lies in root's home, PFFL_TEST_PYTHON names another one
with pffl and Flower. Every process is ended by its id, with whatever it started, also
when a test fails.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pffl.datasets import synthetic

PYTHON = os.environ.get("PFFL_TEST_PYTHON", sys.executable)
BIN = Path(PYTHON).parent
PATIENCE = 120.0  # seconds for a process to come up
MINUTES = 900.0  # seconds for a run: the machine may be busy with other things
RUN_FILE = """
[data]
name = "synthetic"
rows = 1500
silos = 3
seed = 1

[constraint]
kind = "bgl"
bound = 0.68

[method]
kind = "exact"

[run]
seed = 0
baseline = false
"""

REGISTER = (
    "import sys; from pathlib import Path; from pffl.deploy.coordinator import Launch; "
    "Launch(Path(sys.argv[1]), Path()).register()"
)
HIGHEST = {"number": 100, "flag": 1, "count": 10}
RANGES = [f'"{name} {k}" = [0, {HIGHEST[name]}]' for name in HIGHEST for k in (1, 2, 3)]
PRIVATE = f"""{RUN_FILE.replace("rows = 1500", "rows = 6000")}
[privacy]
epsilon = 4.0

[privacy.ranges]
"number 4" = [0, 100]
{chr(10).join(RANGES)}
"""


def write_rows(study: Path, run_file: str, names: Sequence[str]) -> None:
    """Write the rows of a run file's silos as tables, as docs/deploy.md does."""
    known = {**tomllib.loads(run_file)["data"], "as_frame": True}
    assert known.pop("name") == "synthetic"
    known["random_state"] = known.pop("seed")
    X, y, group, about = synthetic(**known)
    table = X.join([group, y.map("class {}".format), about])
    (study / "rows").mkdir()
    for name, (_, part) in zip(names, table.groupby("silo"), strict=False):
        part.to_csv(study / "rows" / f"{name}.csv", index=False)


class Net:
    """A coordinator and sites, each with processes of its own.

    Parameters
    ----------
    folder
        A new folder for everything; other accounts must reach it.
    run_file
        Text of the run file; its silos are shared out to the sites.
    join
        Options of `pffl site join`, for all sites.
    proxy
        Whether nodes reach the SuperLink through nginx.
    """

    def __init__(
        self,
        folder: Path,
        run_file: str = RUN_FILE,
        *,
        sites: int = 3,
        join: tuple[str, ...] = (),
        proxy: bool = False,
    ) -> None:
        self.folder, self.proxy = folder, proxy
        folder.chmod(0o755)
        self.names = [f"site{k}" for k in range(sites)]
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.started: list[subprocess.Popen[str]] = []
        lines = [self._init(k, name) for k, name in enumerate(self.names)]
        (folder / "lines.txt").write_text("".join(lines))
        (folder / "run.toml").write_text(run_file)
        self.study = folder / "study"
        self.port = free_ports()
        self.pffl(
            "deploy",
            folder / "run.toml",
            *("--sites", folder / "lines.txt", "-o", self.study),
            *("--address", f"127.0.0.1:{self.port}"),
        )
        write_rows(self.study, run_file, self.names)
        for path in (self.study, self.study / "rows", self.study / "federation.json"):
            path.chmod(0o755)
        for k in range(sites):
            self.join(k, *join)

    def account(self, k: int, *, node: bool = False) -> int | None:
        """The number of a site's account, or of its node's; None if not root."""
        return 41000 + 2 * k + node if ROOT else None

    def home(self, k: int) -> Path:
        """The home of a site's account."""
        return self.folder / f"home{k}"

    def site(self, k: int) -> Path:
        """A site's folder."""
        return self.home(k) / self.names[k]

    def node(self, k: int) -> Path:
        """The folder of a site's node."""
        return self.home(k) / f"{self.names[k]}.node"

    def _init(self, k: int, name: str) -> str:
        self.home(k).mkdir()
        user = self.account(k)
        if user is not None:
            os.chown(self.home(k), user, user)
        return self.pffl("site", "init", name, user=user, at=self.home(k))

    def join(self, k: int, *options: str, code: int = 0, **more: str) -> str:
        """Let a site join, or try to; return what it was told."""
        rows = self.study / "rows" / f"{self.names[k]}.csv"
        return self.pffl(
            *("site", "join", self.study / "federation.json", "--rows", rows),
            *("--yes", "--trust-keys", *options),
            user=self.account(k),
            at=self.home(k),
            code=code,
        )

    def pffl(
        self, *words: object, user: int | None = None, at: Path | None = None, code=0
    ) -> str:
        """Type a command of ours; return what it prints, errors included if any."""
        done = subprocess.run(
            [*_as(user), str(BIN / "pffl"), *map(str, words)],
            cwd=at or self.folder,
            env=environment(at or self.folder),
            capture_output=True,
            text=True,
            timeout=MINUTES,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{words}: {done.returncode}: {said}"
        return done.stdout if code == 0 else said

    # Processes

    def start(self) -> None:
        """Start everything."""
        self.start_link()
        if self.proxy:
            self.start_proxy()
        for k in range(len(self.names)):
            self.start_site(k)
        self.register()
        for k in range(len(self.names)):
            self.start_node(k)

    def start_link(self) -> None:
        """Start the SuperLink."""
        self.spawn("link", [str(self.study / "server" / "superlink.sh")])
        wait_for(lambda: listening(self.port + 1), "the SuperLink")

    def start_proxy(self) -> None:
        """Start nginx."""
        server = str(self.study / "server")
        nginx = shutil.which("nginx") or "nginx"
        self.spawn("proxy", [nginx, "-p", f"{server}/", "-c", "nginx.conf"])
        wait_for(lambda: listening(self.port), "the proxy")

    def register(self) -> None:
        """Let the nodes in."""
        known = {"env": environment(self.folder), "check": True, "timeout": PATIENCE}
        subprocess.run([PYTHON, "-c", REGISTER, str(self.study)], **known)

    def start_site(self, k: int, *options: str) -> None:
        """Start `pffl site serve`."""
        node = self.account(k, node=True)
        more = () if node is None else ("--node-account", str(node))
        words = [str(BIN / "pffl"), "site", "serve", *more, *options]
        self.spawn(f"serve{k}", words, user=self.account(k), at=self.home(k))
        path = self.home(k) / f"{self.names[k]}.socket" / "pffl.sock"
        wait_for(path.exists, f"site {k}")

    def start_node(self, k: int) -> None:
        """Start Flower's node of a site, as its account."""
        user, place = self.account(k, node=True), self.node(k)
        if user is not None:
            for path in (place, *place.rglob("*")):
                os.chown(path, user, user)
        path = self.home(k) / f"{self.names[k]}.socket" / "pffl.sock"
        words = [
            str(BIN / "flower-supernode"),
            f"--superlink=127.0.0.1:{self.port + (not self.proxy)}",
            f"--root-certificates={path.with_name('ca.crt')}",
            f"--auth-supernode-private-key={place / 'node_key'}",
            f'--node-config=socket="{path}"',
            f"--port={free_ports()}",
        ]
        self.spawn(f"node{k}", words, user=user, at=place)

    def spawn(
        self, name: str, words: list[str], user: int | None = None, at=None
    ) -> None:
        """Start a process with a log."""
        place = at or self.folder
        home = {"FLWR_HOME": str(place / "flwr")} if name.startswith("node") else {}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = self._started([*_as(user), *words], place, log, home)

    def begin(self, *words: object) -> subprocess.Popen[str]:
        """Start a command of ours, and do not wait for it."""
        words = (BIN / "pffl", *words)
        return self._started([*map(str, words)], self.folder, subprocess.PIPE, {})

    def _started(self, words: list[str], place: Path, out, more) -> subprocess.Popen:
        """Start a process in a group of its own."""
        made = subprocess.Popen(
            words,
            cwd=place,
            env=environment(place) | more,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.started.append(made)
        return made

    def run(self, out: str = "run", *options: str, code: int = 0) -> Path:
        """`pffl run` of the study; return the run directory."""
        place = self.folder / out
        said = self.pffl("run", self.study, "--out", place, *options, code=code)
        (self.folder / f"{out}.said").write_text(said)
        return place

    def log(self, name: str) -> str:
        """What a process has said."""
        path = self.folder / f"{name}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a process and all that it started."""
        end(self.processes.pop(name), number)

    def stop(self) -> None:
        """End everything."""
        for process in self.started:
            end(process, signal.SIGKILL)
        for pid in strays(str(self.folder)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def net(*words, **options) -> Iterator[Net]:
    """A federation that ends with the test; what processes said is shown if it fails.

    In a folder of its own: other accounts cannot look into pytest's.
    """
    folder = Path(tempfile.mkdtemp(prefix="pffl-net-"))
    made = Net.__new__(Net)
    made.started = []
    try:
        made.__init__(folder, *words, **options)
        yield made
    except BaseException:
        for path in sorted(folder.glob("*.log")):
            print(f"--- {path.name}\n{path.read_text('utf-8', 'replace')[-3000:]}")
        raise
    finally:
        made.folder = folder
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _as(user: int | None) -> list[str]:
    if user is None:
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]


def accounts() -> bool:
    """Whether other accounts can be made, and can run this Python and its commands."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return False
    words = [*_as(41000), "/bin/sh", "-c", f"{PYTHON} -c 'import ssl, pffl, flwr'"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


ROOT = accounts()


def environment(home: Path) -> dict[str, str]:
    """What every process is started with: nothing calls home."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if "proxy" not in name.lower()
        and not name.startswith(("FLWR", "PYTEST", "COV", "XDG"))
    }
    switches = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "COLUMNS": "200",
    }
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    return kept | switches | {"PATH": path, "HOME": str(home), "TMPDIR": "/tmp"}  # noqa: S108


def free_ports() -> int:
    """A port that is free, and the one after it."""
    for _ in range(50):
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with suppress(OSError):
                other.bind(("127.0.0.1", port + 1))
                return port
    raise AssertionError("no free ports")


def listening(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as one:
        one.settimeout(1.0)
        return one.connect_ex(("127.0.0.1", port)) == 0


def wait_for(what: Callable[[], object], name: str, seconds: float = PATIENCE) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"{name} did not come in {seconds:g} s"
        time.sleep(0.2)


def end(process: subprocess.Popen[bytes], number: int) -> None:
    """End a process and its group."""
    if process.poll() is None or number == signal.SIGKILL:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    with suppress(subprocess.TimeoutExpired):
        process.wait(20.0)


def running() -> Iterator[tuple[int, str, str]]:
    """Every process: its command, and what it was started with."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parts = [(place / name).read_bytes() for name in ("cmdline", "environ")]
            yield (
                int(place.name),
                *(p.replace(b"\0", b" ").decode("utf-8", "replace") for p in parts),
            )


def strays(mark: str) -> list[int]:
    """Processes of a test's own folder that left their group."""
    own = os.getpid()
    return [pid for pid, *told in running() if mark in str(told) and pid != own]


def children(pid: int, what: str) -> list[int]:
    """Processes below another one whose command has a word."""
    return [p for p, words, _ in running() if what in words and pid in _above(p)]


def _above(pid: int) -> list[int]:
    found = []
    with suppress(OSError):
        while pid > 1:
            text = Path(f"/proc/{pid}/stat").read_text()
            pid = int(text.rpartition(")")[2].split()[1])
            found.append(pid)
    return found


def entries(out: Path) -> list[dict]:
    """The record of a run so far."""
    path = out / "record.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
