"""Real Flower processes: what operators type, killed, crossed and cut short.

One small run is part of every test run: a greeting, a census and a refusal. The others
are slow: a message takes 6 to 10 seconds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import pffl
from pffl import config, runs
from pffl.deploy import Agreement
from tests.deploy.processes import (
    PRIVATE,
    PYTHON,
    ROOT,
    RUN_FILE,
    Net,
    _as,
    children,
    entries,
    environment,
    net,
    wait_for,
)
from tests.inside import prepared_rows

if sys.platform != "linux" or find_spec("flwr") is None:
    pytest.skip("needs Flower, and /proc", allow_module_level=True)

NEEDS_ROOT = pytest.mark.skipif(
    not ROOT,
    reason="two accounts a site: the tests must run as root to make them, with a "
    "Python that other accounts can run (PFFL_TEST_PYTHON names one)",
)
SOON = RUN_FILE + "\n[policy]\nseconds = 150.0\njoin_seconds = 240.0\n"


def local(made: Net) -> pffl.Solution:
    """The same run in one process, under secure sums, over the sites' own rows."""
    agreed = Agreement.read(made.study / "federation.json")
    known = {"schema_hash": agreed.schema.hash}
    silos = [
        replace(prepared_rows.read(made.site(k), name=name, **known), index=k)
        for k, name in enumerate(agreed.sites)
    ]
    job = config.load(made.folder / "run.toml").build()
    spec, data = job.spec, pffl.Federation(agreed.schema, tuple(silos), agreed.name)
    known = {"model": job.model, "method": spec.method, "options": spec.options}
    return pffl.solve(data, spec.constraint, secure_sum=True, random_state=0, **known)


@pytest.mark.skipif(
    os.geteuid() == 0 and not ROOT,
    reason="a site does not run as root, and other accounts cannot run this Python",
)
def test_three_messages_over_flower():
    """Greeted, counted, refused: the smallest run over real processes."""
    text = SOON.replace("bound = 0.68", "bound = 0.68\nby = ['group']")
    with net(text, join=("--queries", "200")) as made:
        # A limit that is used up: the first query about a model is refused.
        for k in range(3):
            remembered(made, k, "answer", queries=200)
        made.start()
        made.run("out", code=5)
        said = (made.folder / "out.said").read_text()
        (site,) = re.findall(r"site 'site(\d)' refuses: 200 queries about", said)
        kinds = [e["kind"] for e in entries(made.folder / "out") if "asked" in e]
        assert kinds[:3] == ["hello", "holders", "census"]
        assert "REFUSED: 200 queries" in made.log(f"serve{site}")


def remembered(made: Net, k: int, kind: str, **counted: float) -> None:
    """Let a site have answered something before."""
    code = (
        "import json, sys; from pathlib import Path; from pffl.deploy.store import "
        "SiteMemory; SiteMemory(Path(sys.argv[1])).add(sys.argv[2], {'task': {}}, "
        "**json.loads(sys.argv[3]))"
    )
    words = [PYTHON, "-c", code, str(made.site(k)), kind, json.dumps(counted)]
    subprocess.run([*_as(made.account(k)), *words], check=True)


@pytest.fixture(scope="module")
def standing():
    """A federation that stands, for the tests that leave it as it was."""
    with net(SOON, proxy=nginx()) as made:
        made.start()
        yield made


def nginx() -> bool:
    return shutil.which("nginx") is not None


@pytest.fixture(scope="module")
def expected(standing):
    return local(standing)


def same_model(out: Path, expected: pffl.Solution) -> None:
    found = runs.read_run(out)
    assert found.verified
    np.testing.assert_allclose(found.w, expected.w, rtol=0, atol=1e-9)
    assert found.as_dict()["status"] == expected.status


@pytest.mark.slow
@NEEDS_ROOT
def test_a_whole_run_by_two_accounts_a_site(standing, expected):
    said = standing.pffl("deploy", "--check", standing.study)
    assert "✗" not in said
    assert "all 3 sites are there and take part" in said
    out = standing.run("whole")
    same_model(out, expected)
    seconds = [e["seconds"] for e in entries(out) if "asked" in e]
    print(f"{len(seconds)} messages, median {np.median(seconds):.1f} s")
    assert not list((standing.site(0) / "runs").glob("*"))


EVIL = """
import os, pathlib
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()

@app.query("pffl")
def query(message, context):
    found = []
    socket = pathlib.Path(context.node_config["socket"])
    site = socket.parent.parent / socket.parent.name.removesuffix(".socket")
    for path in (site, site / "site.key", site / "site.db", site / "rows.npz"):
        try:
            seen = path.read_bytes()[:9] if path.suffix else os.listdir(path)
            found.append(str(seen))
        except OSError as error:
            found.append(type(error).__name__)
    said = {"body": b"", "error": " ".join(found)[:70]}
    return Message(RecordDict({"pffl": ConfigRecord(said)}), reply_to=message)
"""


