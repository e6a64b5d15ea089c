"""What runs ServerApps: one process for each run, forked from a warm one."""

from __future__ import annotations

from queue import Queue

from flwr.supercore.logger import mirror_output_to_queue
from flwr.supercore.superexec.executor import ExecutionSpec
from flwr.supercore.tls import validate_and_resolve_root_certificates
from flwr.superlink.runtime.run_serverapp import run_serverapp

from pffl.flower.forks import Bell, loop

WARM = (
    "cryptography.hazmat.backends.openssl.backend",
    "pffl.engines.remote.secure",
    "pffl.flower.server",
    "pffl.reports",
    "scipy.optimize",
    "scipy.sparse.csgraph",
    "scipy.stats",
    "threadpoolctl",
)


def serve(address: str, authority: str, secret: bytes, bell: Bell) -> None:
    """Run the ServerApps of the SuperLink at an address."""
    loop(
        bell,
        _run,
        WARM,
        address,
        insecure=False,
        root_certificates_path=authority,
        superexec_auth_secret=secret,
    )


def _run(spec: ExecutionSpec) -> None:
    """Run a ServerApp, as Flower's command for it does."""
    said: Queue[str | None] = Queue()
    mirror_output_to_queue(said)
    run_serverapp(
        runtime_api_address=spec.runtime_api_address,
        log_queue=said,
        token=spec.token,
        insecure=spec.insecure,
        certificates=validate_and_resolve_root_certificates(
            spec.root_certificates_path, spec.insecure
        ),
        parent_pid=spec.parent_pid,
    )
