"""What the judge holds against sentences: verdicts, certificate, `feasible`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp
from scipy.stats import entropy

import pffl
from tests.hostile.judge import judge_of
from tests.inside import Sample

if TYPE_CHECKING:
    from tests.hostile.referee import Case

NUMBER = r"(-?\d[\d.,]*(?:e[+-]?\d+)?)"
FACTS = (
    rf"'([^']+)' has a mean loss of {NUMBER} against a bound of {NUMBER}: "
    rf"(?:{NUMBER} (above|below) it|at the bound)"
)
FEWEST = 10  # held-out rows of a cell that are enough to judge by
ENDED = ("diverged", "interrupted")


def number(text: str) -> float:
    """Read a number of a sentence."""
    return float(text.rstrip(".,").replace(",", ""))


def sentence(case: Case) -> list[str]:
    """Each number of the verdict on training rows is one that the judge finds, too."""
    text, e = case.solution.message, case.solution.raw.evidence
    if not e.promise or case.solution.status in ENDED:
        return []
    out = _facts(text, case.names, case.means, case)
    return out + _possible(case, text) + _slack(case, text)


def _facts(text: str, names: list[str], means: np.ndarray, case: Case) -> list[str]:
    said = re.search(FACTS, text)
    if said is None:
        return [f"no facts in {text!r}"]
    z, bounds = names.index(said[1]), case.judge.bounds
    loss, bound = float(means[z]), float(bounds[z])
    out = [
        f"{what} {shown} is {true:.6g}: {text!r}"
        for what, shown, true in (("loss", said[2], loss), ("bound", said[3], bound))
        if abs(number(shown) - true) > 5.1e-4 * abs(true) + case.noise[z]
    ]
    excess = loss - bound
    if said[4] is not None:
        shown, true = number(said[4]), excess if said[5] == "above" else -excess
        close = abs(shown - true) <= 1.1e-3 * abs(true) + case.noise[z]
        side = shown - true if said[5] == "above" else true - shown
        if not close or side < -case.noise[z]:
            out.append(f"{shown} {said[5]} is {true:.6g}: {text!r}")
    elif abs(excess) > case.tolerance[z] + case.noise[z]:
        out.append(f"'at the bound' is {excess:.3g}")
    worst = float(np.nanmax((means - bounds).astype(float)))
    # Groups that stand alike, but for the tolerance of a bound, are as bad.
    if excess < worst - case.noise.max() - case.tolerance.max():
        out.append(f"another cell stands worse, by {worst - excess:.3g}: {text!r}")
    return out


def _possible(case: Case, text: str) -> list[str]:
    """What the sentence says of bounds that are possible."""
    bounds, out = case.judge.bounds, []
    none = np.zeros(len(bounds))
    least = re.search(rf"bound that can be met is {NUMBER}", text)
    common = re.search(rf"that can be met lies between {NUMBER} and {NUMBER}", text)
    rise = re.search(rf"rise by at least {NUMBER}, and by {NUMBER}", text)
    if least is not None:
        out += _beaten(case, none, text, number(least[1]) * (1 - 2e-5))
    for found, start in ((common, none), (rise, bounds)):
        if found is not None:
            out += _beaten(case, start, text, number(found[1]))
            if number(found[2]) < number(found[1]):
                out.append(f"{found[2]} < {found[1]}: {text!r}")
    return out


def _beaten(case: Case, start: np.ndarray, text: str, said: float | None) -> list[str]:
    """Complain if a model within reach is below the lower end that is said."""
    at, length = case.least(start)
    if said is not None and (at >= said or length > reach(text)):
        return []
    return [f"{said} is beaten by {at:.6g}: {text!r}"]


def reach(text: str) -> float:
    """How long the weights may be of which a sentence speaks."""
    stated = re.search(rf"length (?:at most|up to) {NUMBER}", text)
    return np.inf if stated is None else number(stated[1])


def _slack(case: Case, text: str) -> list[str]:
    slack = re.search(rf"explains up to {NUMBER}", text)
    worst = float((case.means - case.judge.bounds).max())
    if slack is None or worst <= number(slack[1]) + case.noise.max():
        return []
    return [f"slack {slack[1]} < {worst:.3g}: {text!r}"]


def certificate(case: Case) -> list[str]:
    """Each number of the statements on training rows is true."""
    out = []
    for one in case.solution.raw.certificate.statements:
        text = one.text
        if one.kind == "gap" and one.available:
            said = re.search(rf"by more than {NUMBER}", text)
            if said is None or number(said[1]) < case.found.true_gap:
                out.append(f"gap {text!r} is {case.found.true_gap:.6g}")
        if one.kind == "empirical" and one.available:
            out += _facts(text, case.names, case.means, case)
            out += _slack(case, text)
        for kind, words, start in (
            ("infeasible", rf"by at least {NUMBER}", case.judge.bounds),
            ("attainable", rf"between {NUMBER} and", np.zeros(len(case.names))),
        ):
            if one.kind == kind and one.available:
                said = re.search(words, text)
                out += _beaten(case, start, text, said and number(said[1]))
    return out


def heldout(case: Case) -> list[str]:
    """Figures of held-out rows are those of the predictor that is shipped."""
    e, found = (
        case.solution.raw.evidence,
        case.solution.raw.as_dict()["verdicts"]["test"],
    )
    if not isinstance(e.heldout, Sample) or case.hostile is None or not e.promise:
        return []
    test = judge_of(case.solution, case.hostile.federation, "test")
    rows = test.cells.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = case.shipped_means(test)
    means[rows == 0] = np.nan
    out, many = [], dict(zip(case.names, rows, strict=True))
    above = {
        name
        for name, mean, bound, noise in zip(
            case.names, means, test.bounds, case.noise, strict=True
        )
        if mean > bound + noise and many[name] >= FEWEST
    }
    if above and found["verdict"] != "exceeded":
        out.append(f"above: {sorted(above)} but {found}")
    if found["verdict"] in ("within", "exceeded"):
        judged = np.where(rows >= FEWEST, means, np.nan)
        out += _facts(found["sentence"], case.names, judged, case)
    if found["verdict"] == "within" and min(rows) < FEWEST:
        out.append(f"within, with {min(rows)} rows of a cell")
    shown = case.solution.raw.cells["test_loss"].to_numpy(dtype=float)
    if not np.allclose(shown, means.astype(float), rtol=1e-9, atol=0, equal_nan=True):
        out.append(f"test losses {shown} are {means}")
    return out + _unseen(case, e.heldout, means.astype(float), rows)


def _unseen(
    case: Case, sample: Sample, means: np.ndarray, rows: np.ndarray
) -> list[str]:
    """The figures for unseen people follow from the bets, and the verdict from them."""
    e = case.solution.raw.evidence
    upper = case.solution.raw.cells["test_upper"].to_numpy(dtype=float)
    word = case.solution.raw.as_dict()["verdicts"]["new_people"]["verdict"]
    if np.isnan(upper).all():
        return [] if word != "certified" else ["certified, without a figure"]
    M, out = float(e.terms.loss_bound or np.nan), []
    within = bool((np.where(np.isnan(upper), M, upper) <= case.judge.bounds).all())
    if (word == "certified") != within:
        out.append(f"unseen: {word}, with {upper} against {case.judge.bounds}")
    delta = 1 - e.terms.confidence
    for z in np.flatnonzero((rows > 0) & ~np.isnan(upper)):
        if upper[z] < means[z]:
            out.append(f"unseen: at most {upper[z]}, but {means[z]} was seen")
        if e.weighted:
            won = _won(case, sample, z, upper[z])
            if upper[z] < M * (1 - 1e-9) and won < np.log(1 / delta) - 1e-6:
                out.append(f"unseen: {upper[z]} of {case.names[z]} is too small")
            continue
        g, pi = np.asarray(sample.bets[z]), np.asarray(sample.bet_weights[z])
        mu, n = min(upper[z] / M * (1 + 1e-9), 1 - 1e-12), rows[z]
        wealth = logsumexp(
            np.log(pi) + np.asarray(sample.logs[z])[:, 0] - n * np.log1p(-g * mu)
        )
        mean = min(max(means[z] / M, 0.0), 1.0)
        rare = n * entropy([mean, 1 - mean], [mu, 1 - mu]) if mu > mean else 0.0
        shown = wealth >= -np.log(0.8 * delta) or rare >= -np.log(0.2 * delta) - 1e-6
        if upper[z] < M * (1 - 1e-9) and not shown:
            out.append(f"unseen: {upper[z]} of {case.names[z]} is too small")
    return out


def _won(case: Case, sample: Sample, z: int, upper: float) -> float:
    """What bets on s(ℓ − ζ) win by the held-out rows themselves, if ζ is a figure."""
    assert case.hostile is not None
    terms = case.solution.raw.evidence.terms
    test = judge_of(case.solution, case.hostile.federation, "test")
    losses = case.shipped_losses(test)[test.cells[z]]
    t = (test.s[test.cells[z]] / terms.weight_bound).astype(float)
    M = float(terms.loss_bound or np.nan)
    x, level = (losses / M).astype(float), upper / M
    if t.max() > 1:
        return -np.inf
    g, pi = np.asarray(sample.bets[z])[:, None], np.asarray(sample.bet_weights[z])
    factors = np.log1p(-g * t * (x - level) / (1 - g * level))
    return float(logsumexp(np.log(pi) + factors.sum(axis=1)))


def feasible(case: Case) -> list[str]:
    """`pffl.feasible` says the same, cell by cell."""
    hostile, e = case.hostile, case.solution.raw.evidence
    if hostile is None or not e.promise or hostile.number % 10:
        return []
    if len(case.judge.y) > 120 or len(case.names) > 4:
        return []
    known = {"model": hostile.model, "options": hostile.options}
    found = pffl.feasible(hostile.federation, hostile.constraint, **known)
    text, none = found.sentence, np.zeros(len(case.names))
    out = _beaten(case, none, text, found.common.lower)
    said = re.search(rf"between {NUMBER} and", text)
    out += _beaten(case, none, text, said and number(said[1]))
    at, length = case.least(case.judge.bounds)
    if found.impossible and at <= 0 and length <= reach(found.verdict):
        out.append(f"{found.verdict!r}, but there is {-at:.3g} of room")
    if "POSSIBLE" in found.verdict and "IMPOSSIBLE" not in found.verdict:
        room, e = re.search(NUMBER, found.verdict), found.excess
        if e is None or room is None or number(room[1]) > -e.upper:
            out.append(f"{found.verdict!r} with {found.excess}")
    return out
