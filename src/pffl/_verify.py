"""Check what a run of pffl claims, from its rows, by plain arithmetic: one file.

    python pffl_verify.py RUN [ROWS]        RUN: a run's folder, or its report.html

It needs Python, NumPy, SciPy and safetensors, and nothing of pffl. ROWS is what ``pffl
verify RUN --export rows.npz`` writes: split, silo, group, label, person and weight
where they are known, and the inputs before scaling. From top to bottom:

    files         SHA-256 against the manifest; JSON without doubled keys or NaN
    rows          losses, slopes and sums of the model's rows, from their definitions
    bounds        what a mean loss of new people is at most
    declared      the model file, the run file, who is in which group
    sums          counts, losses, errors, people, weights, from the rows
    proofs        M by its rule; the duality gap by one gradient; how low bounds can go
                  by a supporting plane, and by a model that attains it
    commitments   bets by n, M, bound and training sums; the order of candidates
    conclusions   losses, upper ends for new people, and the three verdicts
    noise         the privacy account of a run that added noise

Without ROWS, or where they cannot be had (deployed and private runs), the word is
*consistent*: the conclusions follow from the recorded sums, and the sums were not
checked. With ROWS it is *verified against rows*. Of a network losses are not computed
again: its sums stay as recorded, as reported. ``pffl verify`` also makes again all
that follows from the sums: every figure outside the table of groups, sentences, page
and card.

No file can show who wrote it, that bounds, seed and settings were fixed before test
rows were seen, what was tried elsewhere, how a model was trained, or who the rows are
about.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import brentq
from scipy.sparse.linalg import aslinearoperator
from scipy.special import (
    betaincinv,
    entr,
    expit,
    log_ndtr,
    logsumexp,
    rel_entr,
    softmax,
    xlog1py,
)

CLOSE, TINY = 1e-9, 1e-12  # the same number by another way: relative, and absolute
MET = 1e-6  # of a group's scale: a training loss this little above its bound is met
FEW = 10  # test rows of a group that are too few to judge by: less than these
NEAR = 10.0  # times the longest weights: as far as a proof reaches, at least
CAPS = (3.0, 5.0, 8.0, 12.0, 20.0, 35.0)  # M
MARGINS = (0.0, 0.25, 0.5, 1.0, 2.0)  # beyond the range of a target, in parts of it
TRIED = np.geomspace(1e-6, 0.99, 200)  # bets that a plan compares
RATES = ("error", "fnr", "fpr")
LINEAR = ("logistic", "softmax", "least-squares", "huber")
BOUNDED = ("bounded_loss", "bounded_loss_squared")
COLUMNS = ("count", "loss", "loss_squared", *BOUNDED, "correct", "positive", "weight")
STAKES = ("count", "above", "t", "tx", "tt", "ttx", "ttxx")
FORMAT, VERSION = "pffl.certificate", 7
OURS = {"report.html", "card.md", "model.safetensors", "run.toml", "history.csv"}
UNCHECKED = "not checked by rows: "
NOISY = f"{UNCHECKED}noise was added; the account was checked, and no figure"
EMBEDDED = re.compile(
    rb'<script type="application/json" id="certificate">(.*?)</script>', re.S
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
    """Compare what was found here with what is stated, entry by entry."""
    if isinstance(stated, dict) and isinstance(found, dict):
        for key, value in found.items():
            one = stated.get(key, "(nothing)")
            yield from compare(f"{what}, {key}", one, value, scale)
    elif isinstance(stated, list) and isinstance(found, list):
        if len(stated) != len(found):
            yield Check(f"{what}: how many", len(stated), len(found), False)
        for place, pair in enumerate(zip(stated, found, strict=False)):
            yield from compare(f"{what}, {place}", *pair, scale)
    else:
        yield Check(what, stated, found, agree(stated, found, scale))


def agree(stated: Any, found: Any, scale: float = 0.0) -> bool:
    """Whether values are the same: numbers nearly, all else exactly; NaN is null."""
    if isinstance(found, float) and math.isnan(found):
        return stated is None
    pair = (stated, found)
    if not all(isinstance(v, int | float) and type(v) is not bool for v in pair):
        return type(stated) is type(found) and bool(stated == found)
    size = max(abs(stated), abs(found), scale)
    return bool(abs(stated - found) <= CLOSE * size + TINY)


def present(parts: Json) -> Json:
    """Replace by None each part that only says why it is missing."""

    def missing(part: Any) -> bool:
        return isinstance(part, dict) and set(part) == {"missing"}

    return {key: None if missing(part) else part for key, part in parts.items()}


def strata_of(e: Json) -> list[list[str | None]]:
    """Return all pairs of group and label, in order."""
    return [[group, label] for group in e["groups"] for label in e["labels"] or [None]]


def membership(e: Json) -> Any:
    """Return which pairs of group and label are in which group of the constraint."""
    return np.array([[one in c["of"] for one in strata_of(e)] for c in e["cells"]])


def of_cells(e: Json, key: str) -> Any:
    """Return one number of each group of the constraint."""
    return np.array([cell[key] for cell in e["cells"]], float)


# Files


def read_json(text: bytes | str) -> Any:
    """Read JSON that means one thing: no doubled key, no NaN or infinity."""

    def unique(pairs: list[tuple[str, Any]]) -> Json:
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError(f"a doubled key among {[key for key, _ in pairs]}")
        return found

    def number(text: str, kind: type = float) -> Any:
        if not math.isfinite(float(text)):
            raise ValueError(f"no number: {text[:20]}")
        return kind(text)

    numbers: Any = {"parse_float": number, "parse_constant": number}
    numbers["parse_int"] = partial(number, kind=int)
    return json.loads(text, object_pairs_hook=unique, **numbers)


def read_run(place: Path) -> tuple[Json, SavedModel | None, Json, list[Check]]:
    """Read a folder or a page: certificate, model, run file, hashes."""
    place = place.parent if place.name == "certificate.json" else place
    weights, spec = place / "model.safetensors", place / "run.toml"
    page, model, run = place.suffix == ".html", None, {}
    try:
        if page:
            (text,) = EMBEDDED.findall(place.read_bytes())
        else:
            text = (place / "certificate.json").read_bytes()
        stated = read_json(text)
        if (stated["format"], repr(stated["version"])) != (FORMAT, str(VERSION)):
            raise ValueError(f"not version {VERSION} of {FORMAT}")
        if weights.is_file():
            model = SavedModel(weights)
        if spec.is_file():
            run = tomllib.loads(spec.read_text("utf-8"))
        return stated, model, run, [] if page else list(check_files(place))
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        told = (
            "it is not there" if isinstance(error, FileNotFoundError) else repr(error)
        )
        raise Unreadable(f"{place}: {told}") from error


def check_files(folder: Path) -> Iterator[Check]:
    """Compare the files with the manifest."""
    hashes = dict(read_json((folder / "manifest.json").read_bytes())["files"])
    there = {path.name: path for path in folder.iterdir() if path.is_file()}
    for name in sorted({*hashes} | ({*there} & OURS)):
        found = "no such file"
        if name in there:
            found = hashlib.sha256(there[name].read_bytes()).hexdigest()
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
        self.shift, self.stretch = target["mean"], target["scale"]
        self.about, self.schema = header["model"], header["schema"]
        self.cut = float(self.about.get("delta", math.inf))  # of Huber's loss
        self.loss_bound, self.rows = header["loss_bound"], header["fingerprint"]

    def hash(self) -> str:
        """SHA-256 of kind, scaling and weights."""
        parts = [json.dumps(self.about, sort_keys=True, ensure_ascii=False).encode()]
        fill = [self.fill] if len(self.fill) else []
        target = np.array([self.shift, self.stretch])
        for array in (self.mean, self.scale, *fill, target, self.w):
            parts += [f"\0{len(array)}\0".encode(), array.astype("<f8").tobytes()]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def scaled(self, X: Any) -> Any:
        """Return inputs as the model sees them: filled, scaled, with a constant."""
        mean, scale, one = self.mean, self.scale, np.ones((X.shape[0], 1))
        if len(self.fill):  # missing inputs are written as 0, and marked
            inputs, marks = np.array(self.schema["indicators"]).T
            size = (X.shape[1], X.shape[1])
            X = X + X @ sparse.csr_array((self.fill, (marks, inputs)), shape=size)
        dense = isinstance(X, np.ndarray)
        if self.about.get("intercept"):
            mean, scale = np.append(mean, 0.0), np.append(scale, 1.0)
            X = (np if dense else sparse).hstack([X, one])
        if dense:
            return (X.astype(np.float64) - mean) / scale
        shift = aslinearoperator(one) @ aslinearoperator((mean / scale)[None])
        return aslinearoperator(sparse.csr_array(X / scale)) - shift


def read_rows(path: Path, e: Json, model: SavedModel) -> Json:
    """Read prepared rows: a column by each name, and all inputs before scaling, X.

    Silos, labels and strata (group and label) as whole numbers, in order.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            rows: Json = {name: file[name] for name in file.files}
        if "X" not in rows:
            parts = tuple(rows[f"X_{n}"] for n in ("data", "indices", "indptr"))
            shape = (len(parts[2]) - 1, len(model.mean))
            rows["X"] = sparse.csr_array(parts, shape=shape)
        if rows["X"].shape[1] != len(model.mean):
            raise ValueError(f"there must be {len(model.mean)} inputs")

        def codes(column: str, names: list[str]) -> Any:
            place = {name: k for k, name in enumerate(names)}
            return np.array([place[name] for name in rows[column].tolist()], int)

        rows["silos"] = list(dict.fromkeys(rows["silo"].tolist()))
        rows["silo"] = codes("silo", rows["silos"])
        label, group = np.zeros(len(rows["silo"]), int), codes("group", e["groups"])
        label = codes("label", e["labels"]) if e["labels"] else label
        rows["y"] = label.astype(float) if e["labels"] else rows["label"].astype(float)
        rows["stratum"] = group * max(1, len(e["labels"])) + label
        rows["s"] = np.asarray(rows.get("weight", np.ones(len(group))), float)
        who = rows.get("person", np.arange(len(group)))
        rows["who"] = np.unique(who, return_inverse=True)[1].reshape(-1)
    except (OSError, ValueError, LookupError) as error:
        raise Unreadable(f"{path}: no rows of this model: {error!r}") from error
    return rows


