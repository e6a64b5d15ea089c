"""One lying site among three, and an honest server: the local floor holds.

The liar has 400 made-up people of each rare (group, label) in its table, so that all of
its sums are such as rows can have, and reads what every site is shown: the answers of
all to each step, less its own. Where the floor went by totals, it read five of five
records of the others. Each site now leaves out its own few people, whatever is said.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.attacks.askers import found, tell
from tests.attacks.product import (
    Agreement,
    Census,
    Curvature,
    DataError,
    Federation,
    Policy,
    Rows,
    Rules,
    Silo,
    Site,
    Unguarded,
    engine_of,
    heard_by,
    pffl,
    relayed,
)
from tests.attacks.rebuilding import Told, by_eigenvectors
from tests.deploy.sites import agree, keys_of
from tests.helpers import make_schema
from tests.raising import raises

GROUPS = ("common", "usual", "rare")
FLOOR, RARE, PADDED = 10, 2, 400
BOUND = pffl.BoundedGroupLoss(0.69)
RUN = {
    "constraint": {"kind": "bgl", "bound": 0.69},
    "method": {"kind": "exact"},
    "run": {"seed": 0},
}


@cache
def people() -> Federation:
    """Three sites with three groups; of the rare one 2, 3 and 4 people."""
    schema = make_schema(features=8, attributes=[("group", GROUPS)])
    silos = []
    for k, few in enumerate((2, 3, 4)):
        rng = np.random.default_rng(k)
        n = 300 + few
        group = np.append(rng.integers(RARE, size=300), np.full(few, RARE))
        X = np.round(rng.normal(size=(n, 8)) * 3 + 5, 2)
        y = (rng.normal(size=n) + (X[:, 1] - 5) / 3 > 0).astype(float)
        rows = Rows.of(X, y, group)
        silos.append(Silo(f"site {k}", k, {"train": rows, "test": rows}))
    return Federation(schema, tuple(silos), "people")


def padded(silo: Silo) -> Silo:
    """The liar's table: hundreds of made-up people of each rare (group, label)."""
    rng, splits = np.random.default_rng(9), {}
    for split in silo.splits:
        rows = silo.rows(split)
        X = np.asarray(rows.X)
        made = X[rng.integers(len(X), size=2 * PADDED)]
        splits[split] = Rows.of(
            np.concatenate([X, made]),
            np.append(rows.y, np.repeat([0.0, 1.0], PADDED)),
            np.append(rows.group, np.full(2 * PADDED, RARE)),
        )
    return replace(silo, splits=splits)


class Liar(Unguarded):
    """A site without limits and floor, which keeps what it reads of the others."""

    heard: list[tuple[Any, Any]]

    def answer(self, content: bytes, **more: Any) -> bytes:
        """Keep what all sites answered to the step before, beside its own sums."""
        if self.said is not None:
            asked, own = self.said
            every = relayed(content, asked)
            if every is not None:
                self.heard += zip(asked, zip(every, own, strict=True), strict=True)
                self.said = None
        return super().answer(content, **more)


def sites_with_a_liar(agreed: Agreement, rules: Rules) -> tuple[dict[str, Any], Liar]:
    """Two honest sites, and one that lies."""
    *honest, last = people().silos
    known: dict[str, Any] = {"agreement": agreed}
    sites: dict[str, Any] = {
        silo.name: Site(silo, agreed.schema, rules, keys=keys_of(silo.name), **known)
        for silo in honest
    }
    own = keys_of(last.name)
    liar = Liar(padded(last), agreed.schema, rules, keys=own, **known)
    liar.heard = []
    return {**sites, last.name: liar}, liar


