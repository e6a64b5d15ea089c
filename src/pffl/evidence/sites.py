"""What a site that tells other than the truth could have hidden: leave one out.

A site with weight n_kz in a cell may have reported any loss L_kz for it. What its rows
lose in truth is between 0 and M each, as the predictor is bounded; so the cell's mean
loss is at most

    max_k ( Σ_{j≠k} L_jz + M·n_kz ) / n_z

whichever one site it is, as long as its rows are as many as it says (fault 96).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pffl.evidence.certificate import Assumption, State, Statement
from pffl.evidence.record import AT_HAND, Evidence, Missing, Sample, Sites, known
from pffl.evidence.sentences import Said, say
from pffl.models.linear import LinearModel
from pffl.problem import Problem
from pffl.queries.evaluate import EvaluateTotal
from pffl.queries.validation import SHAPES
from pffl.typing import FloatArray

FLOOR = 10  # rows that a site has of a cell, for its mean loss to be shown
FEWEST = 3  # sites with so many, for the lowest and the highest to be shown
KINDS = {model.name for model in SHAPES if issubclass(model, LinearModel)}
JUDGED = (
    "sums are finite and within what so many rows can have; counts and weights are "
    "those of the census"
)
BY_CENSUS = "losses, gradients and Hessians are within what the census allows"


def sites_of(problem: Problem) -> Sites | Missing:
    """Say whose answers came from elsewhere, if they did."""
    if not problem.access.elsewhere:
        return AT_HAND
    return Sites(list(problem.silo_names), problem.access.pooled)


def by_site(
    totals: Sequence[EvaluateTotal], silos: int, loss_bound: float
) -> dict[str, list[float | None]]:
    """Return the columns of `Sample.sites` from the totals of some splits.

    Nothing where the answers of single silos are not known, or losses not bounded.
    """
    parts = [total.of_silos for total in totals]
    if any(len(part) != silos for part in parts) or not np.isfinite(loss_bound):
        return {}
    count, weight, loss = np.moveaxis(np.sum(parts, axis=0), -1, 0)
    unknown = np.maximum(loss_bound * weight - loss, 0.0).max(axis=0)
    shown = count >= FLOOR
    means = np.where(shown, loss, np.nan) / np.where(shown, weight, 1.0)
    many = shown.sum(axis=0) >= FEWEST
    return {
        "count": (count > 0).sum(axis=0).astype(np.float64).tolist(),
        "unknown": unknown.tolist(),
        "lowest": _shown(np.fmin.reduce(means, axis=0), many),
        "highest": _shown(np.fmax.reduce(means, axis=0), many),
    }


def _shown(values: FloatArray, which: FloatArray) -> list[float | None]:
    return [float(v) if one else None for v, one in zip(values, which, strict=True)]


def worst_means(e: Evidence, sample: Sample | None) -> list[float | None] | None:
    """Return each cell's mean loss, were the largest doubt about a site true.

    None where nobody knows; and for a cell without rows.
    """
    if sample is None or not sample.sites:
        return None
    sums, weights = sample.of_cells("bounded_loss"), sample.of_cells("weight")
    return [
        (s + (more or 0.0)) / n if n > 0 else None
        for s, more, n in zip(
            sums.tolist(), sample.sites["unknown"], weights.tolist(), strict=True
        )
    ]


def rows_of(e: Evidence) -> list[dict[str, Any]]:
    """Return one row per cell; none where the sites' figures are not known."""
    train, held = worst_means(e, e.seen), known(e.heldout)
    if train is None:
        return []
    out, test = [], worst_means(e, held)
    mark = "" if held is None else "+".join(held.splits)
    for z, name in enumerate(e.names):
        row: dict[str, Any] = {
            "cell": name,
            "sites": int(e.seen.sites["count"][z] or 0),
            "lowest": e.seen.sites["lowest"][z],
            "highest": e.seen.sites["highest"][z],
            "train at most": train[z],
        }
        if test is not None:
            row[f"{mark} at most"] = test[z]
        out.append(row)
    return out


def checks(e: Evidence) -> tuple[list[str], list[str]]:
    """Return what is checked of answers, and what could not be for this model."""
    if e.model.kind in KINDS:
        return [JUDGED, BY_CENSUS], []
    return [JUDGED], [BY_CENSUS]


def statements(e: Evidence) -> list[Statement]:
    """Return the statement, where answers came from elsewhere."""
    return [] if isinstance(e.sites, Missing) or not e.trained else [statement(e)]


def statement(e: Evidence) -> Statement:
    """State what is left of the bounds if any one site told other than the truth."""
    if isinstance(e.sites, Missing):
        return Statement.not_available("sites", e.sites.missing)
    told, (done, open_) = e.sites, checks(e)
    if told.masked:
        reason = say("sites.masked", done="; ".join(done))
        return Statement.not_available("sites", reason)
    rows = rows_of(e)
    if not rows:
        bounded = e.terms.loss_bound is not None
        reason = say("sites.added") if bounded else "needs losses that are bounded"
        return Statement.not_available("sites", reason)
    grounds = [
        Assumption.of("site rows", "assumed"),
        Assumption.of("site answers", "checked", done="; ".join(done)),
    ]
    if open_:
        state: State = "could not be checked"
        grounds.append(Assumption.of("site answers", state, done="; ".join(open_)))
    bounds = e.bounds if e.promise else np.zeros(len(e.cells))
    at_most = np.array([row["train at most"] for row in rows], np.float64)
    z = int(np.nanargmax(at_most - bounds))
    most = rows[z]["train at most"]
    figures = {"sites": len(told.names), "cell": e.names[z], "most": most}
    key = "sites" if len(rows) > 1 else "sites.one"
    return Statement.of(
        "sites",
        Said(key, {**figures, "differing": _differing(rows)}),
        value=most - (e.cells[z].bound if e.promise else 0.0),
        assumptions=tuple(grounds),
        figures={"sites": told.names},
        per_cell=tuple(rows),
    )


def _differing(rows: Sequence[dict[str, Any]]) -> str:
    """Say which cell's mean loss differs most between sites, where it is shown."""
    shown = [row for row in rows if row["lowest"] is not None]
    if not shown:
        return ""
    row = max(shown, key=lambda row: row["highest"] - row["lowest"])
    ends = {"low": row["lowest"], "high": row["highest"]}
    return say("sites.differing", cell=row["cell"], **ends)
