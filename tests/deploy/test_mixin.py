"""The weights protocol: bounds over any strategy of Flower's, with its own model."""

from __future__ import annotations

import json
import logging
import random
from dataclasses import replace

import numpy as np
import pytest

import pffl
from pffl import runs, verify
from pffl.constraints import CONSTRAINTS, Cells
from pffl.data import Attribute, Schema
from pffl.engines import Local
from pffl.errors import DataError, FederationError, PFFLError, UsageError
from pffl.methods import PFFL
from pffl.models import LogisticRegression
from pffl.prepare import Options
from pffl.queries import Census, Evaluate, Task
from pffl.tensors import pack, unpack
from tests.driving import prepare
from tests.helpers import make_federation
from tests.inside import Ascent, Reported, example_weights, read_total
from tests.raising import raises

NAMES = ["north", "south", "west"]
GROUPS, LABELS = ["a", "b"], ["no", "yes"]  # of tests.deploy.apps


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Flower, when the first test runs: collecting does not import it."""
    global flower, mods, strategies, apps
    pytest.importorskip("flwr")
    import flwr.app as flower
    import flwr.clientapp.mod as mods
    import flwr.serverapp.strategy as strategies

    from tests.deploy import apps


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "disabled", True)


BOUND = 0.66
KNOWN = {"groups": GROUPS, "labels": LABELS, "fraction_evaluate": 0.0}


def run(strategy, grid=None, *, rounds=25, rate=1.0, classes=2, out=None, start=None):
    """Run a strategy over the NumPy app; return its solution and Flower's result."""
    grid = apps.AppGrid(apps.client()) if grid is None else grid
    config = flower.ConfigRecord({"rate": rate, "mine": "kept"})
    result = strategy.start(grid, start or apps.first(classes), rounds, 60, config)
    if out is not None:
        strategy.solution.save(out)
        checks = verify(out)
        assert all(c.agrees for c in checks), [c for c in checks if not c.agrees]
    return strategy.solution, result


def start(strategy, rounds=2, grid=None, arrays=None):
    """Some rounds of any strategy; the model that it ends with."""
    config = flower.ConfigRecord({"rate": 1.0})
    grid = grid or apps.AppGrid(apps.client())
    return strategy.start(grid, arrays or apps.first(), rounds, 60, config).arrays


def asked_by(config, kind):
    content = flower.RecordDict({"config": flower.ConfigRecord(config)})
    return flower.Message(content, 20, kind)


def group_means(w, split="train", many=3):
    """Mean loss of each group, by hand."""
    parts = [apps.people(k, split) for k in range(many)]
    x, y, group = (np.concatenate(column) for column in zip(*parts, strict=True))
    loss = apps.losses_of(w, x, y)
    return [loss[group == g].mean() for g in (0, 1)]


def test_the_unchanged_app_leaves_a_group_behind_and_the_mixin_does_not(tmp_path):
    plain = start(strategies.FedAvg(fraction_evaluate=0.0), 25)
    assert max(group_means(plain["w"].numpy())) > BOUND + 0.05
    fair = apps.FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN)
    solution, result = run(fair, out=tmp_path / "run")
    assert solution.status == "met"
    # What is returned is what was measured, and by hand it is the same.
    w = result.arrays["w"].numpy()
    assert w.dtype == np.float32
    by_hand = group_means(w)
    assert max(by_hand) <= BOUND
    own = [row.train_loss for row in solution.cell_results]
    np.testing.assert_allclose(own, by_hand, atol=2e-3)  # probabilities are bounded
    np.testing.assert_allclose(solution.evidence.seen.own_means, by_hand, rtol=1e-6)
    # The directory can be read, and gives the arrays back.
    record = runs.read_run(tmp_path / "run")
    assert record.verified
    assert isinstance(record.predictor.model, Reported)
    np.testing.assert_array_equal(record.predictor.model.arrays(record.w)["w"], w)
    with raises(UsageError, "not-available"):
        record.predictor.predict_proba(np.zeros((1, 0)))


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("FairFedProx", {"proximal_mu": 0.1}),
        ("FairFedAdam", {"eta": 0.1, "beta_1": 0.0, "tau": 0.01}),
        ("FairFedAvg", {"fraction_evaluate": 1.0}),  # its own evaluations go on
    ],
)
def test_over_other_strategies_their_own_settings_pass(kind, given):
    kind, grid = getattr(apps, kind, apps.FairFedAvg), apps.AppGrid(apps.client())
    solution, _ = run(kind(pffl.BoundedGroupLoss(BOUND), **{**KNOWN, **given}), grid)
    assert solution.status == "met"
    assert solution.method["strategy"] == kind.__mro__[2].__name__
    sent = grid.configs[-1]
    assert (sent["mine"], sent["rate"]) == ("kept", 1.0)
    assert ("proximal-mu" in sent) == (kind is apps.FairFedProx)


