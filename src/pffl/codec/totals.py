"""Totals as parcels: one array a field, of exactly the shape the question asks for.

Hessians are symmetric, and travel as their upper triangles.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pffl.parcel import Malformed, Parcel
from pffl.questions import (
    Census,
    CensusTotal,
    Curvature,
    CurvatureTotal,
    Evaluate,
    EvaluateTotal,
    ModelQuestion,
    Question,
    Total,
    Train,
    TrainTotal,
)
from pffl.questions.evaluate import COLUMNS

HESSIANS = ("risk_hessian", "cell_hessians")
WHOLE = ("silos", "rows", "counts")
NUMBERS = ("risk", "share")
KINDS: dict[type[Any], tuple[str, type[Any]]] = {
    Census: ("census", CensusTotal),
    Train: ("train", TrainTotal),
    Evaluate: ("evaluate", EvaluateTotal),
    Curvature: ("curvature", CurvatureTotal),
}


def encode_total(total: Total) -> Parcel:
    """Write one silo's answer."""
    kind = next(name for name, made in KINDS.values() if made is type(total))
    arrays = {}
    for field in fields(total):  # type: ignore[arg-type]
        value = getattr(total, field.name)
        if field.name == "schema_hash":
            continue
        array = np.asarray(value, np.int64 if field.name in WHOLE else np.float64)
        arrays[field.name] = _folded(array) if field.name in HESSIANS else array
    return Parcel({"total": kind}, arrays)


def decode_total(
    parcel: Parcel, question: Question[Any], index: int, schema_hash: str
) -> Any:
    """Read silo `index`'s answer to a question; anything that does not fit is refused.

    Keys, types and shapes must be exactly those that the question asks for, and every
    number finite (faults 46, 47). Ranges are judged by `pffl.admission`.
    """
    kind, made = KINDS[type(question)]
    if dict(parcel.header) != {"total": kind}:
        raise Malformed(f"not an answer to {kind}")
    shapes = expected_shapes(question)
    if set(parcel.arrays) != set(shapes):
        different = sorted(set(parcel.arrays) ^ set(shapes))
        raise Malformed(f"arrays {different[:5]} are missing or unknown")
    values: dict[str, Any] = {}
    for name, shape in shapes.items():
        array = parcel.arrays[name]
        dtype = np.int64 if name in WHOLE else np.float64
        if array.dtype != dtype or array.shape != shape:
            raise Malformed(
                f"'{name}' is {array.dtype}{list(array.shape)}, not "
                f"{np.dtype(dtype)}{list(shape)}"
            )
        if not np.isfinite(array).all():
            raise Malformed(f"'{name}' has numbers that are not finite")
        values[name] = float(array) if name in NUMBERS else array
    if isinstance(question, Census):
        values["silos"] = np.array([index])
        values["schema_hash"] = schema_hash
    if isinstance(question, Curvature):
        p = question.task.model.n_parameters if question.order == 2 else 0
        for name in HESSIANS:
            values[name] = _unfolded(values[name], p)
    return made(**values)


def expected_shapes(question: Question[Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of an answer."""
    if isinstance(question, Census):
        d, atoms = question.schema.n_features, question.schema.n_atoms
        return {
            "silos": (1,),
            "rows": (1,),
            "counts": (1, atoms),
            "feature_sums": (d,),
            "feature_squares": (d,),
        }
    if not isinstance(question, ModelQuestion):
        raise TypeError(f"{type(question).__name__} is none of the four questions")
    p, cells = question.task.model.n_parameters, question.task.cells
    z, atoms = cells.membership.shape
    if isinstance(question, Train):
        return {
            "update": (p,),
            "share": (),
            "risk": (),
            "cell_losses": (z,),
            "powers": (2,),
        }
    if isinstance(question, Evaluate):
        c = len(COLUMNS)
        return {"atoms": (atoms, c), "cells": (z, c), "risk": (), "share": ()}
    if not isinstance(question, Curvature):
        raise TypeError(f"{type(question).__name__} is none of the four questions")
    triangle = p * (p + 1) // 2 if question.order == 2 else 0
    return {
        "risk": (),
        "risk_gradient": (p,),
        "risk_hessian": (triangle,),
        "cell_losses": (z,),
        "cell_gradients": (z, p),
        "cell_hessians": (z, triangle),
        "cell_scores": (z,),
        "cell_score_gradients": (z, p),
        "peaks": (1 + z,),
    }


def _folded(hessians: NDArray[Any]) -> NDArray[Any]:
    """Keep the upper triangles of the last two axes."""
    rows, columns = _triangle(hessians.shape[-1])
    return np.ascontiguousarray(hessians[..., rows, columns])


def _unfolded(triangles: NDArray[Any], p: int) -> NDArray[Any]:
    """Give the lower triangles back."""
    hessians = np.zeros((*triangles.shape[:-1], p, p))
    rows, columns = _triangle(p)
    hessians[..., rows, columns] = triangles
    hessians[..., columns, rows] = triangles
    return hessians


@lru_cache(maxsize=4)
def _triangle(p: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return where the upper triangle is; finding it takes longer than using it."""
    return np.triu_indices(p)
