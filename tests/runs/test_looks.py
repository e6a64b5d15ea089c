"""Looks at held-out rows are counted by the folder, and paid (fault 84)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import pffl
from pffl import runs
from pffl.config import Job, parse
from pffl.experiments import compare
from pffl.runs import run as run_in
from tests.inside import LOOKS, Evidence, Judged, Look, Looks, conclude, read_looks

DATA = {"name": "synthetic", "rows": 400, "silos": 3, "seed": 1}


def job(bound: float, **more: Any) -> Job[Any]:
    section = {"kind": "bgl", "bound": bound}
    sections = {"data": DATA, "constraint": section, "run": {"seed": 0, **more}}
    return parse(sections).build()


def ran(place: Path, bound: float = 0.68) -> Evidence:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with runs.lock(place) as held:
            return run_in(job(bound), held, report=False).evidence


def paid(e: Evidence) -> tuple[int, int, int]:
    return e.terms.candidates, e.terms.later, e.terms.others


def test_later_certificates_have_less_and_less(tmp_path, command):
    """Audits of a run on its own rows come after it, and after each other."""
    ran(tmp_path / "run")

    def audited(name: str, *asked: str) -> Evidence:
        place = f"audits/{name}"
        assert command("audit", "run", "synthetic", *asked, "--out", place).code in (
            0,
            4,
        )
        found = runs.read_run(place)
        assert found.verified
        return found.evidence

    audited("trained", "--split", "train")  # says nothing of held-out rows
    for later, confidence in enumerate((0.9, 0.99, 0.8), start=1):
        found = audited(f"a{later}", "--certify", str(confidence))
        assert paid(found)[:2] == (1, later)
        delta = (1 - confidence) / (later * (later + 1))
        alone = replace(found.terms, confidence=1 - delta, later=0)
        expected = Judged(replace(found, terms=alone)).heldout.upper
        np.testing.assert_allclose(Judged(found).heldout.upper, expected, rtol=1e-9)
        assert command("verify", f"audits/a{later}").code == 0
    # What was stated before is stated again, as it was.
    assert paid(audited("again", "--certify", "0.99"))[:2] == (1, 2)


def compared(place: Path, bounds: list[float], prices: list[float]) -> None:
    compare(
        job(0.68).federation,
        pffl.BoundedGroupLoss(0.68),
        methods=["exact"],
        grid={"bound": bounds, "multiplier_bound": prices},
        seeds=1,
        out=place,
    )


def test_fault_84_a_grid_is_paid_by_the_run_that_was_chosen(tmp_path):
    alone = ran(tmp_path / "elsewhere" / "run")
    folder = tmp_path / "runs" / "compared"
    for _ in range(2):  # the second time nothing is looked at
        compared(folder, [0.66, 0.68, 0.7], [1.0, 10.0])
        assert len(read_looks(folder / LOOKS)) == 6
    for place in (folder / "chosen", tmp_path / "runs" / "one"):
        e = ran(place)
        many = 6 + 3  # and for each bound a run with another price or method
        assert paid(e) == (many, 0, 0)
        assert e.terms.counted
        delta = (1 - e.terms.confidence) / many
        terms = replace(alone.terms, confidence=1 - delta)
        expected = Judged(replace(alone, terms=terms)).heldout.upper
        np.testing.assert_allclose(Judged(e).heldout.upper, expected, rtol=1e-9)
        assert all(check.agrees for check in pffl.verify(place))


def test_fault_84_other_settings_could_not_be_checked(tmp_path):
    compared(tmp_path / "grid", [0.66, 0.7], [10.0])
    compare(
        job(0.68).federation,
        pffl.BoundedGroupLoss(0.7),
        methods=["fedavg"],
        budget=5,
        seeds=1,
        out=tmp_path / "compared",
    )
    e = ran(tmp_path / "first")
    assert paid(e) == (1, 0, 3)
    (ground,) = Judged(e).heldout.reuse
    assert ground.state == "could not be checked"
    assert conclude(e).certificate.of_kind("holdout")[0].available
    ran(tmp_path / "again", 0.69)
    last = runs.read_run(tmp_path / "again").evidence
    assert paid(last) == (1, 0, 4)
    assert all(check.agrees for check in pffl.verify(tmp_path / "again"))


def test_other_rows_and_damaged_logs_of_others_count_nothing(tmp_path):
    e = ran(tmp_path / "a" / "run")
    one = Look(["other rows"], "x", None, "p")
    assert paid(Looks((), ((one,),)).counted(e)) == (1, 0, 0)
    (tmp_path / "b" / "other").mkdir(parents=True)
    (tmp_path / "b" / "other" / LOOKS).write_text("{}\n")
    assert paid(ran(tmp_path / "b" / "run")) == (1, 0, 0)
