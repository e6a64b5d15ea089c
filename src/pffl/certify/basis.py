"""What a certificate stands on: what was declared, and the sums that were measured.

It is written into the certificate as the inputs of its first statement. Every word
and every figure of the other statements follows from it and from their own inputs, so
whoever has the model and the rows can compute all of them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from pffl.certificates import CellLosses, Certificate
from pffl.errors import ArtefactError
from pffl.typing import FloatArray

COUNTS = ("count", "correct", "positive")


@dataclass(frozen=True)
class CellFacts:
    """One cell: its name, its bound, and who belongs to it.

    Attributes
    ----------
    silo
        The silo that it is confined to, if any.
    of
        Pairs of group and label; the label is None for a numeric target.
    """

    cell: str
    bound: float
    silo: str | None
    of: list[tuple[str, str | None]]


@dataclass(frozen=True)
class Sample:
    """Sums over the rows of some splits.

    Attributes
    ----------
    splits
        The splits that were added.
    risk
        Σ p_k × silo k's mean loss, over the silos with rows.
    cells, atoms
        The columns of `evaluate`, one number per cell, and per group and label.
    """

    splits: list[str]
    risk: float
    cells: dict[str, list[float]]
    atoms: dict[str, list[float]]

    def of_cells(self, column: str) -> FloatArray:
        """One column, a number per cell."""
        return np.asarray(self.cells[column], dtype=np.float64)

    def of_atoms(self, column: str, groups: int) -> FloatArray:
        """One column, shape (groups, labels)."""
        return np.asarray(self.atoms[column], dtype=np.float64).reshape(groups, -1)


@dataclass(frozen=True)
class ModelFacts:
    """The model: what it is, how long its weights are, and whether it is convex."""

    kind: str
    parameters: int
    outputs: int
    length: float
    l2: float
    convex: bool
    linear: bool


@dataclass(frozen=True)
class Basis:
    """All that is declared and measured.

    Attributes
    ----------
    trained
        Whether the run that made the model is known: its bounds, prices, multipliers.
    promise
        Whether bounds were asked for; without, cells are only reported on.
    minimax
        Whether the worst cell was made as good as possible, without bounds.
    stopped
        Why the run ended early, if it did.
    data, silos, other_data
        Name of the data, number of silos, whether they are not what it was trained on.
    weighting
        Of silos in the risk: all alike, or by rows.
    risk_weight, multiplier_bound, radius, multipliers
        β, B, R and λ.
    loss_bound
        M: in statements on unseen people a loss counts up to M.
    feature_bound
        Declared bound on the length of everyone's scaled inputs, the constant 1 of the
        intercept included.
    confidence, candidates, fresh_split
        1 − δ of all statements on unseen people together, and how many models were
        compared on the held-out rows.
    overlap
        Held-out rows that are training rows too; None if nobody could look.
    groups, labels
        Names, in the order of the sums per group and label.
    training, heldout
        Which of `samples` the statements on seen and on unseen people use.
    """

    trained: bool
    promise: bool
    minimax: bool
    stopped: Literal["diverged", "interrupted"] | None
    data: str
    silos: int
    other_data: bool
    weighting: Literal["silos", "rows"]
    model: ModelFacts
    risk_weight: float
    multiplier_bound: float
    radius: float
    multipliers: list[float]
    loss_bound: float | None
    feature_bound: float | None
    confidence: float
    candidates: int
    fresh_split: bool
    overlap: int | None
    groups: list[str]
    labels: list[str]
    cells: list[CellFacts]
    samples: dict[str, Sample]
    training: str
    heldout: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the cells."""
        return tuple(cell.cell for cell in self.cells)

    @property
    def bounds(self) -> FloatArray:
        """ζ, shape (Z,)."""
        return np.array([cell.bound for cell in self.cells], dtype=np.float64)

    @property
    def modulus(self) -> float:
        """βμ."""
        return self.risk_weight * self.model.l2

    @property
    def seen(self) -> Sample:
        """Sums over the rows that were trained on, or that were audited."""
        return self.samples[self.training]

    @property
    def unseen(self) -> Sample | None:
        """Sums over the rows that stand for unseen people."""
        return None if self.heldout is None else self.samples[self.heldout]

    @property
    def risk(self) -> float:
        """F(w), with its ridge term."""
        return self.seen.risk + 0.5 * self.model.l2 * self.model.length**2

    def losses(self, sample: Sample, column: str = "loss") -> CellLosses:
        """Mean losses of the cells against their bounds."""
        counts, totals = sample.of_cells("count"), sample.of_cells(column)
        return CellLosses.of(self.names, counts, totals, self.bounds)

    def as_inputs(self) -> dict[str, Any]:
        """Plain form, for the certificate."""
        return asdict(self)

    @classmethod
    def of_inputs(cls, inputs: Mapping[str, object]) -> Basis:
        """Read the plain form; refuse whatever is not one."""
        from pydantic import TypeAdapter, ValidationError

        try:
            basis = TypeAdapter(cls).validate_python(dict(inputs))
        except ValidationError as error:
            places = [".".join(map(str, e["loc"])) for e in error.errors()[:5]]
            raise ArtefactError(
                f"certificate: what was measured cannot be read: {', '.join(places)}"
            ) from error
        basis._check_lengths()
        return basis

    def _check_lengths(self) -> None:
        cells, atoms = len(self.cells), len(self.groups) * max(1, len(self.labels))
        known = {self.training, *([] if self.heldout is None else [self.heldout])}
        good = cells > 0 and known <= set(self.samples)
        good = good and len(self.multipliers) == cells
        for sample in self.samples.values():
            good = good and all(len(v) == cells for v in sample.cells.values())
            good = good and all(len(v) == atoms for v in sample.atoms.values())
            good = good and {"count", "loss"} <= set(sample.cells)
        if not good:
            raise ArtefactError(
                "certificate: what was measured does not fit together: cells, "
                "multipliers and sums differ in number"
            )


def basis_of(certificate: Certificate) -> Basis:
    """Return what a certificate stands on."""
    found = certificate.of_kind("measured")
    if len(found) != 1:
        raise ArtefactError("certificate: it does not say what was measured")
    return Basis.of_inputs(found[0].inputs)


def columns(names: Sequence[str], table: FloatArray) -> dict[str, list[float]]:
    """Turn a table of sums, shape (n, columns), into lists by name; counts are whole.

    >>> columns(("count", "loss"), np.array([[2.0, 0.5]]))
    {'count': [2], 'loss': [0.5]}
    """
    return {
        name: [int(v) if name in COUNTS else float(v) for v in table[:, j]]
        for j, name in enumerate(names)
    }
