"""The model card: what terminal and page say, in Markdown that names cannot break."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pffl
from pffl.config import load, parse
from pffl.errors import UsageError
from pffl.files import digest
from pffl.text import visible
from tests.cli.helpers import SMALL
from tests.cli.helpers import pffl as command
from tests.inside import About, plain
from tests.inside import reports_card_table as table
from tests.raising import raises

HOSTILE = (
    "a|b\n# c `d` *e* _f_ <script>alert(1)</script> [g](http://h.i) ![j](k) &amp; ~l~",
    "---\nlicense: mit\n--- 1. $x$ \\| www.m.n a@b.c \x1b[2J \u202e",
)


@cache
def solution(names: tuple[str, ...] = ("f", "m")) -> pffl.Solution:
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 400)
    X = rng.normal(size=(400, 2))
    y = np.where(X[:, 0] + rng.logistic(size=400) > 0, "yes", "no")
    federation = pffl.Federation.from_arrays(
        X,
        y,
        sensitive_features=np.array(names, dtype=object)[group],
        silo=np.zeros(400),
        name=names[0],
    )
    return pffl.solve(federation, pffl.BoundedGroupLoss(0.6), random_state=0)


def parts(card: str) -> tuple[Any, str]:
    """The header, parsed, and the rest."""
    yaml = pytest.importorskip("yaml")
    _, header, body = card.split(
        "\n---\n" if not card.startswith("---") else "---\n", 2
    )
    return yaml.safe_load(header), body


def html(body: str) -> str:
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark").enable("table").render(body))


def test_hostile_names_stay_names():
    found = solution(HOSTILE)
    about = About(HOSTILE[0], HOSTILE[1], None, HOSTILE[1], HOSTILE[0])
    stated = replace(found, evidence=replace(found.evidence, about=about))
    header, body = parts(stated.card())
    assert header["license"] == visible(HOSTILE[0])
    shown = html(body)
    for tag in ("<script", "<em", "<a ", "<img", "<del", "<h1>c"):
        assert tag not in shown
    cells = [unescape(c) for c in re.findall(r"<td[^>]*>(.*?)</td>", shown)]
    for name in HOSTILE:
        clean = " ".join(visible(name).split())
        assert clean in [" ".join(cell.split()) for cell in cells]
    assert len(set(re.findall(r"<h2>(.*?)</h2>", shown))) == 7
    assert "http://" not in body
    assert "www.m" not in body


@pytest.mark.parametrize("text", ["- a", "+ a", "1. a", "12) a", "# a", "> a", "==="])
def test_no_text_begins_a_block(text):
    assert html(plain(text)) == html("x").replace("x", html("y" + plain(text))[4:-5])
    assert plain("0.5 of it") == "0.5 of it"


def test_a_table_keeps_its_columns():
    rows = [{"a": "x|y", "b": "`|`"}, {"a": "", "b": "\\"}]
    shown = html(table(rows))
    cells = [unescape(c) for c in re.findall(r"<td[^>]*>(.*?)</td>", shown)]
    assert cells == ["x|y", "`|`", "", "\\"]
    assert table([]) == ""


# Stated in a run file, or later


def test_about_is_read_and_written_back(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        '[data]\nname = "synthetic"\n[about]\nowner = "Unit 7"\ndate = 2026-11-16\n'
    )
    spec = load(path)
    assert spec.about == About(owner="Unit 7", date="2026-11-16")
    assert 'owner = "Unit 7"' in spec.build().dump(tmp_path, seed=0)
    for wrong, code, named in (
        ({"date": "16.11.2026"}, "wrong-value", "2026-11-16"),
        ({"date": "2026-02-30"}, "wrong-value", "date"),
        ({"owner": " "}, "wrong-value", "owner"),
        ({"owner": 7}, "wrong-value", "owner"),
        ({"onwer": "x"}, "unknown-key", "owner"),
    ):
        with raises(UsageError, code, named):
            parse({"data": {"name": "synthetic"}, "about": wrong})


def test_from_the_command_line_and_later(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = command(
        capsys, "run", *SMALL, "--bound", "0.9", "--set", "about.owner=Unit 7"
    )
    assert made.code == 0
    place = Path("runs/synthetic-001")
    first = (place / "card.md").read_text("utf-8")
    assert "| Owner | Unit 7 |" in first
    again = command(capsys, "run", place, "--out", "again")
    assert (again.code, (Path("again") / "card.md").read_text("utf-8")) == (0, first)
    purpose, day = "about.purpose=a trial of 12 weeks", "about.date=2026-11-16"
    stated = ("--card", "--set", purpose, "--set", day)
    assert command(capsys, "report", place, *stated, "-o", "README.md").code == 0
    assert "a trial of 12 weeks" in Path("README.md").read_text("utf-8")
    card = (place / "card.md").read_text("utf-8")
    assert card == first  # the run stays as it was
    assert command(capsys, "verify", place).code == 0
    refused = command(capsys, "report", place, "--card", "--set", "about.date=soon")
    assert (refused.code, refused.error) == (2, "wrong-value")
    # A figure that was changed, with the manifest made to fit.
    figure = next(iter(re.findall(r"0\.\d{4}", card)))
    forge(place, "card.md", card.replace(figure, "0.4321", 1))
    assert "model card" in command(capsys, "verify", place, "--arithmetic").out


def forge(place: Path, name: str, text: str) -> None:
    (place / name).write_text(text, "utf-8")
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["files"][name] = digest(text.encode())
    (place / "manifest.json").write_text(json.dumps(manifest))
