"""What is promised for people not seen: by held-out rows, or along a path of models.

Without a path the model was fixed before its held-out rows were looked at, and
`unseen` says what these show. Where a promise was asked for in advance, many models
were fixed on training rows, from the safest to the least constrained, and are tested on
calibration rows in this order:

    each with the full risk δ, every cell at δ; the first that is not shown ends it

To promise what is false, the first model of the order that breaks a bound must have
been shown, and in it the one cell that is above its bound: that happens with
probability δ at most, whatever the number of models and cells (fixed-sequence testing,
intersection–union). Of the model that is shipped "at most its bound" is promised, and
no smaller figure. Where not even the first is shown, it was fixed beforehand, and its
figures are those of any such model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pffl.bounds.mean import split_delta
from pffl.evidence import noise, unseen
from pffl.evidence.certificate import Assumption, Statement
from pffl.evidence.noise import Noise
from pffl.evidence.record import (
    NOT_ASKED,
    Candidate,
    Evidence,
    Missing,
    ModelPath,
    Sample,
    known,
)
from pffl.evidence.training import losses
from pffl.text import decimals, up, words
from pffl.typing import FloatArray

HERE = "◀"  # beside the model that is shipped
PASSED, FAILED, UNTRIED = "certified", "not certified", "not tested"


def asked(e: Evidence) -> bool:
    """Whether a promise was asked for in advance."""
    return e.path != NOT_ASKED


def on_calibration(e: Evidence, path: ModelPath) -> Evidence:
    """Return what calibration rows say of the shipped model, as held-out rows.

    The first model was fixed before; another is one of so many that were.
    """
    terms, many = e.terms, len(path.candidates)
    if path.chosen > 0:
        terms = replace(terms, candidates=terms.candidates * many)
    return replace(
        e,
        terms=terms,
        heldout=path.shipped.calibration,
        data=replace(e.data, overlap=path.overlap),
        path=Missing("the rows at hand are those of the path"),
    )


def delta(e: Evidence) -> float:
    """Return the risk with which each model of the path is tested."""
    parts = e.terms.candidates * unseen.later_part(e)
    return split_delta(1.0 - e.terms.confidence, 1, parts)


def passes(e: Evidence, one: Candidate) -> bool:
    """Whether a model is shown to keep every bound, at the full risk."""
    return keeps(one, e.bounds, delta(e), weighs=e.heldout_weighted)


def keeps(one: Candidate, bounds: FloatArray, risk: float, *, weighs: bool) -> bool:
    """Whether the calibration rows show every bound, each cell with this risk."""
    found = unseen.upper_ends(one.calibration, one.loss_bound, risk, weighs=weighs)
    return found is not None and bool((found <= bounds).all())


def tested(e: Evidence, path: ModelPath) -> list[bool]:
    """Return what came of the models that were tested, until the first not shown."""
    out: list[bool] = []
    for one in path.candidates:
        out.append(passes(e, one))
        if not out[-1]:
            break
    return out


def holds(e: Evidence, path: ModelPath) -> bool:
    """Whether the shipped model and all that are safer were shown."""
    view = on_calibration(e, path)
    if unseen.usable(view) is None or unseen.failed(view):
        return False
    return all(passes(e, one) for one in path.candidates[: path.chosen + 1])


# The one number


def upper(e: Evidence) -> FloatArray | None:
    """Return the one number per cell: its mean loss for unseen people is at most this.

    What a path shows is the bound itself.
    """
    path = known(e.path)
    if isinstance(e.privacy, Noise):
        return noise.upper(e, e.privacy)
    if path is None:
        return unseen.upper(e)
    return e.bounds if holds(e, path) else unseen.upper(on_calibration(e, path))


def rise(e: Evidence) -> float | None:
    """Return by how much all bounds had to be higher to be promised of this model.

    Free where the model was fixed before its rows were looked at: the largest
    difference of an upper end and its bound has the confidence of each. None where the
    promise holds, or none was asked for in advance; 0 where figures that hold for all
    models of the path are within, but the path does not show it.
    """
    path, found = known(e.path), upper(e)
    if path is None or found is None or holds(e, path):
        return None
    return max(0.0, float((found - e.bounds).max()))


def possible(e: Evidence) -> float | None:
    """Return the common bound that can be promised, where the one asked for cannot.

    None where bounds differ, or it is no news: that no loss is above M.
    """
    more, M = rise(e), e.terms.loss_bound
    if not more or M is None or float(np.ptp(e.bounds)) > 0:
        return None
    found = float(up(float(e.bounds[0]) + more))
    return found if found < M else None


def more_rows(e: Evidence) -> dict[str, int | None]:
    """Return, of cells whose bound is not shown, about how many more rows would."""
    path = known(e.path)
    if isinstance(e.privacy, Noise):
        return {}
    if path is None:
        return unseen.more_rows(e)
    return {} if holds(e, path) else unseen.more_rows(on_calibration(e, path))


# In words


def statement(e: Evidence) -> Statement:
    """State how large the mean loss of unseen people can be, cell by cell."""
    path = known(e.path)
    if isinstance(e.privacy, Noise):
        return noise.holdout(e, e.privacy)
    if path is None:
        return unseen.holdout(e)
    view = on_calibration(e, path)
    if not holds(e, path):
        found = unseen.holdout(view)
        if not found.available:
            return found
        figures = {**found.figures, **_figures(path), "rise": rise(e)}
        text = f"{_failed(path)}{_in_the_way(e, view)}{_instead(e)} {found.text}"
        return replace(found, text=text, holds=False, figures=figures)
    cells = losses(e, path.shipped.calibration)
    rows = tuple(
        {
            "cell": name,
            "rows": int(cells.counts[z]),
            "loss": float(cells.means[z]) if cells.counts[z] else None,
            "upper": float(cells.bounds[z]),
            "vacuous": bool(cells.bounds[z] >= path.shipped.loss_bound),
            "bound": float(cells.bounds[z]),
            "shown": True,
        }
        for z, name in enumerate(cells.names)
    )
    figures = {
        "confidence": e.terms.confidence,
        "loss_bound": e.terms.loss_bound,
        "delta": delta(e),
        **_figures(path),
    }
    return Statement(
        "holdout",
        f"{in_short(e)} {_how(e, path)}",
        holds=True,
        assumptions=_grounds(e, view, path),
        figures=figures,
        per_cell=rows,
    )


def in_short(e: Evidence) -> str:
    """Say what is promised for unseen people, without how."""
    path = known(e.path)
    if isinstance(e.privacy, Noise):
        return noise.in_short(e, e.privacy)
    if path is None:
        return unseen.in_short(e)
    view = on_calibration(e, path)
    if unseen.upper(view) is None:
        return unseen.in_short(view)
    if not holds(e, path):
        return f"{_failed(path)}{_in_the_way(e, view)}{_instead(e)}"
    counted = "weighted " if e.heldout_weighted else ""
    place, many = path.chosen + 1, len(path.candidates)
    which = f", model {place} of {many} from the safest on" * (many > 1)
    return (
        f"With confidence {unseen.percent(e)} the {counted}mean loss of people not "
        f"seen is within its bound in every cell{_mixture(e)}: tested on "
        f"{path.shipped.calibration.rows:,} calibration rows{which}."
        f"{unseen.trivial(view, path.shipped.loss_bound)}"
    )


def _mixture(e: Evidence) -> str:
    """Say who unseen people are, where silos may differ."""
    if e.data.silos == 1:
        return ""
    return ", for the mixture of silos in the cell's calibration rows"


def _failed(path: ModelPath) -> str:
    """Say which model was not shown."""
    many = len(path.candidates)
    if many == 1:
        return "The model could not be shown to keep every bound."
    if path.chosen > 0:
        return (
            f"Model {path.chosen + 1} of {many} on the path was shown with confidence "
            f"{100 * path.confidence:.6g} % when it was chosen, and is not with the "
            "risk of this certificate."
        )
    return f"Not even the safest of {many} models can be shown to keep every bound."


def _in_the_way(e: Evidence, view: Evidence) -> str:
    """Name the cell that stands in the way, and the rows that it would take."""
    found, lacking = unseen.upper(view), more_rows(e)
    if found is None or not lacking:
        return ""
    cells = losses(view, _calibration(view))
    never = [name for name, many in lacking.items() if many is None]
    name = never[0] if never else max(lacking, key=lambda one: lacking[one] or 0)
    z = cells.names.index(name)
    if not cells.counts[z]:
        return f" In the way stands '{name}': there are no calibration rows of it."
    text = (
        f" In the way stands '{name}', with confidence {unseen.percent(e)} at most "
        f"{up(found[z])} against a bound of {words(cells.bounds[z])}"
    )
    if never:
        return (
            f"{text}: its calibration rows have a mean loss of "
            f"{words(cells.means[z])}, and more rows like these would not show it."
        )
    who = "people" if e.data.several else "rows"
    needed = float(up(lacking[name] or 0, digits=2))
    left = len(lacking) - 1
    others = f" ({left:,} other cell{'s' * (left > 1)} would need fewer)" * (left > 0)
    return (
        f"{text}: about {needed:,.0f} more calibration {who} of it would show its "
        f"bound, if they were like these{others}."
    )


def _calibration(view: Evidence) -> Sample:
    held = view.heldout
    if isinstance(held, Missing):
        raise TypeError("calibration rows are always there")
    return held


def _instead(e: Evidence) -> str:
    """Say what could be promised of the model, with the same rows."""
    common, more, M = possible(e), rise(e), e.terms.loss_bound
    if not more or M is None:
        return ""
    if common is not None:
        return f" A common bound of {common:.6g} can be promised of this model."
    if float(np.ptp(e.bounds)) > 0 and (e.bounds + more < M).all():
        return f" With every bound {up(more)} higher it can be promised."
    return ""


def _how(e: Evidence, path: ModelPath) -> str:
    """Say how the model was chosen, and what rows were spent."""
    many, place = len(path.candidates), path.chosen + 1
    risk, least = f"{delta(e):.6g}", "At most its bound is promised of a cell, and no "
    if many == 1:
        return (
            "One model was fixed on the training rows, and every cell of it tested "
            f"with the full risk, {risk}. {least}smaller figure."
        )
    found, end = tested(e, path), "one of those that were shown"
    if place == many:
        end = "the last of all"
    elif len(found) == place + 1 and not found[-1]:
        end = f"the last before the first that could not be shown, number {place + 1}"
    return (
        f"{many} models from the safest to the least constrained were fixed on the "
        "training rows, and tested in this order, each with the full risk, "
        f"{risk}; this is {end}. {least}smaller figure."
    )


def _grounds(e: Evidence, view: Evidence, path: ModelPath) -> tuple[Assumption, ...]:
    """Say what the promise stands on."""
    many, paths = len(path.candidates), e.terms.candidates
    fixed = Assumption(
        "All models, their order and their bets were fixed before a calibration row "
        "was looked at."
        if many > 1
        else "The model was fixed before a calibration row was looked at.",
        "assumed",
    )
    first, separate, *looks = unseen.grounds(view)
    others = looks if view.terms.others else looks[1:]
    if paths > 1 and not view.terms.others:
        text = f"It is one of {paths} paths that were fixed before the calibration "
        text += f"rows were looked at; each has 1/{paths} of the risk."
        others = [Assumption(text, "assumed"), *others]
    more = (*unseen.bounded_loss(view), *unseen.weights(view))
    return (first, separate, fixed, *others, *more)


def _figures(path: ModelPath) -> dict[str, Any]:
    return {
        "model": path.chosen + 1,
        "models": len(path.candidates),
        "rows spent": path.shipped.calibration.rows,
    }


def table(e: Evidence) -> list[dict[str, str]]:
    """Return the models of the path, as text: what each costs, and what came of it."""
    path = known(e.path)
    if path is None or len(path.candidates) < 2:
        return []
    found, out = tested(e, path), []
    error = "error" if e.labels else "mean loss"
    for place, one in enumerate(path.candidates):
        word = UNTRIED
        if place < len(found):
            word = PASSED if found[place] else FAILED
        mark = f" {HERE}" if place == path.chosen else ""
        cells = losses(e, one.training)
        out.append(
            {
                "model": f"{place + 1}{mark}",
                "margin": words(one.margin, digits=3),
                f"training {error}": decimals(error_of(e, one)),
                "least room": cells.names[cells.worst],
                "every bound": word,
            }
        )
    return out


def each(e: Evidence) -> list[str]:
    """Say of each model of the path what it is, and what came of it."""
    path = known(e.path)
    if path is None:
        return []
    many, found, out = len(path.candidates), tested(e, path), []
    error = "share of wrong predictions" if e.labels else "mean loss"
    rows = f"{path.shipped.calibration.rows:,} calibration rows"
    for place, one in enumerate(path.candidates):
        cells = losses(e, one.training)
        ends = "safest" if place == 0 else "least constrained" * (place == many - 1)
        text = f"Model {place + 1} of {many}{f', the {ends}' if ends else ''}: a "
        text += f"{error} of {decimals(error_of(e, one))} on training rows, where "
        text += f"{cells.describe(cells.worst)}. "
        if place >= len(found):
            text += "It was not tested: one before it could not be shown."
        elif found[place]:
            text += f"On {rows} every bound was shown."
        else:
            text += f"On {rows} not every bound could be shown, and here the test ends."
        out.append(
            text + " This is the model that is shipped." * (place == path.chosen)
        )
    return out


def error_of(e: Evidence, one: Candidate) -> float:
    """Return the share of wrong predictions on training rows; of numbers the loss."""
    sums = one.training.atoms
    total = sum(sums["weight"])
    if e.labels:
        return float(1.0 - sum(sums["correct"]) / total)
    return float(sum(sums["loss"]) / total)
