"""Check what a run of pffl claims, from its rows, by plain arithmetic: one file.

    python pffl_verify.py RUN [ROWS]        RUN: a run's folder, or its report.html

It needs Python, NumPy, SciPy and safetensors, and nothing of pffl. ROWS is what ``pffl
verify RUN --export rows.npz`` (or .csv) writes: split, silo, group, label, person and
weight where they are known, and the inputs before scaling.

    files         SHA-256 against the manifest; JSON without doubled keys, odd numbers
    run file      bounds, seed, confidence, weighting, model: as the evidence says
    rows → sums   groups, counts, losses, errors, the risk, people, weights
    proofs        the duality gap by one gradient; an impossible bound by a supporting
                  plane; a smallest bound by a model that attains it
    commitments   M by its rule, bets and their weights by n, M, bound and training
                  sums, the order of candidates, the price of each later look
    conclusions   verdicts, losses, upper ends for new people, rates, privacy account

Without ROWS, or where they cannot be had (deployed and private runs), the word is
*consistent*: the conclusions follow from the recorded sums, and the sums were not
checked. With ROWS it is *verified against rows*. Of a network losses are not computed
again: its sums stay as recorded, and that is said.

No file can show who wrote it, that bounds, seed and settings were fixed before test
rows were seen, what was tried elsewhere, how a model was trained, or who the rows are
about.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import math
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.special import betaincinv, entr, erfcinv, expit, logsumexp, softmax, xlog1py

CLOSE, TINY = 1e-9, 1e-12  # the same number by another way: relative, and beside it
MET = 1e-6  # of a group's scale: a training loss this little above its bound is met
FEW = 10  # test rows of a group that are too few to judge by: less than these
FAR, NEAR = 1e6, 10.0  # times the longest weights: as good as all, least of a proof
CAPS = (3.0, 5.0, 8.0, 12.0, 20.0, 35.0)  # M
MARGINS = (0.0, 0.25, 0.5, 1.0, 2.0)  # beyond the range of a target, in parts of it
TRIED = np.geomspace(1e-6, 0.99, 200)  # bets that a plan compares
LINEAR = ("logistic", "softmax", "least-squares", "huber")
NUMERIC = LINEAR[2:]
COLUMNS = ["count", "loss", "loss_squared", "bounded_loss", "bounded_loss_squared"]
COLUMNS += ["correct", "positive", "weight"]
STAKES = ["count", "above", "t", "tx", "tt", "ttx", "ttxx"]
FORMAT, VERSION = "pffl.certificate", 4
OURS = {"report.html", "card.md", "model.safetensors", "run.toml", "history.csv"}
UNCHECKED = "not checked by rows: "
EMBEDDED = re.compile(
    r'<script type="application/json" id="certificate">(.*?)</script>', re.S
)
Json = dict[str, Any]


class Unreadable(ValueError):
    """A file that is not what it should be."""


@dataclass(frozen=True)
class Check:
    """What was stated, what came out here, and whether they agree.

    A note compares nothing: `what` says what was left out.
    """

    what: str
    stated: object = None
    found: object = None
    agrees: bool = True
    note: bool = False

    def __str__(self) -> str:
        told = f": stated {self.stated}, found {self.found}"
        return self.what if self.agrees else self.what + told


def compare(what: str, stated: Any, found: Any, scale: float = 0.0) -> Iterator[Check]:
    """Compare two plain values, entry by entry."""
    if isinstance(stated, dict) and isinstance(found, dict):
        for key in {**found, **stated}:
            pair = stated.get(key, "(nothing)"), found.get(key, "(nothing)")
            yield from compare(f"{what}, {key}", *pair, scale)
    elif isinstance(stated, list) and isinstance(found, list):
        if len(stated) != len(found):
            yield Check(f"{what}: how many", len(stated), len(found), False)
        for place, pair in enumerate(zip(stated, found, strict=False)):
            yield from compare(f"{what}, {place}", *pair, scale)
    else:
        yield Check(what, stated, found, agree(stated, found, scale))


def agree(stated: Any, found: Any, scale: float = 0.0) -> bool:
    """Whether two values are the same: numbers nearly, all else exactly."""
    if isinstance(found, float) and math.isnan(found):
        return stated is None
    pair = (stated, found)
    if not all(isinstance(v, int | float) and type(v) is not bool for v in pair):
        return type(stated) is type(found) and bool(stated == found)
    size = max(abs(stated), abs(found), scale)
    return bool(abs(stated - found) <= CLOSE * size + TINY)


# Reading


def read_json(text: bytes | str) -> Any:
    """Read JSON that means one thing: no doubled key, no number that is none."""

    def unique(pairs: list[tuple[str, Any]]) -> Json:
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError(f"a doubled key among {[key for key, _ in pairs]}")
        return found

    def finite(text: str) -> float:
        if not math.isfinite(number := float(text)):
            raise ValueError(f"no number: {text[:20]}")
        return number

    def whole(text: str) -> int:
        if len(text) > 19:
            raise ValueError(f"no number: {text[:20]}")
        return int(text)

    numbers: Any = {"parse_float": finite, "parse_constant": finite, "parse_int": whole}
    return json.loads(text, object_pairs_hook=unique, **numbers)


class Claims(NamedTuple):
    """What a run claims: evidence, figures, verdicts; the model and the run file."""

    e: Json
    figures: Json
    verdicts: Json
    model: SavedModel | None
    run_file: Json


def read_claims(place: Path) -> tuple[Claims, list[Check]]:
    """Read a folder, a certificate or a page: what knows how files are laid out."""
    folder, model = place if place.is_dir() else place.parent, None
    run, files = {}, []
    try:
        if place.suffix == ".html":
            (text,) = EMBEDDED.findall(place.read_text("utf-8"))
            c = read_json(text)
        else:
            path = folder / "certificate.json" if place.is_dir() else place
            c, files = read_json(path.read_bytes()), list(check_files(folder))
            spec, weights = folder / "run.toml", folder / "model.safetensors"
            model = SavedModel(weights) if weights.is_file() else None
            if place.is_dir() and spec.is_file():
                run = tomllib.loads(spec.read_text("utf-8"))
        seen = c["format"], c["version"], type(c["version"])
        if seen != (FORMAT, VERSION, int):
            raise ValueError(f"format and version {seen[:2]} cannot be read")
        return Claims(c["evidence"], c["figures"], c["verdicts"], model, run), files
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(f"{place}: {error!r}") from error


def check_files(folder: Path) -> Iterator[Check]:
    """Compare the files with the manifest."""
    hashes = dict(read_json((folder / "manifest.json").read_bytes())["files"])
    there = {path.name: path for path in folder.iterdir() if path.is_file()}
    for name in sorted({*hashes} | ({*there} & OURS)):
        text = there[name].read_bytes() if name in there else b""
        found = hashlib.sha256(text).hexdigest() if name in there else "no such file"
        yield from compare(f"file {name}", hashes.get(name, "not listed"), found)


class SavedModel:
    """model.safetensors: what the model is, its weights and scaling, and names."""

    def __init__(self, path: Path) -> None:
        from safetensors import safe_open

        names = ("w", "multipliers", "input_mean", "input_scale", "input_fill")
        with safe_open(path, framework="numpy") as file:  # nothing in it is ever run
            header = read_json(file.metadata()["pffl"])
            arrays = [np.array(file.get_tensor(name)) for name in names]
        self.w, self.multipliers, self.mean, self.scale, self.fill = arrays
        target = header["target_scaling"] or {"mean": 0.0, "scale": 1.0}
        self.target = np.array([target["mean"], target["scale"]])
        self.about, self.schema = header["model"], header["schema"]
        self.loss_bound, self.rows = header["loss_bound"], header["fingerprint"]
        given, self.inputs = self.schema["features"], []
        for part in given["parts"] if isinstance(given, dict) else given:
            if isinstance(part, dict):  # words of a text, hashed
                many = range(part["count"])
                self.inputs += [f"{part['column']}#{j}" for j in many]
            else:
                self.inputs.append(part)

    def hash(self) -> str:
        """SHA-256 of kind, scaling and weights."""
        parts = [json.dumps(self.about, sort_keys=True, ensure_ascii=False).encode()]
        fill = [self.fill] if len(self.fill) else []
        for array in (self.mean, self.scale, *fill, self.target, self.w):
            parts += [f"\0{len(array)}\0".encode(), array.astype("<f8").tobytes()]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def schema_hash(self) -> str:
        """SHA-256 of the names of inputs, groups and labels."""
        plain = {key: self.schema[key] for key in ("features", "attributes")}
        plain["attributes"] = {a["name"]: a["values"] for a in plain["attributes"]}
        plain |= {key: self.schema[key] for key in ("labels", "target")}
        if self.schema["indicators"]:
            plain["indicators"] = self.schema["indicators"]
        text = json.dumps(plain, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def scaled(self, X: Any) -> Any:
        """Return inputs as the model sees them: filled, scaled, with a constant."""
        one = bool(self.about.get("intercept"))
        if len(self.fill):  # missing inputs are written as 0, and marked
            inputs, marks = np.array(self.schema["indicators"]).T
            size = (X.shape[1], X.shape[1])
            X = X + X @ csr_array((self.fill, (marks, inputs)), shape=size)
        if not isinstance(X, np.ndarray):
            return SparseInputs(csr_array(X), self.mean, self.scale, one)
        X = (X.astype(np.float64) - self.mean) / self.scale
        return np.column_stack([X, np.ones(len(X))]) if one else X


class SparseInputs:
    """Sparse rows as if scaled, (X − mean)/scale, and a 1 for an intercept."""

    __array_ufunc__ = None  # NumPy leaves its products to this class

    def __init__(self, X: Any, mean: Any, scale: Any, one: bool) -> None:
        data = X.data / scale[X.indices]
        self.X = csr_array((data, X.indices, X.indptr), shape=X.shape)
        self.shift, self.one = mean / scale, one
        self.shape = (X.shape[0], X.shape[1] + one)

    def __matmul__(self, W: Any) -> Any:
        d = len(self.shift)
        found = self.X @ W[:d] - self.shift @ W[:d]
        return found + W[d] if self.one else found

    def __rmatmul__(self, A: Any) -> Any:
        total = A.sum(axis=1, keepdims=True)
        found = A @ self.X - total * self.shift
        return np.hstack([found, total]) if self.one else found


class RowTable:
    """All rows: split, silo and group by name; label codes (or numbers); raw inputs."""

    def __init__(self, path: Path, e: Json, model: SavedModel) -> None:
        head = ["split", "silo", "group", "label"]
        head += ["person"] if e["data"]["by_person"] else []
        try:
            if path.suffix == ".npz":
                with np.load(path, allow_pickle=False) as file:
                    found = {name: file[name] for name in file.files}
                if "X" in found:
                    self.X, names = found["X"], found["features"].tolist()
                else:
                    parts = [found[f"X_{n}"] for n in ("data", "indices", "indptr")]
                    shape = (len(parts[2]) - 1, len(model.inputs))
                    self.X = csr_array(tuple(parts), shape=shape)
                    same = str(found["schema"]) == e["data"]["schema"]
                    names = model.inputs if same else []
            else:
                with path.open(encoding="utf-8", newline="") as text:
                    names, *lines = csv.reader(text)
                heavy = names[len(head) : len(head) + 1] == ["weight"]
                heads = [*head, "weight"] if heavy else head
                columns = np.array([line[: len(heads)] for line in lines]).T
                found = dict(zip(heads, columns, strict=True))
                names = names[len(heads) :] if names[: len(heads)] == heads else []
                inputs = [line[len(heads) :] for line in lines]
                self.X = np.array(inputs, dtype=np.float64)
            if names != model.inputs:
                raise ValueError(f"the columns must be {[*head, *model.inputs]}")
            code = {name: float(place) for place, name in enumerate(e["labels"])}
            labels = found["label"].tolist()
            self.y = np.array([code[v] if code else float(v) for v in labels])
            self.split, self.silo, self.group = (found[n] for n in head[:3])
            if unknown := {*self.group.tolist()} - {*e["groups"]}:
                raise ValueError(f"unknown groups {sorted(unknown)}")
            who, weight = found.get("person"), found.get("weight")
            self.person = None if who is None else who.astype(np.int64)
            self.weight = (
                np.ones(len(labels)) if weight is None else weight.astype(float)
            )
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise Unreadable(f"{path}: no rows of this model: {error!r}") from error
        self.silos = list(dict.fromkeys(self.silo.tolist()))

    def overlap(self, splits: Sequence[str]) -> int | None:
        """Rows of some splits that are training rows: by ids, or equal ones."""
        who = self.person
        if who is None and isinstance(self.X, np.ndarray):
            codes = np.unique(self.group, return_inverse=True)[1]
            rows = np.column_stack([self.X.astype(float), self.y, codes]) + 0.0
            who = rows.view(np.dtype((np.void, rows.shape[1] * 8))).reshape(-1)
        if who is None:
            return None
        train = self.split == "train"
        return int(np.isin(who[np.isin(self.split, splits)], who[train]).sum())


# Rows: losses, slopes and sums, from their definitions


class SplitRows:
    """The rows of one split: inputs as the model sees them, units, weights.

    A unit is a silo's rows of one group and label. Sums are taken per unit and added
    into groups, so that any number of silos costs the same.
    """

    def __init__(self, table: RowTable, split: str, e: Json, model: SavedModel) -> None:
        mine = table.split == split
        self.e, self.kind, self.labels = e, e["model"]["kind"], e["labels"] or [None]
        self.cut = float(model.about.get("delta", math.inf))  # of Huber's loss
        self.shift, self.stretch = model.target.tolist()
        self.y, self.X = table.y[mine], model.scaled(table.X[mine])
        self.person = None if table.person is None else table.person[mine]
        self.s = table.weight[mine]
        self.silos = {name: k for k, name in enumerate(table.silos)}
        self.groups = {name: k for k, name in enumerate(e["groups"])}
        every = np.array([self.silos[s] for s in table.silo.tolist()], np.int64)
        group = np.array([self.groups[g] for g in table.group[mine].tolist()], np.int64)
        silo, label = every[mine], self.y.astype(np.int64) if e["labels"] else 0
        K, self.atoms = len(self.silos), len(self.groups) * len(self.labels)
        self.unit = silo * self.atoms + group * len(self.labels) + label
        self.order = np.argsort(self.unit, kind="stable")
        self.ends = np.searchsorted(
            self.unit[self.order], np.arange(K * self.atoms + 1)
        )
        self.members = [self._units(cell) for cell in e["cells"]]
        self.mass = self.of_cells(self.s)
        train = np.where(table.split == "train", table.weight, 0.0)
        p = np.full(K, 1 / e["data"]["silos"])
        if e["terms"]["weighting"] == "rows":
            p = np.bincount(every, train, K) / train.sum()
        own = np.bincount(silo, self.s, K)
        self.share = float(p[own > 0].sum())
        self.in_risk = self.s * (p / np.where(own > 0, own, 1.0))[silo]

    def _units(self, cell: Json) -> Any:
        """Return the units that a group of the constraint is made of."""
        silos = range(len(self.silos))
        if cell["silo"] is not None:
            silos = range(at := self.silos[cell["silo"]], at + 1)
        pairs = [(self.groups[g], self.labels.index(y)) for g, y in cell["of"]]
        atoms = [g * len(self.labels) + y for g, y in pairs]
        return np.array([k * self.atoms + a for k in silos for a in atoms])

    def by_unit(self, values: Any) -> Any:
        """Add up values of rows per unit."""
        return np.bincount(self.unit, values, self.atoms * len(self.silos))

    def of_cells(self, values: Any) -> Any:
        """Add up values of rows per group of the constraint."""
        units = self.by_unit(values)
        return np.array([units[own].sum() for own in self.members])

    def in_cells(self, lam: Any) -> Any:
        """Return the weight of each row in Σ λ_z × the mean loss of group z."""
        weight = np.zeros(self.atoms * len(self.silos))
        for own, price in zip(self.members, lam / self.mass, strict=True):
            weight[own] += price
        return self.s * weight[self.unit]

    def scores(self, w: Any) -> Any:
        """Return Wx + b, shape (n, outputs); of a foreign model its probabilities."""
        if self.kind == "probabilities":
            return self.X
        return self.X @ w.reshape(-1, self.X.shape[1]).T

    def losses(self, z: Any) -> Any:
        """Return the loss of each row, from its scores."""
        code = (np.arange(len(self.y)), self.y.astype(int))
        if self.kind == "probabilities":
            p = z if z.shape[1] > 1 else np.hstack([1 - z, z])
            return -np.log(np.clip(p[code], 5e-324, 1))
        if self.kind == "softmax":
            return logsumexp(z, axis=1) - z[code]
        if self.kind == "logistic":
            return np.logaddexp(0, np.where(self.y == 1, -z[:, 0], z[:, 0]))
        return self.residual(np.abs(self.stretch * z[:, 0] - (self.y - self.shift)))

    def residual(self, size: Any) -> Any:
        """Return the loss of predictions that are so far off."""
        cut = np.minimum(size, self.cut)
        return cut * (2 * size - cut)

    def bounded(self, z: Any, M: float | None) -> Any:
        """Return the losses of the shipped predictor, none of them above M."""
        losses = self.losses(z)
        if M is None:
            return losses
        if self.e["terms"]["clipping"] == "range" and self.e["labels"]:
            return np.minimum(losses, M)
        if self.kind in NUMERIC:
            low, high = self.e["model"]["described"]["target_range"]
            far = np.abs(np.subtract(caps_of(self.e), M))
            more = MARGINS[int(np.argmin(far))] * (high - low)
            kept = np.clip(self.shift + self.stretch * z[:, 0], low - more, high + more)
            return self.residual(np.abs(kept - self.y))
        least, classes = math.exp(-M), len(self.labels)
        if classes == 2:
            return -np.log(np.clip(np.exp(-losses), least, 1 - least))
        return -np.log((1 - classes * least) * np.exp(-losses) + least)

    def gradient(self, w: Any, weights: Any) -> Any:
        """Return the derivative of Σ weights_i ℓ_i(w)."""
        z, y = self.scores(w), self.y[:, None]
        if self.kind == "logistic":
            u = expit(z) - y
        elif self.kind == "softmax":
            u = softmax(z, axis=1) - (np.arange(z.shape[1]) == y)
        else:
            off = self.stretch * z - (y - self.shift)
            u = 2 * self.stretch * np.clip(off, -self.cut, self.cut)
        return ((u * weights[:, None]).T @ self.X).reshape(-1)

    def plane(self, w: Any, v: Any, weights: Any) -> tuple[float, float]:
        """Return value and slope of a plane below Σ weights_i ℓ_i (Fenchel, Young).

        u are the slopes at w, moved along v, where the conjugate ℓ* is finite: value is
        Σ weights_i (−ℓ*(u_i)), and the slope the length of Σ weights_i u_i ⊗ x_i.
        """
        z, move, y = self.scores(w), self.scores(v), self.y[:, None]
        if self.kind == "softmax":
            q = softmax(z, axis=1)
            q = np.maximum(q - q * (move - (q * move).sum(1, keepdims=True)), 0)
            q /= q.sum(1, keepdims=True)
            u, values = q - (np.arange(z.shape[1]) == y), entr(q)
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
        slope = np.linalg.norm((u * weights[:, None]).T @ self.X)
        return float(weights @ values.sum(axis=1)), float(slope)

    def means(self, w: Any) -> Any:
        """Return the mean loss of each group of the constraint."""
        return self.of_cells(self.s * self.losses(self.scores(w))) / self.mass

    def sums(self, w: Any, M: float | None) -> Json:
        """Return the sums that evidence has of a split."""
        z, half = self.scores(w), 0.5 if self.kind == "probabilities" else 0.0
        own, kept = self.losses(z), self.bounded(z, M)
        guess = z.argmax(axis=1) if z.shape[1] > 1 else z[:, 0] > half
        if self.kind in NUMERIC:
            guess = np.full(len(self.y), np.nan)
        found = [own, own**2, kept, kept**2, guess == self.y, guess == 1]
        columns = [np.ones(len(self.y)), *(self.s * column for column in found), self.s]
        shape = (len(self.silos), -1)
        atoms = [self.by_unit(c).reshape(shape).sum(axis=0).tolist() for c in columns]
        cells = [self.of_cells(c).tolist() for c in columns]
        return {
            "risk": float(self.in_risk @ own),
            "bounded_risk": float(self.in_risk @ kept),
            "share": self.share,
            "cells": dict(zip(COLUMNS, cells, strict=True)),
            "atoms": dict(zip(COLUMNS, atoms, strict=True)),
        }

    def betting(self, w: Any, M: float, held: Json, s_max: float) -> tuple[Any, Any]:
        """Return the sums over people that bounds on new people stand on, and logs.

        A person's t is weight/s_max and x the loss/M: means over the person's rows.
        """
        x, weighs = self.bounded(self.scores(w), M) / M, bool(held["stakes"])
        t = self.s / s_max if weighs else np.ones(len(x))
        people, logs = [], []
        for z, units in enumerate(self.members):
            parts = [self.order[self.ends[u] : self.ends[u + 1]] for u in units]
            own = np.concatenate([*parts, np.zeros(0, np.int64)])
            a, b = np.minimum(t[own], 1), np.minimum(t[own], 1) * x[own]
            if self.person is not None:
                who = np.unique(self.person[own], return_inverse=True)[1]
                a, b = (np.bincount(who, part) / np.bincount(who) for part in (a, b))
            sums = [float(v.sum()) for v in (a, b, a * a, a * b, b * b)]
            if weighs:
                people.append([len(a), int((t[own] > 1).sum()), *sums])
            else:
                people.append([len(a), M * sums[1], M * M * sums[4]])
            if held["bets"]:
                levels = np.array(held["levels"][z] if held["levels"] else [0.0]) / M
                u = b[:, None] + (1 - a)[:, None] * levels
                logs.append([np.log1p(-g * u).sum(axis=0) for g in held["bets"][z]])
        return np.array(people), np.array(logs)


def caps_of(e: Json) -> list[float]:
    """Return the values of M to choose from."""
    if e["labels"]:
        return [M for M in CAPS if len(e["labels"]) * math.exp(-M) < 0.5]
    if not (ends := e["model"]["described"].get("target_range")):
        return []
    sizes = (ends[1] - ends[0]) * (1 + np.array(MARGINS))
    cut = np.minimum(sizes, e["model"]["described"].get("delta", math.inf))
    return [M for M in (cut * (2 * sizes - cut)).tolist() if math.isfinite(M)]


# Bounds on means and rates


class GroupTest:
    """What the rows of one group say of new people: n, bets, log-sums at levels."""

    def __init__(self, sample: Json, z: int, M: float) -> None:
        self.M, betting = M, bool(sample["bets"])
        self.bets = np.array(sample["bets"][z] if betting else [])
        self.weights = np.array(sample["bet_weights"][z] if betting else [])
        self.alike = not sample["levels"]  # whether rows count alike
        if self.alike:
            table = sample["people"] or sample["cells"]
            self.n, total = table["count"][z], table["bounded_loss"][z]
            self.mean = min(max(total / max(self.n, 1) / M, 0.0), 1.0)
            self.levels = np.array([0.0, 1.0])
            self.sums = np.array(
                [[S, S] for S in sample["below"][z]] if betting else []
            )
        else:
            self.n = sample["stakes"]["count"][z]
            self.levels = np.array(sample["levels"][z]) / M
            self.sums = np.array(sample["diluted"][z])

    def log_wealth(self, z: float) -> float:
        """Return log Σ π Π (1 − γu)/(1 − γz), u = tx + (1 − t)z.

        Between two levels it is at least the chord in 1/(1 − γz).
        """
        won = []
        for g, pi, row in zip(self.bets, self.weights, self.sums, strict=True):
            roots = np.exp(row / self.n - np.log1p(-g * self.levels))
            mean = np.interp(1 / (1 - g * z), 1 / (1 - g * self.levels), roots)
            won.append(math.log(pi) + self.n * math.log(mean))
        return float(np.logaddexp.reduce(won)) if won else -math.inf

    def upper(self, delta: float) -> float:
        """Return what the mean loss is at most, with probability 1 − δ.

        Of rows that count alike: the log-sum bound at 0.8 δ or Chernoff's at 0.2 δ.
        """
        if self.n == 0:
            return self.M
        term, top = math.log((0.8 if self.alike else 1.0) * delta), 1.0
        if self.log_wealth(1.0) + term > 0:
            top = root_of(lambda z: self.log_wealth(z) + term, 0.0, 1.0)
        if self.alike:
            p, budget = (
                self.mean,
                math.log((5 if len(self.bets) else 1) / delta) / self.n,
            )
            most, last = 1.0, 1 - 1e-16
            if p < last and kl(p, last) > budget:
                most = root_of(lambda q: kl(p, q) - budget, max(p, 1e-300), last)
            top = min(top, most)
        return min(self.M * top, self.M)

    def risk(self, bound: float) -> float:
        """Return the smallest δ with which the mean is shown to be within its bound."""
        if bound >= self.M or self.n == 0 or bound <= 0:
            return 0.0 if bound >= self.M else math.inf
        q, part = bound / self.M, 0.8 if self.alike else 1.0
        found = math.exp(min(-self.log_wealth(q), 700.0)) / part
        if self.alike and self.mean < q:
            rare = (5 if len(self.bets) else 1) * math.exp(-self.n * kl(self.mean, q))
            found = min(found, rare)
        return found


def root_of(function: Any, low: float, high: float) -> float:
    """Return where a function crosses 0."""
    return float(brentq(function, low, high, xtol=1e-16, rtol=1e-15))


def kl(p: float, q: float) -> float:
    """Return the relative entropy of two coins."""
    left = p * math.log(p / q) if p > 0 else 0.0
    return left + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)


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


def check_plan(
    name: str, held: Json, seen: Json | None, bounds: Any, delta: float | None, M: float
) -> Iterator[Check]:
    """Plan the bets of a sample again, from n, δ, M, bounds and training sums.

    The planned bet is one of `TRIED`: that which promises the smallest upper end. Where
    two promise the same, rounding may choose either. δ of an earlier look (None) is
    told by the smallest bet.
    """
    counts, part = held["cells"]["count"], 1.0 if held["levels"] else 0.8
    if delta is None:
        z = int(np.argmax(counts))
        spread = 9 if moments_of(seen, z, M) is None else 8
        smallest = min(held["bets"][z][-spread:])
        delta = min(math.exp(-(smallest**2) * max(counts[z], 1) / 8) / part, 0.999)
    for z, rows in enumerate(counts):
        g, pi = np.array(held["bets"][z]), np.array(held["bet_weights"][z])
        n, term = max(rows, 1.0), -math.log(part * delta)
        few, m = min(math.sqrt(8 * term / n), 0.495), moments_of(seen, z, M)
        steps = np.linspace(0, 1, 9 if m is None else 8)
        planned, share = few ** (1 - steps) * 0.99**steps, [1 / 9] * 9
        beside, good = [0.05, 0.15, 0.3, 0.6], len(g) == 9 and bool((g > 0).all())
        if m is not None and good:
            j = int(np.argmin(np.abs(np.log(TRIED / g[0]))))
            ends, end = best_ends(m, (term - math.log(0.6)) / n)
            good = bool(ends[j] <= ends.min() + CLOSE)
            planned, share = np.append(TRIED[j], planned), [0.6] + [0.05] * 8
            level = min(m[1] / m[0], 1.0)
            square = m[4] - 2 * level * m[3] + level**2 * m[2]
            step = max(math.sqrt(max(square, 0.0) / m[2]) / 4, (end - level) / 2)
            beside = [level + step * k for k in (-1, 0, 1, 3)]
        good = good and np.allclose(g, planned, rtol=CLOSE, atol=0)
        good = good and np.allclose(pi, share, rtol=CLOSE, atol=0)
        yield Check(f"{name}: bets of group {z}", g.tolist(), planned.tolist(), good)
        if held["levels"]:
            inner = np.clip([*beside, bounds[z] / M], 0, 1)
            levels = (M * np.sort([0.0, *inner, 1.0])).tolist()
            yield from compare(
                f"{name}: levels of group {z}", held["levels"][z], levels
            )


def moments_of(seen: Json | None, z: int, M: float) -> list[float] | None:
    """Return the means of t, tx, tt, ttx, ttxx of a group's training rows, if any."""
    if seen is None:
        return None
    if stakes := seen["stakes"]:
        n, *sums = (stakes[key][z] for key in ("count", *STAKES[2:]))
        return [v / n for v in sums] if n > 0 and sums[0] > 0 else None
    if not (mass := seen["cells"]["weight"][z]) > 0:
        return None
    mean, square = (seen["cells"][key][z] / mass for key in COLUMNS[3:5])
    x = mean / M
    return [1.0, x, 1.0, x, max(square - mean**2, 0.0) / M**2 + x * x]


