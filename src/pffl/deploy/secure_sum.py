"""Secure sums: numbers on a grid, added under masks that cancel.

A number v is one integer round(v·2^e) mod 2^128, in two words with carry. Every pair
of sites derives a stream of such integers that no one else knows; the site whose name
comes first adds it, the other takes it off. So each masked answer alone is
uniformly random. The sum of all is the sum of the answers, and tells nothing else: no
carry and no sign of a single site (words masked one by one would tell carries).

The scale e is public: 0 for counts and for sums with noise, which are whole, 48 for
sums of raw inputs, 64 for all else. A site refuses |v|·2^e ≥ 2^127/(2K), so that no sum
wraps around. Numbers with noise are of 64 bits and never refused: what a site answers
must not depend on how large its own is. Rounding adds at most K·2^−(e+1) to a sum. The
last integer counts the sites: where a mask is left over, it is not their number.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pffl.deploy.keys import shared
from pffl.errors import Malformed, Refused
from pffl.queries import Census, Query, Total
from pffl.queries.base import AnswerField
from pffl.queries.validation import MIN_SITES
from pffl.typing import BoolArray, IntArray

MOST_SITES = 1 << 12
RAW, FINE = 48, 64  # exponents of sums of raw inputs, and of all that is no count
LEFT_OVER = "[masks-left-over] the masks do not cancel: another query, run or set"
Words = NDArray[np.uint64]  # two for each integer, the lower first
T = TypeVar("T", bound=Total)


def size(query: Query[Any]) -> int:
    """Return how many words an answer takes."""
    declared = query.answer_type.declared.values()
    return 2 * (1 + sum(math.prod(of.shape(query.dims)) for of in declared))


def encode(query: Query[T], total: T, sites: int) -> Words:
    """Write one site's answer; refuse a number that is too large, by its field."""
    arrays = total.arrays()
    declared = query.answer_type.declared
    parts = [_written(query, n, declared[n], a, sites) for n, a in arrays.items()]
    flat = np.concatenate([*parts, np.array([1, 0], np.uint64)])
    if len(flat) != size(query):
        raise Malformed(f"not an answer to {query.kind}")
    return flat


def decode(query: Query[T], flat: Words, sites: int) -> T:
    """Read the sum of n sites' answers, as that of one silo."""
    _check_sites(sites)
    if flat.shape != (size(query),):
        raise Malformed(f"{len(flat)} words are not an answer to {query.kind}")
    if flat[-2] != sites or flat[-1] != 0:
        raise Refused(LEFT_OVER)
    arrays: dict[str, NDArray[Any]] = {}
    start = 0
    for name, of in query.answer_type.declared.items():
        shape = of.shape(query.dims)
        end = start + 2 * int(np.prod(shape))
        low, high = flat[start:end:2], flat[start + 1 : end : 2]
        arrays[name] = _numbers(low, high, of, query).reshape(shape)
        start = end
    total: Any = query.answer_type.received(arrays, query.dims)
    return total


def encode_all(
    queries: Sequence[Query[Any]], totals: Sequence[Total], sites: int
) -> Words:
    """Write one site's answers to the queries of a message, one after another."""
    pairs = zip(queries, totals, strict=True)
    return np.concatenate([encode(query, total, sites) for query, total in pairs])


def decode_all(queries: Sequence[Query[Any]], flat: Words, sites: int) -> list[Total]:
    """Read the sum of n sites' answers to the queries of a message."""
    ends = np.cumsum([size(query) for query in queries])
    parts = np.split(flat, ends[:-1])
    return [decode(q, part, sites) for q, part in zip(queries, parts, strict=True)]


def write_counts(present: BoolArray) -> Words:
    """Write what a site has, 1 or 0 each, to be counted over all sites."""
    flat = np.zeros((len(present) + 1, 2), np.uint64)
    flat[:, 0] = [*present, 1]
    return flat.ravel()


def read_counts(flat: Words, sites: int) -> IntArray:
    """Read how many of n sites have each."""
    counts, high = flat[::2].astype(np.int64), flat[1::2]
    if counts[-1] != sites or high.any() or (counts > sites).any():
        raise Refused(LEFT_OVER)
    return counts[:-1]


