"""Questions as parcels: all that a site needs to answer, and nothing of other sites.

A site is sent its own share p_k, its own part of the cells, and no names or bounds.
Reading checks every type, length and range against the site's schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl.constraints.base import EVERY_SILO, Cells
from pffl.data.schema import Schema
from pffl.errors import PFFLError
from pffl.models import Inputs, Model, rebuild
from pffl.parcel import Malformed, Parcel
from pffl.questions import (
    Census,
    Curvature,
    Evaluate,
    ModelQuestion,
    Question,
    Task,
    Train,
)
from pffl.typing import FloatArray

MOST_CELLS = 10_000
MOST_STEPS = 1_000_000
MOST_SILOS = 1_000_000

Rebuild: TypeAlias = Callable[[object, int], Model]  # describe(), len(w) → unbound


def encode_question(question: Question[Any], index: int = 0) -> Parcel:
    """Write a question for the silo at `index`."""
    if isinstance(question, Census):
        return Parcel({"question": "census", "split": question.split})
    if not isinstance(question, ModelQuestion):
        raise TypeError(f"{type(question).__name__} is none of the four questions")
    header, arrays = _task(question.task, index)
    arrays["w"] = question.w
    if isinstance(question, Train):
        header |= {
            "question": "train",
            "risk_weight": question.risk_weight,
            "batch_size": question.batch_size,
            "proximal": question.proximal,
            "seed": question.seed,
            "round": question.round,
            "ridge": question.ridge,
            "loss_power": question.loss_power,
        }
        arrays["cell_weights"] = question.cell_weights
        arrays["step_sizes"] = question.step_sizes
    elif isinstance(question, Evaluate):
        bound = question.loss_bound
        header |= {
            "question": "evaluate",
            "split": question.split,
            "loss_bound": bound if np.isfinite(bound) else None,
        }
    elif isinstance(question, Curvature):
        header |= {
            "question": "curvature",
            "majorant": bool(question.majorant),
            "order": question.order,
            "sharpness": question.sharpness,
        }
    else:
        raise TypeError(f"{type(question).__name__} is none of the four questions")
    return Parcel(header, {k: np.asarray(v, np.float64) for k, v in arrays.items()})


def decode_question(
    parcel: Parcel, schema: Schema, *, own_model: Rebuild | None = None
) -> tuple[Question[Any], int]:
    """Read a question, and the place of the silo that it is meant for.

    `own_model` rebuilds models with a module of the user's own.
    """
    header = _Fields(parcel.header)
    kind = header.choice("question", ("census", "train", "evaluate", "curvature"))
    if kind == "census":
        if parcel.arrays:
            raise Malformed("a census question has no arrays")
        census = Census(schema, header.text("split"))
        header.done()
        return census, 0
    index = header.whole("index", most=MOST_SILOS)
    arrays = dict(parcel.arrays)
    w = _vector(arrays, "w", None)
    build = own_model or _rebuild
    task = _read_task(header, arrays, schema, index, len(w), build)
    if len(w) != task.model.n_parameters:
        raise Malformed(f"w has {len(w)} numbers, not {task.model.n_parameters}")
    question: Question[Any]
    if kind == "train":
        question = _train(header, arrays, task, w)
    elif kind == "evaluate":
        bound = header.number("loss_bound", optional=True)
        question = Evaluate(
            task, w, header.text("split"), np.inf if bound is None else bound
        )
    else:
        question = Curvature(
            task,
            w,
            header.choice("majorant", (False, True)),
            header.choice("order", (1, 2)),
            header.number("sharpness") or 0.0,
        )
    header.done()
    if arrays:
        raise Malformed(f"unknown arrays {sorted(arrays)}")
    return question, index


def _task(task: Task, index: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    header = {
        "index": index,
        "share": float(task.shares[index]),
        "model": dict(task.model.describe()),
    }
    arrays: dict[str, NDArray[Any]] = {
        "input_mean": task.model.inputs.mean,
        "input_scale": task.model.inputs.scale,
        "membership": task.cells.of_silo(index),
    }
    return header, arrays


def _read_task(
    header: _Fields,
    arrays: dict[str, NDArray[Any]],
    schema: Schema,
    index: int,
    parameters: int,
    build: Rebuild,
) -> Task:
    mean = _vector(arrays, "input_mean", schema.n_features)
    scale = _vector(arrays, "input_scale", schema.n_features)
    if (scale <= 0).any():
        raise Malformed("an input scale is not positive")
    member = _array(arrays, "membership")
    if member.ndim != 2 or member.shape[1] != schema.n_atoms:
        raise Malformed(f"membership has shape {member.shape}")
    if len(member) > MOST_CELLS or not np.isin(member, (0.0, 1.0)).all():
        raise Malformed(f"membership of more than {MOST_CELLS} cells, or not 0 and 1")
    share = header.number("share") or 0.0
    if share > 1:
        raise Malformed(f"a share of {share}")
    shares = np.zeros(index + 1)
    shares[index] = share
    try:
        model = build(header.take("model"), parameters).bind(
            schema, Inputs(mean, scale)
        )
    except PFFLError as error:
        raise Malformed(f"the model cannot be built: {error}") from error
    z = len(member)
    cells = Cells(
        tuple(map(str, range(z))),
        np.zeros(z),
        member.astype(bool),
        np.full(z, EVERY_SILO),
    )
    return Task(model, cells, shares)


def _train(
    header: _Fields, arrays: dict[str, NDArray[Any]], task: Task, w: FloatArray
) -> Train:
    sizes = _vector(arrays, "step_sizes", None)
    if not 0 < len(sizes) <= MOST_STEPS:
        raise Malformed(f"{len(sizes)} local steps")
    return Train(
        task,
        w,
        header.number("risk_weight") or 0.0,
        _vector(arrays, "cell_weights", len(task.cells)),
        sizes,
        header.whole("batch_size", optional=True) or None,
        header.number("proximal") or 0.0,
        header.whole("seed"),
        header.whole("round"),
        header.number("ridge", optional=True),
        header.number("loss_power") or 0.0,
    )


def _rebuild(described: object, parameters: int) -> Model:
    return rebuild(described, parameters=parameters)


class _Fields:
    """Fields of a header, taken one by one; what is left over is refused."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self._left = dict(header)

    def take(self, name: str) -> Any:
        """Take a field out."""
        if name not in self._left:
            raise Malformed(f"'{name}' is missing")
        return self._left.pop(name)

    def choice(self, name: str, allowed: tuple[Any, ...]) -> Any:
        """Take one of a few values, of the same type."""
        value = self.take(name)
        if not any(
            value is c or (type(value) is type(c) and value == c) for c in allowed
        ):
            raise Malformed(f"'{name}' is {str(value)[:40]!r}, not one of {allowed}")
        return value

    def text(self, name: str) -> str:
        """Take a short text."""
        value = self.take(name)
        if not isinstance(value, str) or len(value) > 100:
            raise Malformed(f"'{name}' is not a short text")
        return value

    def whole(self, name: str, *, most: int = 2**63, optional: bool = False) -> int:
        """Take a whole number ≥ 0; 0 for an optional one that is null."""
        value = self.take(name)
        if value is None and optional:
            return 0
        if type(value) is not int or not 0 <= value < most:
            raise Malformed(f"'{name}' is {str(value)[:40]!r}, not a whole number")
        return value

    def number(self, name: str, *, optional: bool = False) -> float | None:
        """Take a finite number ≥ 0."""
        value = self.take(name)
        if value is None and optional:
            return None
        if type(value) not in (int, float) or not 0 <= value < 1e300:
            raise Malformed(f"'{name}' is {str(value)[:40]!r}, not a number ≥ 0")
        return float(value)

    def done(self) -> None:
        """Refuse what nobody took."""
        if self._left:
            raise Malformed(f"unknown fields {sorted(self._left)[:5]}")


def _array(arrays: dict[str, NDArray[Any]], name: str) -> FloatArray:
    array = arrays.pop(name, None)
    if array is None or array.dtype != np.float64:
        raise Malformed(f"'{name}' is missing or not of 64-bit numbers")
    if not np.isfinite(array).all():
        raise Malformed(f"'{name}' has numbers that are not finite")
    return array


def _vector(
    arrays: dict[str, NDArray[Any]], name: str, length: int | None
) -> FloatArray:
    array = _array(arrays, name)
    if array.ndim != 1 or (length is not None and len(array) != length):
        raise Malformed(f"'{name}' has shape {array.shape}, not ({length},)")
    return array
