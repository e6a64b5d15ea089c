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
from pffl.constraints import Cells
from pffl.engines import Local
from pffl.errors import DataError, FederationError, UsageError
from pffl.external import bounded
from pffl.prepare import Options
from pffl.queries import Evaluate
from tests.driving import prepare
from tests.helpers import make_federation
from tests.inside import Ascent, Reported, example_weights
from tests.raising import raises

GROUPS, LABELS = ["a", "b"], ["no", "yes"]  # of tests.deploy.apps


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict, ClientApp
    global mods, strategies, FedAvg, BoundedGroupLossMixin, FairFedAvg, KEY, GroupSums
    global Order, group_weights, read_sums, apps, AppGrid, FairFedAdam, Noisy, client
    global first, losses_of, people
    pytest.importorskip("flwr")
    import flwr.clientapp.mod as mods
    import flwr.serverapp.strategy as strategies
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp.strategy import FedAvg

    from pffl.deploy import BoundedGroupLossMixin, FairFedAvg
    from tests.deploy import apps
    from tests.deploy.apps import (
        AppGrid,
        FairFedAdam,
        Noisy,
        client,
        first,
        losses_of,
        people,
    )
    from tests.inside import KEY, GroupSums, Order, group_weights, read_sums

    assert (apps.GROUPS, apps.LABELS) == (GROUPS, LABELS)


@pytest.fixture(autouse=True)
def _quiet():
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


BOUND = 0.66
KNOWN = {"groups": GROUPS, "labels": LABELS, "fraction_evaluate": 0.0}


def run(strategy, grid=None, *, rounds=25, rate=1.0, classes=2):
    """Run a strategy over the NumPy app; return its solution and Flower's result."""
    grid = AppGrid(client()) if grid is None else grid
    config = ConfigRecord({"rate": rate, "mine": "kept"})
    result = strategy.start(grid, first(classes), rounds, 60, config)
    return strategy.solution, result


def group_means(w, split="train", many=3):
    """Mean loss of each group, by hand."""
    parts = [people(k, split) for k in range(many)]
    x, y, group = (np.concatenate(column) for column in zip(*parts, strict=True))
    loss = losses_of(w, x, y)
    return [loss[group == g].mean() for g in (0, 1)]


def test_the_unchanged_app_leaves_a_group_behind_and_the_mixin_does_not(tmp_path):
    plain = FedAvg(fraction_evaluate=0.0)
    config = ConfigRecord({"rate": 1.0})
    arrays = plain.start(AppGrid(client()), first(), 25, 60, config).arrays
    assert max(group_means(arrays["w"].numpy())) > BOUND + 0.05
    fair = FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN, out=tmp_path / "run")
    solution, result = run(fair)
    assert solution.status == "met"
    # What is returned is what was measured, and by hand it is the same.
    w = result.arrays["w"].numpy()
    assert w.dtype == np.float32
    by_hand = group_means(w)
    assert max(by_hand) <= BOUND
    own = [row.train_loss for row in solution.cell_results]
    np.testing.assert_allclose(own, by_hand, atol=2e-3)  # probabilities are bounded
    np.testing.assert_allclose(solution.evidence.seen.own_means, by_hand, rtol=1e-6)
    assert set(solution.as_dict()["verdicts"]) == {"training", "test", "new_people"}
    # The directory can be verified and read, and gives the arrays back.
    checks = verify(tmp_path / "run")
    assert all(check.agrees for check in checks), [c for c in checks if not c.agrees]
    assert (tmp_path / "run" / "report.html").is_file()
    record = runs.read_run(tmp_path / "run", require_verified=True)
    assert isinstance(record.predictor.model, Reported)
    np.testing.assert_array_equal(record.predictor.model.arrays(record.w)["w"], w)
    with raises(UsageError, "not-available"):
        record.predictor.predict_proba(np.zeros((1, 0)))


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("FairFedProx", {"proximal_mu": 0.1}),
        ("FairFedAdam", {"eta": 0.1, "beta_1": 0.0, "tau": 0.01}),
    ],
)
def test_over_other_strategies_their_own_settings_pass(kind, given):
    kind, grid = getattr(apps, kind), AppGrid(client())
    solution, _ = run(kind(pffl.BoundedGroupLoss(BOUND), **KNOWN, **given), grid)
    assert solution.status == "met"
    assert solution.method["strategy"] == kind.__mro__[2].__name__
    sent = grid.configs[-1]
    assert (sent["mine"], sent["rate"]) == ("kept", 1.0)
    assert ("proximal-mu" in sent) == (kind is apps.FairFedProx)


