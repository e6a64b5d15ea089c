"""Whom an attacker asks: a site as version 0.1.0 had it, and a site as it is.

An asker takes a query and returns its total, or None if it was refused. Every attack
is run against `Former` first: an attack that reads nothing there proves nothing. `Real`
is a site without noise, which holds limits and floor; `Private` one with a budget.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from pffl.data import Federation, Rows, Schema, Silo
from pffl.deploy import Agreement, Limits, Site
from pffl.queries import Census, CensusTotal, Expand, ModelQuery, Query, View
from tests.attacks.product import told
from tests.deploy.sites import Asker, Server, agree, alone, keys_of, sites_of
from tests.helpers import make_schema
from tests.inside import Joining, SiteFolder, SiteMemory, blocks_of, mu_of, unfolded
from tests.inside import site_key_FILE as KEY

Ask = Callable[[Query[Any]], Any]

FLOOR, QUESTIONS, RADIUS = 10, 200, 100.0  # defaults of version 0.1.0
LINE = "| {} | {} | {} |"
PATIENCE = 8  # refusals, until nothing more is asked


class Former:
    """Rows behind the guard of version 0.1.0, with its default limits.

    (group, label) with fewer than ten rows, and the next smallest, are in no cell, and
    stay in F; parameters are in a ball of 100, in which each input has spread 1; a run
    has 200 queries.
    """

    def __init__(self, silo: Silo, schema: Schema) -> None:
        self.silo, self.schema, self.asked = silo, schema, 0

    def __call__(self, query: Query[Any]) -> Any:
        model = None if query.task is None else query.task.model
        view = View.of(self.silo, self.schema, model, query.split)
        if model is not None:
            self.asked += 1
            assert isinstance(query, ModelQuery)
            ratio = self.silo.rows(query.split).spread / model.inputs.scale
            long = max(
                float(np.linalg.norm(v * scale))
                for v in query.parameters
                for scale in (1.0, np.append(ratio, 0.0))
            )
            if long > RADIUS or ratio.max() > 1000 or self.asked > QUESTIONS:
                return None
        shown = ~_withheld(view.stratum, self.schema.n_strata)[view.stratum]
        total = told(query.answer(view))
        if model is None or shown.all():
            return total
        kept = replace(
            view, X=view.X[shown], y=view.y[shown], stratum=view.stratum[shown]
        )
        cells = told(query.answer(kept))
        if isinstance(total, SimpleNamespace):
            own = {k: v for k, v in vars(cells).items() if k.startswith("cell_")}
            return SimpleNamespace(**{**vars(total), **own})
        names = [name for name in total.declared if name.startswith("cell_")]
        return replace(total, **{name: getattr(cells, name) for name in names})


def _withheld(stratum: np.ndarray, n_strata: int) -> np.ndarray:
    counts = np.bincount(stratum, minlength=n_strata)
    hidden = (counts > 0) & (counts < FLOOR)
    for smallest in np.argsort(counts, kind="stable") if hidden.any() else ():
        if hidden.sum() > 1 and counts[hidden].sum() >= FLOOR:
            break
        hidden[smallest] |= counts[smallest] > 0
    return hidden


class Real:
    """A real site, asked by bytes, step by step; refusals are kept."""

    def __init__(self, site: Site, run: str = "run") -> None:
        self.site, self._asker = site, Asker(site, run)
        self.refusals = self._asker.refusals

    @property
    def number(self) -> int:
        """How many queries were answered."""
        return self._asker.step + len(self.refusals)

    def __call__(self, query: Query[Any]) -> Any:
        if len(self.refusals) > PATIENCE:
            return None
        return told(self._asker.ask(query))


EPSILON = 8.0  # a large one: what attacks do not read here they read nowhere below


class Private:
    """A real site with a budget, asked for sums with noise in the place of exact ones.

    Parameters
    ----------
    folder
        Where the site keeps its account.
    silo, schema
        The rows.
    asked
        How many queries the attacker means to ask: they share the budget.
    run
        Name of the run.
    """

    def __init__(
        self, folder: Path, silo: Silo, schema: Schema, asked: int, run: str = "run"
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        agreed = alone(silo, schema, run={"privacy": {"epsilon": EPSILON}})
        self.site = Site(silo, agreed, Limits(epsilon=EPSILON), folder)
        self.ask = Real(self.site, run)
        self.noise = math.sqrt(3 * asked + 1e-6) / mu_of(EPSILON, Limits().delta)

    def __call__(self, query: Query[Any]) -> Any:
        """Return what is released of the cells: losses, gradients and curvatures."""
        task: Any = query.task
        assert isinstance(query, ModelQuery)
        model = replace(task.model, input_bound=float(np.sqrt(task.model.n_parameters)))
        task = replace(task, model=model)
        noise = np.full(3, self.noise)
        noised = Expand(task, query.w, 2, noise=noise, loss_bound=3.0)
        member = blocks_of(task.cells)[1].astype(float)
        total = self.ask(noised)
        assert total is not None, self.ask.refusals  # it is the noise that stops it
        losses, gradients, curvatures = (
            member @ noised.real(total, name)
            for name in ("losses", "gradients", "curvatures")
        )
        hessians = unfolded(curvatures, model.n_parameters)
        n = len(self.site.silo.rows("train"))
        return SimpleNamespace(
            cell_losses=losses,
            cell_gradients=gradients,
            cell_hessians=hessians,
            risk=losses.sum() / n,
            risk_gradient=gradients.sum(axis=0) / n,
            risk_hessian=hessians.sum(axis=0) / n,
        )


class Pooled:
    """Asks sites of a secure sum step by step; refusals are kept."""

    def __init__(self, federation: Federation, rules: Limits, **agreed: Any) -> None:
        known = agree(federation, floor=rules.floor, **agreed)
        self.server = Server(sites_of(federation, known, rules=rules))
        self.refusals: list[str] = []
        schema, splits = federation.schema, federation.splits
        self.server.ask([Census(schema, split) for split in splits])

    def __call__(self, query: Query[Any]) -> Any:
        if len(self.refusals) > PATIENCE:
            return None
        try:
            return told(self.server.ask([query])[0])
        except AssertionError as error:  # a site refused
            self.refusals.append(str(error))
            return None


def opened(folder: Path, federation: Federation, agreed: Agreement) -> dict[str, Site]:
    """The sites' own folders, whose people joined, or would now."""
    sites, path = {}, folder / "federation.json"
    path.write_text(agreed.text())
    for silo in federation.silos:
        place = SiteFolder(folder / silo.name)
        if not place.path.exists():
            place.path.mkdir()
            keys_of(silo.name).write(place.path / KEY)
            memory = SiteMemory(place.path)
            memory.add("begin", {"site": silo.name})
            memory.close()
        joining = Joining.of(place, path, Limits(floor=1))
        joining.check(None)
        if joining.before is None:
            joining.agree(silo, compared=True)  # by somebody who looked at it
        sites[silo.name] = place.open()
    return sites


