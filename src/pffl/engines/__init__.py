"""Engines: where the silos are, and how they are asked."""

from pffl.engines.base import Engine as Engine
from pffl.engines.local import Local as Local
from pffl.engines.reference import Reference as Reference

DEPLOYED = "flower"  # its rows are elsewhere: see `pffl.deploy`
ENGINES: dict[str, type[Reference]] = {"local": Local, "reference": Reference}