def best_ends(m: Sequence[float], price: float) -> tuple[Any, float]:
    """Return the upper end of x that each of `TRIED` promises, and the smallest."""
    t, tx, tt, ttx, ttxx = m

    def ends(z: float) -> Any:
        mean = min(max(tx + (1 - t) * z, 1e-9), 1 - 1e-9)
        second = ttxx + 2 * z * (tx - ttx) + z * z * (1 - 2 * t + tt)
        width = min(max(second - mean**2, 1e-12), mean * (1 - mean))
        return -np.expm1(expected(TRIED, mean, width) - price) / TRIED

    low, high, found = min(tx / t, 1.0), 1.0, ends(1.0)
    if found.min() > high or t == tt == 1:
        return found, min(float(found.min()), high)
    for _ in range(40):
        middle = (low + high) / 2
        if (trial := ends(middle)).min() <= middle:
            high, found = middle, trial
        else:
            low = middle
    return found, high


def rate_upper(k: float, n: float, delta: float) -> float:
    """Return Clopper and Pearson's bound of a rate, valid for rows that are unlike."""
    if k >= n:
        return 1.0
    return 1 - delta / n if k == n - 1 else float(betaincinv(k + 1.0, n - k, 1 - delta))


# What was declared: the model, the run file, who is in which group


