"""`moments`: sums of features and of a numeric target about given centres.

Σx² − (Σx)²/n cancels where a mean is large beside the spread, as that of a date in
milliseconds is. About a centre close to the mean nothing cancels. It is asked only
where the census says so, and tells nothing that the census does not, but for rounding.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import numpy as np

from pffl.models.scaled import Design, ScaledRows, filled
from pffl.queries.base import RowsQuery, View, raw
from pffl.queries.census import CensusTotal, feature_powers, target_powers
from pffl.queries.declared import ROUNDING, Total, array, places, text, vector
from pffl.queries.plausible import within
from pffl.typing import FloatArray, IntArray

Sums: TypeAlias = tuple[Any, ...]  # Σx and Σx²


class MomentsTotal(Total):
    """What the census calls by the same names, of x − centre and y − centre.

    Missing values add nothing.
    """

    silos: IntArray = places()
    target: FloatArray = array("sums", per_silo=True)
    targets: FloatArray = array("atoms", "sums", per_silo=True)
    feature_sums: FloatArray = array("features")
    feature_squares: FloatArray = array("features")


class Moments(RowsQuery[MomentsTotal]):
    """Ask for sums about `centre`: that of the target, then one for each feature."""

    total_type: ClassVar = MomentsTotal

    centre: FloatArray = vector("1+features")
    split: str = text(default="train")

    def answer(self, view: View) -> MomentsTotal:
        """Answer for one silo, from raw (unscaled) rows."""
        powers = view.weigh(target_powers(self.schema, view.y - self.centre[0]))
        atoms = max(self.schema.n_atoms, int(view.atom.max(initial=-1)) + 1)
        return MomentsTotal(
            np.array([view.index]),
            powers.sum(axis=0)[None],
            view.atom_sums(powers, atoms)[None],
            *feature_powers(self._at_centre(view.X), view.weight, self.centre[1:]),
        )

    def _at_centre(self, X: Design) -> Design:
        """Return raw rows with missing values at the centre: they add nothing."""
        gaps, rows = self.schema.gaps, X.rows if isinstance(X, ScaledRows) else X
        return raw(filled(rows, gaps, self.centre[1:][gaps[0]]))

    def check(self, census: CensusTotal, total: MomentsTotal) -> None:
        """Judge one silo's sums by those of its census, up to what cancels there."""
        centre, (inputs, marks) = self.centre[1:], self.schema.gaps
        mass = np.repeat(census.weight, len(centre))
        mass[inputs] -= census.feature_sums[marks]
        theirs = (census.feature_sums, census.feature_squares)
        _judge(mass, centre, theirs, (total.feature_sums, total.feature_squares))
        if self.schema.labels:
            return
        at = self.centre[:1]
        _judge(census.weight, at, tuple(census.target.T), tuple(total.target.T))
        _judge(
            census.weights[0], at, tuple(census.targets[0].T), tuple(total.targets[0].T)
        )


def _judge(mass: FloatArray, centre: FloatArray, census: Sums, found: Sums) -> None:
    """Demand Σ(x − c) = Σx − mc and Σ(x − c)² = Σx² − 2cΣx + mc², up to rounding.

    All sums are of s_i times what they say, and m = Σs_i.
    """
    (sums, squares), what = census, "sums about a centre"
    size = squares + mass * centre**2
    expected, slack = sums - mass * centre, ROUNDING * np.sqrt(mass * size)
    within(found[0], expected - slack, expected + slack, what)
    slack = ROUNDING * size
    expected = squares - 2 * centre * sums + mass * centre**2
    within(found[1], expected - slack, expected + slack, what)