PRIVATE = {
    "DifferentialPrivacyServerSideFixedClipping": None,
    "DifferentialPrivacyClientSideAdaptiveClipping": "adaptiveclipping_mod",
}


def with_mod(inner, mod, *, everywhere=False):
    """An app whose updates are clipped at the client."""
    app = ClientApp(mods=[mod] if everywhere else None)
    app.train(mods=None if everywhere else [mod])(lambda msg, to: inner(msg, to))
    app.evaluate()(lambda msg, to: inner(msg, to))
    return app


@pytest.mark.parametrize("wrapper", PRIVATE)
def test_over_differential_privacy_the_certificate_says_what_it_covers(wrapper):
    mod, wrapper = PRIVATE[wrapper], getattr(strategies, wrapper)
    app = client() if mod is None else with_mod(client(), getattr(mods, mod))
    noise = {"noise_multiplier": 1e-3, "num_sampled_clients": 3}
    size = "clipping_norm" if "Fixed" in wrapper.__name__ else "initial_clipping_norm"
    kind = type("FairPrivate", (BoundedGroupLossMixin, wrapper), {})
    fair = kind(
        pffl.BoundedGroupLoss(BOUND),
        FedAvg(fraction_evaluate=0.0),
        groups=GROUPS,
        labels=LABELS,
        **noise,
        **{size: 1.0},
    )
    solution, _ = run(fair, AppGrid(app))
    assert solution.status == "met"
    assert "differentially private" in "\n".join(solution.notes)
    assert solution.method["strategy"] == f"{wrapper.__name__}(FedAvg)"


def test_clipping_of_a_whole_app_is_named_as_what_fails():
    """Flower's mod refuses evaluations: it belongs to training."""
    app = with_mod(client(), mods.fixedclipping_mod, everywhere=True)
    with raises(FederationError, "node-failed", "3 of 3"):
        run(FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN), AppGrid(app))


def test_over_fedadam_as_it_comes_the_run_settles_or_says_that_it_did_not():
    for bound, status in ((0.64, "met"), (0.66, "met"), (0.7, "met")):
        fair = FairFedAdam(pffl.BoundedGroupLoss(bound), **KNOWN)
        solution, _ = run(fair, rounds=30)
        assert solution.status == status
        settled = solution.training.settling.settled
        assert settled == (status == "met")
    solution, _ = run(
        FairFedAdam(pffl.BoundedGroupLoss(0.64), **KNOWN, dual_step_size=50.0),
        rounds=30,
    )
    assert solution.status == "not converged"


def test_a_mixin_inside_a_wrapper_is_refused():
    inner = FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN)
    kind = strategies.DifferentialPrivacyServerSideFixedClipping
    outer = kind(inner, 0.1, 1.0, 3)
    with raises(UsageError, "wrong-order"):
        outer.start(AppGrid(client()), first(), 2, 60, ConfigRecord({"rate": 1.0}))


def test_a_step_that_is_far_too_long_never_ends_as_success(tmp_path):
    auto, _ = run(FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN))
    assert auto.converged == "not measurable"
    assert max(auto.training.settling.swing) < 0.05
    for step in (150.0, 1500.0):  # 50 still settles
        out = tmp_path / str(step)
        fair = FairFedAvg(
            pffl.BoundedGroupLoss(BOUND), **KNOWN, dual_step_size=step, out=out
        )
        solution, _ = run(fair)
        assert (solution.status, solution.converged) == ("not converged", "no")
        assert solution.exit_code == 4
        assert all(check.agrees for check in verify(out))


def test_noise_of_the_training_is_said_and_is_no_step_that_is_too_long(tmp_path):
    for step, status in ((None, "met"), (150.0, "not converged")):
        out = tmp_path / str(step)
        bound = pffl.BoundedGroupLoss(0.68)
        fair = FairFedAvg(bound, **KNOWN, dual_step_size=step, out=out)
        solution, _ = run(fair, Noisy(client(), 0.2), rate=3.0, rounds=40)
        found = solution.training.settling
        assert max(found.swing) > 0.05
        assert solution.status == status, solution
        assert (step is None) == found.steady
        assert all(check.agrees for check in verify(out))