def known(part: Any) -> Any:
    """Return a part of evidence; None where it is missing, and says why."""
    return None if isinstance(part, dict) and set(part) == {"missing"} else part


def check_declared(c: Claims) -> Iterator[Check]:
    """Compare evidence with the model file and with the run file."""
    e, run, m, terms = c.e, known(c.e["training"]), c.model, c.e["terms"]
    lam, path = [cell["multiplier"] for cell in e["cells"]], known(e["path"])
    if m is not None:
        found: Json = {
            "kind": m.about["kind"],
            "described": m.about,
            "parameters": len(m.w),
        }
        found |= {"length": float(np.sqrt(m.w @ m.w)), "fingerprint": m.hash()}
        if m.about["kind"] in LINEAR:
            cut = min(m.target[1], m.about.get("delta", math.inf))
            found |= {"unit": cut * (2 * m.target[1] - cut), "l2": m.about["l2"]}
            found |= {"convex": True, "linear": True}
        yield from compare("model", {key: e["model"][key] for key in found}, found)
        values = [named(a["name"], a["values"]) for a in m.schema["attributes"]]
        groups = [" × ".join(one) for one in itertools.product(*values)]
        names = [groups, m.schema["labels"], m.schema_hash()]
        stated = [e["groups"], e["labels"], e["data"]["schema"]]
        yield from compare("names of groups, labels, inputs", stated, names)
        yield from check_cells(e, m.schema["target"], values)
        if run and m.rows is not None:
            trained = e["data"]["trained_on"]
            yield from compare("rows that were trained on", trained, m.rows)
        if run and e["labels"]:
            yield from compare("M of the model", m.loss_bound, terms["loss_bound"])
        if run and (e["promise"] or e["minimax"]):
            yield from compare("multipliers", lam, m.multipliers.tolist())
        if path:
            chosen = path["candidates"][path["chosen"]]["model"]
            same = np.array_equal(np.array(chosen), m.w)
            yield Check("the model that is shipped", "as chosen", "another", same)
    asked, method = c.run_file.get("run", {}), (run or {}).get("method", {})
    own = {**terms, "seed": (run or {}).get("seed")}
    fixed = {"seed", "weighting"} | (set() if terms["later"] else {"confidence"})
    if known(e["privacy"]):  # risks are by rows under noise, whatever was asked for
        fixed -= {"weighting"}
    for key in fixed & {*asked} if run else ():
        yield from compare(f"run file, {key}", own[key], asked[key])
    for key in ("multiplier_bound", "risk_weight"):
        if e["promise"] and method.get(key) is not None:
            yield from compare(key, float(terms[key]), float(method[key]))
    parts = {
        "model": e["model"]["described"],
        "constraint": (run or {}).get("constraint"),
    }
    for name, own in parts.items() if run else ():
        for key, value in c.run_file.get(name, {}).items():
            if value != "auto" and isinstance(own.get(key), str | float | int):
                yield from compare(f"run file, {name}, {key}", own[key], value)


