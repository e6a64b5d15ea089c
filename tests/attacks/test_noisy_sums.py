"""A server that lies about noise inside secure sums gets nothing that it does not pay.

Sites answer any release within their budgets, and charge what it costs by its own
terms: less noise costs more. What has no noise, other sites' answers that are invented,
and a second draw get nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.askers import tell
from tests.attacks.product import (
    Answer,
    Census,
    Parcel,
    Refused,
    Request,
    masks,
    mu_of,
    read_answer,
    read_masked,
    signed_content,
    write_answer,
)
from tests.attacks.product import query_body as question_body
from tests.deploy.sites import (
    Server,
    agreement,
    budget,
    keys_of,
    lines_of,
    members,
    people,
    run,
    sections,
)

STEP = 4  # the second gradient: a w that was computed from totals
Twist = Callable[[Request], Request]


class Enough(BaseException):
    """All that is needed was heard."""


class Trial:
    """An agreed run with noise, until a step; and whoever asks there what it likes."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.data = people(more.pop("sites", 3), more.pop("rows", 300))
        limit = more.pop("limit", 30.0)
        self.folder = folder
        self.agreed = agreement(self.data, epsilon=8.0, **more)
        self.sites = members(self.data, self.agreed, folder, epsilon=limit)
        self.server = Server(self.sites, self.data.schema.hash)

    def until(self, step: int, lie: Callable[[list[Any]], None]) -> None:
        """Run honestly until a step, and then lie."""

        def ask(questions: list[Any]) -> list[Any]:
            if self.server.step + 1 == step:
                lie(questions)
                raise Enough
            return self.server.ask(questions)

        with pytest.raises(Enough):
            run(None, self.agreed, ask=ask)

    def everybody(self, request: Request) -> list[Answer]:
        """Ask all sites the same."""
        return [self.server.send(name, request) for name in self.sites]

    def spent(self) -> list[float]:
        """Σμ² of each site's account."""
        lines = (lines_of(self.folder, name) for name in self.sites)
        return [sum(line.mu**2 for line in own) for own in lines]

    def charged(self) -> list[int]:
        """How many releases each site has entered."""
        return [len(lines_of(self.folder, name)) for name in self.sites]


def body(request: Request, header: Any = None, **arrays: Any) -> Request:
    """Change the first question of a request."""
    first, *rest = request.bodies
    kept = {name: array.copy() for name, array in first.arrays.items()}
    for name, change in arrays.items():
        kept[name] = change(kept[name])
    plain = {**first.header, **(header or {})}
    return replace(request, bodies=(Parcel(plain, kept), *rest))


def pooled(sites: int) -> Twist:
    def twist(request: Request) -> Request:
        pool = {**request.bodies[0].header["pool"], "silos": sites}
        return body(request, {"pool": pool})

    return twist


def clipped(at: float) -> Twist:
    def twist(request: Request) -> Request:
        model = {**request.bodies[0].header["model"], "input_bound": at}
        return body(request, {"model": model})

    return twist


def exact(schema: Any) -> Twist:
    """Ask for counts without noise."""

    def twist(request: Request) -> Request:
        return replace(request, bodies=(question_body(Census(schema), 0),))

    return twist


def forged(request: Request) -> Request:
    """Show another sum: one site's numbers are made up, under its old signature."""
    last = read_answer(request.relay[-1])
    numbers = {k: v + 1 for k, v in last.bodies[0].arrays.items()}
    other = replace(last, bodies=(Parcel(last.bodies[0].header, numbers),))
    return replace(request, relay=(*request.relay[:-1], write_answer(other)))


def only(sets: np.ndarray) -> np.ndarray:
    """Ask about one atom alone."""
    out = np.zeros_like(sets)
    out[0, 0] = 1.0
    return out


PAID: dict[str, tuple[Twist, float]] = {  # and how many times as much Σμ² it costs
    "half of the noise": (lambda r: body(r, noise=lambda n: n / 2), 4.0),
    "a millionth less noise": (lambda r: body(r, noise=lambda n: n * (1 - 1e-6)), 1.0),
    "twice the noise": (lambda r: body(r, noise=lambda n: n * 2), 0.25),
    "a larger loss": (lambda r: body(r, {"loss_bound": 90.0}), 1.0),
    "one atom alone": (lambda r: body(r, membership=only), 1.0),
    "w far out": (lambda r: body(r, w=lambda w: 90 * np.eye(len(w))[0]), 1.0),
    "the release twice": (lambda r: replace(r, bodies=r.bodies * 2), 2.0),
}
REFUSED: dict[str, Twist] = {
    "a sum over two sites": pooled(2),
    "a sum over five sites": pooled(5),
    "longer rows": clipped(60.0),
    "an invented total": forged,
    "a total over fewer sites": lambda r: replace(r, relay=r.relay[:-1]),
    "no totals": lambda r: replace(r, relay=()),
    "another run's step": lambda r: replace(r, run="another run"),
    "a step left out": lambda r: replace(r, step=r.step + 1),
    "no masks": lambda r: replace(r, step=0, relay=()),
}


def test_what_has_no_noise_or_invented_totals_is_answered_by_nobody(tmp_path):
    trial = Trial(tmp_path)
    lies = REFUSED | {"counts without noise": exact(trial.data.schema)}

    def lie(questions: list[Any]) -> None:
        before = trial.charged()
        for name, twist in lies.items():
            answers = trial.everybody(twist(trial.server.request(questions)))
            assert all(one.refusal and not one.bodies for one in answers), name
            tell(f"noisy sums: server asks for {name}", "–", answers[0].refusal)
        assert trial.charged() == before
        # The honest question is answered still, and charged once.
        assert trial.server.ask(questions)
        assert trial.charged() == [many + 1 for many in before]

    trial.until(STEP, lie)


