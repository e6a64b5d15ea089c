"""The page of results, written from the records: at most 150 lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pffl.experiments import Decision, Judgement
from reproduction import claims
from reproduction.claims import COLUMNS, Finding, Record, both, findings
from reproduction.studies import FIGURES, MORE, POINTS, STUDIES

PAPER = {
    "figure1": "ACS: bounds on all silos together beat bounds in each silo, and these "
    "beat FedAvg.",
    "figure2": "PFFL's trade-off between error and the largest group loss lies below "
    "FedAvg, group-weighted FedAvg and local BGL; it is fairer *and* more accurate.",
    "figure3": "PFFL's parity gaps are comparable to, or smaller than, those of FedFB, "
    "FedFair and FCFL at the same error.",
    "fedminmax": "PFFL's front is at least as good as FedMinMax, its special case "
    "(β, B, ζ) = (0, 1, 0).",
    "qffl": "With every silo a group, PFFL is comparable to q-FFL, and both are fairer "
    "and more accurate than FedAvg.",
}
TITLES = {
    "figure1": "Figure 1: global and local bounds",
    "figure2": "Figure 2: error and the largest group loss",
    "figure3": "Figure 3: parity gaps",
    "fedminmax": "FedMinMax",
    "qffl": "q-FFL: every silo a group",
}
HERE = Path(__file__).parent
NAMES = {"compas": "COMPAS", "acs": "ACS", "celeba": "CelebA", "acs-all": "ACS, all"}
NAMES |= {"celeba-pixels": "CelebA, pixels", "compas-silos": "COMPAS"}
NAMES |= {"compas-parity": "COMPAS", "acs-parity": "ACS"}
NO_CELEBA = (
    "CelebA's row is not drawn: there is no record of it. "
    "`python -m reproduction celeba --celeba FOLDER` makes one for those who have "
    "the files."
)


def share(value: float) -> str:
    """Write a share in percent; a dash if it is missing."""
    return "–" if np.isnan(value) else f"{100 * value:.0f} %"


def change(decision: Decision, scale: float = 1.0, digits: int = 4) -> str:
    """Write a mean difference with its interval."""
    found = decision.interval
    if found is None:
        return "–"
    ends = (found.mean, found.low, found.high)
    mean, low, high = (f"{scale * v:+.{digits}f}" for v in ends)
    unit = " %" if scale > 1 else ""
    return f"{mean}{unit} ({low} to {high})".replace("-", "−").replace("inf", "∞")


def row(found: Finding) -> str:
    """Write a claim as a line of its table."""
    c = found.claim
    free = "–" if found.headroom is None else f"{found.headroom:.3f}"
    cells = [
        f"{NAMES[c.study]} {COLUMNS[c.panel]}",
        c.text,
        c.paper,
        change(found.area.conditional, 100, 1),
        share(found.wins),
        f"**{found.words[0]}** / {found.words[1]}",
        change(found.losses[1]),
        change(found.errors[1]),
        free,
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = [
    "| panel | who | paper | hypervolume | draws won | word: data / population "
    "| loss at +.01 | error at +.01 | headroom |",
    "|---|---|---|---|---|---|---|---|---|",
]


def section(figure: str, records: Mapping[str, Record]) -> list[str]:
    """Write a figure: what the paper says, command, picture, claims."""
    studies = [name for name in FIGURES[figure] if name in records]
    if not studies:
        return []
    absent = [STUDIES[n].title for n in FIGURES[figure] if n not in records]
    note = f" Not run yet: {', '.join(absent)}." if absent else ""
    minutes = sum(records[name]["cpu_minutes"] for name in studies)
    return [
        f"## {TITLES[figure]}",
        "",
        f"The paper: {PAPER[figure]} Command: `python -m reproduction {figure}` "
        f"({minutes:.1f} CPU minutes).{note}",
        "",
        f"![{TITLES[figure]}](figures/{figure}.png)",
        "",
        *HEAD,
        *(row(found) for found in findings(records, figure)),
        "",
    ]


def summary(records: Mapping[str, Record]) -> list[str]:
    """Count the words of each figure."""
    lines = [
        "| figure | claims | better | same | worse | open |",
        "|---|---|---|---|---|---|",
    ]
    for figure in TITLES:
        words = [f.words[0] for f in findings(records, figure)]
        counts = [str(words.count(w)) for w in ("better", "same", "worse", "open")]
        if words:
            cells = [TITLES[figure], str(len(words)), *counts]
            lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def word(judgement: Judgement) -> str:
    """Write both words of a judgement."""
    return f"{judgement.conditional.word} / {judgement.population.word}"


def headline(records: Mapping[str, Record]) -> list[str]:
    """Write the test of "fairer and more accurate"."""
    other = both(records, "FedAvg, ridge searched")
    lines = [
        '## "Fairer and more accurate"',
        "",
        "Left, the paper's way: some model beats FedAvg in both on *test* rows. Right: "
        "a model is chosen that beats it in both on *validation* rows, and then "
        "measured on test rows. In brackets: FedAvg itself with another ridge.",
        "",
        "| panel | chosen on test rows: both | chosen on validation rows: possible "
        "| … loss lower | … error lower | loss: data / population | error: data / "
        "population | error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for key, b in both(records).items():
        o = other[key]
        cells = [
            f"{NAMES[key[0]]} {COLUMNS[key[1]]}",
            f"{share(b.on_test)} ({share(o.on_test)})",
            share(b.chosen),
            f"{share(b.fairer)} ({share(o.fairer)})",
            f"{share(b.more_accurate)} ({share(o.more_accurate)})",
            word(b.loss),
            word(b.error),
            change(b.error.conditional),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def extras(records: Mapping[str, Record]) -> list[str]:
    """Write what the paper does not compare: all people, ridge, Algorithm 1."""
    kinds = ("everybody", "ridge", "algorithm1")
    found = [one for kind in kinds for one in findings(records, kind)]
    return [
        "## Beside the paper",
        "",
        "On all people of ACS (three splits, so no word); with the ridge searched on "
        "both sides (l2 from 0.0001 to 1); and Algorithm 1 as printed (1,000 "
        "gradients, mean of all rounds) against the exact solution at the same bounds "
        "and multiplier bounds.",
        "",
        *HEAD,
        *map(row, found),
        "",
    ]


def page(records: Mapping[str, Record]) -> str:
    """Write the whole page."""
    corners = [f"× {times:g}, + {plus:g}" for times, plus in claims.REFERENCES]
    some = [name for name in ("compas", "acs") if name in records]
    lines = [
        "# The paper's figures, run again",
        "",
        "Hu, Wu and Smith, *Fair Federated Learning via Bounded Group Loss*. Written "
        "by `python -m reproduction page` from `records/`.",
        "",
        *summary(records),
        (HERE / "reading.md")
        .read_text("utf-8")
        .format(
            draws=", ".join(f"{NAMES[n]} {len(records[n]['draws'])}" for n in some),
            points=POINTS,
            more=MORE,
            corners=f"{corners[0]}; {corners[1]}, which is shown; {corners[2]}",
            area=share(claims.SAME_AREA),
            shared=share(records.get("acs", {}).get("shared_people", 0.0)),
            allowance=claims.ALLOWANCES[1],
            same=claims.SAME,
        ),
    ]
    for figure in TITLES:
        lines += section(figure, records)
        if figure == "figure2":
            if "celeba" not in records:
                lines += [NO_CELEBA, ""]
            lines += headline(records)
    return "\n".join([*lines, *extras(records)]).rstrip() + "\n"
