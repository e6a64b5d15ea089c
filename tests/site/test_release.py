"""What left a site is counted, over the life of its rows: sets, and differences."""

from __future__ import annotations

import itertools
import json
import re
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pffl
from pffl.data import Silo
from pffl.data.silo import Rows
from pffl.errors import Refused
from pffl.questions import Census, Curvature, Evaluate, Slopes, Train, Witness
from pffl.questions.released import Numbers, bears, charges_of, crossed, told_by
from pffl.site import Rules, Site
from pffl.site.release import Bearing, Ledger, patterns_of
from tests.helpers import make_federation, make_schema
from tests.site.secure import Server, agree, sites_of
from tests.site.sites import make_silo, problem_of, send, small_site

BGL = pffl.BoundedGroupLoss(0.7)
EVERYBODY = (0, 1, 2, 3)


def charged(question: Any) -> dict[tuple[int, ...], int]:
    return charges_of(told_by(question, np.ones(4, dtype=bool)))


def test_what_is_told_of_whom_follows_from_the_declared_fields() -> None:
    """By hand, for p = 4 and two groups of two labels each."""
    problem = problem_of(small_site(), BGL)
    task, w, ones = problem.task, np.zeros(4), np.ones(2)
    women_and_men = {(0, 1), (2, 3)}
    for question, many in (
        (Curvature(task, w), 1 + 4 + 10),
        (Slopes(task, w), 1 + 4),
        (Slopes(task, w, np.eye(4)[:, :2]), 1 + 4 + 2 * 4),
        # What the server weighs by cell is told of each, at the next weights.
        (Train(task, w, 1.0, ones, ones), 4 + 1 + 1 + 2),
        (Train(task, w, 1.0, ones, ones, slope=True), 4 + 1 + 1 + 2 + 4),
        (Witness(task, w, 1.0, ones, w), 1 + 4 + 2),
    ):
        assert charged(question) == dict.fromkeys(women_and_men, many), question.kind
    none = replace(task, cells=pffl.constraints.base.Cells.none(problem.schema))
    assert charged(Slopes(none, w)) == {EVERYBODY: 5}
    assert charged(Census(problem.schema)) == {EVERYBODY: 3 + 3 + 1}
    # Losses, squares, both bounded, correct, positive of each (group, label).
    assert Numbers.of(Evaluate(task, w, "train")).of_atom == 6


def test_what_is_left_of_all_is_told_as_well() -> None:
    """Of one group only and of everybody: the other group is the difference."""
    problem = problem_of(small_site(), BGL)
    one = replace(problem.task, cells=problem.cells.take(np.array([0])))
    assert charged(Slopes(one, np.zeros(4))) == {(0, 1): 5, (2, 3): 5}


SETS = [s for n in range(1, 5) for s in itertools.combinations(range(4), n)]


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from(SETS), st.integers(0, 30), max_size=6),
    st.lists(st.integers(0, 30), min_size=4, max_size=4),
)
def test_no_union_of_atoms_is_told_of_in_more_than_it_bears(
    charges: dict[tuple[int, ...], int], room: list[int]
) -> None:
    """Against every union, one by one."""
    good = all(
        sum(n for atoms, n in charges.items() if set(atoms) <= set(union))
        <= sum(room[atom] for atom in union)
        for union in SETS
    )
    assert bears(charges, np.array(room, dtype=float)) == good


def test_sets_that_overlap_in_part_are_told_apart() -> None:
    """{1, 3} less {1} is 3, though it was no set of its own."""
    one, two = ((0,), (1, 3), (2,)), ((0,), (1,), (2, 3))
    everybody, single = ((0, 1, 2, 3),), ((0,), (1,), (2,), (3,))
    assert crossed({everybody: 5, one: 7, single: 2}) == {}
    assert crossed({everybody: 5, one: 7, two: 4}) == dict.fromkeys(single_sets(4), 16)
    few = ((0, 1, 2),)  # once without those of 3, who are few
    assert crossed({everybody: 5, few: 5}) == {(0, 1, 2): 10, (3,): 10}


