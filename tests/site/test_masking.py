"""A site's part in a secure sum: answered once, added by every site itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.data import Rows
from pffl.engines import Reference
from pffl.errors import Refused, UsageError
from pffl.queries import Census, Expand, Pool
from pffl.site import Site
from pffl.wire import (
    masked_body,
    read_answer,
    read_masked,
    signed_content,
    write_answer,
)
from tests.helpers import make_federation, make_problem
from tests.inside import SiteKeys, agreed_sets, left_out, masks
from tests.raising import raises
from tests.site.secure import Server, agree, keys_of, sites_of
from tests.site.sites import OPEN

SIZES = (60, 80, 50)
FEDERATION = make_federation(3, sizes=SIZES, test=20)
NAMES = FEDERATION.silo_names
CENSUS = Census(FEDERATION.schema, "train")
PROBLEM = make_problem(Reference(FEDERATION), pffl.BoundedGroupLoss(0.6))


def serve(folder: Path | None = None, **agreed: Any) -> Server:
    sites = sites_of(FEDERATION, agree(FEDERATION, **agreed), folder=folder)
    return Server(sites, FEDERATION.schema.hash)


def slopes(w: float = 0.1, silos: int = len(SIZES)) -> Expand:
    """A query to the pool about the model at (w, w, …)."""
    task = replace(PROBLEM.task, pool=Pool(silos, False, float(sum(SIZES))))
    return Expand(task, np.full(PROBLEM.n_parameters, w))


def test_the_sum_under_masks_is_the_sum() -> None:
    server = serve()
    (counted,) = server.ask([CENSUS])
    plain = Reference(FEDERATION).ask(CENSUS)
    assert counted.rows.tolist() == [sum(SIZES)]
    assert (counted.counts[0] == plain.counts.sum(axis=0)).all()
    np.testing.assert_allclose(counted.feature_sums, plain.feature_sums, rtol=1e-14)
    asked = slopes()
    found, again = server.ask([asked, slopes(0.2)])
    own = PROBLEM.task
    wanted = Reference(FEDERATION).ask(replace(asked, task=own))
    np.testing.assert_allclose(found.losses, wanted.losses, rtol=1e-13)
    assert again.losses[0] != found.losses[0]


def test_an_answer_is_signed_also_a_plain_one_and_a_hello() -> None:
    server = serve()
    answers = [server.send(NAMES[0], server.request([CENSUS]))]
    answers.append(server.send(NAMES[0], server.request([], step=0)))
    plain = replace(agree(FEDERATION), secure_sum=False)
    server.sites = sites_of(FEDERATION, plain)
    answers.append(server.send(NAMES[0], server.request([CENSUS], step=0)))
    known = keys_of(NAMES[0]).public
    for answer in answers:
        assert not answer.refusal
        assert known.verify(signed_content(answer), answer.signature)
        other = replace(answer, sequence=answer.sequence + 1)
        assert not known.verify(signed_content(other), answer.signature)


def test_a_step_that_is_asked_again_gets_the_very_same_numbers() -> None:
    server = serve()
    request = server.request([CENSUS])
    first = server.send(NAMES[0], request)
    again = server.send(NAMES[0], replace(request, session=1, sequence=0))
    assert first.bodies[0].arrays["masked"].tolist() == (
        again.bodies[0].arrays["masked"].tolist()
    )
    assert again.number == (1, 0)
    assert again.signature != first.signature
    guard = server.sites[NAMES[0]].guard
    assert guard.runs()["run"].last == request.number  # nothing new was asked


def changed(content: bytes, **changes: Any) -> bytes:
    """Another site's answer with something changed in it, and its signature kept."""
    return write_answer(replace(read_answer(content), **changes))


def forged(content: bytes, keys: SiteKeys, **changes: Any) -> bytes:
    """The same, signed anew."""
    answer = replace(read_answer(content), signature="", **changes)
    return write_answer(replace(answer, signature=keys.sign(signed_content(answer))))


def other_numbers(content: bytes) -> dict[str, Any]:
    flat = read_answer(content).bodies[0].arrays["masked"].view(np.uint64).copy()
    flat[0] += np.uint64(1)
    return {"bodies": (masked_body(flat),)}


