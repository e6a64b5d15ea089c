"""The first screen of a run: its figures are those of result.json, and it fits.

Figures, places and words of verdicts are compared; no sentence is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.helpers import Command, Outcome

KINDS = {
    "missed (false negatives)": "false_negative",
    "false alarms": "false_positive",
    "errors": "error",
    "selected": "selected",
}
NUMBER = re.compile(r"▲?\d[\d,]*\.?\d*")
SIGNS = "✓✗!–"
ROWS = ("training", "test", "new people")


def table(rows: int = 900) -> None:
    """Draw people: two groups, two classes, three classes, a number."""
    draw = np.random.default_rng(3)
    lines = ["x,z,g,s,two,three,amount"]
    for i in range(rows):
        group, x, z = "ab"[draw.integers(2)], draw.normal(), draw.normal()
        two = "yes" if x + draw.normal() * (0.8 + (group == "b")) > 0.3 else "no"
        three = ("low", "mid", "high")[min(2, int(abs(x + z) + draw.random() / 2))]
        amount = 3 * x + z + draw.normal() * (1 + (group == "b"))
        lines.append(
            f"{x:.4f},{z:.4f},{group},s{i % 3},{two},{three},{20 + amount:.3f}"
        )
    Path("people.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def about(label: str, *more: str) -> tuple[str, ...]:
    others = {"two", "three", "amount"} - {label}
    columns = ("--label", label, "--group", "g", "--silo", "s", "--seed", "0")
    return ("run", "people.csv", *columns, "--drop", ",".join(sorted(others)), *more)


def result(place: str = "here") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(place, "result.json").read_text("utf-8"))
    return found


def lines_of(seen: Outcome) -> list[str]:
    return [line.rstrip() for line in seen.out.splitlines()]


def losses(seen: Outcome) -> dict[str, list[str]]:
    """Rows of the first table: what stands in brackets, then the losses, as text."""
    lines = lines_of(seen)
    start = next(i for i, line in enumerate(lines) if line.startswith("mean "))
    found = {}
    for line in lines[start + 1 : lines.index("", start)]:
        name, _, rest = line.partition("(")
        found[name.strip()] = NUMBER.findall(rest.replace(")", " "))
    return found


def rates(seen: Outcome) -> dict[str, list[str]]:
    """Rows of the second table: its entries by title, all columns but the first."""
    lines = lines_of(seen)
    start = next((i for i, line in enumerate(lines) if line.startswith("on ")), None)
    if start is None:
        return {}
    found = {}
    for line in lines[start + 2 : lines.index("", start)]:
        title, *entries = re.split(r"\s{2,}(?!\d+ %(?:\s|$))", line)
        found[title.partition(" (" if "selected" in title else "\0")[0]] = entries
    return found


def verdicts(seen: Outcome) -> dict[str, tuple[str, str]]:
    """Sign and word by row."""
    found = {}
    for line in lines_of(seen):
        if line[:1] in SIGNS and line[:1] and line[1:2] == " ":
            title, word = line[2:14].strip(), line[15:29].strip()
            found[title] = (line[0], word)
    return found


def percent(text: str) -> float:
    return 0.0 if text.startswith("<") else float(text.split()[0])


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("constraint", ["bgl", "cbgl"])
def test_every_figure_is_that_of_result_json(
    command: Command, monkeypatch: pytest.MonkeyPatch, width: int, constraint: str
) -> None:
    table()
    monkeypatch.setenv("COLUMNS", str(width))
    bound = ("--constraint", constraint, "--bound", "0.62", "--out", "here")
    seen, found = command(*about("two", *bound)), result()
    assert max(map(len, lines_of(seen))) <= width
    shown = losses(seen)
    assert set(shown) == {cell["cell"] for cell in found["cells"]}
    for cell in found["cells"]:
        count, *figures = shown[cell["cell"]]
        assert count == f"{cell['count']:,}"
        keys = ("before_train_loss", "train_loss", "test_loss", "bound")
        for text, key in zip(figures, keys, strict=True):
            digits = len(text.partition(".")[2])
            assert digits >= 3
            half = 0.5 * 10**-digits
            assert float(text.lstrip("▲")) == pytest.approx(cell[key], abs=half)
            over = key == "test_loss" and cell[key] > cell["bound"]
            over |= key == "train_loss" and cell["violation"] > 1e-6
            assert text.startswith("▲") == over
    if width >= 80:
        entries = rates(seen)
        assert set(entries) == set(KINDS)
        for title, kind in KINDS.items():
            for text, group in zip(entries[title], found["groups"], strict=False):
                before, now = map(percent, text.split("→"))
                rate = group[kind]
                assert 100 * rate["unconstrained"] == pytest.approx(before, abs=0.5)
                assert 100 * rate["value"] == pytest.approx(now, abs=0.5)
        before, now = map(percent, entries["errors"][-1].split("→"))
        assert 100 * found["before"]["test"]["error"] == pytest.approx(before, abs=0.05)
        assert 100 * found["test"]["error"] == pytest.approx(now, abs=0.05)
        ratio = entries["selected"][-1].removeprefix("ratio").split("→")
        for text, key in zip(ratio, ("unconstrained", "value"), strict=True):
            selected = [group["selected"][key] for group in found["groups"]]
            low, high = min(selected), max(selected)
            assert float(text) == pytest.approx(low / high, abs=0.005)
    said = [one["verdict"] for one in found["verdicts"].values()]
    assert [verdicts(seen)[row][1] for row in ROWS] == said
    certificate = json.loads(Path("here/certificate.json").read_text("utf-8"))
    assert [one["verdict"] for one in certificate["verdicts"].values()] == said


def test_rates_of_the_model_without_bounds_are_those_of_a_run_without(
    command: Command,
) -> None:
    table()
    command(*about("two", "--bound", "0.6", "--out", "here"))
    command(*about("two", "--out", "free"))
    for bound, free in zip(result()["groups"], result("free")["groups"], strict=True):
        for kind in KINDS.values():
            assert bound[kind]["unconstrained"] == pytest.approx(free[kind]["value"])


def test_several_classes_have_errors_only_and_numbers_no_rates(
    command: Command,
) -> None:
    table()
    seen = command(*about("three", "--bound", "1.2"))
    assert set(rates(seen)) == {"errors"}
    model = ("--model", "least-squares", "--bound", "9")
    seen = command(*about("amount", *model, "--out", "here"))
    assert rates(seen) == {}
    assert set(losses(seen)) == {"a", "b"}
    assert verdicts(seen)["new people"][1] == "not measured"  # no range of targets


def test_without_test_rows_nothing_is_said_of_them(command: Command) -> None:
    table()
    seen = command(*about("two", "--bound", "0.7", "--set", "data.test_fraction=0"))
    assert {row: verdicts(seen)[row] for row in ROWS[1:]} == {
        "test": ("–", "not measured"),
        "new people": ("–", "not measured"),
    }
    assert all(len(figures) == 4 for figures in losses(seen).values())
    assert set(rates(seen)) == set(KINDS)  # of the training rows
