"""What the tests of the page lay out: people with difficult names."""

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