def named(column: str, values: list[str]) -> list[str]:
    """Call values by their column, too, where one is a bare code."""
    number = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")
    codes = {"true", "false", "yes", "no", "y", "n"}
    bare = any(v.lower() in codes or number.fullmatch(v.lower()) for v in values)
    return [f"{column} = {v}" for v in values] if bare else values


def check_cells(e: Json, target: str, values: list[list[str]]) -> Iterator[Check]:
    """Find in every bounded group who its name says, and every row in some group.

    A name is made of the values of some attributes, which all of its people share, of
    the label, and of the silo.
    """
    labels, shape = e["labels"] or [None], [len(one) for one in values]
    spoken = named(target, e["labels"])
    for cell in e["cells"]:
        groups, among = ({pair[k] for pair in cell["of"]} for k in (0, 1))
        places = [e["groups"].index(g) for g in groups]
        codes = np.array(np.unravel_index(places, shape))
        fixed = [k for k, row in enumerate(codes) if len({*row.tolist()}) == 1]
        free = math.prod(n for k, n in enumerate(shape) if k not in fixed)
        good = len(groups) == free and len(cell["of"]) == len(groups) * len(among)
        end = ""
        if spoken and len(among) == 1:
            end = f", {spoken[labels.index(*among)]}"
        else:
            good = good and among == {*labels}
        needed = {k for k in fixed if shape[k] > 1}
        names = [
            " × ".join(values[k][codes[k, 0]] for k in by) + end
            for n in range(len(needed), len(fixed) + 1)
            for by in itertools.permutations(fixed, n)
            if needed <= {*by}
        ]
        said = re.sub(r" \(\d+\)$", "", cell["cell"])
        names += [cell["silo"]] if len(groups) == len(e["groups"]) and not end else []
        ends = any(said == one or said.endswith(f": {one}") for one in names)
        yield Check(f"who is in '{said}'", cell["of"], names, good and ends)
    rule = (known(e["training"]) or {}).get("constraint") or {}
    if isinstance(rule.get("bound"), float | int):
        bounds = [cell["bound"] for cell in e["cells"]]
        yield from compare("bounds", bounds, [float(rule["bound"])] * len(bounds))
    if isinstance(rule.get("bound"), dict) or rule.get("labels") or "kind" not in rule:
        return
    inside = {tuple(pair) for cell in e["cells"] for pair in cell["of"]}
    every = itertools.product(e["groups"], labels)
    rows = zip(every, e["seen"]["atoms"]["count"], strict=True)
    lost = [atom for atom, n in rows if n and atom not in inside]
    yield Check("rows in no group", [], lost, not lost or rule["kind"] == "both")


# Against the rows


def check_rows(c: Claims, model: SavedModel, table: RowTable) -> Iterator[Check]:
    """Compare everything that was measured with the rows."""
    e, data, there = c.e, c.e["data"], {*table.split.tolist()}
    path, held, old, run = (
        known(e[k]) for k in ("path", "heldout", "before", "training")
    )
    told = {*e["seen"]["splits"], *data["splits"], *(held["splits"] if held else [])}
    told |= {*(old["samples"] if old else []), *([path["split"]] if path else [])}
    told |= {"train"} if run else set()
    good = there <= told or not run  # an audit names the splits that it used
    yield Check("splits in the rows", sorted(told), sorted(there), good)
    who = np.arange(len(table.y)) if table.person is None else table.person
    weighs = bool((table.weight != 1).any())
    stated = [data["silos"], data["several"]]
    yield from compare(
        "silos, several rows",
        stated,
        [len(table.silos), len({*who.tolist()}) < len(who)],
    )
    if data["weighted"] is not None:
        yield from compare("whether rows have weights", data["weighted"], weighs)
    overlaps = [(held["splits"], data["overlap"])] if held else []
    overlaps += [([path["split"]], path["overlap"])] if path else []
    for splits, many in overlaps:
        if many is not None and (found := table.overlap(splits)) is not None:
            yield from compare(f"{splits} rows that were trained on", many, found)
    if e["model"]["kind"] not in (*LINEAR, "probabilities"):
        yield Check(f"{UNCHECKED}losses of a network, and what follows", note=True)
        return
    rows = {split: SplitRows(table, split, e, model) for split in told}
    yield from check_samples(e, model.w, rows)
    if run and rows["train"].mass.all():
        yield from check_training(e, model.w, rows["train"])


