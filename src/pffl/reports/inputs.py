"""The inputs that move a linear model most, as the page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pffl.figures import Rows, inputs
from pffl.models.export.coefficients import RawForm, coefficients_of
from pffl.models.linear import LinearModel
from pffl.models.predictor import Predictor
from pffl.text import decimals, visible

MOST = 15


@dataclass(frozen=True)
class InputsThatMatter:
    """The inputs with the largest effect of one standard deviation, and a chart.

    `heads` and `rows` are those of a table; `others` counts the inputs not shown.
    """

    words: str
    chart: Rows
    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    others: int

    @classmethod
    def of(cls, predictor: Predictor) -> InputsThatMatter | None:
        """Rank the inputs; None of a network, or where their spread is not known."""
        if not isinstance(predictor.model, LinearModel):
            return None
        form = RawForm.of(predictor, "a ranking of inputs")
        effects = form.coefficients * form.deviation
        if np.isnan(effects).all():
            return None
        several = len(effects) > 1
        size = np.ptp(effects, axis=0) if several else np.abs(effects[0])
        largest = np.argsort(-size, kind="stable")[:MOST]
        shown = coefficients_of(predictor, largest)
        names = [visible(name) for name in shown["input"]]
        lengths = size[largest] if several else effects[0, largest]
        words = _words(predictor)
        numbers = shown.filter(regex="^(coefficient|per_sd)")
        return cls(
            words,
            inputs(zip(names, lengths.tolist(), strict=True), words),
            [("input", ""), *map(_head, map(str, numbers))],
            [
                [name, *map(decimals, row)]
                for name, row in zip(names, numbers.to_numpy().tolist(), strict=True)
            ],
            len(size) - len(shown),
        )


def _words(predictor: Predictor) -> str:
    """Say what a bar is."""
    schema, one = predictor.schema, "What one standard deviation more of an input adds"
    if not schema.labels:
        return f"{one} to the predicted '{schema.target}'"
    if len(schema.labels) == 2:
        return f"{one} to the log-odds of '{schema.label_names[1]}'"
    return (
        "How far one standard deviation more of an input moves the scores of two "
        "classes apart, at most"
    )


def _head(name: str) -> tuple[str, str]:
    """Return the title of a column of coefficients, and what it means."""
    kind, colon, label = name.partition(":")
    title = {"coefficient": "per unit", "per_sd": "per standard deviation"}[kind]
    what = "unit" if kind == "coefficient" else "standard deviation"
    meaning = f"what one {what} more of the input adds; a category counts as 0 or 1"
    return f"{title}{colon}{label}", meaning