def test_training_that_still_drifts_has_not_converged(tmp_path):
    far = first()
    far["w"] = type(far["w"])(np.full((2, 4), [[0.0], [3.0]], np.float32))
    config = ConfigRecord({"rate": 0.05})
    for rounds in (14, 2):
        out, loose = tmp_path / str(rounds), pffl.BoundedGroupLoss(5.0)
        fair = FairFedAvg(loose, **KNOWN, multiplier_bound=1e-3, out=out)
        fair.start(AppGrid(client()), far, rounds, 60, config)
        solution = fair.solution
        assert solution.status == "not converged"
        assert all(check.agrees for check in verify(out))


CASES = {
    "cbgl": (pffl.ConditionalBoundedGroupLoss(0.72), 2),
    "per silo": (pffl.PerSilo(0.6), 2),
    "minimax": (pffl.MinMax(), 2),
    "both": (pffl.BoundedGroupLoss(BOUND) & pffl.PerSilo(0.66), 2),
    "three classes": (pffl.BoundedGroupLoss(1.0), 3),
    "a number": (pffl.BoundedGroupLoss(2.5), 0),
}


@pytest.mark.parametrize("case", CASES)
def test_all_kinds_of_bounds(case, tmp_path):
    constraint, classes = CASES[case]
    labels = {0: None, 2: LABELS, 3: [*LABELS, "more"]}[classes]
    fair = FairFedAvg(
        constraint,
        groups=GROUPS,
        labels=labels,
        fraction_evaluate=0.0,
        out=tmp_path / "run",
    )
    app = client(labels=classes)
    rate = 0.05 if classes == 0 else 1.0
    solution, _ = run(fair, AppGrid(app), rate=rate, classes=classes, rounds=30)
    wanted = "no bounds" if case == "minimax" else "met"
    assert solution.status == wanted, solution
    if case == "minimax":
        losses = [row.train_loss for row in solution.cell_results]
        assert abs(losses[0] - losses[1]) < 0.1
    if classes == 0:
        assert solution.as_dict()["verdicts"]["new_people"]["verdict"] == "not measured"
    assert all(check.agrees for check in verify(tmp_path / "run"))


def booster(trees):
    """A model in XGBoost's own JSON, as far as FedXgbBagging reads it."""
    known = {"num_trees": str(len(trees)), "num_parallel_tree": "1"}
    inner = {"gbtree_model_param": known, "trees": trees, "tree_info": [0] * len(trees)}
    inner["iteration_indptr"] = list(range(len(trees) + 1))
    plain = {"learner": {"gradient_booster": {"model": inner}}}
    return np.frombuffer(json.dumps(plain).encode(), np.uint8)


def trees_of(array):
    """The trees of such a model."""
    if not len(array):
        return []
    plain = json.loads(array.tobytes())
    return plain["learner"]["gradient_booster"]["model"]["trees"]


def boosted():
    """Clients that add a stump a round: the model is bytes, and grows."""
    app = ClientApp()

    def margins(array, x):
        found = np.zeros(len(x))
        for tree in trees_of(array):
            found += np.where(x[:, tree["input"]] < tree["at"], *tree["leaves"])
        return found

    def opened(msg, context, split):
        part = people(int(context.node_config["partition-id"]), split)
        return msg.content["arrays"]["0"].numpy(), part

    @app.train()
    def train(msg, context):
        array, (x, y, group) = opened(msg, context, "train")
        p = 1 / (1 + np.exp(-margins(array, x)))
        weight, slope, best = group_weights(msg, group, y), p - y, None
        for j in range(3):
            for at in np.quantile(x[:, j], [0.25, 0.5, 0.75]):
                sides = [x[:, j] < at, x[:, j] >= at]
                g = [float((weight * slope)[s].sum()) for s in sides]
                h = [float((weight * p * (1 - p))[s].sum()) + 1.0 for s in sides]
                gain = sum(a * a / b for a, b in zip(g, h, strict=True))
                leaves = [-0.1 * a / b for a, b in zip(g, h, strict=True)]
                if best is None or gain > best[0]:
                    best = (gain, {"input": j, "at": float(at), "leaves": leaves})
        arrays = ArrayRecord([booster([{"id": 0, **best[1]}])])
        metrics = MetricRecord({"num-examples": len(y)})
        content = RecordDict({"arrays": arrays, "metrics": metrics})
        return Message(content, reply_to=msg)

    @app.evaluate()
    def evaluate(msg, context):
        sums = GroupSums(msg, context)
        array, (x, y, group) = opened(msg, context, sums.split)
        z = margins(array, x)
        sums.add(np.log1p(np.exp(np.where(y == 1, -z, z))), group, y)
        metrics = MetricRecord({"num-examples": len(y)})
        content = {"metrics": metrics, "pffl": sums.record()}
        return Message(RecordDict(content), reply_to=msg)

    return app


