"""Methods: one paper a file."""

from pffl.errors import UsageError
from pffl.methods.afl import AFL as AFL
from pffl.methods.auto import Auto as Auto
from pffl.methods.base import Method as Method
from pffl.methods.exact import Exact as Exact
from pffl.methods.fairfed import FairFed as FairFed
from pffl.methods.fairgrad import FairGrad as FairGrad
from pffl.methods.fcfl import FCFL as FCFL
from pffl.methods.fedavg import FedAvg as FedAvg
from pffl.methods.fedfair import FedFair as FedFair
from pffl.methods.fedfb import FedFB as FedFB
from pffl.methods.fedminmax import FedMinMax as FedMinMax
from pffl.methods.first_order import FirstOrder as FirstOrder
from pffl.methods.group_weighted import GroupWeighted as GroupWeighted
from pffl.methods.local_bgl import LocalBGL as LocalBGL
from pffl.methods.pffl import PFFL as PFFL
from pffl.methods.pooled import Pooled as Pooled
from pffl.methods.qffl import QFFL as QFFL
from pffl.methods.reductions import Reductions as Reductions
from pffl.registry import Registry

METHODS: Registry[Method] = Registry(
    "pffl.methods",
    Method,
    (
        FedAvg,
        GroupWeighted,
        PFFL,
        Exact,
        FirstOrder,
        LocalBGL,
        FedMinMax,
        AFL,
        QFFL,
        FedFB,
        FedFair,
        FCFL,
        FairFed,
        FairGrad,
        Reductions,
        Pooled,
        Auto,
    ),
)


def method_of(given: object) -> Method:
    """Return a method that is given itself, or by its name with its own defaults."""
    if isinstance(given, Method):
        return given
    if isinstance(given, str) and given in METHODS:
        return METHODS[given]()
    raise UsageError(
        "unknown-method:method-of", given=given, methods=", ".join(METHODS)
    )
