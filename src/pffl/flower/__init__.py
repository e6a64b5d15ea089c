"""Flower: the same run on real machines (extra ``flower``).

client_app     a site's ClientApp: answers the queries of a run
server_app     the ServerApp of a folder that `pffl deploy` wrote: `solve`, unchanged
BoundedGroupLossMixin   bounds over any strategy of Flower's, and a model of one's own:
               `group_weights` and `GroupSums` at the clients; `FairFedAvg` is the
               mixin over FedAvg
deploy         folders for server and sites; needs no Flower, and neither does `launch`

Each is loaded when it is asked for: a site starts a process for every message.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pffl.errors import MissingExtraError

if TYPE_CHECKING:
    from pffl.flower.client import client_app as client_app
    from pffl.flower.mixin import BoundedGroupLossMixin as BoundedGroupLossMixin
    from pffl.flower.mixin import FairFedAvg as FairFedAvg
    from pffl.flower.server import server_app as server_app
    from pffl.flower.transport import GridTransport as GridTransport
    from pffl.flower.weights import GroupSums as GroupSums
    from pffl.flower.weights import group_weights as group_weights

HOMES = {
    "client_app": "client",
    "server_app": "server",
    "GridTransport": "transport",
    "BoundedGroupLossMixin": "mixin",
    "FairFedAvg": "mixin",
    "GroupSums": "weights",
    "group_weights": "weights",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import flwr as flwr
    except ModuleNotFoundError as error:
        raise MissingExtraError("flower", "Flower") from error
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
