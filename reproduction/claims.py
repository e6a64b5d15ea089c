"""From records to words: what each claim of the paper comes to, on these draws.

Every claim says that one method is better than another in one panel of a figure. Its
estimand is the hypervolume of the front that a method's validation rows choose,
measured on test rows. A word must stand at three reference points. Statistics are those
of `pffl.experiments`; nothing is decided here but what is compared with what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pffl.experiments import Decision, Judgement, choose, judge
from pffl.numerics import front
from pffl.typing import FloatArray
from reproduction.bench import UNIT

# Reference points: (times the loss, plus the error) of the worse of both baselines.
REFERENCES = ((1.10, 0.05), (1.15, 0.08), (1.25, 0.12))
SHOWN = 1  # of them, in tables
SAME_AREA = 0.05  # of FedAvg's hypervolume
SAME = 0.005  # of a loss, a gap or an error
ALLOWANCES = (0.0, 0.01, 0.02)  # of error, above FedAvg's on validation rows
ADDED = {  # what a method may choose in addition to its own models
    "PFFL, ridge searched": ("PFFL", "FedAvg"),
    "FedMinMax": (),
    "weighted FedAvg": (),
    "FedAvg": (),
}
GROUPS = ("bgl", "cbgl-y1", "cbgl-y0")
COLUMNS = {"bgl": "BGL", "cbgl-y1": "CBGL, Y = 1", "cbgl-y0": "CBGL, Y = 0"}
COLUMNS |= {"dp": "ΔDP", "eo": "ΔEO", "silos": "every silo"}
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """`first` is better than (or like) `second`, in one panel."""

    figure: str
    study: str
    panel: str
    first: str
    second: str
    paper: str = "better"

    @property
    def text(self) -> str:
        """Pairs that are compared."""
        return f"{self.first} against {self.second}"


def _claims() -> list[Claim]:
    out = [
        Claim("figure1", "acs", "bgl", "PFFL", "local BGL"),
        Claim("figure1", "acs", "bgl", "local BGL", "FedAvg"),
    ]
    for study in ("compas", "acs", "celeba", "celeba-pixels"):
        for panel in GROUPS:
            others = ("FedAvg", "weighted FedAvg", "local BGL")
            others = others if study in ("compas", "acs") else others[:1]
            out += [Claim("figure2", study, panel, "PFFL", other) for other in others]
    for study in ("compas-parity", "acs-parity"):
        for panel in ("dp", "eo"):
            out.append(Claim("figure3", study, panel, "PFFL", "FedAvg"))
            for first in ("PFFL", "PFFL (BGL)"):
                for second in ("FedFB", "FedFair", "FCFL"):
                    out.append(
                        Claim("figure3", study, panel, first, second, "not worse")
                    )
            second = "FedFB, group as input"
            out.append(Claim("figure3", study, panel, "PFFL", second, "not said"))
    out += [
        Claim("fedminmax", study, "bgl", "PFFL", "FedMinMax", "not worse")
        for study in ("compas", "acs")
    ]
    out += [
        Claim("qffl", "compas-silos", "silos", "PFFL", "q-FFL", "same"),
        Claim("qffl", "compas-silos", "silos", "PFFL", "FedAvg"),
        Claim("qffl", "compas-silos", "silos", "q-FFL", "FedAvg"),
    ]
    out += [Claim("everybody", "acs-all", p, "PFFL", "FedAvg") for p in GROUPS]
    for panel in GROUPS:
        names = ("PFFL, ridge searched", "FedAvg, ridge searched")
        out.append(Claim("ridge", "compas", panel, *names, "not said"))
    for panel in GROUPS:
        names = ("Algorithm 1", "PFFL, same points")
        out.append(Claim("algorithm1", "compas", panel, *names, "same"))
    return out


CLAIMS = _claims()


def hypervolume(points: ArrayLike, reference: Sequence[float]) -> float:
    """Return the area that points dominate, up to a reference point.

    Both coordinates are better when smaller; points beyond the reference count nothing.

    >>> hypervolume([[0.2, 0.6], [0.3, 0.5]], (0.4, 0.7))
    0.03
    """
    values = np.asarray(points, dtype=float).reshape(-1, 2)
    inside = values[(values < np.asarray(reference)).all(axis=1)]
    ordered = inside[front(inside)]
    ordered = ordered[np.argsort(ordered[:, 0])]
    tops = np.concatenate([[reference[1]], ordered[:-1, 1]])
    area = ((reference[0] - ordered[:, 0]) * (tops - ordered[:, 1])).sum()
    return round(float(area), 12)


def chosen_front(validation: ArrayLike, test: ArrayLike) -> FloatArray:
    """Return the test values of the points that no other beats on validation rows.

    Both have a row for each trial and the columns (error, measure). What a choice by
    test rows would show is ``chosen_front(test, test)``.
    """
    chosen = front(np.asarray(validation, dtype=float).reshape(-1, 2))
    return np.asarray(test, dtype=float).reshape(-1, 2)[chosen]


@dataclass(frozen=True)
class Finding:
    """What a claim comes to.

    Attributes
    ----------
    words
        Conditional on the data, and for the population; "open" unless the same word
        stands at all reference points.
    area
        The decision at the shown reference point, in parts of FedAvg's hypervolume.
    wins
        Share of draws on which the first has the larger hypervolume.
    losses, errors
        Conditional differences at each allowance of error; the intervals are at 95 %.
    headroom
        FedAvg's worst training loss less the smallest possible.
    """

    claim: Claim
    words: tuple[str, str]
    area: Judgement
    wins: float
    losses: tuple[Decision, ...]
    errors: tuple[Decision, ...]
    headroom: float | None


def table(record: Record, panel: str, arm: str) -> list[np.ndarray]:
    """Return for each draw the rows of a method's models, those it may add included."""
    added = ADDED.get(arm, ("FedAvg",))
    out = []
    for draw in record["draws"]:
        rows = [row for name in (arm, *added) for row in draw[panel].get(name, [])]
        out.append(np.array(rows if arm in draw[panel] else [], float).reshape(-1, 4))
    return [rows / UNIT for rows in out]