def with_mod(inner, mod, *, everywhere=False):
    """An app whose updates are clipped at the client."""
    app = apps.ClientApp(mods=[mod] if everywhere else None)
    app.train(mods=None if everywhere else [mod])(lambda msg, to: inner(msg, to))
    app.evaluate()(lambda msg, to: inner(msg, to))
    return app


def fair_kind(strategy):
    return type("Fair", (apps.BoundedGroupLossMixin, getattr(strategies, strategy)), {})


@pytest.mark.parametrize(
    ("side", "mod", "size"),
    [
        ("ServerSideFixed", None, "clipping_norm"),
        ("ClientSideAdaptive", "adaptiveclipping_mod", "initial_clipping_norm"),
    ],
)
def test_over_differential_privacy_the_certificate_says_what_it_covers(side, mod, size):
    app, wrapper = apps.client(), f"DifferentialPrivacy{side}Clipping"
    app = app if mod is None else with_mod(app, getattr(mods, mod))
    noise = {"noise_multiplier": 1e-3, "num_sampled_clients": 3, size: 1.0}
    inner = strategies.FedAvg(fraction_evaluate=0.0)
    noise |= {"groups": GROUPS, "labels": LABELS}
    fair = fair_kind(wrapper)(pffl.BoundedGroupLoss(BOUND), inner, **noise)
    solution, _ = run(fair, apps.AppGrid(app))
    assert solution.status == "met"
    assert "differentially private" in "\n".join(solution.notes)
    assert solution.method["strategy"] == f"{wrapper}(FedAvg)"


def test_a_mixin_inside_a_wrapper_is_refused():
    inner = apps.FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN)
    kind = strategies.DifferentialPrivacyServerSideFixedClipping
    outer = kind(inner, 0.1, 1.0, 3)
    with raises(UsageError, "wrong-order"):
        start(outer)


CASES = {
    "cbgl": (pffl.ConditionalBoundedGroupLoss(0.72), 2),
    "per silo": (pffl.PerSilo(0.62), 2),
    "minimax": (pffl.MinMax(), 2),
    "both": (pffl.BoundedGroupLoss(BOUND) & pffl.PerSilo(0.66), 2),
    "three classes": (pffl.BoundedGroupLoss(1.0), 3),
    "a number": (pffl.BoundedGroupLoss(2.5), 0),
}


@pytest.mark.parametrize("case", CASES)
def test_all_kinds_of_bounds(case, tmp_path):
    constraint, classes = CASES[case]
    labels = {0: None, 2: LABELS, 3: [*LABELS, "more"]}[classes]
    fair = apps.FairFedAvg(constraint, **{**KNOWN, "labels": labels})
    names = NAMES if case == "per silo" else None
    grid = apps.AppGrid(apps.client(labels=classes), names=names)
    rate = 0.05 if classes == 0 else 1.0
    known = {"rate": rate, "classes": classes, "rounds": 30}
    solution, _ = run(fair, grid, **known, out=tmp_path / "run")
    wanted = "no bounds" if case == "minimax" else "met"
    assert solution.status == wanted, solution
    if case == "minimax":
        losses = [row.train_loss for row in solution.cell_results]
        assert abs(losses[0] - losses[1]) < 0.1
    if names:  # clients are known by their names
        assert sorted(solution.cells.index) == NAMES
    if classes == 0:
        assert solution.as_dict()["verdicts"]["new_people"]["verdict"] == "not measured"