@pytest.mark.parametrize("name", PAID)
def test_a_server_that_asks_for_less_noise_pays_for_it(name, tmp_path):
    """By every site's own account: what it is asked says what it costs."""
    trial = Trial(tmp_path)
    twist, times = PAID[name]

    def lie(questions: list[Any]) -> None:
        before = trial.spent()
        due = sum(float(question.mu) ** 2 for question in questions)
        answers = trial.everybody(twist(trial.server.request(questions)))
        assert not any(one.refusal for one in answers), answers[0].refusal
        paid = [after - b for after, b in zip(trial.spent(), before, strict=True)]
        assert paid == pytest.approx([times * due] * len(paid), rel=1e-5)
        tell(f"noisy sums: server asks for {name}", "–", f"answered, {times:g} × paid")

    trial.until(STEP, lie)


def test_asking_again_gives_no_other_draw(tmp_path):
    """The same step again: the same bytes, free; anything else at it: nothing."""
    trial = Trial(tmp_path)

    def lie(questions: list[Any]) -> None:
        first = trial.everybody(trial.server.request(questions))
        paid = trial.charged()
        for _ in range(3):
            again = trial.everybody(trial.server.request(questions))
            for one, other in zip(first, again, strict=True):
                masked = (a.bodies[0].arrays["masked"] for a in (one, other))
                assert np.array_equal(*masked)
        # By another process, too.
        trial.server.sites = members(trial.data, trial.agreed, tmp_path, epsilon=30.0)
        again = trial.everybody(trial.server.request(questions))
        assert np.array_equal(
            first[0].bodies[0].arrays["masked"], again[0].bodies[0].arrays["masked"]
        )
        moved = body(trial.server.request(questions), w=lambda w: w + 1e-5)
        assert all("answered once" in a.refusal for a in trial.everybody(moved))
        assert trial.charged() == paid

    trial.until(STEP, lie)


def test_totals_shown_differently_and_a_site_left_out(tmp_path):
    """A site that works with the server signs two answers; the masks do not cancel."""
    trial = Trial(tmp_path, sites=4)

    def lie(questions: list[Any]) -> None:
        asked = trial.server.request(questions)
        name = trial.data.silo_names[-1]
        true = read_answer(asked.relay[-1])
        numbers = true.bodies[0].arrays["masked"].copy()
        numbers[0] += 1
        other = replace(
            true, bodies=(Parcel(true.bodies[0].header, {"masked": numbers}),)
        )
        signature = keys_of(name).sign(signed_content(other))
        signed = write_answer(replace(other, signature=signature))
        shown = replace(asked, relay=(*asked.relay[:-1], signed))
        first, second, *rest = trial.sites
        told = {first: asked, second: shown, **dict.fromkeys(rest, asked)}
        answers = {one: trial.server.send(one, told[one]) for one in told}
        # The site whose answer it is not is the one to say so; the others believe it.
        given = [a for a in answers.values() if not a.refusal]
        with pytest.raises(Refused, match="masks do not cancel"):
            summed(questions, given)
        with pytest.raises(Refused):
            summed(questions, given[:-1])

    trial.until(STEP, lie)


def test_a_site_left_out_of_the_sum(tmp_path):
    trial = Trial(tmp_path, sites=4)

    def lie(questions: list[Any]) -> None:
        answers = trial.everybody(trial.server.request(questions))
        assert summed(questions, answers)
        for fewer in (answers[:-1], answers[1:], [answers[0]] * 4):
            with pytest.raises(Refused, match="masks do not cancel"):
                summed(questions, fewer)

    trial.until(STEP, lie)


def test_the_run_under_another_name_is_paid_again(tmp_path):
    """A server may run what was agreed on again, until some site's budget ends."""
    trial = Trial(tmp_path, limit=8.0)
    asked: list[Any] = []

    def lie(questions: list[Any]) -> None:
        asked.append(questions)

    trial.until(1, lie)
    refusals: list[str] = []
    for number in range(30):
        again = Server(trial.sites, trial.data.schema.hash, run=f"run {number}")
        answers = [again.send(name, again.request(asked[0])) for name in trial.sites]
        refusals = [a.refusal for a in answers]
        if all(refusals):
            break
    paid = trial.charged()
    assert paid == [10] * 3  # the census has a tenth of what ε = 8 allows
    assert all("privacy budget" in refusal for refusal in refusals)


def summed(questions: list[Any], answers: list[Answer]) -> list[Any]:
    """The totals that a server can read."""
    length = sum(masks.size(q) for q in questions)
    flats = [read_masked(answer, length) for answer in answers]
    return masks.decode_all(questions, masks.add(flats), len(flats))


def test_a_larger_budget_than_agreed_ends_at_the_sites_own(tmp_path):
    """A server whose own run file has a larger ε gets as much as sites allow."""
    trial = Trial(tmp_path, limit=8.0)
    larger = sections(budget(trial.data, 20.0))
    with pytest.raises(AssertionError, match="privacy budget"):
        run(trial.server, trial.agreed, sections=larger)
    most = mu_of(8.0, 1e-6) ** 2
    assert all(0 < spent <= most * (1 + 1e-9) for spent in trial.spent())
