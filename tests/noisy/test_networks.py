"""Networks under noise: what is asked is paid for, and what is said can be checked."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pffl
from pffl.engines import Local
from pffl.errors import UsageError
from pffl.evidence.evidence import Evidence
from pffl.evidence.verify import verify
from pffl.privacy import Privacy
from pffl.privacy.accounting import composed
from pffl.privacy.subsampled import Draws, epsilon_of
from tests.helpers import make_federation

torch = pytest.importorskip("torch")
pytest.importorskip("dp_accounting")

from torch import nn  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small batches: torch's threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Watched(Local):
    """Keeps every question that is asked."""

    def ask_many(self, questions):
        self.asked = [*getattr(self, "asked", []), *questions]
        return super().ask_many(questions)


@pytest.fixture(scope="module")
def data():
    return make_federation(0, sizes=(900,) * 3, test=400)


def network(data, **more) -> pffl.Network:
    torch.manual_seed(0)
    width = data.schema.n_features
    return pffl.Network(
        nn.Sequential(nn.Linear(width, 6), nn.Tanh(), nn.Linear(6, 2)), **more
    )


def terms(data, **more) -> Privacy:
    ranges = {str(name): (-6.0, 6.0) for name in data.schema.features}
    given = {"epsilon": 6.0, "noise_seed": 1, "ranges": ranges, "rounds": 24, **more}
    return Privacy(**given)


def solve(data, method="pffl", bound=0.72, *, model=None, engine=None, **more):
    engine = engine or Watched(data)
    constraint = None if bound is None else pffl.BoundedGroupLoss(bound)
    used = model or network(data)
    privacy = terms(data, **more)
    found = pffl.solve(
        engine, constraint, model=used, method=method, seed=0, privacy=privacy
    )
    return found, engine.asked


@pytest.fixture(scope="module")
def run(data):
    return solve(data, noise_seed=None)


@pytest.mark.parametrize(
    ("method", "bound", "rate"),
    [("pffl", 0.72, None), ("pffl", None, 0.3), ("fedavg", 0.72, 1.0)],
)
def test_all_that_is_asked_is_paid_for(data, method, bound, rate):
    """The account is that of the questions themselves, not of the plan's words."""
    found, asked = solve(data, method, bound, rate=rate)
    assert {q.kind for q in asked} == {"tally", "noised", "sampled"}
    part = found.evidence.privacy
    drawn = [q for q in asked if q.kind == "sampled"]
    assert len(drawn) == 24
    assert {q.rate for q in drawn} == {0.1 if rate is None else rate}
    assert len({q.draw for q in drawn}) == 24
    plain = [q.mu for q in asked if q.split == "train" and q.kind != "sampled"]
    if rate == 1.0:
        assert part.spent is None
        mus = [*plain, *(q.mu for q in drawn)]
        assert part.mu == pytest.approx(composed(mus), rel=1e-9)
    else:
        draws = Draws(drawn[0].rate, len(drawn), float(drawn[0].noise[0]))
        spent = epsilon_of(composed(plain), draws, 1e-6)
        assert part.spent == pytest.approx(spent, rel=1e-6)
        assert part.mu == pytest.approx(composed(plain), rel=1e-9)
    assert 0.97 * 6.0 < part.epsilon_spent <= 6.0 * (1 + 1e-9)
    held = [q.mu for q in asked if q.split == "test"]
    assert part.heldout_mu == pytest.approx(composed(held), rel=1e-9)


def test_the_releases_stated_are_those_that_were_asked(run):
    found, asked = run
    stated = {(r.name, r.split): r for r in found.evidence.privacy.releases}
    drawn = [q for q in asked if q.kind == "sampled"]
    release = stated["gradients", "train"]
    assert (release.times, release.rate) == (len(drawn), drawn[0].rate)
    assert release.sensitivity == pytest.approx(drawn[0].sensitivity["gradients"])
    assert release.sigma == pytest.approx(drawn[0].sigma["gradients"])
    steering = [q for q in asked if set(q.asked_for) == {"losses"}]
    assert stated["losses", "train"].times == len(steering) == 2
    assert stated["losses", "train"].sigma == pytest.approx(steering[0].sigma["losses"])


def test_nothing_exact_is_written_down(data, run):
    e = run[0].evidence
    text = json.dumps(e.as_dict())
    assert data.fingerprint not in text
    assert e.data.card is None
    assert Evidence.from_dict(json.loads(text)) == e
    # How many were drawn tells of people, and is counted nowhere.
    assert run[0].as_dict()["privacy"]["spent"] <= 6.0


def test_what_is_said_of_it(run):
    found = run[0]
    stated = {one.kind: one for one in found.certificate.statements}
    assert stated["privacy"].value == found.evidence.privacy.spent
    assert "μ" not in stated["privacy"].text
    grounds = " ".join(a.text for a in stated["privacy"].assumptions)
    assert "drawn with probability 0.1" in grounds
    assert "who was drawn stays secret" in grounds
    assert not stated["gap"].available
    assert "not measurable" in stated["gap"].text
    assert "inputs shortened" not in str(stated["empirical"].assumptions)
    assert found.converged == "not measurable"


