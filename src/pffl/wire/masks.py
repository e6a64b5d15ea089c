"""Secure sums: numbers on a grid, added under masks that cancel.

A site's answer is written as one large whole number, its fields beside each other, and
sent with a mask added mod 2^(64·length). Every pair of sites derives a stream that
nobody else knows; the one whose name comes first adds it, the other takes it off. So
each masked answer by itself is uniformly random, and the sum of all of them is the sum
of the answers, and tells nothing else: no carry between limbs, no sign of a single site
(limbs that are masked one by one would tell how many sites had a negative number).

A field v stands as round(v·2^exponent) + 2^(bits − 14) ≥ 0. A site refuses a v whose
first part is longer than 2^(bits − 14), so that 2^12 sites' fields stay below
2^(bits − 1): a sum never runs into the field beside it. What comes back is the sum of
the sites' doubles, rounded once, where each is a multiple of the grid's 2^−exponent (of
gradients from 2^−88 on, of other sums from 2^−148 on); a smaller one is rounded to it.
Sums that are released with noise are whole numbers of 64 bits, and none of them is ever
rounded or refused: what a site answers must not depend on how large its own is.
The last limb counts the sites: where a mask is left over, it is not their number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pffl.errors import Malformed, Refused
from pffl.queries import Query, Total
from pffl.queries.declared import AnswerField
from pffl.typing import FloatArray
from pffl.wire.keys import shared

MOST_SITES = 1 << 12
FEWEST_SITES = 3  # of two, each would know the other's answer
BIAS = np.uint64(1 << 50)  # in the highest limb: 2^(bits − 14)
LIMB = np.dtype("<u8")
LANE = np.dtype("<u4")  # half a limb: lanes of many sites add in 64 bits
LEFT_OVER = (
    "[masks-left-over] the masks do not cancel: an answer is of another query, run "
    "or set"
)

Limbs = NDArray[np.uint64]
T = TypeVar("T", bound=Total)


@dataclass(frozen=True)
class Grid:
    """How a number is written: `limbs` of 64 bits, in units of 2^−exponent."""

    limbs: int
    exponent: int

    @property
    def largest(self) -> float:
        """The largest number of one site."""
        return 2.0 ** (64 * self.limbs - 14 - self.exponent)

    def write(self, values: NDArray[Any]) -> Limbs:
        """Return each number with the bias, its lowest limb first."""
        whole = np.rint(np.ldexp(values, self.exponent))
        fraction, exponent = np.frexp(np.abs(whole))
        digits = np.ldexp(fraction, 53).astype(np.uint64)
        shift = exponent.astype(np.int64) - 53
        digits >>= np.maximum(-shift, 0).astype(np.uint64)  # zeros
        place, up = np.divmod(np.maximum(shift, 0), 64)
        up = up.astype(np.uint64)
        limbs = np.zeros((len(values), self.limbs + 1), np.uint64)
        rows = np.arange(len(values))
        limbs[rows, place] = digits << up
        limbs[rows, place + 1] = (digits >> np.uint64(1)) >> (np.uint64(63) - up)
        limbs = limbs[:, :-1]
        _negate(limbs, whole < 0)
        limbs[:, -1] += BIAS
        return limbs

    def read(self, limbs: Limbs, sites: int) -> NDArray[Any]:
        """Return sums over so many sites, each rounded once."""
        size = limbs.copy()
        size[:, -1] -= np.uint64(sites) * BIAS
        negative = size[:, -1] >> np.uint64(63) == 1
        _negate(size, negative)
        if (size[:, -1] > np.uint64(sites) * BIAS).any():
            raise Refused(LEFT_OVER)
        found = _nearest(size, self.exponent)
        return np.where(negative, -found, found)


class WholeGrid(Grid):
    """Whole numbers of 64 bits, which are added exactly."""

    def write(self, values: NDArray[Any]) -> Limbs:
        """Return each number with the bias, its lowest limb first."""
        low = values.astype(np.int64)
        limbs = np.stack([low, low >> 63], axis=1).view(np.uint64)
        limbs[:, -1] += BIAS
        return limbs

    def read(self, limbs: Limbs, sites: int) -> NDArray[Any]:
        """Return sums over so many sites; refuse what takes more than 64 bits."""
        low = np.ascontiguousarray(limbs[:, 0]).view(np.int64)
        high = limbs[:, -1] - np.uint64(sites) * BIAS
        if (high != (low >> 63).view(np.uint64)).any():
            raise Refused(LEFT_OVER)
        return low


COUNTS = Grid(1, 0)
GRADIENTS = Grid(4, 140)  # of a model with scaled inputs
SUMS = Grid(8, 200)  # of raw inputs, of a target in any unit, of powers
GRIDS = (COUNTS, GRADIENTS, SUMS)
RELEASES = WholeGrid(2, 0)  # of sums with noise
EVERY_GRID = (*GRIDS, RELEASES)


def size(query: Query[Any]) -> int:
    """Return how many limbs an answer takes."""
    codes = _codes(query)
    counts = np.bincount(codes, minlength=len(EVERY_GRID)).tolist()
    return 1 + sum(n * of.limbs for n, of in zip(counts, EVERY_GRID, strict=True))


def encode(query: Query[T], total: T) -> Limbs:
    """Write one site's answer; refuse a number that the grid does not hold."""
    arrays = query.addend(total).sent()
    if not _released(query):
        arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
        for name, of in _fields(query).items():
            _check(name, arrays[name], of)
    numbers = np.concatenate([array.ravel() for array in arrays.values()])
    codes = _codes(query)
    if len(numbers) != len(codes):
        raise Malformed(f"not an answer to {query.kind}")
    parts = [of.write(numbers[codes == i]).ravel() for i, of in enumerate(EVERY_GRID)]
    return np.concatenate([*parts, np.ones(1, np.uint64)])