# Rows: losses, slopes and sums, from their definitions


class SplitRows:
    """The rows of some splits, as the model sees them.

    Attributes
    ----------
    X, y, s, who
        Inputs, labels, weights, and the person of a row.
    member, mass
        Which rows are in which group of the constraint (sparse), and their weight.
    in_risk, share
        Weight of each row in Σ p_k × silo k's mean loss, and Σ p_k of silos with rows;
        both add over splits.
    """

    def __init__(
        self, rows: Json, splits: list[str], e: Json, model: SavedModel
    ) -> None:
        self.e, self.kind, self.model = e, e["model"]["kind"], model
        K, mine = len(rows["silos"]), np.isin(rows["split"], splits)
        self.y, self.s, self.who = (rows[key][mine] for key in ("y", "s", "who"))
        self.X, self.stratum = model.scaled(rows["X"][mine]), rows["stratum"][mine]
        p = np.full(K, 1 / e["data"]["silos"])
        if e["terms"]["weighting"] == "rows":
            p = np.bincount(rows["silo"], rows["s"] * (rows["split"] == "train"), K)
            p = p / p.sum()
        silo, split = rows["silo"][mine], rows["split"][mine]
        part = np.unique(split, return_inverse=True)[1] * K + silo
        weight = np.bincount(part, self.s)
        self.share = float(p[np.flatnonzero(weight) % K].sum())
        self.in_risk = self.s * p[silo] / weight[part]
        ends = np.cumsum(np.bincount(silo, minlength=K))
        by_silo = np.split(np.argsort(silo, kind="stable"), ends[:-1])
        cells = [np.zeros(0, int)]
        for cell, inside in zip(e["cells"], membership(e), strict=True):
            among = np.arange(len(silo))
            if cell["silo"] is not None:
                among = by_silo[rows["silos"].index(cell["silo"])]
            cells.append(among[inside[self.stratum[among]]])
        index, ends = np.concatenate(cells), np.cumsum([len(own) for own in cells])
        shape = (len(e["cells"]), len(silo))
        self.member = sparse.csr_array((np.ones(len(index)), index, ends), shape=shape)
        self.mass = self.member @ self.s

    def in_cells(self, lam: Any) -> Any:
        """Return the weight of each row in Σ λ_z × the mean loss of group z."""
        return self.s * (self.member.T @ (lam / self.mass))

    def scores(self, w: Any) -> Any:
        """Return a column for each class, such that softmax gives probabilities.

        Of numeric targets: one column, the prediction before it is scaled back.
        """
        if self.kind == "probabilities":  # of a model from elsewhere
            X = self.X if self.X.shape[1] > 1 else np.hstack([1 - self.X, self.X])
            return np.log(np.clip(X, 5e-324, 1))
        z = self.X @ w.reshape(-1, self.X.shape[1]).T
        return np.hstack([0 * z, z]) if self.kind == "logistic" else z

    def losses(self, z: Any) -> Any:
        """Return the loss of each row, from its scores."""
        if not self.e["labels"]:
            return self.off_by(self.model.shift + self.model.stretch * z[:, 0] - self.y)
        own = z[np.arange(len(z)), self.y.astype(int)][:, None]
        return -own[:, 0] if self.kind == "probabilities" else logsumexp(z - own, 1)

    def off_by(self, residual: Any) -> Any:
        """Return the loss of predictions that far off: square, or twice Huber's."""
        size = np.abs(residual)
        cut = np.minimum(size, self.model.cut)
        return cut * (2 * size - cut)

    def bounded(self, z: Any, M: float | None) -> Any:
        """Return the losses of the shipped predictor, none of them above M."""
        losses, classes = self.losses(z), len(self.e["labels"])
        if M is None:
            return losses
        if not classes:
            ends = np.array(self.e["model"]["described"]["target_range"])
            k = int(np.argmin(np.abs(np.subtract(caps_of(self.e), M))))
            low, high = ends + np.array([-1, 1]) * MARGINS[k] * (ends[1] - ends[0])
            guess = self.model.shift + self.model.stretch * z[:, 0]
            return self.off_by(np.clip(guess, low, high) - self.y)
        if self.e["terms"]["clipping"] == "range":
            return np.minimum(losses, M)
        least, p = math.exp(-M), np.exp(-losses)
        if classes == 2:
            return -np.log(np.clip(p, least, 1 - least))
        return -np.log((1 - classes * least) * p + least)

    def plane(self, w: Any, v: Any, weights: Any) -> tuple[float, Any]:
        """Return value and slope of a plane below Σ weights_i ℓ_i (Fenchel, Young).

        u are the slopes at w, moved along v, where the conjugate ℓ* is finite: value is
        Σ weights_i (−ℓ*(u_i)), and the slope Σ weights_i u_i ⊗ x_i. With v = 0 that is
        the gradient at w.
        """
        z, move, y = self.scores(w), self.scores(v), self.y[:, None]
        if self.kind == "logistic":
            z, move = z[:, 1:], move[:, 1:]
            u = np.clip(expit(z) - y - expit(z) * expit(-z) * move, -y, 1 - y)
            values = entr(np.abs(u)) - xlog1py(1 - np.abs(u), -np.abs(u))
        elif self.e["labels"]:
            q = softmax(z, axis=1)
            q = np.maximum(q - q * (move - (q * move).sum(1, keepdims=True)), 0)
            q /= q.sum(1, keepdims=True)
            u, values = q - (np.arange(z.shape[1]) == y), entr(q)
        else:
            cut, stretch, aim = self.model.cut, self.model.stretch, y - self.model.shift
            r = stretch * z - aim
            size = np.maximum(np.abs(r), TINY)
            curve = np.where(size <= cut, 2, 0.2 * cut / size) * stretch
            u = 2 * np.clip(r, -cut, cut) - curve * move
            u = np.clip(u, -2 * cut, 2 * cut)
            values, u = -(u**2) / 4 - u * aim, u * stretch
        slope = (self.X.T @ (u * weights[:, None])).T.reshape(-1)
        return float(weights @ values.sum(axis=1)), slope

    def means(self, w: Any) -> Any:
        """Return the mean loss of each group of the constraint."""
        return self.member @ (self.s * self.losses(self.scores(w))) / self.mass

    def risk(self, w: Any) -> float:
        """Return F(w), the risk with its ridge term."""
        mu = self.e["model"]["l2"] * self.e["model"]["unit"]
        own = float(self.in_risk @ self.losses(self.scores(w)))
        return own + 0.5 * mu * float(w @ w)

    def sums(self, w: Any, M: Any, stated: Json) -> Json:
        """Return the sums that evidence has of these rows."""
        strata = len(self.e["groups"]) * max(1, len(self.e["labels"]))
        z = self.scores(w)
        own, kept = self.losses(z), self.bounded(z, M)
        guess = z.argmax(axis=1) if self.e["labels"] else np.full(len(z), np.nan)
        cut = self.e["model"]["described"].get("threshold", 0.5)
        if cut != 0.5:  # of two classes
            guess = 1 * (z[:, 1] - z[:, 0] > np.log(cut) - np.log1p(-cut))
        found = [own, own**2, kept, kept**2, guess == self.y, guess == 1]
        columns = [np.ones(len(z)), *(self.s * column for column in found), self.s]
        cells = [(self.member @ column).tolist() for column in columns]
        by = [np.bincount(self.stratum, c, strata).tolist() for c in columns]
        total: Json = {"risk": float(self.in_risk @ own), "share": self.share}
        total["bounded_risk"] = float(self.in_risk @ kept)
        total["cells"] = dict(zip(COLUMNS, cells, strict=True))
        total["strata"] = dict(zip(COLUMNS, by, strict=True))
        if stated["people"]:
            total |= self.betting(kept / M, M, stated)
        return total

    def betting(self, x: Any, M: float, stated: Json) -> Json:
        """Return the sums over people that bounds on new people stand on.

        A person's t is weight/s_max and x the loss/M: means over the person's rows.
        """
        unweighted, people, logs = len((stated["levels"] or [[]])[0]) == 2, [], []
        t = self.s / (1.0 if unweighted else self.e["terms"]["weight_bound"])
        ends = self.member.indptr[1:-1]
        for z, own in enumerate(np.split(self.member.indices, ends)):
            who = np.unique(self.who[own], return_inverse=True)[1]
            parts = np.minimum(t[own], 1), np.minimum(t[own], 1) * x[own]
            a, b = (np.bincount(who, part) / np.bincount(who) for part in parts)
            sums = [float(v.sum()) for v in (a, b, a * a, a * b, b * b)]
            people.append([len(a), int((t[own] > 1).sum()), *sums])
            if bets := stated["bets"] and stated["bets"][z]:
                u = b[:, None] + (1 - a)[:, None] * np.array(stated["levels"][z]) / M
                logs.append([np.log1p(-g * u).sum(axis=0).tolist() for g in bets])
        columns = [list(column) for column in zip(*people, strict=True)]
        return {"people": dict(zip(STAKES, columns, strict=True)), "logs": logs}


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


