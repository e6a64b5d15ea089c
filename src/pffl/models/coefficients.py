"""What a linear model says, in the units of its raw inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    The shift stays apart. Folded into the intercept, it would cancel: a year around
    2000, or an account's number, would cost the digits by which people differ.

    Attributes
    ----------
    columns, spans
        Those of the table, and where the inputs of each are.
    coefficients
        Per unit of each input, shape (outputs, inputs).
    intercept
        Scores of the mean inputs.
    mean
        Of the inputs, over the training rows.
    deviation
        Their standard deviations; NaN where they are not known.
    fill
        What an input is where it is missing; 0 where it cannot be.
    limits
        Where numbers are kept.
    """

    columns: tuple[Column, ...]
    spans: dict[str, slice]
    coefficients: FloatArray
    intercept: FloatArray
    mean: FloatArray
    deviation: FloatArray
    fill: FloatArray
    limits: tuple[float, float]

    @classmethod
    def of(cls, predictor: Predictor, purpose: str) -> RawForm:
        """Unfold a linear model; refuse a network, which has no such form.

        Two classes have one score: the log-odds of the last.
        """
        model, columns = predictor.model, predictor.preparation.columns
        if not isinstance(model, LinearModel):
            raise UsageError(
                f"[not-linear] {purpose} needs a linear model, and this is a network: "
                "load `predictor.model.state_dict(predictor.w)` into its torch module "
                "and use torch.onnx.export; scaling and loss bound stay with pffl"
            )
        target, inputs = model.target, model.inputs
        table = predictor.w.reshape(model.n_outputs, model.n_columns)
        if model.n_outputs == 2:
            table = table[1:] - table[:1]
        d, fill, limits = (
            len(inputs.mean),
            np.zeros(len(inputs.mean)),
            (-np.inf, np.inf),
        )
        own = table[:, d] if model.intercept else np.zeros(len(table))
        elsewhere = (inputs.mean == 0).all() and (inputs.scale == 1).all()
        known = model.standardize and not elsewhere
        fill[inputs.gaps[0]] = inputs.fill
        if isinstance(model, NumericModel) and predictor.loss_bound is not None:
            limits = model.limits(predictor.loss_bound)
        ends = np.cumsum([column.width for column in columns]).tolist()
        spans = map(slice, [0, *ends], ends)
        return cls(
            columns,
            dict(zip((column.name for column in columns), spans, strict=True)),
            target.scale * table[:, :d] / inputs.scale,
            target.mean + target.scale * own,
            inputs.mean,
            inputs.scale if known else np.full(d, np.nan),
            fill,
            limits,
        )


def coefficients_of(
    predictor: Predictor, places: IntArray | None = None
) -> pd.DataFrame:
    """Return the table of coefficients; see `Predictor.coefficients`.

    Of all inputs, and the intercept; or of those at `places` alone.
    """
    import pandas as pd

    form = RawForm.of(predictor, "a table of coefficients")
    every = np.arange(len(form.mean)) if places is None else places
    ends = [span.stop for span in form.spans.values()]
    names = [predictor.schema.features[j] for j in every]
    owners = np.searchsorted(ends, every, side="right").tolist()
    columns = [form.columns[owner].name for owner in owners]
    # What follows the column's name in that of an input: a value, or a date's part.
    pairs = zip(names, columns, strict=True)
    values = [name[len(column) + 1 :] or None for name, column in pairs]
    found: dict[str, object] = {"input": names, "column": columns, "value": values}
    last: dict[str, Any] = {"input": INTERCEPT}
    labels = predictor.schema.labels if len(form.coefficients) > 1 else ("",)
    for label, slopes, start in zip(
        labels, form.coefficients, form.intercept, strict=True
    ):
        of = f": {label}" if label else ""
        found[f"coefficient{of}"] = slopes[every]
        found[f"per_sd{of}"] = slopes[every] * form.deviation[every]
        # Where all inputs are 0, added up without rounding in between.
        last[f"coefficient{of}"] = math.fsum([start, *(-slopes * form.mean).tolist()])
    found["mean"], found["sd"] = form.mean[every], form.deviation[every]
    table = pd.DataFrame(found)
    if places is None:
        table.loc[len(table)] = last
    return table