def check_samples(e: Json, w: Any, rows: dict[str, SplitRows]) -> Iterator[Check]:
    """Compare all sums with the rows: of the model, the unconstrained one, the path."""
    M, held, old = e["terms"]["loss_bound"], known(e["heldout"]), known(e["before"])
    samples: list[Any] = [("training rows", e["seen"], w, M)]
    samples += [("test rows", held, w, M)] if held else []
    for name, one in (old["samples"] if old else {}).items():
        samples.append((f"unconstrained, {name} rows", one, np.array(old["model"]), M))
    for k, one in enumerate((known(e["path"]) or {"candidates": []})["candidates"], 1):
        at, cap = np.array(one["model"]), one["loss_bound"]
        for part in ("training", "calibration"):
            samples.append((f"model {k}, {part} rows", one[part], at, cap))
    for name, stated, at, cap in samples:
        parts = [rows[split] for split in stated["splits"]]
        found = [part.sums(at, cap) for part in parts]
        for key in ("risk", "bounded_risk", "share"):
            total = sum(one[key] for one in found)
            yield from compare(f"{name}, {key}", stated[key], total, 1.0)
        for key in ("cells", "atoms"):
            tables = [list(one[key].values()) for one in found]
            sums = dict(zip(COLUMNS, np.sum(tables, axis=0).tolist(), strict=True))
            yield from compare(f"{name}, {key}", stated[key], sums, 1.0)
        if not (stated["bets"] or stated["stakes"]):
            continue
        s_max = e["terms"]["weight_bound"]
        both = [part.betting(at, cap, stated, s_max) for part in parts]
        people = np.sum([one for one, _ in both], axis=0).T.tolist()
        names = STAKES if stated["stakes"] else [COLUMNS[0], *COLUMNS[3:5]]
        own = stated["stakes"] or stated["people"]
        sums = dict(zip(names, people, strict=True))
        yield from compare(f"{name}, people", own, sums, 1.0)
        if stated["bets"]:
            logs = np.sum([one for _, one in both], axis=0)
            given = stated["diluted"] if stated["levels"] else stated["below"]
            logs = logs if stated["levels"] else logs[..., 0]
            yield from compare(f"{name}, log-sums", given, logs.tolist(), 1.0)


def check_training(e: Json, w: Any, rows: SplitRows) -> Iterator[Check]:
    """Check what is said of the training rows: weights, M by its rule, the proofs."""
    path, caps = known(e["path"]), caps_of(e)
    if e["data"]["weights"]:
        ends = [float(rows.s.min()), float(rows.s.max())]
        yield from compare("weights of training rows", e["data"]["weights"], ends)
    models = [("", w, e["terms"]["loss_bound"])]
    for k, one in enumerate(path["candidates"] if path else [], 1):
        models.append((f"model {k}: ", np.array(one["model"]), one["loss_bound"]))
    for name, at, M in models if e["terms"]["clipping"] != "declared" else []:
        smaller = [cap for cap in caps if M is None or cap < M * (1 - CLOSE)]
        good = not any(harmless(e, rows, at, cap, -MET) for cap in smaller)
        if M is not None:
            good = good and any(agree(M, cap) for cap in caps)
            good = good and harmless(e, rows, at, M, MET)
        yield Check(f"{name}M, by its rule", M, f"of {caps}", good)
    if e["model"]["linear"]:
        yield from check_proofs(e, w, rows)


def harmless(e: Json, rows: SplitRows, w: Any, M: float, room: float) -> bool:
    """Whether keeping losses below M changes no mean loss, and no verdict."""
    z, every = rows.scores(w), rows.s.sum()
    a, b = (
        np.append(rows.of_cells(rows.s * one) / rows.mass, rows.s @ one / every)
        for one in (rows.losses(z), rows.bounded(z, M))
    )
    bounds = np.array([c["bound"] * e["promise"] for c in e["cells"]] + [0.0])
    scales = np.array([c["scale"] for c in e["cells"]] + [0.0])
    met = a - bounds <= MET * np.maximum(np.minimum(scales, bounds), 0.0)
    limit = np.maximum(1e-3 * a, 1e-6 * e["model"]["unit"])
    same = np.where(met, b <= bounds * (1 + 1e-4 * (1 + room)), b > bounds * (1 - room))
    good = (np.abs(b - a) <= limit * (1 + room)) & (same | (bounds <= 0))
    return bool(good.all())


def check_proofs(e: Json, w: Any, rows: SplitRows) -> Iterator[Check]:
    """Prove again what was proved: claims may be weaker than proofs, no stronger."""
    terms, p, names = e["terms"], e["proofs"], [c["cell"] for c in e["cells"]]
    mu = e["model"]["l2"] * e["model"]["unit"]
    beta, B = terms["risk_weight"], terms["multiplier_bound"]
    zeta = np.array([c["bound"] for c in e["cells"]])

    def risk(v: Any) -> float:
        own = float(rows.in_risk @ rows.losses(rows.scores(v)))
        return own + 0.5 * mu * float(v @ v)

    if pair := known(p["gap"]):
        lam, at = np.array([c["multiplier"] for c in e["cells"]]), np.array(pair["at"])
        aims = [c["bound"] if c["aimed"] is None else c["aimed"] for c in e["cells"]]
        aimed, priced = np.array(aims), B if e["promise"] or e["minimax"] else 0.0
        upper = beta * risk(w) + priced * max(0.0, float((rows.means(w) - aimed).max()))
        g = rows.gradient(at, beta * rows.in_risk + rows.in_cells(lam)) + beta * mu * at
        value = beta * risk(at) + float(lam @ (rows.means(at) - aimed))
        ball = math.inf if pair["radius"] is None else pair["radius"]
        drop = float(g @ at) + ball * float(np.linalg.norm(g))
        lower = value - (float(g @ g) / (2 * beta * mu) if beta * mu > 0 else drop)
        size = CLOSE * max(abs(upper), abs(lower), 1e-3) + TINY
        good = pair["upper"] >= upper - size and pair["lower"] <= lower + size
        good = good and lam.min() >= 0 and lam.sum() <= priced * (1 + CLOSE) + TINY
        good = good and bool((aimed <= zeta * (1 + CLOSE)).all())
        ends = [pair["upper"], pair["lower"]]
        yield Check("duality gap", ends, [upper, lower], bool(good))
    proofs: list[Any] = [(key, p[key], None) for key in ("least", "excess")]
    for kind in ("lowest", "reach"):
        proofs += [(kind, one, names.index(one["cell"])) for one in p[kind]]
    for kind, one, cell in proofs:
        if known(one) is None or one["upper"] is None:
            continue
        lam, v, at = (np.array(one[k]) for k in ("multipliers", "model", "at"))
        means, good = rows.means(v), bool((lam >= 0).all())
        if cell is None:
            off = np.array(one["offsets"])
            wide = (zeta - zeta.max()) * (kind == "excess" and bool(off.any()))
            good = (
                good and np.allclose(off, wide, CLOSE, CLOSE) and agree(lam.sum(), 1.0)
            )
            good = good and one["risk"] >= risk(v) * (1 - CLOSE) - TINY
            high = float((means - off).max())
        else:
            off, high = zeta * (np.arange(len(zeta)) != cell), float(means[cell])
            others = np.delete(means - zeta, cell).max(initial=-1.0) <= CLOSE
            alone = agree(lam.sum(), 1.0) if kind == "reach" else bool(others)
            good = good and agree(lam[cell], 1.0) and alone
        weights = rows.in_cells(lam)
        value, slope = rows.plane(at, np.array(one["direction"]), weights)
        size = CLOSE * max(1.0, abs(value))
        low = value - float(lam @ off) - one["reach"] * one["slope"]
        low = low if cell is None else max(0.0, low)
        good = good and one["lower"] <= min(low, high) + size
        good = good and one["upper"] >= high - size
        good = good and one["reach"] * (slope - one["slope"]) <= size
        longest = max(float(np.linalg.norm(x)) for x in (v, at)) * (1 - CLOSE)
        good = good and one["longest"] >= longest and one["reach"] >= NEAR * longest
        what = f"{kind} of {names[cell]}" if cell is not None else kind
        yield Check(what, [one["lower"], one["upper"]], [low, high], bool(good))


# Commitments: what must have been fixed before rows were looked at


def check_commitments(e: Json) -> Iterator[Check]:
    """Plan bets again, put candidates in order again, test them, choose the bound."""
    held, terms, path = known(e["heldout"]), e["terms"], known(e["path"])
    bounds, run = np.array([cell["bound"] for cell in e["cells"]]), known(e["training"])
    delta = None if terms["later"] else 1 - terms["confidence"]
    seen = e["seen"] if run else None
    samples = [("test rows", held, seen, delta, terms["loss_bound"])] if held else []
    for k, one in enumerate(path["candidates"] if path else [], 1):
        plan = one["calibration"], one["training"], 1 - path["confidence"]
        samples.append((f"model {k}, calibration rows", *plan, one["loss_bound"]))
    for name, sample, training, delta, M in samples:
        if sample["bets"]:
            yield from check_plan(name, sample, training, bounds, delta, M)
            yield from check_bets(name, sample, M)
    if path:
        yield from check_path(e, path, bounds)
    if choice := (run or {}).get("choice"):
        free, *others = choice["trials"]
        limit = choice["error_at_most"]
        if not choice["declared"]:
            point = 0.01 if e["labels"] else 0.01 * free["error"]
            yield from compare("error that is allowed", limit, free["error"] + point)
        within = [t for t in others if t["error"] <= limit + TINY]
        best = min(within, key=lambda t: t["worst"], default={"bound": None})
        yield from compare("bound that was chosen", choice["bound"], best["bound"])


