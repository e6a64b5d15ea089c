"""What is run: data sets, seeds, and the models that each method may choose from.

A study draws its data with many seeds and trains the same lists of models on each draw.
Its record keeps, for each draw, panel and method, one row for each model: error and
measure on validation rows, error and measure on test rows. Figures and words follow
from the records alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pffl
from pffl import methods
from pffl.methods import Exact
from reproduction.bench import (
    L2,
    Bench,
    Model,
    Row,
    in_two_groups,
    logistic,
    whole,
)
from reproduction.fedfb import with_groups_as_inputs

VALIDATION = 0.2
POINTS, MORE = 15, 8  # of a path of bounds, and more in its upper quarter
DEAR = 500.0  # B along a path: the largest of the paper
RIDGES = (0.0001, 0.01, 0.1, 1.0)  # tried in addition to L2 where the ridge is searched
PRICES = (0.1, 0.5, 1.0, 5.0, 10.0, 100.0, 200.0, 500.0)  # B of the paper's grid
ZETAS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  # ζ of the paper's grid: the first n
BOUNDS = {
    "compas": {"bgl": 5, "cbgl-y1": 5, "cbgl-y0": 4, "silos": 5},
    "acs": {"bgl": 6, "cbgl-y1": 6, "cbgl-y0": 5},
}
GROUP_NOTIONS = ("bgl", "cbgl-y1", "cbgl-y0")
LOCAL = {  # local BGL: which bounds of the path, and B; most of them near FedAvg
    "compas bgl": [(-1, b) for b in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)],
    "compas": [
        *((i, b) for i in (1, 2, 3, 4) for b in (0.2, 1.0, 5.0)),
        *((i, b) for i in (5, 6) for b in (0.2, 0.5)),
    ],
    "acs bgl": [(-1, b) for b in (0.05, 0.2, 0.5, 1.0)],
}
QS = (0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
ALPHAS = (0.01, 0.05, 0.1, 0.3, 1.0, 2.0)
GAPS = (0.0, 0.01, 0.03, 0.1, 0.3)
MOMENTUM = {"server": "momentum", "server_momentum": 0.9}
Panels = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Sources:
    """Files that a reader has: an ACS extract or folder, and CelebA's folder.

    `people` is how many people of CelebA are drawn; None for all.
    """

    acs: str | None = None
    acs_year: int = 2024
    celeba: str | None = None
    people: int | None = None


@dataclass(frozen=True)
class Study:
    """A data set with its seeds, and what is run on each draw.

    `share` is the share of people that two draws have in common.
    """

    name: str
    title: str
    seeds: int
    draw: Callable[[Sources, int], pffl.Federation]
    panels: Callable[[Bench], Panels]
    share: Callable[[Sources], float] = lambda _: 1.0
    model: Callable[[float], Any] = logistic
    solver: Any = Exact


# Lists of models


def bounds_of(high: float, low: float, points: int = POINTS) -> list[float]:
    """Return bounds from FedAvg's own worst loss to the smallest possible one.

    They are closer together at both ends.
    """
    u = np.linspace(0.0, 1.0, points)
    return [float(b) for b in high - (high - low) * u * u * (3 - 2 * u)]


def rows(models: Iterable[Model], measure: str = "worst") -> list[Row]:
    """Return the rows of some models, without repetitions."""
    return [list(row) for row in dict.fromkeys(tuple(m.row(measure)) for m in models)]


def upper_quarter(bounds: list[float], more: int = MORE) -> list[float]:
    """Return further bounds near FedAvg's own, where little error is paid."""
    high, low = bounds[0], bounds[-1]
    return [float(b) for b in np.linspace(high, high - (high - low) / 4, more + 1)[1:]]


def path(
    bench: Bench,
    notion: str,
    price: float = DEAR,
    points: int = POINTS,
    more: int = MORE,
) -> tuple[dict[str, Any], list[float], list[Model]]:
    """Solve FedAvg, and PFFL along a path of bounds.

    Returns the panel so far, the bounds of the whole path, and the models of all.
    """
    fedavg = bench.fedavg(notion)
    high = bench.worst_training_loss(notion, fedavg)
    least = bench.exact(notion, [(0.0, price)])[0]
    bounds = bounds_of(high, bench.worst_training_loss(notion, least), points)
    models = bench.exact(notion, [(bound, price) for bound in bounds])
    upper = upper_quarter(bounds, more)
    models += bench.exact(notion, [(bound, price) for bound in upper])
    panel = {
        "FedAvg": rows([fedavg]),
        "PFFL": rows(models),
        "constant guess": [bench.constant(notion)],
        "range": whole([bounds[0], bounds[-1]]),
    }
    return panel, bounds, models