LIES = [  # three answers as they are relayed, and the reason why they are refused
    (lambda a, b, c: (a, b), "2 answers to step 1"),
    (lambda a, b, c: (a, b, c, a), "4 answers to step 1"),
    (lambda a, b, c: (), "0 answers"),
    (lambda a, b, c: (a, c, b), "'silo'"),
    (lambda a, b, c: (a, b"", c), "is none"),
    (lambda a, b, c: (a, changed(b, run="x"), c), "'run'"),
    (lambda a, b, c: (a, changed(b, step=2), c), "'step'"),
    (lambda a, b, c: (a, changed(b, asked="x"), c), "'asked'"),
    (lambda a, b, c: (a, changed(b, transcript="x"), c), "'transcript'"),
    # Totals that the server invents; signed, but with a key that is not pinned; bare.
    (lambda a, b, c: (a, changed(b, **other_numbers(b)), c), "not signed"),
    (
        lambda a, b, c: (a, forged(b, keys_of("mallory"), **other_numbers(b)), c),
        "not signed",
    ),
    (lambda a, b, c: (a, changed(b, signature=""), c), "not signed"),
    # A colluding site says two things: this one knows what it said itself.
    (
        lambda a, b, c: (forged(a, keys_of(NAMES[0]), **other_numbers(a)), b, c),
        "this site's answer to step 1",
    ),
]


@pytest.mark.parametrize(("lie", "said"), LIES)
def test_what_was_relayed_is_checked(lie: Any, said: str) -> None:
    server = serve()
    server.ask([CENSUS])
    answer = server.send(NAMES[0], server.request([CENSUS], relay=lie(*server.relay)))
    assert said in answer.refusal
    assert answer.bodies == ()
    assert not server.send(NAMES[0], server.request([CENSUS])).refusal


@pytest.mark.parametrize(
    ("step", "relayed", "said"),
    [
        (1, True, "step 1 is not the one after 2"),
        (4, True, "step 4 is not the one after 2"),
        (0, False, "step 0 is not the one after 2"),
    ],
)
def test_steps_come_in_their_order(step: int, relayed: bool, said: str) -> None:
    server = serve()
    server.ask([CENSUS])
    server.ask([slopes()])
    relay = server.relay if relayed else ()
    request = server.request([slopes(0.3)], step=step, relay=relay)
    assert said in server.send(NAMES[0], request).refusal
    first = server.request([CENSUS], run="another", step=1)
    assert "has not begun" in server.send(NAMES[0], first).refusal


def test_a_step_is_answered_once() -> None:
    server = serve()
    server.ask([CENSUS])
    server.ask([slopes()])
    request, _ = server.log[-1]
    other = replace(request, sequence=99, bodies=server.request([slopes(0.3)]).bodies)
    refused = server.send(NAMES[0], other)
    assert "step 2 was answered, and is asked again with other" in refused.refusal
    again = server.send(NAMES[0], replace(request, sequence=100))
    assert not again.refusal


def test_sites_that_were_shown_different_things_do_not_add_up() -> None:
    """A server and site 2 collude: site 2 signs another answer, for site 0 alone."""
    server = serve()
    server.ask([CENSUS])
    other = forged(server.relay[2], keys_of(NAMES[2]), **other_numbers(server.relay[2]))
    request, shown = server.request([slopes()]), (*server.relay[:2], other)
    answers = [server.send(NAMES[0], replace(request, relay=shown))]
    answers += [server.send(name, request) for name in NAMES[1:]]
    assert not any(answer.refusal for answer in answers)
    assert answers[0].transcript != answers[1].transcript == answers[2].transcript
    flats = [read_masked(answer, masks.size(slopes())) for answer in answers]
    with raises(Refused, "masks-left-over"):
        masks.decode(slopes(), masks.add(flats), 3)


def test_another_set_of_sites_is_refused() -> None:
    server = serve()
    server.ask([CENSUS])
    refused = server.send(NAMES[0], server.request([slopes(silos=4)]))
    assert "a sum over 4 sites, and 3 agreed" in refused.refusal


def test_steps_need_an_agreement_and_an_agreement_needs_steps() -> None:
    server = serve()
    asked = server.request([CENSUS], step=0)
    assert "step 0 is not the one after 0" in server.send(NAMES[0], asked).refusal
    assert "has not begun" in server.send(NAMES[0], replace(asked, run="x")).refusal
    server.sites = sites_of(FEDERATION, replace(agree(FEDERATION), secure_sum=False))
    refused = server.send(NAMES[0], server.request([CENSUS]))
    assert "which this site did not agree to" in refused.refusal


