"""`python -m reproduction FIGURE`, from the root of a checkout."""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PFFL_THREADS"):
    os.environ.setdefault(name, "1")

import argparse  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

from pffl.errors import PFFLError  # noqa: E402
from reproduction import celeba, page, pictures  # noqa: E402
from reproduction.studies import FIGURES, STUDIES, Sources, load, run  # noqa: E402

HERE = Path(__file__).parent
WHAT = (*FIGURES, "celeba", "all", "page")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what a figure needs, then write pictures and page."""
    parser = argparse.ArgumentParser(
        "python -m reproduction",
        description="Run figures of the paper again; 'page' only draws and writes.",
    )
    parser.add_argument("figure", choices=WHAT)
    parser.add_argument("--acs", metavar="PATH", help="ACS extract or Census folder")
    parser.add_argument("--year", type=int, default=2024, help="of the ACS files")
    parser.add_argument("--celeba", metavar="FOLDER", help="CelebA's official files")
    parser.add_argument("--people", type=int, help="of CelebA, by default all")
    parser.add_argument("--seeds", type=int, help="how many draws of each study")
    parser.add_argument("--again", action="store_true", help="forget finished draws")
    parser.add_argument(
        "--out", type=Path, default=HERE, help="records, pictures, page"
    )
    given = parser.parse_args(arguments)
    acs = given.acs or os.environ.get("PFFL_ACS")
    sources = Sources(acs, given.year, given.celeba, given.people)
    figures = list(FIGURES) if given.figure == "all" else [given.figure]
    wanted = dict.fromkeys(s for f in figures for s in FIGURES.get(f, ()))
    known = STUDIES | {study.name: study for study in celeba.STUDIES}
    if given.figure == "celeba":
        wanted = dict.fromkeys(study.name for study in celeba.STUDIES)
    records = given.out / "records"
    try:
        for name in wanted:
            if given.again:
                (records / f"{name}.json").unlink(missing_ok=True)
            run(known[name], sources, records, given.seeds)
    except PFFLError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    found = load(records)
    for figure in FIGURES:
        pictures.save(figure, found, given.out / "figures")
    (given.out / "README.md").write_text(page.page(found), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
