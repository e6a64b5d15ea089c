"""An audit of DP-SGD: a canary in the training of a tiny network.

    nice -n 15 .venv/bin/python benchmarks/privacy_network_audit.py [--runs 800]

Neighbours are a federation with and without one person, the canary, whose gradient is
longer than those of all others together, before it is shortened, and turns it round
most. The attacker knows every other row, all settings, everything that is released in
training, and even which of the others were drawn in each round; whether the canary is
there, and in which rounds it would have been drawn, is all that is secret. The score of
a run is the log-likelihood ratio of its releases,

    Σ_rounds log(1 − q + q·exp((2·off·shift − |shift|²)/(2σ²))),

where off is what was heard less the sum of the others who were drawn, and shift what
the canary would change in it, by the very code that is audited: no test is more
powerful.

The threshold is chosen on a quarter of the runs; on the others, false and true
positives have Clopper–Pearson ends at 97.5 % each. The account allows at most
min_ε e^ε·(false positives) + δ(ε) true positives: more is a caught bug. Planted: half
of the noise, and a clip of the whole batch instead of each person.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from scipy.stats import beta

import pffl
from pffl.data.silo import Rows
from pffl.driver import drive
from pffl.engines import Local
from pffl.evidence.verify import drawn_delta, gaussian_delta
from pffl.methods import method_of
from pffl.models import alone
from pffl.noisy import running
from pffl.preparation import Options
from pffl.questions import sampled
from pffl.questions.noised import Adding
from pffl.solving import adding_of, setting_of

DELTA, ROUNDS, CLIP, EPSILON = 1e-6, 12, 1.5, 8.0
PEOPLE = 60


class Halved(Adding):
    """The planted bug: half of the noise's deviation."""

    @property
    def total(self) -> float:
        return super().total / 4


class Heard(Local):
    """Keeps every draw: the question, who was drawn, and what came back."""

    def __init__(self, federation) -> None:
        super().__init__(federation)
        self.heard: list = []

    def ask_many(self, questions):
        out = []
        for question in questions:
            throws: list = []
            kept = sampled.thrown

            def noting(people, rate, source, throws=throws, kept=kept):
                throws.append(kept(people, rate, source))
                return throws[-1]

            sampled.thrown = noting
            try:
                found = super().ask_many([question])[0]
            finally:
                sampled.thrown = kept
            if question.kind == "sampled":
                self.heard.append((question, throws, found))
            out.append(found)
        return out


def batch_clipped(model, w, X, y, clip):
    """The planted bug: the gradient of the batch is shortened, and not each."""
    for rows, own in ORIGINAL(model, w, X, y, 1e9):
        length = np.linalg.norm(own.sum(axis=0))
        yield rows, own * min(1.0, clip / max(length, 1e-300))


ORIGINAL = alone.gradients


def network() -> pffl.Network:
    """A tiny one, the same whenever it is made."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 2), torch.nn.LeakyReLU(0.3), torch.nn.Linear(2, 2)
    return pffl.Network(torch.nn.Sequential(*layers))


def budget(rate: float, seed: int | None = None) -> pffl.Privacy:
    ranges = {"x0": (0.0, 100.0), "x1": (0.0, 1.0), "x2": (0.0, 10.0)}
    names = federations()[0].schema.features
    given = dict(zip(map(str, names), ranges.values(), strict=True))
    return pffl.Privacy(
        EPSILON,
        DELTA,
        clip=CLIP,
        rounds=ROUNDS,
        rate=rate,
        noise_seed=seed,
        ranges=given,
        scaling="ranges",
    )


@cache
def federations(signs: tuple[int, ...] = (1, 1, 1), label: float = 1.0):
    """Return neighbours: without and with the canary, the last row of the silo."""
    data = pffl.datasets.synthetic(PEOPLE, silos=1, features=3, groups=["f"], seed=0)
    first = data.silos[0]
    rows = first.splits["train"]
    canary = Rows(
        np.array([[50.0, 0.5, 5.0]]) * (1.0 + 60.0 * np.array([signs])),
        np.array([label]),
        np.array([0]),
        None,
        None,
    )
    joined = Rows.joined([rows, canary])
    less = replace(first, splits={"train": rows})
    more = replace(first, splits={"train": joined})
    return replace(data, silos=(less,)), replace(data, silos=(more,)), canary


def run_once(engine: Heard, rate: float, seed: int, bug: str) -> None:
    """Train once; the engine keeps what was heard."""
    privacy, setting, used = budget(rate, seed), setting_of(engine), method_of("fedavg")
    plan, model = running.planned(setting, None, network(), used, Options(), privacy)
    adding = adding_of(setting, privacy, shared=True)
    if bug == "noise":
        adding = Halved(adding.source, adding.sites, adding.shared, 0)
    drive(engine, running.run(setting, None, plan, model, used, Options(), 0, adding))


@cache
def hardest():
    """Return neighbours whose canary would turn a batch's gradient round most.

    Tried at the start: all corners, both labels.
    """
    engine = Heard(federations()[0])
    run_once(engine, 1.0, 0, "")
    question, best, most = engine.heard[0][0], None, -1.0
    for signs in itertools.product((-1, 1), repeat=3):
        for label in (0.0, 1.0):
            less, more, canary = federations(signs, label)
            base, other = (turned(question, f.silos[0]) for f in (less, more))
            if (far := float(np.linalg.norm(other - base))) > most:
                best, most = (less, more, canary), far
    return best


def turned(question, silo):
    """The gradient of a silo's rows, shortened as a whole."""
    rows, total = silo.splits["train"], 0.0
    for _, own in ORIGINAL(question.task.model, question.w, rows.X, rows.y, 1e9):
        total = total + own.sum(axis=0)
    return CLIP * total / np.linalg.norm(total)