def add(flats: Sequence[Words]) -> Words:
    """Add answers, each integer mod 2^128."""
    if len({flat.shape for flat in flats}) != 1:
        raise Malformed("wrong-length:add-2")
    total = flats[0].copy()
    for flat in flats[1:]:
        total = _plus(total, flat)
    return total


def mask(
    secret: bytes, own: str, others: Mapping[str, bytes], info: bytes, length: int
) -> Words:
    """Return what a site adds to an answer of n words.

    `secret` is its own of the run, `others` what the others announced. `info` says what
    the answer is of: a mask is used for one content only.
    """
    _check_sites(1 + len(others))
    total = np.zeros(length, np.uint64)
    for name, theirs in others.items():
        pair = _stream(shared(secret, theirs), info, sorted((own, name)), length)
        total = _plus(total, pair) if own < name else _minus(total, pair)
    return total


def _stream(secret: bytes, info: bytes, names: list[str], length: int) -> Words:
    """Return what two sites know, and no one else: uniform integers."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    # Hashed, so that no two lists of parts read the same.
    parts = [hashlib.sha256(part).digest() for part in (info, *map(str.encode, names))]
    context = b"pffl mask" + b"".join(parts)
    key = HKDF(SHA256(), length=32, salt=None, info=context).derive(secret)
    # The key is used once, so the nonce may be anything.
    cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * length)), "<u8").astype(np.uint64)


def _plus(one: Words, other: Words) -> Words:
    total = one + other
    total[1::2] += total[::2] < one[::2]  # carry
    return total


def _minus(one: Words, other: Words) -> Words:
    total = one - other
    total[1::2] -= one[::2] < other[::2]  # borrow
    return total


def _written(
    query: Query[Any], name: str, of: AnswerField, array: NDArray[Any], sites: int
) -> Words:
    """Return integers mod 2^128 for a field's numbers."""
    if query.released:  # whole numbers with noise, as they are
        low = array.ravel().astype(np.int64)
        return np.stack([low, low >> 63], axis=1).view(np.uint64).ravel()
    exponents = _exponents(query, of, array.shape)
    values = np.ldexp(array.ravel().astype(np.float64), exponents)
    whole = np.rint(values)
    if not (np.abs(whole) < 2.0**126 / sites).all():
        raise Refused("too-large-numbers:written", name=name)
    if ((exponents == 0) & (whole != values)).any():
        raise Refused("not-whole", name=name)
    high = np.floor(np.ldexp(np.abs(whole), -64))
    low = np.abs(whole) - np.ldexp(high, 64)  # the lower bits, none of them lost
    flat = np.stack([low, high], axis=1).astype(np.uint64).ravel()
    return _negated(flat, whole < 0)


def _numbers(
    low: Words, high: Words, of: AnswerField, query: Query[Any]
) -> NDArray[Any]:
    """Return sums as numbers."""
    if query.released:
        found = np.ascontiguousarray(low).view(np.int64)
        if (high != (found >> 63).view(np.uint64)).any():
            raise Refused(LEFT_OVER)
        return found
    negative = high >> np.uint64(63) == 1
    flat = _negated(np.stack([low, high], axis=1).ravel(), negative)
    sizes = np.ldexp(flat[1::2].astype(np.float64), 64) + flat[::2].astype(np.float64)
    sizes = np.ldexp(sizes, -_exponents(query, of, of.shape(query.dims)))
    return np.where(negative, -sizes, sizes).astype(of.dtype)


def _negated(flat: Words, negative: BoolArray) -> Words:
    """Return integers, some of them with the other sign."""
    return np.where(np.repeat(negative, 2), _minus(np.zeros_like(flat), flat), flat)


def _exponents(
    query: Query[Any], of: AnswerField, shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return e of each number of a field; a sum of weights is no count."""
    other = RAW if isinstance(query, Census) else FINE
    each = [0 if row.whole and not row.weighted else other for row in of.rows]
    wide = np.broadcast_to(np.array(each), shape or (1,))
    return np.ascontiguousarray(wide).ravel()


def _check_sites(sites: int) -> None:
    if not MIN_SITES <= sites <= MOST_SITES:
        raise Refused(
            "too-few-sites:check-sites",
            min_sites=MIN_SITES,
            most_sites=MOST_SITES,
            sites=sites,
        )
