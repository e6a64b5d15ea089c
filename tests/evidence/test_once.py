"""Every figure of a run is computed once, and few files take part in a run."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

import pffl
from tests.golden.runs import Data, command
from tests.inside import Judged, evidence_conclude, figures

MOST_FILES = 70  # 60 is the aim
HERE = Path(pffl.__file__).parent


@pytest.fixture
def run(tmp_path):
    pytest.importorskip("jinja2")
    data = Data(tmp_path)

    def started(out):
        asked = ("--constraint", "cbgl", "--bound", "0.7", "--seed", "0", "--out", out)
        found = command(tmp_path, "run", "compas", *asked, *data.settings("compas"))
        assert found.code == 0
        assert (tmp_path / out / "report.html").is_file()

    return started


def test_every_figure_of_a_run_is_computed_once(run, monkeypatch):
    """Terminal, page, card and both JSON files read the same conclusions."""
    seen = Counter()

    def counted(owner, name):
        own = getattr(owner, name)

        def call(*args, **more):
            seen[name] += 1
            return own(*args, **more)

        monkeypatch.setattr(owner, name, call)

    counted(evidence_conclude, "statements")
    counted(evidence_conclude, "rates")
    counted(figures, "upper_ends")
    counted(Judged, "losses_of")
    run("out")
    assert seen == {"statements": 1, "rates": 1, "upper_ends": 1, "losses_of": 2}


def test_few_of_our_files_take_part_in_a_run(run):
    """A second run, so that no import counts."""
    run("first")
    files = set()

    def called(frame, event, _):
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(called)
    try:
        run("second")
    finally:
        sys.setprofile(None)
    ours = sorted(str(Path(f).relative_to(HERE)) for f in files if str(HERE) in f)
    assert len(ours) <= MOST_FILES, " ".join(ours)
