"""Hessians learnt from gradients: BFGS for F and for every cell, in a small space.

A pair is a step s and how the gradients of F's losses and of every cell changed along
it: ΔJ, with 1 + Z rows. Each row by itself is a BFGS pair of one function, so that the
curvature of each bound is known beside that of G(·; λ) for any λ:

    B_z ← B_z − B_z s sᵀB_z / sᵀB_z s + y yᵀ / sᵀy        y = row z of ΔJ

begun at σ_z·diag(c): c_j is the curvature that input j can have, from the census, and
σ_z the mean of sᵀy / sᵀdiag(c)s over the pairs. All of it happens in the span Q of what
a quasi-Newton step is made of: pairs, gradients and w. With every s in the span,
projecting and updating go in any order: the update of QᵀBQ is that of B, projected.

Reference: Nocedal and Wright, *Numerical Optimization*, sections 6.1 and 7.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pffl.typing import FloatArray

MOST, LEAST = 30, 8  # pairs
LARGEST = 2**26  # numbers of all pairs together: half a GB
COSTLY = 2**25  # products of pairs with pairs in a round, of all functions
BLOCK = 4096  # rows of a basis that are orthogonalised at once
DEPENDENT = 1e-10  # part of a unit vector that the ones before it do not have
FLATTEST = 1e-10  # sᵀy, in parts of ‖s‖·‖y‖, of a pair that says nothing


def room(p: int, z: int) -> int:
    """Return how many pairs are kept of p parameters and z cells."""
    numbers = p * (z + 2)
    quick = np.clip(np.sqrt(COSTLY / numbers), LEAST, MOST)
    return max(3, int(min(quick, LARGEST // numbers)))


@dataclass(frozen=True, eq=False)
class Span:
    """A space of few dimensions, by an orthonormal basis; None for all of space."""

    basis: FloatArray | None  # (p, q)
    size: int  # q

    @classmethod
    def of(cls, vectors: Sequence[FloatArray]) -> Span:
        """Return the span of vectors."""
        p, q = len(vectors[0]), len(vectors)
        if q >= p:
            return cls(None, p)
        rows = np.stack(vectors)
        lengths = np.linalg.norm(rows, axis=1)
        rows = rows[lengths > 0] / lengths[lengths > 0, None]
        basis = orthonormal(rows.T)
        return cls(basis, basis.shape[1])

    def seen(self, vectors: FloatArray) -> FloatArray:
        """Return the coordinates of vectors, which are the last axis."""
        return vectors if self.basis is None else vectors @ self.basis

    def back(self, coordinates: FloatArray) -> FloatArray:
        """Return the vector that has these coordinates."""
        return coordinates if self.basis is None else self.basis @ coordinates

    def diagonal(self, sizes: FloatArray) -> FloatArray:
        """Return a diagonal matrix, as it is seen in the span."""
        if self.basis is None:
            return np.diag(sizes)
        return (self.basis.T * sizes) @ self.basis


def orthonormal(columns: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the span of a few long unit columns.

    A column that depends on those before it adds none: what is left of it is rounding,
    and would be a direction that every processor draws for itself. Blocks of rows
    first, while they are in the processor's cache, then their triangles.

    Reference: Demmel, Grigori, Hoemmen and Langou, *Communication-optimal parallel and
    sequential QR and LU factorizations* (2012), section 3.
    """
    p, q = columns.shape
    blocks = p // BLOCK
    if blocks < 2 or 2 * q > BLOCK:
        basis, triangle = np.linalg.qr(columns)
        return basis if (turn := _turn(triangle)) is None else basis @ turn
    cut = [np.array(part) for part in np.array_split(columns, blocks)]
    parts = [np.linalg.qr(part) for part in cut]
    within, whole = np.linalg.qr(np.concatenate([triangle for _, triangle in parts]))
    turns = within.reshape(blocks, q, q)
    if (turn := _turn(whole)) is not None:
        turns = turns @ turn
    found = np.empty((p, turns.shape[2]))
    ends = np.cumsum([len(part) for part in cut])
    for end, (basis, _), turn in zip(ends, parts, turns, strict=True):
        np.matmul(basis, turn, out=found[end - len(basis) : end])
    return found


def _turn(triangle: FloatArray) -> FloatArray | None:
    """Return a basis of a triangle's columns that depend on none before them.

    None if none does. A column that depends is taken out before the next is looked at.
    """
    left = np.arange(len(triangle))
    basis, found = np.empty(0), triangle
    while (flat := np.abs(np.diagonal(found)) <= DEPENDENT).any():
        left = np.delete(left, int(np.argmax(flat)))
        basis, found = np.linalg.qr(triangle[:, left])
    return None if len(left) == len(triangle) else basis


def learnt(
    steps: Sequence[FloatArray], changes: Sequence[FloatArray], start: FloatArray
) -> FloatArray:
    """Return the Hessians of all functions, (f, q, q).

    Parameters
    ----------
    steps, changes
        s, (q,), and y of each function, (f, q), of all pairs, the oldest first.
    start
        The first Hessian for σ = 1, (q, q).
    """
    f, q = changes[0].shape if changes else (1, len(start))
    all_steps, ys = np.reshape(steps, (-1, q)), np.reshape(changes, (-1, f, q))
    along = np.einsum("mfq,mq->mf", ys, all_steps)
    lengths = np.linalg.norm(ys, axis=2) * np.linalg.norm(all_steps, axis=1)[:, None]
    good = along > FLATTEST * lengths
    expected = np.einsum("mp,pq,mq->m", all_steps, start, all_steps)[:, None]
    ratios = np.where(good, along / np.where(good, expected, 1.0), 1.0)
    sigma = np.exp(np.log(ratios).sum(axis=0) / np.maximum(good.sum(axis=0), 1))
    hessians = sigma[:, None, None] * start
    for s, y, product, kept in zip(all_steps, ys, along, good, strict=True):
        bent = hessians @ s
        less = np.where(kept, 1.0 / np.where(kept, bent @ s, 1.0), 0.0)
        more = np.where(kept, 1.0 / np.where(kept, product, 1.0), 0.0)
        hessians -= less[:, None, None] * bent[:, :, None] * bent[:, None, :]
        hessians += more[:, None, None] * y[:, :, None] * y[:, None, :]
    return hessians
