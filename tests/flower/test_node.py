"""A site's node: who may start it, what it asks Flower for, and which code it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pffl.errors import UsageError
from tests.raising import raises

if sys.platform != "linux":
    pytest.skip("a node forks", allow_module_level=True)

ARGUMENTS = ["--superlink=127.0.0.1:1", "--port=9094"]


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global forks, node, known
    pytest.importorskip("flwr")
    from tests.inside import forks, known, node


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
    assert started == [("ours", [*ARGUMENTS, "--host", "127.0.0.1"])]


def test_another_version_of_flower_is_refused(started, monkeypatch, capsys) -> None:
    monkeypatch.setattr(node, "known", lambda: False)
    with pytest.raises(SystemExit) as ended:
        node.main()
    assert ended.value.code == UsageError.exit_code
    assert "1.41.x" in capsys.readouterr().err
    assert not started


LOADED = """
import sys
from importlib import import_module
from pffl.flower.executor import WARM
for name in WARM:
    import_module(name)
server = ("pffl.flower.server", "pffl.flower.transport",
          "pffl.cli", "pffl.reports", "pffl.datasets", "pffl.runs", "pffl.running",
          "pffl.config", "pffl.experiments")
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

    from tests.inside import executor

    text = "from flwr.clientapp import ClientApp\napp = ClientApp()\nother = 3\n"
    (tmp_path / "own_client_app.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(executor.named_app("own_client_app:app"), ClientApp)
    for wrong in ("nobody:app", "own_client_app:nothing", "own_client_app:other", "x"):
        with raises(UsageError, "cannot-load-app", wrong):
            executor.named_app(wrong)
    with pytest.raises(SystemExit) as ended:
        executor.serve("127.0.0.1:1", b"", forks.Bell(0), "nobody:app")
    assert ended.value.code == UsageError.exit_code
    assert "nobody:app" in capsys.readouterr().err
