"""The app of examples/flower_torch, before and after: what the docs say of both.

``python -m tests.deploy.test_example`` writes the diff into docs/networks.md.
"""

from __future__ import annotations

import difflib
import logging
import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]
APPS = HERE / "examples" / "flower_torch"
PAGE = HERE / "docs" / "networks.md"
FENCE = re.compile(r"(<!-- diff of .* -->\n```diff\n).*?(```\n<!-- end -->)", re.S)
FILES = ("quickstart/task.py", "quickstart/client_app.py", "quickstart/server_app.py")


def changes() -> str:
    """The diff, without context."""
    out = []
    for name in FILES:
        old, new = ((APPS / side / name).read_text() for side in ("before", "after"))
        lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=0))[2:]
        kept = [line for line in lines if line[1:].strip() and line[:2] != "@@"]
        out += [f"  {name}", *kept]
    return "\n".join(out) + "\n"


def test_the_diff_of_the_docs_is_that_of_the_apps():
    found = FENCE.search(PAGE.read_text())
    assert found
    assert found.group(0) == f"{found.group(1)}{changes()}{found.group(2)}"


def test_at_most_fifteen_lines_are_changed_and_no_other_file():
    added = [line for line in changes().splitlines() if line.startswith("+")]
    assert len(added) <= 15
    for path in (APPS / "before").rglob("*"):
        other = APPS / "after" / path.relative_to(APPS / "before")
        name = str(path.relative_to(APPS / "before"))
        if path.is_file() and "__pycache__" not in name and name not in FILES:
            assert path.read_bytes() == other.read_bytes()


@pytest.fixture
def opened(monkeypatch):
    """Open the package `quickstart` of one of the apps."""
    pytest.importorskip("flwr")
    torch = pytest.importorskip("torch")
    from importlib import import_module

    def open_app(side: str):
        for name in [n for n in sys.modules if n.split(".")[0] == "quickstart"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(str(APPS / side))
        client = import_module("quickstart.client_app")
        return client.app, import_module("quickstart.server_app"), client.Net

    many = torch.get_num_threads()
    torch.set_num_threads(1)  # more are slower on so little
    yield open_app
    torch.set_num_threads(many)
    for name in [n for n in sys.modules if n.split(".")[0] == "quickstart"]:
        del sys.modules[name]


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_apps_run(side, opened, tmp_path, monkeypatch):
    """A few rounds, through the ServerApp's own function."""
    monkeypatch.chdir(tmp_path)
    app, server, _ = opened(side)
    from flwr.app import Context, RecordDict

    from tests.deploy.memory import MemoryGrid, travelled

    config = {"seed": 0, "local-epochs": 1, "learning-rate": 0.01}
    rounds = 2 if side == "before" else 8
    config |= {"num-server-rounds": rounds, "out": str(tmp_path / "run")}

    class Configured(MemoryGrid):
        def deliver(self, message):
            own, node = self.nodes[message.metadata.dst_node_id]
            context = Context(1, 1, dict(node), RecordDict(), config)
            return travelled(own(message, context))

    monkeypatch.setattr(logging.getLogger("flwr"), "disabled", True)
    grid = Configured({10 + k: (app, {"partition-id": k}) for k in range(3)})
    server.main(grid, Context(1, 1, {}, RecordDict(), config))
    assert (tmp_path / "final_model.pt").is_file()
    if side == "after":
        from pffl import runs, verify

        record = runs.read_run(tmp_path / "run")
        losses = [cell["train_loss"] for cell in record.as_dict()["cells"]]
        assert max(losses) < 0.75  # 1.0 without bounds; 25 rounds bring it under 0.68
        assert all(check.agrees for check in verify(tmp_path / "run"))


if __name__ == "__main__":
    page = PAGE.read_text()
    diff = changes()
    PAGE.write_text(FENCE.sub(lambda m: f"{m.group(1)}{diff}{m.group(2)}", page))
