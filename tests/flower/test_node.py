"""A site's node: who may start it, what it asks Flower for, and which code it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pffl.errors import UsageError

if sys.platform != "linux":
    pytest.skip("a node forks", allow_module_level=True)

ARGUMENTS = ["--superlink=127.0.0.1:1", "--port=9094"]


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global forks, node, known
    pytest.importorskip("flwr")
    from pffl.flower import forks, node
    from pffl.flower.pauses import known


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """What is started in the place of a node, by a user who is not root."""
    calls: list[object] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv(node.ALLOW_ROOT, raising=False)
    monkeypatch.setattr(node, "quick", lambda given: calls.append(("ours", given)))
    monkeypatch.setattr(sys, "argv", ["node", *ARGUMENTS])
    return calls


def test_the_installed_flower_is_known() -> None:
    assert known(), "try the node with this version, then list it in pauses.py"


def test_root_is_refused_unless_one_insists(started, monkeypatch, capsys) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for value in (None, "", "0", "yes"):
        if value is not None:
            monkeypatch.setenv(node.ALLOW_ROOT, value)
        with pytest.raises(SystemExit) as stopped:
            node.main()
        assert stopped.value.code == UsageError.exit_code
        assert "PFFL_ALLOW_ROOT=1" in capsys.readouterr().err
    assert not started
    monkeypatch.setenv(node.ALLOW_ROOT, "1")
    node.main()
    assert "the whole machine trusts this process" in capsys.readouterr().err
    assert started == [("ours", [*ARGUMENTS, "--host", "127.0.0.1"])]


def test_another_version_of_flower_is_refused(started, monkeypatch, capsys) -> None:
    monkeypatch.setattr(node, "known", lambda: False)
    with pytest.raises(SystemExit) as ended:
        node.main()
    assert ended.value.code == UsageError.exit_code
    assert "1.41.x" in capsys.readouterr().err
    assert not started


def test_a_busy_node_looks_often_and_an_idle_one_seldom(monkeypatch) -> None:
    clock, pauses = [0.0], []
    fake = SimpleNamespace(monotonic=lambda: clock[0], sleep=pauses.append)
    monkeypatch.setattr(node, "time", fake)
    waits = node.Pauses(0, 0)
    for silence in (0.0, 2.0, 3600.0):
        clock[0] = silence
        waits.look()
        waits.sleep(3)
    assert pauses == [node.SHORTEST, 0.5, node.LONGEST]
    clock[0] += 20.0  # the server held the look
    waits.sleep(3)
    assert len(pauses) == 3
    waits.sleep(0.5)
    assert pauses[-1] == node.REPLY


def test_a_node_ends_with_the_process_that_answers(monkeypatch, capsys) -> None:
    ended, raised = [(0, 0), (7, 9)], []
    monkeypatch.setattr(os, "waitpid", lambda *_: ended.pop(0))
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    waits = node.Pauses(7, 0)
    waits.lost(signal.SIGCHLD, None)
    assert not raised
    waits.lost(signal.SIGCHLD, None)
    assert raised == [signal.SIGTERM]
    assert "so does the node" in capsys.readouterr().err


def test_tasks_are_asked_for_until_there_is_none(monkeypatch) -> None:
    """A run that ends while a message is on its way leaves a task without parts."""
    heard, told = os.pipe()
    bell = forks.Bell(heard)
    made = forks.Forks(bell, lambda _: None)
    monkeypatch.setattr(os, "fork", lambda: 1)
    os.write(told, b".")
    bell.sleep(1)
    made.launch(None)  # the task that was left behind
    bell.sleep(1)  # does not wait: there may be another
    os.close(told)
    with pytest.raises(SystemExit):
        bell.sleep(1)
    os.close(heard)


def test_tasks_that_nobody_told_of_are_looked_for_now_and_then() -> None:
    heard, told = os.pipe()
    forks.Bell(heard, idle=0.01).sleep(3600)  # returns
    os.close(told)
    os.close(heard)


LOADED = """
import sys
from importlib import import_module
from pffl.flower.executor import WARM
for name in WARM:
    import_module(name)
server = ("pffl.flower.server", "pffl.flower.transport",
          "pffl.cli", "pffl.reports", "pffl.datasets", "pffl.runs", "pffl.running",
          "pffl.spec", "pffl.study")
print([name for name in sys.modules if name.startswith(server)])
"""


def test_a_site_loads_no_code_of_the_server() -> None:
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_app_of_ones_own_is_named_loaded_and_never_the_servers(
    started, monkeypatch, capsys, tmp_path
) -> None:
    from flwr.clientapp import ClientApp

    from pffl.flower import executor

    text = "from flwr.clientapp import ClientApp\napp = ClientApp()\nother = 3\n"
    (tmp_path / "own_client_app.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(executor.named_app("own_client_app:app"), ClientApp)
    for wrong in ("nobody:app", "own_client_app:nothing", "own_client_app:other", "x"):
        with pytest.raises(UsageError, match="--app"):
            executor.named_app(wrong)
    with pytest.raises(SystemExit) as ended:
        executor.serve("127.0.0.1:1", b"", forks.Bell(0), "nobody:app")
    assert ended.value.code == UsageError.exit_code
    assert "module:name of a ClientApp" in capsys.readouterr().err


def test_flower_is_not_told_of_the_app_and_the_fork_is(monkeypatch, tmp_path) -> None:
    import flwr.supernode.cli
    from flwr.supernode import fleet_http_connection, start_client_internal

    from pffl.flower import executor, whole

    served: list[object] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(executor, "serve", lambda *given: served.append(given))
    monkeypatch.setattr(forks, "start", lambda serve: (serve(None), (7, 8))[1])
    monkeypatch.setattr(whole, "carry", lambda *modules: served.append(modules))
    pull = start_client_internal._pull_and_store_message
    monkeypatch.setattr(start_client_internal, "_pull_and_store_message", pull)
    monkeypatch.setattr(start_client_internal, "time", None)
    command = sys.modules[flwr.supernode.cli.flower_supernode.__module__]
    monkeypatch.setattr(command, "flower_supernode", lambda: served.append(sys.argv))
    monkeypatch.setattr(sys, "argv", ["node"])
    before = signal.getsignal(signal.SIGCHLD)
    try:
        node.quick([*ARGUMENTS, "--app", "mine:app"])
    finally:
        signal.signal(signal.SIGCHLD, before)
    given, modules, arguments = served
    assert given[0] == "127.0.0.1:9094"
    assert given[3] == "mine:app"
    assert modules == (start_client_internal, fleet_http_connection)
    assert "--port=9094" in arguments
    assert not any("app" in one for one in arguments[2:])
