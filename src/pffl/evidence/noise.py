"""Statements under noise: from released figures alone, each with its margin.

A released sum is the true one plus Gaussian noise of a known deviation. Of a cell with
the loss sum L and n people, L̃ = L + N(0, s²) and ñ = n + N(0, t²) were released, and
for its true mean loss m = L/n

    L̃ − m·ñ  is  N(0, s² + m²t²),

so that all m with |L̃ − m·ñ| ≤ z√(s² + m²t²) hold the true one with the probability of
z (Fieller 1954); the ends are the roots of a square. z is for all cells together. *Met*
is said only where every upper end is within its bound, *not met* only where a lower end
is above; all else is *not decided*.

For people not seen: the log-sums of held-out rows with noise, S̃_j = S_j + N(0, s_j²).
exp(S̃_j − s_j²/2) has the mean of exp(S_j), so that

    Σ_j π_j exp(S̃_j − s_j²/2) / (1 − γ_j μ̄)ⁿ < 1/δ

still holds with probability 1 − δ; n is replaced by the lower end of ñ, at a part of δ.
Bets γ are planned from training counts and from how many people are held out in all:
whatever these are, the losses of a cell's held-out people have the law they have. The
l-th later certificate on the same rows has δ/(l(l + 1)), as without noise.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from pffl.evidence.certificate import (
    Assumption,
    State,
    Statement,
    Status,
)
from pffl.privacy.accounting import epsilon_of, mu_of
from pffl.records import Record
from pffl.text import down, up, words
from pffl.typing import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from pffl.evidence.record import Evidence

FEWEST = 10  # rows of a cell, for its mean loss to be held against its bound
Share: TypeAlias = Literal["loss", "wrong", "selected"]
SUMS = ("counts", "losses", "correct")  # of `Figures`
TOLD = 3  # cells that a sentence names
COUNTED = 0.1  # part of δ for the number of held-out people
NOT_AVAILABLE = "not available under noise"


@dataclass(frozen=True)
class Released(Record):
    """Sums that were released, `times` times.

    Attributes
    ----------
    sensitivity
        Δ: the length of what one person can change.
    mu, sigma
        Standard deviation that the account counts on, and μ = √times·Δ/sigma.
    deviation
        Standard deviation of what was added in all, by all sites.
    """

    name: str
    split: str
    times: int
    mu: float
    sensitivity: float
    sigma: float
    deviation: float


@dataclass(frozen=True)
class Figures(Record):
    """What was released of one split, per atom, as it came: with noise, not rounded.

    Attributes
    ----------
    counts, losses, correct
        People, sums of their bounded losses, and of correct predictions.
    count_deviation, loss_deviation
        Of the noise in each of the first two.
    logs, log_deviation
        Σ log(1 − γx) per cell and bet, and of each the deviation of its noise; none of
        training rows.
    bets, bet_weights
        γ and π.
    """

    counts: list[float]
    losses: list[float]
    correct: list[float]
    count_deviation: float
    loss_deviation: float
    logs: list[list[float]] = field(default_factory=list)
    log_deviation: list[list[float]] = field(default_factory=list)
    bets: list[float] = field(default_factory=list)
    bet_weights: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Noise(Record):
    """The privacy of a run: what was declared, released and spent.

    Attributes
    ----------
    epsilon, delta, mu
        Of all that was released about one person of the training rows.
    heldout_epsilon, heldout_mu
        Of one person of the held-out rows, who is another one.
    clip, loss_bound
        What bounds a person's inputs and loss.
    repeatable
        Whether a seed repeats the noise: then nothing is private.
    sites, shared, colluding
        How many sites added noise; whether they share it, inside secure sums; and of
        how many it is then not counted on.
    by_id
        Whether an id says whose rows are; otherwise each row counts as a person.
    releases
        Everything that was released.
    seen, heldout
        The figures that statements are made from.
    """

    epsilon: float
    delta: float
    mu: float
    heldout_epsilon: float | None
    heldout_mu: float | None
    clip: float
    loss_bound: float
    repeatable: bool
    sites: int
    shared: bool
    colluding: int
    releases: list[Released]
    seen: Figures
    heldout: Figures | None
    ranges: dict[str, list[float]] = field(default_factory=dict)
    by_id: bool = False

    @property
    def epsilon_spent(self) -> float:
        """ε of all that was released about one person of the training rows."""
        return epsilon_of(self.mu, self.delta)


def result(e: Evidence, noise: Noise) -> dict[str, Any]:
    """Return what result.json says of it; `cells` are the ends of training losses."""
    plain, (low, high) = asdict(noise), ends(e, noise)
    for name in ("seen", "heldout"):
        del plain[name]
    spent = None if noise.repeatable else noise.epsilon_spent
    cells = [
        {"cell": name, "lower": float(low[z]), "upper": float(high[z])}
        for z, name in enumerate(e.names)
    ]
    return {**plain, "spent": spent, "cells": cells}


# Figures


def sums(e: Evidence, values: list[float]) -> FloatArray:
    """Add figures of atoms into those of cells."""
    return member(e) @ np.asarray(values, np.float64)


def member(e: Evidence) -> FloatArray:
    """Which atom is in which cell, shape (Z, atoms)."""
    labels: list[str | None] = list(e.labels) or [None]
    atoms = [(group, label) for group in e.groups for label in labels]
    return np.array([[float(a in map(tuple, c.of)) for a in atoms] for c in e.cells])


def fieller(
    loss: float, people: float, s: float, t: float, z: float, most: float
) -> tuple[float, float]:
    """Return the ends of the mean loss of a cell, between 0 and `most`.

    The roots of (ñ² − z²t²)m² − 2L̃ñm + (L̃² − z²s²); none where ñ is within its noise.
    """
    a, c = people**2 - (z * t) ** 2, loss**2 - (z * s) ** 2
    if people <= z * t:
        return 0.0, most
    root = math.sqrt(max(0.0, (loss * people) ** 2 - a * c))
    low, high = (loss * people - root) / a, (loss * people + root) / a
    return min(max(0.0, low), most), min(max(0.0, high), most)


def factor(e: Evidence) -> float:
    """Return z: no cell is further off, but with probability 1 − confidence."""
    from scipy.special import ndtri

    return float(-ndtri((1.0 - e.terms.confidence) / (2 * max(1, len(e.cells)))))


def ends(
    e: Evidence, noise: Noise, figures: Figures | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of the cells' mean losses, all cells together.

    Of training rows, or of those that the `figures` are of.
    """
    seen, many = figures or noise.seen, member(e).sum(axis=1)
    losses, people = sums(e, seen.losses), sums(e, seen.counts)
    z, root = factor(e), np.sqrt(many)
    found = [
        fieller(
            L, n, r * seen.loss_deviation, r * seen.count_deviation, z, noise.loss_bound
        )
        for L, n, r in zip(losses.tolist(), people.tolist(), root.tolist(), strict=True)
    ]
    return np.array([one[0] for one in found]), np.array([one[1] for one in found])


