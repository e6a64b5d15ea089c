"""Convexity: all that a silo says of its losses must fit one convex function.

A plane that touches a convex loss at w₁ is nowhere above it. So of any two answers of a
silo, in whatever rounds, F and each cell must have (fault 97)

    L(w₂)  ≥  L(w₁) + g₁ᵀ(w₂ − w₁)     and     L(w₁)  ≥  L(w₂) + g₂ᵀ(w₁ − w₂)

but for rounding, and at the same w the same loss. Gradients whose signs are turned fail
from the second answer on, as both lines together say (g₂ − g₁)ᵀ(w₂ − w₁) ≥ 0. What
rounding can do is bounded (`bounds.rounding`), so that an honest silo is never refused,
whatever its rows are; of a model of one's own it is not known, and nothing is judged.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from pffl.bounds.rounding import FEW, gamma
from pffl.errors import Refused
from pffl.numerics import divisors
from pffl.questions import ModelQuestion
from pffl.questions.plausible import Known, Touched
from pffl.typing import FloatArray, IntArray

MOST_ANSWERS = 100  # kept of one silo, split and layout of cells
MOST_NUMBERS = 1 << 20  # in all of them, but of the last two
LARGE = MOST_NUMBERS >> 2  # in one answer: of wide models one plane is kept
UNKNOWN = 1e300  # how far off a number is of which nothing is known

Layout: TypeAlias = tuple[int, str, str, bool, bytes]


@dataclass(frozen=True, eq=False)
class Told:
    """What answers said of losses, and by how much rounding may have put them off.

    Attributes
    ----------
    w, values, errors
        Of T answers: at which w, the mean losses of all rows and of each cell, and how
        far off these may be; (T, p), (T, 1 + Z), (T, 1 + Z).
    at, weights, gradients, slopes
        Of M planes: which answer each belongs to, the sum of losses that it touches,
        its gradient, and how far off that may be; (M,), (M, 1 + Z), (M, p), (M,).
    """

    w: FloatArray
    values: FloatArray
    errors: FloatArray
    at: IntArray
    weights: FloatArray
    gradients: FloatArray
    slopes: FloatArray

    @classmethod
    def of(cls, w: FloatArray, touched: Touched, known: Known) -> Told | None:
        """Bound the rounding of one answer; None where nothing is known of the loss."""
        shape = known.ceilings.shape
        if shape is None:
            return None
        masses = np.append(known.share, known.sizes)  # a method may change shares
        means = touched.values / divisors(masses)
        sizes, weights = known.sizes_in(shape), touched.weights * masses
        off = sizes.errors(w, means, np.zeros(len(known.sizes)), mu=0.0)
        # Losses may have been added up one row after the other, and weights, too.
        long = 4.0 * gamma(sizes.counts + sizes.parts + FEW) * np.abs(means)
        errors = np.append(off.risk, off.violation) + long
        if known.share == 0:
            errors[0] = UNKNOWN
        return cls(
            w[None],
            means[None],
            np.nan_to_num(errors, nan=UNKNOWN, posinf=UNKNOWN)[None],
            np.zeros(len(weights), np.int64),
            weights,
            touched.gradients.reshape(len(weights), len(w)),
            weights @ off.gradients,
        )

    def __add__(self, other: Told) -> Told:
        moved = replace(other, at=other.at + len(self.w))
        return Told(
            *(
                np.concatenate([getattr(self, f.name), getattr(moved, f.name)])
                for f in fields(self)
            )
        )

    @property
    def risk(self) -> Told:
        """What is said of all rows alone."""
        alone = ~self.weights[:, 1:].any(axis=1)
        return Told(
            self.w,
            self.values[:, :1],
            self.errors[:, :1],
            self.at[alone],
            self.weights[alone, :1],
            self.gradients[alone],
            self.slopes[alone],
        )

    @property
    def numbers(self) -> int:
        """How many are kept."""
        return self.w.size + self.weights.size + self.gradients.size

    @property
    def condensed(self) -> Told:
        """The same with one plane, below the sum of what all of them are below."""
        return replace(
            self,
            at=self.at[:1],
            weights=self.weights.sum(axis=0, keepdims=True)[: len(self.at)],
            gradients=self.gradients.sum(axis=0, keepdims=True)[: len(self.at)],
            slopes=self.slopes.sum(keepdims=True)[: len(self.at)],
        )

    def without(self, answer: int) -> Told:
        """Return all but one of the answers."""
        stays, planes = np.arange(len(self.w)) != answer, self.at != answer
        at = self.at[planes]
        return Told(
            self.w[stays],
            self.values[stays],
            self.errors[stays],
            at - (at > answer),
            self.weights[planes],
            self.gradients[planes],
            self.slopes[planes],
        )

    def fits(self, other: Told) -> bool:
        """Whether no plane is above the other's losses: all of them, M × T′."""
        at, weights = self.at, self.weights
        moved = other.w - self.w[at, None]
        base, there = (weights * self.values[at]).sum(axis=1), weights @ other.values.T
        slope = np.einsum("mp,mtp->mt", self.gradients, moved)
        sizes = weights @ np.abs(other.values).T
        sizes += np.einsum("mp,mtp->mt", np.abs(self.gradients), np.abs(moved))
        sizes += (weights * np.abs(self.values[at])).sum(axis=1, keepdims=True)
        slack = weights @ other.errors.T + gamma(self.w.shape[1] + FEW) * sizes
        slack += (weights * self.errors[at]).sum(axis=1, keepdims=True)
        slack += self.slopes[:, None] * np.linalg.norm(moved, axis=2)
        # What is beyond all numbers is not judged.
        return not bool((base[:, None] + slope - there > slack).any())

    def agrees(self, one: Told) -> bool:
        """Whether one more answer has the same losses as those at the same w."""
        same = (self.w == one.w).all(axis=1)
        off = np.abs(self.values[same] - one.values)
        return not bool((off > self.errors[same] + one.errors).any())


class Convexity:
    """Compares the answers of each silo with each other.

    Of every silo, split, model and layout of cells it keeps the first and the latest.
    """

    def __init__(self) -> None:
        self._told: dict[Layout, Told] = {}

    def judge(
        self, question: ModelQuestion[Any], index: int, known: Known, total: Any
    ) -> None:
        """Refuse what no convex loss has, beside all that the silo said before."""
        touched = question.touched(total)
        if touched is None or not question.task.model.convex:
            return
        told = Told.of(question.w, touched, known)
        if told is None:
            return
        pool = question.task.pool  # of which a method may change the shares in F
        alike = pool is not None and not pool.by_rows
        place = (index, question.split, question.task.scoring, alike)
        layouts = {b"": told.risk, known.member.tobytes(): told}
        for layout, new in layouts.items():
            self._add((*place, layout), new)

    def _add(self, place: Layout, new: Told) -> None:
        if new.numbers > LARGE:
            new = new.condensed
        before = self._told.get(place)
        if before is None:
            self._told[place] = new
            return
        if not (before.agrees(new) and before.fits(new) and new.fits(before)):
            raise Refused(
                "losses and gradients contradict those of an earlier answer: no convex "
                "loss has both"
            )
        all_of_them = before + new
        while len(all_of_them.w) > 2 and (
            len(all_of_them.w) > MOST_ANSWERS or all_of_them.numbers > MOST_NUMBERS
        ):
            all_of_them = all_of_them.without(1)
        self._told[place] = all_of_them