def single_sets(n: int) -> list[tuple[int]]:
    return [(atom,) for atom in range(n)]


def test_large_numbers_are_compared_with_care() -> None:
    room = np.array([3e9, 3e9])
    assert bears({(0, 1): 5 * 10**9}, room)
    assert not bears({(0, 1): 5 * 10**9, (0,): 2 * 10**9}, room)


@cache
def task() -> Any:
    return problem_of(small_site(), BGL).task


def slopes(k: int) -> Slopes:
    return Slopes(task(), np.full(4, 0.01 * k))


def test_it_is_counted_over_runs_and_processes(tmp_path: Path) -> None:
    """80 rows of 3 inputs bear 60 numbers: 12 gradients with their losses."""
    answered = 0
    for k in range(20):
        site = small_site(Rules(floor=1), tmp_path)
        answered += not send(site, slopes(k), run=f"run {k}").refusal
    assert answered == 12
    refusal = send(site, slopes(99), run="other").refusal
    assert "65 numbers would have left about the train rows of" in refusal
    assert "need 87 rows" in refusal


def test_a_question_that_was_answered_tells_nothing_new(tmp_path: Path) -> None:
    site = small_site(Rules(floor=1, questions=1000), tmp_path)
    for number in range(1, 41):
        assert not send(site, slopes(number % 12), (0, number)).refusal
    assert "would have left" in send(site, slopes(13), (0, 41)).refusal


def test_what_is_refused_costs_nothing() -> None:
    site = small_site(Rules(floor=1))
    many = [slopes(k) for k in range(13)]
    assert "would have left" in send(site, many).refusal
    assert not send(site, many[:12], (0, 2)).refusal


def test_without_its_account_a_site_answers_nothing(tmp_path: Path) -> None:
    site = small_site(Rules(floor=1), tmp_path)
    assert not send(site, slopes(1)).refusal
    (tmp_path / "release.jsonl").unlink()
    assert "is gone" in send(site, slopes(2), (0, 2)).refusal


def test_a_line_that_a_crash_cut_short_did_not_count(tmp_path: Path) -> None:
    site = small_site(Rules(floor=1), tmp_path)
    send(site, slopes(1))
    with (tmp_path / "release.jsonl").open("ab") as stream:
        stream.write(b'{"asked": ["')
    assert not send(site, slopes(2), (0, 2)).refusal
    lines = (tmp_path / "release.jsonl").read_bytes().splitlines()
    assert [set(json.loads(line)) for line in lines[2:]] == [
        {"time", "run", "number", "asked", "spent"}
    ] * 2


def test_nothing_of_the_rows_is_in_the_account(tmp_path: Path) -> None:
    site = small_site(Rules(floor=1), tmp_path)
    send(site, slopes(1))
    text = (tmp_path / "release.jsonl").read_text()
    assert not any(f"{x:.4g}" in text for x in site.silo.rows().X.ravel() if x)


def changed(site: Site, folder: Path, **more: int) -> Site:
    """The same site with some rows more."""
    schema, rows = site.schema, site.silo.rows("train")
    new = make_silo({(0, 1): more.get("f1", 0), (1, 0): more.get("m0", 0)}, schema, 9)
    joined = type(rows).joined([rows, new.rows("train")])
    splits = {"train": joined, "test": site.silo.rows("test")}
    return Site(Silo(site.name, 0, splits), schema, Rules(), folder)


def test_rows_that_changed_are_not_answered_about_unless_enough_did(
    tmp_path: Path,
) -> None:
    """Two honest runs around one row: their difference would be that row."""
    site = small_site(Rules(), tmp_path)
    assert not send(site, slopes(0)).refusal
    for more in ({"f1": 1}, {"f1": 12, "m0": 9}):
        other = changed(site, tmp_path, **more)
        assert "pffl site approve" in send(other, slopes(1), (0, 2)).refusal
        with pytest.raises(Refused, match="fewer than 10 rows have changed of "):
            other.ledger.approve(other.rules.floor)
    other = changed(site, tmp_path, f1=12, m0=10)
    found = other.ledger.approve(other.rules.floor)
    assert found[0]["train"].tolist() == [0, 12, 10, 0]
    assert found[0]["test"].tolist() == [0, 0, 0, 0]
    assert not send(other, slopes(1), (0, 2)).refusal
    # As it was, it is another change of as many rows.
    assert "pffl site approve" in send(site, slopes(2), (0, 3)).refusal


