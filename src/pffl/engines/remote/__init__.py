"""Sites on other machines, asked by messages."""

from pffl.engines.remote.engine import Remote as Remote
from pffl.engines.remote.record import Record as Record
from pffl.engines.remote.transport import InMemory as InMemory
from pffl.engines.remote.transport import Reply as Reply
from pffl.engines.remote.transport import Transport as Transport