def records_read(liar: Liar) -> tuple[int, float]:
    """Whole records of the others' rare people, and their largest curvature."""
    bends = [
        (q, total.cell_hessians[RARE] - own.cell_hessians[RARE])
        for q, (total, own) in liar.heard
        if isinstance(q, Curvature) and len(total.cell_hessians) > RARE
    ]
    assert len(bends) > 1
    inputs = bends[0][0].task.model.inputs
    rows = [np.asarray(s.rows("train").X) for s in people().silos[:2]]
    few = [s.rows("train").group == RARE for s in people().silos[:2]]
    true = np.concatenate([X[own] for X, own in zip(rows, few, strict=True)])
    told = [Told(q.w, 0.0, np.zeros(len(q.w)), bent) for q, bent in bends]
    told.sort(key=lambda one: float(np.linalg.norm(one.w)))
    guesses = [x * inputs.scale + inputs.mean for x in by_eigenvectors(told, len(true))]
    spread = people().silos[0].rows("train").spread
    largest = max(float(np.abs(bent).max()) for _, bent in bends)
    return found(true, guesses, 1e-2, spread), largest


@pytest.mark.parametrize("floor", [1, FLOOR])
def test_a_liar_reads_nothing_of_those_below_the_floor(floor: int) -> None:
    agreed = agree(people(), run=RUN, floor=floor)
    sites, liar = sites_with_a_liar(agreed, Rules(floor=floor))
    engine = engine_of(people(), sites, agreed, policy=Policy(seconds=60.0))
    solution = pffl.solve(engine, BOUND, method="exact", random_state=0)
    assert solution.status == "met"
    read, largest = records_read(liar)
    counts = [
        (total.counts[0] - own.counts[0])[2 * RARE :].sum()
        for q, (total, own) in liar.heard
        if isinstance(q, Census)
    ]
    if floor == 1:  # the attack works where nothing stops it
        assert read == 5
        assert counts == [5, 5]
        return
    tell(
        "one lying site of three, with 400 made-up people of each rare group",
        "5 of 5 records (where the floor goes by totals)",
        f"{read} of 5: sums of the others' rare group are {largest:g}",
    )
    assert (read, counts) == (0, [0, 0])
    assert largest < 1e-9  # zero, but for the grid that masked numbers lie on
    for q, (total, own) in liar.heard:  # whatever was asked
        for name in ("cell_losses", "cell_gradients"):
            if len(getattr(total, name, ())) > RARE:
                apart = getattr(total, name)[RARE] - getattr(own, name)[RARE]
                assert np.abs(apart).max() < 1e-9, (q.kind, name)


def test_no_message_lifts_the_floor() -> None:
    """Other cells, other runs, repeats, nonsense: who is left out stays left out."""
    agreed = agree(people(), run=RUN, floor=FLOOR)
    schema = agreed.schema
    sites, liar = sites_with_a_liar(agreed, Rules(runs=1000, questions=1000))
    rare = np.arange(schema.n_strata) // 2 == RARE
    honest = [site for site in sites.values() if site is not liar]
    sent: list[bytes] = []

    def overheard(content: bytes) -> bytes:
        sent.append(content)
        return honest[0].answer(content)

    made = int((liar.silo.rows("train").group == RARE).sum())
    for constraint in (BOUND, pffl.ConditionalBoundedGroupLoss(9.0), None):
        name = "none" if constraint is None else constraint.name
        known = {"policy": Policy(seconds=60.0), "run": name}
        engine = engine_of(people(), sites, agreed, **known)
        heard_by(engine, honest[0].name, overheard)
        method = "exact" if constraint else pffl.FedAvg(rounds=2)
        pffl.solve(engine, constraint, method=method, random_state=0)
        total = engine.ask(Census(schema, "train"))
        assert total.counts[0][rare].sum() == made  # the liar's own, nobody else's
    for content in sent:
        honest[0].answer(content)
        honest[0].answer(content[::-1])
    for site in honest:
        assert site.hidden("train").tolist() == rare.tolist()
        assert not site.shown("train")[rare].any()


def test_a_group_that_is_left_out_everywhere_is_never_met() -> None:
    with raises(DataError, "empty-cells", "rare"):
        pffl.solve(people(), BOUND, secure_sum=True, random_state=0)
    dropped = pffl.Options(empty_cells="remove")
    found = pffl.solve(
        people(), BOUND, secure_sum=True, random_state=0, options=dropped
    )
    assert list(found.cells.index) == ["common", "usual"]
    assert any("27" in note for note in found.evidence.notes)  # people of each