def decode(query: Query[T], flat: Limbs, sites: int) -> T:
    """Read the sum of so many sites' answers, as that of one silo."""
    _check_sites(sites)
    codes = _codes(query)
    if flat.shape != (size(query),):
        raise Malformed(f"{len(flat)} limbs are not an answer to {query.kind}")
    if flat[-1] != sites:
        raise Refused(LEFT_OVER)
    released = _released(query)
    numbers, start = np.zeros(len(codes), np.int64 if released else np.float64), 0
    for i, of in enumerate(EVERY_GRID):
        mine = codes == i
        end = start + of.limbs * int(np.count_nonzero(mine))
        numbers[mine] = of.read(flat[start:end].reshape(-1, of.limbs), sites)
        start = end
    arrays: dict[str, NDArray[Any]] = {}
    for name, field in _fields(query).items():
        shape = _shape(query, field)
        own, numbers = np.split(numbers, [int(np.prod(shape))])
        arrays[name] = own.reshape(shape).astype(field.dtype)
    who = {"silos": np.zeros(1, np.int64)}
    if "schema_hash" in query.answer_type.declared:
        who["schema_hash"] = query.schema.hash  # type: ignore[attr-defined]
    total: Any = query.answer_type.received(arrays, query.dims, **who)
    return query.summed(total, sites)


def add(flats: Sequence[Limbs]) -> Limbs:
    """Add answers, or an answer and its mask, mod 2^(64·length)."""
    if len({flat.shape for flat in flats}) != 1:
        raise Malformed("[wrong-length] answers of different lengths")
    return _limbs(_total(flats, len(flats[0])), len(flats[0]))


def mask(
    secret: bytes, own: str, others: Mapping[str, bytes], info: bytes, length: int
) -> Limbs:
    """Return what a site adds to an answer of so many limbs.

    `secret` is its own of the run, `others` what the others announced. `info` says what
    the answer is of: a mask is used for one content only.
    """
    _check_sites(1 + len(others))

    def streams() -> Iterator[Limbs]:
        for name, theirs in others.items():
            pair = _stream(shared(secret, theirs), info, sorted((own, name)), length)
            yield ~pair if own > name else pair

    taken_off = sum(own > name for name in others)  # −x is ~x + 1
    return _limbs(_total(streams(), length) + taken_off, length)


def _stream(secret: bytes, info: bytes, names: list[str], length: int) -> Limbs:
    """Return what two sites know, and nobody else: uniform limbs."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    # Hashed, so that no two lists of parts read alike.
    parts = [hashlib.sha256(part).digest() for part in (info, *map(str.encode, names))]
    context = b"pffl mask" + b"".join(parts)
    key = HKDF(SHA256(), length=32, salt=None, info=context).derive(secret)
    # The key is used once, so the nonce may be anything.
    cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(LIMB.itemsize * length)), LIMB)


def _total(flats: Iterable[Limbs], length: int) -> int:
    """Add whole numbers of many limbs: lanes of 32 bits first, and carries once."""
    lanes = np.zeros(2 * length, np.uint64)
    for flat in flats:
        lanes += np.ascontiguousarray(flat, LIMB).view(LANE)
    low, high = lanes & np.uint64(2**32 - 1), lanes >> np.uint64(32)
    parts = [
        int.from_bytes(part.astype(LANE).tobytes(), "little") for part in (low, high)
    ]
    return parts[0] + (parts[1] << 32)


def _limbs(number: int, length: int) -> Limbs:
    content = (number % (1 << 64 * length)).to_bytes(8 * length, "little")
    return np.frombuffer(content, LIMB).astype(np.uint64)


def _fields(query: Query[Any]) -> dict[str, AnswerField]:
    """Return the fields that are sent, as they are sent."""
    declared = query.answer_type.declared
    return {name: of.sent for name, of in declared.items() if not of.envelope}


def _released(query: Query[Any]) -> bool:
    """Whether an answer is whole numbers with noise, which are added as they are."""
    return query.released


def _shape(query: Query[Any], of: AnswerField) -> tuple[int, ...]:
    dims = {"K": 1, **query.dims}
    dims |= {f"△{name}": n * (n + 1) // 2 for name, n in dims.items()}
    return tuple(axis if isinstance(axis, int) else dims[axis] for axis in of.axes)


def _grids(of: AnswerField) -> list[Grid]:
    """Return the grid of the field's numbers, or one for each of the last axis."""
    if of.norm is not None:
        return [RELEASES]
    parameters = {"p", "△h", "g"}.intersection(map(str, of.axes))
    other = GRADIENTS if parameters else SUMS
    # A count of weighted rows is a sum of weights.
    return [COUNTS if row.whole and not row.weighted else other for row in of.rows]


