"""How processor time grows with rows, inputs, cells and silos: fitted exponents.

    .venv/bin/python benchmarks/growth.py [--only rows inputs cells silos]

`Exact` and `FirstOrder` to a relative gap of 1e-6: the method's rounds alone, and a
whole `solve` with gap, baseline and smallest bound. One thing grows, the others stay.
Exponents are least squares in logarithms over the upper half of the sizes; a solver
that waits for nothing has 1 in rows, 0 in silos.
"""

from __future__ import annotations

import argparse
import warnings
from typing import NamedTuple

import numpy as np
from peers import GAP, bound_for, federation, machine, model, people, ready, spent

import pffl
from pffl.engines import Local
from pffl.methods import Exact, FirstOrder


class Size(NamedTuple):
    """A problem's size."""

    rows: int
    inputs: int
    cells: int
    silos: int


SERIES = {
    "rows": [Size(n, 20, 5, 10) for n in (10_000, 40_000, 160_000, 640_000)],
    "inputs": [Size(10_000, p, 4, 10) for p in (30, 100, 300, 600)],
    "cells": [Size(20_000, 50, z, 10) for z in (5, 20, 80, 240)],
    "silos": [Size(100_000, 20, 2, k) for k in (10, 100, 1_000, 10_000)],
}
METHODS = (Exact, FirstOrder)


def measured(size: Size) -> dict[str, tuple[float, float, int]]:
    """Processor seconds of rounds and of a solve, and rounds, by method."""
    X, y, group = people(size.rows, size.inputs, size.cells)
    bound, out = bound_for(X, y, group), {}
    data = federation(X, y, group, size.silos)
    constraint, engine = pffl.BoundedGroupLoss(bound), Local(data)
    for kind in METHODS:
        method = kind(multiplier_bound=10.0, target_gap=GAP)
        _, run = ready(engine, bound, method)
        run()
        rounds = min((spent(run) for _ in range(2)), key=lambda one: one.cpu)
        given = {"method": method, "model": model(), "random_state": 0}
        whole = spent(lambda given=given: pffl.solve(data, constraint, **given))
        out[kind.__name__] = (rounds.cpu, whole.cpu, rounds.found.rounds)
    return out


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope in logarithms over the upper half."""
    upper = slice(len(sizes) // 2 - 1, None)
    x, y = np.log(sizes[upper]), np.log(np.maximum(seconds[upper], 1e-4))
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SERIES, default=list(SERIES))
    warnings.simplefilter("ignore")
    print(f"{machine()}; CPU seconds: rounds / solve (number of rounds)\n")
    for name in parser.parse_args().only:
        series = SERIES[name]
        sizes = [getattr(size, name) for size in series]
        fixed = ", ".join(
            f"{value:,} {key}"
            for key, value in series[0]._asdict().items()
            if key != name
        )
        print(f"| {name} ({fixed}) | " + " | ".join(f"{s:,}" for s in sizes), end="")
        print(" | exponent |\n" + "|---" * (len(sizes) + 2) + "|", flush=True)
        found = [measured(size) for size in series]
        for kind in (method.__name__ for method in METHODS):
            alone, whole, rounds = zip(*(one[kind] for one in found), strict=True)
            shown = [
                f"{a:.2g} / {b:.2g} ({n})"
                for a, b, n in zip(alone, whole, rounds, strict=True)
            ]
            slopes = [exponent(sizes, list(each)) for each in (alone, whole)]
            shown.append(" / ".join(f"{slope:.1f}" for slope in slopes))
            print(f"| {kind} | " + " | ".join(shown) + " |", flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