def check_bets(name: str, sample: Json, M: float) -> Iterator[Check]:
    """Demand weights that add up to 1, and log-sums that losses in [0, M] can have.

    n·ū·log(1 − γ) ≤ Σ log(1 − γu) ≤ n·log(1 − γū): the chord, and Jensen.
    """
    for z in range(len(sample["bets"])):
        test = GroupTest(sample, z, M)
        g, n = test.bets[:, None], test.n
        good = bool((test.weights >= 0).all()) and test.weights.sum() <= 1 + CLOSE
        good = good and bool(((g > 0) & (g < 1)).all())
        if test.alike:
            mean = np.full(2, test.mean)
        else:
            t, tx = (sample["stakes"][key][z] for key in ("t", "tx"))
            mean = (tx + (n - t) * test.levels) / max(n, 1)
        low, high = n * mean * np.log1p(-g), n * np.log1p(-g * mean)
        slack = 1e-7 * (1 + np.abs(low))
        good = good and bool(
            (np.abs(test.sums - (low + high) / 2) <= (high - low) / 2 + slack).all()
        )
        yield Check(f"{name}: what bets on group {z} can be", True, good, good)


def check_path(e: Json, path: Json, bounds: Any) -> Iterator[Check]:
    """Order the candidates by their room on training rows; test until one fails."""
    models, spread, errors = path["candidates"], np.array(path["spread"]), []
    for one in models:
        rows = np.maximum(one["calibration"]["cells"]["count"], 1)
        mean, square = (means_of(one["training"], key) for key in COLUMNS[3:5])
        found = np.sqrt(np.maximum(square - mean**2, 0.0) / rows)
        top = found.max(initial=0.0)
        errors.append(np.maximum(found, 1e-3 * (top if top > 0 else 1.0)))
    off = [np.abs(one - spread).max(initial=0.0) for one in errors]
    best = errors[int(np.argmin(off))]  # that of the model which was trained first
    yield from compare("standard errors", spread.tolist(), best.tolist())
    rooms = [
        float(((bounds - means_of(one["training"], "loss")) / spread).min())
        for one in models
    ]
    yield from compare("room of candidates", [one["margin"] for one in models], rooms)
    slack = CLOSE * max(map(abs, rooms)) + TINY
    good = all(b - a <= slack for a, b in itertools.pairwise(rooms))
    yield Check("candidates, safest first", rooms, "another order", good)
    kept = shown_up_to(path, bounds, 1 - path["confidence"])
    yield from compare("candidate that is chosen", path["chosen"], max(kept - 1, 0))
    own, held = models[path["chosen"]], known(e["heldout"])
    yield from compare("M", own["loss_bound"], e["terms"]["loss_bound"])
    pairs = [(own["training"], e["seen"])]
    pairs += (
        [(own["calibration"], held)] if held and path["split"] in held["splits"] else []
    )
    for one, other in pairs:
        for key in ("splits", "cells", "atoms"):
            yield from compare("sums of the shipped model", one[key], other[key], 1.0)
    splits = [one["calibration"]["splits"] for one in models]
    yield from compare("calibration rows", splits, [[path["split"]]] * len(models))


def shown_up_to(path: Json, bounds: Any, delta: float) -> int:
    """Return how many candidates are shown, from the first one on, until one is not."""
    for k, one in enumerate(path["candidates"]):
        sample, M = one["calibration"], one["loss_bound"]
        heavy = sample["stakes"] and any(sample["stakes"]["above"])
        if heavy or (sample["stakes"] and not sample["levels"]):
            return k
        risks = [GroupTest(sample, z, M).risk(b) for z, b in enumerate(bounds.tolist())]
        if max(risks) > delta * (1 + CLOSE):
            return k
    return len(path["candidates"])


def means_of(sample: Json, column: str) -> Any:
    """Return the mean of a column per group of the constraint; NaN where nobody is."""
    total, mass = (np.array(sample["cells"][c], float) for c in (column, "weight"))
    return np.divide(total, mass, out=np.full(len(mass), np.nan), where=mass > 0)


# Conclusions: verdicts and figures, from the sums