def between(
    e: Evidence,
    noise: Noise,
    split: str,
    what: Share,
    atoms: IntArray | slice = slice(None),
) -> tuple[float, float] | None:
    """Return the ends of the mean loss of atoms, or of a share of predictions.

    By themselves, with the confidence of the run; None where nothing was released. The
    share of "selected", positive predictions is that of the two atoms of a group: its
    noise and that of the number of people have the people of the first atom in common,
    which makes the ends wider than they had to be.
    """
    from scipy.special import ndtri

    figures, name = noise.seen, "final errors"
    if split != "train":
        if noise.heldout is None:
            return None
        figures, name = noise.heldout, "errors"
    total = {k: np.asarray(v)[atoms] for k, v in vars(figures).items() if k in SUMS}
    people, root = float(total["counts"].sum()), math.sqrt(len(total["counts"]))
    z, t = float(-ndtri((1.0 - e.terms.confidence) / 2)), figures.count_deviation
    if what == "loss":
        L, s = float(total["losses"].sum()), root * figures.loss_deviation
        return fieller(L, people, s, root * t, z, noise.loss_bound)
    off = [r.deviation for r in noise.releases if (r.name, r.split) == (name, split)]
    if not off:
        return None
    right, s = total["correct"], root * off[0]
    if what == "selected":
        chosen = float(right[1] + total["counts"][0] - right[0])
        return fieller(chosen, people, math.hypot(s, t), root * t, z, 1.0)
    low, high = fieller(float(right.sum()), people, s, root * t, z, 1.0)
    return 1.0 - high, 1.0 - low


