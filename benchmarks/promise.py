"""A bound promised for people not seen, and hoped for: real data, cut again and again.

    python benchmarks/promise.py compas-bgl [--resplits 200] [--pilots 20] [--models 20]
    python benchmarks/promise.py compas-cbgl | adult-cbgl | acs-race [--journal FILE]
    python benchmarks/promise.py draw FILE … --out docs/figures/promise.svg

All rows are cut anew: 30 % for the report, of the others 35 % for calibration. For each
cut: the smallest common bound that can be promised with 95 %, by the safest model. Then
one bound for all cuts, such as could be promised in about three of four of the first
ones, and for each cut two models: *hoped* is trained for that bound on training and
calibration rows alike; *promised* comes from `certify=0.95`. Of each: how
often some cell of the report rows has a mean loss above the bound, error and risk.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import pffl
from pffl.data import Federation, Rows
from pffl.evidence.figures import Judged
from pffl.evidence.record import Evidence, ModelPath, Sample
from pffl.prepare import Options

REPORT, CALIBRATION = 0.3, 0.35
QUICK = Options(baseline=False, smallest_bound=False)
ACS = os.environ.get("PFFL_ACS", "../shared/data/acs_employment_2024_48st_dc.parquet")


def acs() -> Federation:
    """Every person of the extract, one-hot, by race."""
    return pffl.datasets.acs(year=2024, filter="filtered", dtype="float32", source=ACS)


BGL, CBGL = pffl.BoundedGroupLoss, pffl.ConditionalBoundedGroupLoss
SETS: dict[str, tuple[Callable[[], Federation], Any, float]] = {
    "compas-bgl": (lambda: pffl.datasets.compas(silos=10, seed=0), BGL, 0.3),
    "compas-cbgl": (lambda: pffl.datasets.compas(silos=10, seed=0), CBGL, 0.3),
    "adult-cbgl": (lambda: pffl.datasets.adult(group="sex", silos=10), CBGL, 0.2),
    "acs-race": (acs, BGL, 0.2),
}


def cut(whole: Federation, seed: int) -> Federation:
    """Cut all rows of every silo anew into training and report rows."""
    parts = [rows for silo in whole.silos for rows in silo.splits.values()]
    sizes = [sum(map(len, silo.splits.values())) for silo in whole.silos]
    return Federation.from_rows(
        whole.schema,
        Rows.joined(parts),
        np.repeat(np.arange(len(sizes)), sizes),
        whole.silo_names,
        test_fraction=REPORT,
        seed=seed,
    )


def figures(e: Evidence) -> dict[str, float]:
    """Say how a model does on the report rows."""
    held = e.heldout
    if not isinstance(held, Sample):
        raise TypeError("there are report rows")
    count = sum(held.strata["count"])
    return {
        "worst": float(np.nanmax(held.means)),
        "error": 1.0 - sum(held.strata["correct"]) / count,
        "risk": held.bounded_risk / held.share,
    }


def smallest(apart: Federation, kind: Any, low: float) -> float:
    """Return the smallest common bound that the safest model is promised."""
    asked = replace(QUICK, certify=True, models=1)
    e = pffl.solve(apart, kind(low), options=asked, seed=0).evidence
    upper = Judged(e).upper
    if upper is None:
        raise TypeError("there are calibration rows")
    return float(upper.max())


def compared(rows: Federation, apart: Federation, kind: Any, bound: float, models: int):
    """Train for the bound, and for a promise of it."""
    begun = time.process_time()
    hoped = pffl.solve(rows, kind(bound), options=QUICK, seed=0).evidence
    middle = time.process_time()
    asked = replace(QUICK, certify=True, models=models)
    found = pffl.solve(apart, kind(bound), options=asked, seed=0)
    path = found.evidence.path
    if not isinstance(path, ModelPath):
        raise TypeError("a promise was asked for")
    return {
        "hoped": figures(hoped),
        "promised": figures(found.evidence),
        "made": Judged(found.evidence).by_path,
        "place": path.chosen + 1,
        "of": len(path.candidates),
        "seconds": [middle - begun, time.process_time() - middle],
    }


def summed(name: str, pilots: list[float], bound: float, rows: list[dict[str, Any]]):
    """Return one line of the table."""
    made = [row for row in rows if row["made"]]
    over = [sum(row["hoped"]["worst"] > bound for row in rows)]
    over += [sum(row["promised"]["worst"] > bound for row in made)]
    seconds = np.mean([row["seconds"] for row in rows], axis=0)

    def mean(who: str, what: str, of: list[dict[str, Any]]) -> float:
        return float(np.mean([row[who][what] for row in of])) if of else float("nan")

    low, high = np.quantile(pilots, [0.25, 0.75])
    return (
        f"| {name} | {np.median(pilots):.4f} ({low:.4f}–{high:.4f}) | {bound:.4g} | "
        f"{len(rows)} | {over[0]} | {len(made)} | {over[1]} | "
        f"{mean('hoped', 'error', made):.4f} | {mean('promised', 'error', made):.4f} | "
        f"{mean('hoped', 'risk', made):.4f} | {mean('promised', 'risk', made):.4f} | "
        f"{seconds[0]:.1f}, {seconds[1]:.1f} |"
    )


def draw(journals: list[Path], out: Path) -> None:
    """Draw what was asked, what was promised, and what came, from journals."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "pffl"
    figure, panels = plt.subplots(len(journals), 1, figsize=(7, 2.3 * len(journals)))
    for axes, path in zip(np.atleast_1d(panels), journals, strict=True):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        bound = next(row["bound"] for row in rows if "bound" in row)
        rows = [row for row in rows if "made" in row]
        made = [row for row in rows if row["made"]]
        for height, (who, of) in enumerate((("promised", made), ("hoped", rows))):
            worst = np.array([row[who]["worst"] for row in of])
            above = worst > bound
            spread = np.random.default_rng(0).uniform(-0.28, 0.28, size=len(worst))
            for mark, colour, which in (
                ("o", "#0072b2", ~above),
                ("^", "#d55e00", above),
            ):
                axes.plot(
                    worst[which],
                    height + spread[which],
                    mark,
                    ms=3.5,
                    alpha=0.6,
                    color=colour,
                    mec="none",
                )
            axes.annotate(
                f"{int(above.sum())} of {len(of)} above",
                (1.01, height),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=9,
            )
        axes.axvline(bound, color="black", lw=1.2)
        axes.annotate(
            f"asked for: {bound:g}",
            (bound, 1.48),
            ha="center",
            va="bottom",
            annotation_clip=False,
            fontsize=9,
        )
        axes.set_yticks([0, 1], [f"promised ({len(made)} of {len(rows)})", "hoped for"])
        axes.set_ylim(-0.5, 1.5)
        axes.set_title(path.stem, loc="left", fontsize=10, pad=16)
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("mean loss of the worst cell on report rows, one mark per cut")
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    """Measure one data set; every cut is a line of a journal, so it can go on."""
    if sys.argv[1:2] == ["draw"]:
        parser = argparse.ArgumentParser()
        parser.add_argument("journals", type=Path, nargs="+")
        parser.add_argument("--out", type=Path, required=True)
        drawn = parser.parse_args(sys.argv[2:])
        draw(drawn.journals, drawn.out)
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=SETS)
    parser.add_argument("--resplits", type=int, default=200)
    parser.add_argument("--pilots", type=int, default=20)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--bound", type=float, help="Instead of the one that fits.")
    parser.add_argument("--journal", type=Path, default=None)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    load, kind, low = SETS[asked.name]
    whole, journal = load(), asked.journal
    done: list[dict[str, Any]] = []
    if journal is not None and journal.is_file():
        done = [json.loads(line) for line in journal.read_text().splitlines()]
    pilots = [row["smallest"] for row in done if "smallest" in row]
    rows = [row for row in done if "made" in row]

    def kept(row: dict[str, Any]) -> None:
        if journal is not None:
            with journal.open("a") as file:
                file.write(json.dumps(row) + "\n")

    for seed in range(len(pilots), asked.pilots):
        apart = cut(whole, seed).with_calibration(CALIBRATION, seed=seed)
        pilots.append(smallest(apart, kind, low))
        kept({"smallest": pilots[-1]})
    bound = asked.bound or float(f"{np.quantile(pilots, 0.75):.3g}") + 0.005
    if not rows:
        kept({"bound": bound})
    for seed in range(len(rows), asked.resplits):
        cutted = cut(whole, seed)
        apart = cutted.with_calibration(CALIBRATION, seed=seed)
        rows.append(compared(cutted, apart, kind, bound, asked.models))
        kept(rows[-1])
        if len(rows) % 10 == 0:
            print(summed(asked.name, pilots, bound, rows), file=sys.stderr, flush=True)
    print(summed(asked.name, pilots, bound, rows))


if __name__ == "__main__":
    main()
