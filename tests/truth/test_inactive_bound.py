"""An inactive bound changes nothing: the iterates are those without bounds, to the bit.

And an active one is still met, in as many rounds as apps have. Methods whose papers
weigh every cell from the first round on say so, and come as near as they promise.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.methods import METHODS

LOOSE = [
    pffl.BoundedGroupLoss(5.0),
    pffl.ConditionalBoundedGroupLoss(9.0),
    pffl.BoundedGroupLoss(5.0) & pffl.PerSilo(7.0),
]


#: How far the model may be from that without bounds. Bounds of methods that are not
#: here change nothing, up to the order in which rows are added up. Algorithm 1 as
#: printed, and the same with silos' own bounds, begin at λ = B/(Z+1) and leave it at a
#: rate of e^(η r): what is left of it after all rounds is nothing. Exponentiated
#: gradient returns the mean over all rounds, the first among them.
AS_PRINTED = {"pffl": 1e-6, "local-bgl": 1e-6, "reductions": 1e-2}
MINIMAX = {"fedminmax"}  # needs cells, and lowers the worst whatever its bound is
SHORT = {
    "fcfl": {"stage_one_rounds": 4, "stage_two_rounds": 2},
    **{name: {"dual_rounds": 30} for name in ("pffl", "local-bgl")},
}


@pytest.mark.parametrize("constraint", LOOSE, ids=["bgl", "cbgl", "joined"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method(name: str, constraint: Any) -> None:
    kind = METHODS[name]
    few = {"rounds": 5} if "rounds" in kind.__dataclass_fields__ else {}
    made: Any = kind
    method = made(**SHORT.get(name, few))
    people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], random_state=0)
    looser = None if name not in MINIMAX else pffl.BoundedGroupLoss(4.0)
    if name in MINIMAX and not isinstance(constraint, pffl.BoundedGroupLoss):
        pytest.skip("its cells are those of the constraint")
    with_bounds, without = (
        pffl.solve(people, one, method=method, random_state=0)
        for one in (constraint, looser)
    )
    far = np.abs(with_bounds.w - without.w).max()
    if name in AS_PRINTED:
        assert "inactive" in (kind.__doc__ or "")
        assert 0 < far < AS_PRINTED[name]
        return
    assert name in MINIMAX or not with_bounds.multipliers.any()
    assert far <= 1e-12


@pytest.fixture
def flower() -> Iterator[Any]:
    pytest.importorskip("flwr")
    from tests.deploy import apps

    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield apps
    logger.setLevel(before)


STRATEGIES = {
    "FedAvg": {},
    "FedProx": {"proximal_mu": 0.1},
    "FedAdam": {},
    "FedYogi": {},
    "FedAvgM": {"server_momentum": 0.9},
}


@pytest.mark.parametrize("constraint", LOOSE, ids=["bgl", "cbgl", "joined"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_over_strategies_of_flowers(
    strategy: str, constraint: Any, flower: Any
) -> None:
    from flwr.app import ConfigRecord
    from flwr.serverapp import strategy as strategies

    from pffl.deploy import BoundedGroupLossMixin

    base, more = getattr(strategies, strategy), STRATEGIES[strategy]
    fair = type("Fair", (BoundedGroupLossMixin, base), {})
    own = {"groups": flower.GROUPS, "labels": flower.LABELS, "iterate": "last"}

    def run(one: Any, grid: Any) -> Any:
        config = ConfigRecord({"rate": 1.0})
        random.seed(0)  # Flower draws in which order updates are added up
        return one.start(grid, flower.first(), 8, 60, config).arrays["w"].numpy()

    plain = run(base(fraction_evaluate=0.0, **more), flower.AppGrid(flower.client()))
    bounded = fair(constraint, **own, fraction_evaluate=0.0, **more)
    found = run(bounded, flower.AppGrid(flower.client()))
    np.testing.assert_array_equal(
        found, plain.astype(found.dtype)
    )  # of FedAdam, 64 bits
    for row in bounded.solution.rows:
        assert not row.multipliers.any()


def test_loops_in_torch() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    from tests.loaders import Net, Words

    torch.set_num_threads(1)
    parts = {f"site {k}": Words(k) for k in range(3)}
    rounds = 6

    def sgd(module: Any) -> Any:
        return torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.5)

    # FedAvg by hand, one batch a silo: mean loss, one step, mean of the states.
    net = Net()
    for _ in range(rounds):
        total: dict[str, Any] = {}
        for rows in parts.values():
            own = copy.deepcopy(net).train()
            optimizer = sgd(own)
            (batch,) = DataLoader(rows, batch_size=len(rows))
            logits = own(batch["input_ids"], batch["more"]).logits
            loss = torch.nn.functional.cross_entropy(
                logits, batch["labels"], reduction="none"
            )
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
            for name, value in own.state_dict().items():
                part = len(rows) * value.double().numpy()
                total[name] = total.get(name, 0.0) + part
        mean = {n: t / sum(map(len, parts.values())) for n, t in total.items()}
        state = net.state_dict()
        net.load_state_dict(
            {
                n: torch.as_tensor(np.asarray(m)).to(state[n].dtype)
                for n, m in mean.items()
            }
        )
    for constraint in LOOSE:
        solution = pffl.solve_loaders(
            Net(),
            {n: DataLoader(rows, batch_size=len(rows)) for n, rows in parts.items()},
            constraint,
            groups=["a", "b"],
            labels=["no", "yes"],
            optimizer=sgd,
            rounds=rounds,
            iterate="last",
        )
        arrays = solution.model.arrays(solution.w)
        for name, value in net.state_dict().items():
            if value.is_floating_point():
                # Slopes of the loss are taken in doubles, then rounded to float32.
                np.testing.assert_allclose(arrays[name], value, 1e-5, 1e-7, name)
        assert all(not row.multipliers.any() for row in solution.rows)