def upper(e: Evidence, noise: Noise) -> FloatArray | None:
    """Return the one number per cell for people not seen, each by itself."""
    held = noise.heldout
    if held is None or not held.logs:
        return None
    from scipy.special import ndtri

    delta, M = (1.0 - e.terms.confidence) / parts(e), noise.loss_bound
    many = member(e).sum(axis=1)
    people = sums(e, held.counts) + ndtri(COUNTED * delta) * (
        held.count_deviation * np.sqrt(many)
    )
    return np.array(
        [
            M * log_sum_upper(logs, off, held, n, (1 - COUNTED) * delta)
            for logs, off, n in zip(
                held.logs, held.log_deviation, people.tolist(), strict=True
            )
        ]
    )


def log_sum_upper(
    logs: list[float], off: list[float], held: Figures, n: float, delta: float
) -> float:
    """Solve Σ π_j exp(S̃_j − s_j²/2 − n·log(1 − γ_j m)) = 1/δ for m; 1 if none does."""
    if n < 1:
        return 1.0
    from scipy.optimize import brentq
    from scipy.special import logsumexp

    s, gamma = np.array(off), np.array(held.bets)
    base = np.log(held.bet_weights) + np.array(logs) - s**2 / 2

    def left(m: float) -> float:
        return float(logsumexp(base - n * np.log1p(-gamma * m))) + math.log(delta)

    if left(1.0) <= 0:
        return 1.0
    if left(0.0) >= 0:
        return 0.0
    return float(brentq(left, 0.0, 1.0, xtol=1e-12)) * (1 + 1e-9)


# What would decide


def deciding_epsilon(e: Evidence, noise: Noise) -> float | None:
    """Return about which ε would decide; None where more would not help.

    A margin shrinks as 1/μ; the estimates stay about where they are.
    """
    low, high = ends(e, noise)
    seen = noise.seen  # as it was released: that is what ends close in on
    middle = sums(e, seen.losses) / np.maximum(sums(e, seen.counts), 1.0)
    worst = 1.0
    for z, bound in enumerate(e.bounds.tolist()):
        if high[z] <= bound:
            continue
        room = bound - middle[z]
        if room <= 0:  # more would rather show that it is not met
            room = -room
            wide = middle[z] - low[z]
        else:
            wide = high[z] - middle[z]
        if room <= 0 or not math.isfinite(wide):
            return None
        worst = max(worst, wide / room)
    needed = epsilon_of(noise.mu * worst, noise.delta)
    return needed if needed < 100 else None