@pytest.mark.slow
@NEEDS_ROOT
def test_a_foreign_app_reads_nothing_at_a_site(standing, tmp_path):
    app = standing.study / "app" / "client_app.py"
    honest = app.read_text()
    app.write_text(EVIL)
    try:
        said = standing.pffl("deploy", "--check", standing.study, code=5)
    finally:
        app.write_text(honest)
    assert "PermissionError" in said
    assert "pffl site key" not in said


FAST_CLOCK = """
import datetime, sys
from pffl.deploy import coordinator
from pffl.cli import main

class Ahead(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=9)

coordinator.datetime = Ahead
sys.argv = ["pffl", "site", "show"]
main()
"""


def begun(made: Net, out: str, kinds: int) -> tuple[subprocess.Popen[str], Path]:
    """Start a run, and wait until it has had so many messages."""
    place = made.folder / out
    process = made.begin("run", made.study, "--out", place)

    def there() -> bool:
        path = place / "record.jsonl"
        return path.exists() and sum("asked" in e for e in entries(place)) >= kinds

    wait_for(there, f"message {kinds} of {out}", 400.0)
    return process, place


@pytest.mark.slow
@NEEDS_ROOT
@pytest.mark.parametrize("what", ["node", "serve"])
def test_kill_9_at_a_site_and_the_run_goes_on(standing, expected, what):
    process, out = begun(standing, f"kill-{what}", 3)
    standing.kill(f"{what}1")
    time.sleep(2.0)
    if what == "serve":
        standing.start_site(1)
    else:
        deadline = time.monotonic() + 150.0  # Flower lets it in after a minute
        while time.monotonic() < deadline and process.poll() is None:
            node = standing.processes.get("node1")
            if node is None or node.poll() is not None:
                standing.start_node(1)
            time.sleep(5.0)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    same_model(out, expected)
    if what == "node" and standing.processes["node1"].poll() is not None:
        standing.start_node(1)


@pytest.mark.slow
@NEEDS_ROOT
@pytest.mark.parametrize("what", ["serverapp", "superlink"])
def test_kill_9_at_the_server_and_resumed(standing, expected, what):
    process, out = begun(standing, f"kill-{what}", 5)
    link = standing.processes["link"].pid
    if what == "serverapp":
        (app,) = children(link, "serverapp")[:1]
        os.kill(app, signal.SIGKILL)
    else:
        standing.kill("link")
        standing.start_link()
    said, _ = process.communicate(timeout=400)
    assert process.returncode == 5, said
    assert "--resume" in said
    heard = sum("asked" in e for e in entries(out))
    time.sleep(30.0 if what == "superlink" else 0.0)  # nodes come back
    standing.pffl("run", "--resume", out)
    same_model(out, expected)
    assert sum("asked" in e for e in entries(out)) < 2 * heard + 12


@pytest.mark.slow
@NEEDS_ROOT
def test_a_skewed_clock_and_a_taken_port_are_named(standing):
    home = standing.home(0)
    known = {"user": standing.account(0), "at": home}
    said = standing.pffl("site", "show", **known)
    assert "differ by 0 s" in said or "differ by 1 s" in said
    words = [*_as(standing.account(0)), PYTHON, "-c", FAST_CLOCK]
    said = subprocess.run(
        words, cwd=home, env=environment(home), stdout=subprocess.PIPE, text=True
    ).stdout
    # The server's date is in whole seconds.
    assert re.search("differ by (9|10) s", said), said
    assert "set the clock" in said
    other = standing.pffl("site", "serve", **known, code=2)
    assert "another process answers" in other


@pytest.mark.slow
@NEEDS_ROOT
def test_private_mode_ends_with_exit_7_and_goes_on_after_a_raise():
    join = ("--epsilon", "9")
    text = PRIVATE + "\n[policy]\nseconds = 150.0\njoin_seconds = 240.0\n"
    with net(text, join=join) as made:
        made.join(1, "--epsilon", "9")
        # The third site has spent nearly all of its budget elsewhere.
        remembered(made, 2, "charge", mu2=1.9)
        made.start()
        out = made.run("private", code=7)
        said = (made.folder / "private.said").read_text()
        assert "site 'site2' refuses: privacy budget" in said
        made.kill("serve2")
        made.join(2, "--epsilon", "30")
        made.start_site(2)
        again = made.begin("run", "--resume", out)
        told, _ = again.communicate(timeout=600)
        assert again.returncode in (0, 4), told  # noise may leave a verdict open
        accounts = []
        for k in range(3):
            show = ("site", "show", "--json")
            said = json.loads(made.pffl(*show, user=made.account(k), at=made.home(k)))
            charged = [e for e in said if e["kind"] == "charge" and e["run"]]
            accounts.append([(e["mark"], e["mu2"]) for e in charged])
        assert accounts[0] == accounts[1] == accounts[2]
