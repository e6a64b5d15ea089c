"""What answers a node's messages: one process for each, forked from a warm one.

Flower's SuperExec starts a new Python for every message, and with it more than a second
of imports for a hundredth of a second of work. Here everything is imported once, and a
message gets a fork of that. The loop that asks the node for tasks is Flower's own, with
the node's secret; so is what a task's process does, but for one thing: the app that
came with the message is neither installed nor imported. What answers is `client_app` of
the installed package.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from flwr.supercore.constant import TaskType
from flwr.supercore.exit import exit_handler
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.superexec import run_superexec as superexec
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult
from flwr.supercore.utils import disable_process_dumping
from flwr.supernode.runtime import run_clientapp as clientapp

from pffl.flower.client import client_app
from pffl.flower.pauses import RETRY

APP = client_app()
PARTS = 5.0  # seconds for the parts of a message, which the node has when it rings
WARM = (  # what is loaded only when it is needed: here that is for every message
    "cryptography.hazmat.backends.openssl.backend",
    "cryptography.hazmat.primitives.asymmetric.x25519",
    "cryptography.hazmat.primitives.ciphers",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "pffl.engines.local",
    "pffl.site.follow",
    "safetensors.numpy",
    "scipy.optimize",
    "scipy.sparse.csgraph",
    "threadpoolctl",
)


class Forks:
    """Flower's Executor: a task is answered by a fork of this process.

    The task's token stays in memory: whoever may list processes cannot read it.

    Parameters
    ----------
    bell
        Is told that there was a task, so that the next is asked for at once.
    """

    def __init__(self, bell: Bell) -> None:
        self.bell = bell

    def get_eligible_capacity(
        self, supported_task_types: set[TaskType], **_: object
    ) -> tuple[set[TaskType], set[str]]:
        """Return everything: what is no question of ours is answered by a refusal."""
        return supported_task_types, set()

    def wait_for_capacity(self, *_: object, **__: object) -> None:
        """Return at once: a node has one task at a time."""

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Fork."""
        self.bell.more = True
        if os.fork() == 0:
            _answer(spec)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Let go of the processes that have ended."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def close(self) -> None:
        """Nothing is held."""


class Bell:
    """Flower's `time` in the loop that asks for tasks: wakes up when the node says so.

    Parameters
    ----------
    pipe
        Where the node writes a byte for every message; at its end the node is gone.
    """

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.more = False  # a message that was dropped leaves its task behind

    def sleep(self, seconds: float) -> None:
        """Wait for the node: its word is sooner than any number of seconds."""
        del seconds
        if not self.more and not os.read(self.pipe, 4096):
            raise SystemExit(0)
        self.more = False


def start(address: str, secret: bytes) -> tuple[int, int]:
    """Start the executor of a node; return its process, and the pipe of its bell.

    To be called while this process has one thread.
    """
    heard, told = os.pipe()
    process = os.fork()
    if process:
        os.close(heard)
        return process, told
    os.close(told)
    code = 1
    try:
        _serve(address, secret, Bell(heard))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def _serve(address: str, secret: bytes, bell: Bell) -> None:
    for name in WARM:
        import_module(name)
    disable_process_dumping(strict=False)
    _replace(clientapp, "install_from_fab", lambda *_, **__: None)
    _replace(clientapp, "get_load_client_app_fn", lambda **_: lambda *__: APP)
    pull = partial(
        pull_and_inflate_object_from_tree,
        max_time=PARTS,
        initial_backoff=RETRY,
    )
    _replace(clientapp, "pull_and_inflate_object_from_tree", pull)
    _replace(superexec, "get_executor", lambda *_, **__: Forks(bell))
    _replace(superexec, "time", bell)
    bell.sleep(0)  # only then is it the node, and nobody else, who has its port
    superexec.run_superexec(address, insecure=True, superexec_auth_secret=secret)


def _answer(spec: ExecutionSpec) -> NoReturn:
    """Answer one message, and end this process."""
    code = 1
    try:
        exit_handler.registered_exit_handlers.clear()  # those of the loop
        clientapp.run_clientapp(
            runtime_api_address=spec.runtime_api_address,
            token=spec.token,
            insecure=spec.insecure,
            parent_pid=spec.parent_pid,
        )
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _replace(module: Any, name: str, value: object) -> None:
    """Give a module of Flower's another value for a name that it has."""
    getattr(module, name)
    setattr(module, name, value)