def booster(trees):
    """A model in XGBoost's own JSON, as far as FedXgbBagging reads it."""
    inner = {"trees": trees, "tree_info": [0] * len(trees)}
    inner["gbtree_model_param"] = {"num_trees": str(len(trees))}
    inner["gbtree_model_param"]["num_parallel_tree"] = "1"
    inner["iteration_indptr"] = list(range(len(trees) + 1))
    plain = {"learner": {"gradient_booster": {"model": inner}}}
    return np.frombuffer(json.dumps(plain).encode(), np.uint8)


def trees_of(array):
    """The trees of such a model."""
    plain = json.loads(array.tobytes() or booster([]).tobytes())
    return plain["learner"]["gradient_booster"]["model"]["trees"]


def boosted():
    """Clients that add a stump a round: the model is bytes, and grows."""
    app = apps.ClientApp()

    def opened(msg, context, split):
        x, y, group = apps.people(int(context.node_config["partition-id"]), split)
        z = np.zeros(len(x))
        for tree in trees_of(msg.content["arrays"]["0"].numpy()):
            z += np.where(x[:, tree["input"]] < tree["at"], *tree["leaves"])
        return x, y, group, z

    def reply(msg, y, **content):
        metrics = flower.MetricRecord({"num-examples": len(y)})
        content = flower.RecordDict({"metrics": metrics, **content})
        return flower.Message(content, reply_to=msg)

    @app.train()
    def train(msg, context):
        x, y, group, z = opened(msg, context, "train")
        p, j = 1 / (1 + np.exp(-z)), int(msg.content["config"]["server-round"]) % 3
        weight, at = apps.group_weights(msg, group, y), float(np.median(x[:, j]))
        leaves = [
            -float((weight * (p - y))[side].sum() / (1 + (weight * p)[side].sum()))
            for side in (x[:, j] < at, x[:, j] >= at)
        ]
        tree = {"id": 0, "input": j, "at": at, "leaves": leaves}
        return reply(msg, y, arrays=flower.ArrayRecord([booster([tree])]))

    @app.evaluate()
    def evaluate(msg, context):
        sums = apps.GroupSums(msg, context)
        _, y, group, z = opened(msg, context, sums.split)
        sums.add(np.log1p(np.exp(np.where(y == 1, -z, z))), group, y)
        return reply(msg, y, pffl=sums.record())

    return app


def test_models_of_any_bytes_pass_through_as_of_xgboost(tmp_path):
    empty = flower.ArrayRecord([np.frombuffer(b"", np.uint8)])
    kind = fair_kind("FedXgbBagging")
    loose, found = kind(pffl.BoundedGroupLoss(9.0), **KNOWN), []
    for one in (strategies.FedXgbBagging(fraction_evaluate=0.0), loose):
        random.seed(0)  # by which Flower orders the nodes
        arrays = start(one, 12, apps.AppGrid(boosted()), empty)
        found.append(trees_of(arrays["0"].numpy()))
    # Under a bound that binds nobody it is the strategy's own model, or one before.
    known, own = found
    assert len(own) > 9
    assert own == known[: len(own)]
    fair = kind(pffl.BoundedGroupLoss(0.66), **KNOWN)
    grid = apps.AppGrid(boosted())
    solution, result = run(fair, grid, rounds=20, start=empty, out=tmp_path / "run")
    worst = max(row.train_loss for row in loose.solution.cell_results)
    assert max(row.train_loss for row in solution.cell_results) < worst
    content = result.arrays["0"].numpy().tobytes()
    assert pffl.files.digest(content) in " ".join(solution.notes)


