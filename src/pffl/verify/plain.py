"""Losses, cells and sums once more, in plain NumPy over all rows at once.

Nothing here uses an engine, a question or a model's own code, but for models whose
loss is not known to this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp

from pffl.certify.basis import Basis, CellFacts, Sample
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.errors import ArtefactError
from pffl.models.base import Model
from pffl.typing import BoolArray, FloatArray, IntArray
from pffl.verify.check import SINGLE, SUMS

KNOWN = ("logistic", "softmax", "least-squares", "huber", "probabilities")
NUMBERS = ("least-squares", "huber")
SMALLEST = 1e-15  # a probability of 0 counts as this
LARGE = 1e150  # its square is still finite


@dataclass(frozen=True, eq=False)
class Plain:
    """The rows of some splits, scaled, with the constant 1 where there is an intercept.

    Attributes
    ----------
    kind, outputs
        Of the model.
    X, y, group, silo
        One entry per row.
    members
        Which rows belong to each cell, shape (Z, n).
    risk_weights
        Weight of each row in the risk: p_k/m_k.
    model
        The model itself, for losses that are not known here.
    """

    kind: str
    outputs: int
    X: FloatArray
    y: FloatArray
    group: IntArray
    silo: IntArray
    members: BoolArray
    risk_weights: FloatArray
    model: Model

    @classmethod
    def of(
        cls, model: Model, federation: Federation, basis: Basis, splits: Sequence[str]
    ) -> Plain:
        """Pool the rows of some splits."""
        pools = [federation.pooled(split) for split in splits]
        X, y, group, silo = (
            np.concatenate([pool[i] for pool in pools]) for i in range(4)
        )
        kind = str(model.describe().get("kind"))
        if kind in KNOWN:
            scaled = (X.astype(np.float64) - model.inputs.mean) / model.inputs.scale
        else:
            scaled = model.inputs.apply(X)
        if kind in KNOWN and getattr(model, "intercept", False):
            scaled = np.column_stack([scaled, np.ones(len(scaled))])
        members = [membership(cell, federation, group, y, silo) for cell in basis.cells]
        outputs = int(getattr(model, "n_outputs", 1))
        sizes = [len(pool.y) for pool in pools]
        part = np.repeat(np.arange(len(pools)), sizes) * len(federation) + silo
        weights = risk_weights(federation, basis.weighting, part)
        return cls(
            kind,
            outputs,
            scaled,
            y,
            group,
            silo,
            np.array(members),
            weights,
            model,
        )

    @property
    def precision(self) -> float:
        """How closely sums can be found again: networks compute in 32 bits."""
        return SUMS if self.kind in KNOWN else SINGLE

    @property
    def cut(self) -> float:
        """Where a loss of numbers stops being a square: δ of Huber's, or never."""
        delta: Any = self.model.describe().get("delta")
        return float(delta) if self.kind == "huber" else LARGE

    @property
    def counts(self) -> FloatArray:
        """Rows per cell."""
        return np.asarray(self.members.sum(axis=1), dtype=np.float64)

    def scores(self, w: FloatArray) -> FloatArray:
        """Return Wx + b, shape (n, outputs)."""
        return np.asarray(self.X @ w.reshape(self.outputs, -1).T)

    def losses(self, w: FloatArray) -> FloatArray:
        """Return the loss of each row."""
        if self.kind == "probabilities":
            return -np.log(np.clip(self._probability_of_label(), SMALLEST, 1.0))
        if self.kind not in KNOWN:
            return self.model.losses(w, self.X, self.y)
        z = self.scores(w)
        if self.kind == "softmax":
            own = z[np.arange(len(z)), self.y.astype(int)]
            return np.asarray(logsumexp(z, axis=1) - own)
        z = z[:, 0]
        if self.kind in NUMBERS:
            size, cut = np.abs(z - self.y), self.cut
            inside = size <= cut
            return np.where(inside, size**2, 2.0 * cut * size - cut**2)
        return np.where(self.y == 1, np.logaddexp(0, -z), np.logaddexp(0, z))

    def _probability_of_label(self) -> FloatArray:
        code = self.y.astype(int)
        if self.X.shape[1] > 1:
            return np.asarray(self.X[np.arange(len(code)), code])
        return np.where(self.y == 1, self.X[:, 0], 1.0 - self.X[:, 0])

    def predicted(self, w: FloatArray) -> FloatArray | None:
        """Return the predicted label code of each row; None for numbers."""
        if self.kind in NUMBERS:
            return None
        if self.kind not in KNOWN:
            found: FloatArray | None = self.model.classes(w, self.X)
            return found
        z = self.X if self.kind == "probabilities" else self.scores(w)
        if z.shape[1] > 1:
            return np.asarray(z.argmax(axis=1), dtype=np.float64)
        cut = 0.5 if self.kind == "probabilities" else 0.0
        return np.asarray(z[:, 0] > cut, dtype=np.float64)

    def slopes(self, w: FloatArray) -> FloatArray:
        """Return the derivative of each loss by its scores, shape (n, outputs)."""
        z = self.scores(w)
        if self.kind == "softmax":
            pi = np.exp(z - logsumexp(z, axis=1, keepdims=True))
            return np.asarray(pi - np.eye(self.outputs)[self.y.astype(int)])
        if self.kind in NUMBERS:
            return np.asarray(2.0 * np.clip(z - self.y[:, None], -self.cut, self.cut))
        return np.asarray(expit(z) - self.y[:, None])

    def gradient(self, w: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the derivative of ``Σ weights_i ℓ_i`` in w."""
        return np.asarray((self.slopes(w) * weights[:, None]).T @ self.X).reshape(-1)

    def hessian(self, w: FloatArray, weights: FloatArray) -> FloatArray:
        """Return the second derivative of ``Σ weights_i ℓ_i`` in w."""
        z = self.scores(w)
        if self.kind == "softmax":
            pi = np.exp(z - logsumexp(z, axis=1, keepdims=True))
            curve = np.einsum("ia,ab->iab", pi, np.eye(self.outputs))
            curve -= pi[:, :, None] * pi[:, None, :]
        elif self.kind in NUMBERS:
            curve = 2.0 * (np.abs(z - self.y[:, None]) <= self.cut)[:, :, None]
        else:
            s = expit(z)
            curve = (s * (1.0 - s))[:, :, None]
        curve *= weights[:, None, None]
        q, c = self.outputs, self.X.shape[1]
        out = np.empty((q, c, q, c))
        for a in range(q):
            for b in range(q):
                out[a, :, b] = self.X.T @ (curve[:, a, b, None] * self.X)
        return out.reshape(q * c, q * c)

    def cell_weights(self, multipliers: FloatArray) -> FloatArray:
        """Return ``Σ_{z∋i} λ_z/m_z`` for each row: then λᵀ(means) = Σ weights_i ℓ_i."""
        return np.asarray((multipliers / self.counts) @ self.members)

    def means(self, w: FloatArray) -> FloatArray:
        """Return the mean loss of each cell."""
        losses = self.losses(w)
        return np.array([losses[member].mean() for member in self.members])

    def sums(self, w: FloatArray, basis: Basis, splits: Sequence[str]) -> Sample:
        """Return all sums that a certificate has of these rows."""
        losses, predicted = self.losses(w), self.predicted(w)
        cap = np.inf if basis.loss_bound is None else basis.loss_bound
        capped = np.minimum(losses, cap)
        nobody = np.zeros(len(losses))
        table = {
            "count": np.ones(len(losses)),
            "loss": losses,
            "loss_squared": losses**2,
            "capped_loss": capped,
            "capped_loss_squared": capped**2,
            "correct": nobody if predicted is None else predicted == self.y,
            "positive": nobody if predicted is None else predicted == 1,
        }
        labels = max(1, len(basis.labels))
        atom = self.group * labels + (self.y.astype(int) if basis.labels else 0)
        size = len(basis.groups) * labels
        return Sample(
            list(splits),
            float(self.risk_weights @ losses),
            {k: [float(v[m].sum()) for m in self.members] for k, v in table.items()},
            {
                k: np.bincount(atom, weights=v, minlength=size).tolist()
                for k, v in table.items()
            },
        )


def risk_weights(federation: Federation, weighting: str, part: IntArray) -> FloatArray:
    """Return p_k/m_k for each row, of the silos that have rows, scaled to sum 1.

    `part` numbers the silos of one split after those of the split before.
    """
    K = len(federation)
    rows = np.array([len(silo) for silo in federation.silos], dtype=np.float64)
    p = rows / rows.sum() if weighting == "rows" else np.full(K, 1.0 / K)
    sizes = np.bincount(part)
    shares = p[np.arange(len(sizes)) % K] * (sizes > 0)
    each = shares / shares.sum() / np.maximum(sizes, 1)
    return np.asarray(each[part])


def membership(
    cell: CellFacts,
    federation: Federation,
    group: IntArray,
    y: FloatArray,
    silo: IntArray,
) -> BoolArray:
    """Mark the rows of one cell, from the names of its groups, labels and silo."""
    schema = federation.schema
    out = np.zeros(len(y), dtype=bool)
    for name, label in cell.of:
        out |= _rows_of(schema, name, label, group, y)
    if cell.silo is not None:
        out &= silo == _place(federation.silo_names, cell.silo, "silo")
    return out


def _rows_of(
    schema: Schema, name: str, label: str | None, group: IntArray, y: FloatArray
) -> BoolArray:
    rows = group == _place(schema.groups, name, "group")
    if label is not None:
        rows = rows & (y == _place(schema.labels, label, "label"))
    return np.asarray(rows)


def _place(names: Sequence[str], name: str, what: str) -> int:
    if name not in names:
        raise ArtefactError(
            f"certificate: the {what} '{name}' of a cell is not in these data"
        )
    return list(names).index(name)
