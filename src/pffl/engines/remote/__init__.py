"""Sites on other machines, asked by messages."""

from pffl.engines.remote.engine import Remote as Remote
from pffl.engines.remote.exchange import InMemory as InMemory
from pffl.engines.remote.exchange import Record as Record
from pffl.engines.remote.exchange import Reply as Reply
from pffl.engines.remote.exchange import Transport as Transport
from pffl.engines.remote.noisy import Noisy as Noisy
from pffl.engines.remote.secure import Secured as Secured
