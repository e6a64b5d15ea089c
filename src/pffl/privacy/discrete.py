"""Exact draws from the discrete Gaussian: whole numbers, and no floating point.

    P(x) ∝ exp(−x²/(2σ²)),  x ∈ ℤ

Floating-point noise has gaps in its last digits that tell what it was added to; this
has none. On a grid whose unit is far below σ it is Gaussian up to about e^{−2π²σ²}, σ
in units: here σ is thousands of units and more, and that is 0 for any purpose. A sum of
draws at several sites differs from one draw by as little.

Reference: Canonne, Kamath and Steinke, *The discrete Gaussian for differential
privacy*, NeurIPS 2020, Algorithms 1–3.
"""

from __future__ import annotations

import math
import random
import secrets
from typing import Protocol

import numpy as np

from pffl.errors import UsageError
from pffl.typing import IntArray

LEAST = 1 << 10  # units of σ: below, "Gaussian" would not be exact
MOST = 1 << 56  # draws fit into 64 bits


class Source(Protocol):
    """Where random numbers come from."""

    def randrange(self, stop: int, /) -> int:
        """Return a whole number from 0 up to `stop`, without that."""

    def getrandbits(self, bits: int, /) -> int:
        """Return n random bits."""


def secret_source() -> Source:
    """Return the operating system's randomness, which cannot be repeated."""
    return secrets.SystemRandom()


class keyed_source(random.Random):
    """Randomness that follows from a key of 32 bytes, which is used for nothing else.

    Who does not know the key cannot tell it from the operating system's (ChaCha20).
    """

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

        super().__init__()
        self._stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def getrandbits(self, bits: int, /) -> int:
        """Return n bits of the stream; `randrange` is made of them, too."""
        size = -(-bits // 8)
        found = int.from_bytes(self._stream.update(bytes(size)), "little")
        return found >> (8 * size - bits)


def seeded_source(*seed: object) -> Source:
    """Return randomness that a seed repeats: for experiments only, it hides nothing."""
    return random.Random(repr(seed))  # noqa: S311


def discrete_gaussian(square: int, size: int, source: Source) -> IntArray:
    """Return independent draws with σ² = `square`, in units of the grid."""
    if not LEAST**2 <= square <= MOST**2:
        raise UsageError(
            "wrong-noise:discrete-gaussian", sqrt=math.sqrt(max(square, 0)), least=LEAST
        )
    scale = math.isqrt(square) + 1
    found = [_draw(square, scale, source) for _ in range(size)]
    return np.array(found, dtype=np.int64)


def _draw(square: int, scale: int, source: Source) -> int:
    """Algorithm 3: a discrete Laplace draw, accepted as often as is right."""
    while True:
        value = _laplace(scale, source)
        # exp(−(|y| − σ²/t)²/(2σ²)), t the scale of the Laplace.
        top = (abs(value) * scale - square) ** 2
        if _happens(top, 2 * square * scale * scale, source):
            return value


def _laplace(scale: int, source: Source) -> int:
    """Algorithm 2: P(y) ∝ exp(−|y|/scale)."""
    while True:
        rest = source.randrange(scale)
        if not _below_one(rest, scale, source):
            continue
        times = 0
        while _below_one(1, 1, source):
            times += 1
        size, negative = rest + scale * times, source.getrandbits(1)
        if not (negative and size == 0):
            return -size if negative else size


def _happens(top: int, bottom: int, source: Source) -> bool:
    """Say yes with probability exp(−top/bottom)."""
    whole, rest = divmod(top, bottom)
    return all(_below_one(1, 1, source) for _ in range(whole)) and _below_one(
        rest, bottom, source
    )


def _below_one(top: int, bottom: int, source: Source) -> bool:
    """Algorithm 1: say yes with probability exp(−top/bottom), top ≤ bottom.

    The number of successes of probability x/1, x/2, x/3, … in a row is even with
    probability e^{−x}.
    """
    k = 1
    while source.randrange(bottom * k) < top:
        k += 1
    return k % 2 == 1
