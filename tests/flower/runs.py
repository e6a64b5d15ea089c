"""Run files for deployed runs, and what the same run gives in one process."""

from __future__ import annotations

from pathlib import Path

import pffl
from pffl import config
from tests.datasets.compas_file import compas_file, is_cached, sha256

EXACT = 'kind = "exact"'
PFFL = 'kind = "pffl"\ndual_rounds = 2\nrounds_per_dual = 2'
BGL = 'kind = "bgl"\nbound = 0.65'
CBGL = 'kind = "cbgl"\nbound = 0.7'


def run_file(
    folder: Path,
    *,
    method: str = EXACT,
    constraint: str = BGL,
    policy: str = "",
    secure_sum: bool = False,
) -> str:
    """Return a run file over COMPAS in three silos.

    COMPAS itself where it is at hand; otherwise drawn people in the same layout.
    """
    source = ""
    if not is_cached():
        data = compas_file(3000)
        path = folder / "compas.csv"
        path.write_bytes(data)
        source = f'source = "{path}"\nsha256 = "{sha256(data)}"'
    return f"""
[data]
name = "compas"
silos = 3
seed = 0
{source}

[model]
kind = "logistic"

[constraint]
{constraint}

[method]
{method}

[run]
engine = "flower"
seed = 0
baseline = false

[policy]
{policy}

[privacy]
secure_sum = {str(secure_sum).lower()}
"""


def local(path: Path) -> pffl.Solution:
    """Run a run file in this process."""
    job = config.load(path).build()
    return pffl.solve(
        job.federation,
        job.constraint,
        model=job.model,
        method=job.method,
        options=job.options,
        seed=job.seed,
    )
