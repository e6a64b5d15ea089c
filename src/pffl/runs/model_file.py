"""`model.safetensors`: a parcel of a model's weights, scaling and names.

Everything that the file announces is judged from its bytes before memory is given to
anything; no code is ever loaded from it (fault 68). The same run gives the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.data.schema import Schema
from pffl.data.silo import as_inputs
from pffl.errors import ArtefactError, Malformed, PFFLError
from pffl.models import Inputs, Model, Target, rebuild
from pffl.models.base import UNSCALED
from pffl.records import Record, read
from pffl.typing import FloatArray
from pffl.wire.parcel import HEADER, LARGEST, Parcel, judge, pack, unpack

if TYPE_CHECKING:
    from pffl.solution import Solution

FORMAT = "pffl model"
VERSION = 2
ARRAYS = ("w", "multipliers", "input_mean", "input_scale")


@dataclass(frozen=True, eq=False)
class ModelFile:
    """A model as it was saved.

    Attributes
    ----------
    model
        The model, bound to its schema and scaling.
    schema
        Names of features, groups and labels.
    w, multipliers
        Parameters, and λ of each of `cells`.
    cells
        Names of the cells.
    loss_bound
        M: its probabilities are kept so far from 0 that no loss is above it.
    """

    model: Model
    schema: Schema
    w: FloatArray
    multipliers: FloatArray
    cells: tuple[str, ...]
    loss_bound: float | None = None

    @classmethod
    def of(cls, solution: Solution) -> ModelFile:
        """Return the model of a solution."""
        problem = solution.problem
        return cls(
            problem.task.model,
            solution.schema,
            solution.w,
            solution.multipliers,
            problem.cells.names,
            solution.loss_bound if problem.task.model.n_classes else None,
        )

    @property
    def inputs(self) -> Inputs:
        """How raw features become the model's inputs."""
        return self.model.inputs

    def predict_proba(self, X: object) -> FloatArray:
        """Class probabilities for raw (unscaled) features, bounded as certified."""
        rows = self.inputs.apply(as_inputs(X))
        bound = np.inf if self.loss_bound is None else self.loss_bound
        return self.model.bounded_proba(self.w, rows, bound)


@dataclass(frozen=True)
class _Header(Record):
    """What the header holds.

    `target_scaling` is that of a numeric target, None of classes. `preparation` is room
    for how a table's columns become inputs (types, vocabulary, what is done where a
    value is missing): this version writes none, and refuses a model that needs it.
    """

    format: str
    version: int
    model: dict[str, Any]
    schema: Schema
    cells: tuple[str, ...]
    preparation: None = None
    target_scaling: Target | None = None
    loss_bound: float | None = None


def write_model(saved: ModelFile) -> bytes:
    """Return the content of `model.safetensors`."""
    target = saved.model.target
    header = {
        "format": FORMAT,
        "version": VERSION,
        "model": dict(saved.model.describe()),
        "schema": asdict(saved.schema),
        "cells": list(saved.cells),
        "preparation": None,
        "target_scaling": None if target == UNSCALED else asdict(target),
        "loss_bound": saved.loss_bound,
    }
    inputs = saved.inputs
    arrays = (saved.w, saved.multipliers, inputs.mean, inputs.scale)
    numbers = (np.asarray(array, dtype=np.float64) for array in arrays)
    return pack(Parcel(header, dict(zip(ARRAYS, numbers, strict=True))))


def read_model(path: str | os.PathLike[str], *, module: object = None) -> ModelFile:
    """Read a model; refuse whatever is not one, with the reason.

    Parameters
    ----------
    path
        A `model.safetensors`.
    module
        Of a network with a module of your own: one of that class, built as it was for
        training. Its weights are those of the file; no code is ever loaded from one.
    """
    place = Path(path)
    content = files.read(place, largest=LARGEST)
    try:
        header, arrays = _opened(content)
        return _assemble(header, arrays, module)
    except PFFLError as error:
        raise ArtefactError(f"'{place}' cannot be read as a model: {error}") from error


def _opened(content: bytes) -> tuple[_Header, dict[str, FloatArray]]:
    """Return header and arrays, of the right names and kinds."""
    metadata, arrays = judge(content)
    if HEADER in metadata:
        plain: Mapping[str, Any] = unpack(content).header
    else:
        plain = _from_first_version(metadata)
    found = (plain.get("format"), plain.get("version"))
    if found != (FORMAT, VERSION):
        raise Malformed(f"format and version are {found}, not {(FORMAT, VERSION)}")
    if set(arrays) != set(ARRAYS):
        raise Malformed(f"it holds {sorted(arrays)}, not {sorted(ARRAYS)}")
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype != np.float64:
            raise Malformed(f"'{name}' is not a vector of 64-bit numbers")
        bad = int((~np.isfinite(array)).sum())
        if bad:
            raise Malformed(f"'{name}' holds {bad} numbers that are not finite")
    return read(_Header, plain, source="header", error=Malformed), arrays


def _from_first_version(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header of a model that pffl 0.1.0 wrote; what is none stays odd."""
    try:
        plain = {key: json.loads(metadata[key]) for key in ("model", "schema", "cells")}
        named = plain["schema"]["attributes"].items()
        groups = [{"name": name, "values": values} for name, values in named]
        if (metadata["format"], metadata["version"]) != (FORMAT, "1"):
            return dict(metadata)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise Malformed(f"its metadata are not those of a model: {error}") from error
    schema = {**plain["schema"], "attributes": groups}
    return {**plain, "schema": schema, "format": FORMAT, "version": VERSION}


def _assemble(
    header: _Header, arrays: Mapping[str, NDArray[np.float64]], module: object
) -> ModelFile:
    """Bind the model to its schema, and check every length against it."""
    schema, cells = header.schema, header.cells
    # Views of the file's bytes cannot be written to.
    w, multipliers, mean, scale = (np.array(arrays[name]) for name in ARRAYS)
    unbound = rebuild(header.model, parameters=len(w), module=module)
    target = header.target_scaling or UNSCALED
    model = unbound.bind(schema, Inputs(mean, scale)).with_target(target)
    expected = (model.n_parameters, len(cells), schema.n_features, schema.n_features)
    for name, length in zip(ARRAYS, expected, strict=True):
        if len(arrays[name]) != length:
            raise Malformed(f"'{name}' has {len(arrays[name])} numbers, not {length}")
    if (scale <= 0).any() or target.scale <= 0 or (multipliers < 0).any():
        raise Malformed("a scale is not positive, or a multiplier is negative")
    return ModelFile(
        model, schema, w, multipliers, cells, model.loss_bound(header.loss_bound)
    )
