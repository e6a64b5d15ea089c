"""CelebA's row of Figure 2, for those who have the files.

Two studies on 472 silos of people: the paper's network on pictures of 32 × 32, and a
logistic regression on the pixels of 24 × 24, solved. Settings are those at which the
network trains on silos of about twenty pictures. Its bounds are parts of FedAvg's worst
training loss, and the paper's; λ looks at training pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pffl
from pffl import methods
from pffl.methods import FirstOrder
from pffl.models import LogisticRegression, Network
from reproduction import studies
from reproduction.bench import Bench, Model
from reproduction.studies import Panels, Sources, Study, rows

SILOS = 472
TRAINING = {
    "dual_rounds": 24,
    "rounds_per_dual": 5,
    "dual_step_size": 5.0,
    "local_steps": 4,
    "batch_size": 10,
    "step_size": 0.1,
    "participation": 0.1,
}
NO_PRICE = 1e-9  # B at which Algorithm 1 is FedAvg, with the same batches and clients
PARTS = (0.5, 0.7, 0.9)  # of FedAvg's worst training loss
PAPER = (0.1, 0.2, 0.3)
PIXEL_PRICE = 10.0


def network_panels(bench: Bench, **shorter: Any) -> Panels:
    """Train the network: FedAvg, weighted, and PFFL at twelve points."""
    settings = TRAINING | shorter
    rounds = settings["dual_rounds"] * settings["rounds_per_dual"]
    shared = {k: v for k, v in settings.items() if "dual" not in k}
    weighted = methods.GroupWeighted(rounds=rounds, **shared)

    def trained(notion: str, bound: float, price: float) -> Model:
        own = methods.PFFL(multiplier_bound=price, iterate="recent", **settings)
        return bench.trained(notion, [own], bound)[0]

    out: Panels = {}
    for notion in studies.GROUP_NOTIONS:
        fedavg = trained(notion, 0.0, NO_PRICE)
        high = bench.worst_training_loss(notion, fedavg)
        points = [(part * high, price) for part in PARTS for price in (0.3, 1.0, 5.0)]
        points += [(bound, 1.0) for bound in PAPER]
        out[notion] = {
            "FedAvg": rows([fedavg]),
            "weighted FedAvg": rows(bench.trained(notion, [weighted])),
            "PFFL": rows([fedavg, *(trained(notion, *point) for point in points)]),
            "constant guess": [bench.constant(notion)],
        }
    return out


def draw(size: int, **options: Any) -> Callable[[Sources, int], pffl.Federation]:
    """Join people into silos and split them by person, anew for each seed."""

    def drawn(sources: Sources, seed: int) -> pffl.Federation:
        given = {"silos": SILOS, "least_images": 1} | options
        given["clients"] = sources.people
        return pffl.datasets.celeba(
            sources.celeba,
            size=size,
            validation_fraction=studies.VALIDATION,
            random_state=seed,
            **given,
        )

    return drawn


def cnn(size: int, width: int = 32) -> Callable[[float], Any]:
    """Return what makes the paper's network."""

    def model(_: float) -> Any:
        from pffl.models import celeba_cnn

        return Network(celeba_cnn(size, width=width))

    return model


STUDIES = (
    Study(
        "celeba", "CelebA (gender), network", 3, draw(32), network_panels, model=cnn(32)
    ),
    Study(
        "celeba-pixels",
        "CelebA (gender), logistic",
        3,
        draw(24),
        lambda bench: studies.exact_panels(bench, PIXEL_PRICE),
        model=lambda _: LogisticRegression(l2=0.01),
        solver=FirstOrder,
    ),
)