def possible(
    figures: Figures, most: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return people, loss sums and correct predictions per atom, as they can be.

    People are whole numbers, nobody's loss is below 0 or above `most`, and no more are
    right than there are. So tables have released sums; margins come from the sums as
    they were released.
    """
    people = np.maximum(np.rint(figures.counts), 0.0)
    losses = np.clip(figures.losses, 0.0, most * people)
    return people, losses, np.clip(np.rint(figures.correct), 0.0, people)


def estimates(e: Evidence, noise: Noise, figures: Figures) -> FloatArray:
    """Return the cells' mean losses as tables have them: released, made possible."""
    counts, losses, _ = possible(figures, noise.loss_bound)
    return (member(e) @ losses) / np.maximum(member(e) @ counts, 1.0)


# In words


def judge(e: Evidence, noise: Noise) -> tuple[Status, str]:
    """Return the status on the training rows, and the sentence that says it.

    No cell is called the worst: noise could have chosen it.
    """
    low, high = ends(e, noise)
    if e.minimax:
        return "no bounds", (
            f"The largest mean loss of a cell lies between {down(low.max())} and "
            f"{up(high.max())} ({_sure(e)})."
        )
    if not e.promise:
        return "no bounds", "No bound was asked for."
    rows = f"on the training rows, noise allowed for ({_sure(e)})"
    if (high <= e.bounds).all():
        return "met", f"Every bound is met {rows}."
    if (low > e.bounds).any():
        told = _facts(e, low > e.bounds, low, high)
        return "not met", f"Not every bound is met {rows}: {told}."
    return "not decided", (
        f"At ε = {noise.epsilon:g} it is not decided whether every bound is met on the "
        f"training rows ({_sure(e)}): {_facts(e, high > e.bounds, low, high)}."
        f"{_deciding(e, noise)}"
    )


def _sure(e: Evidence) -> str:
    return f"{100 * e.terms.confidence:.6g} % sure, all cells together"


def _facts(e: Evidence, which: BoolArray, low: FloatArray, high: FloatArray) -> str:
    """Say between what the mean losses of some cells are: of the first few of them."""
    found = np.flatnonzero(which).tolist()
    told = [
        f"'{e.names[z]}' has a mean loss between {down(low[z])} and {up(high[z])} "
        f"against a bound of {words(e.bounds[z])}"
        for z in found[:TOLD]
    ]
    left = len(found) - TOLD
    return "; ".join(told + [f"{left} more"] * (left > 0))


def _deciding(e: Evidence, noise: Noise) -> str:
    needed = deciding_epsilon(e, noise)
    if needed is None:
        return " The estimates are too near the bounds for any budget to decide."
    more = (mu_of(needed, noise.delta) / noise.mu) if needed > 0 else 1.0
    return (
        f" About ε = {up(needed, digits=2)}, or {up(max(1.0, more), digits=2)} times "
        "as many rows, would decide it."
    )


def promised(e: Evidence, noise: Noise) -> bool | None:
    """Whether every bound is shown for people not seen; None if nothing can be said."""
    found = upper(e, noise)
    if found is None or not e.promise:
        return None
    return bool((found <= e.bounds).all())


def in_short(e: Evidence, noise: Noise) -> str:
    """Say what is promised for people not seen."""
    found = upper(e, noise)
    if found is None:
        return f"Not available: {_absent(noise)}."
    sure, people = f"{100 * e.terms.confidence:.6g} %", "the mean loss of new people"
    if not e.promise:
        return (
            f"With confidence {sure} {people} is at most {up(found.max())} in a cell."
        )
    if promised(e, noise):
        return (
            f"With confidence {sure} {people} is within its bound in every cell, noise "
            "allowed for."
        )
    over = np.flatnonzero(found > e.bounds).tolist()
    told = [
        f"in '{e.names[z]}' at most {up(found[z])} against {words(e.bounds[z])}"
        for z in over[:TOLD]
    ]
    told += [f"{len(over) - TOLD} more"] * (len(over) > TOLD)
    return (
        f"Not certified at ε = {noise.heldout_epsilon:g} of the test rows: with "
        f"confidence {sure}, {people} is {'; '.join(told)}."
    )


def _absent(noise: Noise) -> str:
    return "there are no held-out rows" if noise.heldout is None else NOT_AVAILABLE


def verdicts(e: Evidence, noise: Noise) -> dict[str, dict[str, Any]]:
    """Return the three verdicts."""
    status, sentence = judge(e, noise)
    shown = promised(e, noise)
    word = "not certified" if shown is False else "certified"
    if shown is None:
        word = "not measured" if e.promise or upper(e, noise) is None else "no bounds"
    return {
        "training": {"verdict": status, "sentence": sentence},
        "test": _heldout(e, noise),
        "new_people": {
            "verdict": word,
            "sentence": in_short(e, noise),
            "more_rows": {},
        },
    }


def _heldout(e: Evidence, noise: Noise) -> dict[str, Any]:
    held = noise.heldout
    if held is None:
        return {"verdict": "not measured", "sentence": "There are no test rows."}
    low, high = ends(e, noise, held)
    rows = f"On about {max(0, round(sum(held.counts))):,} test rows, noise allowed for "
    rows += f"({_sure(e)}),"
    if not e.promise:
        return {
            "verdict": "no bounds",
            "sentence": f"{rows} the largest mean loss of a cell lies between "
            f"{down(low.max())} and {up(high.max())}.",
        }
    over = low > e.bounds
    word, text = "within", f"{rows} no cell is above its bound."
    if over.any():
        word, text = "exceeded", f"{rows} {_facts(e, over, low, high)}."
    elif (high > e.bounds).any():
        word, told = "not decided", _facts(e, high > e.bounds, low, high)
        text = f"{rows} it is not decided whether a cell is above its bound: {told}."
    elif (few := sums(e, held.counts) < FEWEST).any():
        names = ", ".join(f"'{e.names[z]}'" for z in np.flatnonzero(few))
        word, text = "not measured", f"About fewer than {FEWEST} test rows: {names}."
    exceeded = [e.names[z] for z in np.flatnonzero(over)]
    return {"verdict": word, "sentence": text, "exceeded": exceeded}


def statements(e: Evidence, noise: Noise) -> list[Statement]:
    """Return all that is stated of a run with noise."""
    return [
        account(e, noise),
        empirical(e, noise),
        Statement.not_available("gap", "under noise: it needs exact sums"),
        Statement.not_available(
            "infeasible", "under noise: its proof needs exact sums"
        ),
        holdout(e, noise),
        Statement.not_available(
            "holdout_error", "under noise: errors are released as figures only"
        ),
    ]


def account(e: Evidence, noise: Noise) -> Statement:
    """State what was spent, and for whom it holds."""
    spent = noise.epsilon_spent
    text = (
        f"All that was released about any one person of the training rows is "
        f"({up(spent)}, {noise.delta:g})-differentially private (μ = {up(noise.mu)}): "
        "whether the person was there or not changes no probability of what anybody "
        "sees by more."
    )
    if noise.heldout_mu is not None:
        own = epsilon_of(noise.heldout_mu, noise.delta)
        text += (
            f" Held-out rows are other people, for whom it is ({up(own)}, "
            f"{noise.delta:g})."
        )
    grounds = [
        Assumption(
            "A seed repeats the noise: whoever knows it can take the noise off."
            if noise.repeatable
            else "The noise is drawn in secret and exactly, in whole numbers.",
            "failed" if noise.repeatable else "checked",
        ),
        *_adding(e, noise),
        Assumption(
            "Kinds of columns, categories, groups, labels, silos, fill values and "
            "ranges of inputs were declared, and none was read off the rows.",
            _seen_here(e),
        ),
        Assumption(
            "They, the clip, M, l2 and all settings were chosen without a look at the "
            "rows.",
            "assumed",
        ),
        _people(e, noise),
        Assumption(
            "One person more, less or changed moves nobody else: which row counts, its "
            "part and a simulated silo are keyed hashes of the person's own "
            f"{'id and rows' if noise.by_id else 'row'}.",
            _seen_here(e),
        ),
        Assumption(
            "Timing, the sizes of messages and which sites take part tell nothing.",
            "assumed",
        ),
    ]
    return Statement(
        "privacy",
        text,
        value=spent,
        holds=None,
        assumptions=tuple(grounds),
        figures={"mu": noise.mu, "delta": noise.delta, "heldout_mu": noise.heldout_mu},
    )


def _seen_here(e: Evidence) -> State:
    """Whether rows were at hand: who asks sites elsewhere does not see what they do."""
    return "assumed" if e.data.synthetic is None else "checked"


def _adding(e: Evidence, noise: Noise) -> list[Assumption]:
    """Say who added the noise, and on whom that relies."""
    state = _seen_here(e)
    if noise.sites < 2:
        return [Assumption("Noise: it was added in one place.", state)]
    if not noise.shared:
        text = (
            f"each of {noise.sites} sites adds all of it, as there is no secure sum; "
            f"their sum has {words(math.sqrt(noise.sites))} times what is needed"
        )
        return [Assumption(f"Noise: {text}.", state)]
    enough = noise.sites - noise.colluding
    text = (
        f"{noise.sites} sites share it inside secure sums; that of {enough} is all "
        "that is needed"
    )
    if state == "checked":
        text += "; they were in one process, and whoever ran it could read all rows"
    return [
        Assumption(f"Noise: {text}.", state),
        Assumption(
            f"No more than {noise.colluding} of the {noise.sites} sites work together, "
            "with each other or with the server: every site sees the totals, and can "
            "take its own noise off.",
            "assumed",
        ),
    ]


def _people(e: Evidence, noise: Noise) -> Assumption:
    """Say what a person is, who is there or not."""
    if noise.by_id:
        text = "A person is an id: of several rows with it one counts, in one part."
        return Assumption(text, _seen_here(e))
    return Assumption(
        "Each row is another person, as no id says whose rows are: for somebody "
        "with several rows, at a site, at two or in two parts, less is promised.",
        "assumed",
    )


def parts(e: Evidence) -> int:
    """Return the number of parts of δ, of which statements on unseen people have one.

    1/(l(l + 1)) is of the l-th later certificate on the same rows: see `looks`.
    """
    return e.terms.candidates * max(1, e.terms.later * (e.terms.later + 1))


def _looked(e: Evidence) -> list[Assumption]:
    """Say how looks at the held-out people were paid for."""
    state: State = "could not be checked" if e.terms.others else "assumed"
    text = "The model was fixed before a held-out row was looked at"
    if e.terms.others:
        text += (
            ", and set without regard to what was released of other models on data of "
            f"this name ({e.terms.others}), maybe on the same people; fresh rows would "
            "settle it"
        )
    found = [Assumption(f"{text}.", state)]
    if e.terms.later:
        text = (
            f"This is certificate {e.terms.later + 1} on data of this name, and has "
            f"1/{parts(e)} of the risk."
        )
        found.append(Assumption(text, "checked"))
    return found


def empirical(e: Evidence, noise: Noise) -> Statement:
    """State how the training losses stand to the bounds, noise allowed for."""
    low, high = ends(e, noise)
    middle = estimates(e, noise, noise.seen)
    people = member(e) @ possible(noise.seen, noise.loss_bound)[0]
    status, sentence = judge(e, noise)
    rows = tuple(
        {
            "cell": name,
            "people": float(people[z]),
            "loss": float(middle[z]),
            "lower": float(low[z]),
            "upper": float(high[z]),
            "bound": float(e.bounds[z]) if e.promise else None,
        }
        for z, name in enumerate(e.names)
    )
    decided = {"met": True, "not met": False}.get(status)
    inputs = f"inputs shortened to {noise.clip:g}, "
    return Statement(
        "empirical",
        sentence,
        holds=decided,
        assumptions=(
            Assumption(
                f"Losses are those of the shipped predictor: {inputs}losses up to "
                f"{noise.loss_bound:g}.",
                "checked",
            ),
            Assumption("The silos reported their sums truthfully.", "assumed"),
        ),
        figures={"factor": factor(e)},
        per_cell=rows,
    )


def holdout(e: Evidence, noise: Noise) -> Statement:
    """State how large the mean loss of unseen people can be, cell by cell."""
    found = upper(e, noise)
    if found is None or noise.heldout is None:
        return Statement.not_available("holdout", _absent(noise))
    people = sums(e, noise.heldout.counts)
    rows = tuple(
        {
            "cell": name,
            "people": float(people[z]),
            "upper": float(found[z]),
            "bound": float(e.bounds[z]) if e.promise else None,
            "shown": bool(found[z] <= e.bounds[z]) if e.promise else None,
        }
        for z, name in enumerate(e.names)
    )
    return Statement(
        "holdout",
        in_short(e, noise),
        holds=promised(e, noise),
        assumptions=(
            Assumption(
                "The held-out rows are drawn like the unseen people, independently of "
                "each other.",
                "assumed",
            ),
            *_looked(e),
            Assumption(
                "Bets were planned from released training counts and the released "
                "number of held-out people, from no loss of theirs.",
                "checked",
            ),
            Assumption("The silos reported their sums truthfully.", "assumed"),
        ),
        figures={"confidence": e.terms.confidence, "loss_bound": noise.loss_bound},
        per_cell=rows,
    )
