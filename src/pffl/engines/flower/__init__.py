"""Flower carries the questions: a transport over its Grid, and a site's ClientApp."""

from pffl.errors import MissingExtraError

try:
    import flwr as flwr
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("flower", "Flower") from error

from pffl.engines.flower.client import client_app as client_app
from pffl.engines.flower.grid import GridTransport as GridTransport
