"""A linear model by its coefficients, such as scikit-learn's, read from a file.

JSON    {"features": [...], "coef": [...], "intercept": 0.1, "classes": ["no", "yes"]}
npz     arrays of the same names
CSV     columns feature, coef and a row (intercept); for several classes one column
        per class, named after it, instead of coef

(`classes` is optional; so are `mean` and `scale` of a scaler in front of the model, one
number per feature; scikit-learn's own names, coef_, feature_names_in_, …, will do.)
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pffl.data.reading import read_table
from pffl.data.schema import Schema
from pffl.errors import ArtefactError, DataError, Problems
from pffl.models.base import Inputs
from pffl.models.linear import (
    LeastSquares,
    LinearModel,
    LogisticRegression,
    SoftmaxRegression,
)
from pffl.typing import FloatArray

LARGEST = 256 << 20  # bytes of a file, unpacked
INTERCEPTS = ("(intercept)", "intercept", "intercept_", "(Intercept)")
KEYS = ("features", "coef", "intercept", "classes", "mean", "scale")
ALIASES = {"feature_names_in": "features", "feature": "features"}


@dataclass(frozen=True, eq=False)
class Coefficients:
    """A linear model by the names of its inputs.

    Attributes
    ----------
    features, coef, intercept
        Names, coefficients, shape (outputs, features), and constants, shape (outputs,).
    classes
        The class of each output (of two classes: both, the positive one last); or None.
    mean, scale
        Of each feature, taken off and divided by before the model.
    """

    features: tuple[str, ...]
    coef: FloatArray
    intercept: FloatArray
    classes: tuple[str, ...] | None
    mean: FloatArray
    scale: FloatArray

    def bind(self, schema: Schema) -> tuple[LinearModel, FloatArray, tuple[str, ...]]:
        """Return the model for these data, its parameters, and notes."""
        unknown = [f"'{name}'" for name in self.features if name not in schema.features]
        if unknown:
            there = ", ".join(schema.features[:20])
            raise DataError(
                "[other-inputs] the model has inputs that the data have not: "
                f"{', '.join(unknown)}; there are "
                f"{there}{', …' if schema.n_features > 20 else ''}"
            )
        notes = []
        unused = [name for name in schema.features if name not in self.features]
        if unused:
            notes.append(f"inputs that the model does not use: {', '.join(unused)}")
        coef, intercept = self._by_label(schema)
        if schema.labels and self.classes is None:
            order = ", ".join(schema.labels)
            notes.append(f"the model names no classes: taken to be {order}, in order")
        place = [schema.features.index(name) for name in self.features]
        rows = np.zeros((len(coef), schema.n_features + 1))
        rows[:, place], rows[:, -1] = coef, intercept
        mean, scale = np.zeros(schema.n_features), np.ones(schema.n_features)
        mean[place], scale[place] = self.mean, self.scale
        kind = _kind(schema)
        model = kind(0.0, inputs=Inputs(mean, scale), n_outputs=len(coef))
        return model, rows.reshape(-1), tuple(notes)

    def _by_label(self, schema: Schema) -> tuple[FloatArray, FloatArray]:
        """Return the outputs in the order of the label codes."""
        labels, classes = schema.labels, self.classes
        outputs = len(self.coef)
        wanted = 1 if len(labels) <= 2 else len(labels)
        if outputs != wanted:
            raise DataError(
                f"[wrong-shape] the model has {outputs} outputs; '{schema.target}' "
                f"needs {wanted}"
            )
        if classes is None or not labels:
            return self.coef, self.intercept
        if sorted(classes) != sorted(labels):
            raise DataError(
                f"[other-labels] the model has the classes {list(classes)}, the data "
                f"{list(labels)}"
            )
        if len(labels) == 2:
            sign = 1.0 if classes[1] == labels[1] else -1.0
            return sign * self.coef, sign * self.intercept
        order = [classes.index(label) for label in labels]
        return self.coef[order], self.intercept[order]


def _kind(schema: Schema) -> type[LinearModel]:
    if not schema.labels:
        return LeastSquares
    return LogisticRegression if len(schema.labels) == 2 else SoftmaxRegression


def read_coefficients(path: str | os.PathLike[str]) -> Coefficients:
    """Read coefficients from a JSON, npz or CSV file; refuse what is none."""
    place = Path(path)
    try:
        size = place.stat().st_size
        if size > LARGEST:
            raise ArtefactError(f"[too-large] '{place}' is too large for coefficients")
        if place.suffix == ".npz":
            found = _npz(place)
        elif place.suffix == ".json":
            found = json.loads(place.read_text("utf-8"))
        else:
            found = _csv(place)
    except (OSError, ValueError, RecursionError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise ArtefactError(
            f"[not-coefficients] '{place}' has no coefficients: {error}"
        ) from error
    if not isinstance(found, Mapping):
        raise ArtefactError(
            f"[not-coefficients] '{place}' has no coefficients: it is not a mapping"
        )
    return parse(found, str(place))


def parse(found: Mapping[str, Any], source: str) -> Coefficients:
    """Check names and shapes; all problems at once."""
    given = {_name(str(key)): value for key, value in found.items()}
    with Problems(f"'{source}'", ArtefactError) as problems:
        for key in ("features", "coef"):
            if given.get(key) is None:
                problems.add(f"[missing-key] no '{key}'")
        if len(problems.found) == 2:
            problems.add(
                "[not-linear] of a model that is not linear, audit its probabilities "
                "(CSV)"
            )
        unknown = [key for key in given if key not in KEYS]
        if unknown:
            problems.add(f"[unknown-key] unknown {unknown}; known are {list(KEYS)}")
    names = tuple(str(name) for name in np.atleast_1d(given["features"]).tolist())
    d = len(names)
    with Problems(f"'{source}'", ArtefactError) as problems:
        coef = np.atleast_2d(_numbers(given, "coef", problems))
        if coef.shape[-1] != d or coef.ndim != 2:
            problems.add(
                f"[wrong-shape] 'coef' has the shape {coef.shape} for {d} features"
            )
        if len(set(names)) != d:
            problems.add("[repeated-name] a feature is named twice")
        intercept = np.atleast_1d(_numbers(given, "intercept", problems, 0.0))
        if intercept.shape == (1,):
            intercept = np.repeat(intercept, len(coef))
        mean = np.atleast_1d(_numbers(given, "mean", problems, np.zeros(d)))
        scale = np.atleast_1d(_numbers(given, "scale", problems, np.ones(d)))
        for key, array, shape in (
            ("intercept", intercept, (len(coef),)),
            ("mean", mean, (d,)),
            ("scale", scale, (d,)),
        ):
            if array.shape != shape:
                problems.add(
                    f"[wrong-shape] '{key}' has the shape {array.shape}, not {shape}"
                )
        if (scale <= 0).any():
            problems.add("[bad-scale] a 'scale' is not positive")
    return Coefficients(names, coef, intercept, _classes(given), mean, scale)


def _name(key: str) -> str:
    plain = key.strip().rstrip("_")
    return ALIASES.get(plain, plain)


def _numbers(
    given: Mapping[str, Any], key: str, problems: Problems, default: Any = None
) -> FloatArray:
    value = given.get(key)
    try:
        array = np.asarray(default if value is None else value, dtype=np.float64)
    except (TypeError, ValueError):
        problems.add(f"[not-numbers] '{key}' is not made of numbers")
        return np.zeros(0)
    if not np.isfinite(array).all():
        problems.add(f"[not-finite] '{key}' holds numbers that are not finite")
    return array


def _classes(given: Mapping[str, Any]) -> tuple[str, ...] | None:
    found = given.get("classes")
    if found is None:
        return None
    values = np.atleast_1d(np.asarray(found)).tolist()
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    return tuple(str(value) for value in whole)


def _npz(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
            raise ArtefactError(f"[too-large] '{path}' is too large for coefficients")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _csv(path: Path) -> dict[str, Any]:
    frame, _ = read_table(path)
    first, *others = (str(name) for name in frame.columns)
    names = frame[first].astype(str).str.strip()
    constant = names.isin(INTERCEPTS)
    columns = [name for name in others if name not in ("mean", "scale")]
    out: dict[str, Any] = {
        "features": names[~constant].tolist(),
        "coef": frame.loc[~constant, columns].to_numpy(dtype=np.float64).T,
    }
    if constant.any():
        out["intercept"] = frame.loc[constant, columns].to_numpy(dtype=np.float64)[0]
    if len(columns) > 1:
        out["classes"] = columns
    for name in ("mean", "scale"):
        if name in others:
            out[name] = frame.loc[~constant, name].to_numpy(dtype=np.float64)
    return out