def _codes(query: Query[Any]) -> NDArray[np.int8]:
    """Return which of `EVERY_GRID` each number is on."""
    parts = []
    for of in _fields(query).values():
        codes = np.array([EVERY_GRID.index(grid) for grid in _grids(of)], np.int8)
        parts.append(np.broadcast_to(codes, _shape(query, of) or (1,)).ravel())
    return np.concatenate(parts)


def _check(name: str, values: FloatArray, of: AnswerField) -> None:
    """Refuse numbers that are not on their grid, before anything leaves."""
    limits = np.array([grid.largest for grid in _grids(of)])
    if not (np.abs(values) <= limits).all():
        raise Refused(
            f"[too-large-numbers] '{name}' has a number that is not finite, or too "
            f"large for a secure sum (above {limits.min():.0e}): in larger units it "
            "is smaller"
        )
    whole = np.array([grid is COUNTS for grid in _grids(of)])
    if (whole & (values != np.rint(values))).any():
        raise Refused(f"[not-whole] '{name}' has a part of a whole number")


def _check_sites(sites: int) -> None:
    if not FEWEST_SITES <= sites <= MOST_SITES:
        raise Refused(
            f"[too-few-sites] a secure sum is of {FEWEST_SITES} to {MOST_SITES:,} "
            f"sites, not of {sites}"
        )


def _negate(limbs: Limbs, which: NDArray[np.bool_]) -> None:
    """Change the signs of some numbers, mod 2^bits, in place."""
    found = ~limbs[which]
    carry = np.ones(len(found), np.uint64)
    for limb in found.T:
        limb += carry
        carry &= limb == 0
    limbs[which] = found


def _nearest(limbs: Limbs, exponent: int) -> FloatArray:
    """Return the doubles that are nearest to whole numbers times 2^−exponent.

    The highest 64 bits, with a last one that says whether any lower one is set, round
    as the whole does.
    """
    rows, there = np.arange(len(limbs)), limbs != 0
    top = limbs.shape[1] - 1 - np.argmax(there[:, ::-1], axis=1)
    high = limbs[rows, top]
    below = np.where(top > 0, limbs[rows, top - 1], np.uint64(0))
    up = 64 - _bit_length(high)
    up = np.minimum(up, 63).astype(np.uint64)
    digits = (high << up) | ((below >> np.uint64(1)) >> (np.uint64(63) - up))
    rest = (below << up != 0) | (there.any(axis=1) & (there.argmax(axis=1) < top - 1))
    digits |= rest.astype(np.uint64)
    places = 64 * top - up.astype(np.int64) - exponent
    return np.ldexp(digits.astype(np.float64), places.astype(np.int32))


def _bit_length(numbers: Limbs) -> NDArray[np.int64]:
    high, low = numbers >> np.uint64(32), numbers & np.uint64(2**32 - 1)
    lengths = np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(low)[1])
    return lengths.astype(np.int64)


def encode_all(queries: Sequence[Query[Any]], totals: Sequence[Total]) -> Limbs:
    """Write one site's answers to the queries of a message, one after another."""
    pairs = zip(queries, totals, strict=True)
    return np.concatenate([encode(query, total) for query, total in pairs])


def decode_all(queries: Sequence[Query[Any]], flat: Limbs, sites: int) -> list[Total]:
    """Read the sum of so many sites' answers to the queries of a message."""
    ends = np.cumsum([size(query) for query in queries])
    parts = np.split(flat, ends[:-1])
    return [decode(q, part, sites) for q, part in zip(queries, parts, strict=True)]
