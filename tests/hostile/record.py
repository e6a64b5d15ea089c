"""Solve and judge every problem, and write down what was found.

python -m tests.hostile.record              # results.md
"""

from __future__ import annotations

import argparse
import os
import platform
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import pffl
from tests.hostile import problems, referee
from tests.hostile.referee import Finding

PROBLEMS = 720
STEP = 20
HERE = Path(__file__).with_name("results.md")


def examine_one(number: int) -> Finding:
    """Solve and judge one problem; an exception is a complaint, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hostile = problems.draw(number)
        try:
            return referee.examine(hostile)
        except Exception as error:
            complaint = f"exception: {type(error).__name__}: {error}"
            return Finding(number, "exception", [complaint], facts=hostile.facts)


def examine_many(numbers: Iterable[int]) -> Iterator[Finding]:
    """Judge several."""
    return map(examine_one, numbers)


def main() -> None:
    """Judge all problems in processes, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=PROBLEMS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    numbers = range(options.first, options.first + options.problems)
    found = []
    with ProcessPoolExecutor(options.processes) as pool:
        asked = [pool.submit(examine_one, number) for number in numbers]
        for done in as_completed(asked):
            one = done.result()
            found.append(one)
            print(len(found), one.number, one.status, *one.complaints, flush=True)
    options.out.write_text(page(found), encoding="utf-8")
    print(page(found))


def page(found: Sequence[Finding]) -> str:
    """What was found, as a page."""
    looked = Counter(
        complaint.split(":")[0] for one in found for complaint in one.complaints
    )
    statuses = Counter(one.status for one in found)
    kinds = Counter(str(one.facts["kind"]) for one in found)
    open_runs = [one for one in found if one.status == "not converged"]
    exact = [one for one in open_runs if one.facts["method"] == "exact"]
    raw = sum(not one.facts["standardize"] for one in exact)
    lines = [
        "# A hostile suite",
        "",
        f"{len(found)} random problems (tests/hostile/problems.py), solved by pffl "
        f"{pffl.__version__} and judged in long double by NumPy alone "
        "(tests/hostile/judge.py). Written by `python -m tests.hostile.record` on "
        f"Python {platform.python_version()}.",
        "",
        "| statement | false |",
        "|---|---|",
        f"| `met` | {looked['met']} |",
        f"| `infeasible` | {looked['infeasible']} |",
        f"| gap below the true one | {looked['gap']} |",
        f"| smallest bound that is beaten, or not attained | {looked['smallest']} |",
        f"| a number in the verdict on training rows | {looked['sentence']} |",
        f"| in the certificate | {looked['certificate']} |",
        f"| in its notes | {looked['notes']} |",
        f"| on held-out rows or unseen people | {looked['heldout']} |",
        f"| of `pffl feasible` (small tenth problems) | {looked['feasible']} |",
        f"| exceptions | {looked['exception']} |",
        "",
        "| status | problems |",
        "|---|---|",
        *(f"| {status} | {count} |" for status, count in statuses.most_common()),
        "",
        "| model | problems |",
        "|---|---|",
        *(f"| {kind} | {count} |" for kind, count in kinds.most_common()),
        "",
        f"Runs that did not converge, and say so: {len(open_runs)}, of them "
        f"{len(exact)} of Exact ({raw} on inputs of size 1e-10 to 1e12 that the model "
        "was told not to scale).",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
