"""A run file with a budget, over drawn people in three silos, and sites' budgets."""

from __future__ import annotations

import re
from pathlib import Path


def noisy_run_file(people: int, more: str = "") -> str:
    """Return a run file: drawn people, noise with ε = 2, secure sums."""
    return f"""
[data]
name = "synthetic"
rows = {people}
silos = 3
features = 4
groups = ["f", "m"]
seed = 0

[model]
kind = "logistic"

[constraint]
kind = "bgl"
bound = 0.68

[method]
kind = "exact"

[run]
engine = "flower"
seed = 0

[policy]
seconds = 150.0
join_seconds = 300.0

[privacy]
secure_sum = true
epsilon = 2.0
range = ["number 1=-5,5", "flag 1=0,1", "count 1=0,20", "number 2=-5,5"]
{more}
"""


def budget_of(site: Path, epsilon: str) -> str:
    """Set what a site allows; return what it allowed before."""
    path = site / "site.toml"
    text = path.read_text()
    found = re.search(r"^epsilon = (\S+)", text, re.M)
    assert found is not None
    path.write_text(text.replace(found[0], f"epsilon = {epsilon}"))
    return found[1]
