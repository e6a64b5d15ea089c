"""The command line in tests: the one place that knows how commands are spelt.

Tests say commands and options as they were when the tests were written. What is called
otherwise now stands in `RENAMED`, so that a new name is one line here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from pffl.cli import main
from pffl.errors import PFFLError

#: Commands of the tests that have another name by now.
COMMANDS = {
    ("card",): ("report", "--card"),
    ("data", "fetch"): ("data",),
    ("data", "info"): ("data",),
    ("data", "list"): ("data",),
    ("plan",): ("feasible", "--certify"),
}
#: Options that are keys of the run file by now; "*" where the key holds a list.
RENAMED = {
    "--alpha": "data.alpha", "--batch-size": "method.batch_size",
    "--by": "*constraint.by",
    "--calibration-fraction": "data.calibration_fraction",
    "--columns": "columns",
    "--contact": "about.contact",
    "--date": "about.date",
    "--delta": "privacy.delta",
    "--dual-rounds": "method.dual_rounds", "--dual-step-size": "method.dual_step_size",
    "--empty-cells": "run.empty_cells", "--engine": "run.engine",
    "--error-at-most": "run.error_at_most", "--input": "*data.inputs",
    "--iterate": "method.iterate", "--labels": "*constraint.labels",
    "--license": "about.license", "--local-steps": "method.local_steps",
    "--models": "run.models",
    "--multiplier-bound": "method.multiplier_bound", "--owner": "about.owner",
    "--partition": "data.partition", "--partition-by": "data.by",
    "--purpose": "about.purpose",
    "--radius": "run.radius", "--range": "*privacy.range", "--rare": "data.rare",
    "--risk-weight": "method.risk_weight",
    "--rounds": "method.rounds", "--rounds-per-dual": "method.rounds_per_dual",
    "--secure-sum": "privacy.secure_sum", "--step-size": "method.step_size",
    "--target-gap": "method.target_gap", "--target-range": "*model.target_range",
    "--test-fraction": "data.test_fraction", "--weight": "data.weight",
    "--weight-bound": "run.weight_bound", "--weighting": "run.weighting",
}  # fmt: skip
FLAGS = ("--secure-sum",)  # without a value
GONE = ("--quiet", "-q", "--no-extras")

SMALL = ("synthetic", "--set", "data.rows=900", "--silos", "3", "--seed", "1")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str
    error: str | None = None  # the code of the error that ended the command

    @property
    def json(self):
        plain: dict[str, Any] = json.loads(self.out)
        return plain


Command: TypeAlias = Callable[..., Outcome]


def argv(*arguments):
    """Spell a command as it is called now."""
    given = list(map(str, arguments))
    for old, new in COMMANDS.items():
        if tuple(given[: len(old)]) == old:
            given[: len(old)] = new
    own = (["predict"], ["monitor"], ["site"])  # with options of their own
    plain = given[:1] in own
    found: list[str] = []
    lists: dict[str, list[str]] = {}
    rest = iter(given)
    for argument in rest:
        name, sign, value = argument.partition("=")
        key = RENAMED.get(name)
        if name == "--seed" and given[0] in ("audit", "data"):  # nothing is trained
            key = "data.seed"
        if argument in GONE:
            continue
        if name == "--promise":
            value = value or next(rest)
            found.append("--certify")
            if "--calibration-fraction" not in " ".join(given):
                found += ["--set", "data.calibration_fraction=0"]
        elif key is None or plain or (given[0] == "data" and name == "--columns"):
            found.append(argument)
        elif name in FLAGS:
            found += ["--set", f"{key}=true"]
        else:
            value = value if sign else next(rest)
            if key.startswith("*"):
                parts = [value] if name == "--range" else value.split(",")
                lists.setdefault(key[1:], []).extend(parts)
            else:
                found += ["--set", f"{key}={value}"]
    for key, values in lists.items():
        numbers = key == "model.target_range"
        items = [v if numbers else json.dumps(v, ensure_ascii=False) for v in values]
        found += ["--set", f"{key}=[{', '.join(items)}]"]
    return found


def program(*arguments):
    """Return the command as a process of its own."""
    return [sys.executable, "-m", "pffl", *argv(*arguments)]


def pffl(capsys, *arguments, as_typed=False):
    """Run the command in this process; `as_typed` with no name changed."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ending:
        main(list(arguments) if as_typed else argv(*arguments))
    seen = capsys.readouterr()
    code, cause = ending.value.code, ending.value.__cause__
    error = cause.code if isinstance(cause, PFFLError) else None
    return Outcome(code if isinstance(code, int) else 0, seen.out, seen.err, error)


def one_line(text):
    """Text without the line breaks that a terminal's width brings."""
    return " ".join(text.split())
