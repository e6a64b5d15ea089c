"""How messages get to sites and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Reply:
    """What came back from an address: bytes, or why there are none."""

    address: str
    content: bytes | None
    error: str = ""


class Transport(Protocol):
    """Carries bytes. It knows neither questions nor silos."""

    def addresses(self) -> Collection[str]:
        """Return the nodes that are there now."""

    def exchange(
        self, requests: Mapping[str, bytes], seconds: float, kind: str
    ) -> Iterator[Reply]:
        """Send all requests at once, and yield replies as they come.

        Ends after `seconds` on the monotonic clock at the latest. `kind` is "census",
        "train", "evaluate" or "curvature". Late and repeated replies may be among those
        that are yielded: the engine judges them.
        """


class InMemory:
    """Sites in this process: one function of bytes to bytes for each address.

    Parameters
    ----------
    sites
        From address to function. It may be changed while a run goes on.
    """

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self.sites = sites

    def addresses(self) -> Collection[str]:
        """Return the addresses that have a function now."""
        return tuple(self.sites)

    def exchange(
        self, requests: Mapping[str, bytes], seconds: float, kind: str
    ) -> Iterator[Reply]:
        """Call one site after the other."""
        deadline = time.monotonic() + seconds
        for address, content in requests.items():
            if time.monotonic() > deadline:
                return
            site = self.sites.get(address)
            if site is None:
                yield Reply(address, None, "no such address")
                continue
            try:
                answer = site(content)
            except Exception as error:
                yield Reply(address, None, type(error).__name__)
            else:
                yield Reply(address, answer)
