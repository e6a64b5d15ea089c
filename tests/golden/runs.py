"""The golden runs: fifteen small runs, each a function that returns plain figures.

This is the only module here that knows `pffl`: a change of its names is made here, and
the stored figures stay. `tests.golden.record` writes them, `test_golden.py` compares.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import pffl
from pffl.cli import main
from pffl.methods import METHODS, PFFL, Exact, FirstOrder
from pffl.models import HuberRegression, LeastSquares, LogisticRegression
from tests.golden import people
from tests.golden.compare import is_number, plain
from tests.golden.surfaces import normal, page_text

Figures = dict[str, Any]

SHOWN = 40  # numbers of w that are stored of a long one
#: Statements of a certificate that are told elsewhere in the figures.
TOLD = ("empirical", "gap", "attainable", "infeasible")
#: Of a cell's row in the verdict table.
CELL = (
    "bound", "count", "train_loss", "multiplier", "test_loss", "test_count",
    "test_upper", "before_train_loss", "before_test_loss", "constant",
)  # fmt: skip
RATES = ("rows", "risk", "error", "worst_group_loss", "dp_gap", "eo_gap")
ENDS = ("people", "value", "lower", "upper")
ACCOUNT = (
    "epsilon", "delta", "mu", "heldout_epsilon", "heldout_mu", "clip", "loss_bound",
    "sites", "colluding", "shared", "repeatable",
)  # fmt: skip
PROMISED = (
    "--constraint", "cbgl", "--bound", "0.7", "--certify",
    "--set", "data.calibration_fraction=0.3", "--seed", "0",
)  # fmt: skip


class NotHere(Exception):
    """Real data that cannot be fetched."""


@dataclass(frozen=True)
class Data:
    """COMPAS and Adult: made-up files in a folder, or the real ones.

    `folder` is also where commands put their runs.
    """

    folder: Path
    real: bool = False

    @property
    def sex(self) -> float:
        """A bound for each sex on COMPAS, about the smallest that can be met."""
        return 0.606 if self.real else 0.655

    @property
    def silo(self) -> float:
        """The same for every silo, with a thousandth more for each sex."""
        return 0.63 if self.real else 0.66

    @cached_property
    def given(self) -> dict[str, dict[str, Any]]:
        """Keywords of the loaders."""
        if self.real:
            return {"compas": {}, "adult": {}}
        compas, *adult = people.compas_file(), *people.adult_files()
        names = ("compas.csv", "adult.data", "adult.test")
        for name, text in zip(names, (compas, *adult), strict=True):
            (self.folder / name).write_bytes(text)
        source, hashes = str(self.folder / names[0]), map(people.sha256, adult)
        return {
            "compas": {"source": source, "sha256": people.sha256(compas)},
            "adult": {"source": str(self.folder), "sha256": [*hashes]},
        }

    def _load(self, name: str, **more: Any) -> pffl.Federation:
        load = getattr(pffl.datasets, name)
        try:
            return load(random_state=0, **self.given[name], **more)
        except pffl.PFFLError as error:
            if self.real:
                raise NotHere(str(error)) from error
            raise

    def load(self) -> None:
        """Load both, or raise NotHere."""
        assert len(self.compas)
        assert len(self.adult)

    @cached_property
    def compas(self) -> pffl.Federation:
        return self._load("compas", silos=10)

    @cached_property
    def adult(self) -> pffl.Federation:
        return self._load("adult", silos=10)

    def settings(self, name: str) -> list[str]:
        """The same, as arguments of a command."""
        given = self.given[name].items()
        sets = [("--set", f"data.{key}={json.dumps(value)}") for key, value in given]
        return [word for pair in sets for word in pair]


@dataclass(frozen=True)
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def command(folder: Path, *arguments: str) -> Outcome:
    """Run the command line in this process, in a folder, 80 columns wide."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    width = mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"})
    with chdir(folder), width, redirect_stdout(out), redirect_stderr(err):
        try:
            main([*map(str, arguments)])
        except SystemExit as ending:
            code = int(ending.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


# What is told of a solution


def told(solution: Any) -> Figures:
    """Words, counts and numbers of a solution, and of its certificate."""
    result, evidence = solution.as_dict(), solution.evidence.as_dict()
    found: Figures = {
        "words": {
            "status": result["status"],
            "converged": result["converged"],
            "method": result["method"]["kind"],
            "constraint": result["constraint"].get("kind"),
            "stopped": evidence["training"]["stopped"],
            **{k: v["verdict"] for k, v in result["verdicts"].items()},
        },
        "exit_code": solution.exit_code,
        "rounds": result["rounds"],
        "queries": result["queries"],
        "silos": result["data"]["silos"],
        "cells": {row["cell"]: _some(row, CELL) for row in result["cells"]},
        "groups": _groups(result["groups"] or ()),
        "train": _some(result["train"], RATES),
        "test": _some(result["test"], RATES),
        "slack": result["slack"],
        "loss_bound": result["loss_bound"],
        "smallest_bound": result["smallest_bound"],
        "multiplier_bound": evidence["terms"]["multiplier_bound"],
        "statements": _statements(solution.certificate),
        "w": shortened(solution.w),
    }
    # Ends of the duality gap and of the smallest common bound, and who proves it.
    for name, last in (("gap", "radius"), ("least", "multipliers")):
        if "upper" in evidence["proofs"][name]:
            found[name] = _some(evidence["proofs"][name], ("upper", "lower", last))
    return {key: value for key, value in found.items() if value not in (None, {}, [])}


def _some(row: Mapping[str, Any] | None, names: tuple[str, ...]) -> Figures:
    known = {} if row is None else row
    return {name: known[name] for name in names if known.get(name) is not None}


def _groups(groups: Any) -> Figures:
    """Rates of each group, as [people, value, lower, upper]."""
    return {
        row["group"]: {
            kind: [rate[end] for end in ENDS]
            for kind, rate in row.items()
            if isinstance(rate, Mapping)
        }
        for row in groups
    }


def _statements(certificate: Any) -> Figures:
    """What holds, by kind: its state, its grounds' states, and its own figures."""
    found: Figures = {}
    for one in certificate.as_dict()["statements"]:
        if not one["available"]:
            continue
        states = [ground["state"] for ground in one["assumptions"]]
        row: Figures = {"holds": one["holds"], "grounds": sorted(states)}
        if one["kind"] not in TOLD:
            row["value"] = one["value"]
            numbers = {k: v for k, v in one["figures"].items() if is_number(v)}
            row |= {k: v for k, v in numbers.items() if v != one["value"]}
            ends = [
                [cell[name] for name in ("upper", "lower") if cell.get(name)]
                for cell in one["per_cell"] or ()
            ]
            row |= {"cells": ends} if any(ends) else {}
        found[one["kind"]] = {k: v for k, v in row.items() if v is not None}
    return found


def shortened(w: Any) -> Any:
    """Return w; of a long one its length, sums by cosines, and every so many of it."""
    values = np.asarray(w, dtype=np.float64).ravel()
    if len(values) <= SHOWN:
        return values.tolist()
    places = np.arange(len(values))
    return {
        "size": len(values),
        "norm": float(np.linalg.norm(values)),
        "sums": [float(values @ np.cos(k * places)) for k in range(8)],
        "some": values[:: -(-len(values) // SHOWN)].tolist(),
    }


def briefly(solution: Any) -> Figures:
    """Status, losses, λ and w alone."""
    allowed = {} if solution.slack is None else {"slack": solution.slack}
    return {
        **allowed,
        "status": solution.status,
        "exit_code": solution.exit_code,
        "rounds": solution.rounds,
        "losses": [row.train_loss for row in solution.cell_results],
        "multipliers": list(solution.multipliers),
        "w": shortened(solution.w),
    }


# The runs

solve = partial(pffl.solve, random_state=0)
read_table = partial(pffl.Federation.from_table, random_state=0)
BGL, CBGL = pffl.BoundedGroupLoss, pffl.ConditionalBoundedGroupLoss


def by_command(data: Data, solution: Any, *words: str) -> Figures:
    """Whether the command ends alike, and prints the same cells and verdicts."""
    given = ("--seed", "0", "--json", *data.settings("compas"))
    outcome = command(data.folder, "run", "compas", *words, *given)
    printed = json.loads(outcome.out)
    known = json.loads(json.dumps(solution.as_dict()))
    same = [printed[key] == known[key] for key in ("cells", "verdicts", "status")]
    return {"exit_code": outcome.code, "agrees": all(same)}


def compas_cbgl(data: Data) -> Figures:
    """The main job: each sex and label, bound 0.7; by function and by command."""
    solution, words = solve(data.compas, CBGL(0.7)), ("--constraint", "cbgl")
    again = pffl.certify(solution, candidates=5, confidence=0.9)
    cheap = solve(data.compas, CBGL(0.7), method=Exact(multiplier_bound=0.05))
    return told(solution) | {
        "command": by_command(data, solution, *words, "--bound", "0.7"),
        "one of five, 90 %": _statements(again)["holdout"],
        "multiplier bound 0.05": briefly(cheap),
    }


def compas_impossible(data: Data) -> Figures:
    """A bound for each sex that no linear model meets."""
    solution = solve(data.compas, BGL(0.6))
    search = pffl.feasible(data.compas, BGL(0.6))
    cells = search.as_dict()["cells"]
    return told(solution) | {
        "command": by_command(data, solution, "--bound", "0.6"),
        "witness": solution.witness,
        "feasible": {"impossible": search.impossible, "cells": cells},
    }


def adult_promised(data: Data) -> Figures:
    """Each sex and label, bound 0.7, promised on rows that are set apart."""
    federation = data.adult.with_calibration(0.3, random_state=0)
    solution = solve(federation, CBGL(0.7), certify=True)
    return told(solution) | {"path": _path(solution)}


def _path(solution: Any) -> Figures:
    """The models of a promise: margins, M, and sums over rows set apart."""
    path = solution.evidence.as_dict()["path"]
    candidates = path["candidates"]
    sums = [one["calibration"]["cells"] for one in candidates]
    return {
        **_some(path, ("chosen", "spread")),
        "margins": [one["margin"] for one in candidates],
        "loss_bounds": [one["loss_bound"] for one in candidates],
        "calibration": [one["bounded_loss"] for one in sums[::6]],
        "rows": sums[0]["count"],
    }


def bound_auto(data: Data) -> Figures:
    """The bound is chosen on training rows that are set aside."""
    solution = solve(data.compas, BGL("auto"))
    choice = solution.evidence.as_dict()["training"]["choice"]
    tried = ("bound", "worst", "cell", "error")
    return told(solution) | {
        "choice": {
            **_some(choice, ("bound", "error_at_most", "aside", "rows")),
            "trials": [[one[name] for name in tried] for one in choice["trials"]],
        },
    }


def minmax(data: Data) -> Figures:
    """The worse off of the sexes as well off as possible."""
    return told(solve(data.compas, pffl.MinMax()))


def per_silo(data: Data) -> Figures:
    """A bound for every silo, beside one for each sex."""
    return told(solve(data.compas, pffl.PerSilo(data.silo) & BGL(data.sex + 0.001)))


def pffl_paper(data: Data) -> Figures:
    """Algorithm 1 as the paper prints it: plain averages, one step size for all."""
    lengths = {"dual_rounds": 30, "rounds_per_dual": 5, "local_steps": 5}
    steps = {"dual_step_size": 2.0, "iterate": "average", "by_mass": False}
    method = PFFL(multiplier_bound=10.0, **lengths, **steps)
    return told(solve(data.compas, BGL(data.sex), method=method))


def pffl_default(data: Data) -> Figures:
    """Algorithm 1 with its defaults, until its gap is closed."""
    return told(solve(data.compas, CBGL(0.7), method=PFFL()))


def first_order_hashed(data: Data) -> Figures:
    """Free text in 8,192 inputs, rows kept without zeros."""
    columns = {"letter": {"hash": 2**13}}
    roles = {"label": "granted", "group": "region", "silo": "office"}
    federation = read_table(people.letters(), **roles, columns=columns)
    model = LogisticRegression(l2=0.05)
    return told(solve(federation, BGL(0.6), model=model, method=FirstOrder()))


CLINICS = {"group": "band", "silo": "clinic"}


def softmax_weighted(data: Data) -> Figures:
    """Three outcomes; rows count by a weight."""
    roles = {"label": "outcome", "weight": "counts", "drop": ["days"]}
    federation = read_table(people.patients(), **CLINICS, **roles)
    options = pffl.Options(weight_bound=3.75)
    apart = federation.with_calibration(0.5, random_state=0)
    certified = replace(options, certify=True, models=8)
    promised = solve(apart, BGL(1.0), options=certified)
    return told(solve(federation, BGL(0.85), options=options)) | {
        "promised": briefly(promised) | {"path": _path(promised)},
    }


def huber(data: Data) -> Figures:
    """Days between 0 and 30, by a loss that is linear far off; then by squares."""
    roles = {"label": "days", "drop": ["outcome", "counts"], "classification": False}
    federation = read_table(people.patients(), **CLINICS, **roles)
    far, squares = HuberRegression, LeastSquares
    found = [
        solve(federation, BGL(bound), model=model(target_range=(0.0, 30.0)))
        for bound, model in ((5.3, far), (15.6, squares))
    ]
    return told(found[0]) | {"least_squares": briefly(found[1])}


def several_rows(data: Data) -> Figures:
    """One to four rows of each person, all of them in one split; and predictions."""
    solution, place = visited(), data.folder / "visited.pffl"
    solution.save(place)
    wards = ["new", "heart", None, "eye"] * 3
    new = people.visits(40, 21).head(12).assign(ward=wards)
    again = pffl.load(place)
    return told(solution) | {
        "columns": list(solution.schema.features),
        "probabilities": again.predict_proba(new)[:, 1],
        "labels": list(again.predict(new)),
    }


def visited() -> pffl.Solution:
    visits = people.visits()
    wards = visits["ward"].fillna("missing").value_counts()
    common = sorted(wards.index[(wards >= 60) | (wards.index == "missing")])
    roles = {"label": "came", "group": "sex", "silo": "clinic", "id": "who"}
    known = {"missing": "indicator", "columns": {"ward": {"values": common}}}
    return solve(read_table(visits, **roles, **known, test_fraction=0.4), BGL(0.517))


def network(data: Data) -> Figures:
    """A perceptron; half of the silos in each round."""
    from pffl.models import Network, mlp

    lengths = {"dual_rounds": 6, "rounds_per_dual": 3, "local_steps": 3}
    steps = {"step_size": 0.2, "batch_size": 64, "participation": 0.5}
    model = Network(mlp(9, (8,)), loss="binary")
    method = PFFL(**lengths, **steps)
    return told(solve(data.compas, BGL(0.64), model=model, method=method))


def masked_and_private(data: Data, *, noise_seed: int = 1) -> Figures:
    """Three sites under masks; then the same with ε = 4 and noise that is repeated."""
    known = {"silos": 3, "groups": ["f", "m"], "random_state": 0}
    federation = pffl.datasets.synthetic(9000, **known)
    ends = [(0.0, 100.0), (0.0, 1.0), (0.0, 10.0)]
    names = federation.schema.features
    ranges = {name: ends[k % 3] for k, name in enumerate(names)}
    terms = pffl.Privacy(epsilon=4.0, delta=1e-6, ranges=ranges, noise_seed=noise_seed)
    wide = BGL({"f": 0.6, "m": 0.72})  # met, whatever the noise
    return {
        "masked": told(solve(federation, BGL(0.66), secure_sum=True)),
        "unmasked": briefly(solve(federation, BGL(0.66))),
        "private": _private(solve(federation, wide, privacy=terms, secure_sum=True)),
    }


def _private(solution: Any) -> Figures:
    """The account, exactly; and figures that carry noise."""
    result = solution.as_dict()
    noise, cells = result["privacy"], result["cells"]
    releases = noise["releases"]
    named = [f"{one['split']} {one['name']} × {one['times']}" for one in releases]
    return {
        "account": {
            **{name: noise[name] for name in ACCOUNT},
            "releases": named,
            **{
                f"release_{name}": [one[name] for one in releases]
                for name in ("mu", "sensitivity", "sigma", "deviation")
            },
        },
        "words": {k: v["verdict"] for k, v in result["verdicts"].items()},
        "exit_code": solution.exit_code,
        "noisy": {
            "cells": {
                row["cell"]: [row["lower"], row["upper"]] for row in noise["cells"]
            },
            "counts": [row["count"] for row in cells],
            "test_counts": [row["test_count"] for row in cells],
            "test_uppers": [row["test_upper"] for row in cells],
            "train_error": result["train"]["error"],
            "length": float(np.linalg.norm(solution.w)),
        },
    }


def audit_and_monitor(data: Data) -> Figures:
    """Somebody's probabilities, and eight batches that get worse half-way."""
    chance, came, group = people.forecasts()
    known = {"y": came, "sensitive_features": group, "constraint": BGL(0.66)}
    silos = np.arange(len(chance)) % 3
    audited = pffl.audit(chance, **known, silos=silos).certificate
    watched, stream, solution = None, [], visited()
    for week in range(8):
        rows = people.visits(120, 20 + week, wrong=0.0 if week < 4 else 0.3)
        known = {"id": "who", "name": f"week {week + 1}"}
        watched = pffl.monitor(solution, rows, state=watched, bound=0.6, **known)
        logs = [math.log(row["e_value"]) for row in watched.table]
        stream.append([watched.status, *logs])
    assert watched is not None
    said = ("status", "exit_code", "alarms", "rows")
    return {
        "estimators": estimators(),
        "audit": {
            "verdicts": [one["verdict"] for one in audited.verdicts.values()],
            "statements": _statements(audited),
            "cells": [
                one["per_cell"]
                for one in audited.as_dict()["statements"]
                if one["available"] and one["kind"] == "empirical"
            ],
        },
        "monitor": {
            **{name: getattr(watched, name) for name in said},
            "table": [_row(row) for row in watched.table],
            "stream": stream,
        },
    }


def _row(row: Figures) -> Figures:
    """A group of a monitor, by the names that are stored."""
    dropped = ("batch", "name", "impossible")
    kept = {key: value for key, value in row.items() if key not in dropped}
    return {key.replace("batch_", "last_"): value for key, value in kept.items()}


def estimators() -> Figures:
    """The classifier and the regressor of scikit-learn's kind."""
    table = people.patients(800, 6)
    X, groups = table[["pulse", "sugar", "weight"]], table["band"]
    found: Figures = {}
    for estimator, y in (
        (pffl.FairClassifier(bound=0.502, random_state=0), table["outcome"] == "worse"),
        (pffl.FairRegressor(bound=13.4, random_state=0), table["days"]),
    ):
        estimator.fit(X, y, sensitive_features=groups)
        found[type(estimator).__name__] = briefly(estimator.solution_)
    return found


#: Few rounds of each: what is held here is each step of it, and not where it leads.
FEW: dict[str, dict[str, Any]] = {
    "pffl": {"dual_rounds": 4, "rounds_per_dual": 3},
    "local-bgl": {"dual_rounds": 4, "rounds_per_dual": 3},
    "fcfl": {"stage_one_rounds": 6, "stage_two_rounds": 4},
    "reductions": {"iterations": 15},
    **{name: {} for name in ("exact", "first-order", "pooled", "auto")},
}
#: Further settings, by method and parameters.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedprox": ("fedavg", {"proximal": 0.5, "batch_size": 32}),
    "fedavgm": ("fedavg", {"server": "momentum"}),
    "fedadam": ("fedavg", {"server": "adam", "server_step_size": 0.05}),
    "fedyogi": ("fedavg", {"server": "yogi", "server_step_size": 0.05}),
    "half of the silos": ("fedavg", {"participation": 0.5, "rounds": 8}),
    "diverges": ("fedavg", {"step_size": 1e9, "rounds": 40}),
    "drift": ("pffl", {"drift_correction": True, "dual_rounds": 4}),
}


def methods(data: Data) -> Figures:
    """Losses, λ and w of every method that is registered, after a few rounds."""
    options = pffl.Options(baseline=False, smallest_bound=False)
    asked = {name: (name, {}) for name in sorted(METHODS.own)} | VARIANTS
    found: Figures = {}
    for title, (name, more) in asked.items():
        method = METHODS[name](**{**FEW.get(name, {"rounds": 8}), **more})
        run = solve(data.compas, BGL(data.sex), method=method, options=options)
        found[title] = briefly(run)
    return found


RUNS: dict[str, Callable[..., Figures]] = {
    "01-compas-cbgl": compas_cbgl,
    "02-compas-impossible": compas_impossible,
    "03-adult-promised": adult_promised,
    "04-bound-auto": bound_auto,
    "05-minmax": minmax,
    "06-per-silo": per_silo,
    "07-pffl-paper": pffl_paper,
    "08-pffl-default": pffl_default,
    "09-first-order-hashed": first_order_hashed,
    "10-softmax-weighted": softmax_weighted,
    "11-huber": huber,
    "12-several-rows": several_rows,
    "13-network": network,
    "14-masked-private": masked_and_private,
    "15-audit-monitor": audit_and_monitor,
    "15-methods": methods,
}
#: Those on COMPAS and Adult, which are also stored for the real files.
REAL = [name for name in RUNS if name[:2] <= "08"]
#: By how much numbers may be off, in parts of their scale; by run and key. Else 1e-9.
TOLERANCES = {
    "10-softmax-weighted": {"promised": 1e-6},  # margins count in standard errors
    "13-network": {"": 1e-5},
}
#: Texts that are stored of run 3.
TEXTS = ("terminal.txt", "page.txt", "card.md")
#: Where figures carry noise: they are compared with an interval.
NOISY = {"14-masked-private": ("private", "noisy")}


class Golden:
    """All golden runs, each computed when it is first asked for, and once.

    Other tests may share it: `figures` of any run, and the `promised` run as a folder
    that a command wrote. What is shared is read, never written to.
    """

    def __init__(self, folder: Path, *, real: bool = False) -> None:
        self.data = Data(folder, real)
        self._known: dict[str, Any] = {}

    def figures(self, name: str, **more: Any) -> Any:
        """Return what a run found, in plain form."""
        if more:
            return plain(RUNS[name](self.data, **more))
        if name not in self._known:
            self._known[name] = plain(RUNS[name](self.data))
        return self._known[name]

    @cached_property
    def promised(self) -> tuple[Path, Outcome]:
        """Run 3 by the command line: its folder, and what was printed."""
        place = self.data.folder / "runs" / "adult-001"
        words = ("run", "adult", *PROMISED, *self.data.settings("adult"), "-v")
        return place, command(self.data.folder, *words)

    @cached_property
    def surfaces(self) -> dict[str, str]:
        """Return terminal, page and card of run 3, without what differs by machine."""
        place, outcome = self.promised
        checked = command(self.data.folder, "verify", "runs/adult-001")
        card = normal((place / "card.md").read_text("utf-8"))
        ending = f"exit code {outcome.code}\n\n{checked.out}exit code {checked.code}\n"
        return {
            "terminal.txt": normal(outcome.out + ending),
            "page.txt": page_text((place / "report.html").read_text("utf-8"), card),
            "card.md": card,
        }
