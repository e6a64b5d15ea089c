"""People who are drawn: how often, by what, and what one of them can change."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from pffl.constraints.base import Cells  # noqa: E402
from pffl.data.schema import Attribute, Schema  # noqa: E402
from pffl.errors import Malformed, UsageError  # noqa: E402
from pffl.models import LogisticRegression, alone  # noqa: E402
from pffl.models.base import Inputs  # noqa: E402
from pffl.models.network import Network  # noqa: E402
from pffl.privacy.discrete import seeded_source  # noqa: E402
from pffl.questions import Sampled, Task, View  # noqa: E402
from pffl.questions.noised import UNIT, Adding  # noqa: E402
from pffl.questions.sampled import thrown  # noqa: E402

FEATURES = 3
SCHEMA = Schema(
    tuple(f"x{i}" for i in range(FEATURES)),
    (Attribute("sex", ("f", "m")),),
    ("no", "yes"),
)
WILD = st.one_of(
    st.sampled_from([0.0, 1.0, 1e12, -1e30, math.nan]), st.floats(-1e9, 1e9)
)


def task_of() -> Task:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(FEATURES, 4), nn.ReLU(), nn.Linear(4, 2))
    model = Network(module).bind(SCHEMA, Inputs.identity(FEATURES))
    return Task(model, Cells.none(SCHEMA), np.ones(1))


TASK = task_of()


def asked(w=None, **more) -> Sampled:
    given = {
        "weights": np.array([1.0, 0.5, 0.25, 0.0]),
        "clip": 2.0,
        "adding": Adding(seeded_source(0)),
        **more,
    }
    w = TASK.model.start(0) if w is None else w
    return Sampled(TASK, w, np.ones(1), **given)


def view_of(X, atom, person=None) -> View:
    atoms = np.asarray(atom, np.int64)
    return View(0, np.asarray(X, float), (atoms % 2).astype(float), atoms, person)


def people(many: int = 40, seed: int = 0) -> View:
    random = np.random.default_rng(seed)
    return view_of(random.normal(size=(many, FEATURES)), random.integers(0, 4, many))


@settings(max_examples=40, deadline=None)
@given(
    row=arrays(np.float64, FEATURES, elements=WILD),
    others=arrays(np.float64, (4, FEATURES), elements=WILD),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e30]),
    atom=st.integers(0, 3),
    clip=st.floats(1.01, 60),
)
def test_no_person_changes_more_than_declared(row, others, scale, atom, clip):
    """Neighbours: the same rows with and without one more, the worst there is."""
    question = asked(TASK.model.start(0) * scale, clip=clip)
    before = question.answer(view_of(others, np.arange(4)))
    after = question.answer(
        view_of(np.vstack([others, row]), np.append(np.arange(4), atom))
    )
    change = (after.gradients - before.gradients) * 2.0**-UNIT
    length = math.sqrt(float((change.astype(float) ** 2).sum()))
    assert length <= question.sensitivity["gradients"] * (1 + 1e-12)


def test_the_declared_bound_is_reached():
    question = asked(clip=1.01)
    far = question.answer(view_of([[50.0, -50.0, 50.0]], [0]))
    length = np.linalg.norm(question.real(far, "gradients"))
    wrong = question.answer(view_of([[50.0, -50.0, 50.0]], [1]))
    length = max(length, 2 * np.linalg.norm(question.real(wrong, "gradients")))
    assert length == pytest.approx(question.sensitivity["gradients"], rel=1e-5)


def test_all_are_asked_at_a_rate_of_1():
    question, view = asked(rate=1.0), people()
    model, weights = TASK.model, question.weights[view.atom]
    parts = [g for _, g in alone.gradients(model, question.w, view.X, view.y, 2.0)]
    expected = (np.concatenate(parts) * weights[:, None]).sum(axis=0)
    found = question.real(question.answer(view), "gradients")
    assert found == pytest.approx(expected, abs=1e-5)
    both = question.together([people(seed=1), people(seed=2)])
    apart = [question.answer(people(seed=s)).gradients for s in (1, 2)]
    assert np.array_equal(both.gradients, sum(apart))


def test_everybody_is_drawn_as_often_as_said_and_by_themselves():
    source, many, rounds = seeded_source("throws"), 300, 2000
    drawn = np.array([thrown(many, 0.13, source) for _ in range(rounds)])
    each, spread = drawn.mean(axis=0), math.sqrt(0.13 * 0.87 / rounds)
    assert abs(drawn.mean() - 0.13) < 4 * spread / math.sqrt(many)
    assert (np.abs(each - 0.13) < 5 * spread).all()
    # How many are drawn varies as throws of their own do: nobody moves another.
    assert drawn.sum(axis=1).var() == pytest.approx(many * 0.13 * 0.87, rel=0.15)
    again = np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]
    assert abs(again) < 0.01
    assert thrown(5, 1.0, source).all()
    assert not thrown(10_000, 1e-12, source).any()
    assert thrown(0, 0.5, source).shape == (0,)


def test_sums_of_those_drawn_are_those_of_all_in_the_mean():
    view = people(200)
    source = seeded_source("mean")
    question = asked(rate=0.3, adding=Adding(source))
    drawn = [question.real(question.answer(view), "gradients") for _ in range(100)]
    whole = question.real(replace(question, rate=1.0).answer(view), "gradients")
    error = np.std(drawn, axis=0) / 0.3 / math.sqrt(100)
    assert (np.abs(np.mean(drawn, axis=0) / 0.3 - whole) < 5 * error + 1e-6).all()


def test_a_person_counts_once():
    question, view = asked(rate=1.0), people(4)
    several = replace(view, person=np.array([7, 8, 7, 7]))
    first = view_of(view.X[:2], view.atom[:2])
    assert np.array_equal(
        question.answer(several).gradients, question.answer(first).gradients
    )


def test_noise_has_the_deviation_that_the_account_says():
    question, view = asked(rate=1.0), people()
    exact = question.answer(view)
    drawn = [question.pooled(exact, [view]).gradients for _ in range(200)]
    spread = np.std((np.array(drawn) - exact.gradients) * 2.0**-UNIT)
    assert spread == pytest.approx(question.sigma["gradients"], rel=0.05)


def test_refusals():
    with pytest.raises(UsageError, match="between machines: networks"):
        asked(adding=None).answer(people())
    with pytest.raises(Malformed, match="from 0 to 1"):
        asked(weights=np.full(4, 2.0))
    with pytest.raises(Malformed, match="rate"):
        asked(rate=0.0)
    with pytest.raises(Malformed, match="clip"):
        asked(clip=0.0)
    linear = LogisticRegression(input_bound=4.0).bind(SCHEMA, Inputs.identity(FEATURES))
    with pytest.raises(UsageError, match="for networks"):
        Sampled(replace(TASK, model=linear), np.zeros(4), np.ones(1), np.ones(4), 2.0)
