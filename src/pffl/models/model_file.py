"""The file of a predictor: weights, scaling, names, and how a table becomes inputs.

Everything that the file announces is judged from its bytes before memory is given to
anything; no code is ever loaded from it (fault 68). The same run gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.data.columns import TableEncoding, typed_labels
from pffl.data.schema import Schema
from pffl.errors import ArtefactError, Malformed, PFFLError
from pffl.models.base import UNSCALED, Inputs, Model, Target
from pffl.models.external import Probabilities, Reported
from pffl.models.linear import rebuild
from pffl.models.predictor import Predictor
from pffl.records import Record, read
from pffl.tensors import MAX_BYTES, Parcel, judge, pack, unpack
from pffl.typing import FloatArray

FORMAT = "pffl model"
VERSION = 6
ARRAYS = ("w", "multipliers", "input_mean", "input_scale", "input_fill", "bounds")


@dataclass(frozen=True)
class _Header(Record):
    """What the header holds; `target_scaling` is None of classes."""

    format: str
    version: int
    model: dict[str, Any]
    schema: Schema
    cells: tuple[str, ...]
    preparation: dict[str, Any]
    target_scaling: Target | None = None
    loss_bound: float | None = None
    fingerprint: str | None = None


def write_model(predictor: Predictor) -> bytes:
    """Return the content of `model.safetensors`."""
    target, inputs = predictor.model.target, predictor.inputs
    header = {
        "format": FORMAT,
        "version": VERSION,
        "model": dict(predictor.model.describe()),
        "schema": asdict(predictor.schema),
        "cells": list(predictor.cells),
        "preparation": predictor.preparation.as_dict(),
        "target_scaling": None if target == UNSCALED else asdict(target),
        "loss_bound": predictor.loss_bound,
        "fingerprint": predictor.fingerprint,
    }
    arrays = (predictor.w, predictor.multipliers, inputs.mean, inputs.scale)
    named = zip(ARRAYS, (*arrays, inputs.fill, predictor.bounds), strict=True)
    numbers = {name: np.asarray(a, dtype=np.float64) for name, a in named}
    return pack(Parcel(header, numbers))


def read_model(path: str | os.PathLike[str], *, module: object = None) -> Predictor:
    """Read a predictor from a file; refuse whatever is not one, with the reason.

    Parameters
    ----------
    path
        A `model.safetensors`, or what `Predictor.save` wrote.
    module
        Of a network with a module of your own: one of that class, built as it was for
        training. Its weights are those of the file; no code is ever loaded from one.
    """
    place = Path(path)
    content = files.read(place, largest=MAX_BYTES)
    try:
        header, arrays = _opened(content)
        return _assemble(header, arrays, module)
    except PFFLError as error:
        if error.code == "old-model-file":
            raise ArtefactError(f"[old-model-file] '{place}': {error}") from error
        raise ArtefactError(
            f"[bad-model-file] '{place}' cannot be read as a model: {error}"
        ) from error


def _opened(content: bytes) -> tuple[_Header, dict[str, FloatArray]]:
    """Return header and arrays, of the right names and kinds."""
    metadata, arrays = judge(content)
    oldest = metadata.get("format") == FORMAT  # 0.1.0 wrote it elsewhere
    plain = {"format": FORMAT, "version": 1} if oldest else unpack(content).header
    found = plain.get("format"), plain.get("version")
    if found in [(FORMAT, version) for version in range(1, VERSION)]:
        raise Malformed(
            f"[old-model-file] pffl 0.2 or before wrote this model (format {found[1]}, "
            f"not {VERSION}): predict with that version, or train the model again"
        )
    if found != (FORMAT, VERSION):
        raise Malformed(
            f"[other-format] format and version are {found}, not {(FORMAT, VERSION)}"
        )
    bad = set(ARRAYS) ^ set(arrays)
    for name, array in arrays.items():
        numbers = array if array.dtype == np.float64 else np.full(1, np.nan)
        finite = numbers > -np.inf if name == "bounds" else np.isfinite(numbers)
        if array.ndim != 1 or not finite.all():
            bad.add(name)
    if bad:
        raise Malformed(
            f"[wrong-arrays] it must hold vectors of finite 64-bit numbers, {ARRAYS}; "
            f"wrong or missing: {sorted(bad)}"
        )
    return read(_Header, plain, source="header", error=Malformed), arrays


def _assemble(
    header: _Header, arrays: Mapping[str, NDArray[np.float64]], module: object
) -> Predictor:
    """Bind the model to its schema, and check every length against it."""
    schema, cells = header.schema, header.cells
    # Views of the file's bytes cannot be written to.
    w, multipliers, mean, scale, fill, bounds = (np.array(arrays[n]) for n in ARRAYS)
    unbound: Model
    if header.model == Probabilities().describe():
        unbound = Probabilities()  # of an audit: no silo is ever asked to rebuild it
    elif header.model.get("kind") == Reported.name:
        unbound = Reported.rebuilt(header.model)  # of an app: likewise
    else:
        unbound = rebuild(header.model, parameters=len(w), module=module)
    target = header.target_scaling or UNSCALED
    gaps = schema.gaps[:, : len(fill)]  # none of a model from elsewhere
    inputs = Inputs(mean, scale, fill=fill, gaps=gaps)
    model = unbound.bind(schema, inputs).with_target(target)
    d, k = schema.n_features, len(cells)
    filled = gaps.shape[1] and len(schema.indicators)
    expected = (model.n_parameters, k, d, d, filled, k)
    for name, length in zip(ARRAYS, expected, strict=True):
        if len(arrays[name]) != length:
            raise Malformed(
                f"[wrong-arrays] '{name}' has {len(arrays[name])} numbers, not {length}"
            )
    if (scale <= 0).any() or target.scale <= 0 or (multipliers < 0).any():
        raise Malformed(
            "[bad-metadata] a scale is not positive, or a multiplier is negative"
        )
    try:
        encoding = TableEncoding.from_dict(header.preparation)
        typed_labels(encoding.schema.labels, encoding.label_type)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Malformed(
            f"[bad-preparation] its preparation cannot be read: {error!r}"
        ) from error
    if encoding.schema != schema:
        raise Malformed(
            "[bad-preparation] its preparation leads to other names than the model has"
        )
    bound, data = model.loss_bound(header.loss_bound), header.fingerprint
    return Predictor(encoding, model, w, bound, data, cells, bounds, multipliers)
