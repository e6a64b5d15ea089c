"""What data sets of pictures share: names of pixels, a schema, rows of bytes."""

from __future__ import annotations

from pffl.data.schema import Attribute, Schema

COLOURS = ("red", "green", "blue")


def picture_schema(size: int, label: str, group: str) -> Schema:
    """Schema of size × size pictures, colours last, with yes-or-no label and group."""
    pixels = tuple(
        f"{row},{column} {colour}"
        for row in range(size)
        for column in range(size)
        for colour in COLOURS
    )
    attribute = Attribute(group, (f"not {group}", group))
    return Schema(pixels, (attribute,), (f"not {label}", label), label)