def reference(record: Record, panel: str, number: int) -> tuple[float, float]:
    """Return a reference point (error, measure), from validation rows of baselines."""
    times, plus = REFERENCES[number]
    names = [n for n in ("FedAvg", "weighted FedAvg") if n in record["draws"][0][panel]]
    means = [
        np.mean([r[0, :2] for r in table(record, panel, n)], axis=0) for n in names
    ]
    error, measure = np.max(means, axis=0)
    return float(error) + plus, times * float(measure)


def areas(record: Record, panel: str, arm: str, number: int) -> np.ndarray:
    """Return for each draw the hypervolume on test rows of the front chosen before."""
    corner = reference(record, panel, number)
    return np.array(
        [
            hypervolume(chosen_front(rows[:, :2], rows[:, 2:]), corner)
            if len(rows)
            else np.nan
            for rows in table(record, panel, arm)
        ]
    )


def chosen(record: Record, panel: str, arm: str, allowance: float) -> np.ndarray:
    """Return for each draw (error, measure) on test rows of the model chosen.

    Chosen is the smallest validation measure among models whose validation error is at
    most FedAvg's plus the allowance; a method with one model has no choice.
    """
    out = []
    free = table(record, panel, "FedAvg")
    for rows, base in zip(table(record, panel, arm), free, strict=True):
        limit = base[0, 0] + allowance if len(rows) > 1 else np.inf
        best = choose(rows[:, 0], rows[:, 1], limit=limit) if len(rows) else None
        out.append([np.nan, np.nan] if best is None else rows[best, 2:])
    return np.array(out, float)


def single(differences: Sequence[float] | np.ndarray) -> Decision:
    """Judge one difference alone: lower is better, at 95 %."""
    values = np.asarray(differences, float)
    values = values[~np.isnan(values)]
    return judge({"": values}, margin=SAME)[""].conditional


