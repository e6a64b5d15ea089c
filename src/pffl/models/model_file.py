"""The file of a predictor: weights, scaling, names, and how a table becomes inputs.

Everything that the file announces is judged from its bytes before memory is given to
anything; no code is ever loaded from it (fault 68). The same run gives the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.data.encoding import TableEncoding, typed_labels
from pffl.data.schema import Schema
from pffl.errors import ArtefactError, Malformed, PFFLError
from pffl.models.base import UNSCALED, Inputs, Model, Target
from pffl.models.linear import rebuild
from pffl.models.predictor import Predictor
from pffl.models.probabilities import Probabilities
from pffl.models.reported import Reported
from pffl.parcel import HEADER, LARGEST, Parcel, judge, pack, unpack
from pffl.records import Record, read
from pffl.typing import FloatArray

FORMAT = "pffl model"
VERSION = 5
READABLE = (2, 3, 4, 5)
TABLES = 3  # from here on a file says how tables are read, and what bounds there are
ARRAYS = ("w", "multipliers", "input_mean", "input_scale")
BOUNDS = "bounds"
FILL, FILLED = "input_fill", 5  # from there on missing inputs get values


@dataclass(frozen=True)
class _Header(Record):
    """What the header holds.

    `target_scaling` is that of a numeric target, None of classes. Files before version
    3 have no `preparation`: their inputs can only be given encoded. Before version 4
    numbers were kept in the target's range, and `loss_bound` did not say so. Before
    version 5 missing inputs were 0, whatever the scaling was.
    """

    format: str
    version: int
    model: dict[str, Any]
    schema: Schema
    cells: tuple[str, ...]
    preparation: dict[str, Any] | None = None
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
    named = dict(zip(ARRAYS, arrays, strict=True))
    named |= {BOUNDS: predictor.bounds, FILL: inputs.fill}
    numbers = {name: np.asarray(a, dtype=np.float64) for name, a in named.items()}
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
    content = files.read(place, largest=LARGEST)
    try:
        header, arrays = _opened(content)
        return _assemble(header, arrays, module)
    except PFFLError as error:
        raise ArtefactError(
            f"[bad-model-file] '{place}' cannot be read as a model: {error}"
        ) from error


def _opened(content: bytes) -> tuple[_Header, dict[str, FloatArray]]:
    """Return header and arrays, of the right names and kinds."""
    metadata, arrays = judge(content)
    if HEADER in metadata:
        plain: Mapping[str, Any] = unpack(content).header
    else:
        plain = _from_first_version(metadata)
    found = plain.get("format"), plain.get("version")
    if found not in [(FORMAT, version) for version in READABLE]:
        raise Malformed(
            f"[other-format] format and version are {found}, not {(FORMAT, VERSION)}"
        )
    names = [*ARRAYS, *[BOUNDS] * (plain["version"] >= TABLES)]
    names += [FILL] * (plain["version"] >= FILLED)
    if set(arrays) != set(names):
        raise Malformed(
            f"[wrong-arrays] it holds {sorted(arrays)}, not {sorted(names)}"
        )
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype != np.float64:
            raise Malformed(
                f"[wrong-arrays] '{name}' is not a vector of 64-bit numbers"
            )
        good = array > -np.inf if name == BOUNDS else np.isfinite(array)
        if not good.all():
            bad = int((~good).sum())
            raise Malformed(
                f"[not-finite] '{name}' holds {bad} numbers that are not finite"
            )
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
        raise Malformed(
            f"[bad-metadata] its metadata are not those of a model: {error}"
        ) from error
    schema = {**plain["schema"], "attributes": groups}
    return {**plain, "schema": schema, "format": FORMAT, "version": READABLE[0]}


def _assemble(
    header: _Header, arrays: Mapping[str, NDArray[np.float64]], module: object
) -> Predictor:
    """Bind the model to its schema, and check every length against it."""
    schema, cells = header.schema, header.cells
    # Views of the file's bytes cannot be written to.
    w, multipliers, mean, scale = (np.array(arrays[name]) for name in ARRAYS)
    unknown = np.full(len(cells), np.nan)  # before version 3
    bounds = np.array(arrays.get(BOUNDS, unknown))
    unbound: Model
    if header.model == Probabilities().describe():
        unbound = Probabilities()  # of an audit: no silo is ever asked to rebuild it
    elif header.model.get("kind") == Reported.name:
        unbound = Reported.rebuilt(header.model)  # of an app: likewise
    else:
        unbound = rebuild(header.model, parameters=len(w), module=module)
    target = header.target_scaling or UNSCALED
    fill = np.array(arrays.get(FILL, []))  # empty of a model from elsewhere
    gaps = schema.gaps[:, : len(fill)]
    inputs = Inputs(mean, scale, fill=fill, gaps=gaps)
    model = unbound.bind(schema, inputs).with_target(target)
    expected = (model.n_parameters, len(cells), schema.n_features, schema.n_features)
    lengths = dict(zip(ARRAYS, expected, strict=True))
    lengths |= {BOUNDS: len(cells), FILL: gaps.shape[1] and len(schema.indicators)}
    for name, array in arrays.items():
        if len(array) != lengths[name]:
            raise Malformed(
                f"[wrong-arrays] '{name}' has {len(array)} numbers, not {lengths[name]}"
            )
    if (scale <= 0).any() or target.scale <= 0 or (multipliers < 0).any():
        raise Malformed(
            "[bad-metadata] a scale is not positive, or a multiplier is negative"
        )
    bound = model.loss_bound(header.loss_bound)
    if header.version < 4 and not schema.labels:
        bound = next(iter(model.loss_bounds), None)
    return Predictor(
        _preparation(header),
        model,
        w,
        bound,
        header.fingerprint,
        cells,
        bounds,
        multipliers,
    )


def _preparation(header: _Header) -> TableEncoding:
    """Return how tables become inputs; refuse one that leads to other inputs."""
    if header.version < TABLES:
        return TableEncoding.of_numbers(header.schema)
    try:
        encoding = TableEncoding.from_dict(header.preparation or {})
        typed_labels(encoding.schema.labels, encoding.label_type)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Malformed(
            f"[bad-preparation] its preparation cannot be read: {error!r}"
        ) from error
    if header.version < FILLED:
        encoding = replace(encoding, schema=replace(encoding.schema, indicators=()))
    if encoding.schema != header.schema:
        raise Malformed(
            "[bad-preparation] its preparation leads to other names than the model has"
        )
    return encoding