def test_the_sites_key_is_the_one_that_others_know() -> None:
    agreed, silo = agree(FEDERATION), FEDERATION.silos[0]
    with raises(UsageError, "other-key"):
        Site(silo, FEDERATION.schema, OPEN, agreement=agreed, keys=keys_of("mallory"))
    with raises(UsageError, "missing-key"):
        Site(silo, FEDERATION.schema, OPEN, agreement=agreed)


# Small groups


def test_what_is_small_at_a_site_is_as_if_not_there() -> None:
    """Whatever the other sites have; here each (group, label) is a set."""
    floor = int(np.sort([counts_of(k).min() for k in range(3)])[1]) + 1
    server = serve(floor=floor)
    own = [counts_of(k) for k in range(3)]
    shown = [np.where(counts < floor, 0, counts) for counts in own]
    assert any((counts < floor).any() for counts in own)
    (counted,) = server.ask([CENSUS])
    assert counted.counts[0].tolist() == sum(shown).tolist()
    assert counted.rows.sum() == counted.counts.sum()
    task = replace(PROBLEM.task, pool=Pool(3, True, float(counted.rows.sum())))
    (found,) = server.ask([Expand(task, np.zeros(PROBLEM.n_parameters))])
    np.testing.assert_allclose(found.losses[0], np.log(2), rtol=1e-13)  # nobody is in F
    told = task.cells.membership @ sum(shown)
    np.testing.assert_allclose(found.losses[1:], told * np.log(2), rtol=1e-13)


def test_one_heavy_row_among_light_ones_is_few_in_a_sum_of_sites_too() -> None:
    """Three sites with twelve rows each, of which one is nearly all of the weight."""
    silos = []
    for silo in FEDERATION.silos:
        rows = silo.rows("train")
        atoms = FEDERATION.schema.atoms(rows.group, rows.y)
        first = [np.flatnonzero(atoms == atom)[0] for atom in np.unique(atoms)]
        heavy = np.isin(np.arange(len(rows)), first)
        weighed = replace(rows, weight=np.where(heavy, 1e6, 1.0))
        silos.append(replace(silo, splits={"train": weighed}))
    floor = int(min(counts_of(k).min() for k in range(3)))
    assert floor > 1
    told = []
    for some in (FEDERATION.silos, silos):
        federation = replace(FEDERATION, silos=tuple(some))
        agreed = agree(federation, floor=floor, splits=("train",))
        server = Server(sites_of(federation, agreed), FEDERATION.schema.hash)
        sites = server.sites.values()
        told.append([int(site.hidden("train").sum()) for site in sites])
    assert told == [[0] * 3, [FEDERATION.schema.n_atoms] * 3]


def test_the_floor_acts_on_the_sets_of_the_agreed_constraint_and_counts_people() -> (
    None
):
    """Groups under BGL, (group, label)s under CBGL; five rows of a person are one."""
    schema = FEDERATION.schema
    y, group = np.tile([0.0, 1.0], 6), np.zeros(12, np.int64)
    y, group = np.append(y, np.zeros(30)), np.append(group, np.ones(30, np.int64))
    rows = Rows.of(np.zeros((42, schema.n_features)), y, group)
    several = replace(rows, person=np.repeat(np.arange(9), [3, 3, 3, 3, 6, 6, 6, 6, 6]))
    labels = np.array([0.0, 1.0])
    f0, f1, m0, _ = schema.atoms(np.array([0, 0, 1, 1]), np.tile(labels, 2))
    few = {}
    for kind in ("bgl", "cbgl"):
        run = {"constraint": {"kind": kind, "bound": 0.7}, "run": {"seed": 0}}
        sets = agreed_sets(agree(FEDERATION, run=run))
        few[kind] = left_out(rows, schema, sets, 10)
        people = left_out(several, schema, sets, 5)
        assert people[[f0, f1]].all()  # twelve rows of four people
        assert not people[m0]
    assert not few["bgl"][[f0, f1, m0]].any()  # twelve people of a group
    assert few["cbgl"][[f0, f1]].all()  # and six of each label
    assert not few["cbgl"][m0]
    assert agreed_sets(agree(FEDERATION)).tolist() == list(range(schema.n_atoms))
    none = agreed_sets(agree(FEDERATION, run={"run": {"seed": 0}}))
    assert none.tolist() == [0] * schema.n_atoms


