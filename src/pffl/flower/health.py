"""Wait until a server answers: `flwr.sh` calls this before Flower's commands."""

from __future__ import annotations

import http.client
import ssl
import sys
import time
from pathlib import Path

from pffl.errors import FederationError, PFFLError
from pffl.flower.address import Address

PATH = "/health"  # of Flower's SuperLink
SECONDS = 60.0
PAUSE = 0.2  # seconds between two tries


def wait(address: Address, authority: Path, *, seconds: float = SECONDS) -> None:
    """Return when the server is up; `FederationError` if it is not after `seconds`.

    Parameters
    ----------
    address
        Where it listens.
    authority
        Certificate of who signed the server's.
    seconds
        How long to wait.
    """
    try:
        trusted = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise FederationError(
            f"[bad-certificate-authority] '{authority}' cannot be used: {error}"
        ) from error
    deadline = time.monotonic() + seconds
    while True:
        try:
            return _ask(address, trusted, max(PAUSE, deadline - time.monotonic()))
        except ssl.SSLCertVerificationError as error:
            raise FederationError(
                f"[untrusted-server] the server at {address} shows a certificate that "
                f"'{authority}' does not vouch for: {error.verify_message}"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > deadline:
                raise FederationError(
                    f"[no-answer] the server at {address} did not answer within "
                    f"{seconds:g} s ({error}): is its start.sh running?"
                ) from error
        time.sleep(PAUSE)


def _ask(address: Address, trusted: ssl.SSLContext, seconds: float) -> None:
    """Ask once, without any proxy; whatever the server says, it is up."""
    connection = http.client.HTTPSConnection(
        address.host, address.port, context=trusted, timeout=seconds
    )
    try:
        connection.request("GET", PATH)
        connection.getresponse()
    finally:
        connection.close()


if __name__ == "__main__":
    try:
        wait(Address.parse(sys.argv[1]), Path(sys.argv[2]))
    except PFFLError as error:
        sys.exit(f"flwr.sh: {error}")
