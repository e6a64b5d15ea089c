"""How one of our messages lies in one of Flower's: bytes under one key, both ways.

census → `query.census` · train → `train` · evaluate → `evaluate` · curvature →
`query.curvature`
"""

from __future__ import annotations

from flwr.app import ConfigRecord, Message, RecordDict

RECORD, KEY = "pffl", "parcel"
TYPES = {
    "census": "query.census",
    "train": "train",
    "evaluate": "evaluate",
    "curvature": "query.curvature",
}


def wrap(content: bytes) -> RecordDict:
    """Return what a Flower message holds."""
    return RecordDict({RECORD: ConfigRecord({KEY: content})})


def unwrap(message: Message) -> bytes | None:
    """Return our bytes; None if there is anything else in the message."""
    if not message.has_content() or list(message.content) != [RECORD]:
        return None
    record = message.content[RECORD]
    if not isinstance(record, ConfigRecord) or list(record) != [KEY]:
        return None
    content = record[KEY]
    return content if isinstance(content, bytes) else None