def test_models_of_any_bytes_pass_through_as_of_xgboost(tmp_path):
    empty = ArrayRecord([np.frombuffer(b"", np.uint8)])
    kind = type("Fair", (BoundedGroupLossMixin, strategies.FedXgbBagging), {})
    config = ConfigRecord({"rate": 1.0})
    plain = strategies.FedXgbBagging(fraction_evaluate=0.0)
    found = {}
    loose = kind(pffl.BoundedGroupLoss(9.0), **KNOWN)
    for name, one in (("plain", plain), ("loose", loose)):
        random.seed(0)  # by which Flower orders the nodes
        found[name] = one.start(AppGrid(boosted()), empty, 12, 60, config).arrays
    # Under a bound that binds nobody it is the strategy's own model, or one before.
    known = trees_of(found["plain"]["0"].numpy())
    own = trees_of(found["loose"]["0"].numpy())
    assert len(own) > 9
    assert own == known[: len(own)]
    fair = kind(pffl.BoundedGroupLoss(0.66), **KNOWN, out=tmp_path / "run")
    result = fair.start(AppGrid(boosted()), empty, 20, 60, config)
    worst = max(row.train_loss for row in loose.solution.cell_results)
    assert max(row.train_loss for row in fair.solution.cell_results) < worst
    content = result.arrays["0"].numpy().tobytes()
    assert pffl.files.digest(content) in " ".join(fair.solution.notes)
    assert all(check.agrees for check in verify(tmp_path / "run"))
    with raises(UsageError, "wrong-value", "average"):
        averaged = kind(pffl.BoundedGroupLoss(0.66), **KNOWN, iterate="average")
        averaged.start(AppGrid(boosted()), empty, 2, 60, config)


@pytest.mark.parametrize("kept", ["average", "last"])
def test_other_iterates_are_measured_as_they_are(kept):
    fair = FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN, iterate=kept)
    solution, result = run(fair)
    by_hand = group_means(result.arrays["w"].numpy())
    np.testing.assert_allclose(solution.evidence.seen.own_means, by_hand, rtol=1e-6)


def test_sums_that_come_with_training_save_a_message_a_round():
    kinds = {}
    for tells in (False, True):
        grid = AppGrid(client(tells=tells))
        fair = FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN)
        solution, _ = run(fair, grid)
        last = len(grid.kinds) - grid.kinds[::-1].index("train")
        kinds[tells] = grid.kinds[:last].count("evaluate")  # M is chosen afterwards
        assert solution.status == "met"
        assert grid.kinds.count("train") == 3 * 25
    assert kinds[False] - kinds[True] == 3 * 24


def test_clients_are_known_by_their_names_and_start_again_under_a_new_node():
    class Restarts(AppGrid):
        def deliver(self, message):
            node = message.metadata.dst_node_id
            reply = super().deliver(message)
            if message.metadata.message_type == "train" and node == 20:
                self.nodes[77] = self.nodes.pop(20)
            return reply

    names = ["north", "south", "west"]
    fair = FairFedAvg(pffl.PerSilo(0.62), **KNOWN, silos=["west", "north", "south"])
    solution, _ = run(fair, Restarts(client(), names=names))
    assert list(solution.cells.index) == ["west", "north", "south"]
    absent = FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN, silos=["east"])
    with raises(FederationError, "sites-missing", "east", "north"):
        run(absent, AppGrid(client(), names=names))
    with raises(FederationError, "repeated-name"):
        run(
            FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN),
            AppGrid(client(), names=["north", "north", "south"]),
        )


def test_a_client_that_does_not_speak_is_named_with_what_it_lacks():
    silent, mute = client(record=False), client(evaluate=False)

    class Fails(AppGrid):
        def deliver(self, message):
            return self.failed(message, 2, "<class 'KeyError'>:<'lr'>")

    fair = FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN)
    one = AppGrid(client())
    one.nodes[21] = (mute, one.nodes[21][1])
    for grid, *lacks in (
        (AppGrid(silent), "3 of 3", "20, 21, 22", "sums.record()"),
        (AppGrid(mute), "3 of 3", "`@app.evaluate()`"),
        (Fails(client()), "3 of 3", "KeyError"),
        (one, "1 of 3", "node 21", "`@app.evaluate()`"),
    ):
        with raises(FederationError, "node-failed", *lacks):
            run(fair, grid)


