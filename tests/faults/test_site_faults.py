"""Faults 23, 57, 60 and 64, at a site: what the server asks is not what it gets."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np
import pytest

from pffl.queries import Census, Evaluate, Expand
from pffl.site import Rules, Site
from pffl.wire import PROTOCOL, read_answer
from tests.site.sites import (
    OPEN,
    ask,
    census,
    message,
    problem_of,
    refusals_of,
    send,
    small_site,
)

VICTIM = 1  # atom (f, class 1), which has one row


def attack(site: Site, size: float = 1.0) -> tuple[np.ndarray, list[str]]:
    """Ask for the loss at w = size·e_1 … size·e_p, and invert it for the one row."""
    alone = small_site(f1=1)
    task = problem_of(alone).task
    learnt, refusals = np.full(task.model.n_parameters, np.nan), []
    for j, w in enumerate(size * np.eye(task.model.n_parameters)):
        answer = send(site, Evaluate(task, w, "train"), (0, j))
        if answer.refusal:
            refusals.append(answer.refusal)
            continue
        loss = answer.bodies[0].arrays["atoms"][VICTIM, 1]
        learnt[j] = -np.log(np.expm1(loss)) / size if loss > 0 else np.nan
    return learnt, refusals


def record() -> np.ndarray:
    """The scaled inputs of the one row, and 1 for the intercept."""
    site = small_site(f1=1)
    rows = site.silo.rows("train")
    atoms = site.schema.atoms(rows.group, rows.y)
    inputs = problem_of(site).task.model.inputs
    return np.append(inputs.apply(rows.X[atoms == VICTIM])[0], 1.0)


def test_060_without_rules_the_probe_reads_a_record() -> None:
    """The attack works where nothing stops it; otherwise these tests show nothing."""
    learnt, refusals = attack(small_site(OPEN, f1=1))
    assert refusals == []
    assert learnt == pytest.approx(record(), rel=1e-9)


def test_060_floor_stops_the_probe() -> None:
    learnt, refusals = attack(small_site(Rules(), f1=1))
    assert refusals == []
    assert np.isnan(learnt).all()


def test_023_nothing_that_leaves_depends_on_who_is_in_a_withheld_cell() -> None:
    """Labels of withheld rows swapped within their group: all cells stay the same."""
    one = small_site(Rules(floor=10), f1=4, f0=6)
    two = small_site(Rules(floor=10), f1=6, f0=4)
    for site in (one, two):
        rows = site.silo.rows("train")
        assert (rows.group[:10] == 0).all()
    a, b = (ask(site, census(site)) for site in (one, two))
    assert a.counts.tolist() == b.counts.tolist() == [[0, 0, 40, 40]]
    task = problem_of(small_site(f1=4, f0=6)).task
    w = np.full(task.model.n_parameters, 0.1)
    a, b = (ask(s, Evaluate(task, w, "train"), (0, 2)) for s in (one, two))
    assert a.cells == pytest.approx(b.cells, rel=1e-12)
    assert a.atoms == pytest.approx(b.atoms, rel=1e-12)


def test_057_another_version_schema_or_protocol_is_refused(tmp_path: Path) -> None:
    site = small_site(OPEN, tmp_path)
    refusal = send(site, census(site), version="9.9").refusal
    assert "9.9" in refusal
    assert refusals_of(tmp_path)[0].refused == refusal
    refusal = send(site, census(site), schema="ab" * 32).refusal
    assert "abababababab" in refusal
    assert site.schema.hash[:12] in refusal
    content = message(site, census(site))
    ours, theirs = (f'\\"protocol\\": {n}'.encode() for n in (PROTOCOL, PROTOCOL + 1))
    other = content.replace(ours, theirs)
    assert other != content
    assert f"protocol {PROTOCOL}" in read_answer(site.answer(other)).refusal


def test_064_debug_logs_hold_no_group_figure(
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Counts that would be recognised appear in no log, file or stream."""
    caplog.set_level(logging.DEBUG)
    site = small_site(Rules(floor=10), tmp_path, f0=1237, f1=1553, m0=7, m1=1019)
    task = problem_of(small_site(f0=1237, f1=1553, m0=7, m1=1019)).task
    w = np.full(task.model.n_parameters, 0.1)
    for number, query in enumerate(
        [Census(site.schema), Evaluate(task, w, "train"), Expand(task, w, 2)]
    ):
        assert not send(site, query, (0, number)).refusal
        assert send(site, query, (0, number)).refusal
    seen = [record.getMessage() for record in caplog.records]
    streams = capfd.readouterr()
    files = [path.read_text() for path in tmp_path.iterdir() if path.is_file()]
    text = "\n".join([*seen, streams.out, streams.err, *files])
    # As whole numbers: parts of hashes, of lock numbers and of times are no figures.
    found = re.findall(r"(?<![0-9a-f.])(?:1237|1553|1019)(?![0-9a-f])", text)
    assert not found