def added(model, question, rows, atoms):
    """What rows add to the sum, by the code that is audited."""
    total = np.zeros(model.n_trained)
    for part, own in alone.gradients(model, question.w, rows.X, rows.y, question.clip):
        total += (own * question.weights[atoms[part]][:, None]).sum(axis=0)
    return total


def score(engine: Heard, less, canary) -> float:
    """Return the log-likelihood ratio of all draws: with the canary against without."""
    rows, total = less.silos[0].splits["train"], 0.0
    for question, throws, found in engine.heard:
        model, rate = question.task.model, question.rate
        drawn = rows
        if throws:
            drawn = rows.take(np.flatnonzero(throws[0][: len(rows.y)]))
        both = Rows.joined([drawn, canary])
        base, other = (
            added(model, question, some, less.schema.atoms(some.group, some.y))
            for some in (drawn, both)
        )
        shift, off = other - base, question.real(found, "gradients") - base
        sigma = question.deviation("gradients", question.adding)  # as it really is
        ratio = float(2 * off @ shift - shift @ shift) / (2 * sigma**2)
        if rate < 1:
            ratio = float(np.logaddexp(np.log1p(-rate), np.log(rate) + ratio))
        total += ratio
    return total


def scores(runs: int, rate: float, bug: str) -> dict[bool, list[float]]:
    """Run with and without the canary in turns."""
    torch.set_num_threads(1)
    less, more, canary = hardest()
    found: dict[bool, list[float]] = {True: [], False: []}
    alone.gradients = batch_clipped if bug == "batch" else ORIGINAL
    try:
        for run in range(runs):
            there = run % 2 == 1
            engine = Heard(more if there else less)
            run_once(engine, rate, run, bug)
            found[there].append(score(engine, less, canary))
    finally:
        alone.gradients = ORIGINAL
    return found


def allowed(false: float, rate: float) -> float:
    """Return the most true positives that the account of training allows."""
    setting = setting_of(Local(federations()[0]))
    used, privacy = method_of("fedavg"), budget(rate)
    plan = running.planned(setting, None, network(), used, Options(), privacy)[0]
    noise = plan.noise("gradients")
    curve = []
    for epsilon in np.linspace(0.02, 6.0, 40):
        if rate < 1:
            delta = drawn_delta(0.0, rate, noise, ROUNDS, float(epsilon))
        else:
            delta = gaussian_delta(np.sqrt(ROUNDS) / noise, float(epsilon))
        curve.append(np.exp(epsilon) * false + delta)
    return float(min(1.0, *curve))


def audit(runs: int, rate: float, bug: str) -> tuple[float, float, float]:
    """Return lower end of true, upper end of false positives, and what is allowed."""
    found = scores(runs, rate, bug)
    there, absent = np.array(found[True]), np.array(found[False])
    part = len(there) // 4
    tried = np.quantile(absent[:part], np.linspace(0.5, 0.95, 25))
    gain = [(there[:part] > t).mean() - (absent[:part] > t).mean() for t in tried]
    at, many = tried[int(np.argmax(gain))], len(there) - part
    hits, wrong = int((there[part:] > at).sum()), int((absent[part:] > at).sum())
    low = float(beta.ppf(0.025, hits, many - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, wrong + 1, many - wrong)) if wrong < many else 1.0
    return low, high, allowed(high, rate)


if __name__ == "__main__":
    many = 800
    if "--runs" in sys.argv:
        many = int(sys.argv[sys.argv.index("--runs") + 1])
    print("| people drawn | training | runs | true positives, at least | "
          "false positives, at most | true positives allowed | |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    words = {
        "": "as planned",
        "noise": "half of the noise (planted bug)",
        "batch": "clip of the batch (planted bug)",
    }
    rate = 0.3
    for bug, word in words.items():
        low, high, most = audit(many, rate, bug)
        verdict = "below" if low <= most else "**above: caught**"
        print(
            f"| {rate:g} | {word} | {many} | {low:.3f} | {high:.3f} | {most:.3f} | "
            f"{verdict} |",
            flush=True,
        )
