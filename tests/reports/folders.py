"""What the tests of the page lay out: people with difficult names, and sweeps."""

from typing import Any

import numpy as np

import pffl

NASTY = "<script>alert(1)</script>"
LONG = "Female × Asian-Pac-Islander × never married"
#: Sixty characters, right to left, emoji, a German word, one that cannot be broken.
NAMES = (
    NASTY,
    "Female × Asian-Pac-Islander × never married × income over av",
    "العربية والعبرية עברית 12",
    "👩🏽‍🦽‍➡️ family 👨‍👩‍👧‍👦",
    "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz",
    "a" * 60,
)


def federation(groups: Any = (NASTY, LONG), rows: int = 800) -> pffl.Federation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 3))
    group = np.asarray(groups, dtype=object)[rng.integers(0, len(groups), rows)]
    y = np.where(X[:, 0] + rng.normal(size=rows) > 0, "yes", "no")
    return pffl.Federation.from_arrays(
        X,
        y,
        sensitive_features={"kind": group},
        silo=rng.integers(0, 3, rows),
        validation_fraction=0.2,
        synthetic=True,
        name="nasty & small",
    )


def sweep_of(points: int) -> list[dict[str, Any]]:
    """Rows of a sweep, with figures out of thin air."""
    rng = np.random.default_rng(0)
    said = "Every bound is met on the training rows, as one would hope of a sentence."
    return [
        {
            "key": str(i),
            "notion": "bgl",
            "bound": round(0.5 + 0.2 * i / points, 6),
            "multiplier_bound": 1.0,
            "status": "met",
            "reason": None,
            "verdicts": dict.fromkeys(
                ("training", "test", "new_people"), f"{said} {i}"
            ),
            "cells": [
                {
                    "cell": f"g{z}",
                    "bound": round(0.5 + 0.2 * i / points, 6),
                    "train_loss": 0.5 + 0.1 * rng.random(),
                    "test_loss": 0.5 + 0.1 * rng.random(),
                    "test_upper": 0.6 + 0.1 * rng.random(),
                    "violation": 0.0,
                }
                for z in range(4)
            ],
            "test_error": rng.random(),
            "test_error_low": 0.1,
            "test_error_high": 0.9,
            "test_worst_cell_loss": rng.random(),
            "test_risk": 0.5,
        }
        for i in range(points)
    ]


def panel_of(*curves: str) -> dict[str, Any]:
    """A panel of the paper, run again, with figures out of thin air."""
    front = [
        {"curve": curve, "error": 0.3 + i / 100, "risk": 0.5 - i / 100}
        | {"risk_low": 0.4, "risk_high": 0.6}
        for curve in curves
        for i in range(3)
    ]
    decided = {"curve": curves[-1], "mean": -0.1, "low": -0.2, "high": 0.1}
    decided |= {"permuted_low": -0.3, "permuted_high": 0.2, "adjusted": 0.4}
    decided |= {"word": "no difference shown", "pairs": 10, "seeds": 10}
    means = {"risk": 0.5, "error": None, "passes": 12.0}
    claim = {"text": "it is better", "better": curves[0], "margin": 0.0}
    rows = {str(seed): [0.3, 0.5 + seed / 100] for seed in range(10)}
    points = [{"curve": curve, "validation": rows, "test": rows} for curve in curves]
    return {
        "format": "pffl.panel",
        "version": 2,
        "name": "compas-bgl",
        "title": f"COMPAS {NASTY}",
        "measure": "risk",
        "terms": ["10 seeds.", NASTY],
        "fronts": front,
        "fronts_on_test": front,
        "means": [{"curve": curve, **means} for curve in curves],
        "within": 0.02,
        "rows": {"train": 300, "test": 100},
        "points": points,
        "claims": [{**claim, "against": [decided]}],
    }