def test_what_two_runs_tell_apart_is_counted_too(tmp_path: Path) -> None:
    """12 changed rows of 3 inputs bear 9 numbers: one gradient and its loss."""
    site = small_site(Rules(), tmp_path)
    for k in range(3):
        assert not send(site, slopes(k), (0, k + 1)).refusal
    other = changed(site, tmp_path, f1=12, m0=12)
    other.ledger.approve(10)
    assert not send(other, slopes(0), (0, 4)).refusal
    # Also at another w: a w that hardly differs has hardly another answer.
    for number, asked in enumerate((slopes(1), slopes(7), hessian()), start=5):
        refusal = send(other, asked, (0, number)).refusal
        assert "numbers would have left about the train changed rows of" in refusal


def test_no_more_is_told_apart_than_was_told_before(tmp_path: Path) -> None:
    """Before the rows changed a census was answered, and afterwards a whole run."""
    site = small_site(Rules(), tmp_path)
    assert not send(site, Census(site.schema), (0, 1)).refusal
    other = changed(site, tmp_path, f1=20, m0=20)
    other.ledger.approve(10)
    assert not send(other, Census(site.schema), (0, 2)).refusal
    for k in range(8):
        assert not send(other, slopes(k), (0, 3 + k)).refusal
    apart = [told for name, told in other.ledger.read().spent.items() if " " in name]
    assert [sum(told.values()) for told in apart] == [3 + 3 + 1]


def test_rows_that_come_and_go_have_one_account(tmp_path: Path) -> None:
    """What is told apart is counted in pairs, however often they change.

    12 changed rows bear 36 numbers here: seven gradients with their losses, on each
    side. Three each are told in turns; of the sixth turn one is too many already.
    """
    rules = Rules(release=1.0)
    site = small_site(rules, tmp_path)
    other = replace_rules(changed(site, tmp_path, f1=12, m0=12), rules, tmp_path)
    answered, number = [], 0
    for turn in range(6):
        now = (site, other)[turn % 2]
        if turn:
            now.ledger.approve(10)
        for _ in range(3):
            number += 1
            answered.append(not send(now, slopes(number), (0, number)).refusal)
    assert answered == [True] * 16 + [False] * 2
    (apart,) = [t for name, t in now.ledger.read().spent.items() if " " in name]
    assert sum(apart.values()) == 7 * 5
    site.ledger.approve(10)
    assert not send(site, slopes(1), (0, 99)).refusal  # as in the first turn


def replace_rules(site: Site, rules: Rules, folder: Path) -> Site:
    return Site(site.silo, site.schema, rules, folder)


def hessian() -> Curvature:
    return Curvature(task(), np.zeros(4))


def test_another_schema_does_not_begin_again(tmp_path: Path) -> None:
    site = small_site(Rules(floor=1), tmp_path)
    for k in range(12):
        send(site, slopes(k), (0, k + 1))
    schema = make_schema(features=3, attributes=(("sex", ("f", "m", "x")),))
    other = Site(site.silo, schema, Rules(floor=1), tmp_path)
    with pytest.raises(Refused, match="nobody can tell which rows changed"):
        other.approve()
    other.approve(other_columns=True)
    spent = other.ledger.read().spent["train"]
    assert spent == {(tuple(range(6)),): 12 * 2 * 5}


def test_renamed_columns_do_not_hide_that_one_row_came(tmp_path: Path) -> None:
    """Under another schema rows look like others: which changed cannot be seen."""
    site = small_site(Rules(), tmp_path)
    assert not send(site, slopes(0)).refusal
    schema = replace(site.schema, features=("a", "b", "c"))
    one_more = changed(site, tmp_path, f1=1).silo
    with pytest.raises(Refused, match="nobody can tell which rows changed"):
        Site(one_more, schema, Rules(), tmp_path).approve()


