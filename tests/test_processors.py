"""Processors of a container, and threads of BLAS that are given back."""

from __future__ import annotations

import threading

import pytest
from threadpoolctl import ThreadpoolController

import pffl
from pffl.callbacks import Callback
from pffl.errors import UsageError
from pffl.processors import blas_threads, processors
from tests.helpers import make_federation
from tests.raising import raises


@pytest.fixture
def many(monkeypatch):
    monkeypatch.delenv("PFFL_THREADS", raising=False)
    monkeypatch.setattr(
        "os.sched_getaffinity", lambda pid: set(range(16)), raising=False
    )


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 16), ("150000 100000", 2), ("50000 100000", 1), (None, 16)],
)
def test_a_containers_quota_is_respected(tmp_path, many, quota, expected):
    if quota:
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/cpu.max").write_text(f"{quota}\n")
    assert processors(tmp_path) == expected


def test_the_environment_overrides(tmp_path, many, monkeypatch):
    monkeypatch.setenv("PFFL_THREADS", " 5 ")
    assert processors(tmp_path) == 5
    for wrong in ("0", "two"):
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
    pffl.solve(
        make_federation(0), pffl.BoundedGroupLoss(0.6), random_state=0, callbacks=[seen]
    )
    assert seen.seen
    assert all(set(found.values()) == {1} for found in seen.seen)
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
