"""What a linear model says, in the units of its raw inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pffl.data.columns import Column
from pffl.errors import UsageError
from pffl.models.linear import LinearModel, NumericModel
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

    from pffl.models.predictor import Predictor

INTERCEPT = "(intercept)"


@dataclass(frozen=True, eq=False)
class RawForm:
    """Scores of inputs x, filled: ``intercept + coefficients · (x − mean)``.

    The shift is kept. Folded into the intercept, it would cancel: a year around 2000,
    or an account's number, would cost the digits by which people differ.

    Attributes
    ----------
    columns
        Those of the table.
    coefficients
        Per unit of each input, shape (outputs, inputs).
    intercept
        Scores of the mean inputs.
    mean
        Of the inputs, over the training rows.
    deviation
        Their standard deviations; NaN where the model was not told.
    fill
        What an input is where it is missing; 0 where it cannot be.
    limits
        Where numbers are kept.
    """

    columns: tuple[Column, ...]
    coefficients: FloatArray
    intercept: FloatArray
    mean: FloatArray
    deviation: FloatArray
    fill: FloatArray
    limits: tuple[float, float] | None

    @classmethod
    def of(cls, predictor: Predictor, purpose: str) -> RawForm:
        """Unfold a linear model; refuse a network, which has no such form.

        Two classes have one score: the log-odds of the last.
        """
        model = predictor.model
        if not isinstance(model, LinearModel):
            raise UsageError(
                f"[not-linear] {purpose} needs a linear model, and this is a network: "
                "load `predictor.model.state_dict(predictor.w)` into its torch module "
                "and use torch.onnx.export; scaling and loss bound stay with pffl"
            )
        target, inputs = model.target, model.inputs
        if math.isfinite(inputs.longest) and purpose.startswith("an export"):
            raise UsageError(
                f"[not-exportable] this model shortens its inputs (it was trained with "
                f"noise), which {purpose} would not do: use pffl predict"
            )
        table = predictor.w.reshape(model.n_outputs, model.n_columns)
        if model.n_outputs == 2:
            table = table[1:] - table[:1]
        d, known = len(inputs.mean), model.standardize
        if (inputs.mean == 0).all() and (inputs.scale == 1).all():
            known = False  # a model from elsewhere
        fill = np.zeros(d)
        fill[inputs.gaps[0]] = inputs.fill
        own = table[:, d] if model.intercept else np.zeros(len(table))
        limits = None
        if isinstance(model, NumericModel) and predictor.loss_bound is not None:
            limits = model.limits(predictor.loss_bound)
        return cls(
            predictor.preparation.columns,
            target.scale * table[:, :d] / inputs.scale,
            target.mean + target.scale * own,
            inputs.mean,
            inputs.scale if known else np.full(d, np.nan),
            fill,
            limits,
        )

    @cached_property
    def spans(self) -> dict[str, slice]:
        """Where the inputs of each column are."""
        ends = np.cumsum([column.width for column in self.columns]).tolist()
        starts = [0, *ends[:-1]]
        names = [column.name for column in self.columns]
        return dict(zip(names, map(slice, starts, ends), strict=True))

    def shifted(self, places: IntArray | slice) -> FloatArray:
        """Scores where some inputs are 0, and the others their means.

        Added up without rounding in between.
        """
        shifts = -self.coefficients[:, places] * self.mean[places]
        pairs = zip(self.intercept, shifts, strict=True)
        return np.array([math.fsum([own, *shift.tolist()]) for own, shift in pairs])

    @property
    def raw_intercept(self) -> FloatArray:
        """Scores where all inputs are 0."""
        return self.shifted(slice(None))


def coefficients_of(
    predictor: Predictor, places: IntArray | None = None
) -> pd.DataFrame:
    """Return the table of coefficients; see `Predictor.coefficients`.

    Of all inputs, and the intercept; or of those at `places` alone.
    """
    import pandas as pd

    form = RawForm.of(predictor, "a table of coefficients")
    every = np.arange(len(form.mean)) if places is None else places
    features, ends = predictor.schema.features, [s.stop for s in form.spans.values()]
    names = list(features) if places is None else [features[j] for j in places]
    owners = np.searchsorted(ends, every, side="right").tolist()
    columns = [form.columns[owner].name for owner in owners]
    # What follows the column's name in that of an input: a value, or a date's part.
    pairs = zip(names, columns, strict=True)
    values = [name[len(column) + 1 :] or None for name, column in pairs]
    found: dict[str, object] = {"input": names, "column": columns, "value": values}
    of = [""]
    if len(form.coefficients) > 1:
        of = [f": {label}" for label in predictor.schema.labels]
    for which, slopes in zip(of, form.coefficients[:, every], strict=True):
        found[f"coefficient{which}"] = slopes
        found[f"per_sd{which}"] = slopes * form.deviation[every]
    found["mean"], found["sd"] = form.mean[every], form.deviation[every]
    table = pd.DataFrame(found)
    if places is None:
        table.loc[len(table)] = {
            "input": INTERCEPT,
            **{
                f"coefficient{which}": start
                for which, start in zip(of, form.raw_intercept, strict=True)
            },
        }
    return table
