"""Where the server is reached."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from pffl.errors import Problems, UsageError

EVERYWHERE = ("0.0.0.0", "::", "*", "")  # noqa: S104 - refused, not bound
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Address:
    """Where the server is reached: the one interface it listens on."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read HOST:PORT; all interfaces at once are refused."""
        host, _, port = text.rpartition(":")
        host = host.strip("[]")
        with Problems("--address", UsageError) as problems:
            if not port.isdecimal() or not 0 < int(port) < 65536:
                problems.add(
                    f"[wrong-address] must be HOST:PORT. Got {text!r} instead."
                )
            elif host in EVERYWHERE:
                problems.add(
                    f"[every-interface] '{host}' is every interface: name the one that "
                    "sites reach"
                )
            elif not _is_ip(host) and not HOST.fullmatch(host):
                problems.add(
                    f"[wrong-address] '{host}' is neither a name nor an address of a "
                    "machine"
                )
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else self.short

    @property
    def short(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    @property
    def is_ip(self) -> bool:
        """Whether the host is an address, and not a name."""
        return _is_ip(self.host)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
