"""The plan of a run with noise: which releases there are, and what each costs.

Fixed before the first query, from what was declared and from the public schema: no
figure of the rows enters it. Each release has a part of μ²; parts add up to 1, so that
all releases about a training row together are μ-GDP, μ from (ε, δ). Held-out rows are
other people, and have a budget of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pffl.data.columns import Column, TableEncoding
from pffl.data.schema import Schema
from pffl.errors import UsageError
from pffl.privacy.terms import Privacy
from pffl.text import words
from pffl.typing import FloatArray

if TYPE_CHECKING:
    from pffl.methods.base import Method

WIDE = 40  # parameters: beyond, the noise of a curvature is larger than itself
BETS = 3  # on held-out rows
SPREAD = 0.05  # of a loss / M, about: bets are planned by it
ROUNDS = {"exact": 5, "first-order": 15, "pffl": 30, "fedavg": 30}
#: Parts of μ²: people and inputs counted, curvature, gradients and losses of all
#: rounds, then losses and errors of the model that is shipped; 0: not released.
TRAINING = (
    *("counts", "inputs", "curvature", "gradients", "losses"),
    *("final losses", "final errors"),
)
PARTS: Mapping[str, Mapping[str, float]] = {
    method: {name: part for name, part in zip(TRAINING, parts, strict=True) if part}
    for method, parts in {
        "exact": (0.03, 0.07, 0.15, 0.55, 0.08, 0.10, 0.02),
        "first-order": (0.03, 0.07, 0.0, 0.70, 0.08, 0.10, 0.02),
        "pffl": (0.03, 0.07, 0.0, 0.66, 0.12, 0.10, 0.02),
        "fedavg": (0.03, 0.07, 0.0, 0.78, 0.0, 0.10, 0.02),
    }.items()
}
HELDOUT = {"counts": 0.2, "losses": 0.3, "errors": 0.1, "logs": 0.4}


@dataclass(frozen=True)
class Release:
    """Sums that are released some `times`: `part` of μ² is for all of them together.

    Attributes
    ----------
    norm
        What one person adds to them at most, in words.
    noise
        Standard deviation in multiples of that, for each time.
    """

    name: str
    split: str
    times: int
    part: float
    mu: float
    norm: str

    @property
    def noise(self) -> float:
        """What has Σ 1/noise² = part of μ², over all times."""
        return math.sqrt(self.times) / self.mu


@dataclass(frozen=True)
class Plan:
    """All releases of a run, in order, and what they come to.

    Attributes
    ----------
    method
        Which of the methods with noise it is.
    rounds
        T.
    releases
        In the order in which they are made.
    low, high, longest
        Ranges of the inputs, and the length of their (u, u²).
    uniform
        Mean and variance of each u if every value were as frequent: inputs are scaled
        by these where no sums of them are released.
    """

    privacy: Privacy
    method: str
    rounds: int
    releases: tuple[Release, ...]
    low: FloatArray
    high: FloatArray
    longest: float
    uniform: tuple[FloatArray, FloatArray]

    def noise(self, name: str, split: str = "train") -> float:
        """Return the noise of a release, in multiples of what a person adds; or 0."""
        mine = (one for one in self.releases if (one.name, one.split) == (name, split))
        return next((one.noise for one in mine), 0.0)

    def mu(self, split: str) -> float:
        """μ of all releases about rows of a split."""
        mine = [one for one in self.releases if one.split == split]
        return math.sqrt(math.fsum(one.mu**2 for one in mine))

    def lines(self) -> list[str]:
        """Say what will be released, before anything is."""
        terms = self.privacy
        out = [
            f"privacy: ε = {terms.epsilon:g}, δ = {terms.delta:g} for each person of "
            f"the training rows (μ = {self.mu('train'):.4g}), rows shortened to "
            f"{terms.clip:g}, losses up to {terms.loss_bound:g}; {self.method}, "
            f"{self.rounds} rounds"
        ]
        for one in self.releases:
            often = f"{one.times} × " if one.times > 1 else ""
            out.append(
                f"  {often}{one.name} of {one.split} rows: {one.part:.0%} of the "
                f"budget, noise {one.noise:.3g} × what a person adds ({one.norm})"
            )
        if any(one.split != "train" for one in self.releases):
            out.append(
                f"  held-out rows are other people, with ε = {terms.epsilon:g} of "
                f"their own (μ = {terms.mu:.4g})"
            )
        return out


def plan_of(
    privacy: Privacy,
    method: Method,
    schema: Schema,
    encoding: TableEncoding,
    *,
    parameters: int,
    heldout: bool,
    bounds: bool = True,
) -> Plan:
    """Return the plan of a run; refuse what is not available under noise."""
    name = name_of(method, parameters)
    low, high, columns = ranges_of(privacy, schema, encoding)
    rounds = privacy.rounds or ROUNDS[name]
    parts = dict(PARTS[name])
    if not bounds and name != "fedavg":
        parts["gradients"] += parts.pop("losses", 0.0)
    if privacy.scaling == "ranges":
        parts["gradients"] += parts.pop("inputs")
    longest = math.sqrt(2.0 * columns)
    norms = {  # what one person adds at most
        "inputs": longest,
        "curvature": privacy.clip**2 / 4,
        "gradients": privacy.clip,
        "losses": privacy.loss_bound,
        "final losses": privacy.loss_bound,
    }
    often = dict.fromkeys(("gradients", "losses"), rounds)
    releases = []
    for split, shares in (("train", parts), ("test", HELDOUT if heldout else {})):
        for what, part in shares.items():
            norm = (
                f"1 to each of {BETS}" if what == "logs" else words(norms.get(what, 1))
            )
            times = often.get(what, 1) if split == "train" else 1
            mu = privacy.mu * math.sqrt(part)
            releases.append(Release(what, split, times, part, mu, norm))
    ends = low, high, longest, uniform_of(encoding)
    return Plan(privacy, name, rounds, tuple(releases), *ends)


def name_of(method: Method, parameters: int) -> str:
    """Return which of the methods with noise a method stands for."""
    name = method.name
    if name == "auto":
        return "exact" if parameters <= WIDE else "first-order"
    if name not in PARTS:
        raise UsageError(
            f"[not-under-noise] the method '{name}' is not available under noise: "
            f"there are {', '.join(sorted(PARTS))} (what one person changes in its "
            "messages has no bound, or takes too many of them)"
        )
    steps = getattr(method, "local_steps", None)
    if steps not in (None, 1) and steps != type(method)().local_steps:
        raise UsageError(
            "[not-under-noise] not available under noise: several local steps (what "
            "one person changes in such an update has no bound): local_steps=1"
        )
    if getattr(method, "batch_size", None) is not None:
        raise UsageError(
            "[not-under-noise] not available under noise: batches (linear models are "
            "trained on all rows): batch_size=None"
        )
    return name


def ranges_of(
    privacy: Privacy, schema: Schema, encoding: TableEncoding
) -> tuple[FloatArray, FloatArray, int]:
    """Return what each input is between, and how many columns they come from.

    A category's inputs are 0 but for one, and one that says that a number is missing
    is 0 or 1; every other input needs a range that was known beforehand.
    """
    low, high = np.zeros(schema.n_features), np.ones(schema.n_features)
    place, columns, unknown, used = 0, 0, [], set()
    for column in encoding.columns:
        if column.kind == "text":
            raise UsageError(
                f"[not-under-noise] not available under noise: '{column.name}' is a "
                "text; leave it out, or make numbers and categories of it"
            )
        for name in column.features:
            if not _coded(column, name):
                if name in privacy.ranges:
                    low[place], high[place] = privacy.ranges[name]
                    used.add(name)
                else:
                    unknown.append(name)
            place += 1
        columns += 1 if column.kind == "category" else len(column.features)
    strange = sorted(set(privacy.ranges) - used)
    if strange:
        raise UsageError(
            f"[unknown-column] ranges for {', '.join(map(repr, strange))}, which are "
            "no numeric inputs"
        )
    if unknown:
        shown = ", ".join(f"'{name}'" for name in unknown[:8])
        more = f" and {len(unknown) - 8} more" * (len(unknown) > 8)
        raise UsageError(
            "[needs-ranges] under noise every numeric input needs a range that is "
            "known beforehand (looking it up in the rows would tell of them): "
            f"{shown}{more}; such as range = "
            f"['{unknown[0]}=0,100', …] under [privacy]"
        )
    return low, high, columns


def _coded(column: Column, name: str) -> bool:
    """Whether an input is 0 or 1 by its coding."""
    return column.kind == "category" or name != column.name


def uniform_of(encoding: TableEncoding) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of u = (x − low)/(high − low), all values as frequent.

    Of a number 1/2 and 1/12; of each input of a category with C values 1/C and
    (1 − 1/C)/C; of one that says that a number is missing, as of one of two.
    """
    mean, variance = [], []
    for column in encoding.columns:
        values = len(column.features) if column.kind == "category" else 2
        share = 1 / max(2, values)
        for name in column.features:
            mean.append(share)
            coded = _coded(column, name)
            variance.append(share * (1 - share) if coded else 1 / 12)
    return np.array(mean), np.array(variance)


def bets_of(people: FloatArray, noise: float, delta: float) -> FloatArray:
    """Return bets γ for cells of about n test people, noise allowed for.

    Each minimises (log 1/δ + s²/2 + s)/(nγ) + γv/2 with s = noise·√J·|log(1 − γ)|, as
    the width of the bound is about that: for the smallest cell, for the largest, and
    between. Everything here is planned or was released before.
    """
    tried = np.geomspace(1e-3, 0.9, 200)
    s = noise * math.sqrt(BETS) * -np.log1p(-tried)
    found = []
    for n in (max(1.0, float(people.min())), max(1.0, float(people.max()))):
        width = (math.log(1 / delta) + s**2 / 2 + s) / (n * tried) + tried * SPREAD / 2
        found.append(float(tried[np.argmin(width)]))
    low, high = min(found), max(found)
    return np.array([0.8 * low, math.sqrt(low * high), min(0.9, 1.25 * high)])
