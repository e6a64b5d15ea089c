"""Settings that all tests share, and which of them are quick."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.cli.helpers import Command
    from tests.golden.runs import Golden

# Before NumPy is imported: with a worker for each core, further threads only spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests start Python some hundred times: what it compiled is kept, in containers too.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # nor are assertions rewritten at every start

# Machines differ in speed, results must not: no deadlines, and the same examples
# everywhere. A test that wants fewer or more examples says so itself.
settings.register_profile("pffl", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("pffl")

# Tests press Ctrl-C, which a shell lets its background jobs ignore.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).parent

#: What `pytest -m quick` runs: the core, in half a minute, without an extra but
#: `report` and `parquet`. tests/matrix.py runs it with other versions of everything.
QUICK = (
    "cli/test_app.py",
    "cli/test_own_table.py",
    "constraints",
    "data",
    "engines/test_reference.py",
    "evidence/test_schemas.py",
    "methods/test_exact.py",
    "methods/test_pffl.py",
    "models/test_base.py",
    "models/test_linear.py",
    "queries",
    "runs/test_directory.py",
    "test_elsewhere.py",
    "test_estimator.py",
    "test_files.py",
    "test_flow.py",
    "test_numerics.py",
    "test_package.py",
    "test_problem.py",
    "test_records.py",
    "test_registry.py",
    "test_config.py",
)
#: Tests in those files that take a second each, need an extra, or hold for the pinned
#: pydantic alone.
OTHERS = {
    "test_every_public_name_is_there",
    "test_false_answers_to_a_query_of_ones_own_are_refused",
    "test_functions_are_functions_in_any_order",
    "test_killed_at_every_message_and_resumed",
    "test_grid_search_routes_groups_to_fit_and_score",
    "test_the_best_multipliers_are_the_best_of_a_grid",
    "test_what_is_shipped_is_what_the_code_writes",
    "test_with_one_dual_round_the_gap_never_closes",
}


@pytest.fixture(scope="session", autouse=True)
def no_power_cuts() -> Iterator[None]:
    """Force nothing to the disk: that takes milliseconds, some ten thousand times.

    No test cuts the power. That files are forced, and when: tests/test_files.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """The command line, in a folder of the test's own."""
    from tests.cli.helpers import pffl

    monkeypatch.chdir(tmp_path)
    return lambda *arguments, **how: pffl(capsys, *arguments, **how)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """The golden runs: their figures, and a run directory; each computed once."""
    from tests.golden.runs import Golden

    return Golden(tmp_path_factory.mktemp("golden"))


@cache
def _is_quick(path: Path) -> bool:
    return any(path.is_relative_to(HERE / place) for place in QUICK)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what `-m quick` leaves out: torch alone takes seconds."""
    only_quick = config.option.markexpr == "quick"
    is_test = collection_path.name.startswith("test_")
    return True if only_quick and is_test and not _is_quick(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        slow = any(map(item.get_closest_marker, ("slow", "netns")))
        other = getattr(item, "originalname", item.name) in OTHERS
        if _is_quick(item.path) and not slow and not other:
            item.add_marker("quick")