def test_evaluation_of_other_rows_than_those_of_training_is_refused():
    class Confused(AppGrid):
        """Counts the training rows once, and other rows ever after."""

        def deliver(self, message):
            if "train" in self.kinds:
                _, config = self.nodes[message.metadata.dst_node_id]
                config["partition-id"] = 9
            return super().deliver(message)

    fair = FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN)
    with raises(FederationError, "node-failed", "sums.pick"):
        run(fair, Confused(client(tells=True), names=["north", "south", "west"]))


def test_the_same_client_works_under_any_strategy():
    grid = AppGrid(client(tells=True))
    FedAvg().start(grid, first(), 2, 60, ConfigRecord({"rate": 1.0}))
    message = Message(RecordDict({"config": ConfigRecord({})}), 20, "train")
    assert group_weights(message, [0, 1], [1, 1]).tolist() == [1.0, 1.0]
    sums = GroupSums(message)
    assert sums.add([1.0, 3.0], [0, 1], [0, 1]) == 2.0
    assert dict(sums.record()) == {}


def test_a_model_that_runs_away_is_called_so():
    fair = FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN)

    class Away(AppGrid):
        def deliver(self, message):
            reply = super().deliver(message)
            if message.metadata.message_type == "train" and len(self.configs) > 12:
                array = np.full((2, 4), np.nan, np.float32)
                record = first()
                record["w"] = type(record["w"])(array)
                reply.content["arrays"] = record
            return reply

    solution, result = run(fair, Away(client()))
    assert solution.status == "diverged"
    assert np.isfinite(result.arrays["w"].numpy()).all()


def problem_of(federation, constraint, model):
    options = Options(weighting="rows")
    return prepare(Local(federation), constraint, model, pffl.PFFL(), options, 0)[0]


def order(**given):
    schema = {"attributes": [("group", GROUPS)], "labels": LABELS, "split": "test"}
    return Order(**{**schema, "weights": [[1.0, 2.0], [3.0, 4.0]], **given})


def asked(one: Order) -> Message:
    return Message(
        RecordDict({"config": ConfigRecord({KEY: one.text})}), 20, "evaluate"
    )


def test_sums_are_those_of_a_plain_loop():
    x, y, group = people(0, "test", 300)
    w = np.array([[0.0, 0, 0, 0], [2.0, -1, 1, 0.3]])
    loss = losses_of(w, x, y)
    M, trials, bets = 3.0, [5.0, 8.0], [[0.2, 0.5], [0.1, 0.4]]
    one = order(
        cells=[[1, 1, 0, 0], [0, 0, 1, 1]], loss_bound=M, trials=trials, bets=bets
    )
    sums = GroupSums(asked(one))
    for rows in np.array_split(np.arange(300), 7):
        sums.add(loss[rows], group[rows], y[rows])
    member = np.array(one.cells, bool)
    cells = Cells(("a", "b"), np.zeros(2), member, np.full(2, -1))
    query = replace(one.query(), task=replace(one.query().task, cells=cells))
    total, _ = read_sums(sums.record(), query)
    p = np.exp(-loss)
    cut = {m: -np.log(np.clip(p, np.exp(-m), 1 - np.exp(-m))) for m in (M, *trials)}
    right = (scores_class(w, x) == y).astype(float)
    for g in (0, 1):
        here = group == g
        np.testing.assert_allclose(total.cells[g, 0], here.sum())
        np.testing.assert_allclose(
            total.column("loss", of="cells")[g], loss[here].sum()
        )
        found = total.column("bounded_loss", of="cells")[g]
        np.testing.assert_allclose(found, cut[M][here].sum())
        np.testing.assert_allclose(
            total.column("correct", of="cells")[g], right[here].sum()
        )
        for j, trial in enumerate(trials):
            np.testing.assert_allclose(total.trials[g, j], cut[trial][here].sum())
        for j, bet in enumerate(bets[g]):
            u = cut[M][here] / M
            np.testing.assert_allclose(total.below[g, j], np.log(1 - bet * u).sum())
    np.testing.assert_allclose(total.risk, loss.mean())


def scores_class(w, x):
    return (x @ w.T).argmax(axis=1)


