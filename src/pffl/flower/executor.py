"""What answers a node's messages: one process for each, forked from a warm one.

What a message's process does is Flower's own, but for one thing: the app that came with
the message is neither installed nor imported. What answers is `client_app` of the
installed package, or a ClientApp that whoever runs the node names.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module

import numpy as np
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.superexec.executor import ExecutionSpec
from flwr.supernode.runtime import run_clientapp as clientapp

from pffl.errors import UsageError
from pffl.flower.client import client_app
from pffl.flower.forks import Bell, loop, replace
from pffl.flower.pauses import RETRY
from pffl.flower.whole import answer_whole

PARTS = 5.0  # seconds for the parts of a message, which the node has when it rings
WARM = (  # what is loaded only when it is needed: here that is for every message
    "cryptography.hazmat.backends.openssl.backend",
    "cryptography.hazmat.primitives.asymmetric.x25519",
    "cryptography.hazmat.primitives.ciphers",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "pffl.engines.local",
    "pffl.site.terms",
    "safetensors.numpy",
    "scipy.optimize",
    "threadpoolctl",
)


def serve(address: str, secret: bytes, bell: Bell, own: str | None = None) -> None:
    """Answer the messages of the node at an address.

    Parameters
    ----------
    address, secret
        Of the node.
    bell
        Tells that there is a message.
    own
        A ClientApp to answer with, as ``module:name``.
    """
    app = client_app() if own is None else _loaded(own)
    replace(clientapp, "install_from_fab", lambda *_, **__: None)
    replace(clientapp, "get_load_client_app_fn", lambda **_: lambda *__: app)
    pull = partial(
        pull_and_inflate_object_from_tree,
        max_time=PARTS,
        initial_backoff=RETRY,
    )
    replace(clientapp, "pull_and_inflate_object_from_tree", pull)
    answer_whole(clientapp, pull)
    warm = WARM if own is None else ()
    loop(bell, _answer, warm, address, insecure=True, superexec_auth_secret=secret)


def named_app(reference: str) -> ClientApp:
    """Return the ClientApp of a reference, ``module:name``."""
    module, _, name = reference.partition(":")
    try:
        found: object = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"[cannot-load-app] --app: {reference!r} cannot be loaded ({error}): give "
            "module:name of a ClientApp that is installed here, or lies in the "
            "current folder"
        ) from error
    if not isinstance(found, ClientApp):
        raise UsageError(
            f"[cannot-load-app] --app: {reference!r} is no ClientApp, but {type(found)}"
        )
    return found


def _loaded(reference: str) -> ClientApp:
    """Return a ClientApp, or end this process and say why."""
    try:
        return named_app(reference)
    except Exception as error:
        print(f"pffl: {error}", file=sys.stderr, flush=True)
        raise SystemExit(UsageError.exit_code) from None


def _answer(spec: ExecutionSpec) -> None:
    np.random.seed()  # noqa: NPY002 - a fork draws what its parent would: not twice
    clientapp.run_clientapp(
        runtime_api_address=spec.runtime_api_address,
        token=spec.token,
        insecure=spec.insecure,
        parent_pid=spec.parent_pid,
    )
