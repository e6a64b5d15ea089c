"""The plan of a run with noise: which releases there are, and what each costs.

Fixed before the first question, from what was declared and from the public schema: no
figure of the rows enters it. Each release has a part of μ²; parts add up to 1, so that
all releases about a training row together are μ-GDP, μ from (ε, δ). Held-out rows are
other people, and have a budget of their own.

For the rounds of a network people are drawn: what is left of (ε, δ) beside the parts of
all other releases is theirs, by the account of `privacy.subsampled`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np

from pffl.constraints.base import Cells
from pffl.data.column import Column
from pffl.data.encoding import TableEncoding
from pffl.data.schema import Schema
from pffl.errors import UsageError
from pffl.methods.base import Method
from pffl.methods.exact import Exact
from pffl.methods.fedavg import FedAvg
from pffl.methods.first_order import FirstOrder
from pffl.methods.pffl import PFFL
from pffl.privacy import subsampled
from pffl.privacy.accounting import epsilon_of
from pffl.privacy.subsampled import Draws
from pffl.privacy.terms import RATE, Privacy
from pffl.text import words
from pffl.typing import BoolArray, FloatArray

WIDE = 40  # parameters: beyond, the noise of a curvature is larger than itself
BETS = 3  # on held-out rows
SPREAD = 0.05  # of a loss / M, about: bets are planned by it
ROUNDS = {"exact": 5, "first-order": 15, "pffl": 30, "fedavg": 30}
NETWORK_ROUNDS, PER_DUAL = 200, 10  # of a network: E·T, and T
#: Parameters of a method that a network's training follows.
FOLLOWED = (
    "multiplier_bound",
    "risk_weight",
    "dual_rounds",
    "rounds_per_dual",
    "rounds",
    "step_size",
    "dual_step_size",
)
#: Parts of μ², by method: people and inputs counted, curvature, gradients and losses of
#: all rounds, then losses and errors of the model that is shipped.
PARTS: Mapping[str, Mapping[str, float]] = {
    "exact": {
        "counts": 0.03,
        "inputs": 0.07,
        "curvature": 0.15,
        "gradients": 0.55,
        "losses": 0.08,
        "final losses": 0.10,
        "final errors": 0.02,
    },
    "first-order": {
        "counts": 0.03,
        "inputs": 0.07,
        "gradients": 0.70,
        "losses": 0.08,
        "final losses": 0.10,
        "final errors": 0.02,
    },
    "pffl": {
        "counts": 0.03,
        "inputs": 0.07,
        "gradients": 0.66,
        "losses": 0.12,
        "final losses": 0.10,
        "final errors": 0.02,
    },
    "fedavg": {
        "counts": 0.03,
        "inputs": 0.07,
        "gradients": 0.78,
        "final losses": 0.10,
        "final errors": 0.02,
    },
}
#: Of networks: what is left is for gradients.
NETWORK_PARTS: Mapping[str, Mapping[str, float]] = {
    "pffl": {
        "counts": 0.03,
        "inputs": 0.07,
        "losses": 0.08,
        "final losses": 0.10,
        "final errors": 0.02,
    },
    "fedavg": {
        "counts": 0.03,
        "inputs": 0.07,
        "final losses": 0.10,
        "final errors": 0.02,
    },
}
HELDOUT: Mapping[str, float] = {
    "counts": 0.2,
    "losses": 0.3,
    "errors": 0.1,
    "logs": 0.4,
}


@dataclass(frozen=True)
class Drawing:
    """How people are drawn for a release, and what is left for it.

    Attributes
    ----------
    rate
        Probability of each person to be drawn, below 1.
    epsilon, delta
        Of all releases together.
    rest
        μ of all others.
    """

    rate: float
    epsilon: float
    delta: float
    rest: float


@dataclass(frozen=True)
class Release:
    """Sums that are released some `times`: `part` of μ² is for all of them together.

    Attributes
    ----------
    norm
        What one person adds to them at most, in words.
    noise
        Standard deviation in multiples of that, for each time.
    drawing
        How people are drawn for it; None where all are asked.
    """

    name: str
    split: str
    times: int
    part: float
    mu: float
    norm: str
    drawing: Drawing | None = None

    @property
    def noise(self) -> float:
        """What has Σ 1/noise² = part of μ², over all times; or what is left for it."""
        drawn = self.drawing
        if drawn is None:
            return math.sqrt(self.times) / self.mu
        return subsampled.noise_of(
            drawn.epsilon, drawn.delta, drawn.rest, drawn.rate, self.times
        )


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
    network
        Whether it is one that is trained.
    """

    privacy: Privacy
    method: str
    rounds: int
    releases: tuple[Release, ...]
    low: FloatArray
    high: FloatArray
    longest: float
    uniform: tuple[FloatArray, FloatArray]
    network: bool = False

    def named(self, name: str, split: str = "train") -> Release | None:
        """Return a release by its name; None if it is not planned."""
        mine = (one for one in self.releases if one.split == split)
        return next((one for one in mine if one.name == name), None)

    def noise(self, name: str, split: str = "train") -> float:
        """Return the noise of a release, in multiples of what a person adds; or 0."""
        one = self.named(name, split)
        return 0.0 if one is None else one.noise

    def mu(self, split: str) -> float:
        """μ of all releases about rows of a split for which nobody is drawn."""
        mine = [one for one in self.releases if one.split == split]
        return math.sqrt(math.fsum(one.mu**2 for one in mine if one.drawing is None))

    @property
    def rate(self) -> float:
        """Probability of each person to be drawn for a round of training."""
        one = self.named("gradients")
        return 1.0 if one is None or one.drawing is None else one.drawing.rate

    @property
    def spent(self) -> float | None:
        """ε of all releases about training rows; None where it follows from μ."""
        if self.rate == 1:
            return None
        draws = Draws(self.rate, self.rounds, self.noise("gradients"))
        return subsampled.epsilon_of(self.mu("train"), draws, self.privacy.delta)

    def lines(self) -> list[str]:
        """Say what will be released, before anything is."""
        terms, what = self.privacy, "gradients" if self.network else "rows"
        wide = f" (μ = {self.mu('train'):.4g})" if self.rate == 1 else ""
        out = [
            f"privacy: ε = {terms.epsilon:g}, δ = {terms.delta:g} for each person of "
            f"the training rows{wide}, {what} shortened to "
            f"{terms.clip:g}, losses up to {terms.loss_bound:g}; {self.method}, "
            f"{self.rounds} rounds"
        ]
        for one in self.releases:
            often = f"{one.times} × " if one.times > 1 else ""
            cost = f"{one.part:.0%} of the budget"
            if one.drawing is not None:
                cost = (
                    f"each person drawn with probability {one.drawing.rate:g}, what is "
                    "left of the budget"
                )
            out.append(
                f"  {often}{one.name} of {one.split} rows: {cost}, noise "
                f"{one.noise:.3g} × what a person adds ({one.norm})"
            )
        if any(one.split != "train" for one in self.releases):
            out.append(
                f"  held-out rows are other people, with ε = {terms.heldout:g} of "
                f"their own (μ = {terms.heldout_mu:.4g})"
            )
        return out


