"""How low bounds can go, before anything is trained."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.evidence.evidence import Least
from tests.interrupting import Stopping


@pytest.fixture(scope="module")
def people() -> pffl.Federation:
    return pffl.datasets.synthetic(900, silos=3, seed=1)


def test_the_same_enclosure_as_in_the_evidence_of_a_run(people) -> None:
    found = pffl.feasible(people)
    run = pffl.solve(people, pffl.BoundedGroupLoss(0.8), seed=0)
    least = run.evidence.proofs.least
    assert isinstance(least, Least)
    assert (found.common.lower, found.common.upper) == (least.lower, least.upper)
    assert found.excess is None
    assert found.verdict == ""
    assert not found.impossible
    assert found.left == 0


def test_a_cell_alone_reaches_what_training_on_it_alone_reaches(people) -> None:
    found = pffl.feasible(people, cells=["C"])
    (row,) = found.cells
    bounds = {"A": 50.0, "B": 50.0, "C": row.alone.upper + 1e-4}
    met = pffl.solve(
        people,
        pffl.BoundedGroupLoss(bounds),
        method=pffl.Exact(multiplier_bound=1e5),
        seed=0,
    )
    assert met.status == "met"
    bounds["C"] = row.alone.lower - 1e-4
    other = pffl.solve(people, pffl.BoundedGroupLoss(bounds), seed=0)
    assert other.status == "infeasible"
    assert row.rows == met.cells.loc["C", "count"]


def test_bounds_that_differ_are_judged_together(people) -> None:
    common = pffl.feasible(people, cells=["A"]).common
    low = {"A": common.upper, "B": common.upper - 0.01, "C": common.upper - 0.02}
    under = pffl.feasible(people, pffl.BoundedGroupLoss(low))
    assert under.impossible
    assert "IMPOSSIBLE: all bounds would have to rise by 0.0" in under.verdict
    assert under.others is None
    high = {name: bound + 0.1 for name, bound in low.items()}
    over = pffl.feasible(people, pffl.BoundedGroupLoss(high))
    assert not over.impossible
    assert "POSSIBLE: there is a model with 0.0" in over.verdict
    named = pffl.feasible(people, pffl.BoundedGroupLoss(low), promise=False)
    assert named.excess is None
    assert named.common == common


def test_minimax_has_no_bounds_to_judge(people) -> None:
    found = pffl.feasible(people, pffl.MinMax(), cells=["B"])
    assert found.excess is None
    assert [row.cell for row in found.cells] == ["B"]
    assert found.left == 2


def test_it_prints_and_shows_itself_in_a_notebook(people) -> None:
    found = pffl.feasible(people, pffl.BoundedGroupLoss(0.4))
    text = repr(found)
    assert len(text) < 1500
    assert "IMPOSSIBLE" in text
    assert "others impossible" in text
    assert found._repr_html_().startswith('<article class="pffl-feasible">')
    plain = found.as_dict()
    assert plain["impossible"]
    assert np.isfinite(plain["rise"]).all()


def test_an_unknown_cell_is_refused(people) -> None:
    with pytest.raises(UsageError, match="no cell 'Z'"):
        pffl.feasible(people, cells=["Z"])


@pytest.mark.parametrize("at", [3, 9])
def test_an_interruption_gives_no_half_answer(people, at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        pffl.feasible(Stopping(Local(people), at))  # type: ignore[arg-type]
