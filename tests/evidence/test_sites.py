"""What any one site could have hidden: the truth is within the line (fault 96)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import pffl
from pffl import runs
from pffl.data import Federation
from pffl.solution import Solution
from tests.deploy.sites import remote
from tests.helpers import make_federation
from tests.inside import conclude, write_report
from tests.methods.biased import biased

BOUND = pffl.BoundedGroupLoss(0.6)
QUICKLY = pffl.Options(baseline=False, smallest_bound=False)


@cache
def rows() -> Federation:
    return make_federation(7, sizes=(60, 45, 30), test=30)


@cache
def run(silos: int = 3) -> Solution:
    """A run whose sites answer by messages."""
    few = rows().silos[:silos]
    return pffl.solve(remote(Federation(rows().schema, few)), BOUND, seed=0)


def losses(solution, silo, split="train"):
    """Return the bounded losses of a silo's rows, and their groups."""
    model, part = solution.model, silo.rows(split)
    X = model.inputs.apply(part.X)
    M = solution.evidence.terms.loss_bound
    return model.bounded_losses(solution.w, X, part.y, M), part.group


def said(solution, kind="sites"):
    found = [s for s in solution.certificate.statements if s.kind == kind]
    return found[0] if found else None


def test_the_line_is_the_formula():
    solution = run()
    M = solution.evidence.terms.loss_bound
    for split, key in (("train", "train at most"), ("test", "test at most")):
        told = [losses(solution, silo, split) for silo in rows().silos]
        for z, row in enumerate(said(solution).per_cell):
            sums = np.array([own[group == z].sum() for own, group in told])
            many = np.array([(group == z).sum() for _, group in told])
            worst = [
                (sums.sum() - sums[k] + M * many[k]) / many.sum() for k in range(3)
            ]
            assert row[key] == pytest.approx(max(worst), rel=1e-12)
            assert row["sites"] == (many > 0).sum()
            if split == "train":
                means = sums / many
                shown = (many >= 10).sum() >= 3
                ends = [means.min(), means.max()] if shown else [None, None]
                assert [row["lowest"], row["highest"]] == pytest.approx(ends)


def easier(federation: Federation, k: int, part: float) -> Federation:
    """Let a site put copies of easy rows in the place of its hardest, counts kept."""
    honest = pffl.solve(federation, BOUND, seed=0, options=QUICKLY)
    silo = federation.silos[k]
    own, (loss, group) = silo.rows("train"), losses(honest, silo)
    X, y = own.X.copy(), own.y
    for stratum in {(g, label) for g, label in zip(group, y, strict=True)}:
        there = np.flatnonzero((group == stratum[0]) & (y == stratum[1]))
        there = there[np.argsort(loss[there])]
        many = int(part * len(there))
        X[there[len(there) - many :]] = X[there[0]]
    lying = replace(silo, splits={**silo.splits, "train": replace(own, X=X)})
    silos = tuple(lying if s is silo else s for s in federation.silos)
    return Federation(federation.schema, silos)


def test_fault_96_the_truth_is_within_the_line_when_a_site_swaps_its_rows():
    true = biased(0)
    solution = pffl.solve(remote(easier(true, 2, 0.3)), BOUND, seed=0, options=QUICKLY)
    told = [losses(solution, silo) for silo in true.silos]
    hidden = 0.0
    for z, row in enumerate(said(solution).per_cell):
        truth = np.concatenate([own[group == z] for own, group in told]).mean()
        assert truth <= row["train at most"]
        hidden = max(hidden, truth - solution.evidence.seen.means[z])
    assert hidden > 1e-3  # nothing else noticed


def test_a_cell_of_two_sites_shows_nobody_s_mean():
    assert all(row["lowest"] is None for row in said(run(2)).per_cell)
    assert any(row["lowest"] is not None for row in said(run()).per_cell)


def test_silos_at_hand_hide_nothing():
    at_hand = pffl.solve(rows(), BOUND, seed=0, options=QUICKLY)
    assert said(at_hand) is None
    assert conclude(at_hand.evidence).result()["sites"] is None


def test_under_masks_it_is_not_available_and_what_could_not_be_checked_is_said():
    masked = pffl.solve(rows(), BOUND, seed=0, options=QUICKLY, secure_sum=True)
    found = said(masked)
    assert not found.available
    assert masked.evidence.sites.masked == 3
    assert masked.evidence.seen.sites == {}
    result = conclude(masked.evidence).result()["sites"]
    assert (result["masked"], result["cells"]) == (3, [])


def test_losses_without_a_bound_bound_nothing():
    federation = make_federation(7, sizes=(60, 45, 30), test=30, labels=0)
    constraint = pffl.BoundedGroupLoss(1.2)
    solution = pffl.solve(remote(federation), constraint, seed=0, options=QUICKLY)
    assert not said(solution).available


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("sites") / "run"
    with runs.lock(place) as directory:
        directory.save(run(), "")
        write_report(directory, conclude(run().evidence))
    return place


def changed(path, change):
    """Change a JSON file, and what the manifest says of it."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_verify_finds_the_line_again_and_any_change_of_it(folder):
    checks = pffl.verify(folder)
    assert [str(check) for check in checks if not check.agrees] == []

    def wrong(name, change):
        kept = (folder / name).read_text()
        changed(folder / name, change)
        found = [c.what for c in pffl.verify(folder) if not c.agrees]
        (folder / name).write_text(kept)
        return [what for what in found if "site" in what or "report" in what]

    assert wrong(
        "certificate.json", lambda c: less(c["evidence"]["seen"]["sites"]["unknown"])
    )
    assert wrong(
        "certificate.json", lambda c: less(c["evidence"]["heldout"]["sites"]["unknown"])
    )
    assert wrong("result.json", lambda r: r["sites"]["names"].pop())
    assert wrong("result.json", lambda r: r["sites"].update(sentence="All is well."))

    def silent(certificate):
        own = [s for s in certificate["statements"] if s["kind"] == "sites"]
        own[0]["per_cell"][0]["train at most"] *= 0.9

    assert wrong("certificate.json", silent)


def less(doubts):
    doubts[0] *= 0.1
