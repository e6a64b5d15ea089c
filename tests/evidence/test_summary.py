"""What the first screen says, and that it never says more than the figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl.evidence import summary, verdict
from pffl.evidence.evidence import Evidence, Missing
from tests.helpers import make_federation


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return pffl.solve(make_federation(0), pffl.BoundedGroupLoss(0.69), seed=0).evidence


def column(e: Evidence, title: str) -> summary.Column:
    found = summary.columns(e, verdict.cell_results(e))
    return next(one for one in found if one.title == title)


def with_bounds(e: Evidence, bounds: list[float]) -> Evidence:
    pairs = zip(e.cells, bounds, strict=True)
    return replace(e, cells=[replace(cell, bound=bound) for cell, bound in pairs])


def test_there_are_three_verdicts_in_one_order(evidence: Evidence) -> None:
    found = summary.verdicts(evidence)
    assert [one.title for one in found] == list(summary.TITLES.values())
    assert {one.word for one in found}.isdisjoint({"", "met_"})
    signs = set(summary.SIGNS.values())
    assert len(signs) == len(summary.SIGNS)
    assert all(one.sign in signs for one in found)


def test_a_word_that_is_not_known_is_never_good() -> None:
    for word in ("above", "not met", "impossible", "not converged", "diverged", "?"):
        assert summary.Verdict("", word, "").tone == "bad"
    assert summary.Verdict("", "unbounded", "").tone == "plain"


@pytest.mark.parametrize("title", ["after", "held-out", "promised at most"])
def test_figures_are_marked_exactly_where_they_are_above(
    evidence: Evidence, title: str
) -> None:
    key = {"after": "train_loss", "held-out": "test_loss"}.get(title, "test_upper")
    values = np.array([getattr(c, key) for c in verdict.cell_results(evidence)])
    for shift, over in ((0.01, False), (-0.01, True)):
        moved = with_bounds(evidence, list(values + shift))
        figures = column(moved, title).figures
        assert [figure.marked for figure in figures] == [over] * len(values)
        assert [str(f).startswith(summary.ABOVE) for f in figures] == [over] * len(
            values
        )


def test_without_a_bound_there_is_a_table_and_nothing_is_marked(
    evidence: Evidence,
) -> None:
    bare = replace(evidence, promise=False)
    titles = [one.title for one in summary.columns(bare, verdict.cell_results(bare))]
    assert "bound" not in titles
    assert "held-out" in titles
    assert summary.ABOVE not in summary.meanings(
        summary.columns(bare, verdict.cell_results(bare))
    )


def test_the_interval_of_a_rate_is_rounded_outwards(evidence: Evidence) -> None:
    from pffl.evidence.metrics import rates

    for row, group in zip(summary.rate_table(evidence), rates(evidence), strict=True):
        low, high = map(float, row["wrong"].split("(")[1].rstrip(")").split("–"))
        assert group.error.lower is not None
        assert group.error.upper is not None
        assert low / 100 <= group.error.lower <= group.error.upper <= high / 100
        assert row["people"] == f"{group.error.people:,}"


def test_the_risk_is_explained_where_it_is_above_every_cell(
    evidence: Evidence,
) -> None:
    assert summary.risk_note(evidence) == []
    risky = replace(
        evidence, seen=replace(evidence.seen, bounded_risk=2 * evidence.seen.share)
    )
    assert len(summary.risk_note(risky)) == 1
    rows = replace(risky, terms=replace(risky.terms, weighting="rows"))
    assert summary.risk_note(rows) == []


def test_what_was_asked_is_said_by_cells_and_bounds(evidence: Evidence) -> None:
    data = make_federation(0)
    kinds = {
        "in each of 2 groups.": pffl.BoundedGroupLoss(0.69),
        "in each of 4 groups of people with the same true label.": (
            pffl.ConditionalBoundedGroupLoss(0.9)
        ),
        "in each of 3 silos.": pffl.PerSilo(0.69),
        "in each of 2 groups of people with the same true label.": (
            pffl.ConditionalBoundedGroupLoss(0.9, labels=(1,))
        ),
        "for the worst of 2 groups.": pffl.MinMax(),
        "; no bound was asked for.": None,
    }
    quick = pffl.Options(baseline=False, least=False)
    for words, constraint in kinds.items():
        found = pffl.solve(data, constraint, seed=0, options=quick).evidence
        assert summary.asked(found).endswith(words)
        bounds = {f"{cell.bound:g}" for cell in found.cells} if found.promise else set()
        assert all(f"of at most {bound} " in summary.asked(found) for bound in bounds)
    low, high = with_bounds(evidence, [0.5, 0.7]), with_bounds(evidence, [0.7, 0.5])
    assert "at most 0.5 to 0.7 in" in summary.asked(low) == summary.asked(high)


def test_what_it_costs_is_counted_in_predictions(evidence: Evidence) -> None:
    old = verdict.before_metrics(evidence)
    new = verdict.split_metrics(evidence, "test")
    assert old is not None
    assert new is not None
    before = evidence.before
    assert not isinstance(before, Missing)
    for more in (0, 1, -1, 7):
        right = list(before.samples["test"].atoms["correct"])
        right[0] += more + round((old["test"].error - new.error) * new.rows)
        atoms = {**before.samples["test"].atoms, "correct": right}
        changed = replace(before.samples["test"], atoms=atoms)
        samples = {**before.samples, "test": changed}
        moved = replace(evidence, before=replace(before, samples=samples))
        text = summary.cost_in_words(moved)
        wanted = {0: ": as many.", 1: ": 1 more.", -1: ": 1 fewer.", 7: ": 7 more."}
        assert text is not None
        assert text.endswith(wanted[more])
        share = f"{100 * new.error:.1f} %"
        assert text.startswith(f"On the {new.rows:,} held-out rows {share}")
    assert summary.cost_in_words(replace(evidence, before=Missing("none"))) is None
    rows = [row["measured on"] for row in summary.measures(evidence)]
    assert rows == [
        "training, no bounds",
        "training",
        "held-out, no bounds",
        "held-out",
    ]
