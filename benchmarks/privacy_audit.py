"""An audit of whole runs with noise: how well can one person be told to be there?

    nice -n 15 .venv/bin/python benchmarks/privacy_audit.py [--runs 1000]

A federation with and without one person, the canary, whose inputs are the longest that
the clip allows and lie apart from all others. The attacker knows every other row, all
settings and everything that a run releases, and asks how far the releases are from what
the others alone would give, in the canary's direction: summed over all releases, each
by its noise, that is the most powerful test there is against Gaussian noise. From how
far its scores are apart over many runs follows a lower bound on μ, and by it on ε, with
a confidence of 95 %. It must stay below the ε that is claimed; with a planted bug it
must not: half of the noise. Rows that are not shortened to the clip are no bug that
could be planted: in whole numbers, a row that is too long adds nothing.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np

import pffl
from pffl._solve import setting_of
from pffl.data.rows import Rows
from pffl.driver import drive
from pffl.engines import Local
from pffl.methods import method_of
from pffl.prepare import Options
from pffl.privacy import run as running
from pffl.privacy.run import adding_of
from pffl.privacy.terms import epsilon_of
from pffl.queries import Adding

DELTA = 1e-6
WORDS = {
    "": "as planned",
    "noise": "half of the noise (planted bug)",
}


class Overheard(Local):
    """Keeps every release: the query, and what came back with noise."""

    def ask_many(self, queries):
        found = super().ask_many(queries)
        self.heard = [*getattr(self, "heard", []), *zip(queries, found, strict=True)]
        return found


class Halved(Adding):
    """The planted bug: half of the noise's deviation."""

    @property
    def total(self) -> float:
        return super().total / 4


def federations(far: float = 4.0) -> tuple[object, object]:
    """Return neighbours: without and with the canary, in the first silo."""
    data = pffl.datasets.synthetic(3000, silos=3, groups=["f", "m"], random_state=0)
    first = data.silos[0]
    rows = first.splits["train"]
    # Where the model is surest, and of the other label: the steepest loss there is.
    w = pffl.solve(data, None, method="exact", random_state=0).w[: rows.X.shape[1]]
    x = far * np.sign(w)[None]
    one = Rows(x, np.array([0.0]), np.array([0]), None, None)
    joined = Rows.joined([rows, one])
    silo = replace(first, splits={**first.splits, "train": joined})
    return data, replace(data, silos=(silo, *data.silos[1:]))


def score(engine: Overheard, without: Local, bare: Local) -> float:
    """Return the log-likelihood ratio of everything heard: with against without."""
    total = 0.0
    for query, heard in engine.heard:
        if query.split != "train":
            continue
        silent = replace(query, adding=None)
        views, others = bare.views(silent), without.views(silent)
        mine, theirs = silent.answer(views[0]), silent.answer(others[0])
        rest = [silent.answer(view) for view in others[1:]]
        for name in query.parts:
            own, others_own = query.real(mine, name), query.real(theirs, name)
            base = sum((query.real(one, name) for one in rest), others_own)
            shift, off = own - others_own, query.real(heard, name) - base
            sigma = query.sigma[name]
            total += float((off * shift).sum() - (shift * shift).sum() / 2) / sigma**2
    return total


def audit(epsilon: float, runs: int, bug: str) -> tuple[float, float]:
    """Return the lower bound on ε that the attack proves, and the attack's μ."""
    less, more = federations()
    constraint, used = pffl.BoundedGroupLoss(0.66), method_of("exact")
    ranges = {str(name): (-4.0, 4.0) for name in less.schema.features}
    scores: dict[bool, list[float]] = {True: [], False: []}
    without, bare = Local(less), Local(more)
    for run in range(runs):
        there = run % 2 == 1
        engine = Overheard(more if there else less)
        privacy = pffl.Privacy(epsilon, DELTA, ranges=ranges, noise_seed=run)
        setting = setting_of(engine)
        plan, model = running.planned(
            setting, constraint, None, used, Options(), privacy
        )
        adding = adding_of(setting, privacy, shared=True)
        if bug == "noise":
            adding = Halved(adding.source, adding.sites, adding.shared, 0)
        flow = running.run(setting, constraint, plan, model, used, Options(), 0, adding)
        drive(engine, flow)
        scores[there].append(score(engine, without, bare))
    return lower_bound(np.array(scores[True]), np.array(scores[False]))


def lower_bound(there: np.ndarray, absent: np.ndarray) -> tuple[float, float]:
    """Return ε and μ that the runs prove at least, with a confidence of 95 %.

    Any test of a μ-GDP run has Φ⁻¹(true positives) − Φ⁻¹(false positives) ≤ μ; the
    scores are sums of many Gaussian terms, so that it is their mean difference in units
    of their spread, of which the lower end is taken.
    """
    spread = math.sqrt((there.var(ddof=1) + absent.var(ddof=1)) / 2)
    mu = float(there.mean() - absent.mean()) / spread
    error = math.sqrt(1 / len(there) + 1 / len(absent) + mu**2 / (4 * len(there)))
    least = max(0.0, mu - 1.645 * error)
    return epsilon_of(least, DELTA), least


if __name__ == "__main__":
    many = 1000
    if "--runs" in sys.argv:
        many = int(sys.argv[sys.argv.index("--runs") + 1])
    print("| ε claimed | run | runs | ε at least | μ at least | μ claimed | |")
    print("|---|---|---|---|---|---|---|")
    for epsilon in (1.0, 4.0):
        for bug, word in WORDS.items():
            found, mu = audit(epsilon, many, bug)
            claimed = pffl.Privacy(epsilon, DELTA).mu
            verdict = "below" if found < epsilon else "**above: caught**"
            print(
                f"| {epsilon:g} | {word} | {many} | {found:.3f} | {mu:.3f} | "
                f"{claimed:.3f} | {verdict} |",
                flush=True,
            )