def test_an_approval_waits_for_a_message_that_is_being_answered(tmp_path: Path) -> None:
    """Or it could cut off a line that is just being written."""
    site = small_site(Rules(), tmp_path)
    assert not send(site, slopes(0)).refusal
    other = changed(site, tmp_path, f1=12, m0=12)
    done: list[str] = []
    thread = threading.Thread(target=lambda: (other.approve(), done.append("approved")))
    with site.guard.turn(remember=True):
        thread.start()
        thread.join(0.3)
        done.append("answered")
    thread.join()
    assert done == ["answered", "approved"]


def test_a_sum_of_others_and_ones_own_answer_are_two(tmp_path: Path) -> None:
    """A census under masks tells of all sites; a plain one, or of another set, anew."""
    federation = make_federation(0, sizes=(90, 90, 90, 90))
    schema, told = federation.schema, []

    def spent() -> int:
        folder = tmp_path / federation.silo_names[0]
        account = Ledger(0.25, federation.silos[0], schema, folder).read()
        return sum(account.spent["train"].values())

    for number, some in enumerate((slice(0, 3), slice(0, 3), slice(0, 4))):
        part = replace(federation, silos=federation.silos[some])
        sites = sites_of(part, agree(part), folder=tmp_path, rules=Rules(floor=1))
        Server(sites, schema.hash, f"run {number}").ask([Census(schema)])
        told.append(spent())
    silo, folder = federation.silos[0], tmp_path / federation.silo_names[0]
    plain = Site(silo, schema, Rules(floor=1), folder)
    assert not send(plain, Census(schema), run="plain").refusal
    assert [*told, spent()] == [7, 7, 14, 21]


def test_a_refusal_has_no_figure_of_the_rows() -> None:
    """How many different rows there are is nobody's business."""
    schema = make_schema(features=2)
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 7, 400), rng.integers(0, 11, 400)])
    rows = Rows.of(X.astype(float), X[:, 0] % 2, X[:, 1] % 2)
    site = Site(Silo("north", 0, {"train": rows, "test": rows}), schema, Rules())
    many = [Slopes(problem_of(site, BGL).task, np.full(3, 0.01 * k)) for k in range(12)]
    refusal = send(site, many).refusal
    assert "different rows" in refusal
    assert not {"77", "76", "400"} & set(re.findall(r"\d+", refusal)), refusal


def test_in_a_secure_sum_the_others_rows_bear_it() -> None:
    """As any site but the largest could take its own rows off the total."""
    site = small_site(Rules(floor=1))
    ledger = Ledger(0.25, site.silo, site.schema, None)
    own, none = site.counts("train"), np.zeros(4, dtype=bool)
    question = Curvature(problem_of(site, BGL).task, np.zeros(4))
    posed = [(question, f"{1:032d}")]
    for others, good in ((19, False), (20, True)):  # 10 + 4 + 1 = 15 numbers
        total = own + np.array([others, 0, others, 0])
        bearing = Bearing.others(total, own, none)
        if good:
            assert ledger.charge(posed, lambda _, b=bearing: b).asked
        else:
            with pytest.raises(Refused, match="need 20 rows"):
                ledger.charge(posed, lambda _, b=bearing: b)


def test_few_different_rows_bear_little() -> None:
    """How often each of 16 patterns is there are 15 unknowns, of however many rows."""
    rng = np.random.default_rng(0)
    yes_no = rng.integers(0, 2, (400, 4)).astype(float)
    assert patterns_of(Rows.of(yes_no, yes_no[:, 0], yes_no[:, 1])) == 16
    text = np.eye(5)[rng.integers(0, 5, 400)]  # one column of five texts
    number = rng.integers(0, 7, 400).astype(float)
    rows = Rows.of(np.column_stack([text, number]), number % 2, number % 2)
    assert patterns_of(rows) == pytest.approx(5 * 7)