FORGED = {
    "half the noise": lambda r, p: r.update(
        sigma=r["sigma"] / 2, deviation=r["deviation"] / 2, mu=2 * r["mu"]
    ),
    "drawn more often": lambda r, p: r.update(rate=2 * r["rate"]),
    "more rounds": lambda r, p: r.update(
        times=4 * r["times"], mu=2 * r["mu"]
    ),
    "a smaller ε": lambda r, p: p.update(spent=0.9 * p["spent"]),
    "no ε at all": lambda r, p: p.update(spent=None),
    "a shorter gradient": lambda r, p: r.update(
        sensitivity=r["sensitivity"] / 2, sigma=r["sigma"] / 2,
        deviation=r["deviation"] / 2,
    ),
}  # fmt: skip


def test_verification_needs_no_rows_and_finds_forgeries(run, tmp_path):
    place = pffl.save(run[0], tmp_path / "run")
    assert all(check.agrees for check in verify(place))
    path = place / "evidence.json"
    whole = path.read_text("utf-8")
    for name, forge in FORGED.items():
        e = json.loads(whole)
        releases = e["privacy"]["releases"]
        forge(next(r for r in releases if r["name"] == "gradients"), e["privacy"])
        path.write_text(json.dumps(e), "utf-8")
        wrong = [c.what for c in verify(place) if not c.agrees]
        # Beside the hash of the file itself.
        assert [w for w in wrong if "account" in w or "person adds" in w], name


def test_the_plan_is_said_before_the_first_question(data):
    from pffl.solving import noise_forecast

    lines, rows = noise_forecast(
        data,
        pffl.BoundedGroupLoss(0.72),
        model=network(data),
        method=pffl.PFFL(),
        options=pffl.Options(),
        privacy=terms(data, rounds=None),
        secure_sum=True,
    )
    text = "\n".join(lines)
    assert "200 × gradients of train rows: each person drawn with probability" in text
    assert "19 × losses of train rows" in text
    assert "gradients shortened to 4" in lines[0]
    assert len(rows) == 6


def test_a_stopped_run_releases_nothing_twice(data, tmp_path):
    class Stops(Watched):
        def ask_many(self, questions):
            if len(getattr(self, "asked", [])) >= 9:
                raise RuntimeError("stopped")
            return super().ask_many(questions)

    args = {
        "model": network(data),
        "method": "pffl",
        "seed": 0,
        "privacy": terms(data, noise_seed=None),
        "checkpoint": tmp_path,
    }
    first, second = Stops(data), Watched(data)
    with pytest.raises(RuntimeError, match="stopped"):
        pffl.solve(first, pffl.BoundedGroupLoss(0.72), **args)
    pffl.solve(second, pffl.BoundedGroupLoss(0.72), **args)
    draws = [q.draw for q in [*first.asked, *second.asked] if q.kind == "sampled"]
    assert draws == list(range(1, 25))
    assert not any(q.kind == "tally" for q in second.asked)


def test_a_seed_repeats_noise_and_draws_and_secrets_do_not(data):
    again = [solve(data, "fedavg", noise_seed=5, rounds=4)[0].w for _ in range(2)]
    assert np.array_equal(*again)
    secret = [solve(data, "fedavg", noise_seed=None, rounds=4)[0].w for _ in range(2)]
    assert not np.array_equal(*secret)


def test_it_learns_and_a_bound_moves_it():
    """With a large budget: a better model than none, and the bound is kept."""
    people = pffl.datasets.synthetic(2000, silos=3, groups=["f", "m"], seed=0)
    ends = ((0.0, 100.0), (0.0, 1.0), (0.0, 10.0))  # numbers, flags, counts
    names = [str(name) for name in people.schema.features]
    kept = {
        "epsilon": 20.0,
        "rounds": 60,
        "rate": 1.0,
        "ranges": {name: ends[i % 3] for i, name in enumerate(names)},
    }
    free, _ = solve(people, pffl.FedAvg(step_size=0.5), 0.63, **kept)
    fair, _ = solve(people, pffl.PFFL(step_size=0.5), 0.63, **kept)
    assert free.cells["train_loss"].min() < 0.55
    assert fair.cells["train_loss"].max() < 0.64 < free.cells["train_loss"].max()


def test_refused_by_name(data):
    def refused(match, **more):
        with pytest.raises(UsageError, match=match):
            solve(data, **more)

    width = data.schema.n_features
    mixing = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, 2))
    refused(r"layer '0' \(BatchNorm1d\)", model=pffl.Network(mixing))
    refused("'exact' is not available under noise", method="exact")
    refused("batch_size of 'pffl'", method=pffl.PFFL(batch_size=8))
    refused("server of 'fedavg'", method=pffl.FedAvg(server="adam"))
    refused("local_steps", method=pffl.PFFL(local_steps=7))
    with pytest.raises(UsageError, match="'rate'"):
        terms(data, rate=1.5)
    with pytest.raises(UsageError, match="for networks"):
        solve(data, model=pffl.LogisticRegression(), rate=0.1)


def test_inputs_that_the_module_scales_cost_nothing(data):
    found, asked = solve(
        data, "fedavg", None, model=network(data, standardize=False), rounds=3
    )
    names = {r.name for r in found.evidence.privacy.releases}
    assert "inputs" not in names
    assert set(asked[0].asked_for) == {"counts"}