def group_panels(data: str, extra: int, algorithm_1: int) -> Callable[[Bench], Panels]:
    """Figures 1 and 2 and FedMinMax: bounds on groups, and on groups of one label.

    The first `extra` draws have the paper's grid and other ridges, too, and the first
    `algorithm_1` draws Algorithm 1.
    """

    def panel(bench: Bench, notion: str) -> dict[str, Any]:
        out, bounds, _ = path(bench, notion)
        out["weighted FedAvg"] = rows([bench.weighted(notion)])
        if bench.seed < extra:
            pairs, grid = bench.grid(notion, ZETAS[: BOUNDS[data][notion]], PRICES)
            few = [(bound, DEAR) for bound in bounds[::3]]
            other = [m for l2 in RIDGES for m in bench.exact(notion, few, l2=l2)]
            searched = [bench.fedavg(notion, l2) for l2 in RIDGES]
            out["PFFL, paper's grid"] = rows(grid)
            out["FedAvg, ridge searched"] = rows(searched)
            out["PFFL, ridge searched"] = rows(other)
        local = LOCAL.get(f"{data} {notion}", LOCAL.get(data, []))
        if local:
            models = bench.local(notion, [(bounds[i], price) for i, price in local])
            out["local BGL"] = rows(models)
        if notion == "bgl":
            out["FedMinMax"] = rows([bench.minimax(notion)])
        if bench.seed < algorithm_1:
            kept = pairs[:: max(1, len(pairs) // 5)]
            out["PFFL, same points"] = rows(bench.exact(notion, kept))
            out["Algorithm 1"] = rows(bench.trained(*as_printed(notion, kept)))
        return out

    return lambda bench: {n: panel(bench, n) for n in GROUP_NOTIONS}


def as_printed(
    notion: str, pairs: list[tuple[float, float]]
) -> tuple[str, list[methods.PFFL], list[float]]:
    """Return Algorithm 1 as the paper prints it, at pairs (bound, B)."""
    shared = {"local_steps": 5, "rounds_per_dual": 10, "iterate": "average"}
    trained = [
        methods.PFFL.within(
            1000, multiplier_bound=price, drift_correction=False, **shared
        )
        for _, price in pairs
    ]
    return notion, trained, [bound for bound, _ in pairs]


def exact_panels(bench: Bench, price: float = DEAR) -> Panels:
    """Figure 2 on many rows or inputs, solved at seven bounds."""
    out = {n: path(bench, n, price, 7, 0)[0] for n in GROUP_NOTIONS}
    for notion, panel in out.items():
        panel["weighted FedAvg"] = rows([bench.weighted(notion)])
    return out


def silo_panels(bench: Bench) -> Panels:
    """q-FFL: every silo is a group."""
    out, _, _ = path(bench, "silos")
    _, grid = bench.grid("silos", ZETAS[: BOUNDS["compas"]["silos"]], PRICES)
    qffl = [methods.QFFL.within(300, q=q, local_steps=1) for q in QS]
    out["PFFL, paper's grid"] = rows(grid)
    out["q-FFL"] = rows(bench.trained("silos", qffl))
    return {"silos": out}


def parity_panels(
    fcfl: dict[str, Any], gaps: tuple[float, ...], **more: Any
) -> Callable[[Bench], Panels]:
    """Figure 3: demographic parity and equal opportunity."""

    def panels(bench: Bench) -> Panels:
        cbgl = "cbgl"
        fedavg = bench.fedavg(cbgl)
        by_label, by_group = path(bench, cbgl)[2], path(bench, "bgl")[2]
        wider = Bench(with_groups_as_inputs(bench.federation), bench.seed)
        fair = [
            methods.FedFair.within(400, gap_bound=gap, dual_step_size=0.05, **more)
            for gap in GAPS
        ]
        fair_rows, constant = bench.trained(cbgl, fair), bench.constant(cbgl)
        out: Panels = {}
        for gap in ("dp", "eo"):
            fb = [
                methods.FedFB.within(400, notion=gap, alpha=a, **more) for a in ALPHAS
            ]
            bounded = [
                methods.FCFL.within(notion=gap, gap_bound=e, pooled=True, **fcfl)
                for e in gaps
            ]
            out[gap] = {
                "FedAvg": rows([fedavg], gap),
                "PFFL": rows(by_label, gap),
                "PFFL (BGL)": rows(by_group, gap),
                "FedFB": rows(bench.trained(cbgl, fb), gap),
                "FedFB, group as input": rows(wider.trained(cbgl, fb), gap),
                "FedFair": rows(fair_rows, gap),
                "FCFL": rows(bench.trained(cbgl, bounded), gap),
                "constant guess": [[constant[0], 0, constant[2], 0]],
            }
        return out

    return panels


# Data


def compas(_: Sources, seed: int) -> pffl.Federation:
    """Draw silos and splits of COMPAS anew."""
    return pffl.datasets.compas(random_state=seed, validation_fraction=VALIDATION)


def acs(people: int | None, two: bool = False) -> Callable[..., pffl.Federation]:
    """Draw people of each state anew, or split all of them anew."""

    def draw(sources: Sources, seed: int) -> pffl.Federation:
        federation = pffl.datasets.acs(
            source=sources.acs,
            year=sources.acs_year,
            people=people,
            random_state=seed,
            validation_fraction=VALIDATION,
        )
        return in_two_groups(federation, "White") if two else federation

    return draw


def acs_share(people: int) -> Callable[[Sources], float]:
    """Return the share of people that two draws of a state have in common.

    Two draws of n out of N share n/N of their people on average.
    """

    def share(sources: Sources) -> float:
        silos = acs(None)(sources, 0).silos
        sizes = np.array([sum(map(len, silo.splits.values())) for silo in silos])
        drawn = np.minimum(sizes, people)
        return float((drawn * drawn / sizes).sum() / drawn.sum())

    return share


STUDIES = {
    study.name: study
    for study in (
        Study("compas", "COMPAS (sex)", 100, compas, group_panels("compas", 60, 30)),
        Study(
            "acs",
            "ACS employment (race)",
            30,
            acs(1500),
            group_panels("acs", 10, 0),
            acs_share(1500),
        ),
        Study("acs-all", "ACS, all people", 3, acs(None), exact_panels),
        Study("compas-silos", "COMPAS (silos)", 60, compas, silo_panels),
        Study(
            "compas-parity",
            "COMPAS (sex)",
            30,
            compas,
            parity_panels({"budget": 300}, (0.02, 0.1)),
        ),
        Study(
            "acs-parity",
            "ACS employment (White or not)",
            30,
            acs(400, two=True),
            parity_panels({"budget": 400, "step_size": 0.5}, (0.01, 0.04), **MOMENTUM),
            acs_share(400),
        ),
    )
}
FIGURES = {
    "figure1": ("acs",),
    "figure2": ("compas", "acs", "acs-all"),
    "figure3": ("compas-parity", "acs-parity"),
    "fedminmax": ("compas", "acs"),
    "qffl": ("compas-silos",),
}


def run(
    study: Study, sources: Sources, folder: Path, seeds: int | None = None
) -> dict[str, Any]:
    """Run a study and write its record after every draw; a stopped one resumes."""
    path = folder / f"{study.name}.json"
    record = json.loads(path.read_text("utf-8")) if path.exists() else None
    if record is None:
        share = study.share(sources)
        record = {"study": study.name, "title": study.title, "cpu_minutes": 0.0}
        record |= {"l2": L2, "shared_people": round(share, 4), "draws": []}
    for seed in range(len(record["draws"]), seeds or study.seeds):
        began = time.process_time()
        federation = study.draw(sources, seed)
        splits, silos = ("train", "validation", "test"), federation.silos
        sizes = {split: sum(len(s.splits[split]) for s in silos) for split in splits}
        bench = Bench(federation, seed, study.model, study.solver)
        record["draws"].append(study.panels(bench))
        minutes = record["cpu_minutes"] + (time.process_time() - began) / 60
        ratio = sizes["test"] / sizes["train"]
        record |= {
            "data": federation.name,
            "silos": len(silos),
            "rows": sizes,
            "correlation": round(record["shared_people"] * ratio, 4),
            "cpu_minutes": round(minutes, 2),
        }
        save(record, folder)
        print(f"{study.name} {seed} {minutes:.1f} CPU minutes", flush=True)
    return record


def save(record: dict[str, Any], folder: Path) -> None:
    """Write a record, one draw a line; figures of rows are in units of 0.00001."""
    head = {key: value for key, value in record.items() if key != "draws"}
    lines = [json.dumps(d, separators=(",", ":")) for d in record["draws"]]
    text = json.dumps(head, indent=1)[:-2] + ',\n "draws": [\n' + ",\n".join(lines)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{record['study']}.json").write_text(text + "\n]}\n", "utf-8")


def load(folder: Path) -> dict[str, dict[str, Any]]:
    """Read all records of a folder, by the names of their studies."""
    return {
        path.stem: json.loads(path.read_text("utf-8"))
        for path in sorted(folder.glob("*.json"))
    }