def test_small_groups_are_withheld_and_none_can_be_found_by_subtraction():
    sums = GroupSums(asked(order()))
    counts = {(0, 0): 40, (0, 1): 25, (1, 0): 12, (1, 1): 3}
    for (group, label), n in counts.items():
        sums.add(np.full(n, 0.5), np.full(n, group), np.full(n, label))
    told, hidden = read_sums(sums.record(), order().query())
    assert told.column("count").tolist() == [40, 25, 0, 0]  # the next smallest, too
    assert told.column("loss").tolist() == [20.0, 12.5, 0.0, 0.0]
    assert hidden == 2


def test_what_is_no_batch_is_refused():
    sums = GroupSums(asked(order()))
    with raises(DataError, "unknown-group"):
        sums.add([1.0], [2], [0])
    with raises(DataError, "wrong-length", "2", "1"):
        sums.add([1.0, 2.0], [0], [0])
    with raises(DataError, "wrong-length", "1", "2"):
        sums.add([1.0], [0], [0, 1])
    with raises(DataError, "negative-loss"):
        sums.add([-1.0], [0], [0])
    with raises(UsageError, "needs-labels", "labels"):
        group_weights(asked(order()), [0])
    three = GroupSums(asked(order(labels=["x", "y", "z"])))
    with raises(UsageError, "needs-predictions"):
        three.add([1.0], [0], [2])
    assert group_weights(asked(order()), ["b", "a"], ["yes", "no"]).tolist() == [4, 1]
    old = json.dumps({**json.loads(order().text), "version": 9})
    message = Message(RecordDict({"config": ConfigRecord({KEY: old})}), 20, "train")
    with raises(pffl.errors.PFFLError, "other-version", "9"):
        group_weights(message, [0], [0])


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
    with raises(pffl.errors.PFFLError, code, named):
        FairFedAvg(known.pop("constraint"), **known)


@pytest.mark.parametrize("kind", ["bgl", "cbgl", "per-silo"])
def test_weights_of_examples_are_those_of_the_objective(kind):
    """c_i(λ) over its mean: by hand, row by row."""
    federation = make_federation(sizes=(60, 40, 90))
    constraint = {
        "bgl": pffl.BoundedGroupLoss(0.6),
        "cbgl": pffl.ConditionalBoundedGroupLoss(0.6),
        "per-silo": pffl.PerSilo(0.6),
    }[kind]
    problem = problem_of(federation, constraint, pffl.LogisticRegression())
    rng = np.random.default_rng(0)
    lam = rng.random(problem.n_cells)
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


def test_bounded_probabilities_are_what_the_certificate_speaks_of():
    p = np.array([[0.001, 0.999], [0.4, 0.6]])
    cut = bounded(p, 3.0)
    assert -np.log(cut).max() <= 3.0
    np.testing.assert_allclose(cut[1], p[1])


def test_the_evidence_is_that_of_an_engine_that_sees_the_rows():
    """The same sums, asked of a Local engine about the same logistic regression."""
    schema_rows = [people(k, s) for k in range(3) for s in ("train", "test")]
    from pffl.data import Attribute, Federation, Rows, Schema, Silo

    schema = Schema(
        ("x0", "x1", "x2", "one"), (Attribute("group", tuple(GROUPS)),), tuple(LABELS)
    )
    silos = [
        Silo(
            f"partition {k}",
            k,
            {
                s: Rows.of(*schema_rows[2 * k + j])
                for j, s in enumerate(("train", "test"))
            },
        )
        for k in range(3)
    ]
    federation = Federation(schema, tuple(silos))
    solution, result = run(FairFedAvg(pffl.BoundedGroupLoss(BOUND), **KNOWN))
    e, w = solution.evidence, result.arrays["w"].numpy().astype(float)
    bare = pffl.LogisticRegression(intercept=False, standardize=False)
    problem = problem_of(federation, pffl.BoundedGroupLoss(BOUND), bare)
    inputs = problem.task.model.inputs
    own = (w[1] - w[0]) * inputs.scale
    assert not inputs.mean.any()
    bets = np.array(e.heldout.bets)
    M = e.terms.loss_bound
    asked_ = Evaluate(problem.task, own, "test", M, bets=bets)
    total = Local(federation).ask(asked_)
    np.testing.assert_allclose(
        e.heldout.of_cells("loss"), total.column("loss", of="cells"), rtol=1e-6
    )
    np.testing.assert_allclose(np.array(e.heldout.below), total.below, rtol=1e-6)
    correct = total.column("correct", of="cells")
    np.testing.assert_array_equal(e.heldout.of_cells("correct"), correct)
    np.testing.assert_allclose(e.heldout.risk, total.risk, rtol=1e-6)