#: A strategy's settings, the training's, whether it is noisy; what is said of the run.
MET, OPEN = "met", "not converged"
NOISY = {"rate": 3.0, "rounds": 40}
ADAM = {"kind": "FairFedAdam", "bound": 0.64}
ENDS = {
    "settled": ({}, {}, 0.0, MET),
    "the last iterate": ({"iterate": "last"}, {}, 0.0, MET),
    "far too long a step": ({"dual_step_size": 150.0}, {}, 0.0, OPEN),
    "longer still": ({"dual_step_size": 1500.0}, {}, 0.0, OPEN),
    "noise": ({"bound": 0.68}, NOISY, 0.2, MET),
    "noise, too long": ({"bound": 0.68, "dual_step_size": 150.0}, NOISY, 0.2, OPEN),
    "adam": (ADAM, {"rounds": 30}, 0.0, MET),
    "adam, too long": ({**ADAM, "dual_step_size": 50.0}, {"rounds": 30}, 0.0, OPEN),
    "still drifts": (
        {"bound": 5.0, "multiplier_bound": 1e-3},
        {"rate": 0.05, "rounds": 14, "start": 3.0},
        0.0,
        OPEN,
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_run_settles_or_says_that_it_did_not(name, tmp_path):
    """Noise of the training is no step that is too long."""
    given, how, noise, status = ENDS[name]
    given, how = {"kind": "FairFedAvg", "bound": BOUND, **given}, dict(how)
    if "start" in how:
        w, how["start"] = [[0.0], [how["start"]]], apps.first()
        how["start"]["w"] = flower.Array(np.full((2, 4), w, np.float32))
    kind, bound = getattr(apps, given.pop("kind")), given.pop("bound")
    grid = apps.Noisy(apps.client(), noise) if noise else None
    fair = kind(pffl.BoundedGroupLoss(bound), **KNOWN, **given)
    solution, _ = run(fair, grid, **how, out=tmp_path / "run")
    met = status == MET
    assert (solution.status, solution.exit_code) == (status, 0 if met else 4)
    assert solution.converged == ("not measurable" if met else "no")
    assert solution.training.settled is met


def test_a_client_that_comes_late_takes_no_part():
    class Late(apps.AppGrid):
        def deliver(self, message):
            if message.metadata.message_type == "train":
                self.nodes[99] = (apps.client(), {"partition-id": 9, "silo": "late"})
            assert message.metadata.dst_node_id != 99
            return super().deliver(message)

    fair = apps.FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN)
    assert run(fair, Late(apps.client(), names=NAMES))[0].status == "met"


def test_a_client_that_cannot_take_part_is_named_with_what_it_lacks():
    silent, mute = apps.client(record=False), apps.client(evaluate=False)
    clipped = with_mod(apps.client(), mods.fixedclipping_mod, everywhere=True)

    class Fails(apps.AppGrid):
        def deliver(self, message):
            return self.failed(message, 2, "<class 'KeyError'>:<'lr'>")

    class Confused(apps.AppGrid):
        """Counts the training rows once, and other rows ever after."""

        def deliver(self, message):
            if "train" in self.kinds:
                _, config = self.nodes[message.metadata.dst_node_id]
                config["partition-id"] = 9
            return super().deliver(message)

    one = apps.AppGrid(apps.client())
    one.nodes[21] = (mute, one.nodes[21][1])
    twice = apps.AppGrid(apps.client(), names=["north", "north", "south"])
    for grid, code, *lacks in (
        (apps.AppGrid(silent), "node-failed", "3 of 3", "20, 21, 22", "sums.record()"),
        (apps.AppGrid(mute), "node-failed", "3 of 3", "No evaluate function"),
        (Fails(apps.client()), "node-failed", "3 of 3", "KeyError"),
        (one, "node-failed", "1 of 3", "Node 21"),
        (apps.AppGrid(clipped), "node-failed", "3 of 3"),  # by a mod of Flower's
        (Confused(apps.client(), names=NAMES), "node-failed", "sums.pick"),
        (twice, "repeated-name", "north"),
    ):
        with raises(FederationError, code, *lacks):
            run(apps.FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN), grid)


