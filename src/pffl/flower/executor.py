"""What answers a node's messages: one process for each, forked from a warm one.

What a message's process does is Flower's own, but for one thing: the app that came with
the message is neither installed nor imported. What answers is `client_app` of the
installed package.
"""

from __future__ import annotations

from functools import partial

from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.superexec.executor import ExecutionSpec
from flwr.supernode.runtime import run_clientapp as clientapp

from pffl.flower.client import client_app
from pffl.flower.forks import Bell, loop, replace
from pffl.flower.pauses import RETRY
from pffl.flower.whole import answer_whole

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


def serve(address: str, secret: bytes, bell: Bell) -> None:
    """Answer the messages of the node at an address."""
    replace(clientapp, "install_from_fab", lambda *_, **__: None)
    replace(clientapp, "get_load_client_app_fn", lambda **_: lambda *__: APP)
    pull = partial(
        pull_and_inflate_object_from_tree,
        max_time=PARTS,
        initial_backoff=RETRY,
    )
    replace(clientapp, "pull_and_inflate_object_from_tree", pull)
    answer_whole(clientapp, pull)
    loop(bell, _answer, WARM, address, insecure=True, superexec_auth_secret=secret)


def _answer(spec: ExecutionSpec) -> None:
    clientapp.run_clientapp(
        runtime_api_address=spec.runtime_api_address,
        token=spec.token,
        insecure=spec.insecure,
        parent_pid=spec.parent_pid,
    )