class Concluded:
    """What follows from sums without noise."""

    def __init__(self, e: Json) -> None:
        self.e, self.terms, self.proofs = e, e["terms"], e["proofs"]
        self.run, self.path, self.held = (
            known(e[k]) for k in ("training", "path", "heldout")
        )
        self.seen, self.promise = e["seen"], e["promise"]
        self.old = (known(e["before"]) or {"samples": {}})["samples"]
        self.bounds = np.array([c["bound"] for c in e["cells"]], float)
        self.M, self.delta = self.terms["loss_bound"], 1 - self.terms["confidence"]
        samples = [self.seen, *([self.held] if self.held else [])]
        unlike = any(s["atoms"]["weight"] != s["atoms"]["count"] for s in samples)
        told = e["data"]["weighted"]
        self.weighted = unlike if told is None else bool(told)
        later = self.terms["later"]
        self.looks = self.terms["candidates"] * max(1, later * (later + 1))
        self.means = self.means_on(self.seen)
        self.gap = None
        if pair := known(self.proofs["gap"]):
            ends = pair["upper"], pair["lower"]
            self.gap = max(ends[0] - ends[1], 1e-15 * max(map(abs, ends)))
        apart = self.held and self.separate(self.held, e["data"]["overlap"])
        self.usable = self.held if apart else None

    def means_on(self, sample: Json) -> Any:
        """Return the losses that are judged: on training rows the model's own."""
        own = sample["splits"] == ["train"] and self.run
        return means_of(sample, "loss" if own else "bounded_loss")

    def separate(self, held: Json, overlap: Any) -> bool:
        """Whether these rows may speak of new people: nobody in them was trained on."""
        data = self.e["data"]
        prints = data["trained_on"], data["fingerprint"]
        other = None not in prints and prints[0] != prints[1]
        own = (self.run or prints[0] is not None) and not other
        trained = own and "train" in held["splits"]
        return not (trained or (data["by_person"] and overlap))

    def converged(self) -> str:
        """Whether the gap is within its target."""
        target, model, share = (
            self.terms["target_gap"],
            self.e["model"],
            self.seen["share"],
        )
        if not self.run or self.gap is None or target is None:
            return "not measurable"
        paid = sum(c["multiplier"] for c in self.e["cells"]) + self.terms["risk_weight"]
        paid = paid if paid != 0 else max(1.0, self.terms["multiplier_bound"])
        ridge = 0.5 * model["unit"] * model["l2"] * model["length"] ** 2
        risk = self.seen["risk"] / share + ridge if share > 0 else 0.0
        largest = max([risk, *means_of(self.seen, "loss").tolist()])
        least = (1e-2 if self.e["labels"] else 1e-6) * model["unit"]
        size = min(max(10 * largest, least), model["unit"])
        return "yes" if self.gap <= target * paid * size else "no"

    def impossible(self) -> bool:
        """Whether it is proved that no model keeps the bounds."""
        one = known(self.proofs["excess"])
        if one is None or not self.promise:
            return False
        before = (known(self.e["before"]) or one)["model"]
        lengths = one["longest"], self.e["model"]["length"], np.linalg.norm(before)
        value = one["lower"] + one["reach"] * one["slope"] - float(self.bounds.max())
        cost = float(max(lengths)) * one["slope"]
        return value > 0 and (value > FAR * cost or value >= 2 * NEAR * cost)

    def verdicts(self) -> Json:
        """Return the three verdicts, in a word."""
        status = self.status() if self.run else "not measured"
        new = self.new_people()[0]
        test = "not measured"
        if self.held and any(many := np.array(self.held["cells"]["count"])):
            above = self.means_on(self.held) > self.bounds
            test = "within" if many.min() >= FEW else "not measured"
            test = "exceeded" if (above & (many >= FEW)).any() else test
            test = test if self.promise else "no bounds"
        return {"training": status, "test": test, "new_people": new}

    def status(self) -> str:
        """Return the verdict on the rows that the model was made for."""
        if self.run and self.run["stopped"] is not None:
            return str(self.run["stopped"])
        settling = (self.run or {}).get("settling")  # of somebody else's training
        late = self.converged() == "no" or (settling and not settled(settling))
        if not self.promise:
            return "not converged" if late else "no bounds"
        if np.isnan(self.means).any():
            return "not measured"
        scales = np.array([c["scale"] for c in self.e["cells"]], float)
        most = np.maximum(np.minimum(scales, self.bounds), 0.0) * MET * bool(self.run)
        over = self.means - self.bounds
        kept = bool((over <= MET * most).all())
        if not kept and self.impossible():
            return "impossible"
        if late:
            return "not converged"
        return "met" if (over <= most).all() else "not met"

    def upper(self, sample: Json | None, delta: float) -> Any:
        """Return what the mean loss of new people is at most, group by group."""
        if sample is None or self.M is None or not len(self.bounds):
            return None
        if self.weighted:
            most, seen = self.terms["weight_bound"], self.e["data"]["weights"]
            heavy = most is None or (seen is not None and seen[1] > most)
            if heavy or not sample["levels"] or any(sample["stakes"]["above"]):
                return None
        tests = [GroupTest(sample, z, self.M) for z in range(len(self.bounds))]
        return np.array([test.upper(delta) for test in tests])

    def new_people(self) -> tuple[str, Any, Json | None]:
        """Return the verdict on new people, figures per group, and their rows."""
        many, rows, sample = self.looks, self.held, self.usable
        if self.path is not None:
            models, chosen = self.path["candidates"], self.path["chosen"]
            rows = models[chosen]["calibration"]
            sample = rows if self.separate(rows, self.path["overlap"]) else None
            many *= len(models) if chosen > 0 else 1
        found = self.upper(sample, self.delta / many)
        if found is None:
            return "not measured", None, rows
        shown = bool((found <= self.bounds).all())
        if self.path is not None:
            kept = shown_up_to(self.path, self.bounds, self.delta / self.looks)
            shown = kept > self.path["chosen"]
            found = self.bounds if shown else found
        word = "certified" if shown else "not certified"
        return word if self.promise else "no bounds", found, rows

    def table(self) -> Json:
        """Return the columns of the table of groups and bounds."""
        none = [None] * len(self.bounds)
        _, upper, rows = self.new_people()
        counts = self.held["cells"]["count"] if self.held else [0] * len(none)
        there = rows["cells"]["count"] if rows else counts
        tops = none if upper is None else upper.tolist()
        free = {k: self.means_on(s).tolist() for k, s in self.old.items()}
        over = (self.means - self.bounds).tolist()
        return {
            "cell": [c["cell"] for c in self.e["cells"]],
            "bound": self.bounds.tolist() if self.promise else none,
            "count": self.seen["cells"]["count"],
            "train_loss": self.means.tolist(),
            "violation": over if self.promise else none,
            "multiplier": [c["multiplier"] for c in self.e["cells"]],
            "test_loss": self.means_on(self.held).tolist() if self.held else none,
            "test_count": counts,
            "test_upper": [u if n else None for u, n in zip(tops, there, strict=True)],
            "before_train_loss": free.get("train", none),
            "before_test_loss": free.get("test", none),
        }

    def rates(self, sample: Json, a: int) -> dict[str, Any]:
        """Return events, weight and rows of each rate of a group."""
        shape = (len(self.e["groups"]), -1)
        n, mass, right, yes = (
            np.reshape(sample["atoms"][c], shape)[a].astype(float)
            for c in ("count", "weight", "correct", "positive")
        )
        out = {"error": (mass.sum() - right.sum(), mass.sum(), n.sum())}
        if len(self.e["labels"]) == 2:
            out["false_positive"] = yes[0], mass[0], n[0]
            out["false_negative"] = mass[1] - yes[1], mass[1], n[1]
            out["selected"] = yes.sum(), mass.sum(), n.sum()
        return out

    def groups(self) -> list[Json]:
        """Return the error rates of each group, with their ends for new people."""
        apart = bool(self.usable and sum(self.usable["atoms"]["count"]))
        sample = self.usable if self.usable and apart else self.seen
        free = self.old.get("+".join(sample["splits"]))
        alike = apart and not self.e["data"]["several"] and not self.weighted
        side, out = self.delta / self.looks / 2, []
        if self.path and self.held and self.path["split"] in self.held["splits"]:
            side /= len(self.path["candidates"])  # these rows chose among them
        for a, name in enumerate(self.e["groups"]):
            row: Json = {"group": name, "rows": "held-out" if apart else "training"}
            for kind, (k, mass, n) in self.rates(sample, a).items():
                was = self.rates(free, a)[kind] if free else (0, 0, 0)
                low = 1 - rate_upper(n - k, n, side) if n else 0.0
                row[kind] = {
                    "people": int(n),
                    "value": float(k / mass) if mass else None,
                    "lower": low if alike else None,
                    "upper": rate_upper(k, n, side) if alike else None,
                    "unconstrained": float(was[0] / was[1]) if was[1] else None,
                }
            out.append(row)
        return out

    def metrics(self, sample: Json) -> Json:
        """Return risk, error and fairness gaps of one sample."""
        own = sample["splits"] == ["train"] and self.run
        shape, binary = (len(self.e["groups"]), -1), len(self.e["labels"]) == 2
        atoms = {k: np.reshape(v, shape) for k, v in sample["atoms"].items()}

        def rates(column: str, labels: Any = slice(None)) -> list[float]:
            k, n = (atoms[c][:, labels].sum(axis=1) for c in (column, "weight"))
            return [float(a / b) for a, b in zip(k, n, strict=True) if b]

        def gap(labels: list[int]) -> float | None:
            found = rates("positive", labels) if binary else []
            return max(found) - min(found) if len(found) > 1 else None

        odds, share = [gap([0]), gap([1])], sample["share"]
        asked = self.promise or self.e["minimax"]
        losses = self.means_on(sample).tolist() if asked else []
        right, mass = (float(atoms[c].sum()) for c in ("correct", "weight"))
        return {
            "rows": int(atoms["count"].sum()),
            "risk": sample["risk" if own else "bounded_risk"] / share
            if share > 0
            else None,
            "error": 1 - right / mass if self.e["labels"] and mass else None,
            "worst_cell_loss": max((v for v in losses if v == v), default=None),
            "worst_group_loss": max(
                rates("loss" if own else "bounded_loss"), default=None
            ),
            "dp_gap": gap([0, 1]),
            "eo_gap": odds[1],
            "equalized_odds_gap": None if None in odds else max(odds),  # type: ignore[type-var]
        }


def settled(found: Json) -> bool:
    """Whether losses stood still at the end of a training that was somebody else's."""
    target, weights = found["target"], found["weights"]
    steady = bool(weights) and max(weights) <= target and found["rounds"] >= 6
    jumps = found["jumps"] or [None] * len(found["swing"])
    still = True
    for swing, jump in zip(found["swing"], jumps, strict=True):
        noise = steady and None not in (swing, jump) and swing <= min(jump, 3 * target)
        still = still and (noise or (swing is not None and swing <= target))
    return still


def check_conclusions(c: Claims) -> Iterator[Check]:
    """Compare verdicts and figures with what follows from the sums."""
    own, r, verdicts = Concluded(c.e), c.figures, Concluded(c.e).verdicts()
    for said in (c.verdicts, r["verdicts"]):
        words = {key: one["verdict"] for key, one in said.items()}
        yield from compare("verdicts", words, verdicts)
    for key, values in own.table().items():
        stated = [row[key] for row in r["cells"]]
        yield from compare(f"groups, {key}", stated, values, 1e-3)
    rates = {row["group"]: row for row in own.groups()} if c.e["labels"] else {}
    for row in r["groups"]:
        shown = {key: value for key, value in row.items() if value is not None}
        yield from compare(f"rates of {row['group']}", shown, rates[row["group"]])
    figures = {"gap": own.gap, "train": own.metrics(own.seen), "status": own.status()}
    figures["test"] = own.metrics(own.held) if own.held else None
    if own.old:
        figures["before"] = {k: own.metrics(s) for k, s in own.old.items()}
    figures |= {key: own.terms[key] for key in ("confidence", "loss_bound")}
    yield from compare("figures", {key: r[key] for key in figures}, figures, 1e-3)
    excess, stated = known(own.proofs["excess"]), r["smallest_bound"]
    good = (stated is not None) == own.impossible()
    if good and stated is not None:
        equal = len({*own.bounds.tolist()}) == 1
        upper = excess["upper"] - (0.0 if equal else float(own.bounds.max()))
        good = upper - TINY <= stated <= upper + 1.1e-5 * abs(upper)  # rounded up
    yield Check("smallest bound", stated, excess and excess["upper"], good)


