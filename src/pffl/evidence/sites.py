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

from pffl.evidence.certificate import Assumption, Statement
from pffl.evidence.record import AT_HAND, Evidence, Missing, Sample, Sites, known
from pffl.models.linear import LinearModel
from pffl.problem import Problem
from pffl.queries.evaluate import EvaluateTotal
from pffl.queries.plausible import SHAPES
from pffl.text import up, words
from pffl.typing import FloatArray

FLOOR = 10  # rows that a site has of a cell, for its mean loss to be shown
FEWEST = 3  # sites with so many, for the lowest and the highest to be shown
KINDS = {model.name for model in SHAPES if issubclass(model, LinearModel)}
ADDED = (
    "the sites' answers were added on the way, and nobody here has those of a single "
    "one"
)
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
        "count": (count > 0).sum(axis=0).tolist(),
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
        reason = (
            "under masks nobody sees what a single site says. Of the sums over all "
            f"sites was checked: {'; '.join(done)}. Of a single site none of this "
            "could be checked"
        )
        return Statement.not_available("sites", reason)
    rows = rows_of(e)
    if not rows:
        bounded = e.terms.loss_bound is not None
        return Statement.not_available(
            "sites", ADDED if bounded else "needs losses that are bounded"
        )
    grounds = [
        Assumption("Every site has as many rows of a cell as it says.", "assumed"),
        Assumption(f"Of each site's answers: {'; '.join(done)}.", "checked"),
    ]
    if open_:
        text = f"Of each site's answers: {'; '.join(open_)}."
        grounds.append(Assumption(text, "could not be checked"))
    z = worst(e)
    most = rows[z]["train at most"]
    text = (
        f"Whatever one of the {len(told.names)} sites has told instead of the truth, "
        f"the shipped predictor's mean loss of '{e.names[z]}' on the training rows is "
        f"at most {up(most)}"
    )
    text += ", and no cell can stand worse." if len(rows) > 1 else "."
    text += _differing(rows)
    return Statement(
        "sites",
        text,
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
    return (
        f" Between sites the mean loss of '{row['cell']}' differs most: from "
        f"{words(row['lowest'])} to {words(row['highest'])}."
    )


def worst(e: Evidence) -> int:
    """The cell that a site's lie could have put furthest above its bound."""
    means = worst_means(e, e.seen) or []
    bounds = e.bounds if e.promise else np.zeros(len(e.cells))
    return int(np.nanargmax(np.array(means, np.float64) - bounds))
