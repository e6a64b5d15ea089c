"""Methods: one paper a file."""

from typing import Any

from pffl.methods.base import Method as Method
from pffl.methods.exact import Exact as Exact
from pffl.methods.fedavg import FedAvg as FedAvg
from pffl.methods.pffl import PFFL as PFFL

METHODS: dict[str, type[Any]] = {
    method.name: method for method in (Exact, PFFL, FedAvg)
}
