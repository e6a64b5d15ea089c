"""Check what a run directory of pffl says, by plain arithmetic: one file, on its own.

    python verify.py DIR [ROWS] [--all]

It needs Python, NumPy, SciPy and safetensors, and nothing of pffl: the formulas of
docs/certificates.md are written here a second time. It does three things.

1. Files: their SHA-256 against manifest.json, the model's against evidence.json.
2. Rows → evidence.json: counts, loss sums, predictions, risk, the ends of the duality
   gap, the planes that prove a bound impossible, the models that attain one. Of a
   promise that was asked for in advance: the sums of every model of its path, on
   training and on calibration rows, with its own weights, M and bets.
3. evidence.json → result.json, certificate.json, report.html, card.md: each number and
   each sentence is made again and compared.

ROWS is what ``pffl verify DIR --export rows.csv`` (or .npz) writes: a table with the
columns split, silo, group, label, whom a row is about and how much it counts (person,
weight) where that is known, and the model's inputs as they were before scaling.
Without ROWS, and for models whose loss is not known here (networks), step 2 is left
out, and that is said. DIR may also name one certificate file.

A promise is tested again by what the sequence of its models shows: the smallest risk
with which each is shown to keep every bound, from its sums, against the risk that was
declared; the order, the first failure, and the model that was shipped follow.

Numbers agree up to 1e-9 of their size (sums over rows, and bounds); counts and words
agree exactly. Not checked: seconds, versions, how the model was trained, looks that
no log knows of, the drawings of the report. The exit code is 0 if all agrees, and 6 if
something does not or a file cannot be read.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.special import (
    betaincinv,
    entr,
    erfcinv,
    expit,
    logsumexp,
    softmax,
    xlog1py,
    xlogy,
)

CLOSE = 1e-9  # relative: the same number by another way of computing
TINY = 1e-12  # and this much beside it, where numbers cancel
MET = 1e-6  # of a cell's scale: a training loss this little above its bound is met
FEWEST = 6  # rounds that tell noise of a training from a loss that just fell
EFFORT = ("dual_rounds", "rounds", "max_rounds")  # what to raise, the first there is
FAR, WELL = 1e6, 10.0  # times the longest weights: as good as all, and least of a proof
TRIALS = (3.0, 5.0, 8.0, 12.0, 20.0, 35.0)  # M, the first that changes no loss
MARGINS = (0.0, 0.25, 0.5, 1.0, 2.0)  # beyond the range of a target, in parts of it
FEW = 10  # held-out rows of a cell that are too few to judge by: less than these
LEAST = 1e-3  # of the largest standard error: a smaller one is taken for this
SEEDLESS = ("exact", "first-order", "pooled")  # methods that draw nothing
UNSEEN = ("verdict", "sentence", "more_rows")  # of every verdict on unseen people
OUTCOMES = ("certified", "not certified", "not tested")  # of a model of a path
HERE = "◀"  # beside the one that is shipped
SHARP = 1e-5  # of what is bounded: what reaching further may cost
INPUTS_SHOWN = 15  # of a card: those that move the model most
LONGEST = 1 << 28  # numbers of a vector
SHARP = 1e-5  # of a smallest bound: its ends are one figure if they are this close
RANKED = 10_000  # inputs that may be shown
UNIT = 0.01  # of the radius: where weights begin to matter
READS = {"pffl.evidence": 1, "pffl.result": 3, "pffl.certificate": 4}
LINEAR = ("logistic", "softmax", "least-squares", "huber")
KNOWN = (*LINEAR, "probabilities")
COLUMNS = ["count", "loss", "loss_squared", "bounded_loss", "bounded_loss_squared"]
COLUMNS += ["correct", "positive", "weight"]
PEOPLE = ["count", "bounded_loss", "bounded_loss_squared"]
SKIPPED = "not checked by rows: "
HEAD = ["split", "silo", "group", "label"]
PERSON = "person"  # a fifth, where an id said whom each row is about
WEIGHT = "weight"  # and another, where rows do not count alike
STAKES = ["count", "above", "t", "tx", "tt", "ttx", "ttxx"]
NUMBER = r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)"
FOLDER = re.compile(r"^.*?(?=(, seed \d+)?; page made on)")  # its name is no figure
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)
SEAL = r'<meta name="pffl-certificate-sha256" content="(\w+)">'
#: Among which labels each fairness metric compares the groups.
AMONG = {"dp_gap": [[0, 1]], "eo_gap": [[1]], "equalised_odds": [[0], [1]]}
Json = dict[str, Any]


class Unreadable(ValueError):
    """A file that is not what it should be."""


@dataclass(frozen=True)
class Check:
    """What was stated, what came out here, and whether they agree."""

    what: str
    stated: object
    found: object
    agrees: bool

    def __str__(self) -> str:
        if self.agrees:
            return self.what if self.stated is None else f"agrees: {self.what}"
        return f"does not agree: {self.what}: stated {self.stated}, found {self.found}"


def compare(what: str, stated: Any, found: Any, scale: float = 0.0) -> Iterator[Check]:
    """Compare two plain values, entry by entry."""
    if isinstance(stated, dict) and isinstance(found, dict):
        for key in {**found, **stated}:
            entry = stated.get(key, "(nothing)"), found.get(key, "(nothing)")
            yield from compare(f"{what}, {key}", *entry, scale)
    elif (
        isinstance(stated, list)
        and isinstance(found, list)
        and len(stated) == len(found)
    ):
        for place, (one, other) in enumerate(zip(stated, found, strict=True)):
            named = other.get("cell", place) if isinstance(other, dict) else place
            yield from compare(f"{what}, {named}", one, other, scale)
    else:
        yield Check(what, stated, found, _agree(stated, found, scale))


def _agree(stated: Any, found: Any, scale: float) -> bool:
    if isinstance(found, float) and math.isnan(found):
        return stated is None
    floats = isinstance(stated, float) or isinstance(found, float)
    numbers = all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in (stated, found)
    )
    if not (floats and numbers):
        return type(stated) is type(found) and bool(stated == found)
    size = max(abs(stated), abs(found), scale)
    return abs(stated - found) <= CLOSE * size + TINY


# Numbers in words: rounded to the true side


def near(number: float, digits: int = 4, rounding: str = ROUND_HALF_EVEN) -> str:
    """Write a number with a few significant digits."""
    exact = Context(prec=digits, rounding=rounding).create_decimal(repr(float(number)))
    return f"{float(exact):.{digits}g}"


def up(number: float, digits: int = 4) -> str:
    """Write an upper bound, rounded up."""
    return near(number, digits, ROUND_CEILING)


def down(number: float, digits: int = 4) -> str:
    """Write a lower bound, rounded down."""
    return near(number, digits, ROUND_FLOOR)


# Bounds for unseen people, each from its definition


def mean_upper(
    n: int, total: float, bets: Sequence[Sequence[float]], M: float, delta: float
) -> float:
    """Return the smaller of the log-sum bound, at 0.8 δ, and Chernoff's, at 0.2 δ.

    `bets` are γ, π and Σ log(1 − γℓ/M) of the cell; without them it is Chernoff's at δ.
    """
    if n == 0:
        return M
    share = 5 if bets else 1
    rare = kl_inverse(min(max(total / n / M, 0.0), 1.0), math.log(share / delta) / n)
    if not bets:
        return min(M * rare, M)
    g, pi, sums = (np.array(part, dtype=float) for part in bets)

    def beyond(mean: float) -> float:
        won = np.log(pi) + sums - n * np.log1p(-g * mean)
        return float(np.logaddexp.reduce(won)) + math.log(0.8 * delta)

    top = 1.0 if beyond(1.0) <= 0 else brentq(beyond, 0.0, 1.0, xtol=1e-16, rtol=1e-15)
    return min(M * rare, M * float(top), M)


def weighted_upper(
    n: int,
    bets: Sequence[Any],
    levels: Sequence[float],
    M: float,
    delta: float,
) -> float:
    """Return the log-sum bound of a weighted mean, by tests at a few levels.

    `bets` are γ, π and Σ log(1 − γu) of the cell, level by level, of the diluted losses
    u = tx + (1 − t)z, t = weight/s_max, x = loss/M, z = level/M. Between two levels the
    geometric mean of the factors (1 − γu)/(1 − γz) is at least the chord in 1/(1 − γz).
    """
    if n == 0:
        return M
    g, pi, sums = (np.array(part, dtype=float) for part in bets)
    z = np.array(levels) / M
    roots = np.exp(sums / n - np.log1p(-np.outer(g, z)))

    def beyond(level: float) -> float:
        means = [
            np.interp(1 / (1 - b * level), 1 / (1 - b * z), row)
            for b, row in zip(g, roots, strict=True)
        ]
        won = np.log(pi) + n * np.log(means)
        return float(np.logaddexp.reduce(won)) + math.log(delta)

    if beyond(1.0) < 0:
        return M
    return min(M * float(brentq(beyond, 0.0, 1.0, xtol=1e-16, rtol=1e-15)), M)


def diluted(sums: Json, z: float) -> tuple[float, float]:
    """Return mean and variance of u = tx + (1 − t)z, from sums of t, tx, … and n."""
    t, tx, tt, ttx, ttxx = (sums[name] / sums["count"] for name in STAKES[2:])
    mean = min(max(tx + (1 - t) * z, 1e-9), 1 - 1e-9)
    second = ttxx + 2 * z * (tx - ttx) + z * z * (1 - 2 * t + tt)
    return mean, min(max(second - mean**2, 1e-12), mean * (1 - mean))


def gain_of(sums: Json, z: float) -> tuple[float, float]:
    """Return the bet by which a row adds most to the logarithm, and how much."""
    level, width = diluted(sums, z)
    gamma = np.geomspace(1e-6, 0.99, 200)
    won = expected(gamma, level, width) - np.log1p(-gamma * z)
    return float(gamma[np.argmax(won)]), float(won.max())


def weighted_plan(
    n: float, delta: float, sums: Json | None, bound: float, M: float
) -> tuple[list[float], list[float], list[float]]:
    """Return bets γ, weights π and levels as they are planned for a weighted cell."""
    n, term = max(n, 1.0), -math.log(delta)
    few, own = min(math.sqrt(8 * term / n), 0.495), min(max(bound / M, 0.0), 1.0)
    known = sums is not None and sums["count"] > 0 and sums["t"] > 0
    steps = np.linspace(0, 1, 8 if known else 9)
    spread = (few ** (1 - steps) * 0.99**steps).tolist()
    if sums is None or not known:
        beside = [0.05, 0.15, 0.3, 0.6]
        return spread, [1 / 9] * 9, [M * z for z in sorted([0, *beside, own, 1])]
    mean = min(sums["tx"] / sums["t"], 1.0)
    square = sums["ttxx"] - 2 * mean * sums["ttx"] + mean**2 * sums["tt"]
    low, high, best = mean, 1.0, 0.99
    for _ in range(40):
        middle = (low + high) / 2
        gamma, gain = gain_of(sums, middle)
        if n * gain >= term - math.log(0.6):
            high, best = middle, gamma
        else:
            low = middle
    step = max(math.sqrt(max(square, 0.0) / sums["tt"]) / 4, (high - mean) / 2)
    beside = [min(max(mean + step * k, 0.0), 1.0) for k in (-1, 0, 1, 3)]
    levels = [M * z for z in sorted([0, *beside, own, 1])]
    return [best, *spread], [0.6] + [0.05] * 8, levels


def weighted_needed(bound: float, sums: Json, M: float, delta: float) -> int | None:
    """Return about how many weighted rows bring the figure of a cell to its bound."""
    if bound >= M or not sums["count"] or not sums["t"]:
        return 0 if bound >= M and sums["count"] and sums["t"] else None
    gain = gain_of(sums, bound / M)[1]
    if min(sums["tx"] / sums["t"], 1.0) >= bound / M or gain <= 0:
        return None
    many = math.ceil((-math.log(delta) - math.log(0.6)) / gain)
    return many if many <= 10**12 else None


def bets_of(
    n: float, delta: float, mean: float, variance: float, M: float
) -> tuple[list[float], list[float]]:
    """Return bets γ and weights π as they are planned for a cell, by training rows."""
    n, term = max(n, 1.0), -math.log(0.8 * delta)
    few = min(math.sqrt(8 * term / n), 0.495)
    if not (math.isfinite(mean) and math.isfinite(variance)):
        steps = np.linspace(0, 1, 9)
        return (few ** (1 - steps) * 0.99**steps).tolist(), [1 / 9] * 9
    gamma, ends = promised(n, term, mean, variance, M)
    steps = np.linspace(0, 1, 8)
    best = float(gamma[np.argmin(ends)])
    return [best, *(few ** (1 - steps) * 0.99**steps)], [0.6] + [0.05] * 8


BETS = np.geomspace(1e-6, 0.99, 200)


def promised(
    n: float, term: float, mean: float, variance: float, M: float
) -> tuple[Any, Any]:
    """Return bets, and the upper end of ℓ/M that each promises for such losses.

    The forecast takes the two Gauss nodes of a beta law with this mean and variance.
    """
    level = min(max(mean / M, 1e-9), 1 - 1e-9)
    width = min(max(variance / M**2, 1e-12), level * (1 - level))
    won = expected(BETS, level, width)
    return BETS, -np.expm1(won - (term - math.log(0.6)) / n) / BETS


def expected(gamma: Any, level: float, width: float) -> Any:
    """Return about E log(1 − γx) of a number in [0, 1] with this mean and variance."""
    most = level * (1 - level)
    kappa = max(most / width - 1, 0.0)
    skew = 2 * (1 - 2 * level) * math.sqrt((kappa + 1) / most) / (kappa + 2)
    root = math.sqrt(skew**2 + 4)
    ends = [level + math.sqrt(width) * (skew + side * root) / 2 for side in (-1, 1)]
    low, high = (np.log1p(-gamma * min(max(end, 0.0), 1.0)) for end in ends)
    share = (1 - skew / root) / 2
    return (1 - share) * low + share * high


def rows_needed(
    bound: float, mean: float, variance: float, M: float, delta: float
) -> int | None:
    """Return about how many rows bring the upper end of a cell to its bound."""
    if bound >= M or mean >= bound:
        return 0 if bound >= M else None
    term, few, many = -math.log(0.8 * delta), 1, 1

    def wide(n: int) -> bool:
        return float(promised(n, term, mean, variance, M)[1].min()) * M > bound

    while wide(many):
        few, many = many, 2 * many
        if many > 10**12:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if wide(middle) else (few, middle)
    return many


def kl_inverse(p: float, budget: float) -> float:
    """Return the largest q with kl(p ‖ q) ≤ budget."""

    def beyond(q: float) -> float:
        left = p * math.log(p / q) if p > 0 else 0.0
        return left + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0) - budget

    top = 1 - 1e-16
    if p >= top or beyond(top) <= 0:
        return 1.0
    return float(brentq(beyond, max(p, 1e-300), top, xtol=1e-16, rtol=1e-15))


def rate_upper(k: float, n: float, delta: float) -> float:
    """Return Clopper and Pearson's bound of a rate, valid for rows that are unlike."""
    if k >= n:
        return 1.0
    return 1 - delta / n if k == n - 1 else float(betaincinv(k + 1.0, n - k, 1 - delta))


def spread(
    k: Sequence[float], n: Sequence[float], delta: float
) -> tuple[float | None, float, float]:
    """Return largest minus smallest rate in the rows, and the ends of its interval."""
    side, pairs = delta / (2 * len(n)), list(zip(k, n, strict=True))
    high = [rate_upper(a, b, side) for a, b in pairs]
    low = [1 - rate_upper(b - a, b, side) if b else 0.0 for a, b in pairs]
    least = max(0.0, max(low) - min(high))
    others = itertools.permutations(range(len(n)), 2)
    most = max((high[a] - low[b] for a, b in others), default=0.0)
    rates = [a / b for a, b in pairs if b]
    value = max(rates) - min(rates) if len(rates) == len(pairs) else None
    return value, least, max(least, most)


# The rows


