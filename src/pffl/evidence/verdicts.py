"""The three verdicts, and what stands beside them: each a word, a key and its figures.

Under noise no cell is called the worst: noise could have chosen it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pffl.bounds.infeasible import FAR
from pffl.evidence import noise as noises
from pffl.evidence.judged import FEWEST, TOLERANCE, Judged, Losses, limits, named
from pffl.evidence.judged import unbounded as unbounded_of
from pffl.evidence.record import Missing, ModelPath, Settling, Training, known
from pffl.evidence.sentences import Said
from pffl.privacy.accounting import mu_of
from pffl.text import decimals, up, words
from pffl.typing import BoolArray

#: What to raise, of a method that was stopped too early; the first that it has.
EFFORT = ("dual_rounds", "rounds", "max_rounds", "iterations")
SHARP = 1e-5  # of a smallest bound: its ends are one figure if they are this close
TOLD = 3  # cells that a sentence names
NO_MULTIPLIER = 1e-9  # multipliers whose sum is this small are 0
FEW = 30  # rows in a split, below which a mean says too little
MUCH = 0.1  # part of the training loss by which held-out loss must be above it
ERRORS = 3.0  # standard errors by which it must be above it, for one set of rows


@dataclass(frozen=True)
class Verdict:
    """One of the three: what holds, in a word and a sentence, with its figures."""

    said: Said
    more: Mapping[str, Any] = field(default_factory=dict)
    own: str = ""  # a word that is not that of the key

    @property
    def word(self) -> str:
        """The verdict, in a word."""
        return self.own or self.said.key.split(".")[1]

    @property
    def sentence(self) -> str:
        """The verdict, in a sentence."""
        return str(self.said)

    def as_dict(self) -> dict[str, Any]:
        """Plain form, for result.json."""
        return {"verdict": self.word, "sentence": self.sentence, **self.more}

    def certified(self) -> dict[str, Any]:
        """Plain form, for certificate.json: also key and figures of the sentence."""
        word, sentence = self.word, self.sentence
        return {"verdict": word, "sentence": sentence, **self.said.as_dict()}


# Training rows


def training(j: Judged, found: Verdict) -> Verdict:
    """Return the verdict on training rows; of a model from elsewhere there are none."""
    if isinstance(j.e.training, Missing):
        return Verdict(_reason("training.not measured.audit", j.e.training.missing))
    return found


def judge(j: Judged) -> Verdict:
    """Judge the rows at hand."""
    e = j.e
    if e.stopped is not None:
        return Verdict(Said(f"training.{e.stopped}"))
    if not e.promise:
        said = _minimax(j) if e.minimax else Said("training.no bounds")
        if j.converged == "no":
            figures = {"unfinished": unfinished(j), "said": said}
            return Verdict(Said("training.not converged.no bounds", figures))
        return Verdict(said)
    if j.train.empty and e.noise is None:
        empty = ", ".join(j.train.empty)
        return Verdict(Said("training.not measured", {"cells": empty}))
    return Verdict(_bounded(j, j.train))


def _bounded(j: Judged, cells: Losses) -> Said:
    e, noise, rows = j.e, j.e.noise, rows_word(j)
    sure = {"confidence": e.terms.confidence, "rows": rows}
    if noise is not None:
        if cells.met:
            return Said("training.met.noise", sure)
        if cells.missed:
            told = _cells(cells, cells.above, "cell.between")
            return Said("training.not met.noise", {**sure, "cells": told})
        told = _cells(cells, cells.high > cells.bounds, "cell.between")
        more = {"epsilon": noise.epsilon, "cells": told, "deciding": _deciding(j)}
        return Said("training.not decided", sure | more)
    figures: dict[str, Any] = {"worst": standing(cells, cells.worst), "rows": rows}
    if j.converged == "no" and (cells.met or j.proof is None):
        key = "training.not converged" + ".met" * cells.met
        return Said(key, {**figures, "unfinished": unfinished(j)})
    if cells.met:
        return Said("training.met", figures)
    if j.proof is not None:
        more = {"nobody": nobody(j), "smallest": _smallest(j)}
        return Said("training.impossible", figures | more)
    if not cells.missed:
        return Said("training.met.tolerance", {**figures, "tolerance": TOLERANCE})
    if j.slack is not None and float(cells.violation[cells.worst]) <= j.slack:
        more = {"multiplier_bound": e.terms.multiplier_bound, "slack": j.slack}
        return Said("training.not met.slack", figures | more)
    return Said("training.not met", figures)


def rows_word(j: Judged) -> str:
    """Who audits a model does not know what trained it."""
    return "the training rows" if j.e.trained else "the rows used"


def standing(cells: Losses, z: int) -> Said:
    """Say how cell z stands to its bound."""
    loss, bound = float(cells.means[z]), float(cells.bounds[z])
    figures = {"cell": cells.names[z], "loss": loss, "bound": bound}
    if abs(loss - bound) <= cells.tolerance[z]:
        return Said("cell.at", figures)
    if loss > bound:
        return Said("cell.above", {**figures, "excess": loss - bound})
    return Said("cell.below", {**figures, "room": bound - loss})


def _cells(cells: Losses, which: BoolArray, key: str) -> str:
    """Say between what some cells are: of the first few of them."""
    found = np.flatnonzero(which).tolist()
    told = [
        Said(
            key,
            {
                "cell": cells.names[z],
                "low": float(cells.low[z]),
                "high": float(cells.high[z]),
                "bound": float(cells.bounds[z]),
            },
        )
        for z in found[:TOLD]
    ]
    told += [Said("cells.more", {"left": len(found) - TOLD})] * (len(found) > TOLD)
    return "; ".join(map(str, told))


def _minimax(j: Judged) -> Said:
    cells, pair = j.train, known(j.e.proofs.gap)
    if j.e.noise is not None:
        ends = {"low": float(cells.low.max()), "high": float(cells.high.max())}
        ends["confidence"] = j.e.terms.confidence
        return Said("training.no bounds.minimax.noise", ends)
    worst = int(np.nanargmax(cells.means))
    figures: dict[str, Any] = {
        "cell": cells.names[worst],
        "loss": float(cells.means[worst]),
    }
    if pair is None:
        return Said("training.no bounds.minimax", figures)
    figures |= {"gap": j.gap, "radius": pair.radius}
    key = "gap" if pair.radius is None else "ball"
    return Said(f"training.no bounds.minimax.{key}", figures)


def unfinished(j: Judged) -> Said:
    """Say that the run did not converge, and what to raise."""
    run = known(j.e.training)
    if run is not None and run.settling is not None:
        return _unsettled(j, run, run.settling)
    if run is None or j.gap is None or j.target is None:
        return Said("unfinished")
    method, figures = run.method, {"gap": j.gap, "target": j.target}
    if run.rounds < method.get("max_rounds", 0):  # it saw that more are in vain
        return Said("unfinished.rounding", figures)
    for name in EFFORT:
        if name in method:
            more = {"name": name, "now": method[name]}
            return Said("unfinished.raise", figures | more)
    return Said("unfinished.gap", figures)


def _unsettled(j: Judged, run: Training, found: Settling) -> Said:
    """Say whose loss still swung, and what to change."""
    z = found.widest
    figures: dict[str, Any] = {"rounds": run.rounds, "last": found.rounds}
    if found.rounds < 2:
        return Said("unsettled.few", figures)
    if z is None:
        return Said("unfinished")
    figures["cell"] = j.e.names[z]
    if (swing := found.swing[z]) is None:
        return Said("unsettled.unknown", figures)
    more = {**figures, "swing": swing, "target": found.target}
    figures["swing"] = Said("swing", more)
    if found.steady:
        return Said("unsettled.steady", {**figures, "moved": max(found.weights)})
    return Said("unsettled", figures)


def nobody(j: Judged) -> Said:
    """Say that no model meets all bounds, and of which models it is proved."""
    found, least = j.proof, known(j.e.proofs.excess)
    limit = "" if not (found and least) else among(j, found[1], least.longest)
    return Said("nobody.within" if limit else "nobody", {"limit": limit})


def among(j: Judged, reach: float, seen: float) -> Said | str:
    """Say how far a proof reaches, if it matters: not a million times what was seen."""
    far = reach >= FAR * max(seen, j.longest)
    return "" if far else Said("limit", {"reach": reach})


def _smallest(j: Judged) -> Said | str:
    """Say in words how far the bounds are from what is possible."""
    found, least, bounds = j.proof, known(j.e.proofs.excess), j.e.bounds
    if found is None or least is None:
        return ""
    low, high = found[0], least.excess(bounds).upper
    if np.ptp(bounds) > 0:
        return Said("smallest.rise", {"low": low, "high": high})
    base = float(bounds[0])
    low, high = low + base, high + base
    key = "sharp" if high - low <= SHARP * abs(high) else "between"
    return Said(f"smallest.{key}", {"low": low, "high": high})


def _deciding(j: Judged) -> Said:
    noise, cells = j.e.noise, j.train
    if noise is None:
        raise TypeError("without noise everything is decided")
    needed = noises.deciding_epsilon(j.e, noise, cells.low, cells.high)
    if needed is None:
        return Said("deciding.never")
    more = (mu_of(needed, noise.delta) / noise.mu) if needed > 0 else 1.0
    return Said("deciding.more", {"epsilon": needed, "times": max(1.0, more)})


# Test rows


def _reason(key: str, text: str) -> Said:
    return Said(key, {"reason": f"{text[:1].upper()}{text[1:]}."})


def test(j: Judged) -> Verdict:
    """Say how the cells stand on test rows: figures, and nothing certified."""
    e, cells, noisy = j.e, j.test, j.e.noise is not None
    if cells is None:
        why = e.heldout.missing if isinstance(e.heldout, Missing) else ""
        why = "there are no test rows" if noisy else why
        return Verdict(_reason("test.not measured", why))
    rows = _rows(j)
    filled = np.flatnonzero(cells.counts > 0)
    if not len(filled) and not noisy:
        reason = "No test row is in a group."
        return Verdict(Said("test.not measured", {"reason": reason}))
    if not e.promise and noisy:
        ends = {"low": float(cells.low.max()), "high": float(cells.high.max())}
        return Verdict(Said("test.no bounds.noise", {"rows": rows, **ends}))
    if not e.promise:
        worst = int(filled[np.argmax(cells.means[filled])])
        figures = {"loss": float(cells.means[worst]), "cell": cells.names[worst]}
        return Verdict(Said("test.no bounds", {"rows": rows, **figures}))
    enough = cells.counts >= FEWEST
    judged, over = np.flatnonzero(enough), enough & (cells.low > cells.bounds)
    small = {
        "cells": ", ".join(f"'{cells.names[z]}'" for z in np.flatnonzero(~enough)),
        "fewest": FEWEST,
    }
    few = Said("test.few.noise" if noisy else "test.few", small)
    more = {"exceeded": [cells.names[z] for z in np.flatnonzero(over)]}
    open_ = enough & (cells.high > cells.bounds) & ~over
    if noisy and over.any():
        told = _cells(cells, over, "cell.between")
        return Verdict(Said("test.exceeded.noise", {"rows": rows, "cells": told}), more)
    if open_.any():
        told = _cells(cells, cells.high > cells.bounds, "cell.between")
        return Verdict(Said("test.not decided", {"rows": rows, "cells": told}), more)
    if not len(judged) or (noisy and small["cells"]):
        return Verdict(few, more, "not measured")
    if noisy:
        return Verdict(Said("test.within.noise", {"rows": rows}), more)
    worst = int(judged[np.argmax(cells.violation[judged])])
    figures = {"rows": rows, "worst": standing(cells, worst), "few": few}
    key = (
        "test.exceeded" + ".one" * bool(over.sum() == 1)
        if over.any()
        else "test.within"
    )
    key += ".few" * bool(small["cells"])
    word = "not measured" if key == "test.within.few" else ""
    return Verdict(Said(key, {**figures, "above": int(over.sum())}), more, word)


def _rows(j: Judged) -> str:
    """Name the test rows."""
    e, held, path = j.e, known(j.e.heldout), known(j.e.path)
    count = 0 if held is None else held.rows
    if e.noise is not None:
        released = e.noise.heldout
        about = 0 if released is None else max(0, round(sum(released.counts)))
        figures = {"count": about, "confidence": e.terms.confidence}
        return str(Said("rows.noise", figures))
    if path is not None and held is not None and path.split in held.splits:
        key = "rows.chosen" if len(path.candidates) > 1 else "rows.calibration"
        return str(Said(key, {"count": count}))
    rows = str(Said("rows.test" if e.trained else "rows.used", {"count": count}))
    return rows + (f", by {name}," if (name := named(e)) else "")


# New people


def new_people(j: Judged) -> Verdict:
    """Say what is certified for people not seen."""
    word = "not measured"
    if j.upper is not None:
        words_of = {None: "no bounds", True: "certified", False: "not certified"}
        word = words_of[j.certified]
    found = _short(j, word)
    if found.key.startswith("new_people."):
        word = found.key.split(".")[1]
    more = {"more_rows": j.more_rows, **_of_path(j)}
    return Verdict(found, more, word)


def _of_path(j: Judged) -> dict[str, Any]:
    """Say which model of a path it is, and what could be certified if it is not."""
    path = known(j.e.path)
    if path is None:
        return {}
    return {
        "model": path.chosen + 1,
        "models": len(path.candidates),
        "calibration_rows": path.shipped.calibration.rows,
        "could_promise": j.common,
        "rise": j.rise,
    }


def _short(j: Judged, word: str) -> Said:
    """Say what is certified for unseen people, without how."""
    e, found, M = j.e, j.upper, j.e.terms.loss_bound
    sure: dict[str, Any] = {"confidence": e.terms.confidence}
    if e.noise is not None:
        return _short_noise(j, word, sure)
    if found is None or M is None:
        return _reason("new_people.not measured", absent(j))
    path, counted = known(e.path), "weighted " if e.heldout_weighted else ""
    if path is not None and j.by_path:
        many = len(path.candidates)
        which = {"model": path.chosen + 1, "models": many}
        figures = {
            "counted": counted,
            "mixture": mixture(j, "path"),
            "rows": path.shipped.calibration.rows,
            "which": Said("which", which) if many > 1 else "",
            "idle": idle(j, path.shipped.loss_bound),
        }
        return Said("new_people.certified.path", sure | figures)
    if path is not None:
        figures = {
            "failed": failed(path),
            "in_the_way": in_the_way(j),
            "instead": instead(j),
        }
        return Said("new_people.not certified.path", figures)
    name = named(e)
    if not e.promise:
        worst = int(np.argmax(found))
        figures = {
            "counted": counted,
            "kept": f" by {name}," if name else "",
            "mixture": mixture(j, "test"),
            "cell": e.names[worst],
            "high": float(found[worst]),
        }
        return Said("new_people.no bounds", sure | figures)
    who = f", for {name}, " if name else " "
    return Said(f"new_people.{word}", {**sure, "who": who, "standing": against(j)})


def _short_noise(j: Judged, word: str, sure: dict[str, Any]) -> Said:
    e, noise, found = j.e, j.e.noise, j.upper
    if found is None or noise is None:
        return Said(
            "new_people.not measured", {"reason": f"Not available: {absent(j)}."}
        )
    if not e.promise:
        figures = {**sure, "high": float(found.max())}
        return Said("new_people.no bounds.noise", figures)
    cells = Losses(e.names, found, found, found, found, e.bounds, 0 * found)
    told = _cells(cells, found > e.bounds, "cell.at most")
    figures = {**sure, "epsilon": noise.heldout_epsilon, "cells": told}
    return Said(f"new_people.{word}.noise", figures)


def absent(j: Judged) -> str:
    """Say why nothing is stated of the losses of new people."""
    e, rows = j.e, j.people
    if e.noise is not None:
        none = e.noise.heldout is None
        return "there are no held-out rows" if none else "not available under noise"
    grounds = (*rows.grounds, *rows.bounded_loss, *rows.weights)
    return "; ".join(ground.text for ground in grounds if ground.state == "failed")


def mixture(j: Judged, rows: str) -> str:
    """Say who unseen people are, where silos may differ."""
    return "" if j.e.data.silos == 1 else str(Said(f"mixture.{rows}"))


def against(j: Judged) -> Said:
    """Say how many bounds are certified, and what is lacking for the others."""
    found, bounds, many = j.people.upper, j.e.bounds, len(j.e.names)
    if found is None:
        raise TypeError("nothing is known of new people")
    kept, worst = int((found <= bounds).sum()), int(np.argmax(found - bounds))
    head = "standing.all" if kept == many else "standing.some"
    figures = {
        "head": Said(head, {"kept": kept, "many": many}),
        "cell": j.e.names[worst],
        "high": float(found[worst]),
        "bound": float(bounds[worst]),
        "lacking": _lacking(j),
        "idle": idle(j, j.e.terms.loss_bound or np.inf),
    }
    return Said("standing", figures)


def _most_lacking(j: Judged) -> tuple[str, int | None] | None:
    """Return the cell that would need most rows, and how many; None: no number."""
    lacking = j.people.more_rows
    never = [name for name, many in lacking.items() if many is None]
    if never or not lacking:
        return (never[0], None) if never else None
    return max(lacking.items(), key=lambda pair: pair[1] or 0)


def _lacking(j: Judged) -> Said | str:
    """Say about how many more rows would show the bounds that are not shown."""
    found, rows = _most_lacking(j), j.people.usable
    if found is None or rows is None:
        return ""
    (name, many), z = found, j.e.names.index(found[0])
    if many is not None:
        more, who = float(up(many, digits=2)), "people" if j.e.data.several else "rows"
        return Said("lacking.more", {"cell": name, "more": round(more), "who": who})
    if rows.of_cells("count")[z] == 0:
        return Said("lacking.none", {"cell": name})
    loss = float(j.e.means(rows)[z])
    return Said("lacking.never", {"cell": name, "loss": loss})


def idle(j: Judged, loss_bound: float) -> Said | str:
    """Say that a bound that is not below M says nothing of the model."""
    many = int((j.e.bounds >= loss_bound).sum())
    if not many:
        return ""
    s = "s" * (many > 1)
    return Said("idle", {"idle": many, "s": s, "loss_bound": float(loss_bound)})


def failed(path: ModelPath) -> Said:
    """Say which model of a path was not shown."""
    many = len(path.candidates)
    if many == 1:
        return Said("failed.one")
    figures = {"model": path.chosen + 1, "models": many, "confidence": path.confidence}
    return Said("failed.later" if path.chosen > 0 else "failed.first", figures)


def in_the_way(j: Judged) -> Said | str:
    """Name the cell that stands in the way, and the rows that it would take."""
    found, upper = _most_lacking(j), j.people.upper
    sample = known(j.people.sample)
    if upper is None or found is None or sample is None:
        return ""
    (name, many), z = found, j.e.names.index(found[0])
    if not sample.of_cells("count")[z]:
        return Said("in the way.none", {"cell": name})
    figures: dict[str, Any] = {
        "cell": name,
        "confidence": j.e.terms.confidence,
        "high": float(upper[z]),
        "bound": float(j.e.bounds[z]),
        "loss": float(j.e.means(sample)[z]),
    }
    if many is None:
        return Said("in the way.never", figures)
    left = len(j.people.more_rows) - 1
    others = f" ({left:,} other cell{'s' * (left > 1)} would need fewer)" * (left > 0)
    figures["more"] = round(float(up(many, digits=2)))
    figures |= {"who": "people" if j.e.data.several else "rows", "others": others}
    return Said("in the way.more", figures)


def instead(j: Judged) -> Said | str:
    """Say what could be certified of the model, with the same rows."""
    more, M, bounds = j.rise, j.e.terms.loss_bound, j.e.bounds
    if not more or M is None:
        return ""
    if j.common is not None:
        return Said("instead.common", {"common": j.common})
    if float(np.ptp(bounds)) > 0 and (bounds + more < M).all():
        return Said("instead.rise", {"rise": more})
    return ""


# Beside them


def no_better(j: Judged) -> str | None:
    """Name those for whom the model is no better than a constant guess, of test rows.

    Groups with a bound, and all rows together. The guess is that of their own rates,
    for losses, or their most frequent label, for errors. None where there is nobody, or
    noise would choose the names.
    """
    e = j.e
    sample = known(e.heldout) or e.seen
    if not e.labels or e.stopped is not None or e.noise is not None:
        return None
    columns = ("count", "weight", e.judged(sample), "correct")
    count, weight, loss, right = (sample.of_atoms(c, len(e.groups)) for c in columns)
    bounded = {group for cell in e.cells if e.promise for group, _ in cell.of}
    sets = {f"'{a}'": [i] for i, a in enumerate(e.groups) if a in bounded}
    found: dict[str, list[str]] = {"loss": [], "errors": []}
    for name, i in {**sets, "all rows together": list(range(len(e.groups)))}.items():
        n = weight[i].sum(axis=0)
        if count[i].sum() < FEWEST or np.count_nonzero(n) < 2:
            continue
        if loss[i].sum() >= -(n[n > 0] * np.log(n[n > 0] / n.sum())).sum():
            found["loss"].append(name)
        if right[i].sum() <= n.max():
            found["errors"].append(name)
    told = "; ".join(
        f"{of} of {', '.join(names)}" for of, names in found.items() if names
    )
    apart = e.trained and known(e.heldout) is not None
    rows = "test rows" if apart else rows_word(j)
    return str(Said("warning", {"rows": rows, "told": told})) if told else None


def binding(j: Judged) -> str | None:
    """Name the groups whose bounds are binding, with their shares of the multipliers.

    None where multipliers say nothing: without bounds, before convergence, under noise.
    """
    e = j.e
    silent = e.noise is not None or not (e.promise and e.trained)
    if silent or j.converged != "yes" or j.train.empty:
        return None
    total = float(e.multipliers.sum())
    kind = "tightened bound" if isinstance(e.path, ModelPath) else "bound"
    if total <= NO_MULTIPLIER:
        return str(Said("binding.none", {"kind": kind}))
    shares = [(100 * float(e.multipliers[z]) / total, z) for z in range(len(e.names))]
    found = sorted((one for one in shares if one[0] >= 0.5), key=lambda one: -one[0])
    if len(found) == 1:
        return str(Said("binding.one", {"kind": kind, "cell": e.names[found[0][1]]}))
    told = ", ".join(f"'{e.names[z]}' ({share:.0f} %)" for share, z in found[:TOLD])
    told += f" and {len(found) - TOLD} more" if len(found) > TOLD else ""
    return str(Said("binding", {"kind": kind, "told": told}))


def kept_within(j: Judged) -> str | None:
    """Say between which limits the shipped predictor keeps its predictions."""
    ends = limits(j.e)
    if not j.e.trained or j.e.noise is not None:
        return None
    if ends is None:
        return str(Said("limits.none", {"reason": unbounded_of(j.e)}))
    return str(Said("limits", {"low": ends[0], "high": ends[1]}))


def noticed(j: Judged) -> bool:
    """Whether a printed training loss has another digit within the limits, or none."""
    pairs = zip(j.e.seen.own_means, j.e.seen.means, strict=True)
    changed = any(decimals(a) != decimals(b) for a, b in pairs if not np.isnan(a))
    return changed or limits(j.e) is None


def remarks(j: Judged) -> list[str]:
    """Say what a reader of all figures should know, and what a user may want to do."""
    found = overfitted(j)
    out = [] if found is None else [found]
    return [*out, str(Said("weighted"))] if j.e.weighted else out


def overfitted(j: Judged) -> str | None:
    """Say where test loss is above training loss by more than chance explains.

    Of all rows together, or of a cell; None where it is nowhere, or nobody can tell.
    """
    e, held = j.e, known(j.e.heldout)
    if held is None or not e.trained:
        return None
    if e.noise is not None or e.weighted:
        return None  # squares are not released; standard errors are not known
    names = ("all rows", *(f"'{name}'" for name in e.names))
    columns = ("count", "bounded_loss", "bounded_loss_squared")
    figures = []
    for sample in (e.seen, held):
        n, total, square = (
            np.append(sample.column(c).sum(), sample.of_cells(c)) for c in columns
        )
        rows = np.maximum(n, 1.0)
        variance = np.maximum(square - total**2 / rows, 0.0) / np.maximum(rows - 1, 1.0)
        figures.append((n, total / rows, np.sqrt(variance / rows)))
    (n, mean, error), (m, new, other) = figures
    limit = np.sqrt(ERRORS**2 + 2 * np.log(len(names)))  # a union over the sets
    far = new - mean > limit * np.hypot(error, other)
    found = np.flatnonzero(far & (new > (1 + MUCH) * mean) & (np.minimum(n, m) >= FEW))
    if not len(found):
        return None
    pairs = [f"{names[i]} {words(mean[i])} and {words(new[i])}" for i in found[:TOLD]]
    more = f", and {len(found) - TOLD:,} more" if len(found) > TOLD else ""
    return str(Said("overfitted", {"told": f"{', '.join(pairs)}{more}"}))
