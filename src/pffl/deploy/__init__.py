"""Deployment: the same run over sites on other machines, on Flower (extra ``flower``).

A site's rows, keys and memory belong to the site's own account, which answers on a
socket (`pffl site serve`); Flower carries bytes there. For users' own Flower apps there
is `BoundedGroupLossMixin`, with `group_weights` and `GroupSums` at the clients.

What needs Flower is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pffl.deploy.federation import Agreement as Agreement
from pffl.deploy.keys import PublicKey as PublicKey
from pffl.deploy.keys import SiteKey as SiteKey
from pffl.deploy.server import InMemory as InMemory
from pffl.deploy.server import Remote as Remote
from pffl.deploy.server import Reply as Reply
from pffl.deploy.server import Transport as Transport
from pffl.deploy.site import Limits as Limits
from pffl.deploy.site import Site as Site
from pffl.errors import MissingExtraError

if TYPE_CHECKING:
    from pffl.deploy.flower_mixin import BoundedGroupLossMixin as BoundedGroupLossMixin
    from pffl.deploy.flower_mixin import FairFedAvg as FairFedAvg
    from pffl.deploy.flower_mixin import GroupSums as GroupSums
    from pffl.deploy.flower_mixin import group_weights as group_weights

MIXIN = ("BoundedGroupLossMixin", "FairFedAvg", "GroupSums", "group_weights")


def __getattr__(name: str) -> object:
    if name not in MIXIN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import flwr as flwr
    except ModuleNotFoundError as error:
        raise MissingExtraError("flower", "Flower") from error
    return getattr(import_module(f"{__name__}.flower_mixin"), name)
