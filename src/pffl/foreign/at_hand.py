"""A model that is at hand in Python: an estimator, or its probabilities, and rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from pffl.data.encoding import as_column, encode_values
from pffl.data.federation import Federation
from pffl.errors import DataError, UsageError
from pffl.foreign.coefficients import Coefficients
from pffl.foreign.probabilities import INPUT, checked
from pffl.models.base import Model
from pffl.models.external import Probabilities
from pffl.typing import FloatArray

ONE_NUMBER = Coefficients(
    ("prediction",), np.ones((1, 1)), np.zeros(1), None, np.zeros(1), np.ones(1)
)


@dataclass(frozen=True, eq=False)
class People:
    """The rows that a model is measured on; see `audit`."""

    X: object
    y: object
    sensitive_features: object
    silos: object = None
    sample_weight: object = None
    name: str = "data"

    def with_inputs(
        self, values: FloatArray, names: list[str], *, classes: bool
    ) -> Federation:
        """Return the rows with a model's outputs as their inputs, all in one split."""
        with warnings.catch_warnings():
            # One input is often the same for two people: that is no sign of anything.
            warnings.simplefilter("ignore")
            return Federation.from_arrays(
                values,
                self.y,
                sensitive_features=self.sensitive_features,
                silo=self.silos,
                sample_weight=self.sample_weight,
                features=names,
                classification=classes,
                test_fraction=0.0,
                name=self.name,
            )


def at_hand(
    model: Any, people: People
) -> tuple[Model, FloatArray, tuple[str, ...], Federation]:
    """Return what a model says of people as one with these outputs as its inputs.

    Also its parameters, notes, and the people with these inputs.
    """
    if people.y is None or people.sensitive_features is None:
        raise UsageError(
            "[needs-rows] a model is audited on a federation, or on rows: give X (its "
            "inputs), y and sensitive_features"
        )
    if callable(getattr(model, "predict_proba", None)):
        classes = getattr(model, "classes_", None)
        return _classifier(model.predict_proba(_inputs(people)), people, classes)
    if callable(getattr(model, "predict", None)):
        return _regressor(model, people)
    if people.X is not None:
        raise UsageError(
            f"[no-predictions] {type(model).__name__} has neither predict_proba nor "
            "predict; probabilities themselves are given without X"
        )
    return _classifier(model, people, None)


def _inputs(people: People) -> object:
    if people.X is None:
        raise UsageError(
            "[needs-rows] an estimator is audited on its inputs: give X, too"
        )
    return people.X


def _classifier(
    given: object, people: People, classes: object
) -> tuple[Model, FloatArray, tuple[str, ...], Federation]:
    values = np.asarray(given, dtype=np.float64)
    labels, codes = encode_values(as_column(people.y), "label")
    if values.ndim not in (1, 2) or len(values) != len(codes):
        raise DataError(
            f"[wrong-shape] {values.shape} probabilities for {len(codes):,} rows of y"
        )
    values = values.reshape(len(values), -1)
    notes: tuple[str, ...] = ()
    if classes is not None:
        names, order = encode_values(as_column(classes), "classes_")
        if names != labels:
            raise DataError(
                f"[other-labels] the model has the classes {list(names)}, y has "
                f"{list(labels)}: leave out rows of other classes, or audit rows that "
                "have them all"
            )
        values = values[:, np.argsort(order)]
    elif values.shape[1] == 1 and len(labels) == 2:
        notes = (f"the probabilities are taken as those of '{labels[1]}'",)
    else:
        notes = (f"the probabilities are taken in the order {', '.join(labels)}",)
    if len(labels) == 2 and values.shape[1] == 2:
        checked(values, labels)
        values = values[:, 1:]
    if values.shape[1] != (1 if len(labels) == 2 else len(labels)):
        raise DataError(
            f"[wrong-shape] {values.shape[1]} columns of probabilities for "
            f"{len(labels)} classes"
        )
    inputs = [INPUT] if len(labels) == 2 else [f"{INPUT}: {n}" for n in labels]
    checked(values, inputs)
    rows = people.with_inputs(values, inputs, classes=True)
    blank = Probabilities()
    model = blank.bind(rows.schema, blank.inputs)
    return model, model.start(0), notes, rows


def _regressor(
    model: Any, people: People
) -> tuple[Model, FloatArray, tuple[str, ...], Federation]:
    if as_column(people.y).dtype.kind not in "iuf":
        raise DataError(
            f"[no-predictions] {type(model).__name__} has no predict_proba, and y has "
            "classes: a loss needs probabilities"
        )
    values = np.asarray(model.predict(_inputs(people)), dtype=np.float64)
    names = list(ONE_NUMBER.features)
    rows = people.with_inputs(values.reshape(len(values), -1), names, classes=False)
    bound, w, notes = ONE_NUMBER.bind(rows.schema)
    return bound, w, notes, rows
