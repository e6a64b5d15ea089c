"""Processors of a container, and threads of BLAS that are given back."""

from __future__ import annotations

import math
import sys
import threading

import pytest
from threadpoolctl import ThreadpoolController

import pffl
from pffl.callbacks import Callback
from pffl.driver import exchanges as conversation
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.flow import ask
from pffl.processors import blas_threads, free_memory, processors
from pffl.queries import Census
from tests.helpers import make_federation
from tests.raising import raises

V2 = "30 23 0:26 {start} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "31 23 0:27 {start} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
MEMORY = "32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def tree(root, groups, mounts, **limits):
    """Write a fake file system; limits are by path below /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    (root / "proc/self/mountinfo").write_text(mounts)
    for path, text in limits.items():
        file = root / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.fixture
def many(monkeypatch):
    monkeypatch.delenv("PFFL_THREADS", raising=False)
    monkeypatch.setattr(
        "os.sched_getaffinity", lambda pid: set(range(16)), raising=False
    )


WHOLE, SMALL = V2.format(start="/"), "200000 100000\n"
QUOTAS = [
    *[
        ("0::/\n", WHOLE, {"cpu.max": f"{quota}\n"}, expected)
        for quota, expected in (
            ("max 100000", 16),
            ("150000 100000", 2),
            ("50000 100000", 1),
            ("9900000 100000", 16),
        )
    ],
    (  # the tightest group above counts
        "0::/kube/pod/box\n",
        MEMORY + WHOLE,
        {
            "kube/cpu.max": "300000 100000\n",
            "kube/pod/cpu.max": "800000 100000\n",
            "kube/pod/box/cpu.max": "max 100000\n",
            "other/cpu.max": "100000 100000\n",
        },
        3,
    ),
    *[  # a mount that begins at the group
        (f"0::{path}\n", V2.format(start="/docker/abc"), {"cpu.max": SMALL}, 2)
        for path in ("/docker/abc", "/../elsewhere", "/gone")
    ],
    *[  # version 1
        (
            "9:memory:/m\n4:cpu,cpuacct:/docker/abc\n0::/\n",
            MEMORY + V1.format(start="/"),
            {
                "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": quota,
                "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
            },
            expected,
        )
        for quota, expected in (("250000\n", 3), ("-1\n", 16))
    ],
]


@pytest.mark.parametrize(("groups", "mounts", "files", "expected"), QUOTAS)
def test_a_containers_quota_is_respected(
    tmp_path, many, groups, mounts, files, expected
):
    assert processors(tree(tmp_path, groups, mounts, **files)) == expected


def test_a_system_without_control_groups(tmp_path, many):
    assert processors(tmp_path) == 16


@pytest.mark.parametrize("present", [["process_cpu_count"], []])
def test_systems_without_affinity_have_processors_too(monkeypatch, tmp_path, present):
    monkeypatch.delenv("PFFL_THREADS", raising=False)
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    monkeypatch.delattr("os.process_cpu_count", raising=False)
    for name in present:
        monkeypatch.setattr(f"os.{name}", lambda: 3, raising=False)
    assert processors(tmp_path) == (3 if present else 5)


def test_the_environment_overrides(tmp_path, many, monkeypatch):
    monkeypatch.setenv("PFFL_THREADS", " 5 ")
    assert processors(tmp_path) == 5
    assert Local(make_federation(0))._spread.threads == 5
    for wrong in ("0", "-2", "two", "1.5"):
        monkeypatch.setenv("PFFL_THREADS", wrong)
        with raises(UsageError, "wrong-value", wrong):
            processors(tmp_path)


# BLAS


def numbers():
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return {library.filepath: library.num_threads for library in found}


@pytest.fixture
def three():
    """BLAS with three threads, as a user may have set."""
    import scipy.linalg  # noqa: F401, so that its library is there as well

    with ThreadpoolController().limit(limits=3, user_api="blas"):
        if set(numbers().values()) != {3}:
            pytest.skip("BLAS here does not take three threads")
        yield


class Seen(Callback):
    def __init__(self):
        self.seen = []

    def after_round(self, row):
        self.seen.append(numbers())
        return False


def test_a_run_has_one_thread_and_gives_the_others_back(three):
    seen = Seen()
    pffl.solve(make_federation(0), pffl.BoundedGroupLoss(0.6), seed=0, callbacks=[seen])
    assert seen.seen
    assert all(set(found.values()) == {1} for found in seen.seen)
    assert set(numbers().values()) == {3}


def test_somebody_elses_loop_keeps_its_threads(three):
    federation = make_federation(0)
    inside = []

    def flow():
        inside.append(numbers())
        total = yield from ask(Census(federation.schema))
        inside.append(numbers())
        return total

    exchanges = conversation(flow())
    queries = exchanges.send(None)
    assert set(numbers().values()) == {3}
    with pytest.raises(StopIteration):
        exchanges.send(Local(federation).ask_many(queries))
    assert all(set(found.values()) == {1} for found in inside)
    assert set(numbers().values()) == {3}


def test_an_error_gives_the_threads_back(three):
    with pytest.raises(ZeroDivisionError), blas_threads(1):
        raise ZeroDivisionError
    assert set(numbers().values()) == {3}


@pytest.mark.parametrize("last", ["first", "second"])
def test_runs_side_by_side_give_back_what_was_there_first(three, last):
    entered, go_on = threading.Event(), threading.Event()

    def other():
        with blas_threads(1):
            entered.set()
            go_on.wait(10)

    thread = threading.Thread(target=other)
    with blas_threads(1):
        thread.start()
        assert entered.wait(10)
        assert set(numbers().values()) == {1}
        if last == "first":
            go_on.set()
            thread.join()
    go_on.set()
    thread.join()
    assert set(numbers().values()) == {3}


def test_fewer_threads_stay_fewer(three):
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        with blas_threads(8):
            assert set(numbers().values()) == {2}
        assert set(numbers().values()) == {2}
    with blas_threads(1):
        pass
    assert set(numbers().values()) == {3}


def test_a_library_that_comes_later_is_held_as_well(three, monkeypatch):
    everything = ThreadpoolController().select(user_api="blas")
    *early, late = numbers()
    found = iter([everything.select(filepath=early), everything])
    monkeypatch.setattr("pffl.processors._look", lambda: next(found))
    monkeypatch.setitem(sys.modules, "brings none", threading)
    with blas_threads(1):
        assert numbers()[late] == 3
        monkeypatch.setitem(sys.modules, "brings a library", threading)
        with blas_threads(1):
            assert set(numbers().values()) == {1}
        assert set(numbers().values()) == {1}
    assert set(numbers().values()) == {3}


def test_free_memory_is_that_of_the_container(tmp_path) -> None:
    assert free_memory(tmp_path) == math.inf
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal: 9000 kB\nMemAvailable: 5000 kB\nSwapFree: 1000 kB\n"
    )
    assert free_memory(tmp_path) == 6000 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert free_memory(tmp_path) == 6000 * 1024
    (group / "memory.max").write_text("5000\n")
    assert free_memory(tmp_path) == 5000