def counted(sites: Mapping[str, Site], schema_hash: str, run: str) -> CensusTotal:
    """What a server reads of a census under masks."""
    server = Server(sites, schema_hash, run)
    schema = next(iter(sites.values())).schema
    total, _ = server.ask([Census(schema, split) for split in ("train", "test")])
    assert isinstance(total, CensusTotal)
    return total


def tell(attack: str, before: object, now: object) -> None:
    """Print what an attack recovered: from version 0.1.0, and now (pytest -s)."""
    print(LINE.format(attack, before, now))


def modes(plain: object, private: object) -> str:
    """Say what is read without noise, which promises nothing, and with a budget."""
    return f"{plain} without noise; {private} with ε = {EPSILON:g}"


def people(
    n: int = 800, *, seed: int = 0, inputs: int = 4, small: int = 0
) -> tuple[Silo, Schema]:
    """Draw people with an age in whole years and other inputs, of two groups.

    Of the last (group, label) there are `small` people, if it is said.
    """
    rng = np.random.default_rng(seed)
    schema = make_schema(features=inputs)
    age = 18 + np.floor(rng.gamma(2.0, 9.0, n)).clip(0, 62)
    X = np.column_stack([age, rng.normal(size=(n, inputs - 1)) * 3 + 5])
    group = rng.integers(2, size=n)
    y = (rng.normal(size=n) + (X[:, 1] - 5) / 3 > 0).astype(float)
    if small:
        rare = (group == 1) & (y == 1)
        kept = ~rare | (np.cumsum(rare) <= small)
        X, y, group = X[kept], y[kept], group[kept]
    rows = Rows.of(X, y, group)
    return Silo("north", 0, {"train": rows, "test": rows}), schema


def found(
    rows: np.ndarray,
    guesses: Sequence[np.ndarray],
    tolerance: float,
    spread: np.ndarray | None = None,
) -> int:
    """Count the rows that some guess is, in units of each input's spread."""
    if not len(guesses):
        return 0
    spread = rows.std(axis=0) if spread is None else spread
    scaled = np.asarray(guesses) / spread
    near = [np.abs(scaled - row / spread).max(axis=1).min() for row in rows]
    return int((np.array(near) < tolerance).sum())


def reason(asker: Real) -> str:
    """The first refusal, short; numbers of its own left out."""
    return re.split(r"[:(]", asker.refusals[0])[0].strip() if asker.refusals else "–"
