"""One of our messages inside one of Flower's: bytes under one key, both ways.

Flower's type of it is `train` or `evaluate` where all its queries are of that kind,
and `query.…` otherwise.
"""

from __future__ import annotations

from flwr.app import ConfigRecord, Message, RecordDict

RECORD, KEY = "pffl", "parcel"
OWN_TYPES = ("train", "evaluate")  # those that Flower has a type for


def type_of(kind: str) -> str:
    """Return Flower's type of a message with queries of this kind."""
    return kind if kind in OWN_TYPES else f"query.{kind}"


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
