"""`solve_loaders`: torch modules with their own loaders and optimisers."""

from __future__ import annotations

import numpy as np
import pytest

import pffl
from pffl import runs, verify
from pffl.errors import DataError, UsageError
from pffl.models import Network
from tests.raising import raises

GROUPS, LABELS = ["a", "b"], ["no", "yes"]
BOUND = pffl.BoundedGroupLoss(0.7)


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global torch, nn, DataLoader, Dataset, Net, Words, people
    pytest.importorskip("torch", reason="networks need the extra 'torch'")
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    from tests.loaders import Net, Words, people


@pytest.fixture(autouse=True)
def _one_thread():
    many = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(many)


def silos(test=True):
    made = {f"site {k}": (Words(k), Words(k, test=True)) for k in range(3)}
    return made if test else {name: rows[0] for name, rows in made.items()}


def solve(module=None, rows=None, constraint=BOUND, **given):
    given = {"groups": GROUPS, "labels": LABELS, "rounds": 12, **given}
    made = silos() if rows is None else rows
    return pffl.solve_loaders(module or Net(), made, constraint, **given)


def means_of(solution, module):
    state = solution.model.arrays(solution.w)
    module.load_state_dict({n: torch.as_tensor(a) for n, a in state.items()})
    module.eval()
    parts = [people(k) for k in range(3)]
    x, y, group = (np.concatenate(c) for c in zip(*parts, strict=True))
    x = torch.tensor(x)
    with torch.no_grad():
        z = module(x[:, :2], x[:, 2:]).logits
        loss = nn.functional.cross_entropy(z, torch.tensor(y), reduction="none").numpy()
    return [loss[group == g].mean() for g in (0, 1)]


def sgd(module):
    kept = [p for p in module.parameters() if p.requires_grad]
    return torch.optim.SGD(kept, lr=0.1)


def test_bounds_are_met_with_any_optimiser_dict_inputs_and_frozen_layers(tmp_path):
    plain = solve(multiplier_bound=1e-9, optimizer=sgd)
    assert max(means_of(plain, Net())) > 0.85
    module = Net()
    before = {n: t.clone() for n, t in module.state_dict().items()}
    solution = solve(module, optimizer=sgd)
    assert solution.status == "met", solution
    by_hand = means_of(solution, Net())
    assert max(by_hand) <= 0.7
    np.testing.assert_allclose(solution.evidence.seen.own_means, by_hand, rtol=1e-4)
    state = solution.model.arrays(solution.w)
    np.testing.assert_array_equal(state["frozen.weight"], before["frozen.weight"])
    for name, tensor in module.state_dict().items():  # it was not changed
        assert torch.equal(tensor, before[name])
    place = runs.save(solution, tmp_path / "run")
    assert all(check.agrees for check in verify(place))


def test_validation_rows_move_the_multipliers():
    """Rows of others with turned labels: the bound is met on one's own, λ is not 0."""

    class Turned(Words):
        def __getitem__(self, i):
            row = dict(super().__getitem__(i))
            row["labels"] = 1 - row["labels"]
            return row

    loose, sums = pffl.BoundedGroupLoss(0.77), []
    for made in (lambda k: (), lambda k: (Turned(k, test=True),)):
        rows = {f"site {k}": (Words(k), Words(k, test=True), *made(k)) for k in (0, 1)}
        solution = solve(rows=rows, constraint=loose, rounds=5)
        assert max(row.violation.max() for row in solution.rows) < 0
        sums.append(sum(row.multipliers.sum() for row in solution.rows))
    assert sums[0] == 0.0
    assert sums[1] > 0.1


def test_the_same_seed_gives_the_same_model():
    given = {"optimizer": sgd, "rounds": 2, "iterate": "last"}
    one, two = solve(**given).w, solve(**given).w
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, solve(**given, random_state=1).w)


def test_tuples_loaders_and_a_function_that_takes_batches_apart():
    class Pairs(Words):
        def __getitem__(self, i):
            return self.x[i], self.y[i], self.group[i]

    plain = nn.Sequential(nn.Linear(4, 2))
    loaders = {
        f"site {k}": DataLoader(Pairs(k), batch_size=40, shuffle=True) for k in range(3)
    }
    solution = solve(plain, loaders, rounds=3)
    assert solution.rounds == 3
    assert solution.as_dict()["verdicts"]["test"]["verdict"] == "not measured"
    odd = {name: DataLoader(Words(k), 40) for k, name in enumerate(loaders)}

    def split(batch):
        x = torch.cat([batch["input_ids"], batch["more"]], 1)
        return x, batch["labels"], batch["group"]

    assert solve(plain, odd, rounds=2, split=split).rounds == 2


def test_wrong_batches_are_named():
    plain = nn.Linear(4, 2)
    rows = [(people(0)[0][i], people(0)[1][i]) for i in range(50)]
    with raises(DataError, "bad-batch"):
        solve(plain, {"one": rows_of(rows)})
    many = [(*row, 5) for row in rows]
    with raises(DataError, "unknown-group", "0", "1"):
        solve(plain, {"one": rows_of(many)})
    with raises(UsageError, "no-silos"):
        solve(plain, {})
    with raises(UsageError, "wrong-shape"):
        solve(nn.Linear(4, 3), {"one": rows_of([(*row, 0) for row in rows])})
    dropping = DataLoader(rows_of([(*r, 0) for r in rows]), 32, shuffle=True)
    sampler = torch.utils.data.RandomSampler(dropping.dataset, replacement=True)
    drawn = DataLoader(dropping.dataset, 32, sampler=sampler)
    with raises(DataError, "changed-rows"):
        solve(plain, {"one": drawn}, pffl.BoundedGroupLoss({"a": 0.9}))


def rows_of(rows):
    class Listed(Dataset):
        def __len__(self):
            return len(rows)

        def __getitem__(self, i):
            return rows[i]

    return Listed()


def test_a_numeric_target_and_a_network():
    class Numbers(Words):
        def __getitem__(self, i):
            return self.x[i], np.float32(self.x[i, 0] * 2), self.group[i]

    rows = {f"site {k}": (Numbers(k), Numbers(k, test=True)) for k in range(2)}
    net = Network(nn.Linear(4, 1), "squared")
    given = {"labels": None, "rounds": 8, "optimizer": sgd}
    solution = solve(net, rows, pffl.BoundedGroupLoss(0.5), **given)
    assert solution.status in ("met", "not converged")
    assert max(row.train_loss for row in solution.cell_results) < 0.5
