"""The figures as pictures: fixed colours, a band for every curve, SVG, PNG and PDF.

A curve goes through the models that validation rows choose at growing allowances of
error above FedAvg's; drawn are means over draws of their test figures. A band is the
95 % interval of the mean, these data given.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.claims import COLUMNS, Record, chosen, table

STYLES: dict[str, dict[str, Any]] = {
    "PFFL": {"color": "#0b6fb8", "lw": 2.0, "zorder": 5},
    "PFFL, paper's grid": {"color": "#0b6fb8", "ls": "--", "lw": 1.2},
    "PFFL, ridge searched": {"color": "#0b6fb8", "ls": ":", "lw": 1.2},
    "PFFL (BGL)": {"color": "#6db3e0", "lw": 1.6},
    "Algorithm 1": {"color": "#2a9d6f", "lw": 1.4},
    "local BGL": {"color": "#d1601f", "lw": 1.6},
    "FedAvg": {"color": "#444444", "marker": "s"},
    "FedAvg, ridge searched": {"color": "#444444", "ls": ":", "lw": 1.2},
    "weighted FedAvg": {"color": "#9a3a8a", "marker": "^"},
    "FedMinMax": {"color": "#b8860b", "marker": "D"},
    "q-FFL": {"color": "#b8860b", "lw": 1.6},
    "FedFB": {"color": "#c0392b", "lw": 1.6},
    "FedFB, group as input": {"color": "#c0392b", "ls": ":", "lw": 1.4},
    "FedFair": {"color": "#7d5ba6", "lw": 1.6},
    "FCFL": {"color": "#2a9d6f", "lw": 1.6},
}
BANDED = {"PFFL", "local BGL", "PFFL (BGL)", "FedFB", "FedFair", "FCFL", "q-FFL"}
POINTS = ("FedAvg", "weighted FedAvg", "FedMinMax")  # methods of one model
ALLOWANCES = np.arange(0.0, 0.0501, 0.0025)
OTHERS = {"FedFB", "FedFB, group as input", "FedFair", "FCFL", "PFFL (BGL)"}
GROUPS = tuple(name for name in STYLES if name not in OTHERS | {"FedMinMax", "q-FFL"})
PARITY = ("FedAvg", "PFFL", *(name for name in STYLES if name in OTHERS))
ROWS = {
    "figure1": ("acs",),
    "figure2": ("compas", "acs", "celeba", "celeba-pixels"),
    "figure3": ("compas-parity", "acs-parity"),
    "fedminmax": ("compas", "acs"),
    "qffl": ("compas-silos",),
}
PANELS = {
    "figure1": (("bgl",), ("FedAvg", "PFFL", "local BGL")),
    "figure2": (("bgl", "cbgl-y1", "cbgl-y0"), GROUPS),
    "figure3": (("dp", "eo"), PARITY),
    "fedminmax": (("bgl",), ("FedAvg", "PFFL", "FedMinMax")),
    "qffl": (("silos",), ("FedAvg", "PFFL", "PFFL, paper's grid", "q-FFL")),
}
MEASURES = {"dp": "ΔDP, test", "eo": "ΔEO, test", "silos": "largest silo loss, test"}


def interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means over draws, and half the width of their 95 % interval."""
    from scipy import stats

    n, mean = len(values), values.mean(axis=0)
    if n < 2:
        return mean, np.zeros_like(mean)
    return mean, stats.t.ppf(0.975, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)


def curve(record: Record, panel: str, arm: str) -> np.ndarray:
    """Return rows (error, measure, half width of the measure's band) of a curve.

    A method that ran on some draws only is drawn by its differences to FedAvg there.
    """
    free = np.array([rows[0, 2:] for rows in table(record, panel, "FedAvg")])
    out = []
    for allowance in ALLOWANCES:
        found = chosen(record, panel, arm, float(allowance))
        there = ~np.isnan(found).any(axis=1)
        mean, half = interval(found[there])
        out.append((*(mean - free[there].mean(axis=0) + free.mean(axis=0)), half[1]))
    return np.array(out)


def draw_panel(axes: Any, record: Record, panel: str, arms: tuple[str, ...]) -> None:
    """Draw one panel; the constant guess is a line if it is near the others."""
    for arm in arms:
        if arm not in record["draws"][0][panel]:
            continue
        style = STYLES[arm]
        if arm in POINTS:
            found = np.array([rows[0, 2:] for rows in table(record, panel, arm)])
            mean, half = interval(found)
            axes.errorbar(
                *mean, xerr=half[0], yerr=half[1], ls="", ms=6, capsize=2,
                label=arm, zorder=6, **style,
            )  # fmt: skip
            continue
        points = curve(record, panel, arm)
        axes.plot(points[:, 0], points[:, 1], label=arm, **style)
        if arm in BANDED:
            low, high = points[:, 1] - points[:, 2], points[:, 1] + points[:, 2]
            axes.fill_between(
                points[:, 0], low, high, color=style["color"], alpha=0.15, lw=0
            )
    guess = np.mean([r[0, 2:] for r in table(record, panel, "constant guess")], axis=0)
    low, high = axes.get_ylim()
    if low < guess[1] < high:
        axes.axhline(guess[1], color="#999999", ls=(0, (1, 3)), lw=1)
    axes.set_title(
        f"{record['title']}: {COLUMNS[panel]}\ndraws: {len(record['draws'])}; constant "
        f"guess: ({guess[0]:.2f}, {guess[1]:.2f})",
        fontsize=8,
    )
    axes.set_xlabel("error rate, test", fontsize=8)
    axes.set_ylabel(MEASURES.get(panel, "largest group loss, test"), fontsize=8)
    axes.tick_params(labelsize=7)
    axes.locator_params(axis="x", nbins=5)
    axes.grid(alpha=0.3)


def draw(figure: str, records: Mapping[str, Record]) -> Any:
    """Return a figure as far as there are records; None without any."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "pffl", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    (panels, arms), rows = PANELS[figure], [r for r in ROWS[figure] if r in records]
    if not rows:
        return None
    if len(panels) == 1:  # rows side by side
        shape = (1, len(rows))
        places = [(0, i, row, panels[0]) for i, row in enumerate(rows)]
    else:
        shape = (len(rows), len(panels))
        places = [
            (i, j, r, p) for i, r in enumerate(rows) for j, p in enumerate(panels)
        ]
    size = (3.6 * shape[1], 3.1 * shape[0] + 0.7)
    picture, axes = plt.subplots(*shape, figsize=size, squeeze=False)
    for i, j, row, panel in places:
        draw_panel(axes[i, j], records[row], panel, arms)
    handles = {}
    for panel in axes.flat[: len(places)]:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    picture.legend(
        handles.values(), handles, loc="lower center", fontsize=7, frameon=False,
        ncols=min(len(handles), 2 * shape[1]),
    )  # fmt: skip
    picture.tight_layout(rect=(0, 0.55 / size[1], 1, 1))
    return picture


def save(figure: str, records: Mapping[str, Record], folder: Path) -> None:
    """Write a figure as SVG, PNG and PDF."""
    import matplotlib.pyplot as plt

    picture = draw(figure, records)
    if picture is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    for ending, metadata in undated.items():
        picture.savefig(folder / f"{figure}.{ending}", dpi=110, metadata=metadata)
    plt.close(picture)
