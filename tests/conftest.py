"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# Machines differ in speed, results must not: no deadlines, and the same examples
# everywhere. A test that wants fewer or more examples says so itself.
settings.register_profile("pffl", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("pffl")
