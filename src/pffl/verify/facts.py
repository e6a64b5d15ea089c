"""Check what a certificate stands on: hashes, declarations, counts and sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pffl.certificates import Certificate
from pffl.certify.basis import COUNTS, Basis, Sample
from pffl.certify.subject import model_fingerprint, repeated_in
from pffl.data.federation import Federation
from pffl.models.base import Model
from pffl.models.linear import LinearModel
from pffl.typing import FloatArray
from pffl.verify.check import EXACT, SUMS, Check, same, same_list

DECLARED = ("risk_weight", "multiplier_bound", "radius", "loss_bound", "weighting")


def fingerprints(
    certificate: Certificate, model: Model, w: FloatArray, federation: Federation
) -> Iterator[Check]:
    """Hash the model and the rows again."""
    stated = certificate.fingerprints
    found = {
        "model": model_fingerprint(model, w),
        "schema": federation.schema.hash,
        "data": federation.fingerprint,
    }
    for name, number in found.items():
        if name == "data" and name not in stated:
            detail = "not stated: whoever certified could not see the rows"
            yield Check("fingerprint of the data", None, number, True, detail)
            continue
        what = "names of inputs, groups and labels" if name == "schema" else name
        yield same(f"fingerprint of the {what}", stated.get(name), number)


def declared(
    certificate: Certificate, basis: Basis, known: Mapping[str, Any]
) -> Iterator[Check]:
    """Compare with what the run recorded of itself."""
    for name in DECLARED:
        if name in known:
            yield same(f"declared: {name}", getattr(basis, name), known[name])
    bounds: Mapping[str, float] = known.get("bounds", {})
    for cell in basis.cells:
        if bounds:
            yield same(f"bound of '{cell.cell}'", cell.bound, bounds.get(cell.cell))
    if "fingerprint" in known:
        prints = certificate.fingerprints
        stated = prints.get("trained on", prints.get("data"))
        what = "fingerprint of the data it was trained on"
        yield same(what, stated, known["fingerprint"])


def facts(
    certificate: Certificate,
    basis: Basis,
    model: Model,
    w: FloatArray,
    multipliers: FloatArray,
    federation: Federation,
) -> Iterator[Check]:
    """Compare names, sizes and multipliers."""
    yield from _model_facts(basis, model, w)
    yield same("number of silos", basis.silos, len(federation))
    yield same("groups", basis.groups, list(federation.schema.groups))
    yield same("labels", basis.labels, list(federation.schema.labels))
    if "data" in certificate.fingerprints:
        yield same("name of the data", basis.data, federation.name)
    prints = certificate.fingerprints
    trained_on = prints.get("trained on", prints.get("data") if basis.trained else None)
    other = trained_on is not None and trained_on != prints.get("data")
    yield same("other data", basis.other_data, other)
    known = trained_on is not None and not other
    overlap = _overlap(basis, federation) if known else None
    yield same("overlap", basis.overlap, overlap)
    if basis.trained:
        lam = multipliers if len(multipliers) else np.zeros(len(basis.cells))
        names = basis.names
        yield from same_list(
            lambda z: f"multiplier of '{names[z]}'",
            basis.multipliers,
            [float(number) for number in lam],
        )


def _model_facts(basis: Basis, model: Model, w: FloatArray) -> Iterator[Check]:
    here = {
        "kind": str(model.describe().get("kind")),
        "parameters": len(w),
        "outputs": int(getattr(model, "n_outputs", 1)),
        "l2": model.l2,
        "convex": bool(model.convex),
        "linear": isinstance(model, LinearModel),
    }
    for name, value in here.items():
        yield same(f"model: {name}", getattr(basis.model, name), value)
    length = float(np.linalg.norm(w))
    yield same("model: length", basis.model.length, length, tolerance=SUMS)


def _overlap(basis: Basis, federation: Federation) -> int | None:
    sample = basis.unseen
    if sample is None:
        return None
    return sum(repeated_in(federation, split) for split in sample.splits)


def sums(
    basis: Basis, name: str, found: Sample, precision: float = SUMS
) -> Iterator[Check]:
    """Compare counts and sums of one sample, cell by cell, and per group and label."""
    stated = basis.samples[name]
    yield same(f"{name}: risk", stated.risk, found.risk, tolerance=precision)
    labels: list[str | None] = [*basis.labels] or [None]
    atoms = [
        group if label is None else f"{group}, {label}"
        for group in basis.groups
        for label in labels
    ]
    for part, names, tables in (
        ("cell", basis.names, (stated.cells, found.cells)),
        ("group and label", atoms, (stated.atoms, found.atoms)),
    ):
        for column in (*found.cells, *(set(tables[0]) - set(found.cells))):
            what = f"{name}: {_WORDS.get(column, column)} of {part}"
            yield from same_list(
                partial(_named, what, names),
                tables[0].get(column, []),
                tables[1].get(column, []),
                tolerance=EXACT if column in COUNTS else precision,
            )


def _named(what: str, names: Sequence[str], place: int) -> str:
    return f"{what} '{names[place]}'"


_WORDS = {
    "count": "number of rows",
    "loss": "loss sum",
    "loss_squared": "sum of squared losses",
    "capped_loss": "cut loss sum",
    "capped_loss_squared": "sum of squared cut losses",
    "correct": "correct predictions",
    "positive": "positive predictions",
}