def root_of(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that grows crosses 0; an end where it does not."""
    if function(low) >= 0 or function(high) <= 0:
        return low if function(low) >= 0 else high
    return float(brentq(function, low, high, xtol=1e-16, rtol=1e-15))


def group_upper(sample: Json, z: int, M: float, delta: float) -> float:
    """Return what the mean loss of a group is at most, with probability 1 − δ.

    Of weighted rows: the log-sum bound. Of unweighted ones, whose levels (0 and M) do
    not matter: that at 0.8 δ, or Chernoff's at 0.2 δ.
    """
    parts = ("bets", "bet_weights", "logs", "levels")
    bets, weights, logs, levels = (np.array(sample[key][z]) for key in parts)
    n, tx = (sample["people"][key][z] for key in ("count", "tx"))
    levels, unweighted = levels / M, len(levels) == 2
    if not np.allclose(levels[[0, -1]], [0, 1]):
        raise ValueError(f"levels {sample['levels'][z]} that are not from 0 to {M}")
    if n == 0:
        return M
    roots = np.exp(logs / n - np.log1p(-bets[:, None] * levels))
    term = math.log((0.8 if unweighted else 1.0) * delta)

    def wealth(x: float) -> float:
        """Bound log Σ π Π (1 − γu)/(1 − γx) + log δ from below, u = tx + (1 − t)x.

        Between two levels it is at least the chord in 1/(1 − γx).
        """
        pairs = zip(bets, roots, strict=True)
        means = [np.interp(1 / (1 - g * x), 1 / (1 - g * levels), r) for g, r in pairs]
        return float(logsumexp(n * np.log(means), b=weights)) + term

    def off(q: float) -> float:
        return float(rel_entr(p, q) + rel_entr(1 - p, 1 - q)) - math.log(5 / delta) / n

    top, p = root_of(wealth, 0.0, 1.0), min(max(tx / n, 0.0), 1.0)
    top = min(top, root_of(off, p, 1 - 1e-16)) if unweighted else top
    return min(M * top, M)


def upper(sample: Json, M: float | None, delta: float, rates: bool) -> Any:
    """Return what means of new people are at most in each group, each with 1 − δ.

    None without bets or M, or where a weight is larger than they assume.
    """
    if rates:
        return upper_rates(sample, delta)
    people = sample["people"]
    if M is None or not sample["bets"] or any(people["above"]):
        return None
    if len(sample["levels"][0]) == 2 and not np.allclose(people["t"], people["count"]):
        return None
    groups = range(len(sample["bets"]))
    return np.array([group_upper(sample, z, M, delta) for z in groups])


def upper_rates(sample: Json, delta: float) -> Any:
    """Return what rates of wrong predictions are at most (Clopper and Pearson).

    Rows of different silos need 1 − δ/n at k = n − 1 (Hoeffding). None with weights, or
    where people have several rows.
    """
    n, mass, right = (sample["cells"][c] for c in ("count", "weight", "correct"))
    if n != mass or (sample["people"] and sample["people"]["count"] != n):
        return None
    n, k = np.array(n), np.array(n) - np.array(right)
    top = betaincinv(k + 1.0, np.maximum(n - k, 1.0), 1 - delta)
    top = np.where(k == n - 1, 1 - delta / np.maximum(n, 1.0), top)
    return np.where(k < n, top, 1.0)


def means_of(sample: Json, column: str) -> Any:
    """Return the mean of a column per group of the constraint; NaN without people."""
    total, mass = (np.array(sample["cells"][c], float) for c in (column, "weight"))
    return np.divide(total, mass, out=np.full(len(mass), np.nan), where=mass > 0)


def moments_of(seen: Json | None, z: int, M: float) -> list[float] | None:
    """Return the means of t, tx, tt, ttx, ttxx of a group's training rows, if any."""
    if seen is None or not seen["cells"]["weight"][z] > 0:
        return None
    if people := seen["people"]:
        n, *sums = (people[key][z] for key in ("count", *STAKES[2:]))
        return [v / n for v in sums]
    mean, square = (float(means_of(seen, key)[z]) for key in BOUNDED)
    return [1.0, mean / M, 1.0, mean / M, max(square, mean**2) / M**2]


def promised_ends(m: Sequence[float], z: float, price: float) -> Any:
    """Return the upper end of x that each of `TRIED` promises, tested at level z.

    u = tx + (1 − t)z is taken for two numbers with its mean and variance, and with the
    skewness of a beta law.
    """
    t, tx, tt, ttx, ttxx = m
    mean = min(max(tx + (1 - t) * z, 1e-9), 1 - 1e-9)
    second, most = ttxx + 2 * z * (tx - ttx) + z * z * (1 - 2 * t + tt), mean - mean**2
    width = min(max(second - mean**2, 1e-12), most)
    kappa = max(most / width - 1, 0.0)
    skew = 2 * (1 - 2 * mean) * math.sqrt((kappa + 1) / most) / (kappa + 2)
    root = math.sqrt(skew**2 + 4)
    ends = [mean + math.sqrt(width) * (skew + side * root) / 2 for side in (-1, 1)]
    low, high = (np.log1p(-TRIED * min(max(end, 0.0), 1.0)) for end in ends)
    share = (1 - skew / root) / 2
    return -np.expm1((1 - share) * low + share * high - price) / TRIED


def best_ends(m: Sequence[float], price: float) -> tuple[Any, float]:
    """Return the ends that bets promise at the level of the best, and that level."""
    low, high, found = min(m[1] / m[0], 1.0), 1.0, promised_ends(m, 1.0, price)
    if found.min() > high or m[0] == m[2] == 1:
        return found, min(float(found.min()), high)
    for _ in range(40):
        middle = (low + high) / 2
        if (trial := promised_ends(m, middle, price)).min() <= middle:
            high, found = middle, trial
        else:
            low = middle
    return found, high


# What was declared: the model, the run file, who is in which group


def check_declared(e: Json, model: SavedModel, run_file: Json) -> Iterator[Check]:
    """Compare evidence with the model file and with the run file."""
    run, terms, path, noisy = (e[k] for k in ("training", "terms", "path", "privacy"))
    about, stretch = model.about, model.stretch
    own: Json = {"kind": about["kind"], "described": about, "fingerprint": model.hash()}
    own["length"] = float(np.linalg.norm(model.w))
    if about["kind"] in LINEAR:
        unit = min(stretch, model.cut)
        own |= {"unit": unit * (2 * stretch - unit), "l2": about["l2"]}
        own |= {"convex": True, "linear": True}
    found: Json = {"model": own, "labels": model.schema["labels"]}
    if run and model.rows is not None:
        found["data"] = {"trained_on": model.rows}
    if run and e["labels"]:
        found["terms"] = {"loss_bound": model.loss_bound}
    if run and (e["promise"] or e["minimax"]):
        found["cells"] = [{"multiplier": one} for one in model.multipliers.tolist()]
    if path:
        yield from compare("model", own_of(path)["model"], model.w.tolist())
    yield from compare("evidence", e, found)
    if not run:
        return
    # Under noise risks are by rows, and there is no gap.
    settings = {} if noisy else {"weighting": terms["weighting"]}
    settings |= {} if terms["later"] else {"confidence": terms["confidence"]}
    declared = {"run": {"seed": run["seed"], **settings}}
    declared["constraint"] = run["constraint"]
    if about["kind"] in LINEAR:  # a run file calls a network by its shape
        declared["model"] = e["model"]["described"]
    for key in ("multiplier_bound", "risk_weight", *(() if noisy else ("target_gap",))):
        if e["promise"] and run["method"].get(key) is not None:
            yield from compare(key, terms[key], float(run["method"][key]))
    if "federation" not in run_file.get("data", {"federation": ""}):
        masked = run_file.get("privacy", {}).get("secure_sum", False)
        stated = noisy["shared"] if noisy else bool(e["sites"] and e["sites"]["masked"])
        yield from compare("run file, secure sums", stated, masked)
    for part, ours in declared.items():
        for key, value in run_file.get(part, {}).items():
            if value != "auto" and isinstance(ours.get(key), str | float | int):
                yield from compare(f"run file, {part}, {key}", ours[key], value)


def own_of(path: Json) -> Json:
    """Return the candidate of a path that is shipped."""
    return path["candidates"][path["chosen"]]


def check_cells(e: Json) -> Iterator[Check]:
    """Find in every bounded group the rows of its name, and every row in some group.

    A name is made of values of its people: of attributes, the label, the silo. What
    bounds are on is what the constraint says.
    """
    rule = (e["training"] or {}).get("constraint") or {}
    if (kind := rule.get("kind")) != "both" and kind is not None:
        goal = kind if kind in RATES else "loss"
        yield from compare("what bounds are on", e["terms"]["goal"], goal)

    def words(text: str) -> set[str]:
        return {*re.split(" × |, |: ", text)}

    labels, inside = e["labels"] or [None], []
    for cell in e["cells"]:
        said, good = words(re.sub(r" \(\d+\)$", "", cell["cell"])), True
        some = len({y for _, y in cell["of"]}) < len(labels)
        for group, label in cell["of"]:
            own = {word for word in said if word.split(" = ")[-1] in words(str(label))}
            good = good and bool(said & words(group) or cell["silo"] in said)
            good = good and (bool(own) or not some)
            rest = said - words(group) - own - {cell["silo"]}
            good = good and all(f"{word}: " in cell["cell"] for word in rest)
            inside.append([group, label])
        yield Check(f"who is in '{cell['cell']}'", cell["of"], "others", good)
    if isinstance(bound := rule.get("bound"), float | int):
        stated = [cell["bound"] for cell in e["cells"]]
        yield from compare("bounds", stated, [float(bound)] * len(stated))
        if not rule.get("labels") and rule["kind"] not in ("fnr", "fpr"):
            rows = zip(strata_of(e), e["seen"]["strata"]["count"], strict=True)
            lost = [one for one, n in rows if n and one not in inside]
            yield from compare("rows in no group", [], lost)


# Against the rows: sums, M, proofs


def check_rows(e: Json, model: SavedModel, rows: Json) -> Iterator[Check]:
    """Compare everything that was measured with the rows."""
    data, there, s = e["data"], {*rows["split"].tolist()}, rows["s"]
    parts = ("path", "heldout", "before", "training")
    path, held, old, run = (e[key] for key in parts)
    told = {*e["seen"]["splits"], *data["splits"], *(held["splits"] if held else [])}
    told |= {*(old["samples"] if old else []), *([path["split"]] if path else [])}
    told |= {"train"} if run else set()
    good = there <= told or not run  # an audit names the splits that it used
    yield Check("splits in the rows", sorted(told), sorted(there), good)
    found: Json = {"silos": len(rows["silos"]), "by_person": "person" in rows}
    found["several"] = len(np.unique(rows["who"])) < len(s)
    if "person" in rows:
        places = np.unique(np.stack([rows["who"], rows["silo"]]), axis=1)[0]
        found["shared"] = int((np.unique(places, return_counts=True)[1] > 1).sum())
    if "schema" in rows:
        found["schema"] = str(rows["schema"])
    if data["weighted"] is not None:
        found["weighted"] = bool((s != 1).any())
    if data["weights"] and run:
        own = s[rows["split"] == "train"]
        found["weights"] = [float(own.min()), float(own.max())]
    if held and data["overlap"] is not None:
        found["overlap"] = overlap(rows, held["splits"])
    yield from compare("data", data, found)
    if path and path["overlap"] is not None:
        same = overlap(rows, [path["split"]])
        yield from compare("calibration rows trained on", path["overlap"], same)
    if e["model"]["kind"] not in (*LINEAR, "probabilities"):
        yield Check(f"{UNCHECKED}losses of a network, and what follows", note=True)
        return
    if e["sites"] and (floor := e["sites"]["floor"]) > 1:
        said = any(f"fewer than {floor} people" in note for note in e["notes"])
        good = said and floor == FEW  # that of secure sums in one process
        yield Check("note on people who are left out", floor, FEW, good)
    rows = counted(rows, e)
    yield from check_sums(e, model, rows)
    yield from check_scores(e, model, rows)
    train = SplitRows(rows, ["train"], e, model)
    if run and train.mass.all():
        yield from check_caps(e, model.w, train)
        if e["model"]["linear"]:
            yield from check_gap(e, model.w, train)
            yield from check_plane(e, train)


def counted(rows: Json, e: Json) -> Json:
    """Return the rows that sites counted: under masks each leaves out small groups.

    Of a set of strata that no group of the constraint parts, a site with fewer people
    than the floor counts none. Nobody does where fewer than three sites (two of three)
    have enough.
    """
    sites: Json = e["sites"] or {"floor": 1}
    if (floor := sites["floor"]) <= 1:
        return rows
    member = membership(e)
    if not (e["promise"] or e["minimax"]):
        member = np.ones((1, member.shape[1]), bool)
    sets = np.unique(member, axis=1, return_inverse=True)[1].reshape(-1)
    split, K, n = np.unique(rows["split"], return_inverse=True)[1], sites["masked"], 1
    n += sets.max()
    place = (split * K + rows["silo"]) * n + sets[rows["stratum"]]
    shape = (split.max(initial=0) + 1, K, n)
    people, first, second = (
        np.bincount(place, rows["s"] ** power, math.prod(shape)) for power in range(3)
    )
    alike = np.floor(first**2 / np.maximum(second, 1e-300) * (1 + CLOSE))
    people = np.minimum(people, alike)  # one heavy row is nearly alone
    if "person" in rows:
        pairs = np.unique(np.stack([place, rows["who"]]), axis=1)[0]
        people = np.minimum(people, np.bincount(pairs, minlength=math.prod(shape)))
    enough = (people >= floor).reshape(shape)
    enough &= enough.sum(axis=1, keepdims=True) >= (2 if K == 3 else 3)
    kept, own = enough.reshape(-1)[place], ("split", "silo", "stratum", "y", "s", "who")
    apart = np.unique(
        np.stack([rows["silo"], rows["who"]]), axis=1, return_inverse=True
    )
    rows = {**rows, "who": apart[1].reshape(-1)}  # of two sites none knows the other's
    return {**rows, **{key: rows[key][kept] for key in (*own, "X")}}


def overlap(rows: Json, splits: Sequence[str]) -> int:
    """Count rows of some splits that are training rows: by ids, or equal ones."""
    who, X = rows["who"], rows["X"]
    if "person" not in rows:
        dense = X if isinstance(X, np.ndarray) else X.toarray()
        table = np.column_stack([dense.astype(float), rows["y"], rows["stratum"]]) + 0.0
        who = table.view(np.dtype((np.void, table.shape[1] * 8))).reshape(-1)
    train, some = rows["split"] == "train", np.isin(rows["split"], splits)
    return int(np.isin(who[some], who[train]).sum())


def check_sums(e: Json, model: SavedModel, rows: Json) -> Iterator[Check]:
    """Compare all sums with the rows: of the model, the unconstrained one, the path."""
    own, old, path = e["terms"]["loss_bound"], e["before"], e["path"]
    by_split: dict[str, SplitRows] = {}

    def sums(stated: Json, w: Any, M: float | None = own) -> Json:
        key = "+".join(splits := stated["splits"])
        if key not in by_split:
            by_split[key] = SplitRows(rows, splits, e, model)
        return by_split[key].sums(np.array(w), M, stated)

    found: Json = {"seen": sums(e["seen"], model.w)}
    if e["heldout"]:
        found["heldout"] = sums(e["heldout"], model.w)
    if old:
        samples = {key: sums(one, old["model"]) for key, one in old["samples"].items()}
        found["before"] = {"samples": samples}
    if path:
        parts = ("training", "calibration")
        found["path"] = {
            "candidates": [
                {key: sums(one[key], one["model"], one["loss_bound"]) for key in parts}
                for one in path["candidates"]
            ]
        }
    yield from compare("sums", e, found, 1.0)


def check_scores(e: Json, model: SavedModel, rows: Json) -> Iterator[Check]:
    """Count again who is selected at other thresholds; rank and add probabilities."""
    if (stated := e["scores"]) is None:
        return
    own, size = SplitRows(rows, stated["splits"], e, model), len(e["groups"])
    group, s, y, M = own.stratum // 2, own.s, own.y, e["terms"]["loss_bound"]
    least = 0.0 if M is None or e["terms"]["clipping"] == "range" else math.exp(-M)

    def kept(w: Any) -> tuple[Any, Any, list[float | None]]:
        z = own.scores(w)
        given = own.kind == "probabilities"  # to the last bit: they may lie on a cut
        p = own.X[:, -1] if given else expit(z[:, 1] - z[:, 0])
        q = np.clip(p, least, 1 - least)
        return p, q, [area(q[a], y[a], s[a]) for a in (group == k for k in range(size))]

    p, q, areas = kept(model.w)
    sums = {
        cut: np.bincount(own.stratum, s * (p > cut), 2 * size).tolist()
        for cut in stated["thresholds"]
    }
    found: Json = {"auc": areas, "selected": list(sums.values())}
    found["totals"] = np.bincount(own.stratum, s, 2 * size).tolist()
    found["probabilities"] = np.bincount(group, s * q, size).tolist()
    if e["before"]:
        found["free_auc"] = kept(np.array(e["before"]["model"]))[2]
    yield from compare("scores", stated, found, 1.0)


def area(p: Any, y: Any, s: Any) -> float | None:
    """Return the area under the ROC curve: Pr[p of a positive > p of a negative].

    What agrees to 12 decimals is a tie, and counts one half.
    """
    p, y, s = np.round(p[s > 0], 12), y[s > 0], s[s > 0]
    if len({*y.tolist()}) < 2:
        return None
    place = np.unique(p, return_inverse=True)[1]
    yes, no = (np.bincount(place, s * (y == k), place.max() + 1) for k in (1, 0))
    below = np.cumsum(no) - no / 2
    return float(yes @ below / (yes.sum() * no.sum()))


def check_caps(e: Json, w: Any, rows: SplitRows) -> Iterator[Check]:
    """Choose M again: the smallest that changes no mean loss, and no verdict."""
    on_losses = e["promise"] and e["terms"]["goal"] == "loss"
    bounds = np.append(of_cells(e, "bound") * on_losses, 0.0)
    scales = np.append(of_cells(e, "scale"), 0.0)

    def harmless(at: Any, M: float, room: float) -> bool:
        z, every = rows.scores(at), rows.s.sum()
        a, b = (
            np.append(rows.member @ (rows.s * one) / rows.mass, rows.s @ one / every)
            for one in (rows.losses(z), rows.bounded(z, M))
        )
        met = a - bounds <= MET * np.maximum(np.minimum(scales, bounds), 0.0)
        under, over = b <= bounds * (1 + 1e-4 * (1 + room)), b > bounds * (1 - room)
        limit = np.maximum(1e-3 * a, 1e-6 * e["model"]["unit"]) * (1 + room)
        same = np.where(met, under, over) | (bounds <= 0)
        return bool(((np.abs(b - a) <= limit) & same).all())

    models, caps = [(w, e["terms"]["loss_bound"])], caps_of(e)
    others = e["path"]["candidates"] if e["path"] else []
    models += [(np.array(one["model"]), one["loss_bound"]) for one in others]
    for at, M in models if e["terms"]["clipping"] != "declared" else []:
        smaller = [cap for cap in caps if M is None or cap < M * (1 - CLOSE)]
        good = not any(harmless(at, cap, -MET) for cap in smaller)
        if M is not None:
            own = any(agree(M, cap) for cap in caps)
            good = good and own and harmless(at, M, MET)
        yield Check("M, by its rule", M, f"of {caps}", good)


def check_gap(e: Json, w: Any, rows: SplitRows) -> Iterator[Check]:
    """Prove the duality gap again; what is stated may be weaker, no stronger.

    Upper end: β F(w) + B max(0, r(w)). Lower end: β F + λᵀr at a point, less what
    strong convexity (or a ball) lets it fall by, given the gradient there.
    """
    if not (pair := e["proofs"]["gap"]):
        return
    beta, mu = e["terms"]["risk_weight"], e["model"]["l2"] * e["model"]["unit"]
    B = e["terms"]["multiplier_bound"] if e["promise"] or e["minimax"] else 0.0
    lam, zeta, aims = (of_cells(e, key) for key in ("multiplier", "bound", "aimed"))
    at, aims = np.array(pair["at"]), np.where(np.isnan(aims), zeta, aims)
    violation = float((rows.means(w) - aims).max(initial=0.0))
    upper = beta * rows.risk(w) + B * violation
    g = rows.plane(at, 0 * at, beta * rows.in_risk + rows.in_cells(lam))[1]
    g = g + beta * mu * at
    if beta * mu > 0:
        drop = float(g @ g) / (2 * beta * mu)
    else:
        ball = math.inf if pair["radius"] is None else pair["radius"]
        drop = float(g @ at) + ball * float(np.linalg.norm(g))
    lower = beta * rows.risk(at) + float(lam @ (rows.means(at) - aims)) - drop
    size = CLOSE * max(abs(upper), abs(lower), 1e-3) + TINY
    good = pair["upper"] >= upper - size and pair["lower"] <= lower + size
    good = good and (lam >= 0).all() and lam.sum() <= B * (1 + CLOSE) + TINY
    on_losses = e["terms"]["goal"] == "loss"  # others stand in for bounds on rates
    good = good and ((aims <= zeta * (1 + CLOSE)).all() or not on_losses)
    good = good and (pair["radius"] or math.inf) >= np.linalg.norm(w) * (1 - CLOSE)
    ends = [pair["upper"], pair["lower"]]
    yield Check("duality gap", ends, [upper, lower], bool(good))


def check_plane(e: Json, rows: SplitRows) -> Iterator[Check]:
    """Prove again how low bounds can go: no plane too high, and a model that attains.

    All together, the differences between them kept: λ on the simplex.
    """
    if (one := e["proofs"]["least"]) is None:
        return
    zeta = of_cells(e, "bound")
    lam, v, at = (np.array(one[k]) for k in ("multipliers", "model", "at"))
    offsets = zeta - zeta.max()
    good = np.allclose(one["offsets"], offsets, CLOSE, CLOSE) and bool((lam >= 0).all())
    good = good and agree(float(lam.sum()), 1.0)
    good = good and one["risk"] >= rows.risk(v) * (1 - CLOSE) - TINY
    high = float((rows.means(v) - offsets).max())
    value, slope = rows.plane(at, np.array(one["direction"]), rows.in_cells(lam))
    size = CLOSE * max(1.0, abs(value))
    low = value - float(lam @ offsets) - one["reach"] * one["slope"]
    good = good and one["lower"] <= min(low, high) + size
    good = good and one["upper"] >= high - size
    steep = float(np.linalg.norm(slope)) - one["slope"]
    good = good and one["reach"] * steep <= size
    longest = max(float(np.linalg.norm(x)) for x in (v, at)) * (1 - CLOSE)
    good = good and one["longest"] >= longest and one["reach"] >= NEAR * longest
    yield Check(
        "how low bounds can go", [one["lower"], one["upper"]], [low, high], good
    )


# Commitments: what must have been fixed before rows were looked at


def check_commitments(e: Json) -> Iterator[Check]:
    """Plan bets again, and put the candidates of a path in order again."""
    held, terms, path = e["heldout"], e["terms"], e["path"]
    bounds, seen = of_cells(e, "bound"), e["seen"] if e["training"] else None
    delta = None if terms["later"] else 1 - terms["confidence"]
    samples = [("test rows", held, seen, delta, terms["loss_bound"])] if held else []
    for k, one in enumerate(path["candidates"] if path else [], 1):
        plan = one["calibration"], one["training"], 1 - path["confidence"]
        samples.append((f"model {k}, calibration rows", *plan, one["loss_bound"]))
    for name, sample, training, delta, M in samples:
        if sample["bets"]:
            yield from check_bets(name, sample, training, bounds, delta, M)
    if path:
        yield from check_path(e, path, bounds)


def check_bets(
    name: str, held: Json, seen: Json | None, bounds: Any, delta: float | None, M: float
) -> Iterator[Check]:
    """Plan the bets of a sample again, from n, δ, M, bounds and training sums.

    The planned bet is one of `TRIED`: that which promises the smallest upper end. Where
    two promise the same, rounding may choose either. δ of an earlier look (None) is
    told by the smallest bet.
    """
    unweighted = len(held["levels"][0]) == 2
    counts, part = held["cells"]["count"], 0.8 if unweighted else 1.0
    if delta is None:
        z = int(np.argmax(counts))
        smallest = min(held["bets"][z][0 if moments_of(seen, z, M) is None else 1 :])
        delta = min(math.exp(-(smallest**2) * max(counts[z], 1) / 8) / part, 0.999)
    for z, count in enumerate(counts):
        n, term, m = max(count, 1.0), -math.log(part * delta), moments_of(seen, z, M)
        steps = np.linspace(0, 1, 9 if m is None else 8)
        spread = min(math.sqrt(8 * term / n), 0.495) ** (1 - steps) * 0.99**steps
        plan: Json = {"bets": spread.tolist(), "bet_weights": [1 / 9] * 9}
        near = [0.05, 0.15, 0.3, 0.6]
        if m is not None:
            ends, end = best_ends(m, (term - math.log(0.6)) / n)
            j = int(np.argmin(np.abs(TRIED - held["bets"][z][0])))
            j = j if ends[j] <= ends.min() + CLOSE else int(ends.argmin())
            plan["bets"].insert(0, float(TRIED[j]))
            plan["bet_weights"] = [0.6] + [0.05] * 8
            level = min(m[1] / m[0], 1.0)
            square = m[4] - 2 * level * m[3] + level**2 * m[2]
            step = max(math.sqrt(max(square, 0.0) / m[2]) / 4, (end - level) / 2)
            near = [level + step * k for k in (-1, 0, 1, 3)]
        inner = [] if unweighted else np.clip([*near, bounds[z] / M], 0, 1)
        plan["levels"] = (M * np.sort([0.0, *inner, 1.0])).tolist()
        stated = {key: held[key][z] for key in plan}
        yield from compare(f"{name}, group {z}", stated, plan)
        good = possible(held, z, M)
        yield Check(f"{name}, group {z}: possible log-sums", good, True, good)


def possible(sample: Json, z: int, M: float) -> bool:
    """Whether log-sums of a group are such as losses in [0, M] can have.

    n·ū·log(1 − γ) ≤ Σ log(1 − γu) ≤ n·log(1 − γū), by the chord and by Jensen.
    """
    bets, sums, levels = (np.array(sample[k][z]) for k in ("bets", "logs", "levels"))
    n, t, tx = (sample["people"][key][z] for key in ("count", "t", "tx"))
    total, g = tx + (n - t) * levels / M, bets[:, None]
    with np.errstate(invalid="ignore"):  # of a mean that is no mean
        high = n * np.log1p(-g * total / max(n, 1))
    low = total * np.log1p(-g)
    slack = 1e-7 * (1 + np.abs(low))
    return bool(((sums >= low - slack) & (sums <= high + slack)).all())


def check_path(e: Json, path: Json, bounds: Any) -> Iterator[Check]:
    """Order the candidates by their room on training rows; test until one fails."""
    models, spread, errors, rooms = path["candidates"], np.array(path["spread"]), [], []
    rates = e["terms"]["goal"] != "loss"
    for one in models:
        rows = np.maximum(one["calibration"]["cells"]["count"], 1)
        mean, square = (means_of(one["training"], key) for key in BOUNDED)
        own = means_of(one["training"], "loss")
        variance = np.maximum(square - mean**2, 0.0)
        if rates:
            own = 1 - means_of(one["training"], "correct")
            variance = bounds * (1 - bounds)
        error = np.sqrt(variance / rows)
        errors.append(np.maximum(error, 1e-3 * (error.max(initial=0.0) or 1.0)))
        rooms.append(float(((bounds - own) / spread).min()))
    good = any(np.allclose(one, spread, 1e-7, 0) for one in errors)  # the first trained
    yield Check("standard errors", path["spread"], "others", good)
    yield from compare("room of candidates", [one["margin"] for one in models], rooms)
    slack = CLOSE * max(map(abs, rooms)) + TINY
    good = all(b - a <= slack for a, b in itertools.pairwise(rooms))
    yield Check("candidates, safest first", rooms, "another order", good)
    kept = shown_up_to(path, bounds, 1 - path["confidence"], rates)
    yield from compare("candidate that is chosen", path["chosen"], max(kept - 1, 0))
    own = own_of(path)
    yield from compare("M", e["terms"]["loss_bound"], own["loss_bound"])
    sums = {key: own["training"][key] for key in ("splits", "cells", "strata")}
    yield from compare("sums of the shipped model", e["seen"], sums, 1.0)
    splits = [one["calibration"]["splits"] for one in models]
    yield from compare("calibration rows", splits, [[path["split"]]] * len(models))


def shown_up_to(path: Json, bounds: Any, delta: float, rates: bool) -> int:
    """Return how many candidates are shown, from the first one on, until one is not."""
    for k, one in enumerate(path["candidates"]):
        found = upper(one["calibration"], one["loss_bound"], delta, rates)
        if found is None or not (found <= bounds * (1 + TINY)).all():
            return k
    return len(path["candidates"])


# Conclusions: figures and verdicts, from the sums


def new_people(e: Json, bounds: Any) -> tuple[Any, bool, Json | None]:
    """Return upper ends for new people, whether all bounds are shown, and the rows.

    δ is shared with models that were compared on the same rows, and with earlier looks.
    """
    terms, data, path, rows = (e[key] for key in ("terms", "data", "path", "heldout"))
    looks = terms["candidates"] * max(1, terms["later"] * (terms["later"] + 1))
    share = delta = (1 - terms["confidence"]) / looks
    overlap = data["overlap"]
    if path:
        rows, overlap = own_of(path)["calibration"], path["overlap"]
        share = delta / (len(path["candidates"]) if path["chosen"] > 0 else 1)
    if not rows:
        return None, False, rows
    weighted, heaviest = data["weighted"], (data["weights"] or [0.0])[-1]
    if weighted is None:
        samples = (e["seen"]["strata"], rows["strata"])
        weighted = any(sums["weight"] != sums["count"] for sums in samples)
    top, rates, found = terms["weight_bound"], terms["goal"] != "loss", None
    heavy = weighted and (top is None or heaviest > top)
    heavy = (weighted or data["several"]) if rates else heavy
    # None of these people may have been trained on.
    known = None not in (data["trained_on"], data["fingerprint"])
    other = known and data["trained_on"] != data["fingerprint"]
    ours = (e["training"] or data["trained_on"] is not None) and not other
    spent = (ours and "train" in rows["splits"]) or (data["by_person"] and overlap)
    spent = spent or (e["sites"] and e["sites"]["masked"] and data["shared"])
    if len(bounds) and not heavy and not spent:
        found = upper(rows, terms["loss_bound"], share, rates)
    shown = found is not None and bool((found <= bounds).all())
    if path and found is not None:
        shown = shown_up_to(path, bounds, delta, rates) > path["chosen"]
        found = bounds if shown else found
    return found, shown, rows


def impossible(e: Json, bounds: Any) -> bool:
    """Whether the proof that no model keeps the bounds goes far enough."""
    one, old = e["proofs"]["least"], e["before"]
    if one is None or not e["promise"]:
        return False
    longest = max(one["longest"], e["model"]["length"])
    if old:
        longest = max(longest, float(np.linalg.norm(old["model"])))
    value = one["lower"] + one["reach"] * one["slope"] - float(bounds.max())
    cost = longest * one["slope"]
    return bool(value > 0 and value >= 2 * NEAR * cost)


def check_conclusions(stated: Json, e: Json) -> Iterator[Check]:
    """Compare the table of groups with the sums, and test the three verdicts.

    Of training rows the model's own loss is judged, elsewhere the shipped predictor's.
    *Not converged* is also accepted for *met*, *not met* and *no bounds*.
    """
    promise, rates = e["promise"], e["terms"]["goal"] != "loss"
    run, held, old = (e[key] for key in ("training", "heldout", "before"))
    bounds = of_cells(e, "bound")

    def means(sample: Json) -> Any:
        if rates:
            return 1 - means_of(sample, "correct")
        own = run and sample["splits"] == ["train"]
        return means_of(sample, "loss" if own else "bounded_loss")

    train, (upper, shown, rows) = means(e["seen"]), new_people(e, bounds)
    table = {key: [c[key] for c in e["cells"]] for key in ("cell", "multiplier")}
    table |= {"count": e["seen"]["cells"]["count"], "train_loss": train.tolist()}
    table |= {"bound": bounds.tolist()} if promise else {}
    for name, sample in old["samples"].items() if old else ():
        table[f"before_{name}_loss"] = means(sample).tolist()
    many = held["cells"]["count"] if held else [0]
    if held:
        table |= {"test_count": many, "test_loss": means(held).tolist()}
    if upper is not None and rows:
        tops = zip(upper.tolist(), rows["cells"]["count"], strict=True)
        table["test_upper"] = [top if n else None for top, n in tops]
    cells = stated["figures"]["cells"]
    shown_table = {key: [row[key] for row in cells] for key in table}
    yield from compare("groups", shown_table, table, 1e-3)

    limit = np.maximum(np.minimum(of_cells(e, "scale"), bounds), 0.0) * MET * bool(run)
    limit = limit * 0 + TINY if rates else limit
    met = "met" if (train - bounds <= limit).all() else "not met"
    words = {"not measured"} if np.isnan(train).any() else {met, "not converged"}
    if impossible(e, bounds) and (train - bounds > MET * limit).any():
        words = {"impossible"}
    words = words if promise else {"no bounds", "not converged"}
    words = {run["stopped"]} if run and run["stopped"] else words
    test = new = "not measured"
    if any(many):
        over = (means(held) > bounds) & (np.array(many) >= FEW)
        test = "within" if min(many) >= FEW else test
        test = ("exceeded" if over.any() else test) if promise else "no bounds"
    if upper is not None:
        new = ("certified" if shown else "not certified") if promise else "no bounds"
    said = {key: one["verdict"] for key, one in stated["verdicts"].items()}
    words = words if run else {"not measured"}
    good = said["training"] in words
    yield Check("verdict on training rows", said["training"], [*words], good)
    yield from compare("verdicts", said, {"test": test, "new_people": new})


# With noise: the privacy account


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return δ(ε) of releases that are μ-GDP together (Dong, Roth, Su 2022)."""
    high, low = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return math.exp(log_ndtr(high)) - math.exp(epsilon + log_ndtr(low))


def check_account(e: Json) -> Iterator[Check]:
    """Add up what was released about a person, and compare with what was declared.

    A release of sums to which a person adds at most Δ, with noise of deviation σ, has
    μ = √times·Δ/σ; together they have the root of the sum of squares. Of noise that
    sites share, that of colluding sites does not count.
    """
    n, honest = e["privacy"], e["privacy"]["sites"] - e["privacy"]["colluding"]
    good = not n["shared"] or 0 < honest <= n["sites"]
    yield Check("sites whose noise counts", honest, n["sites"], good)
    root = math.sqrt(n["sites"] / (max(1, honest) if n["shared"] else 1))
    least = {"counts": 1.0, "errors": 1.0, "losses": n["loss_bound"]}
    least["gradients"] = n["clip"] * (math.sqrt(2) if e["model"]["outputs"] > 1 else 1)
    least |= {"curvature": n["clip"] ** 2 / 4, "inputs": 0.0, "logs": 0.0}
    told = [o["times"] for o in n["releases"] if o["name"] == "gradients"]
    rounds = e["training"]["rounds"] if e["training"] else 0
    yield Check("releases of gradients", sum(told), rounds, sum(told) >= rounds)
    spent, deviation = {"train": 0.0, "test": 0.0}, {}
    for one in n["releases"]:
        name, split, delta = one["name"], one["split"], one["sensitivity"]
        sigma = math.sqrt(one["times"]) * delta / one["mu"]
        what = f"{name}, {split} rows"
        yield from compare(what, one, {"sigma": sigma, "deviation": sigma * root})
        required = least.get(name.removeprefix("final "), math.inf)
        yield Check(f"{what}: what a person adds", delta, required, delta >= required)
        spent[split] += one["mu"] ** 2
        deviation[name, split] = one["deviation"]
    for split, mark in (("train", ""), ("test", "heldout_")):
        mu = n[f"{mark}mu"] or 0.0
        yield from compare(f"account of {split} rows, μ", mu, math.sqrt(spent[split]))
        if mu:
            delta = gaussian_delta(mu, n[f"{mark}epsilon"])
            good = delta <= n["delta"] * (1 + 1e-6)
            yield Check(f"account of {split} rows, δ at ε", n["delta"], delta, good)
    member = membership(e).astype(float)
    parts = [("seen", "train", "final losses"), ("heldout", "test", "losses")]
    for part, split, losses in parts:
        if (figures := n[part]) is None or not e[part]:
            continue
        noise: Json = {"count_deviation": deviation["counts", split]}
        noise["loss_deviation"] = deviation[losses, split]
        g, pi = np.array(figures["bets"]), np.array(figures["bet_weights"])
        if len(g):
            blocks = np.sqrt(np.unique(member, axis=1).sum(axis=1))
            unit = deviation["logs", split] * -np.log1p(-g)
            noise["log_deviation"] = np.outer(blocks, unit).tolist()
        yield from compare(f"noise of {split} rows", figures, noise)
        good = (pi >= 0).all() and pi.sum() <= 1 + CLOSE and ((g > 0) & (g < 1)).all()
        yield Check(f"bets on {split} rows", pi.tolist(), "≥ 0, of sum 1", bool(good))
        count = np.maximum(np.rint(figures["counts"]), 0.0)
        loss = np.clip(figures["losses"], 0.0, n["loss_bound"] * count)
        for column, values in (("count", count), ("bounded_loss", loss)):
            found = {"strata": {column: values.tolist()}}
            found["cells"] = {column: (member @ values).tolist()}
            yield from compare(f"{split} rows as released", e[part], found)


# All of it


def verify(run: str | Path, rows: str | Path | None = None) -> list[Check]:
    """Check a run's folder, or its page: every comparison.

    Parameters
    ----------
    run
        What ``pffl run`` or ``pffl audit`` left.
    rows
        An npz file of prepared rows.

    Raises
    ------
    Unreadable
        A file is missing or cannot be read (a ValueError).
    """
    stated, model, run_file, checks = read_run(Path(run))
    try:
        e = present(stated["evidence"])
        e["proofs"] = present(e["proofs"])
        if model is not None:
            checks += check_declared(e, model, run_file)
        checks += check_cells(e)
        if e["privacy"]:
            checks += check_account(e)
            return [*checks, Check(NOISY, note=True)]
        checks += [*check_commitments(e), *check_conclusions(stated, e)]
        if rows is None or model is None:
            what = "no rows were given" if rows is None else "no model file is there"
            return [*checks, Check(f"{UNCHECKED}{what}", note=True)]
        checks += check_rows(e, model, read_rows(Path(rows), e, model))
    except Unreadable:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as bad:
        checks.append(Check("what the files hold", "can be computed", repr(bad), False))
    return checks


def judged(checks: Sequence[Check]) -> str:
    """Say in a few words what the checks come to."""
    many = sum(not check.note for check in checks)
    if wrong := sum(not check.agrees for check in checks):
        return f"NOT VERIFIED: {wrong} of {many} claims do not agree"
    told = [check.what for check in checks]
    if NOISY in told:
        return f"consistent: the privacy account adds up ({many} claims agree)"
    if any(what.startswith(UNCHECKED) for what in told):
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
