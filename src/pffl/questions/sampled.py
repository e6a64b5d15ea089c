"""`sampled`: a sum of clipped gradients over people drawn in secret, with noise.

Every person of a split is drawn with probability `rate`, by a throw of their own. The
gradient of the loss of each who was drawn is taken by itself, shortened to `clip`,
weighed by the person's atom, rounded to the grid and added in integers: so the length Δ
of what one person can change is proved, whatever the network and its weights.

What it costs depends on how many such releases there are (`privacy.subsampled`); `mu`
is what one would cost somebody who is known to have been drawn. Sites elsewhere count
plain releases only, and refuse it: people are drawn where all rows are at hand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from pffl.errors import Malformed, UsageError
from pffl.privacy.discrete import Source
from pffl.questions.base import ModelQuestion, View
from pffl.questions.declared import Dims, Total, scalar, text, vector, whole
from pffl.questions.noised import UNIT, Adding, Releasing, once, released
from pffl.questions.noised import whole as on_the_grid
from pffl.typing import BoolArray, FloatArray, IntArray

BITS = 53  # of a throw: rates are multiples of 2^−53


class SampledTotal(Total):
    """Sums over silos.

    Attributes
    ----------
    gradients
        Σ of clipped gradients of those who were drawn, each times its weight.
    """

    gradients: IntArray = released("g", norm="gradient")


class Sampled(Releasing[SampledTotal], ModelQuestion[SampledTotal]):
    """Ask for a sum of clipped gradients at `w`, over people who are drawn.

    Attributes
    ----------
    noise
        Standard deviation, in multiples of what one person can change.
    weights
        From 0 to 1, of each atom.
    clip
        Length to which each gradient is shortened.
    rate
        Probability of each person to be drawn; 1 asks all.
    draw
        Which draw it is: each is another question.
    """

    total_type: ClassVar = SampledTotal
    fields: ClassVar = ("gradients",)

    noise: FloatArray = vector("any", most=1)
    weights: FloatArray = vector("atoms")
    clip: float = scalar()
    rate: float = scalar(default=1.0)
    draw: int = whole(default=0)
    split: str = text(default="train")
    adding: Adding | None = None

    def __post_init__(self) -> None:
        atoms = self.task.cells.membership.shape[1]
        good = ((self.weights >= 0) & (self.weights <= 1)).all()
        if self.weights.shape != (atoms,) or not good:
            raise Malformed("weights are from 0 to 1, one for each atom")
        if not 0 < self.clip < math.inf or not 0 < self.rate <= 1:
            raise Malformed("a clip above 0 and a rate from 0 to 1 are needed")
        self._check_noise()
        if self.task.model.framework != "torch" or not self.task.model.n_classes:
            raise UsageError(
                "not available under noise: people are drawn for networks that "
                "classify, and for no other model"
            )

    @property
    def dims(self) -> Dims:
        """Lengths of the axes of an answer."""
        return {**super().dims, "g": self.task.model.n_trained}

    @property
    def scales(self) -> Mapping[str, float]:
        """Numbers that an answer's fields name."""
        return {"gradient": self.clip}

    @property
    def sensitivity(self) -> dict[str, float]:
        """Δ: the clip times the heaviest weight, and what rounding can add."""
        rounded = math.sqrt(self.task.model.n_trained) * 2.0**-UNIT
        return {"gradients": self.clip * float(self.weights.max()) + rounded}

    def answer(self, view: View) -> SampledTotal:
        """Answer for one silo, without noise."""
        return self.together([view])

    def together(self, views: Sequence[View]) -> SampledTotal:
        """Answer for several silos, in batches over all of them, without noise."""
        from pffl.models import alone
        from pffl.models.network import Network

        model, adding = self.task.model, self.adding
        if not isinstance(model, Network):
            raise UsageError(f"not available under noise: {type(model).__name__}")
        if adding is None or adding.source is None:
            raise UsageError(
                "not available under noise between machines: networks (who is drawn "
                "must be counted where all rows are at hand)"
            )
        drawn = [self._drawn(once(view), adding.source) for view in views]
        X = np.concatenate([np.asarray(view.X) for view in drawn])
        y = np.concatenate([view.y for view in drawn])
        weights = self.weights[np.concatenate([view.atom for view in drawn])]
        total = np.zeros(model.n_trained, np.int64)
        for rows, own in alone.gradients(model, self.w, X, y, self.clip):
            total += on_the_grid(own * weights[rows, None], UNIT).sum(axis=0)
        return SampledTotal(total)

    def _drawn(self, view: View, source: Source) -> View:
        """Return the rows of people who are drawn, each by a throw of their own."""
        if self.rate == 1:
            return view
        return view.take(np.flatnonzero(thrown(len(view), self.rate, source)))

    def gradients(self, rows: float) -> float:
        """How many passes over a silo's rows compute a gradient."""
        return self.rate

    def check(self, known: Any, total: SampledTotal) -> SampledTotal:
        """Judge nothing: with noise any sum is possible."""
        return total


def thrown(people: int, rate: float, source: Source) -> BoolArray:
    """Say of each person whether they are drawn, with a probability of at most `rate`.

    One whole number of 64 random bits is drawn for each, of which 53 are used.
    """
    bits = source.getrandbits(64 * people) if people else 0
    throws = np.frombuffer(bits.to_bytes(8 * people, "little"), dtype="<u8")
    found: BoolArray = (throws >> np.uint64(64 - BITS)) < math.floor(rate * 2**BITS)
    return found