def test_the_same_client_works_under_any_strategy():
    start(strategies.FedAvg())
    message = asked_by({}, "train")
    assert apps.group_weights(message, [0, 1], [1, 1]).tolist() == [1.0, 1.0]
    sums = apps.GroupSums(message)
    assert sums.add([1.0, 3.0], [0, 1], [0, 1]) == 2.0
    assert dict(sums.record()) == {}


def test_a_model_that_runs_away_is_called_so():
    class Away(apps.AppGrid):
        def deliver(self, message):
            reply = super().deliver(message)
            if message.metadata.message_type == "train" and len(self.configs) > 12:
                record = apps.first()
                record["w"] = type(record["w"])(np.full((2, 4), np.nan, np.float32))
                reply.content["arrays"] = record
            return reply

    fair = apps.FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN)
    solution, result = run(fair, Away(apps.client()))
    assert solution.status == "diverged"
    assert np.isfinite(result.arrays["w"].numpy()).all()


def schema_of(labels=tuple(LABELS)):
    return Schema((), (Attribute("group", tuple(GROUPS)),), tuple(labels))


def asked(query=None, weights=None, labels=tuple(LABELS), **changed):
    parcel = unpack(apps.Order(schema_of(labels), weights, query).packed())
    content = pack(replace(parcel, header={**parcel.header, **changed}))
    return asked_by({apps.KEY: content}, "evaluate")


def evaluation(member, **known):
    """A query about a model of somebody's, on test rows."""
    schema, bare = schema_of(), Reported.of({"number": np.zeros(1)}, "cross_entropy")
    many = len(member)
    names = tuple(map(str, range(many)))
    cells = Cells(names, np.zeros(many), np.array(member, bool), np.full(many, -1))
    task = Task(bare.bind(schema, bare.inputs), cells, np.ones(1))
    return Evaluate(task, np.zeros(1), "test", **known)


def test_sums_are_those_of_a_plain_loop():
    x, y, group = apps.people(0, "test", 300)
    w = np.array([[0.0, 0, 0, 0], [2.0, -1, 1, 0.3]])
    loss = apps.losses_of(w, x, y)
    M, bets = 3.0, np.array([[0.2, 0.5], [0.1, 0.4]])
    query = evaluation([[1, 1, 0, 0], [0, 0, 1, 1]], loss_bound=M, bets=bets)
    sums = apps.GroupSums(asked(query))
    for rows in np.array_split(np.arange(300), 7):
        sums.add(loss[rows], group[rows], y[rows])
    total, _ = read_total(unpack(sums.record()["body"]), query)
    p = np.exp(-loss)
    cut = -np.log(np.clip(p, np.exp(-M), 1 - np.exp(-M)))
    right = ((x @ w.T).argmax(axis=1) == y).astype(float)
    columns = {"count": np.ones(300), "loss": loss, "correct": right}
    columns["bounded_loss"] = cut
    for g in (0, 1):
        here = group == g
        for name, values in columns.items():
            own = total.column(name, of="cells")[g]
            np.testing.assert_allclose(own, values[here].sum())
        for j, bet in enumerate(bets[g]):
            u = cut[here] / M
            np.testing.assert_allclose(total.logs[g, j, 0], np.log(1 - bet * u).sum())
    np.testing.assert_allclose(total.risk, loss.mean())


def test_small_groups_are_withheld_and_none_can_be_found_by_subtraction():
    query = evaluation(np.eye(4))
    sums = apps.GroupSums(asked(query))
    counts = {(0, 0): 40, (0, 1): 25, (1, 0): 12, (1, 1): 3}
    for (group, label), n in counts.items():
        sums.add(np.full(n, 0.5), np.full(n, group), np.full(n, label))
    told, hidden = read_total(unpack(sums.record()["body"]), query)
    assert told.column("count").tolist() == [40, 25, 0, 0]  # the next smallest, too
    assert told.column("loss").tolist() == [20.0, 12.5, 0.0, 0.0]
    assert hidden == 2


