"""Small federations in which the label, and one input, depend on the group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import getgeneratorlocals
from types import SimpleNamespace

import numpy as np
from scipy.special import expit

import pffl
from pffl.data import Federation, Rows, Silo
from pffl.engines import Local
from pffl.flow import Round
from pffl.models import LogisticRegression
from pffl.prepare import Options
from tests.helpers import from_silos, make_problem, make_schema

NAMES = ("a", "b", "c", "d")


def biased(seed=0, *, sizes=(120, 50, 200), groups=2, pull=1.5) -> Federation:
    """Draw silos in which later groups get label 1 more often, and an input tells."""
    rng = np.random.default_rng(seed)
    schema = make_schema(features=3, attributes=(("group", NAMES[:groups]),))
    odds = 0.6 ** np.arange(groups)
    silos = []
    for k, n in enumerate(sizes):
        group = rng.choice(groups, size=n, p=odds / odds.sum())
        group[: 2 * groups] = np.tile(np.arange(groups), 2)
        skill, noise = rng.normal(size=(2, n))
        proxy = group + 0.7 * rng.normal(size=n)
        y = skill + pull * (group - 0.5) + noise > 0.3 + 0.4 * rng.normal()
        y[: 2 * groups] = np.repeat([0, 1], groups)  # every cell in every silo
        X = np.column_stack([skill + 0.3 * k, proxy, rng.normal(size=n)])
        rows = Rows.of(X, y.astype(float), group)
        splits = {"train": rows, "test": rows.take(np.arange(min(n, 20)))}
        silos.append(Silo(f"site {k}", k, splits))
    return Federation(schema, tuple(silos), name="biased")


def without(federation: Federation, silo: int, *, group=None, label=None) -> Federation:
    """Take a group, or a label, or their meeting, out of one silo."""
    rows = federation.silos[silo].rows("train")
    out = np.ones(len(rows), dtype=bool)
    out &= True if group is None else rows.group == group
    out &= True if label is None else rows.y == label
    silos = list(federation.silos)
    kept = rows.take(np.flatnonzero(~out))
    splits = {**silos[silo].splits, "train": kept}
    silos[silo] = replace(silos[silo], splits=splits)
    return from_silos(federation, silos)


def copies(federation: Federation, number: int) -> Federation:
    """Return so many silos, each with all the rows."""
    pooled = {s: federation.pooled(s) for s in federation.splits}
    splits = {s: Rows.of(p.X, p.y, p.group) for s, p in pooled.items()}
    silos = [Silo(f"copy {k}", k, splits) for k in range(number)]
    return replace(federation, silos=tuple(silos))


@dataclass(frozen=True, eq=False)
class Raw:
    """The pooled training rows as the model sees them, and plain arithmetic on them."""

    X: np.ndarray
    y: np.ndarray
    group: np.ndarray
    silo: np.ndarray

    @classmethod
    def of(cls, federation: Federation) -> Raw:
        pooled = federation.pooled("train")
        X = (pooled.X - pooled.X.mean(axis=0)) / pooled.X.std(axis=0)
        X = np.column_stack([X, np.ones(len(X))])
        return cls(X, pooled.y, pooled.group, pooled.silo)

    def __len__(self) -> int:
        return len(self.y)

    def losses(self, w):
        z = self.X @ w
        return np.logaddexp(0, z) - self.y * z

    def gradient(self, w, weights):
        return self.X.T @ (weights * (expit(self.X @ w) - self.y))

    def positive(self, w):
        return (self.X @ w > 0).astype(float)

    def wrong(self, w):
        return (self.positive(w) != self.y).astype(float)

    def trained(self, w, c, *, steps, eta, ridge, shares=None):
        """Each silo descends (1/p_k) Σ c_i ℓ_i + ridge; the mean with p_k."""
        K = self.silo.max() + 1
        p = np.full(K, 1 / K) if shares is None else shares
        mean = np.zeros_like(w)
        for k in range(K):
            v, own = w.copy(), np.where(self.silo == k, c, 0.0)
            for _ in range(steps):
                slope = self.gradient(v, own / p[k]) if p[k] > 0 else 0 * v
                v = v - eta * (slope + ridge * v)
            mean += p[k] * v
        return mean


def set_up(federation, *, engine=Local, l2=0.02, weighting="silos"):
    """Return an engine and a problem with one bound per group."""
    asker = engine(federation)
    problem = make_problem(
        asker,
        pffl.BoundedGroupLoss(0.6),
        model=LogisticRegression(l2=l2),
        options=Options(weighting=weighting),
        budget=1.0,
    )
    return asker, problem


def states(engine, problem, method, start=None):
    """Yield a method's own variables after every round, and the pair it stands for."""
    steps, value = method.run(problem, start), None
    while True:
        try:
            signal = steps.send(value)
        except StopIteration:
            return
        value = None
        if isinstance(signal, Round):
            own = getgeneratorlocals(steps)
            yield SimpleNamespace(**{**own, "point": signal.point, "gap": signal.gap})
        else:
            value = engine.ask(signal)


def fit(federation, method, **settings):
    """Return w at the end."""
    engine, problem = set_up(federation, **settings)
    *_, last = states(engine, problem, method)
    return last.point.w


def gap(raw, w, *, label=None):
    """Largest difference of positive rates between groups."""
    there = np.ones(len(raw), bool) if label is None else raw.y == label
    positive = raw.positive(w)
    rates = [
        positive[there & (raw.group == a)].mean() for a in range(raw.group.max() + 1)
    ]
    return max(rates) - min(rates)