def plan_of(
    privacy: Privacy,
    method: Method[object] | str,
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
    if privacy.rate is not None:
        raise UsageError("rate: people are drawn for networks, and for no other model")
    longest = math.sqrt(2.0 * columns)
    norms = _norms(privacy, longest)
    often = dict.fromkeys(("gradients", "losses"), rounds)
    releases = _releases(parts, "train", privacy.mu, norms, often)
    if heldout:
        releases += _releases(HELDOUT, "test", privacy.heldout_mu, norms)
    return Plan(
        privacy, name, rounds, tuple(releases), low, high, longest, uniform_of(encoding)
    )


def network_plan(
    privacy: Privacy,
    method: Method[object],
    schema: Schema,
    encoding: TableEncoding,
    *,
    scaled: bool,
    heldout: bool,
    bounds: bool = True,
) -> Plan:
    """Return the plan of a run that trains a network; `scaled`: by its inputs' sums."""
    name = method.name
    if name not in NETWORK_PARTS:
        raise UsageError(
            f"the method '{name}' is not available under noise for networks: there are "
            f"{' and '.join(sorted(NETWORK_PARTS))}"
        )
    _refuse_idle(method)
    rounds, duals = rounds_of(method, privacy)
    low, high = np.zeros(schema.n_features), np.ones(schema.n_features)
    uniform = np.zeros(schema.n_features), np.full(schema.n_features, 0.25)
    columns, parts = 1, dict(NETWORK_PARTS[name])
    if scaled:
        low, high, columns = ranges_of(privacy, schema, encoding)
        uniform = uniform_of(encoding)
    if not scaled or privacy.scaling == "ranges":
        del parts["inputs"]
    if not bounds or not duals:
        parts.pop("losses", None)
    rate = RATE if privacy.rate is None else privacy.rate
    longest = math.sqrt(2.0 * columns)
    norms = _norms(privacy, longest)
    part = 1.0 - math.fsum(parts.values())
    known: tuple[str, ...] = ("counts", "inputs")
    first = {one: parts.pop(one) for one in known if one in parts}
    parts = {**first, "gradients": part, **parts}
    often = {"gradients": rounds, "losses": duals}
    releases = _releases(parts, "train", privacy.mu, norms, often)
    if rate < 1:
        rest = privacy.mu * math.sqrt(1.0 - part)
        drawing = Drawing(rate, privacy.epsilon, privacy.delta, rest)
        releases = [
            replace(one, drawing=drawing) if one.name == "gradients" else one
            for one in releases
        ]
    if heldout:
        releases += _releases(HELDOUT, "test", privacy.heldout_mu, norms)
    return Plan(
        privacy,
        name,
        rounds,
        tuple(releases),
        low,
        high,
        longest,
        uniform,
        network=True,
    )


def rounds_of(method: Method[object], privacy: Privacy) -> tuple[int, int]:
    """Return rounds of a network's training, and how often λ moves in them.

    `privacy` says how many, or a method whose own number is not its default's.
    """
    if isinstance(method, PFFL):
        asked, usual = method.last_round, PFFL().last_round
        inner = method.rounds_per_dual
    elif isinstance(method, FedAvg):
        asked, usual, inner = method.last_round, FedAvg().last_round, PER_DUAL
    else:
        raise UsageError(f"the method '{method.name}' is not available under noise")
    rounds = privacy.rounds or (NETWORK_ROUNDS if asked == usual else asked)
    return rounds, (rounds - 1) // inner


def _norms(privacy: Privacy, longest: float) -> dict[str, str]:
    """Say what one person adds to each release at most."""
    return {
        "counts": "1",
        "inputs": words(longest),
        "curvature": words(privacy.clip**2 / 4),
        "gradients": words(privacy.clip),
        "losses": words(privacy.loss_bound),
        "final losses": words(privacy.loss_bound),
        "final errors": "1",
        "errors": "1",
        "logs": f"1 to each of {BETS}",
    }


def _releases(
    parts: Mapping[str, float],
    split: str,
    mu: float,
    norms: Mapping[str, str],
    often: Mapping[str, int] | None = None,
) -> list[Release]:
    """Return releases that have these parts of μ²."""
    return [
        Release(
            name, split, (often or {}).get(name, 1), part, mu * math.sqrt(part),
            norms[name],
        )
        for name, part in parts.items()
    ]  # fmt: skip


def name_of(method: Method[object] | str, parameters: int) -> str:
    """Return which of the methods with noise a method stands for."""
    name = method if isinstance(method, str) else method.name
    if name == "auto":
        return "exact" if parameters <= WIDE else "first-order"
    if name not in PARTS:
        raise UsageError(
            f"the method '{name}' is not available under noise: there are "
            f"{', '.join(sorted(PARTS))} (what one person changes in its messages has "
            "no bound, or takes too many of them)"
        )
    if not isinstance(method, str):
        _refuse_unbounded(method)
    return name


def _refuse_unbounded(method: Method[object]) -> None:
    """Refuse options of a method whose messages have no bound, or that do nothing."""
    if isinstance(method, PFFL | FedAvg):
        if (
            method.local_steps not in (None, 1)
            and method.local_steps != type(method)().local_steps
        ):
            raise UsageError(
                "not available under noise: several local steps (what one person "
                "changes in such an update has no bound): local_steps=1"
            )
        if method.batch_size is not None:
            raise UsageError(
                "not available under noise: batches (linear models are trained on all "
                "rows): batch_size=None"
            )
    elif not isinstance(method, Exact | FirstOrder):
        raise UsageError(f"the method '{method.name}' is not available under noise")


def _refuse_idle(method: Method[object]) -> None:
    """Refuse parameters that a network's training under noise would not follow."""
    if not is_dataclass(method):
        return
    usual = type(method)()
    odd = [
        f.name
        for f in fields(method)
        if f.name not in FOLLOWED and getattr(method, f.name) != getattr(usual, f.name)
    ]
    if "local_steps" in odd and getattr(method, "local_steps", None) == 1:
        odd.remove("local_steps")
    if odd:
        raise UsageError(
            f"not available under noise for networks: {', '.join(odd)} of "
            f"'{method.name}' (a round is one step, on people who are drawn with "
            "probability `rate`)"
        )


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
        if column.kind in ("text", "date"):
            raise UsageError(
                f"not available under noise: '{column.name}' is a {column.kind}; leave "
                "it out, or make numbers and categories of it"
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
            f"ranges for {', '.join(map(repr, strange))}, which are no numeric inputs"
        )
    if unknown:
        shown = ", ".join(f"'{name}'" for name in unknown[:8])
        more = f" and {len(unknown) - 8} more" * (len(unknown) > 8)
        raise UsageError(
            f"under noise every numeric input needs a range that is known beforehand "
            f"(looking it up in the rows would tell of them): {shown}{more}; such as "
            f"--range '{unknown[0]}=0,100', or range = ['{unknown[0]}=0,100', …] under "
            "[privacy]"
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


def blocks_of(cells: Cells, n_atoms: int) -> tuple[FloatArray, BoolArray]:
    """Cut atoms into sets of those that are in the same cells.

    Returns 0 and 1, shape (sets, atoms), and which set is in which cell. A person is in
    one set: so Δ of all of them is that of one.
    """
    if not len(cells):
        return np.ones((1, n_atoms)), np.zeros((0, 1), dtype=bool)
    patterns, code = np.unique(cells.membership, axis=1, return_inverse=True)
    codes = code.reshape(-1)
    sets = (codes[None, :] == np.arange(patterns.shape[1])[:, None]).astype(np.float64)
    return sets, np.asarray(patterns, dtype=bool)


def bets_of(people: FloatArray, noise: float, delta: float) -> FloatArray:
    """Return bets γ for cells of about so many held-out people, noise allowed for.

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


def epsilon_spent(mus: Sequence[float], delta: float) -> float:
    """Return ε of releases together."""
    return epsilon_of(math.sqrt(math.fsum(mu**2 for mu in mus)), delta)