def test_what_is_no_batch_is_refused():
    sums = apps.GroupSums(asked(Census(schema_of(), "test")))
    for given, kind, code in (
        (([1.0], [2], [0]), DataError, "unknown-group"),
        (([1.0], ["x"], [0]), DataError, "unknown-group"),
        (([1.0], [0.5], [0]), DataError, "unknown-group"),
        (([1.0, 2.0], [0], [0]), DataError, "wrong-length"),
        (([1.0], [0], [0, 1]), DataError, "wrong-length"),
        (([-1.0], [0], [0]), DataError, "negative-loss"),
        (([1.0], [0]), UsageError, "needs-labels"),
    ):
        with raises(kind, code):
            sums.add(*given)
    weights = np.array([[1.0, 2.0], [3.0, 4.0]])
    with raises(UsageError, "needs-labels", "labels"):
        apps.group_weights(asked(weights=weights), [0])
    three = ("x", "y", "z")
    with raises(UsageError, "needs-predictions"):
        apps.GroupSums(asked(labels=three)).add([1.0], [0], [2])
    found = apps.group_weights(asked(weights=weights), ["b", "a"], ["yes", "no"])
    assert found.tolist() == [4, 1]
    with raises(PFFLError, "other-version", "9"):
        apps.group_weights(asked(version=9), [0], [0])


@pytest.mark.parametrize(
    ("given", "code", "named"),
    [
        ({"constraint": 0.6}, "wrong-value", "constraint"),
        ({"constraint": pffl.BoundedGroupLoss("auto")}, "auto-refused", "auto"),
        ({"iterate": "luckiest"}, "wrong-value", "iterate"),
        ({"dual_step_size": -1.0}, "wrong-value", "dual_step_size"),
        ({"groups": "ab"}, "wrong-value", "groups"),
        ({"labels": ["one"]}, "wrong-value", "labels"),
        ({"groups": ["a", "a"]}, "repeated-name", "group"),
    ],
)
def test_wrong_settings_are_refused_at_once(given, code, named):
    known = {"constraint": pffl.BoundedGroupLoss(0.6), **KNOWN, **given}
    with raises(PFFLError, code, named):
        apps.FairFedAvg(known.pop("constraint"), **known)


@pytest.mark.parametrize("kind", ["bgl", "cbgl", "per-silo"])
def test_weights_of_examples_are_those_of_the_objective(kind):
    """c_i(λ) over its mean: by hand, row by row."""
    federation = make_federation(sizes=(60, 40, 90))
    constraint, options = CONSTRAINTS[kind](0.6), Options(weighting="rows")
    known = (constraint, LogisticRegression(), PFFL(), options, 0)
    problem = prepare(Local(federation), *known)[0]
    lam = np.random.default_rng(0).random(problem.n_cells)
    found = example_weights(problem, lam)
    m = sum(len(silo.rows("train")) for silo in federation.silos)
    total = 0.0
    for k, silo in enumerate(federation.silos):
        rows = silo.rows("train")
        for g, y in zip(rows.group, rows.y.astype(int), strict=True):
            stratum = g * 2 + y
            c = 1.0 / m  # β p_k/m_k with p_k = m_k/m
            for z in range(problem.n_cells):
                own = problem.cells.silo[z] in (-1, k)
                if own and problem.cells.membership[z, stratum]:
                    c += lam[z] / problem.counts[z]
            mean = (1.0 + lam.sum()) / m
            np.testing.assert_allclose(found[k, g, y], c / mean)
            total += found[k, g, y]
    np.testing.assert_allclose(total / m, 1.0)


def test_the_automatic_step_depends_on_no_unit():
    r = np.random.default_rng(0).normal(size=(30, 3))
    paths = []
    for unit in (1e-4, 1.0, 1e4):
        at = Ascent(np.zeros(3), 5.0, unit=unit)
        for row in r:
            at = at.after(unit * row)
        paths.append(at.multipliers)
    np.testing.assert_allclose(paths[0], paths[1])
    np.testing.assert_allclose(paths[2], paths[1])
