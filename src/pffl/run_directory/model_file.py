"""`model.safetensors`: written by the format's own library, checked before it is read.

The header is judged from the size of the file before anything of the announced size is
read or allocated; no code is ever loaded from a file (fault 68).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pffl.data.schema import Attribute, Schema
from pffl.data.silo import as_inputs
from pffl.errors import ArtefactError, PFFLError
from pffl.models import Inputs, Model, rebuild
from pffl.solution import Solution
from pffl.typing import FloatArray

FORMAT = "pffl model"
VERSION = "1"
TENSORS = ("w", "multipliers", "input_mean", "input_scale")
LARGEST_HEADER = 64 << 20


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
    """

    model: Model
    schema: Schema
    w: FloatArray
    multipliers: FloatArray
    cells: tuple[str, ...]

    @property
    def inputs(self) -> Inputs:
        """How raw features become the model's inputs."""
        return self.model.inputs

    def predict_proba(self, X: object) -> FloatArray:
        """Class probabilities for raw (unscaled) features."""
        rows = self.inputs.apply(as_inputs(X))
        return self.model.predict_proba(self.w, rows)


def write_model(solution: Solution) -> bytes:
    """Return the content of `model.safetensors`."""
    from safetensors.numpy import save

    model = solution.problem.task.model
    tensors = {
        "w": solution.w,
        "multipliers": solution.multipliers,
        "input_mean": model.inputs.mean,
        "input_scale": model.inputs.scale,
    }
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "model": _json(model.describe()),
        "schema": _json(solution.schema.as_dict()),
        "cells": _json(list(solution.problem.cells.names)),
    }
    plain = {n: np.ascontiguousarray(t, dtype=np.float64) for n, t in tensors.items()}
    return save(plain, metadata=metadata)


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
    try:
        with open(place, "rb") as stream:
            header = _header(stream, place.stat().st_size)
            _check_header(header, stream.tell(), place.stat().st_size)
            stream.seek(0)
            tensors = _tensors(stream.read())
            return _assemble(tensors, header["__metadata__"], module)
    except OSError as error:
        raise ArtefactError(f"'{place}' cannot be read: {error.strerror}") from error
    except _Refused as error:
        raise ArtefactError(f"'{place}' cannot be read as a model: {error}") from error


class _Refused(Exception):
    """Why a file is not a model."""


def _header(stream: BinaryIO, size: int) -> dict[str, Any]:
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > min(size - 8, LARGEST_HEADER):
        raise _Refused(
            f"a header of {length:,} bytes is announced in a file of {size:,} bytes"
        )
    header = _parse(stream.read(length), "header")
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__"), dict):
        raise _Refused("the header has no metadata")
    return header


def _check_header(header: Mapping[str, Any], start: int, size: int) -> None:
    """Judge names, types and places of the tensors before any is read."""
    metadata = header["__metadata__"]
    found = (metadata.get("format"), metadata.get("version"))
    if found != (FORMAT, VERSION):
        raise _Refused(f"format and version are {found}, not {(FORMAT, VERSION)}")
    names = set(header) - {"__metadata__"}
    if names != set(TENSORS):
        raise _Refused(f"it holds {sorted(names)}, not {sorted(TENSORS)}")
    places = []
    for name in TENSORS:
        entry = header[name]
        try:
            (length,) = entry["shape"]
            begin, end = entry["data_offsets"]
            good = entry["dtype"] == "F64" and length >= 0 and end - begin == 8 * length
        except (TypeError, ValueError, KeyError):
            good = False
        if not good:
            raise _Refused(f"'{name}' is not a vector of 64-bit numbers: {entry}")
        places.append((begin, end))
    places.sort()
    joints = zip([(0, 0), *places], [*places, (size - start,)], strict=True)
    if any(before[-1] != after[0] for before, after in joints):
        raise _Refused("the places of its tensors do not fill the file")


def _tensors(content: bytes) -> dict[str, FloatArray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors: dict[str, FloatArray] = load(content)
    except (SafetensorError, ValueError) as error:
        raise _Refused(str(error)) from error
    for name, tensor in tensors.items():
        bad = int((~np.isfinite(tensor)).sum())
        if bad:
            raise _Refused(f"'{name}' holds {bad} numbers that are not finite")
    return tensors


def _assemble(
    tensors: Mapping[str, FloatArray], metadata: Mapping[str, str], module: object
) -> ModelFile:
    """Bind the model to its schema, and check every length against it."""
    described = _parse(metadata.get("model", ""), "model")
    schema = _schema(_parse(metadata.get("schema", ""), "schema"))
    cells = _parse(metadata.get("cells", ""), "cells")
    if not isinstance(cells, list) or not all(isinstance(c, str) for c in cells):
        raise _Refused("the names of the cells are not a list")
    inputs = Inputs(tensors["input_mean"], tensors["input_scale"])
    try:
        unbound = rebuild(described, parameters=len(tensors["w"]), module=module)
        model = unbound.bind(schema, inputs)
    except PFFLError as error:
        raise _Refused(str(error)) from error
    _check_lengths(tensors, schema, model, len(cells))
    return ModelFile(model, schema, tensors["w"], tensors["multipliers"], tuple(cells))


def _check_lengths(
    tensors: Mapping[str, FloatArray], schema: Schema, model: Model, cells: int
) -> None:
    expected = {
        "w": model.n_parameters,
        "multipliers": cells,
        "input_mean": schema.n_features,
        "input_scale": schema.n_features,
    }
    for name, length in expected.items():
        if len(tensors[name]) != length:
            raise _Refused(f"'{name}' has {len(tensors[name])} numbers, not {length}")
    if (tensors["input_scale"] <= 0).any() or (tensors["multipliers"] < 0).any():
        raise _Refused("a scale is not positive, or a multiplier is negative")


def _schema(plain: Any) -> Schema:
    try:
        attributes = tuple(
            Attribute(name, _names(values))
            for name, values in plain["attributes"].items()
        )
        features, labels = _names(plain["features"]), _names(plain["labels"])
        return Schema(features, attributes, labels, str(plain["target"]))
    except (KeyError, TypeError, AttributeError, PFFLError) as error:
        raise _Refused(f"its schema cannot be read: {error}") from error


def _names(plain: Any) -> tuple[str, ...]:
    if not isinstance(plain, list) or not all(isinstance(name, str) for name in plain):
        raise TypeError(f"not a list of names: {plain!r}")
    return tuple(plain)


def _parse(text: bytes | str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise _Refused(f"its {what} is not JSON") from error


def _json(plain: object) -> str:
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)