@dataclass(frozen=True, eq=False)
class Model:
    """model.safetensors: what the model is, its weights and scaling, and names."""

    described: Json
    schema: Json
    w: Any
    multipliers: Any
    mean: Any
    scale: Any
    fill: Any
    target: Any
    loss_bound: float | None = None

    @classmethod
    def read(cls, path: Path) -> Model:
        """Read the file; nothing in it is ever run."""
        from safetensors import safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                header = json.loads(file.metadata()["pffl"])
                names = ("w", "multipliers", "input_mean", "input_scale", "input_fill")
                arrays = [np.array(file.get_tensor(name)) for name in names]
            scaling = header["target_scaling"] or {"mean": 0.0, "scale": 1.0}
            arrays.append(np.array([scaling["mean"], scaling["scale"]]))
            bound = header["loss_bound"]
            w, lam, mean, scale, fill, target = arrays
            named = header["model"], header["schema"]
            return cls(*named, w, lam, mean, scale, fill, target, bound)
        except Exception as error:
            raise Unreadable(f"{path}: no model of pffl: {error}") from error

    def inputs(self) -> Iterator[str]:
        """Names of the inputs; those of a hashed text are numbered."""
        given = self.schema["features"]
        for part in given["parts"] if isinstance(given, dict) else given:
            if isinstance(part, dict):
                yield from (f"{part['column']}#{j}" for j in range(part["count"]))
            else:
                yield part

    def schema_hash(self) -> str:
        """SHA-256 of the names of inputs, groups and labels."""
        plain = {key: self.schema[key] for key in ("features", "attributes")}
        plain["attributes"] = {a["name"]: a["values"] for a in plain["attributes"]}
        plain |= {key: self.schema[key] for key in ("labels", "target")}
        if self.schema["indicators"]:
            plain["indicators"] = self.schema["indicators"]
        text = json.dumps(plain, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def filled(self, X: Any) -> Any:
        """Return inputs with the missing ones, written as 0, at their values."""
        if not len(self.fill):
            return X
        inputs, marks = np.array(self.schema["indicators"]).T
        there = csr_array((self.fill, (marks, inputs)), shape=(X.shape[1], X.shape[1]))
        return X + X @ there

    def unit(self) -> float:
        """Loss of a prediction that is one scale of a numeric target off."""
        scale = float(self.target[1])
        cut = min(scale, float(self.described.get("delta", math.inf)))
        numeric = self.described.get("loss", "huber") == "huber"  # of a network
        return cut * (2 * scale - cut) if numeric else scale**2

    def effects(self) -> Json:
        """What one unit, and one scale, more of each input adds to the scores.

        Of many inputs, only those are looked at that move the scores most.
        """
        kind, d = self.described["kind"], len(self.mean)
        if kind not in LINEAR:
            return {}
        rows = self.target[1] * self.w.reshape(-1, d + self.described["intercept"])
        if len(rows) == 2:  # one score: the log-odds of the last class
            rows = rows[1:] - rows[:1]
        size = np.ptp(rows[:, :d], axis=0) if len(rows) > 1 else np.abs(rows[0, :d])
        most = set(np.argsort(-size, kind="stable")[:RANKED].tolist())
        names = [(j, n) for j, n in enumerate(self.inputs()) if j in most]
        return {
            " ".join(spelt(name).split()): [
                *(rows[:, j] / self.scale[j]).tolist(),
                *rows[:, j].tolist(),
            ]
            for j, name in names
        }

    def hash(self) -> str:
        """SHA-256 of kind, scaling and weights."""
        plain = json.dumps(self.described, sort_keys=True, ensure_ascii=False)
        parts = [plain.encode()]
        fill = [self.fill] if len(self.fill) else []
        for array in (self.mean, self.scale, *fill, self.target, self.w):
            parts += [f"\0{len(array)}\0".encode(), array.astype("<f8").tobytes()]
        return hashlib.sha256(b"".join(parts)).hexdigest()


@dataclass(frozen=True, eq=False)
class Table:
    """All rows: split, silo, group by name; label codes (or numbers); raw inputs.

    Also whom each row is about, and how much it counts, where that is known.
    """

    split: Any
    silo: Any
    group: Any
    y: Any
    X: Any
    person: Any = None
    weight: Any = None

    @classmethod
    def read(cls, path: Path, e: Json, features: list[str]) -> Table:
        """Read a CSV or npz file of prepared rows."""
        head = [*HEAD, PERSON] if e["data"].get("by_person") else HEAD
        try:
            if path.suffix == ".npz":
                with np.load(path, allow_pickle=False) as file:
                    head = [*head, *([WEIGHT] if WEIGHT in file else [])]
                    X, names = _inputs(file, e, [*head, *features])
                    columns = [file[name] for name in head]
            else:
                with path.open(encoding="utf-8", newline="") as text:
                    names, *lines = csv.reader(text)
                heavy = names == [*head, WEIGHT, *features]
                head = [*head, *([WEIGHT] if heavy else [])]
                at = range(len(head))
                columns = [np.array([line[j] for line in lines]) for j in at]
                X = np.array([line[len(head) :] for line in lines], dtype=np.float64)
            if names != [*head, *features]:
                raise ValueError(f"the columns must be {[*head, *features]}")
            split, silo, group, label, *others = columns
            more = dict(zip(head[len(HEAD) :], others, strict=True))
            code = {name: float(place) for place, name in enumerate(e["labels"])}
            y = np.array([code[v] if code else float(v) for v in label.tolist()])
            if unknown := set(group.tolist()) - set(e["groups"]):
                raise ValueError(f"unknown groups {sorted(unknown)}")
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise Unreadable(f"{path}: no rows of this model: {error!r}") from error
        kinds = {PERSON: np.int64, WEIGHT: np.float64}
        return cls(
            split, silo, group, y, X, **{k: v.astype(kinds[k]) for k, v in more.items()}
        )

    def hash(self, e: Json, kind: str) -> str:
        """SHA-256 of all rows, as the run hashed them, inputs of a kind."""
        found = hashlib.sha256(e["data"]["schema"].encode())
        for silo in self.silos:
            for split in sorted({*self.split.tolist(), *e["data"]["splits"]}):
                mine = (self.silo == silo) & (self.split == split)
                group = [e["groups"].index(g) for g in self.group[mine].tolist()]
                found.update(f"{silo}\0{split}\0{mine.sum()}".encode())
                X = hashed_inputs(self.X[mine], kind)
                arrays = [*X, self.y[mine], np.array(group, np.int64)]
                if self.person is not None:
                    arrays.append(self.person[mine])
                for array in arrays:
                    found.update(np.ascontiguousarray(array).tobytes())
                if self.weight is not None:
                    found.update(WEIGHT.encode() + self.weight[mine].tobytes())
        return found.hexdigest()

    def overlap(self, splits: Sequence[str], groups: list[str]) -> int:
        """Rows of some splits that are training rows: by ids, or equal ones."""
        who = self.person
        if who is None:
            code = [groups.index(g) for g in self.group.tolist()]
            who = alike(self.X, np.column_stack([self.y, code]) + 0.0)
        asked, train = np.isin(self.split, splits), self.split == "train"
        return int(np.isin(who[asked], who[train]).sum())

    def part_hash(self, split: str, kind: str) -> str:
        """SHA-256 of inputs and labels of one split, silo by silo."""
        found = hashlib.sha256()
        for silo in self.silos:
            mine = (self.silo == silo) & (self.split == split)
            for array in (*hashed_inputs(self.X[mine], kind), self.y[mine]):
                found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    @property
    def silos(self) -> list[str]:
        """The silos in order."""
        return list(dict.fromkeys(self.silo.tolist()))


def _inputs(file: Any, e: Json, names: list[str]) -> tuple[Any, list[str]]:
    """Return the inputs in an npz file, and what its columns are called.

    Sparse ones have the arrays of compressed rows, and the hash of all names.
    """
    if "X" in file:
        own = names[: len(names) - file["X"].shape[1]]
        return file["X"], [*own, *file["features"].tolist()]
    data, indices, indptr = (
        file[f"X_{name}"] for name in ("data", "indices", "indptr")
    )
    inputs = len(names) - len(HEAD) - (PERSON in names) - (WEIGHT in file)
    X = csr_array((data, indices, indptr), shape=(len(indptr) - 1, inputs))
    known = str(file["schema"]) == e["data"]["schema"]
    return X, names if known else ["(names that have another hash)"]


def hashed_inputs(X: Any, kind: str) -> list[Any]:
    """Return what a hash of inputs is taken of."""
    if isinstance(X, np.ndarray):
        return [X.astype(kind)]
    places = [X.indptr.astype("<i8"), X.indices.astype("<i8")]
    return [np.frombuffer(b"sparse", np.uint8), *places, X.data]


def alike(X: Any, others: Any) -> Any:
    """Return something for each row that is the same for equal rows alone."""
    if isinstance(X, np.ndarray):
        whole = np.column_stack([X.astype(np.float64) + 0.0, others])
        return whole.view(np.dtype((np.void, whole.shape[1] * 8))).reshape(-1)
    ends = list(itertools.pairwise(X.indptr.tolist()))
    rows = [X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in ends]
    return np.array(
        [
            hashlib.sha256(row + other.tobytes()).hexdigest()
            for row, other in zip(rows, others, strict=True)
        ]
    )


class Scaled:
    """Sparse rows as if scaled, (X − mean)/scale, and a 1 for an intercept."""

    __array_ufunc__ = None  # NumPy leaves its products to this class

    def __init__(self, X: Any, model: Model) -> None:
        data = X.data / model.scale[X.indices]
        self.X = csr_array((data, X.indices, X.indptr), shape=X.shape)
        self.shift, self.one = model.mean / model.scale, model.described["intercept"]
        self.shape = (X.shape[0], X.shape[1] + self.one)

    def __matmul__(self, W: Any) -> Any:
        d = len(self.shift)
        found = self.X @ W[:d] - self.shift @ W[:d]
        return found + W[d] if self.one else found

    def __rmatmul__(self, A: Any) -> Any:
        total = A.sum(axis=1, keepdims=True)
        found = A @ self.X - total * self.shift
        return np.hstack([found, total]) if self.one else found


def mean_by(who: Any, values: Any) -> Any:
    """Return the mean of each person's values."""
    place = np.unique(who, return_inverse=True)[1]
    return np.bincount(place, values) / np.bincount(place)


class Rows:
    """The rows of one split: scaled inputs, cells, and each row's weight in F."""

    def __init__(self, table: Table, split: str, e: Json, model: Model) -> None:
        mine, labels = table.split == split, e["labels"] or [None]
        self.kind, self.outputs = e["model"]["kind"], e["model"]["outputs"]
        self.cut = float(model.described.get("delta", math.inf))  # of Huber's loss
        self.e = e
        self.as_is = e["terms"]["clipping"] == "range" and bool(e["labels"])
        self.y, self.silo = table.y[mine], table.silo[mine]
        self.person = None if table.person is None else table.person[mine]
        weights = np.ones(len(table.y)) if table.weight is None else table.weight
        self.weight = weights[mine]
        self.shift, self.stretch = model.target.tolist()  # prediction of score 0, of 1
        self.X: Any
        if isinstance(table.X, np.ndarray):
            inputs = model.filled(table.X[mine].astype(np.float64))
            self.X = (inputs - model.mean) / model.scale
            if model.described.get("intercept"):
                self.X = np.column_stack([self.X, np.ones(len(self.X))])
        else:
            self.X = Scaled(model.filled(table.X[mine]), model)
        atom = {
            (g, label): (table.group[mine] == g) & ((self.y == c) | (label is None))
            for g in e["groups"]
            for c, label in enumerate(labels)
        }
        self.atoms = np.array(list(atom.values()))
        here = {s: self.silo == s for s in table.silos}
        self.cells = np.array(
            [
                np.any([atom[g, label] for g, label in cell["of"]], axis=0)
                & (True if cell["silo"] is None else here[cell["silo"]])
                for cell in e["cells"]
            ]
        )
        self.counts = self.cells @ self.weight
        self.share, self.in_risk = 0.0, np.zeros(len(self.y))
        for silo, rows in here.items():
            trained = (table.split == "train") & (table.silo == silo)
            p = 1 / e["data"]["silos"]
            if e["terms"]["weighting"] == "rows":
                p = weights[trained].sum() / weights[table.split == "train"].sum()
            if rows.any():
                own = self.weight[rows]
                self.share, self.in_risk[rows] = self.share + p, p * own / own.sum()

    def scores(self, w: Any) -> Any:
        """Return Wx + b, shape (n, outputs)."""
        return self.X @ w.reshape(self.outputs, -1).T

    def losses(self, w: Any) -> Any:
        """Return the loss of each row."""
        code = (np.arange(len(self.y)), self.y.astype(int))
        if self.kind == "probabilities":
            p = self.X if self.X.shape[1] > 1 else np.hstack([1 - self.X, self.X])
            return -np.log(np.clip(p[code], 5e-324, 1))
        z = self.scores(w)
        if self.kind == "softmax":
            return logsumexp(z, axis=1) - z[code]
        if self.kind == "logistic":
            return np.logaddexp(0, np.where(self.y == 1, -z[:, 0], z[:, 0]))
        return self.residual(np.abs(self.stretch * z[:, 0] - (self.y - self.shift)))

    def residual(self, size: Any) -> Any:
        """Return the loss of predictions that are so far off."""
        cut = np.minimum(size, self.cut)
        return cut * (2 * size - cut)

    @property
    def n_classes(self) -> int:
        """Return the number of classes, at least 2."""
        return max(2, self.outputs, self.X.shape[1] * (self.kind[0] == "p"))

    def bounded(self, w: Any, losses: Any, M: float) -> Any:
        """Return the losses of the bounded predictor, none of them above M."""
        if self.as_is:
            return np.minimum(losses, M)
        least = math.exp(-M)
        classes = self.n_classes
        if self.kind == "logistic" or (self.kind[0] == "p" and classes == 2):
            return -np.log(np.clip(np.exp(-losses), least, 1 - least))
        if self.kind in ("least-squares", "huber"):
            predicted = self.shift + self.stretch * self.scores(w)[:, 0]
            low, high = limits_of({**self.e, "terms": {"loss_bound": M}})
            return self.residual(np.abs(np.clip(predicted, low, high) - self.y))
        return -np.log((1 - classes * least) * np.exp(-losses) + least)

    def classes(self, w: Any) -> Any:
        """Return the predicted label codes; of numbers none is right."""
        if self.kind in ("least-squares", "huber"):
            return np.full(len(self.y), np.nan)
        given = self.kind == "probabilities"
        z = self.X if given else self.scores(w)
        return z.argmax(axis=1) if z.shape[1] > 1 else z[:, 0] > (0.5 if given else 0)

    def gradient(self, w: Any, weights: Any) -> Any:
        """Return the derivative of Σ weights_i ℓ_i(w)."""
        z, y = self.scores(w), self.y[:, None]
        off = self.stretch * z - (y - self.shift)
        slopes = 2 * self.stretch * np.clip(off, -self.cut, self.cut)
        if self.kind == "logistic":
            slopes = expit(z) - y
        if self.kind == "softmax":
            slopes = softmax(z, axis=1) - (np.arange(self.outputs) == y)
        return ((slopes * weights[:, None]).T @ self.X).reshape(-1)

    def witness(self, w: Any, v: Any, weights: Any) -> tuple[float, float]:
        """Return Σ weights_i (−ℓ*(u_i)), and how long Σ weights_i u_i ⊗ x_i is.

        u are the slopes at w, moved along v, where the conjugate ℓ* is finite.
        """
        z, move, y = self.scores(w), self.scores(v), self.y[:, None]
        if self.kind == "softmax":
            q = softmax(z, axis=1)
            q = np.maximum(q - q * (move - (q * move).sum(1, keepdims=True)), 0)
            q /= q.sum(1, keepdims=True)
            u, values = q - (np.arange(self.outputs) == y), entr(q)
        elif self.kind == "logistic":
            u = np.clip(expit(z) - y - expit(z) * expit(-z) * move, -y, 1 - y)
            values = entr(np.abs(u)) - xlog1py(1 - np.abs(u), -np.abs(u))
        else:
            r, limit = self.stretch * z - (y - self.shift), 2 * self.cut
            size = np.maximum(np.abs(r), TINY)
            curve = np.where(size <= self.cut, 2, 0.1 * limit / size) * self.stretch
            u = 2 * np.clip(r, -self.cut, self.cut) - curve * move
            u = np.clip(u, -limit, limit)
            values = -(u**2) / 4 - u * (y - self.shift)
            u = u * self.stretch
        residual = (u * weights[:, None]).T @ self.X
        return float(weights @ values.sum(axis=1)), float(np.linalg.norm(residual))

    def means(self, w: Any) -> Any:
        """Return the mean loss of each cell."""
        return self.cells @ (self.weight * self.losses(w)) / self.counts

    def in_cells(self, lam: Any) -> Any:
        """Return the weight of each row in Σ λ_z × the mean loss of cell z."""
        return self.weight * ((lam / self.counts) @ self.cells)

    @property
    def unit(self) -> float:
        """What losses are measured in."""
        if self.kind not in ("least-squares", "huber"):
            return 1.0
        return float(self.residual(np.float64(self.stretch)))

    def sizes(self) -> dict[str, list[float]]:
        """Return each cell's loss under the best constant of all rows, and its own."""
        scale, constant = [], []
        if self.kind in ("least-squares", "huber"):
            off = self.y - np.average(self.y, weights=self.weight)
            parts = [a & (self.silo == s) for a in self.atoms for s in set(self.silo)]
            losses = np.zeros(len(off))
            for part in parts:
                if part.any():
                    losses[part] = self.residual(np.sqrt(self.mean(off**2, part)))
            for cell in self.cells:
                scale.append(self.mean(losses, cell))
                square = self.mean((off - self.mean(off, cell)) ** 2, cell)
                constant.append(float(self.residual(np.sqrt(square))))
        else:
            code = self.y.astype(int)
            rate = np.bincount(code, self.weight) / self.weight.sum()
            for cell in self.cells:
                scale.append(self.mean(-np.log(rate[code]), cell))
                own = np.bincount(code[cell], self.weight[cell])
                own = own / own.sum()
                constant.append(float(-(own[own > 0] * np.log(own[own > 0])).sum()))
        least = 1e-3 * self.unit
        return {"scale": [max(one, least) for one in scale], "constant": constant}

    def mean(self, values: Any, rows: Any) -> float:
        """Return the mean of some rows' values."""
        return float(np.average(values[rows], weights=self.weight[rows]))

    def stakes(self, w: Any, M: float, s_max: float) -> list[tuple[Any, Any, int]]:
        """Return t, tx of each person, and how many rows are above s_max, by cell."""
        x, t = self.bounded(w, self.losses(w), M) / M, self.weight / s_max
        out = []
        for cell in self.cells:
            parts = [np.minimum(t[cell], 1), np.minimum(t[cell], 1) * x[cell]]
            if self.person is not None:
                parts = [mean_by(self.person[cell], part) for part in parts]
            out.append((*parts, int((t[cell] > 1).sum())))
        return out

    def stake_sums(self, w: Any, M: float, s_max: float) -> Any:
        """Return the sums of `STAKES`, cell by cell."""
        return np.array(
            [
                [len(t), above, *(v.sum() for v in (t, tx, t * t, t * tx, tx * tx))]
                for t, tx, above in self.stakes(w, M, s_max)
            ]
        ).T

    def tests(self, w: Any, M: float, s_max: float, bets: Any, levels: Any) -> Any:
        """Return Σ log(1 − γ(tx + (1 − t)z)) per cell, bet and level z = ζ/M."""
        rows = zip(self.stakes(w, M, s_max), bets, levels, strict=True)
        return np.array(
            [
                [[np.log1p(-g * (tx + (1 - t) * z / M)).sum() for z in zs] for g in gs]
                for (t, tx, _), gs, zs in rows
            ]
        )

    def bet(self, w: Any, M: float, bets: Any) -> Any:
        """Return Σ log(1 − γx) per cell and bet, x = ℓ/M."""
        x = [self.people(c, w, M) / M for c in self.cells]
        pairs = zip(x, bets, strict=True)
        return np.array([[np.log1p(-g * own).sum() for g in row] for own, row in pairs])

    def people_sums(self, w: Any, M: float) -> Any:
        """Return people, Σ of their mean losses and of its squares, per cell."""
        own = [self.people(cell, w, M) for cell in self.cells]
        return np.array([[len(x), x.sum(), (x**2).sum()] for x in own]).T

    def people(self, cell: Any, w: Any, M: float) -> Any:
        """Return the mean bounded loss of each person of a cell."""
        own = self.bounded(w, self.losses(w), M)[cell]
        if self.person is None:
            return own
        return mean_by(self.person[cell], own)

    def sums(self, w: Any, M: float | None) -> dict[str, Any]:
        """Return all sums that evidence has of a split, one list after another."""
        losses, classes, one = self.losses(w), self.classes(w), np.ones(len(self.y))
        cut = losses if M is None else self.bounded(w, losses, M)
        found = [one, losses, losses**2, cut, cut**2, classes == self.y, classes == 1]
        columns = np.array([*found, one], dtype=float) * self.weight
        columns[0] = 1.0
        parts = {"cells": columns @ self.cells.T, "atoms": columns @ self.atoms.T}
        risks = {"risk": self.in_risk @ losses, "bounded_risk": self.in_risk @ cut}
        return {**risks, "share": self.share, **parts}


def check_rows(e: Json, model: Model, table: Table) -> Iterator[Check]:
    """Compare evidence with the rows."""
    data, M = e["data"], e["terms"]["loss_bound"]
    kinds = ("float64", "float32", "uint8")
    if data["fingerprint"] is not None:
        hashes = [table.hash(e, kind) for kind in kinds]
        good = data["fingerprint"] in hashes
        yield Check("data: hash", data["fingerprint"], hashes[0], good)
    for split, stated in data["splits"].items():
        hashes = [table.part_hash(split, kind) for kind in kinds]
        yield Check(f"data: hash of {split}", stated, hashes[0], stated in hashes)
    yield from compare("data: silos", data["silos"], len(table.silos))
    who = table.person if table.person is not None else np.arange(len(table.y))
    yield from compare(
        "data: several", data["several"], len({*who.tolist()}) < len(who)
    )
    old = known(e["before"]) or {"model": [], "samples": {}}
    samples = {"seen": e["seen"], "held-out": known(e["heldout"])}
    samples |= {f"without bounds: {s}": one for s, one in old["samples"].items()}
    names = {split for one in samples.values() if one for split in one["splits"]}
    path = known(e.get("path"))
    names |= {path["split"], "train"} if path else set()
    rows = {name: Rows(table, name, e, model) for name in names}
    for name, stated in samples.items():
        if stated is None:
            continue
        w = model.w if name in ("seen", "held-out") else np.array(old["model"])
        parts = [rows[split] for split in stated["splits"]]
        yield from check_sample(name, stated, parts, w, M)
    held, s_max = known(e["heldout"]), e["terms"].get("weight_bound")
    if held:
        parts = [rows[split] for split in held["splits"]]
        yield from check_sums("held-out", held, parts, model.w, M, s_max)
    if stated := e["seen"].get("stakes"):
        parts = [rows[split] for split in e["seen"]["splits"]]
        found = stakes_of(parts, model.w, M, s_max)
        yield from compare("seen: stakes", stated, found, 1.0)
    if path:
        yield from check_models(e, path, rows)
        if path["overlap"] is not None:
            many = table.overlap([path["split"]], e["groups"])
            what = "calibration rows that were trained on"
            yield from compare(what, path["overlap"], many)
    weighted = bool(table.weight is not None and (table.weight != 1).any())
    if data.get("weighted") is not None:
        yield from compare("data: weighted", data["weighted"], weighted)
    if data.get("weights"):
        train = rows["train"].weight
        ends = [float(train.min()), float(train.max())]
        yield from compare("data: weights", data["weights"], ends)
    if "train" in rows and rows["train"].counts.all():
        M = e["terms"]["loss_bound"]
        yield from check_choice("", e, rows["train"], model.w, M)
    if "train" in rows:
        stated = {k: [c[k] for c in e["cells"]] for k in ("scale", "constant")}
        yield from compare("cells", stated, rows["train"].sizes(), 1.0)
        unit = rows["train"].unit
        yield from compare("model: unit", e["model"]["unit"], unit, 1.0)
    if held and data["overlap"] is not None:
        many = table.overlap(held["splits"], e["groups"])
        yield from compare("held-out rows that were trained on", data["overlap"], many)
    card = data["card"] or {"silos": [], "groups": [], "rows": [], "floor": 1}
    for silo, stated in zip(card["silos"], card["rows"], strict=True):
        mine = (table.split == "train") & ((table.silo == silo) | (silo[:4] == "all "))
        counts = [int((table.group[mine] == g).sum()) for g in card["groups"]]
        shown = [n if n == 0 or n >= card["floor"] else None for n in counts]
        yield from compare(f"rows of {silo}", stated, shown)
    if "train" in rows and rows["train"].counts.all() and e["model"]["linear"]:
        yield from check_proofs(e, rows["train"], model)


def check_sample(
    name: str, stated: Json, rows: list[Rows], w: Any, M: float | None
) -> Iterator[Check]:
    """Compare the sums of some splits at one w with their rows."""
    parts = [part.sums(w, M) for part in rows]
    for key in ("risk", "bounded_risk", "share"):
        total = float(sum(part[key] for part in parts))
        yield from compare(f"{name}: {key}", float(stated[key]), total, 1.0)
    for key in ("cells", "atoms"):
        total = sum(part[key] for part in parts)
        found = dict(zip(COLUMNS, total.tolist(), strict=True))
        plain = {c: [float(v) for v in given] for c, given in stated[key].items()}
        yield from compare(f"{name}: {key}", plain, found, 1.0)


def check_sums(
    name: str, held: Json, rows: list[Rows], w: Any, M: Any, s_max: Any
) -> Iterator[Check]:
    """Compare the sums that statements on unseen people stand on with the rows."""
    if held.get("stakes"):
        found = stakes_of(rows, w, M, s_max)
        yield from compare(f"{name}: stakes", held["stakes"], found, 1.0)
    if held.get("levels"):
        tests = (s_max, held["bets"], held["levels"])
        total = sum(part.tests(w, M, *tests) for part in rows)
        yield from compare(f"{name}: diluted", held["diluted"], total.tolist(), 1.0)
    elif held["bets"]:
        total = sum(part.bet(w, M, held["bets"]) for part in rows)
        yield from compare(f"{name}: below", held["below"], total.tolist(), 1.0)
        own = sum(part.people_sums(w, M) for part in rows)
        people = dict(zip(PEOPLE, own.tolist(), strict=True))
        yield from compare(f"{name}: people", held["people"], people, 1.0)


def stakes_of(rows: list[Rows], w: Any, M: float, s_max: float) -> Json:
    """Return the sums of `STAKES` over some splits, one list after another."""
    total = sum(part.stake_sums(w, M, s_max) for part in rows)
    return dict(zip(STAKES, np.asarray(total).tolist(), strict=True))


def check_models(e: Json, path: Json, rows: dict[str, Rows]) -> Iterator[Check]:
    """Compare every model of a path with the rows: its sums, and how M was chosen."""
    train, held, s_max = rows["train"], rows[path["split"]], e["terms"]["weight_bound"]
    for place, one in enumerate(path["candidates"], start=1):
        w, M, name = np.array(one["model"]), one["loss_bound"], f"model {place}"
        yield from check_sample(f"{name}, training", one["training"], [train], w, M)
        if stated := one["training"]["stakes"]:
            found = stakes_of([train], w, M, s_max)
            yield from compare(f"{name}, training: stakes", stated, found, 1.0)
        own = one["calibration"]
        yield from check_sample(f"{name}, calibration", own, [held], w, M)
        yield from check_sums(f"{name}, calibration", own, [held], w, M, s_max)
        yield from check_choice(f"{name}: ", e, train, w, M)


def check_bets(e: Json) -> Iterator[Check]:
    """Plan the bets again, by training rows alone.

    A later certificate keeps those of the first, which were planned for its confidence.
    """
    held, t, path = known(e["heldout"]), e["terms"], known(e.get("path"))
    bounds = [cell["bound"] for cell in e["cells"]]
    if held and held["bets"] and not t["later"] and not missing(e["training"]):
        delta, M = 1 - t["confidence"], t["loss_bound"]
        yield from check_plan("held-out", held, e["seen"], bounds, delta, M)
    for place, one in enumerate(path["candidates"] if path else [], start=1):
        delta, M = 1 - path["confidence"], one["loss_bound"]
        own, name = one["calibration"], f"model {place}, calibration"
        yield from check_plan(name, own, one["training"], bounds, delta, M)


def check_plan(
    name: str, held: Json, seen: Json, bounds: Sequence[float], delta: float, M: float
) -> Iterator[Check]:
    """Plan the bets of one sample again."""
    means, squares = (means_of(seen, f"bounded_loss{end}") for end in ("", "_squared"))
    weighs = held.get("levels")
    for z, n in enumerate(held["cells"]["count"]):
        spread = max(squares[z] - means[z] ** 2, 0.0)
        if weighs:
            sums = {k: v[z] for k, v in seen.get("stakes", {}).items()} or None
            *planned, levels = weighted_plan(n, delta, sums, bounds[z], M)
            stated = [held["bets"][z], held["bet_weights"][z]]
            yield from compare(f"{name}: bets of cell {z}", stated, planned)
            yield from compare(f"{name}: levels of cell {z}", weighs[z], levels)
            continue
        bets, weights = bets_of(n, delta, means[z], spread, M)
        yield from compare(f"{name}: bets of cell {z}", held["bets"][z], bets)
        stated = held["bet_weights"][z]
        yield from compare(f"{name}: weights of bets of cell {z}", stated, weights)


def check_path(e: Json) -> Iterator[Check]:
    """Put the models of a path in order again, test them, and choose.

    What is compared here follows from their sums; `check_models` compares these.
    """
    if (path := known(e.get("path"))) is None:
        return
    bounds = [cell["bound"] for cell in e["cells"]]
    yield from check_order(path, bounds)
    risks = risks_of(e, path)
    kept = shown_up_to(risks, 1 - path["confidence"])
    yield from compare("path: the model chosen", path["chosen"], max(kept - 1, 0))
    models, own = path["candidates"], path["candidates"][path["chosen"]]
    same = [("training", one["training"], e["seen"]) for one in models]
    same += [("calibration", one["calibration"], own["calibration"]) for one in models]
    for name, one, other in same:
        yield from compare(f"path: {name} rows", one["splits"], other["splits"])
        for key in ("cells", "atoms"):
            for column in ("count", "weight"):
                what = f"path: {name} rows, {key}, {column}"
                yield from compare(what, one[key][column], other[key][column], 1.0)
    yield from check_shipped(e, path, own)
    values = loss_bounds(e)
    for place, one in enumerate(models, start=1):
        good = any(abs(M / one["loss_bound"] - 1) <= CLOSE for M in values)
        yield Check(f"model {place}: M", one["loss_bound"], f"of {values}", good)


def check_order(path: Json, bounds: Sequence[float]) -> Iterator[Check]:
    """Measure again how safe each model is on training rows: the safest is first."""
    models, spread = path["candidates"], path["spread"]
    errors = [standard_errors(one) for one in models]  # by the one trained first
    off = [np.abs(np.subtract(one, spread)).max(initial=0.0) for one in errors]
    yield from compare("path: spread", spread, errors[int(np.argmin(off))])
    margins = []
    for one in models:
        room = zip(bounds, means_of(one["training"], "loss"), spread, strict=True)
        margins.append(min((b - mean) / s for b, mean, s in room))
    stated = [one["margin"] for one in models]
    yield from compare("path: margins", stated, margins)
    slack = CLOSE * max(map(abs, margins)) + TINY
    good = all(b - a <= slack for a, b in itertools.pairwise(margins))
    yield Check("path: the safest first", stated, "in another order", good)


def check_shipped(e: Json, path: Json, own: Json) -> Iterator[Check]:
    """Find in evidence of the shipped model what the path has of it."""
    yield from compare("path: M", own["loss_bound"], e["terms"]["loss_bound"])
    pairs, held = [("seen", own["training"], e["seen"])], known(e["heldout"])
    if held and path["split"] in held["splits"]:
        pairs.append(("held-out", own["calibration"], held))
    for name, one, other in pairs:
        for key in ("splits", "risk", "bounded_risk", "share", "cells", "atoms"):
            yield from compare(f"path: {name}, {key}", one[key], other[key], 1.0)


def standard_errors(one: Json) -> list[float]:
    """Return about one standard error of each cell's mean on the calibration rows."""
    means, squares = (
        means_of(one["training"], f"bounded_loss{end}") for end in ("", "_squared")
    )
    rows = zip(means, squares, one["calibration"]["cells"]["count"], strict=True)
    found = [math.sqrt(max(b - a * a, 0.0) / max(n, 1)) for a, b, n in rows]
    top = max(found, default=0.0)
    return [max(error, LEAST * (top if top > 0 else 1.0)) for error in found]


def is_weighted(e: Json) -> bool:
    """Whether held-out rows do not count alike, as far as is known."""
    samples = [e["seen"], *filter(None, [known(e["heldout"])])]
    unlike = any(s["atoms"]["weight"] != s["atoms"]["count"] for s in samples)
    stated = e["data"].get("weighted")
    return unlike if stated is None else bool(stated)


def risks_of(e: Json, path: Json) -> list[float]:
    """Return the smallest δ with which each model of a path is shown."""
    bounds, weighted = [cell["bound"] for cell in e["cells"]], is_weighted(e)
    return [least_risk(one, bounds, weighted=weighted) for one in path["candidates"]]


def least_risk(one: Json, bounds: Sequence[float], *, weighted: bool) -> float:
    """Return the smallest δ with which a model is shown to keep every bound.

    Each cell is tested at its bound ζ, not by an upper end: it is shown if the wealth
    of the bets, Σ π exp(S)/(1 − γζ/M)ⁿ, is 1/(0.8 δ), or kl(mean ‖ ζ/M) is log(5/δ)/n.
    All are shown if the worst is: where a bound is broken, that cell is misjudged.
    """
    s, M = one["calibration"], one["loss_bound"]
    risk = tested_weighted if weighted else tested_plain
    return max((risk(s, z, b, M) for z, b in enumerate(bounds)), default=0.0)


def tested_plain(s: Json, z: int, bound: float, M: float) -> float:
    """Return the smallest δ with which a cell is shown to be within its bound."""
    table = s["people"] or s["cells"]  # rows of one person are not independent
    n, total = table["count"][z], table["bounded_loss"][z]
    if bound >= M or n == 0 or bound <= 0:
        return 0.0 if bound >= M else math.inf
    p, q, betting = min(max(total / n / M, 0.0), 1.0), bound / M, bool(s["bets"])
    found = math.inf
    if p < q:
        far = float(xlogy(p, p / q) + xlogy(1 - p, (1 - p) / (1 - q)))
        found = (5 if betting else 1) * math.exp(-n * far)
    if betting:
        g, pi, sums = (np.array(s[k][z]) for k in ("bets", "bet_weights", "below"))
        won = np.log(pi) + sums - n * np.log1p(-g * q)
        found = min(found, against(won) / 0.8)
    return found


def tested_weighted(s: Json, z: int, bound: float, M: float) -> float:
    """Return the same where rows have weights: the bound is one of the levels."""
    if not s["levels"] or any(s["stakes"]["above"]):
        return math.inf
    n = s["stakes"]["count"][z]
    if bound >= M or n == 0:
        return 0.0 if bound >= M else math.inf
    at = int(np.argmin(np.abs(np.subtract(s["levels"][z], bound))))
    g, pi, sums = (np.array(s[k][z]) for k in ("bets", "bet_weights", "diluted"))
    won = np.log(pi) + sums[:, at] - n * np.log1p(-g * bound / M)
    return against(won)


def against(won: Any) -> float:
    """Return 1/Σ exp: the smallest risk with which so much wealth is reached."""
    return math.exp(min(-float(np.logaddexp.reduce(won)), 700.0))


def shown_up_to(risks: Sequence[float], delta: float) -> int:
    """Return how many models are shown, from the first one on, until one is not."""
    most = delta * (1 + CLOSE)
    return next((k for k, risk in enumerate(risks) if risk > most), len(risks))


def check_bound(e: Json) -> Iterator[Check]:
    """Choose the bound again, by what every bound did on the rows set aside."""
    choice = (known(e["training"]) or {}).get("choice")
    if not choice:
        return
    free, *others = choice["trials"]
    limit = choice["error_at_most"]
    if not choice["declared"]:
        point = 0.01 if e["labels"] else 0.01 * free["error"]
        yield from compare("error that a bound may have", limit, free["error"] + point)
    within = [t for t in others if t["error"] <= limit + TINY]
    best = min(within, key=lambda t: t["worst"], default={"bound": None})
    yield from compare("the bound that was chosen", choice["bound"], best["bound"])


def check_sites(e: Json) -> Iterator[Check]:
    """Find doubts about sites that so many of them can give, and no less.

    The largest of some is at least their mean, and at most their sum; and the mean loss
    of all is between those of single sites, where all of these are known.
    """
    told, M = known(e["sites"]), e["terms"]["loss_bound"]
    path = known(e.get("path")) or {"candidates": []}
    samples = [(e["seen"], M), (known(e["heldout"]) or {}, M)]
    samples += [(one["calibration"], one["loss_bound"]) for one in path["candidates"]]
    for sample, M in samples:
        if not sample.get("sites"):  # as in evidence of 0.1
            continue
        if told is None or told["masked"] or M is None:
            yield Check("doubts about sites", sample["sites"], "not known", False)
            continue
        own, cells = sample["sites"], sample["cells"]
        table = zip(*own.values(), cells["bounded_loss"], cells["weight"], strict=True)
        for name, (count, doubt, low, high, loss, weight) in zip(
            (cell["cell"] for cell in e["cells"]), table, strict=True
        ):
            all_of_it, slack = M * weight - loss, CLOSE * M * weight
            good = count <= len(told["names"]) and (count > 0) == (weight > 0)
            good = (
                good and all_of_it / max(count, 1) - slack <= doubt <= all_of_it + slack
            )
            good = good and (low is None) == (high is None)
            good = good and (low is None or 0 <= low <= high <= M * (1 + CLOSE))
            yield Check(f"doubts about sites, {name}", doubt, all_of_it, good)


def check_choice(
    name: str, e: Json, rows: Rows, w: Any, stated: float | None
) -> Iterator[Check]:
    """Choose M again, by training rows alone: the first that changes no loss much."""
    data = e["data"]
    if data["trained_on"] != data["fingerprint"]:  # other rows than it was chosen on
        return
    if e["terms"]["clipping"] == "declared" or not known(e["training"]):
        return
    values = loss_bounds(e)
    smaller = [M for M in values if stated is None or stated * (1 - CLOSE) > M]
    good = not any(harmless(e, rows, w, M, -MET) for M in smaller)
    if stated is not None:
        good = good and min(abs(M / stated - 1) for M in values) <= CLOSE
        good = good and harmless(e, rows, w, stated, MET)
    yield Check(f"{name}M, chosen on training rows", stated, f"of {values}", good)


def harmless(e: Json, rows: Rows, w: Any, M: float, room: float) -> bool:
    """Whether keeping losses below M changes no mean loss, and no verdict."""
    own = rows.losses(w)
    sets = np.vstack([rows.cells, np.ones(len(own))]) * rows.weight
    mass = sets.sum(axis=1)
    a, b = sets @ own / mass, sets @ rows.bounded(w, own, M) / mass
    bounds = np.array([c["bound"] * e["promise"] for c in e["cells"]] + [0.0])
    scales = np.array([c["scale"] for c in e["cells"]] + [0.0])
    met = a - bounds <= MET * np.maximum(np.minimum(scales, bounds), 0.0)
    limit = np.maximum(1e-3 * a, 1e-6 * e["model"]["unit"])
    same = np.where(met, b <= bounds * (1 + 1e-4 * (1 + room)), b > bounds * (1 - room))
    good = (np.abs(b - a) <= limit * (1 + room)) & (same | (bounds <= 0))
    return bool(good.all())


def check_proofs(e: Json, rows: Rows, model: Model) -> Iterator[Check]:
    """Prove again what was proved: every witness, and every model that attains."""
    terms, p, R = e["terms"], e["proofs"], e["terms"]["radius"]
    mu = e["model"]["l2"] * e["model"]["unit"]
    beta, B = terms["risk_weight"], terms["multiplier_bound"]
    zeta = np.array([c["bound"] for c in e["cells"]])
    names = [c["cell"] for c in e["cells"]]

    def risk(w: Any) -> float:
        return float(rows.in_risk @ rows.losses(w)) + 0.5 * mu * float(w @ w)

    def ends(name: str, one: Json, offsets: Any, high: float) -> Iterator[Check]:
        """Prove the lower end again, as far as it reaches, and compare the upper."""
        lam, w = np.array(one["multipliers"]), np.array(one["at"])
        value, left = rows.witness(w, np.array(one["direction"]), rows.in_cells(lam))
        slope, reach = one["slope"], one["reach"]
        low = value - float(lam @ offsets) - reach * slope
        low = max(0.0, low) if "cell" in one else low
        found = {"lower": min(low, high), "upper": high}
        yield from compare(name, {key: one[key] for key in found}, found, 1.0)
        good = reach * (left - slope) <= TINY  # what it moves the lower end by
        yield Check(f"{name}: residual", f"at most {slope:g}", left, good)
        norms = (np.linalg.norm(one["model"]), np.linalg.norm(w), UNIT * R)
        longest = float(max(norms))
        yield from compare(f"{name}: longest", one["longest"], longest)
        free = SHARP * one["upper"] / slope if slope else math.inf
        far = min(max(free, WELL * longest), 4 * FAR * longest)
        yield from compare(f"{name}: reach", reach, far)

    if pair := known(p["gap"]):
        lam, at = np.array([c["multiplier"] for c in e["cells"]]), np.array(pair["at"])
        aims = [c["bound"] if c["aimed"] is None else c["aimed"] for c in e["cells"]]
        aimed = np.array(aims)
        worst = max(0.0, float((rows.means(model.w) - aimed).max()))
        priced = B if e["promise"] or e["minimax"] else 0.0
        g = rows.gradient(at, beta * rows.in_risk + rows.in_cells(lam))
        g, value = g + beta * mu * at, beta * risk(at) + lam @ (rows.means(at) - aimed)
        if beta * mu > 0:
            lower = value - g @ g / (2 * beta * mu)
        else:
            lower = value - (g @ at + pair["radius"] * np.linalg.norm(g))
        found = {"upper": beta * risk(model.w) + priced * worst, "lower": float(lower)}
        wide = pair["upper"] - pair["lower"]  # with what rounding can do at both ends
        for key, sign in (("upper", 1.0), ("lower", -1.0)):
            room = CLOSE * max(abs(found[key]), 1.0) + TINY
            good = -room <= sign * (pair[key] - found[key]) <= room + 0.5 * wide
            yield Check(f"gap, {key}", pair[key], found[key], good)
    for name in ("least", "excess"):
        if one := known(p[name]):
            lam, w = np.array(one["multipliers"]), np.array(one["model"])
            off = np.array(one["offsets"])
            good = bool((lam >= 0).all()) and abs(lam.sum() - 1) <= CLOSE
            yield Check(f"{name}: multipliers", "≥ 0, sum 1", lam.tolist(), good)
            wide = (zeta - zeta.max()) * (name == "excess" and bool(off.any()))
            yield from compare(f"{name}: offsets", one["offsets"], wide.tolist(), 1.0)
            yield from compare(f"{name}: risk", one["risk"], risk(w), 1.0)
            attained = float((rows.means(w) - off).max())
            yield from ends(name, one, off, attained)
    for kind, one in [(k, one) for k in ("lowest", "reach") for one in p[k]]:
        if one["upper"] is not None:
            z, w = names.index(one["cell"]), np.array(one["model"])
            name, off = f"{kind} of {one['cell']}", zeta.copy()
            off[z] = 0.0
            yield from compare(f"{name}: multiplier", one["multipliers"][z], 1.0)
            if kind == "reach":
                alone = (np.arange(len(names)) == z).astype(float).tolist()
                yield from compare(f"{name}: multipliers", one["multipliers"], alone)
            else:
                over = float(np.delete(rows.means(w) - zeta, z).max(initial=-1.0))
                yield Check(f"{name}: other bounds", "kept", over, over <= CLOSE)
            yield from ends(name, one, off, float(rows.means(w)[z]))


def number(value: Any) -> float:
    """Return a number; NaN, with which nothing agrees, for what is none."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good else math.nan


def missing(part: Any) -> bool:
    """Whether a part of evidence is not available, and says why."""
    return isinstance(part, dict) and set(part) == {"missing"}


def known(part: Any) -> Any:
    """Return a part of evidence; None where it is missing."""
    return None if missing(part) else part


def judged(e: Json, sample: Json) -> str:
    """Return whose losses are judged: the model's own on training rows."""
    own = sample["splits"] == ["train"] and not missing(e["training"])
    return "loss" if own else "bounded_loss"


def limits_of(e: Json) -> list[float]:
    """Between which ends predictions are kept; or what the largest loss is at least."""
    M, described = e["terms"]["loss_bound"], e["model"]["described"]
    if M is None:
        loss, square = (sum(e["seen"]["atoms"][c]) for c in ("loss", "loss_squared"))
        return [max(square / loss, TRIALS[-1] if e["labels"] else 0.0)] if loss else []
    if e["labels"]:
        return [math.exp(-M), 1 - (len(e["labels"]) - 1) * math.exp(-M)]
    low, high = described["target_range"]
    far = np.abs(np.subtract(loss_bounds(e), M))
    more = MARGINS[int(np.argmin(far))] * (high - low)
    return [low - more, high + more]


def loss_bounds(e: Json) -> list[float]:
    """Return the values of M to choose from."""
    labels, described = len(e["labels"]), e["model"]["described"]
    if labels:
        return [M for M in TRIALS if labels * math.exp(-M) < 0.5]
    if not described.get("target_range"):
        return []
    low, high = described["target_range"]
    sizes = (high - low) * (1 + np.array(MARGINS))
    cut = np.minimum(sizes, described.get("delta", math.inf))
    found = (cut * (2 * sizes - cut)).tolist()
    return [M for M in found if math.isfinite(M)]


def means_of(sample: Json, column: str = "bounded_loss") -> list[float]:
    """Mean loss per cell; NaN where nobody is."""
    cells = sample["cells"]
    pairs = zip(cells[column], cells.get("weight", cells["count"]), strict=True)
    return [total / n if n else math.nan for total, n in pairs]


# What follows from evidence: every figure, and every number that a sentence shows


class Told:
    """The figures of result.json and certificate.json, from evidence alone."""

    def __init__(self, e: Json) -> None:
        self.e, self.terms, self.proofs = e, e["terms"], e["proofs"]
        self.known_names = [c["cell"] for c in e["cells"]] + e["groups"]
        self.known_names.append(e["data"]["name"])
        self.names = [c["cell"] for c in e["cells"]]
        self.bounds = [c["bound"] for c in e["cells"]]
        self.trained, self.promise = not missing(e["training"]), e["promise"]
        self.held, self.path = known(e["heldout"]), known(e.get("path"))
        self.apart = self.separate()
        self.usable = None if self.apart == ["failed"] else self.held
        self.M, self.R = self.terms["loss_bound"], self.terms["radius"]
        self.weighted = is_weighted(e)
        self.percent = f"{100 * self.terms['confidence']:.6g}"
        self.delta = 1.0 - self.terms["confidence"]
        self.compared = self.terms["candidates"]
        self.many, later = self.compared, self.terms["later"]
        if self.path and self.held and self.path["split"] in self.held["splits"]:
            self.many *= len(self.path["candidates"])  # these rows chose among them
        self.of_later = max(1, later * (later + 1))
        self.parts = self.many * self.of_later
        self.means = means_of(e["seen"], judged(e, e["seen"]))
        self.over = [m - b for m, b in zip(self.means, self.bounds, strict=True)]
        self.full = not any(map(math.isnan, self.means))  # every cell has rows
        self.worst = int(np.nanargmax(self.over))
        self.scales = [number(c["scale"]) for c in e["cells"]]
        least = [min(s, b) for s, b in zip(self.scales, self.bounds, strict=True)]
        self.most = [MET * max(one, 0.0) * self.trained for one in least]
        self.missed = any(x > y for x, y in zip(self.over, self.most, strict=True))
        self.nu: float | None = None
        if pair := known(self.proofs["gap"]):
            high, low = pair["upper"], pair["lower"]
            self.nu = max(high - low, 1e-15 * max(abs(high), abs(low)))
        self.excess: tuple[float, float] | None = None
        if ends := known(self.proofs["excess"]):
            top = max(self.bounds)
            self.excess = (ends["lower"] - top, ends["upper"] - top)
        self.proved, self.reach = self.proof()
        self.equal = len(set(self.bounds)) == 1
        others = ["holdout_error"] * bool(e["labels"])
        others += list(AMONG) * (len(e["labels"]) == 2)
        others = [] if self.weighted else others
        self.shares = dict.fromkeys(others, self.delta / (2 * max(1, len(others))))
        self.shares["holdout"] = self.delta / 2 if others else self.delta
        self.upper = self.loss_bounds(self.delta)
        self.view, self.kept, self.risk = self.tested()
        self.target: float | None = None
        if self.terms["target_gap"] is not None:
            prices = [number(c["multiplier"]) for c in e["cells"]]
            paid = sum(prices) + number(self.terms["risk_weight"])
            paid = paid if paid != 0 else max(1.0, self.terms["multiplier_bound"])
            unit, largest = number(e["model"]["unit"]), max(self.losses_at_hand())
            size = min(max(10 * largest, 1e-6 * unit), unit)
            self.target = number(self.terms["target_gap"]) * paid * size
        self.converged = "not measurable"
        if self.trained and self.nu is not None and self.target is not None:
            self.converged = "yes" if self.nu <= self.target else "no"
        if (swings := self.swings()) and not swings[1]:
            self.converged = "no"
        self.slack = self.slack_of()
        self.status, self.sentence = self.judge()

    def longest(self, one: Json) -> float:
        """Return the length of the longest weights that are known of."""
        before = float(np.linalg.norm((known(self.e["before"]) or one)["model"]))
        return max(one["longest"], self.e["model"]["length"], before)

    def proof(self) -> tuple[float, float]:
        """Return by how much bounds are impossible, and up to which length; or 0."""
        one = known(self.proofs["excess"])
        if one is None or not self.promise:
            return 0.0, 0.0
        slope, longest = one["slope"], self.longest(one)
        value = one["lower"] + one["reach"] * slope - max(self.bounds)
        if value - FAR * longest * slope > 0:
            return value - FAR * longest * slope, FAR * longest
        if value <= 0 or value < 2 * WELL * longest * slope:
            return 0.0, 0.0
        return value / 2, value / 2 / slope

    def among(self, one: Json, reach: float) -> list[str]:
        """How far a proof reaches, where that is shown."""
        return [] if reach >= FAR * self.longest(one) else [down(reach)]

    def losses_at_hand(self) -> list[float]:
        """Return F and the cells' mean losses on training rows, of the model itself."""
        seen, model = self.e["seen"], self.e["model"]
        ridge = 0.5 * model["unit"] * model["l2"] * model["length"] ** 2
        risk = seen["risk"] / seen["share"] + ridge if seen["share"] > 0 else 0.0
        return [risk, *means_of(seen, "loss")]

    def slack_of(self) -> float | None:
        """Return (β(F(w°) − F(w)) + ν)/B where a bound is missed that w° meets."""
        seen, model = self.e["seen"], self.e["model"]
        B = self.terms["multiplier_bound"]
        missed = self.promise and self.missed and self.converged == "yes" and B > 0
        if not missed or self.excess is None or self.nu is None or not seen["share"]:
            return None
        aims = [c["aimed"] for c in self.e["cells"]]
        cut = max(
            0.0 if a is None else b - a for a, b in zip(aims, self.bounds, strict=True)
        )
        if -self.excess[1] < cut:
            return None
        ridge = 0.5 * model["unit"] * model["l2"] * model["length"] ** 2
        better = self.proofs["excess"]["risk"] - seen["risk"] / seen["share"] - ridge
        return float((self.terms["risk_weight"] * better + self.nu) / B)

    def described(self, z: int, means: list[float] | None = None) -> list[str]:
        """How a cell stands: its name, loss, bound, and distance."""
        mean = (self.means if means is None else means)[z]
        over = mean - self.bounds[z]
        side = [up(over)] if over > 0 else [down(-over)]
        side = [] if abs(over) <= self.most[z] else side
        return [self.names[z], near(mean), near(self.bounds[z]), *side]

    def judge(self) -> tuple[str, list[str]]:
        """Return the status, and what its sentence shows."""
        stopped = self.e["training"]["stopped"] if self.trained else None
        if stopped is not None:
            return stopped, []
        late = self.unfinished() if self.converged == "no" else []
        if not self.promise:
            at: list[str] = []
            if self.e["minimax"]:
                z, close = int(np.nanargmax(self.means)), self.nu is not None
                at = [self.names[z], near(self.means[z])]
                at += [up(self.nu or 0.0)] * close
                ball = self.e["proofs"]["gap"].get("radius")
                at += [] if ball is None else [near(ball)]
            return "not converged" if late else "no bounds", late + at
        if not self.full:
            empty = [n for n, m in zip(self.names, self.means, strict=True) if m != m]
            return "not measured", empty
        over, facts = self.over[self.worst], self.described(self.worst)
        if all(x <= MET * y for x, y in zip(self.over, self.most, strict=True)):
            return "not converged" if late else "met", late + facts
        if self.proved > 0 and self.excess:
            base = self.bounds[0] if self.equal else 0.0
            digits = 6 if self.equal else 4
            low, high = base + self.proved, base + self.excess[1]
            ends = [down(low, digits), up(high, digits)]
            if self.equal and high - low <= SHARP * abs(high):
                ends = ends[1:]
            short = self.among(self.proofs["excess"], self.reach)
            return "impossible", [*facts, *ends, *short]
        if late:
            return "not converged", late + facts
        if not self.missed:
            return "met", [near(MET), *facts]
        if self.slack is not None and over <= self.slack:
            price = near(self.terms["multiplier_bound"])
            return "not met", [*facts, price, up(self.slack)]
        return "not met", facts

    def swings(self) -> tuple[list[str], bool] | None:
        """What is shown of losses that swung at the end, and whether they settled."""
        run = known(self.e["training"]) or {}
        found = run.get("settling")
        if not found:
            return None
        swing, target = found["swing"], number(found["target"])
        weights, rounds = found.get("weights") or [], f"{run['rounds']:,}"
        steady = bool(weights) and max(weights) <= target
        parts = [math.inf if one is None else one for one in swing]
        told = steady and found["rounds"] >= FEWEST
        for z, jump in enumerate(found.get("jumps") or []):
            if told and jump is not None and target < parts[z] <= min(jump, 3 * target):
                parts[z] = -1.0  # noise of the training
        most, many = max(parts, default=0.0), f"{found['rounds']:,}"
        settled = most <= target
        name = self.names[parts.index(most)] if parts else ""
        if found["rounds"] < 2:
            return [rounds], settled
        if math.isinf(most):
            return [name, many], settled
        still = [up(max(weights))] if steady else []
        return [many, name, up(most), near(target), *still, rounds], settled

    def unfinished(self) -> list[str]:
        """What the sentence on a run shows that did not converge."""
        if found := self.swings():
            return found[0]
        run, method = self.e["training"], self.e["training"]["method"]
        raised = [f"{method[name]:,}" for name in EFFORT if name in method]
        if run["rounds"] < method.get("max_rounds", 0):
            raised = []  # more rounds would be in vain
        return [up(self.nu or 0.0), near(self.target or 0.0), *raised[:1]]

    def smallest_bound(self) -> float | None:
        """Return the smallest bound that was met; None where those given are."""
        if self.proved <= 0 or self.excess is None:
            return None
        return float(up(self.excess[1] + (self.bounds[0] if self.equal else 0.0), 6))

    def loss_bounds(self, delta: float) -> list[float] | None:
        """Bound the mean losses of unseen people, each with probability 1 − δ."""
        if self.usable is None or self.M is None:
            return None
        s, M = self.usable, self.M
        if self.weighted:
            if not s.get("levels") or self.heaviest()[0][0] == "failed":
                return None
            rows: Any = (s["stakes"]["count"], s["bets"], s["bet_weights"])
            rows = zip(*rows, s["diluted"], s["levels"], strict=True)
            part = delta / self.parts
            return [weighted_upper(n, b, levels, M, part) for n, *b, levels in rows]
        bets: Any = zip(s["bets"], s["bet_weights"], s["below"], strict=True)
        planned = list(bets) or [()] * len(self.names)
        table = s["people"] or s["cells"]  # rows of one person are not independent
        sums = zip(table["count"], table["bounded_loss"], planned, strict=True)
        return [mean_upper(n, t, b, M, delta / self.parts) for n, t, b in sums]

    # Statements: each returns value, holds, figures, per_cell, what the text shows,
    # and what it stands on (state, then what the ground shows); or why there is none

    def statements(self) -> dict[str, Any]:
        """Return the figures of all statements, in order."""
        e = self.e
        out: dict[str, Any] = {"measured": self.measured()}
        if self.trained:
            out["gap"] = self.gap()
        out["empirical"] = self.empirical()
        if self.trained:
            if self.excess and self.promise and self.missed:
                out["infeasible"] = self.infeasible()
            out["attainable"] = self.attainable(self.proofs["least"])
            for one in self.proofs["lowest"]:
                out[f"attainable {one['cell']}"] = self.attainable(one)
            if known(e["sites"]):
                out["sites"] = self.sites()
        out["holdout"] = self.holdout()
        if found := self.implied(out["holdout"]):
            out["implied"] = found
        if e["labels"]:
            out["holdout_error"] = self.holdout_error()
        if len(e["labels"]) == 2:
            out |= {kind: self.metric(kind) for kind in AMONG}
        return out

    def measured(self) -> tuple[Any, ...]:
        """What was measured, and on how many rows."""
        samples = {"": self.e["seen"]}
        if self.trained and self.held:
            name = "+".join(self.held["splits"])
            samples = {"train ": self.e["seen"], f"{name} ": self.held}
        rows = [f"{int(sum(s['atoms']['count'])):,}" for s in samples.values()]
        shown = [*rows, self.e["data"]["name"], f"{self.e['data']['silos']:,}"]
        columns: dict[str, Sequence[Any]] = {}
        for mark, s in samples.items():
            columns[f"{mark}rows"], columns[f"{mark}loss"] = (
                s["cells"]["count"],
                means_of(s, judged(self.e, s)),
            )
        if self.trained:
            columns["multiplier"] = [c["multiplier"] for c in self.e["cells"]]
        return None, None, {}, self.table(**columns), shown, []

    def table(self, **columns: Sequence[Any]) -> list[Json]:
        """Return one row per cell."""
        rows = zip(self.names, *columns.values(), strict=True)
        return [dict(zip(("cell", *columns), row, strict=True)) for row in rows]

    @property
    def ball(self) -> list[str]:
        """The ground that only models of the ball are considered."""
        return ["assumed", near(self.R)]

    def gap(self) -> Any:
        """How far the model is from the best trade-off."""
        pair, target = self.proofs["gap"], self.target
        if self.nu is None:
            return pair["missing"]
        ridge = self.terms["risk_weight"] * self.e["model"]["l2"] > 0
        grounds = [["checked"], ["checked"] if ridge else self.ball, ["assumed"]]
        shown = [up(self.nu)] + [near(target or 0.0)] * (target is not None)
        figures = {"upper": pair["upper"], "lower": pair["lower"], "target": target}
        holds = None if target is None else self.nu <= target
        return self.nu, holds, figures, None, shown, grounds

    def empirical(self) -> Any:
        """How every cell stands against its bound."""
        if not self.promise:
            return "no bound was set"
        if not self.full:
            return "no "
        over, shown = self.over[self.worst], self.described(self.worst)
        grounds: list[list[str]] = [["checked"], ["assumed"]]
        figures: Json = {"slack": self.slack, "converged": self.converged}
        if self.slack is not None and over <= self.slack:
            price = near(self.terms["multiplier_bound"])
            shown = [*shown, price, up(self.slack)]
        table = self.table(
            rows=self.e["seen"]["cells"]["count"],
            loss=self.means,
            bound=self.bounds,
            margin=[-x for x in self.over],
            holds=[x <= y for x, y in zip(self.over, self.most, strict=True)],
        )
        return over, not self.missed, figures, table, shown, grounds

    def infeasible(self) -> Any:
        """That no model meets all bounds."""
        if self.proved <= 0:
            return "there is no proof that the bounds are impossible"
        one, reach = self.proofs["excess"], self.reach
        figures = {"multipliers": one["multipliers"], "reach": reach}
        grounds = [["checked"], ["checked", down(reach)], ["assumed"]]
        shown = [*self.among(one, reach), down(self.proved)]
        return self.proved, True, figures, None, shown, grounds

    def attainable(self, one: Json) -> Any:
        """The smallest bound of all cells together, or of one, the others' kept."""
        cell = one.get("cell")
        if missing(one):
            return one["missing"]
        if cell is not None and not self.promise:
            return "no bound was set"
        if cell is not None and (one["impossible"] or one["upper"] is None):
            return "the other" if one["impossible"] else "no model was found"
        reach = max(one["reach"], WELL * self.longest(one))
        low = max(0.0, one["lower"] - (reach - one["reach"]) * one["slope"])
        low, high = min(low, one["upper"]), one["upper"]
        figures = {"lower": low, "upper": high, "cell": cell, "reach": reach}
        shown = [cell] * (cell is not None) + [down(low, 6), up(high, 6)]
        shown += self.among(one, reach) if low > 0 else []
        grounds = [["checked"], ["checked", down(reach)], ["assumed"]]
        return high, None, figures, None, shown, grounds

    def sites(self) -> Any:
        """What any one site could have hidden."""
        told, rows = self.e["sites"], self.of_sites()
        if told["masked"]:
            return "under masks nobody sees what a single site says"
        if not rows:
            lost = "the sites' answers were added on the way"
            return "needs losses that are bounded" if self.M is None else lost
        bounds = self.bounds if self.promise else [0.0] * len(rows)
        most = [row["train at most"] for row in rows]
        over = [-math.inf if x is None else x for x in most]
        over = [x - b for x, b in zip(over, bounds, strict=True)]
        z = max(range(len(over)), key=over.__getitem__)
        shown = [f"{len(told['names'])}", self.names[z], up(most[z])]
        known_ends = [row for row in rows if row["lowest"] is not None]
        if known_ends:
            row = max(known_ends, key=lambda row: row["highest"] - row["lowest"])
            shown += [row["cell"], near(row["lowest"]), near(row["highest"])]
        grounds = [["assumed"], ["checked"]]
        if self.e["model"]["kind"] not in LINEAR:
            grounds.append(["could not be checked"])
        return over[z], None, {"sites": told["names"]}, rows, shown, grounds

    def of_sites(self) -> list[Json]:
        """Each cell's mean loss, were the largest doubt about a site true."""
        seen, held = self.e["seen"], self.held
        if missing(self.e["sites"]) or not seen.get("sites"):
            return []
        own = seen["sites"]
        columns: dict[str, Sequence[Any]] = {"sites": own["count"]}
        columns |= {key: own[key] for key in ("lowest", "highest")}
        samples = {"train": seen}
        if held and held.get("sites"):
            samples["+".join(held["splits"])] = held
        for mark, s in samples.items():
            sums, weights = s["cells"]["bounded_loss"], s["cells"]["weight"]
            columns[f"{mark} at most"] = [
                (x + more) / n if n > 0 else None
                for x, more, n in zip(sums, s["sites"]["unknown"], weights, strict=True)
            ]
        return self.table(**columns)

    def separate(self) -> list[str]:
        """Whether held-out rows were used in training."""
        data, held = self.e["data"], self.held or {"splits": [], "atoms": {"count": []}}
        prints, many = (data["trained_on"], data["fingerprint"]), data["overlap"]
        other = None not in prints and prints[0] != prints[1]
        own = (self.trained or prints[0] is not None) and not other
        if (own and "train" in held["splits"]) or (data["by_person"] and many):
            return ["failed"]
        if many == 0:
            return ["checked"]
        rows = int(sum(held["atoms"]["count"]))
        twins = [] if many is None else [f"{many:,}", f"{rows:,}"]
        return ["could not be checked", *twins]

    def grounds(self) -> list[list[str]]:
        """What statements from held-out rows stand on."""
        many, others, later = self.many, self.terms["others"], self.terms["later"]
        chosen, counted = ["assumed"], self.terms["counted"]
        if not isinstance(counted, bool):
            raise ValueError(f"terms.counted is {counted!r}, neither true nor false")
        if many > 1:
            state = "checked" if counted else "assumed"
            chosen = [state, f"{many}", "1", f"{many}"]
        if others:
            chosen = ["could not be checked", f"{others}"]
        paid = ["checked", f"{later + 1}", "1", f"{self.of_later}"]
        return [["assumed"], self.apart, chosen, *([paid] if later else [])]

    def heaviest(self) -> list[list[str]]:
        """That no weight is above the assumed largest, where rows have weights."""
        most, seen = self.terms.get("weight_bound"), self.e["data"].get("weights")
        if not self.weighted or self.held is None:
            return []
        above = any(self.held.get("stakes", {}).get("above", []))
        if most is None or above or (seen is not None and seen[1] > most):
            return [["failed"]]
        return [["assumed", up(most)]]

    def tested(self) -> tuple[Told | None, int, float]:
        """Return what calibration rows say, how many models are shown, and at which δ.

        The figures are those of a model that was fixed before, if the shipped one is
        the first of the path; otherwise they hold for all models, which share the risk.
        """
        path, risk = self.path, self.delta / (self.compared * self.of_later)
        if path is None:
            return None, 0, risk
        terms, many = dict(self.terms), len(path["candidates"])
        if path["chosen"] > 0:
            terms["candidates"] = self.compared * many
        own = path["candidates"][path["chosen"]]["calibration"]
        data = {**self.e["data"], "overlap": path["overlap"]}
        e = {**self.e, "terms": terms, "data": data, "heldout": own}
        view = Told({**e, "path": {"missing": "these are its rows"}})
        return view, shown_up_to(risks_of(self.e, path), risk), risk

    @property
    def shown(self) -> bool:
        """Whether the path shows the shipped model, and all that are safer."""
        there = self.view is not None and self.view.upper is not None
        return there and self.kept > self.path["chosen"]

    @property
    def at_most(self) -> list[float] | None:
        """The one number per cell; what a path shows is the bound itself."""
        if self.view is None:
            return self.upper
        return self.bounds if self.shown else self.view.upper

    def of_path(self) -> Json:
        """What result.json says of a path, but for sentences."""
        if self.view is None or self.path is None:
            return {}
        found, rise, common = self.view.upper, None, None
        if found is not None and not self.shown:
            over = max(u - b for u, b in zip(found, self.bounds, strict=True))
            rise = max(0.0, over)
        if rise and self.equal:
            common = float(up(self.bounds[0] + rise))
        return {
            "model": self.path["chosen"] + 1,
            "models": len(self.path["candidates"]),
            "calibration_rows": int(sum(self.view.e["heldout"]["atoms"]["count"])),
            "could_promise": common if common and common < self.M else None,
            "rise": rise,
        }

    def short(self) -> list[str] | None:
        """What the short sentence on unseen people shows; None where it is a reason."""
        if self.view is None:
            found = self.holdout()
            return None if isinstance(found, str) else found[4]
        if self.view.upper is None or self.path is None:
            return None
        facts, M = self.of_path(), self.M
        place, many = f"{facts['model']}", f"{facts['models']}"
        if self.shown:
            which = [place, many] if many != "1" else []
            rows = f"{facts['calibration_rows']:,}"
            return [self.percent, rows, *which, *self.trivial()]
        out = [many] if many != "1" else []
        if place != "1":
            out = [place, many, f"{100 * self.path['confidence']:.6g}"]
        out += self.in_the_way(self.view)
        if facts["could_promise"] is not None:
            out.append(f"{facts['could_promise']:.6g}")
        elif facts["rise"] and not self.equal:
            below = all(b + facts["rise"] < M for b in self.bounds)
            out += [up(facts["rise"])] if below else []
        return out

    def in_the_way(self, view: Told) -> list[str]:
        """What the sentence shows on the cell that stands in the way."""
        lacking, found = view.more_rows(), view.upper or []
        if not lacking:
            return []
        never = [name for name, many in lacking.items() if many is None]
        name = never[0] if never else max(lacking, key=lambda one: lacking[one] or 0)
        z, held = self.names.index(name), view.e["heldout"]
        if not held["cells"]["count"][z]:
            return [name]
        out = [name, self.percent, up(found[z]), near(self.bounds[z])]
        if never:
            return [*out, near(means_of(held, judged(self.e, held))[z])]
        left = len(lacking) - 1
        out.append(f"{float(up(lacking[name] or 0, 2)):,.0f}")
        return out + [f"{left:,}"] * (left > 0)

    def promised(self, view: Told) -> Any:
        """What a path shows of unseen people, or why it does not."""
        found, facts = view.holdout(), self.of_path()
        if isinstance(found, str) or self.path is None:
            return found
        value, _, figures, table, shown, grounds = found
        spent = {"model": facts["model"], "models": facts["models"]}
        spent["rows spent"] = facts["calibration_rows"]
        said = self.short() or []
        if not self.shown:
            more = {**figures, **spent, "rise": facts["rise"]}
            return value, False, more, table, said + shown, grounds
        columns = ("rows", "loss", "upper", "vacuous", "bound", "shown")
        for row in table:
            row["upper"], row["shown"] = row["bound"], True
            row["vacuous"] = row["bound"] >= self.M
        table = [{k: row[k] for k in ("cell", *columns)} for row in table]
        figures["delta"] = self.risk
        end, many = self.path["chosen"] + 1, facts["models"]
        last = [f"{end + 1}"] if self.kept == end < many else []
        how = [f"{many}"] * (many > 1) + [f"{self.risk:.6g}", *last]
        first, apart, *looks = view.grounds()
        looks = looks if self.terms["others"] else looks[1:]
        if self.compared > 1 and not self.terms["others"]:
            looks = [["assumed", f"{self.compared}", "1", f"{self.compared}"], *looks]
        grounds = [first, apart, ["assumed"], *looks, *self.bounded_loss(self.M)]
        grounds += view.heaviest()
        return None, True, {**figures, **spent}, table, said + how, grounds

    def holdout(self) -> Any:
        """How large the mean loss of unseen people can be."""
        if self.view is not None:
            return self.promised(self.view)
        joint = self.loss_bounds(self.shares["holdout"] / len(self.names))
        if self.upper is None or joint is None or self.M is None:
            return self.e["heldout"]["missing"] if self.held is None else "needs "
        found, M = self.upper, self.M
        excess = [u - b for u, b in zip(found, self.bounds, strict=True)]
        kept, z = sum(x <= 0 for x in excess), int(np.argmax(excess))
        whole = kept == len(excess)
        shown = [self.percent, *self.named]
        shown += [f"{kept}", f"{len(excess)}"] * (not whole)
        shown += [self.names[z], up(found[z]), near(self.bounds[z])]
        shown += self.lacking() + self.trivial()
        value, holds = max(excess), whole
        if not self.promise:
            z, value, holds = int(np.argmax(found)), max(found), None
            shown = [self.percent, *self.named, self.names[z], up(value)]
        figures = {"confidence": self.terms["confidence"], "loss_bound": M}
        figures |= {"delta": self.delta / self.parts}
        table = self.losses(self.usable, found, M, joint)
        grounds = [*self.grounds(), *self.bounded_loss(M), *self.heaviest()]
        return value, holds, figures, table, shown, grounds

    def implied(self, promised: Any) -> Any:
        """What bounds on every label of a group imply for the whole group, if met."""
        groups: dict[tuple[str, ...], dict[str, int]] = {}
        for z, cell in enumerate(self.e["cells"]):
            if cell["silo"] is None and len({y for _, y in cell["of"]}) == 1:
                own = groups.setdefault(tuple(g for g, _ in cell["of"]), {})
                own[cell["of"][0][1]] = z
        many = len(self.e["labels"])
        whole = {g: list(own.values()) for g, own in groups.items() if len(own) == many}
        if not self.promise or not self.full or self.missed or not (whole and many):
            return None
        weight: list[float] = self.e["seen"]["cells"]["weight"]
        table: list[dict[str, Any]] = []
        sure = not isinstance(promised, str) and promised[1] is True
        for group, places in whole.items():
            total = math.fsum(weight[z] for z in places)
            means: list[Sequence[float]] = [self.means, self.bounds]
            sums = [math.fsum(weight[z] * one[z] for z in places) for one in means]
            worst = max(self.bounds[z] for z in places) if sure else None
            row: dict[str, Any] = {"cell": " or ".join(group), "loss": sums[0] / total}
            row |= {"at most": sums[1] / total, "unseen at most": worst}
            table.append(row)
        largest = max(row["at most"] for row in table)
        shown, grounds = [up(largest)], [["assumed"]]
        if sure:
            shown += [self.percent, up(max(row["unseen at most"] for row in table))]
            grounds += promised[-1]
        return largest, True, {}, table, shown, grounds

    def bounded_loss(self, M: float) -> list[list[str]]:
        """Why no loss is above M."""
        ends, labels = (
            self.e["model"]["described"].get("target_range"),
            self.e["labels"],
        )
        word = "assumed" if self.terms["clipping"] == "range" else "checked"
        if not labels and ends is not None:
            kept = [near(abs(end)) for end in limits_of(self.e)]
            shown = [near(abs(end)) for end in ends]  # a sign is no part of a number
            return [[word, *kept, up(M), *shown], ["assumed"]]
        low, high = limits_of(self.e)
        return [[word, down(low), up(high), near(M)]]

    @property
    def named(self) -> list[str]:
        """The ends that a model from elsewhere is kept within, as its name shows."""
        if self.terms["clipping"] != "clip" or self.M is None:
            return []
        least = math.exp(-self.M)
        return [f"{least:.6g}"] + [f"{1 - least:.6g}"] * (len(self.e["labels"]) == 2)

    def more_rows(self) -> dict[str, int | None]:
        """About how many more rows would show the bounds that are not shown."""
        if self.view is not None:
            return {} if self.shown else self.view.more_rows()
        if self.usable is None or self.M is None or not (self.promise and self.upper):
            return {}
        cells = self.usable["people"] or self.usable["cells"]
        delta = self.delta / self.parts
        if self.weighted:
            return self.more_weighted(self.M, delta)
        means, squares = (
            means_of({"cells": cells}, f"bounded_loss{end}") for end in ("", "_squared")
        )
        out: dict[str, int | None] = {}
        for z, (top, bound) in enumerate(zip(self.upper, self.bounds, strict=True)):
            if top > bound:
                n, mean = cells["count"][z], means[z]
                spread = max(squares[z] - mean**2, 0.0) if n else 0.0
                needed = rows_needed(bound, mean, spread, self.M, delta) if n else None
                out[self.names[z]] = None if needed is None else max(1, needed - int(n))
        return out

    def more_weighted(self, M: float, delta: float) -> dict[str, int | None]:
        """About how many more weighted rows would show them."""
        stakes = (self.usable or {})["stakes"]
        out: dict[str, int | None] = {}
        rows = zip(self.names, self.upper or [], self.bounds, strict=True)
        for z, (name, top, bound) in enumerate(rows):
            if top > bound:
                own = {key: values[z] for key, values in stakes.items()}
                needed = weighted_needed(bound, own, M, delta)
                there = int(own["count"])
                out[name] = None if needed is None else max(1, needed - there)
        return out

    def lacking(self) -> list[str]:
        """What the sentence on rows that are missing shows."""
        lacking = self.more_rows()
        never = [name for name, many in lacking.items() if many is None]
        if never:
            z = self.names.index(never[0])
            mean = means_of(self.usable or {}, "bounded_loss")[z]
            return [never[0]] if mean != mean else [never[0], near(mean)]
        if not lacking:
            return []
        name, many = max(lacking.items(), key=lambda pair: pair[1] or 0)
        return [f"{float(up(many or 0, 2)):,.0f}", name]

    def trivial(self) -> list[str]:
        """What the sentence on bounds that are not below M shows."""
        M = self.M or math.inf
        idle = sum(bound >= M for bound in self.bounds)
        if not idle:
            return []
        return [f"{idle}", near(M)]

    def losses(
        self, sample: Any, upper: list[float], M: float, joint: list[float]
    ) -> list[Json]:
        """Return the table of a statement on losses."""
        columns = {
            "rows": sample["cells"]["count"],
            "loss": means_of(sample),
            "upper": upper,
            "joint": joint,
            "vacuous": [u >= M for u in upper],
        }
        if self.promise:
            kept = [u <= b for u, b in zip(upper, self.bounds, strict=True)]
            columns |= {"bound": self.bounds, "shown": kept}
        return self.table(**columns)

    def holdout_error(self) -> Any:
        """How often unseen people are misjudged."""
        if self.usable is None or self.e["data"]["several"] or self.weighted:
            return self.e["heldout"]["missing"] if self.held is None else "needs "
        n, right = (self.usable["cells"][c] for c in ("count", "correct"))
        wrong = [a - b for a, b in zip(n, right, strict=True)]
        delta = self.shares["holdout_error"] / (len(self.names) * self.parts)
        pairs = list(zip(wrong, n, strict=True))
        upper = [rate_upper(a, b, delta) for a, b in pairs]
        z, errors = int(np.argmax(upper)), [a / b if b else None for a, b in pairs]
        shown = [self.percent, up(upper[z]), self.names[z]]
        figures = {"confidence": self.terms["confidence"]}
        table = self.table(rows=n, error=errors, upper=upper)
        return upper[z], None, figures, table, shown, self.grounds()

    def metric(self, kind: str) -> Any:
        """A fairness metric, with its interval."""
        if self.usable is None or self.e["data"]["several"] or self.weighted:
            return self.e["heldout"]["missing"] if self.held is None else "needs "
        shape, tables = (len(self.e["groups"]), 2), (self.e["seen"], self.usable)
        seen, n = (np.reshape(s["atoms"]["count"], shape) for s in tables)
        k = np.reshape(self.usable["atoms"]["positive"], shape)
        there = np.flatnonzero((seen + n).sum(axis=1))
        parts = [(k[there][:, y].sum(1), n[there][:, y].sum(1)) for y in AMONG[kind]]
        delta = self.shares[kind] / self.parts / len(parts)
        found = [spread(a.tolist(), b.tolist(), delta) for a, b in parts]
        empty = np.any([b == 0 for _, b in parts], axis=0)
        gone = [self.e["groups"][a] for a in there[empty]]
        value = None if gone else max(v for v, _, _ in found if v is not None)
        low, high = max(a for _, a, _ in found), max(b for _, _, b in found)
        figures = {"confidence": self.terms["confidence"], "lower": low, "upper": high}
        shown = [self.percent, down(low), up(high)]
        shown += gone if value is None else [near(value)]
        figures |= {"undefined": gone}
        return value, None, figures, None, shown, self.grounds()

    def notes(self) -> list[str]:
        """What the notes of a certificate show, but for those that evidence holds."""
        out, others = self.no_better(), len(self.shares) - 1
        out += [self.percent, f"{self.delta:.6g}"]
        out += [f"{others}"] * (others > 0) + [f"{self.many}"] * (self.many > 1)
        later = self.terms["later"]
        out += [f"{later + 1}", "1", f"{self.of_later}"] if later else []
        return out

    def result(self) -> Json:
        """The figures of result.json."""
        e, held = self.e, self.held
        run, data = known(e["training"]) or {}, e["data"]
        same = ("method", "constraint", "seed", "rounds", "queries", "seconds")
        facts = ("name", "silos", "schema", "synthetic", "fingerprint", "notes", "card")
        seen = self.trained and round(run["seconds"], 3)
        lam = self.proofs["excess"].get("multipliers", [])
        witness = dict(zip(self.names, lam, strict=False))
        return {
            "status": self.status,
            "converged": self.converged,
            **{key: run.get(key) for key in same},
            "seconds": seen if self.trained else None,
            "model": e["model"]["described"],
            **{key: self.terms[key] for key in ("weighting", "confidence", "radius")},
            "loss_bound": self.M,
            "gap": self.nu,
            "slack": self.slack,
            "cells": self.cells(),
            "groups": self.groups() if e["labels"] else [],
            "train": self.metrics(e["seen"]),
            "test": None if held is None else self.metrics(held),
            "before": self.before(),
            "witness": witness if self.proved > 0 else None,
            "smallest_bound": self.smallest_bound(),
            "sites": None if missing(e["sites"]) else self.site_figures(),
            "data": {key: data[key] for key in facts},
            "notes": e["notes"],
            "versions": e["versions"],
        }

    def before(self) -> Json | None:
        """The same metrics of the model without bounds."""
        found = known(self.e["before"])
        samples = {} if found is None else found["samples"]
        return {k: self.metrics(s) for k, s in samples.items()} if found else None

    def site_figures(self) -> Json:
        """What is said of sites, but for the sentence."""
        told = self.e["sites"]
        return {
            **{key: told[key] for key in ("names", "masked")},
            "cells": self.of_sites(),
        }

    def verdicts(self) -> Json:
        """The three verdicts, in a word."""
        held = "not measured"
        above: list[str] = []
        if self.held is not None and any(self.held["cells"]["count"]):
            means = means_of(self.held, judged(self.e, self.held))
            many = self.held["cells"]["count"]
            rows = list(zip(self.names, means, self.bounds, many, strict=True))
            above = [n for n, m, b, k in rows if self.promise and m > b and k >= FEW]
            held = "exceeded" if above else "within" if self.promise else "no bounds"
            if held == "within" and min(many) < FEW:
                held = "not measured"
        found, shown = self.holdout(), "not measured"
        if not isinstance(found, str):
            words = {None: "no bounds", True: "certified", False: "not certified"}
            shown = words[found[1]]
        word = self.status if self.trained else "not measured"
        return {"training": word, "test": held, "new_people": shown, "exceeded": above}

    def heldout(self) -> list[str]:
        """What the sentence on held-out rows shows."""
        if self.held is None or not any(self.held["cells"]["count"]):
            return []
        means = means_of(self.held, judged(self.e, self.held))
        rows = f"{int(sum(self.held['atoms']['count'])):,}"
        if not self.promise:
            z = int(np.nanargmax(means))
            return [rows, *self.named, near(means[z]), self.names[z]]
        counts = self.held["cells"]["count"]
        few = [n for n, k in zip(self.names, counts, strict=True) if k < FEW]
        told = [f"{FEW}", *few] if few else []
        if len(few) == len(counts):
            return told
        triples = zip(means, self.bounds, counts, strict=True)
        over = [m - b if k >= FEW else -math.inf for m, b, k in triples]
        above, z = sum(x > 0 for x in over), int(np.argmax(over))
        many = [f"{above:,}"] if above > 1 else []
        return [rows, *self.named, *many, *self.described(z, means), *told]

    def cells(self) -> list[Json]:
        """The verdict table."""
        e, nothing = self.e, [math.nan] * len(self.names)
        counts = [0] * len(self.names)
        test, upper = nothing, self.at_most or nothing
        if self.held is not None:
            counts = self.held["cells"]["count"]
            test = means_of(self.held, judged(e, self.held))
        there = counts
        if self.view is not None:
            there = self.view.e["heldout"]["cells"]["count"]
        before = (known(e["before"]) or {"samples": {}})["samples"]
        old = {k: means_of(one, judged(e, one)) for k, one in before.items()}
        alone = {one["cell"]: one["upper"] for one in self.proofs["reach"]}
        bounds, over = (self.bounds, self.over) if self.promise else (nothing, nothing)
        return self.table(
            bound=bounds,
            count=e["seen"]["cells"]["count"],
            train_loss=self.means,
            violation=over,
            multiplier=[c["multiplier"] for c in e["cells"]],
            test_loss=test,
            test_count=counts,
            test_upper=[u if n else None for u, n in zip(upper, there, strict=True)],
            before_train_loss=old.get("train", nothing),
            before_test_loss=old.get("test", nothing),
            constant=[c["constant"] for c in e["cells"]],
            alone=[alone.get(name) for name in self.names],
        )

    def no_better(self) -> list[str]:
        """For whom the model is no better than a constant guess: by loss, by error."""
        e, sample = self.e, self.held or self.e["seen"]
        stopped = self.trained and e["training"]["stopped"] is not None
        if not e["labels"] or stopped:
            return []
        shape = (len(e["groups"]), len(e["labels"]))
        names = ("count", "weight", judged(e, sample), "correct")
        sums = [np.reshape(sample["atoms"][c], shape) for c in names]
        of = [o[0] for c in e["cells"] if self.promise for o in c["of"]]
        sets = [([i], [g]) for i, g in enumerate(e["groups"]) if g in of]
        by_loss: list[str] = []
        by_error: list[str] = []
        for i, name in [*sets, (list(range(shape[0])), [])]:
            count, n, loss, right = (part[i].sum(axis=0) for part in sums)
            if count.sum() < FEW or np.count_nonzero(n) < 2:
                continue
            guess = -sum(x * math.log(x / n.sum()) for x in n if x > 0)
            by_loss += name * bool(loss.sum() >= guess)
            by_error += name * bool(right.sum() <= n.max())
        return by_loss + by_error

    def binding(self) -> list[str]:
        """Whose bounds are binding, with their shares of the multipliers."""
        lam = np.array([c["multiplier"] for c in self.e["cells"]])
        silent = not (self.promise and self.trained and self.full)
        if silent or self.converged != "yes" or lam.sum() <= 1e-9:
            return []
        shares = 100 * lam / lam.sum()
        found = [z for z in np.argsort(-shares, kind="stable") if shares[z] >= 0.5]
        if len(found) == 1:
            return [self.names[found[0]]]
        out = [one for z in found[:3] for one in (self.names[z], f"{shares[z]:.0f}")]
        return out + [str(len(found) - 3)] * (len(found) > 3)

    def groups(self) -> list[Json]:
        """How often the model is wrong about each group, with intervals."""
        e, shape = self.e, (len(self.e["groups"]), -1)
        apart = bool(self.usable and sum(self.usable["atoms"]["count"]))
        sample = self.usable if self.usable and apart else e["seen"]
        free = e["before"].get("samples", {}).get("+".join(sample["splits"]))
        single = apart and not e["data"]["several"] and not self.weighted
        side = self.delta / self.parts / 2 if single else None
        samples = [e["seen"], *([self.held] if self.held else [])]
        counts = [np.reshape(s["atoms"]["count"], shape).sum(axis=1) for s in samples]

        def events(sample: Json, a: int) -> Json:
            rows, n, right, yes = (
                np.reshape(sample["atoms"][c], shape).astype(float)[a]
                for c in ("count", "weight", "correct", "positive")
            )
            found: Json = {"error": (n.sum() - right.sum(), n.sum(), rows.sum())}
            if len(e["labels"]) == 2:
                found["false_positive"] = yes[0], n[0], rows[0]
                found["false_negative"] = n[1] - yes[1], n[1], rows[1]
                found["selected"] = yes.sum(), n.sum(), rows.sum()
            return found

        def share(found: Any) -> float | None:
            return float(found[0] / found[1]) if found and found[1] else None

        def rate(found: Any, old: Any) -> Json:
            low, high, (k, _, people) = None, None, found
            if side is not None:
                low = 1 - rate_upper(people - k, people, side) if people else 0.0
                high = rate_upper(k, people, side)
            ends = {"lower": low, "upper": high, "unconstrained": share(old)}
            return {"people": int(people), "value": share(found), **ends}

        out = []
        for a in np.flatnonzero(np.sum(counts, axis=0)).tolist():
            old = events(free, a) if free else {}
            found = {k: rate(v, old.get(k)) for k, v in events(sample, a).items()}
            rows = "held-out" if apart else "training"
            kinds = ("error", "false_positive", "false_negative", "selected")
            every = {kind: found.get(kind) for kind in kinds}
            out.append({"group": e["groups"][a], "rows": rows, **every})
        return out

    def metrics(self, sample: Json) -> Json:
        """Risk, error and fairness gaps of one sample."""
        shape, binary = (len(self.e["groups"]), -1), len(self.e["labels"]) == 2
        column = judged(self.e, sample)
        atoms = {k: np.reshape(v, shape) for k, v in sample["atoms"].items()}
        count = int(atoms["count"].sum())

        def rates(column: str, labels: Any = slice(None)) -> list[float]:
            k, n = (atoms[c][:, labels].sum(axis=1) for c in (column, "weight"))
            return [float(a / b) for a, b in zip(k, n, strict=True) if b]

        def gap(labels: Any) -> float | None:
            found = rates("positive", labels)
            return max(found) - min(found) if len(found) > 1 else None

        gaps = [gap(y) if binary else None for y in ([0, 1], [0], [1])]
        odds = [one for one in gaps[1:] if one is not None]
        cells = means_of(sample, column) if self.promise or self.e["minimax"] else []
        right, mass = atoms["correct"].sum(), atoms["weight"].sum()
        risk = "risk" if column == "loss" else "bounded_risk"
        return {
            "rows": count,
            "risk": sample[risk] / sample["share"] if sample["share"] > 0 else None,
            "error": float(1 - right / mass) if self.e["labels"] and count else None,
            "worst_cell_loss": max((c for c in cells if c == c), default=None),
            "worst_group_loss": max(rates(column), default=None),
            "dp_gap": gaps[0],
            "eo_gap": gaps[2],
            "equalized_odds_gap": max(odds) if len(odds) == 2 else None,
        }


# The files


def shown_in(text: str, names: Sequence[str]) -> list[str]:
    """Return the numbers, and the names in quotes, that a text shows, in order."""
    quoted = "|".join(re.escape(f"'{name}'") for name in sorted(names, key=len))
    found = re.findall(f"{quoted}|{NUMBER}", text)
    return [one[1:-1] if one[0] == "'" else one for one in found]


def check_result(told: Told, stated: Json) -> Iterator[Check]:
    """Compare result.json with the figures that follow from evidence."""
    found, said = told.result(), stated["verdicts"]
    plain = {key: value for key, value in stated.items() if key in found}
    sites, text = plain.get("sites"), ""
    if "sites" not in plain and found["sites"] is None:  # as in results of 0.1
        del found["sites"]
    if "before" not in plain:
        del found["before"]
    if sites is not None:
        plain["sites"] = {k: v for k, v in sites.items() if k != "sentence"}
        text = sites["sentence"]
    yield from compare("result.json", plain, found)
    hidden = told.statements().get("sites")
    if isinstance(hidden, tuple):
        shown = shown_in(text, told.known_names)
        yield from compare("result.json, sites shows", shown, hidden[4])
    words = {key: part["verdict"] for key, part in said.items()}
    words["exceeded"] = said["test"].get("exceeded", [])
    yield from compare("result.json, verdicts", words, told.verdicts())
    texts = {"message": stated["message"]}
    if told.trained:
        texts["training"] = said["training"]["sentence"]
    for name, text in texts.items():
        shown = shown_in(text, told.known_names)
        yield from compare(f"result.json, {name} shows", shown, told.sentence)
    shown = shown_in(said["test"]["sentence"], told.known_names)
    yield from compare("result.json, test shows", shown, told.heldout())
    lacking = said["new_people"]["more_rows"]
    yield from compare("result.json, more rows", lacking, told.more_rows())
    plain = {k: v for k, v in said["new_people"].items() if k not in UNSEEN}
    yield from compare("result.json, new people", plain, told.of_path())
    if (short := told.short()) is not None:
        shown = shown_in(said["new_people"]["sentence"], told.known_names)
        yield from compare("result.json, new people shows", shown, short)
    yield from check_words(told, said)
    shown = shown_in(stated["warning"] or "", told.known_names)
    yield from compare("result.json, warning shows", shown, told.no_better())
    shown = shown_in(stated["binding"] or "", told.known_names)
    yield from compare("result.json, binding shows", shown, told.binding())


def check_words(told: Told, said: Json) -> Iterator[Check]:
    """Find the words that only a promise which was asked for in advance may have."""
    path, held = told.path, told.held or {"splits": []}
    if path is None:
        return
    chose = path["split"] in held["splits"] and len(path["candidates"]) > 1
    failed = told.short() is not None and not told.shown
    due = {
        ("test", "by which the model was chosen"): chose,
        ("new_people", "is within its bound in every cell"): told.shown,
        ("new_people", "shown to keep every bound"): failed and path["chosen"] == 0,
        ("new_people", "when it was chosen, and is not"): failed and path["chosen"] > 0,
    }
    for (key, words), expected in due.items():
        there = words in said[key]["sentence"]
        good = there == expected
        yield Check(f"result.json, {key}: '{words}'", there, expected, good)


def check_certificate(told: Told, stated: Json) -> Iterator[Check]:
    """Compare a certificate with the figures that follow from evidence."""
    e, data = told.e, told.e["data"]
    prints = {"model": e["model"]["fingerprint"], "schema": data["schema"]}
    prints |= {"data": data["fingerprint"], "trained on": data["trained_on"]}
    if told.trained and data["fingerprint"] == data["trained_on"]:
        del prints["trained on"]
    cells = e["cells"]
    facts = {
        "date": e["about"]["date"],
        "data": data["name"],
        "groups": [cell["cell"] for cell in cells],
        "bounds": [cell["bound"] if told.promise else None for cell in cells],
        "confidence": told.terms["confidence"],
        "fingerprints": {key: value for key, value in prints.items() if value},
    }
    plain = {key: stated[key] for key in facts}
    yield from compare("certificate", plain, facts)
    words = {key: one["verdict"] for key, one in stated["verdicts"].items()}
    found = {key: word for key, word in told.verdicts().items() if key != "exceeded"}
    yield from compare("certificate, verdicts", words, found)
    said = {key: one["sentence"] for key, one in stated["verdicts"].items()}
    texts = {"test": told.heldout()}
    texts |= {"training": told.sentence} if told.trained else {}
    texts |= {"new_people": short} if (short := told.short()) is not None else {}
    for key, tokens in texts.items():
        shown = shown_in(said[key], told.known_names)
        yield from compare(f"certificate, {key} shows", shown, tokens)
    notes = [note for note in stated["notes"] if note not in e["notes"]]
    shown = [one for note in notes for one in shown_in(note, told.known_names)]
    yield from compare("certificate, notes show", shown, told.notes())
    absent = [note for note in e["notes"] if note not in stated["notes"]]
    yield from compare("certificate, notes left out", absent, [])
    found = told.statements()
    kinds = [kind.partition(" ")[0] for kind in found]
    yield from compare("statements", [s["kind"] for s in stated["statements"]], kinds)
    for (kind, one), said in zip(found.items(), stated["statements"], strict=False):
        yield from check_statement(kind, one, said, told.known_names)


def check_statement(
    kind: str, found: Any, stated: Json, names: Sequence[str]
) -> Iterator[Check]:
    """Compare one statement: its figures, and what its sentences show."""
    keys = ("available", "value", "holds", "figures", "per_cell")
    plain = {key: stated[key] for key in keys}
    if isinstance(found, str):
        empty: Any = (False, None, None, {}, None)
        yield from compare(kind, plain, dict(zip(keys, empty, strict=True)))
        text, reason = stated["text"], stated["reason"]
        good = text == f"not available: {reason}" and found in reason
        yield Check(f"{kind}, reason", text, f"not available: {found}", good)
        return
    *values, shown, grounds = found
    yield from compare(kind, plain, dict(zip(keys, (True, *values), strict=True)))
    yield from compare(f"{kind}, text shows", shown_in(stated["text"], names), shown)
    given = [[a["state"], *shown_in(a["text"], names)] for a in stated["assumptions"]]
    yield from compare(f"{kind}, grounds show", given, grounds)


class Page(HTMLParser):
    """The text of a report: the rows of its tables, and all else."""

    HIDDEN = ("script", "style", "svg", "pre", "title", "time", "sup")
    PARTS = ("p", "li", "dt", "dd", "figcaption", "h1", "h2", "h3", "summary", "tr")

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[tuple[str, list[str]]] = [("p", [""])]
        self.hidden = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begin a part, or an entry of a row."""
        self.hidden += tag in self.HIDDEN
        if tag in self.PARTS:
            self.parts.append((tag, [] if tag == "tr" else [""]))
        elif tag in ("td", "th"):
            self.parts[-1][1].append("")

    def handle_endtag(self, tag: str) -> None:
        """End what is not shown."""
        self.hidden -= tag in self.HIDDEN

    def handle_data(self, data: str) -> None:
        """Take text."""
        if not self.hidden and self.parts[-1][1]:
            self.parts[-1][1][-1] += data


def spelt(name: str) -> str:
    """A name as it is shown: control characters are spelt out, or a space."""
    return "".join(
        c
        if c.isprintable() or c in "\u200c\u200d"
        else " "
        if c.isspace()
        else c.encode("unicode_escape").decode("ascii")
        for c in name
    )


def parts_of_card(text: str) -> Iterator[tuple[str, list[str]]]:
    """Return the text of a card as that of a page; what is in code is left out."""
    facts, code = False, r"```.*?```|(?<!\\)`[^`\n]*`"
    for line in re.sub(code, "", text, flags=re.DOTALL).splitlines():
        facts = line.startswith("| | |") or (facts and line.startswith("|"))
        split = re.split(r"(?<!\\)\|", line)[1:-1] if line.startswith("| ") else [line]
        entries = [re.sub(r"\\([\W_])", r"\1", unescape(one)).strip() for one in split]
        if facts or len(entries) == 1:
            yield "p", [" ".join(entries)]
        else:
            yield "tr", entries


def check_card(
    text: str, result: Json, certificate: Json, e: Json, model: Model | None
) -> Iterator[Check]:
    """Compare what a model card shows, its header too, in the same way."""
    effects = {} if model is None else model.effects()
    groups = np.reshape(e["seen"]["atoms"]["count"], (len(e["groups"]), -1)).sum(axis=1)
    rows = {g: [int(n)] for g, n in zip(e["groups"], groups, strict=True)}
    for name, figures_of in effects.items():
        rows.setdefault(name, []).extend(figures_of)
    errors = [(result[split] or {}).get("error") for split in ("train", "test")]
    more = [1 - error for error in errors if error is not None]
    samples = [e["seen"], *filter(None, [known(e["heldout"])])]
    for s in (s for s in samples if sum(s["atoms"]["weight"])):
        total = sum(s["atoms"][judged(e, s)])
        more.append(total / sum(s["atoms"]["weight"]))
    inputs = len(model.mean) if effects and model is not None else 0
    more += [e["model"]["parameters"], inputs, inputs - INPUTS_SHOWN]
    more += [] if model is None else [model.schema]
    said = [part["sentence"] for part in result["verdicts"].values()]
    parts = list(parts_of_card(text))
    yield from check_shown("card", parts, said, result, certificate, e, rows, more)


def answers(path: Path) -> dict[str, list[Any]]:
    """Return what the record of a deployed run says of each site.

    How often it answered, how often not, when last, and why not, if so, the last time.
    """
    out: dict[str, list[Any]] = {}
    if not path.is_file():
        return out
    for line in path.read_bytes().splitlines():
        entry = json.loads(line)
        refused = dict(entry.get("refused", ()))
        for site in entry.get("asked", ()):
            counts = out.setdefault(site, [0, 0, "", ""])
            there = site in entry["answered"]
            counts[0 if there else 1] += 1
            counts[2] = entry["time"] if there else counts[2]
            counts[3] = "" if there else refused.get(site, "")
    return out


def check_slider(text: str, e: Json) -> Iterator[Check]:
    """Compare what a slider over the models of a path moves with their sums.

    Of calibration rows it may show means of models that were tested, and of what is
    promised the bound, up to the model that is shipped.
    """
    path, found = e.get("path", {}), re.search(DATA, text)
    models = path.get("candidates", [])
    shown = json.loads(found[1]) if found else []
    if len(models) < 2:
        return
    bounds, (data,) = [cell["bound"] for cell in e["cells"]], shown
    yield from compare("slider, models", len(data["models"]), len(models))
    tried = True
    for place, (one, said) in enumerate(zip(models, data["models"], strict=False)):
        rows = [said["c"][z : z + 4] for z in range(0, len(said["c"]), 4)]
        what = f"slider, model {place + 1}"
        means = means_of(one["training"], "loss")
        held = means_of(one["calibration"])
        yield from compare(what, [r[0] for r in rows], bounds)
        near = all(abs(r[1] - m) <= 1e-5 for r, m in zip(rows, means, strict=True))
        yield Check(f"{what}, training", rows, means, near)
        there = rows[0][2] is not None
        near = all(
            (r[2] is not None) == there and (not there or abs(r[2] - m) <= 1e-5)
            for r, m in zip(rows, held, strict=True)
        )
        yield Check(f"{what}, calibration", rows, held, near and (tried or not there))
        promised = [b if place <= path["chosen"] else None for b in bounds]
        good = [r[3] for r in rows] in (promised, [None] * len(bounds))
        yield Check(f"{what}, promised", rows, promised, good)
        tried = there


def check_page(
    text: str,
    result: Json,
    certificate: Json,
    e: Json,
    model: Model | None,
    sites: Mapping[str, list[Any]],
) -> Iterator[Check]:
    """Compare what a report shows with the figures and sentences of the other files."""
    effects = {} if model is None else model.effects()
    for name, figures_of in sites.items():
        effects = {**effects, name: [*effects.get(name, []), *figures_of]}
    more = [] if model is None else [model.schema, len(model.mean)]
    statements = certificate.get("statements", [])
    parts = result["verdicts"].values()
    said = [part["sentence"] for part in parts if "sentence" in part]
    said += [result["message"]] if result["method"] else []  # of an audit: as figures
    proved = any(s["kind"] == "infeasible" and s["holds"] for s in statements)
    statements = [s for s in statements if not (proved and s["kind"] == "attainable")]
    said += [one["text"] for one in statements]
    told = [one for one in statements if one["available"]]
    said += [a["text"] for one in told for a in one["assumptions"]]
    shown = [(tag, [FOLDER.sub("", t) for t in part]) for tag, part in Page(text).parts]
    yield from check_shown("report", shown, said, result, certificate, e, effects, more)
    yield from check_slider(text, e)


def check_shown(
    where: str,
    parts: Sequence[tuple[str, list[str]]],
    said: Sequence[str],
    result: Json,
    certificate: Json,
    e: Json,
    more_rows: Mapping[str, Any],
    more: Sequence[Any],
) -> Iterator[Check]:
    """Check that sentences are there, and that every number is one that is known."""
    statements = certificate.get("statements", [])
    rows: dict[str, list[Any]] = {
        "training": [result["train"]],
        "held-out": [result["test"]],
    }
    for place, one in enumerate(e.get("path", {}).get("candidates", [])):
        atoms = one["training"]["atoms"]
        mass, right = sum(atoms["weight"]), sum(atoms["correct"])
        wrong = 1 - right / mass if e["labels"] else sum(atoms["loss"]) / mass
        rows[f"{place + 1}"] = rows[f"{place + 1} ◀"] = [one["margin"], wrong]
        more = [*more, wrong]
    more = [*more, *limits_of(e), 0.1]  # that limits change losses by, in per cent
    before, costs = result["before"] or {}, []
    for key, name in (("train", "training"), ("test", "held-out")):
        rows[f"{name}, no bounds"] = [before.get(key)]
        old, new = before.get(key), result[key]
        if new and new["error"] is not None:
            costs.append(100 * new["error"])
        if old and new and None not in (old["error"], new["error"]):
            costs += [100 * old["error"], 100 * new["error"]]
            costs.append(round((new["error"] - old["error"]) * new["rows"]))
    for cell in result["cells"]:
        weight = (result["witness"] or {}).get(cell["cell"])
        rows[cell["cell"]] = [cell, weight]
    percent: dict[str, list[float]] = {}
    for group in result["groups"]:
        rows.setdefault(group["group"], []).append(group)
        shares = [v for v in leaves_of(group) if isinstance(v, float)]
        percent[group["group"]] = [100 * share for share in shares]
    for row in (row for one in statements for row in one["per_cell"] or []):
        rows.setdefault(row["cell"], []).append(row)
    for name, figures_of in more_rows.items():
        rows.setdefault(name, []).extend(figures_of)
    card = result["data"]["card"] or {"silos": [], "rows": [], "floor": 1}
    for silo, counts in zip(card["silos"], card["rows"], strict=True):
        rows.setdefault(silo, []).extend([counts, card["floor"]])
    for group, *counts in zip(card.get("groups", []), *card["rows"], strict=True):
        rows.setdefault(group, []).extend([counts, card["floor"]])
    came = outcomes(e)
    for name, (margin, error, cell, _) in came.items():
        rows.setdefault(name, []).extend([margin, error, cell])
        percent.setdefault(name, []).append(100 * error)
    known = [result, certificate, 100 * result["confidence"], card["floor"] - 1, *more]
    known += [len(result["cells"]), *costs]  # what was asked, and what it cost
    if e["labels"]:  # what a loss means: that of a coin, and the odds of the truth
        known.append(math.log(len(e["labels"])))
        known += [math.exp(-cell["train_loss"]) for cell in result["cells"]]
    else:  # of a squared error: its root
        for cell in result["cells"]:
            losses = [cell[key] for key in ("train_loss", "constant") if cell.get(key)]
            known += [math.sqrt(max(loss, 0.0)) for loss in losses]
    anywhere = list(leaves_of(known))
    in_row = {name: list(leaves_of(facts)) for name, facts in rows.items()}
    parts = [(tag, [" ".join(t.split()) for t in p]) for tag, p in parts]
    texts = [p[0] for tag, p in parts if tag != "tr"]
    for one in map(str.split, said):
        there = any(" ".join(one) in text for text in texts)
        yield Check(f"{where}, a sentence", " ".join(one), "is not there", there)
    stated = [text for text in (e.get("about") or {}).values() if text]
    notes = [*result["notes"], *result["data"]["notes"]]
    names = sorted([*rows, *said, *stated, *notes], key=len)
    for tag, (name, *entries) in (part for part in parts if part[1]):
        if tag == "tr":
            words = [entry for entry in entries if entry in OUTCOMES]
            if words and name in came:
                yield from compare(f"{where}, model {name}", words, [came[name][3]])
            for entry in entries:
                facts = (percent if "%" in entry else in_row).get(name, anywhere)
                yield from figures(f"{where}, row {name}", entry, facts)
            continue
        for one in reversed(names):
            name = without(name, one)
        yield from figures(f"{where}, a text", name, anywhere)


def without(text: str, name: str) -> str:
    """Return a text less a name, which may be a number, or part of one elsewhere."""
    if name not in text:
        return text
    whole = rf"(?<!\w)(?<!\d[.,]){re.escape(name)}(?!\w)(?![.,]\d)"
    return re.sub(whole, "", text)


def outcomes(e: Json) -> dict[str, tuple[float, float, str, str]]:
    """Return what a table of a path shows of each model, by its number.

    Its margin, how often it is wrong on training rows (its mean loss, of numbers), the
    cell with the least room there, and what came of it.
    """
    out: dict[str, tuple[float, float, str, str]] = {}
    if (path := known(e.get("path"))) is None:
        return out
    risk = 1 - e["terms"]["confidence"]
    later, many = e["terms"]["later"], e["terms"]["candidates"]
    risk /= max(1, later * (later + 1)) * many
    kept = shown_up_to(risks_of(e, path), risk)
    for place, one in enumerate(path["candidates"]):
        atoms, means = one["training"]["atoms"], means_of(one["training"], "loss")
        total = sum(atoms["weight"])
        error = sum(atoms["loss"]) / total
        if e["labels"]:
            error = 1 - sum(atoms["correct"]) / total
        over = [m - c["bound"] for m, c in zip(means, e["cells"], strict=True)]
        cell = e["cells"][int(np.nanargmax(over))]["cell"]
        word = OUTCOMES[(place >= kept) + (place > kept)]
        mark = f" {HERE}" * (place == path["chosen"])
        out[f"{place + 1}{mark}"] = (one["margin"], error, cell, word)
    return out


def figures(what: str, text: str, known: Sequence[Any]) -> Iterator[Check]:
    """Check that each number of a text is one that is known, rounded either way."""
    for token in re.findall(NUMBER, text):
        number = Decimal(token.replace(",", ""))
        unit = float(Decimal(1).scaleb(int(number.as_tuple().exponent)))
        good = any(shows(token, float(number), unit, value) for value in known)
        yield Check(what, token, "no such number", good)


def shows(token: str, number: float, unit: float, value: Any) -> bool:
    """Whether what a text has may be a value: as a part of it, whole, or rounded."""
    if isinstance(value, str):
        return token in value
    if not isinstance(value, int | float):
        return False
    off = abs(number - abs(value))
    return off == 0 if isinstance(value, int) else off < unit


def leaves_of(value: Any) -> Iterator[Any]:
    """Return every entry of a nested plain value."""
    if isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from leaves_of(entry)
    else:
        yield value


def read(path: Path, form: str) -> Json:
    """Read one of pffl's JSON files."""
    if not path.is_file():
        raise Unreadable(f"{path}: not there; what runs and audits left can be checked")
    try:
        found = json.loads(path.read_bytes())
        seen = (found["format"], found["version"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(f"{path}: {error!r}") from error
    if seen != (form, READS[form]):
        raise Unreadable(f"{path}: format and version {seen}; {READS} can be read")
    try:
        return dict(unpacked(found))
    except (ValueError, TypeError, IndexError) as error:
        raise Unreadable(f"{path}: a packed vector: {error!r}") from error


def unpacked(value: Any) -> Any:
    """Return a plain value whose long vectors are arrays.

    They are written as their numbers other than 0 and the places of these, 64-bit
    floats and 32-bit integers, little-endian, in base64; without places, all numbers.
    """
    if isinstance(value, list):
        return [unpacked(v) if isinstance(v, dict | list) else v for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) != {"length", "places", "values"}:
        return {key: unpacked(entry) for key, entry in value.items()}
    numbers = np.frombuffer(base64.b64decode(value["values"], validate=True), "<f8")
    if value["places"] is None:
        if len(numbers) != value["length"]:
            raise ValueError(f"{len(numbers)} numbers, not {value['length']}")
        return numbers
    if not 0 <= value["length"] <= LONGEST:
        raise ValueError(f"a length of {value['length']}")
    found = np.zeros(value["length"])
    places = np.frombuffer(base64.b64decode(value["places"], validate=True), "<u4")
    if len(numbers) != len(places):
        raise ValueError(f"{len(numbers)} numbers at {len(places)} places")
    found[places] = numbers
    return found


def check_files(directory: Path) -> Iterator[Check]:
    """Compare the files with the manifest."""
    path = directory / "manifest.json"
    try:
        hashes = dict(json.loads(path.read_bytes())["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{path}: {error!r}") from error
    for name, stated in hashes.items():
        place, found = directory / Path(name).name, "no such file"
        if place.is_file():
            found = hashlib.sha256(place.read_bytes()).hexdigest()
        yield from compare(f"file {name}", stated, found)


def check_looks(e: Json, path: Path) -> Iterator[Check]:
    """Compare what was paid for looks at held-out rows with the log of looks."""
    held, terms = known(e["heldout"]), e["terms"]
    if held is None or not path.is_file():
        return
    rows, samples = [], [held]
    if chosen := known(e.get("path")):
        samples.append(chosen["candidates"][chosen["chosen"]]["calibration"])
    for sample in samples:
        parts = [e["data"]["splits"].get(split) for split in sample["splits"]]
        if None in parts:
            counts = [int(n) for n in sample["atoms"]["count"]]
            parts = [hashed("rows", e["data"]["schema"], [*sample["splits"], counts])]
        if missing(e["training"]):
            counts = [int(n) for n in sample["atoms"]["count"]]
            parts.append(hashed("people", e["groups"], e["labels"], counts))
        rows += parts
    names = ("confidence", "candidates", "loss_bound")
    cells = [[c[key] for key in ("cell", "bound", "silo", "of")] for c in e["cells"]]
    paid = [terms[name] for name in names]
    paid += [] if terms.get("weight_bound") is None else [terms["weight_bound"]]
    paid += ["audit"] if missing(e["training"]) else []
    own = hashed("certificate", e["model"]["fingerprint"], cells, *paid)
    looks = [json.loads(line) for line in path.read_bytes().splitlines()]
    mine = {one["certificate"]: one for one in looks if set(one["rows"]) & set(rows)}
    yield Check("looks: this certificate", own, list(mine), own in mine)
    if own in mine:
        yield from compare("looks: settings", mine[own]["settings"], settings(e, cells))
        stated = {key: terms[key] for key in ("candidates", "others", "later")}
        found = {key: mine[own][key] for key in ("candidates", "others")}
        yield from compare("looks", stated, {**found, "later": list(mine).index(own)})


def settings(e: Json, cells: list[Any]) -> str:
    """Return the hash of all that was chosen of a model, whatever its training rows."""
    run, terms, path = known(e["training"]), e["terms"], known(e.get("path"))
    method = dict(run["method"]) if run else {}
    for key in ("multiplier_bound", "warm_start"):  # how far and from where, not what
        method.pop(key, None)
    drawn = run["seed"] if run and method["kind"] not in SEEDLESS else None
    named = e["model"]["described" if run else "fingerprint"]
    given = [terms[key] for key in ("weighting", "risk_weight", "loss_bound")]
    parts = [e["promise"], cells, given, named, method, drawn]
    if path:
        parts += ["path", path["confidence"], len(path["candidates"])]
    return hashed("settings", *parts)


def hashed(*parts: object) -> str:
    """SHA-256 of anything that JSON can hold."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_model(e: Json, model: Model) -> Iterator[Check]:
    """Compare evidence with the model file, and the method's prices with the terms."""
    found = {
        "fingerprint": model.hash(),
        "described": model.described,
        "kind": model.described.get("kind"),
        "parameters": len(model.w),
        "length": float(np.sqrt(model.w @ model.w)),
        "unit": model.unit(),
    }
    yield from compare("model", {key: e["model"][key] for key in found}, found)
    if model.described.get("intercept") is False:
        good = not (model.mean.any() or model.target[0])
        yield Check("score of x = 0, without an intercept", 0, "another", good)
    if path := known(e.get("path")):
        own = np.array(path["candidates"][path["chosen"]]["model"])
        good = bool(np.array_equal(own, model.w))
        yield Check("path: the shipped model", "as chosen", "another", good)
    stated, schema = e["data"]["schema"], model.schema_hash()
    yield from compare("names of inputs, groups, labels", stated, schema)
    run, priced = known(e["training"]), e["promise"] or e["minimax"]
    if run and e["labels"]:
        stated = e["terms"]["loss_bound"]
        yield from compare("loss bound of the predictor", model.loss_bound, stated)
    if run and priced:
        lam = [cell["multiplier"] for cell in e["cells"]]
        yield from compare("multipliers", lam, model.multipliers.tolist())
    for key in ("multiplier_bound", "risk_weight"):
        price = run["method"].get(key) if run and e["promise"] else None
        if price is not None:
            yield from compare(key, float(e["terms"][key]), float(price))
    if run and e["promise"] and run["method"].get("multiplier_bound", 0) is None:
        B, prices = e["terms"]["multiplier_bound"], [10.0**k for k in range(1, 9)]
        yield Check("multiplier_bound, left open", B, f"one of {prices}", B in prices)


# With noise: everything follows from released figures, and no row is needed.


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return δ(ε) of releases that are μ-GDP together, by integrating densities."""
    x = np.linspace(epsilon / mu - mu / 2, max(epsilon / mu, mu) + 40.0, 400_001)
    density = np.exp(-((x - mu) ** 2) / 2) - np.exp(epsilon - x**2 / 2)
    width = x[1] - x[0]
    inner = float(density.sum() - (density[0] + density[-1]) / 2)
    return inner * width / math.sqrt(2 * math.pi)


def mean_ends(
    loss: float, people: float, s: float, t: float, z: float, M: float
) -> tuple[float, float]:
    """Enclose m with |L̃ − m·ñ| ≤ z√(s² + m²t²) in [0, M], by search."""
    if people <= z * t:
        return 0.0, M

    def off(m: float, side: float) -> float:
        return loss - m * people - side * z * math.sqrt(s * s + m * m * t * t)

    found = []
    for side in (1.0, -1.0):
        low, high = off(0.0, side), off(M, side)
        if low <= 0:
            found.append(0.0)
        elif high >= 0:
            found.append(M)
        else:
            found.append(brentq(off, 0.0, M, args=(side,), xtol=1e-13))
    return found[0], found[1]


def noisy_upper(held: Json, z: int, people: float, M: float, delta: float) -> float:
    """Bound the mean loss of unseen people of a cell, from log-sums with noise."""
    if people < 1:
        return M
    pairs = zip(
        held["bet_weights"],
        held["logs"][z],
        held["log_deviation"][z],
        held["bets"],
        strict=True,
    )
    terms = [(math.log(w) + S - s * s / 2, g) for w, S, s, g in pairs]

    def evidence(m: float) -> float:
        logs = [base - people * math.log1p(-g * m) for base, g in terms]
        return float(logsumexp(logs)) - math.log(1 / delta)

    if evidence(1.0) <= 0:
        return M
    if evidence(0.0) >= 0:
        return 0.0
    return float(M * brentq(evidence, 0.0, 1.0, xtol=1e-13))


class Noisy:
    """What released figures say, each cell with its margin."""

    def __init__(self, e: Json) -> None:
        self.e, self.n = e, e["privacy"]
        labels = e["labels"] or [None]
        atoms = [[group, label] for group in e["groups"] for label in labels]
        rows = [
            [float(a in [list(o) for o in c["of"]]) for a in atoms] for c in e["cells"]
        ]
        self.member = np.array(rows)
        self.bounds = np.array([c["bound"] for c in e["cells"]])
        self.names = [c["cell"] for c in e["cells"]]
        self.confidence = e["terms"]["confidence"]

    def of(self, part: Json, name: str) -> Any:
        """Add figures of atoms into those of cells."""
        return self.member @ np.array(part[name])

    def ends(self, part: Json | None = None) -> tuple[Any, Any]:
        """Lower and upper ends of losses, all cells together; of training rows."""
        seen, many = part or self.n["seen"], np.sqrt(self.member.sum(axis=1))
        tail = (1 - self.confidence) / (2 * max(1, len(self.bounds)))
        z = math.sqrt(2) * float(erfcinv(2 * tail))
        found = [
            mean_ends(
                L, n, r * seen["loss_deviation"], r * seen["count_deviation"], z,
                self.n["loss_bound"],
            )
            for L, n, r in zip(
                self.of(seen, "losses"), self.of(seen, "counts"), many, strict=True
            )
        ]  # fmt: skip
        return np.array([one[0] for one in found]), np.array([one[1] for one in found])

    def upper(self) -> list[float] | None:
        """One number per cell for people not seen, each by itself."""
        held, terms = self.n["heldout"], self.e["terms"]
        if held is None:
            return None
        later, many = terms["later"], terms["candidates"]
        delta = (1 - self.confidence) / (many * max(1, later * (later + 1)))
        z = math.sqrt(2) * float(erfcinv(2 * 0.1 * delta))
        off = z * held["count_deviation"] * np.sqrt(self.member.sum(axis=1))
        people, M = self.of(held, "counts") - off, self.n["loss_bound"]
        return [
            noisy_upper(held, i, float(n), M, 0.9 * delta) for i, n in enumerate(people)
        ]

    def status(self) -> str:
        """Met, not met, or not decided."""
        low, high = self.ends()
        if not self.e["promise"]:
            return "no bounds"
        if (high <= self.bounds).all():
            return "met"
        return "not met" if (low > self.bounds).any() else "not decided"

    def verdicts(self) -> Json:
        """The three verdicts, in a word."""
        held = self.n["heldout"]
        if held is None:
            test = "not measured"
        elif not self.e["promise"]:
            test = "no bounds"
        else:
            low, high = self.ends(held)
            test = "within" if (high <= self.bounds).all() else "not decided"
            if test == "within" and min(self.of(held, "counts")) < FEW:
                test = "not measured"
            test = "exceeded" if (low > self.bounds).any() else test
        return {"training": self.status(), "test": test, "new_people": self.unseen()}

    def unseen(self) -> str:
        """Whether every bound is shown for people not seen."""
        found = self.upper()
        if found is None or not self.e["promise"]:
            return "not measured" if found is None else "no bounds"
        good = (np.array(found) <= self.bounds).all()
        return "certified" if good else "not certified"


def check_account(e: Json) -> Iterator[Check]:
    """Add up what was released, and compare with what was declared."""
    n = e["privacy"]
    enough = n["sites"] - n["colluding"]
    if n["shared"]:
        good = 0 < enough <= n["sites"]
        yield Check("sites whose noise is counted on", enough, n["sites"], good)
    each = 1 / max(1, enough) if n["shared"] else 1.0
    root = math.sqrt(n["sites"] * each)
    for split, mu, epsilon in (
        ("train", n["mu"], n["epsilon"]),
        ("test", n["heldout_mu"], n["heldout_epsilon"]),
    ):
        parts = [one for one in n["releases"] if one["split"] == split]
        if mu is None:
            yield from compare(f"releases of {split} rows", parts, [])
            continue
        total = math.sqrt(sum(one["mu"] ** 2 for one in parts))
        yield from compare(f"account of {split} rows, μ", mu, total)
        spent = gaussian_delta(mu, epsilon)
        good = spent <= n["delta"] * (1 + 1e-6)
        yield Check(f"account of {split} rows, δ at ε", n["delta"], spent, good)
    reach = {"counts": 1.0, "final errors": 1.0, "errors": 1.0}
    reach |= dict.fromkeys(("losses", "final losses"), n["loss_bound"])
    reach |= {"gradients": n["clip"], "curvature": n["clip"] ** 2 / 4}
    for one in n["releases"]:
        what = f"{one['name']} of {one['split']} rows"
        sigma = math.sqrt(one["times"]) * one["sensitivity"] / one["mu"]
        yield from compare(f"{what}, noise", one["sigma"], sigma)
        yield from compare(f"{what}, noise of all", one["deviation"], sigma * root)
        least, outputs = reach.get(one["name"], 0.0), max(1, e["model"]["outputs"])
        soft = one["name"] == "gradients" and outputs > 1
        least *= math.sqrt(2) if soft else 1.0
        good = one["sensitivity"] >= least
        yield Check(f"{what}, what a person adds", one["sensitivity"], least, good)
    by_name = {(one["name"], one["split"]): one["deviation"] for one in n["releases"]}
    for part, split, names in (
        ("seen", "train", ("counts", "final losses")),
        ("heldout", "test", ("counts", "losses")),
    ):
        if n[part] is None:
            continue
        keys = ("count_deviation", "loss_deviation")
        for key, name in zip(keys, names, strict=True):
            yield from compare(f"{part}, {key}", n[part][key], by_name[name, split])
    if n["heldout"] is not None:
        held, blocks = n["heldout"], {tuple(row) for row in Noisy(e).member.T}
        many = [sum(row[z] for row in blocks) for z in range(len(e["cells"]))]
        unit = by_name["logs", "test"]
        found = [
            [math.sqrt(b) * unit * -math.log1p(-g) for g in held["bets"]] for b in many
        ]
        yield from compare("noise of log-sums", held["log_deviation"], found)


def check_released(e: Json) -> Iterator[Check]:
    """Compare the sums that are shown with the figures that were released."""
    noisy, M = Noisy(e), e["privacy"]["loss_bound"]
    for name, part in (("seen", "seen"), ("heldout", "heldout")):
        figures, sample = e["privacy"][part], known(e[name])
        if figures is None or sample is None:
            continue
        count = np.maximum(np.rint(figures["counts"]), 0.0)
        loss = np.clip(figures["losses"], 0.0, M * count)
        right = np.clip(np.rint(figures["correct"]), 0.0, count)
        columns = {"count": count, "bounded_loss": loss, "correct": right}
        for column, values in columns.items():
            stated = [float(v) for v in sample["atoms"][column]]
            yield from compare(f"{name}, {column}", stated, values.tolist())
            stated = [float(v) for v in sample["cells"][column]]
            found = (noisy.member @ values).tolist()
            yield from compare(f"{name}, {column} of cells", stated, found)


def check_noise(e: Json, place: Path, mark: str) -> Iterator[Check]:
    """Check a run with noise: an auditor needs its released figures, and no rows."""
    yield from check_account(e)
    yield from check_released(e)
    noisy, n = Noisy(e), e["privacy"]
    (low, high), status, upper = noisy.ends(), noisy.status(), noisy.upper()
    sure = 100 * noisy.confidence
    tokens = [f"{sure:.6g}"]
    if e["promise"]:
        over = (low if status == "not met" else high) > noisy.bounds
        named = np.flatnonzero(over).tolist()
        for z in named[:3]:
            tokens += [noisy.names[z], down(low[z]), up(high[z]), near(noisy.bounds[z])]
        tokens += [f"{len(named) - 3}"] * (len(named) > 3)
    if mark == ".json":
        stated = read(place / "result.json", "pffl.result")
        yield from compare("result.json, status", stated["status"], status)
        words = {k: part["verdict"] for k, part in stated["verdicts"].items()}
        found = noisy.verdicts()
        yield from compare("result.json, verdicts", words, found)
        ends = [[c["lower"], c["upper"]] for c in stated["privacy"]["cells"]]
        found = np.stack([low, high], axis=1).tolist()
        yield from compare("result.json, training losses", ends, found, 1.0)
        ends = [cell["test_upper"] for cell in stated["cells"]]
        yield from compare(
            "result.json, test_upper", ends, upper or [None] * len(low), 1.0
        )
        budget = {key: stated["privacy"][key] for key in ("epsilon", "delta", "mu")}
        yield from compare("result.json, privacy", budget, {k: n[k] for k in budget})
        if e["promise"]:
            shown = shown_in(stated["message"], noisy.names)
            start = 1 if status == "not decided" else 0
            part = shown[start : start + len(tokens)]
            yield from compare("result.json, message shows", part, tokens)
    if (place / f"certificate{mark}").is_file():
        yield from _check_stated(
            noisy, read(place / f"certificate{mark}", "pffl.certificate")
        )
    yield skipped("with noise all follows from releases; page and card are not read")


def _check_stated(noisy: Noisy, stated: Json) -> Iterator[Check]:
    """Compare the certificate of a run with noise."""
    (low, high), upper = noisy.ends(), noisy.upper()
    words = {k: part["verdict"] for k, part in stated["verdicts"].items()}
    yield from compare("certificate, verdicts", words, noisy.verdicts())
    kinds = ["privacy", "empirical", "gap", "infeasible", "holdout", "holdout_error"]
    by_kind = {one["kind"]: one for one in stated["statements"]}
    yield from compare("certificate, statements", list(by_kind), kinds)
    rows = by_kind["empirical"]["per_cell"] or []
    ends = [[row["lower"], row["upper"]] for row in rows]
    found = np.stack([low, high], axis=1).tolist()
    yield from compare("certificate, training losses", ends, found, 1.0)
    decided = {"met": True, "not met": False}.get(noisy.status())
    yield from compare("certificate, bounds", by_kind["empirical"]["holds"], decided)
    for kind in ("gap", "infeasible", "holdout_error"):
        there = by_kind[kind]["available"]
        yield from compare(f"certificate, {kind} is not available", there, False)
    claimed = by_kind["privacy"]["available"]
    private = not noisy.n["repeatable"]
    yield from compare("certificate, privacy is claimed", claimed, private)
    if upper is not None:
        rows = [row["upper"] for row in by_kind["holdout"]["per_cell"]]
        yield from compare("certificate, unseen people", rows, upper, 1.0)
        shown = {"certified": True, "not certified": False}.get(noisy.unseen())
        yield from compare("certificate, promise", by_kind["holdout"]["holds"], shown)


def skipped(why: str) -> Check:
    """Say that what follows from rows was not checked."""
    return Check(f"{SKIPPED}{why}", None, None, True)


def verify(directory: str | Path, rows: str | Path | None = None) -> list[Check]:
    """Check a run directory, or one certificate in it; return every comparison.

    Parameters
    ----------
    directory
        What ``pffl run`` left; or a certificate file, which is checked by the evidence
        of the same ending.
    rows
        A CSV or npz file of prepared rows.

    Returns
    -------
    list of Check
        What was stated, what came out here, and whether they agree.

    Raises
    ------
    Unreadable
        A file is missing or cannot be read (a ValueError).

    Examples
    --------
    >>> import tempfile
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = pffl.save(solution, f"{folder}/run")
    ...     checks = pffl.verify(run)
    >>> all(check.agrees for check in checks)
    True
    """
    place, mark = Path(directory), ".json"
    if not place.is_dir():
        place, mark = place.parent, place.name.removeprefix("certificate")
    e = read(place / f"evidence{mark}", "pffl.evidence")
    out = list(check_files(place))
    try:
        weights = place / "model.safetensors"
        model = Model.read(weights) if weights.is_file() else None
        out += [] if model is None else check_model(e, model)
        if known(e.get("privacy")):
            return out + list(check_noise(e, place, mark))
        told = Told(e)
        out += check_looks(e, place / "looks.jsonl")
        out += [*check_bets(e), *check_bound(e), *check_sites(e)]
        out += check_path(e)
        kind = e["model"]["kind"]
        if rows is None:
            out.append(skipped("no rows were given"))
        elif model is None or kind not in KNOWN:
            out.append(
                skipped(f"no model is there, or its losses ({kind}) are unknown")
            )
        else:
            table = Table.read(Path(rows), e, list(model.inputs()))
            out += check_rows(e, model, table)
        result, certificate = told.result(), {}
        if mark == ".json":
            stated = read(place / "result.json", "pffl.result")
            out += check_result(told, stated)
            result = {**stated, **result}
        if (place / f"certificate{mark}").is_file():
            certificate = read(place / f"certificate{mark}", "pffl.certificate")
            out += check_certificate(told, certificate)
        if mark == ".json" and (place / "card.md").is_file():
            text = (place / "card.md").read_text("utf-8")
            out += check_card(text, result, certificate, e, model)
        if mark == ".json" and (place / "report.html").is_file():
            text = (place / "report.html").read_text("utf-8")
            sites = answers(place / "record.jsonl")
            out += check_page(text, result, certificate, e, model, sites)
            if certificate:
                file = (place / "certificate.json").read_bytes()
                seals = re.findall(SEAL, text)
                found = [hashlib.sha256(file).hexdigest()]
                out += compare("report, hash of the certificate", seals, found)
    except Unreadable:
        raise
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        out.append(Check("what the files hold", "can be computed", repr(error), False))
    return out


def main(arguments: list[str]) -> int:
    """Run from the command line; return the exit code."""
    given = [one for one in arguments if not one.startswith("--")]
    if not 1 <= len(given) <= 2 or set(arguments) - {*given, "--all"}:
        print(__doc__)
        return 2
    try:
        checks = verify(*given)
    except Unreadable as error:
        print(error, file=sys.stderr)
        return 6
    wrong = [check for check in checks if not check.agrees]
    for check in checks:
        if "--all" in arguments or not check.agrees or check.what.startswith(SKIPPED):
            print(check)
    bad = f"NOT VERIFIED: {len(wrong)} of {len(checks)} do not agree"
    print(bad if wrong else f"VERIFIED: all {len(checks)} agree")
    return 6 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
