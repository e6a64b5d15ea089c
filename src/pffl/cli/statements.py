"""For commands that are still on their way to `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pffl.cli.console import print_json as print_json
from pffl.cli.show import certificate as show

if TYPE_CHECKING:
    from pffl.evidence.certificate import Certificate

__all__ = ["as_json", "print_json", "show"]


def as_json(certificate: Certificate) -> str:
    """The certificate as it is written to a file."""
    from pffl.files import json_text

    return json_text(certificate.as_dict())