def counts_of(k: int) -> Any:
    rows, schema = FEDERATION.silos[k].rows("train"), FEDERATION.schema
    return np.bincount(schema.atoms(rows.group, rows.y), minlength=schema.n_atoms)


# A process per message


def test_a_process_per_message_goes_on_and_forgets_nothing(tmp_path) -> None:
    server = serve(tmp_path)
    server.ask([CENSUS])
    for w in (0.1, 0.2):
        server.sites = serve(tmp_path).sites
        server.ask([slopes(w)])
    kept = serve()
    kept.ask([CENSUS])
    for w in (0.1, 0.2):
        kept.ask([slopes(w)])
    assert [len(one) for one in server.relay] == [len(one) for one in kept.relay]
    server.sites = serve(tmp_path).sites
    request, content = server.log[-1]
    again = server.send(NAMES[0], replace(request, sequence=99))
    first = read_answer(content[0])
    assert np.array_equal(
        first.bodies[0].arrays["masked"], again.bodies[0].arrays["masked"]
    )
    assert list((tmp_path / NAMES[0] / "runs").glob("*.safetensors"))


def test_a_run_goes_on_with_the_same_rows_and_agreement_only(tmp_path) -> None:
    server = serve(tmp_path)
    server.ask([CENSUS])
    request = server.request([slopes()])
    others = make_federation(4, sizes=SIZES, test=20)
    server.sites = sites_of(others, agree(FEDERATION), folder=tmp_path)
    assert "began with another rows" in server.send(NAMES[0], request).refusal
    server.sites = serve(tmp_path, floor=2).sites
    assert "began with another federation" in server.send(NAMES[0], request).refusal


def test_what_is_damaged_or_gone_does_not_begin_again(tmp_path) -> None:
    server = serve(tmp_path)
    server.ask([CENSUS])
    request = server.request([slopes()])
    (path,) = (tmp_path / NAMES[0] / "runs").glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    refused = server.send(NAMES[0], request).refusal
    assert "cannot be read" in refused
    path.unlink()
    for asked in (request, server.request([CENSUS], step=1, relay=())):
        assert "is gone" in server.send(NAMES[0], asked).refusal


def test_names_of_runs_do_not_fill_the_disk(tmp_path) -> None:
    """They are the server's to choose, and refused ones leave nothing behind."""
    rules = replace(OPEN, runs=2)
    sites = sites_of(FEDERATION, agree(FEDERATION), folder=tmp_path, rules=rules)
    server = Server({NAMES[0]: sites[NAMES[0]]}, FEDERATION.schema.hash)
    for number in range(20):
        said = server.send(NAMES[0], server.request([], step=0, run=f"run {number}"))
        assert bool(said.refusal) == (number >= 2), said.refusal
    assert "answers 2 runs" in said.refusal
    assert len(list((tmp_path / NAMES[0] / "runs").iterdir())) <= 3


def test_a_site_that_dies_before_its_answer_leaves_can_be_asked_again(
    tmp_path, monkeypatch
) -> None:
    server = serve(tmp_path)
    died = []

    def die(*_: object) -> None:
        died.append(1)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("pffl.site.masking.Member.mask", die)
        assert server.send(NAMES[0], server.request([CENSUS])).refusal
    assert died
    server.sites = serve(tmp_path).sites
    server.ask([CENSUS])
    server.ask([slopes()])


def test_a_site_judges_its_own_answer_before_it_is_masked(monkeypatch) -> None:
    """Under masks nobody else can."""
    server = serve()
    server.ask([CENSUS])
    answer = Expand.answer

    def wrong(query: Expand, view: Any) -> Any:
        total = answer(query, view)
        return replace(total, losses=-total.losses)

    with monkeypatch.context() as patch:
        patch.setattr(Expand, "answer", wrong)
        refused = server.send(NAMES[0], server.request([slopes()]))
    assert "outside what is possible" in refused.refusal
    server.ask([slopes()])