# With noise: the account, and what released figures say


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return δ(ε) of releases that are μ-GDP together, by integrating densities."""
    x = np.linspace(epsilon / mu - mu / 2, max(epsilon / mu, mu) + 40.0, 400_001)
    density = np.exp(-((x - mu) ** 2) / 2) - np.exp(epsilon - x**2 / 2)
    inner = float(density.sum() - (density[0] + density[-1]) / 2)
    return inner * float(x[1] - x[0]) / math.sqrt(2 * math.pi)


def normal_tail(share: float) -> float:
    """Return the point that a normal variable exceeds with this probability."""
    return math.sqrt(2) * float(erfcinv(2 * share))


def mean_ends(
    loss: float, people: float, s: float, t: float, z: float, M: float
) -> tuple[float, float]:
    """Enclose m with |L̃ − m·ñ| ≤ z√(s² + m²t²) in [0, M], by search."""
    if people <= z * t:
        return 0.0, M

    def end(side: float) -> float:
        def off(m: float) -> float:
            return loss - m * people - side * z * math.sqrt(s * s + m * m * t * t)

        if off(0.0) <= 0 or off(M) >= 0:
            return 0.0 if off(0.0) <= 0 else M
        return root_of(off, 0.0, M)

    return end(1.0), end(-1.0)


class NoisyFigures:
    """What released figures say, each group with its margin."""

    def __init__(self, e: Json) -> None:
        self.e, self.n, self.terms = e, e["privacy"], e["terms"]
        atoms = [[g, y] for g in e["groups"] for y in e["labels"] or [None]]
        of = [[list(pair) for pair in cell["of"]] for cell in e["cells"]]
        self.member = np.array([[float(a in own) for a in atoms] for own in of])
        self.bounds = np.array([c["bound"] for c in e["cells"]])

    def ends(self, part: Json) -> Any:
        """Return lower and upper ends of losses, all groups together."""
        tail = (1 - self.terms["confidence"]) / (2 * max(1, len(self.bounds)))
        z, M = normal_tail(tail), self.n["loss_bound"]
        s, t = part["loss_deviation"], part["count_deviation"]
        sums = (self.member @ np.array(part[k]) for k in ("losses", "counts"))
        rows = zip(*sums, np.sqrt(self.member.sum(axis=1)), strict=True)
        return np.array([mean_ends(L, n, r * s, r * t, z, M) for L, n, r in rows]).T

    def upper(self) -> Any:
        """Return what the mean loss of new people is at most, group by group."""
        held, later, M = self.n["heldout"], self.terms["later"], self.n["loss_bound"]
        looks = self.terms["candidates"] * max(1, later * (later + 1))
        delta = (1 - self.terms["confidence"]) / looks
        wide = held["count_deviation"] * np.sqrt(self.member.sum(axis=1))
        people = (
            self.member @ np.array(held["counts"]) - normal_tail(0.1 * delta) * wide
        )
        g, pi, out = np.array(held["bets"]), np.array(held["bet_weights"]), []
        for k, n in enumerate(people.tolist()):
            S, s = np.array(held["logs"][k]), np.array(held["log_deviation"][k])
            base = np.log(pi) + S - s**2 / 2 + math.log(0.9 * delta)

            def won(m: float, base: Any = base, n: float = n) -> float:
                return float(logsumexp(base - n * np.log1p(-g * m)))

            shown = n >= 1 and won(1.0) > 0
            top = root_of(won, 0.0, 1.0) if shown and won(0.0) < 0 else float(not shown)
            out.append(M * top)
        return np.array(out)

    def verdicts(self) -> Json:
        """Return the three verdicts, in a word."""
        held = self.n["heldout"]
        words = {
            "training": "no bounds",
            "test": "no bounds",
            "new_people": "no bounds",
        }
        parts = {"training": ("met", "not met", self.n["seen"])}
        parts["test"] = ("within", "exceeded", held)
        for key, (good, bad, part) in parts.items() if self.e["promise"] else ():
            if part is not None:
                low, high = self.ends(part)
                words[key] = good if (high <= self.bounds).all() else "not decided"
                words[key] = bad if (low > self.bounds).any() else words[key]
        if held is None:
            return words | {"test": "not measured", "new_people": "not measured"}
        few = min(self.member @ np.array(held["counts"])) < FEW
        words["test"] = (
            "not measured" if words["test"] == "within" and few else words["test"]
        )
        if self.e["promise"]:
            shown = (self.upper() <= self.bounds).all()
            words["new_people"] = "certified" if shown else "not certified"
        return words


def check_account(e: Json) -> Iterator[Check]:
    """Add up what was released, and compare with what was declared."""
    n, honest = e["privacy"], e["privacy"]["sites"] - e["privacy"]["colluding"]
    good = not n["shared"] or 0 < honest <= n["sites"]
    yield Check("sites whose noise counts", honest, n["sites"], good)
    root = math.sqrt(n["sites"] / (max(1, honest) if n["shared"] else 1))
    for split, mark in (("train", ""), ("test", "heldout_")):
        parts, mu = [r for r in n["releases"] if r["split"] == split], n[f"{mark}mu"]
        total = math.sqrt(sum(one["mu"] ** 2 for one in parts))
        yield from compare(f"account of {split} rows, μ", mu or 0.0, total)
        if mu is not None:
            spent = gaussian_delta(mu, n[f"{mark}epsilon"])
            good = spent <= n["delta"] * (1 + 1e-6)
            yield Check(f"account of {split} rows, δ at ε", n["delta"], spent, good)
    least = dict.fromkeys(("counts", "final errors", "errors"), 1.0)
    least |= dict.fromkeys(("losses", "final losses"), n["loss_bound"])
    least["gradients"] = n["clip"] * (math.sqrt(2) if e["model"]["outputs"] > 1 else 1)
    least["curvature"] = n["clip"] ** 2 / 4
    for one in n["releases"]:
        what, most = (
            f"{one['name']} of {one['split']} rows",
            least.get(one["name"], 0.0),
        )
        sigma = math.sqrt(one["times"]) * one["sensitivity"] / one["mu"]
        noise = [one["sigma"], one["deviation"]]
        yield from compare(f"{what}, noise", noise, [sigma, sigma * root])
        good = one["sensitivity"] >= most
        yield Check(f"{what}, what a person adds", one["sensitivity"], most, good)
    by_name = {(one["name"], one["split"]): one["deviation"] for one in n["releases"]}
    parts = [("seen", "train", "final losses"), ("heldout", "test", "losses")]
    for part, split, loss in parts:
        if n[part] is not None:
            stated = [n[part]["count_deviation"], n[part]["loss_deviation"]]
            found = [by_name["counts", split], by_name[loss, split]]
            yield from compare(f"noise of {split} figures", stated, found)
    if (held := n["heldout"]) is not None:
        blocks = {tuple(row) for row in NoisyFigures(e).member.T}
        roots = [
            math.sqrt(sum(row[z] for row in blocks)) for z in range(len(e["cells"]))
        ]
        unit = by_name["logs", "test"]
        logs = [[r * unit * -math.log1p(-g) for g in held["bets"]] for r in roots]
        yield from compare("noise of log-sums", held["log_deviation"], logs)
        good = min(held["bet_weights"]) >= 0 and sum(held["bet_weights"]) <= 1 + CLOSE
        good = good and all(0 < g < 1 for g in held["bets"])
        yield Check("bets", held["bet_weights"], "≥ 0, sum at most 1", good)


def check_noise(c: Claims) -> Iterator[Check]:
    """Check a run with noise: all follows from what was released, without rows."""
    e, own, r, n = c.e, NoisyFigures(c.e), c.figures, c.e["privacy"]
    yield from check_account(e)
    for name in ("seen", "heldout"):
        figures, sample = n[name], known(e[name])
        if figures is not None and sample is not None:
            count = np.maximum(np.rint(figures["counts"]), 0.0)
            loss = np.clip(figures["losses"], 0.0, n["loss_bound"] * count)
            for column, values in (("count", count), ("bounded_loss", loss)):
                stated = [sample[key][column] for key in ("atoms", "cells")]
                found = [values.tolist(), (own.member @ values).tolist()]
                yield from compare(f"{name}, {column}", stated, found)
    if (known(e["training"]) or {}).get("stopped") is None:
        for said in (c.verdicts, r["verdicts"]):
            words = {key: one["verdict"] for key, one in said.items()}
            yield from compare("verdicts", words, own.verdicts())
    ends = [[cell["lower"], cell["upper"]] for cell in r["privacy"]["cells"]]
    yield from compare("training losses", ends, own.ends(n["seen"]).T.tolist(), 1.0)
    tops = None if n["heldout"] is None else own.upper().tolist()
    stated = [cell["test_upper"] for cell in r["cells"]]
    yield from compare("new people", stated, tops or [None] * len(stated), 1.0)
    budget = {key: r["privacy"][key] for key in ("epsilon", "delta", "mu")}
    yield from compare("privacy", budget, {key: n[key] for key in budget})


# All of it


def verify(run: str | Path, rows: str | Path | None = None) -> list[Check]:
    """Check a run's folder, a certificate in it, or its page: every comparison.

    Parameters
    ----------
    run
        What ``pffl run`` or ``pffl audit`` left.
    rows
        A CSV or npz file of prepared rows.

    Raises
    ------
    Unreadable
        A file is missing or cannot be read (a ValueError).
    """
    claims, out = read_claims(Path(run))
    try:
        out += check_declared(claims)
        if known(claims.e["privacy"]):
            out += check_noise(claims)
            return [*out, Check(f"{UNCHECKED}noise was added", note=True)]
        out += [*check_commitments(claims.e), *check_conclusions(claims)]
        if rows is None or claims.model is None:
            what = "no rows were given" if rows is None else "no model file is there"
            return [*out, Check(f"{UNCHECKED}{what}", note=True)]
        table = RowTable(Path(rows), claims.e, claims.model)
        out += check_rows(claims, claims.model, table)
    except Unreadable:
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
    ) as error:
        out.append(Check("what the files hold", "can be computed", repr(error), False))
    return out


def judged(checks: Sequence[Check]) -> str:
    """Say in a few words what the checks come to."""
    many, wrong = len(checks), sum(not check.agrees for check in checks)
    if wrong:
        return f"NOT VERIFIED: {wrong} of {many} claims do not agree"
    if any(check.what.startswith(UNCHECKED) for check in checks):
        return (
            f"consistent: the conclusions follow from the recorded sums ({many} claims "
            "agree); the sums were not checked"
        )
    return f"verified against rows: all {many} claims agree"


def main(arguments: list[str]) -> int:
    """Run from the command line; return the exit code."""
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    try:
        checks = verify(*arguments)
    except Unreadable as error:
        print(error, file=sys.stderr)
        return 6
    for check in checks:
        if check.note or not check.agrees:
            print(check)
    print(judged(checks))
    return 0 if all(check.agrees for check in checks) else 6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
