"""Bounds on error rates: what is trained, what is certified, and how often it is false.

The Monte Carlo test fixes a path of models whose true rates are known, draws
calibration rows anew, and counts how often a model is certified that breaks a bound.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

import pffl
from pffl.constraints import ErrorRate, FalseNegativeRate, FalsePositiveRate
from pffl.errors import PFFLError
from tests import inside
from tests.raising import raises

GOALS = {
    "fnr": FalseNegativeRate,
    "fpr": FalsePositiveRate,
    "error": ErrorRate,
}
BOUNDS = {"fnr": 0.35, "fpr": 0.3, "error": 0.4}


def people(rows=6000, groups=("f", "m"), seed=0):
    found = pffl.datasets.synthetic(
        rows, silos=3, groups=list(groups), random_state=seed
    )
    return found.with_calibration(0.3)


@pytest.fixture(scope="module")
def solutions():
    here = people()
    return here, {
        goal: pffl.solve(here, kind(BOUNDS[goal]), certify=True, random_state=0)
        for goal, kind in GOALS.items()
    }


def rates_of(solution, federation, split):
    """The rates of each group by scikit-learn, from rows and predictions alone."""
    predictor, found = solution.predictor, {}
    rows = [silo.rows(split) for silo in federation.silos]
    group = np.concatenate([part.group for part in rows])
    y = np.concatenate([part.y for part in rows]).astype(int)
    X = np.concatenate([part.X for part in rows])
    model = predictor.model
    guess = np.asarray(model.classes(predictor.w, model.inputs.apply(X))).astype(int)
    for a, name in enumerate(federation.schema.groups):
        mine = group == a
        tn, fp, fn, tp = confusion_matrix(y[mine], guess[mine]).ravel()
        found[name] = {
            "fnr": fn / (fn + tp),
            "fpr": fp / (fp + tn),
            "error": (fp + fn) / mine.sum(),
        }
    return found


@pytest.mark.parametrize("goal", GOALS)
def test_rates_are_scikit_learns(solutions, goal):
    here, found = solutions
    solution = found[goal]
    for split, column in (("train", "train_loss"), ("test", "test_loss")):
        for name, rates in rates_of(solution, here, split).items():
            cell = next(c for c in solution.cells.index if c.startswith(name))
            assert solution.cells.loc[cell, column] == pytest.approx(
                rates[goal], abs=1e-12
            )


@pytest.mark.parametrize("goal", GOALS)
def test_the_shipped_model_is_the_last_one_certified(solutions, goal):
    solution = solutions[1][goal]
    path, bound = solution.evidence.path, BOUNDS[goal]
    shown = []
    for one in path.candidates:
        count, right = (
            np.array(one.calibration.cells[c]) for c in ("count", "correct")
        )
        # Clopper and Pearson, by its definition: Pr[Bin(n, bound) <= k] <= 5 %.
        from scipy.stats import binom

        shown.append(bool((binom.cdf(count - right, count, bound) <= 0.05).all()))
    last = shown.index(False) - 1 if False in shown else len(shown) - 1
    assert path.chosen == last >= 0
    margins = [one.margin for one in path.candidates]
    assert margins == sorted(margins, reverse=True)
    verdict = solution.certificate.verdicts["new_people"]
    assert verdict["verdict"] == "certified"
    told = {
        "fnr": "false-negative rate",
        "fpr": "false-positive",
        "error": "error rate",
    }
    assert told[goal] in verdict["sentence"]
    assert not any("mean loss" in one["sentence"] for one in _verdicts(solution))


def _verdicts(solution):
    return solution.certificate.verdicts.values()


def test_no_sentence_says_certified_where_nothing_is():
    solution = pffl.solve(people(), ErrorRate(0.2), certify=True, random_state=0)
    assert solution.exit_code == 4
    assert solution.certificate.verdicts["new_people"]["verdict"] == "not certified"
    told = [*solution.certificate.notes, *(v["sentence"] for v in _verdicts(solution))]
    assert any("stand in for the bounds on the error rate" in text for text in told)
    assert not any("Certified:" in text or "is certified" in text for text in told)
    assert "within its bound" not in str(solution.certificate)


def test_a_bound_that_binds_nobody_changes_nothing():
    here = people()
    free = pffl.solve(here, None, random_state=0)
    loose = pffl.solve(here, FalseNegativeRate(0.9), certify=True, random_state=0)
    assert len(loose.evidence.path.candidates) == 1
    np.testing.assert_allclose(loose.w, free.w, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: ErrorRate(1.2), "wrong-value"),
        (lambda: FalseNegativeRate("auto"), "wrong-value"),
        (lambda: FalsePositiveRate(), "needs-bound"),
        (lambda: ErrorRate(0.3) & pffl.BoundedGroupLoss(0.6), "not-joinable"),
        (lambda: pffl.solve(people(600), ErrorRate(0.4)), "needs-certify"),
        (
            lambda: pffl.solve(
                people(600), FalseNegativeRate({"nobody": 0.3}), certify=True
            ),
            "unknown-cell",
        ),
        (lambda: pffl.feasible(people(600), ErrorRate(0.4)), "needs-certify"),
    ],
)
def test_refused(make, code):
    with raises(PFFLError, code):
        make()


def test_weights_are_refused():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    here = pffl.Federation.from_arrays(
        X,
        y,
        sensitive_features=rng.choice(["a", "b"], 300),
        silo=np.full(300, "s"),
        sample_weight=rng.uniform(0.5, 2, 300),
    ).with_calibration(0.3)
    with raises(PFFLError, "rates-uncounted"):
        pffl.solve(here, ErrorRate(0.6), certify=True)


def test_people_with_several_rows_certify_no_rate(solutions):
    """Where sites answer, only the sums tell how many people there are."""
    calibration = solutions[1]["fnr"].evidence.path.shipped.calibration
    assert inside.upper_rates(calibration, 0.05) is not None
    fewer = [n / 2 for n in calibration.people["count"]]
    several = replace(calibration, people={**calibration.people, "count": fewer})
    assert inside.upper_rates(several, 0.05) is None


def test_audits_bound_rates_too(solutions):
    here, found = solutions
    for bound, word in ((0.6, "certified"), (0.1, "not certified")):
        audit = pffl.audit(
            found["fnr"], here, FalsePositiveRate(bound), splits=("test",)
        )
        assert audit.certificate.verdicts["new_people"]["verdict"] == word
        assert "false-positive rate" in str(audit.certificate)


def test_a_monitor_watches_losses_and_no_rates(solutions):
    here, found = solutions
    with raises(PFFLError, "needs-bound"):
        pffl.monitor(found["fnr"], here, splits=("test",))
    watched = pffl.monitor(found["fnr"], here, splits=("test",), bound=2.0)
    assert watched.status == "no alarm"


def test_estimators_take_a_rate():
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(4000, 3)), rng.choice(["a", "b"], 4000, p=[0.3, 0.7])
    slope = np.where(group == "a", 0.5, 1.5)
    y = slope * X[:, 0] + X[:, 1] + rng.logistic(size=4000) > 0
    clf = pffl.FairClassifier(0.3, constraint="fnr", random_state=0)
    clf.fit(X, y, sensitive_features=group)
    new = clf.solution_.certificate.verdicts["new_people"]
    assert new["verdict"] == "certified"
    told = clf.certificate(X[:900], y[:900], sensitive_features=group[:900])
    assert told.verdicts["new_people"]["verdict"] == "certified"
    with raises(PFFLError, "not-met"):
        pffl.FairClassifier(0.2, constraint="error").fit(X, y, sensitive_features=group)


def test_forged_rates_are_found(tmp_path, solutions):
    from pffl._verify import judged, verify

    solutions[1]["fnr"].save(tmp_path / "run")
    path = tmp_path / "run" / "certificate.json"
    honest = json.loads(path.read_text())
    assert judged(verify(path)).startswith("consistent")

    def forged(change):
        told = json.loads(path.read_text())
        change(told["evidence"])
        other = tmp_path / "forged.html"
        mark = '<script type="application/json" id="certificate">'
        other.write_text(f"{mark}{json.dumps(told)}</script>")
        return judged(verify(other))

    def later(e):
        e["path"]["chosen"] = len(e["path"]["candidates"]) - 1

    def better(e):
        for one in e["path"]["candidates"]:
            cells = one["calibration"]["cells"]
            cells["correct"] = cells["count"]

    def tighter(e):
        for cell in e["cells"]:
            cell["bound"] = 0.1

    def loss(e):
        e["terms"]["goal"] = "loss"

    for change in (later, better, tighter, loss):
        assert forged(change).startswith("NOT VERIFIED"), change.__name__
    assert honest["figures"]["goal"] == "fnr"


# Monte Carlo


def rates_of_path(groups, models, near, seed):
    """True rates of a path, shape (models, groups): they grow, with some noise."""
    rng = np.random.default_rng(seed)
    base = np.linspace(0.5, 1.3, models)[:, None] * near
    return np.clip(base * rng.uniform(0.9, 1.1, (models, groups)), 0.01, 0.99)


def patterns(rates):
    """Who is misjudged by which model: patterns of each group, and their shares.

    A model misjudges a person with a score below its rate: the models of a path err
    about the same people.
    """
    for own in rates.T:
        ends = np.concatenate([[0.0], np.sort(own), [1.0]])
        yield ((ends[1:] + ends[:-1]) / 2)[:, None] < own, np.diff(ends)


def miss_and_power(groups, rows, draws, seed=0, delta=0.05, models=12, bound=0.3):
    """Return how often a model that breaks a bound is certified, and any at all.

    The worst case: models before the first one that breaks a bound are safe, and it
    does so by a hair, in one group; the others are far below.
    """
    rates = rates_of_path(groups, models, bound, seed)
    first = int(np.argmin((rates <= bound).all(axis=1)))
    own = np.full(groups, 0.5 * bound)
    own[rates[first].argmax()] = bound + 1e-9
    rates[:first], rates[first] = 0.7 * rates[:first], own
    drawn = list(patterns(rates))
    rng, bounds = np.random.default_rng(seed + 1), np.full(groups, bound)
    ones = np.ones(groups)
    blank = inside.Sample([""], 0.0, 0.0, 1.0, {}, {})
    missed = shown = 0
    for _ in range(draws):
        wrong = np.stack(
            [rng.multinomial(rows, share) @ cut for cut, share in drawn], axis=1
        )
        count = (rows * ones).tolist()
        candidates = []
        for one in wrong:
            cells = {"count": count, "weight": count, "correct": (rows - one).tolist()}
            held = replace(blank, cells=cells, strata=cells)
            candidates.append(inside.Candidate(0.0, [], 1.0, held, held))
        found = inside.certified_models(candidates, bounds, delta, rates=True)
        last = sum(found) - 1
        shown += last >= 0
        missed += last >= 0 and bool((rates[last] > bound).any())
    return missed / draws, shown / draws


SETTINGS = [
    *((2, 30), (2, 300), (2, 3000)),
    *((4, 100), (4, 1000)),
    *((8, 30), (8, 300), (8, 3000)),
]


def check(groups, rows, draws):
    missed, power = miss_and_power(groups, rows, draws, seed=groups * rows)
    print(f"{groups} groups, {rows:,} rows: missed {missed:.4f}, certified {power:.3f}")
    assert missed <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / draws)
    return power


def test_misses_in_few_draws():
    assert check(4, 1000, 250) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "rows"), SETTINGS)
def test_misses(groups, rows):
    power = check(groups, rows, 2000)
    assert power > (0.9 if rows >= 300 else 0.0)
