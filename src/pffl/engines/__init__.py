"""Engines: where the silos are, and how they are asked."""

from pffl.engines.base import Engine as Engine
from pffl.engines.base import Reference as Reference
from pffl.engines.local import Local as Local

DEPLOYED = "flower"  # its rows are elsewhere: see `pffl.deploy`
ENGINES: dict[str, type[Reference]] = {"local": Local, "reference": Reference}
