"""Faults 79–90: sentences that were false, and what a person was not told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd

import pffl
from pffl.methods import PFFL


def table(rows=400, *, coarse=False):
    """People of two sexes at three sites, whose label depends on x."""
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=rows) if coarse else rng.normal(size=rows)
    y = x + rng.normal(size=rows) > 0.3
    return pd.DataFrame(
        {
            "x": x,
            "sex": rng.choice(["f", "m"], size=rows),
            "site": rng.choice(["a", "b", "c"], size=rows),
            "y": np.where(y, "yes", "no"),
        }
    )


COLUMNS = ("people.csv", "--label", "y", "--group", "sex", "--silo", "site")
RUN = ("run", *COLUMNS, "--seed", "0", "--bound")


def grounds(place):
    """What the statement on unseen people stands on."""
    certificate = json.loads(Path(place, "certificate.json").read_text("utf-8"))
    (found,) = [s for s in certificate["statements"] if s["kind"] == "holdout"]
    out: list[dict[str, str]] = found["assumptions"]
    return out


def test_fault_85_twins_could_not_be_checked(command):
    table(coarse=True).to_csv("people.csv", index=False)
    command(*RUN, "0.7", "--out", "a")
    (ground,) = [g for g in grounds("a") if "equal a training row" in g["text"]]
    assert ground["state"] == "could not be checked"
    assert re.search(r"\d+ of \d+ equal a training row", ground["text"])
    table(coarse=True).assign(who=range(400)).to_csv("people.csv", index=False)
    command(*RUN, "0.7", "--id", "who", "--out", "b")
    (ground,) = [g for g in grounds("b") if "used to train" in g["text"]]
    assert ground["state"] == "checked"


def test_no_bound_that_nobody_is_near_is_called_binding():
    """Algorithm 1 ends with multipliers above 0, however far the bounds are."""
    federation = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    far, near = (
        pffl.solve(federation, bound, method=PFFL(), random_state=0)
        for bound in (0.9, 0.65)
    )
    assert (far.converged, far.multipliers.min() > 0) == ("yes", True)
    assert far.conclusions.binding == "No bound is binding."
    assert near.conclusions.binding.startswith(("Only the bound on", "Binding bounds"))