def findings(records: Mapping[str, Record], figure: str) -> list[Finding]:
    """Judge all claims of a figure together, as far as there are records."""
    claims = [
        c
        for c in CLAIMS
        if c.figure == figure
        and c.study in records
        and {c.first, c.second} <= set(records[c.study]["draws"][0][c.panel])
    ]
    judged = []
    for number in range(len(REFERENCES)):
        differences: dict[Any, np.ndarray] = {}
        for c in claims:
            record = records[c.study]
            first, second, free = (
                areas(record, c.panel, arm, number)
                for arm in (c.first, c.second, "FedAvg")
            )
            there = ~np.isnan(first) & ~np.isnan(second)  # some ran on some draws
            differences[c] = ((first - second) / (free.mean() or np.nan))[there]
        shared: dict[Any, float] = {c: records[c.study]["correlation"] for c in claims}
        words = judge(
            differences, better="higher", margin=SAME_AREA, correlation=shared
        )
        judged.append((differences, words))
    return [
        _finding(records[c.study], c, [(d[c], j[c]) for d, j in judged]) for c in claims
    ]


def _finding(
    record: Record, c: Claim, judged: Sequence[tuple[np.ndarray, Judgement]]
) -> Finding:
    words = [
        {getattr(found, column).word for _, found in judged}
        for column in ("conditional", "population")
    ]
    pairs = [
        chosen(record, c.panel, c.first, allowance)
        - chosen(record, c.panel, c.second, allowance)
        for allowance in ALLOWANCES
    ]
    return Finding(
        c,
        (_one(words[0]), _one(words[1])),
        judged[SHOWN][1],
        float(np.mean(judged[SHOWN][0] > 0)),
        tuple(single(pair[:, 1]) for pair in pairs),
        tuple(single(pair[:, 0]) for pair in pairs),
        headroom(record, c.panel),
    )


def _one(words: set[str]) -> str:
    return words.pop() if len(words) == 1 else "open"


def headroom(record: Record, panel: str) -> float | None:
    """Return how much a bound can gain at most, on training rows."""
    ends = [draw[panel].get("range") for draw in record["draws"]]
    if ends[0] is None:
        return None
    return float(np.mean([high - low for high, low in ends])) / UNIT


# "Fairer and more accurate"


@dataclass(frozen=True)
class Both:
    """How often a method beats FedAvg in loss and in error.

    Attributes
    ----------
    on_test
        Share of draws on which some model of it does on test rows.
    chosen
        Share of draws on which some model does on validation rows.
    fairer, more_accurate
        Of these: share whose chosen model has a lower loss, a lower error on test rows.
    loss, error
        Judgements of these differences, all panels of a study together.
    """

    on_test: float
    chosen: float
    fairer: float
    more_accurate: float
    loss: Judgement
    error: Judgement


def both(
    records: Mapping[str, Record], arm: str = "PFFL"
) -> dict[tuple[str, str], Both]:
    """Test the paper's headline: chosen on test rows, and chosen on validation rows."""
    found: dict[tuple[str, str], tuple[float, float, np.ndarray]] = {}
    for study in ("compas", "acs", "celeba", "celeba-pixels"):
        for panel in GROUPS if study in records else ():
            free = table(records[study], panel, "FedAvg")
            on_test, picked = [], []
            for rows, base in zip(table(records[study], panel, arm), free, strict=True):
                if not len(rows):
                    continue  # it ran on some draws only
                lower = rows < base[0] - 1e-12
                on_test.append((lower[:, 2] & lower[:, 3]).any())
                better = rows[lower[:, 0] & lower[:, 1]]
                if len(better):
                    picked.append(better[better[:, 1].argmin(), 2:] - base[0, 2:])
            share = len(picked) / max(1, len(on_test))
            differences = np.array(picked).reshape(-1, 2)
            mean = float(np.mean(on_test)) if on_test else np.nan
            found[study, panel] = (mean, share, differences)
    every: dict[Any, np.ndarray] = {
        (*key, i): d[:, i] for key, (_, _, d) in found.items() for i in (0, 1)
    }
    shared: dict[Any, float] = {k: records[k[0]]["correlation"] for k in every}
    judged: Any = judge(every, margin=SAME, correlation=shared)
    return {
        key: Both(
            on_test,
            share,
            *(float(np.mean(d[:, i] < 0)) if len(d) else np.nan for i in (1, 0)),
            judged[*key, 1],
            judged[*key, 0],
        )
        for key, (on_test, share, d) in found.items()
    }
