"""Compare errors by class and code, and by the names and figures that they mention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pffl.errors import PFFLError


@contextmanager
def raises(
    kind: type[BaseException], code: str, *mentioned: object
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Expect an error with this code that mentions these names and figures."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert isinstance(error, PFFLError), f"{type(error).__name__} has no code"
    assert code in error.codes, f"{error.codes}, not {code!r}: {error}"
    for part in map(str, mentioned):
        assert part in str(error), f"{part!r} is not in: {error}"
