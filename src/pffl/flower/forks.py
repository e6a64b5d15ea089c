"""Processes for Flower's tasks, forked from a warm one.

Flower's SuperExec starts a new Python for every task, and with it seconds of imports.
Here everything is imported once, and a task gets a fork of that. The loop that asks for
tasks is Flower's own, with the secret of whoever gives them out; it is woken by a pipe
instead of looking again and again. Nodes answer messages so (`executor`), and the
SuperLink runs ServerApps (`serverapps`).
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from flwr.supercore.constant import TaskType
from flwr.supercore.exit import exit_handler
from flwr.supercore.superexec import run_superexec as superexec
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult
from flwr.supercore.utils import disable_process_dumping

SECRET = "executor_secret"  # noqa: S105 - the name of its file


class Forks:
    """Flower's Executor: a task is done by a fork of this process.

    The task's token stays in memory: whoever may list processes cannot read it.

    Parameters
    ----------
    bell
        Is told that there was a task, so that the next is asked for at once.
    work
        What the fork does.
    """

    def __init__(self, bell: Bell, work: Callable[[ExecutionSpec], object]) -> None:
        self.bell = bell
        self.work = work

    def get_eligible_capacity(
        self, supported_task_types: set[TaskType], **_: object
    ) -> tuple[set[TaskType], set[str]]:
        """Return everything: what is no task of ours is refused by its process."""
        return supported_task_types, set()

    def wait_for_capacity(self, *_: object, **__: object) -> None:
        """Return at once: there are few tasks at a time."""

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Fork."""
        self.bell.more = True
        if os.fork() == 0:
            self._work(spec)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Let go of the processes that have ended."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def close(self) -> None:
        """Nothing is held."""

    def _work(self, spec: ExecutionSpec) -> NoReturn:
        """Do one task, and end this process."""
        code = 1
        try:
            exit_handler.registered_exit_handlers.clear()  # those of the loop
            self.work(spec)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


class Bell:
    """Flower's `time` in the loop that asks for tasks: wakes up when it is told to.

    Parameters
    ----------
    pipe
        Where a byte is written for every task; at its end whoever writes is gone.
    idle
        Seconds after which the loop looks unasked; None: never.
    """

    def __init__(self, pipe: int, idle: float | None = None) -> None:
        self.pipe = pipe
        self.idle = idle
        self.more = False  # a message that was dropped leaves its task behind

    def sleep(self, seconds: float) -> None:
        """Wait for a word: it is sooner than any number of seconds."""
        del seconds
        if not self.more:
            there, _, _ = select.select([self.pipe], [], [], self.idle)
            if there and not os.read(self.pipe, 4096):
                raise SystemExit(0)
        self.more = False


def start(
    serve: Callable[[Bell], object], idle: float | None = None
) -> tuple[int, int]:
    """Start a process that does tasks; return its id, and the pipe of its bell.

    To be called while this process has one thread.

    Parameters
    ----------
    serve
        What it does.
    idle
        Seconds after which it looks for tasks unasked.
    """
    heard, told = os.pipe()
    process = os.fork()
    if process:
        os.close(heard)
        return process, told
    os.close(told)
    code = 1
    try:
        serve(Bell(heard, idle))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def loop(
    bell: Bell,
    work: Callable[[ExecutionSpec], object],
    warm: Sequence[str],
    address: str,
    **given: Any,
) -> None:
    """Do tasks until the bell's other end is gone, or whoever started this process.

    Parameters
    ----------
    bell
        Tells that there is a task.
    work
        What a task's process does.
    warm
        Modules that are loaded ahead.
    address
        Who gives tasks out.
    **given
        What Flower's loop needs besides.
    """
    parent = os.getppid()
    for name in warm:
        import_module(name)
    disable_process_dumping(strict=False)
    replace(superexec, "get_executor", lambda *_, **__: Forks(bell, work))
    replace(superexec, "time", bell)
    bell.sleep(0)  # only then is it known who has the port
    superexec.run_superexec(address, parent_pid=parent, **given)


def replace(module: Any, name: str, value: object) -> None:
    """Give a module of Flower's another value for a name that it has."""
    getattr(module, name)
    setattr(module, name, value)
