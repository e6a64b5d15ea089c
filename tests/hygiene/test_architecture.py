"""docs/architecture.md tells the truth about the tree."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from benchmarks import house
from pffl.questions import Question
from tests.engines.sites import one_round

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
INDEX = re.compile(r"^\| ([^|]+) \| `(src/[^`]+)` \|$", re.MULTILINE)
PRIVACY = {"site/guard.py", "wire/keys.py", "wire/masks.py"}
NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")


def test_the_index_has_thirty_terms_and_every_path_exists() -> None:
    terms = dict(INDEX.findall(PAGE))
    assert len(terms) >= 30
    assert [path for path in terms.values() if not (ROOT / path).is_file()] == []
    assert list(terms) == sorted(terms, key=str.lower)


@pytest.mark.parametrize(
    "page", ["docs/architecture.md", "docs/deploy.md", "SECURITY.md"]
)
def test_every_question_is_told_of(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    # Only what the package declares: tests add questions of their own.
    ours = {n: k for n, k in Question.kinds.items() if k.__module__.startswith("pffl.")}
    kinds = sorted(ours)
    assert [kind for kind in kinds if f"`{kind}`" not in text] == []
    if page != "docs/architecture.md":
        assert len(kinds) == 10
        assert "ten questions" in text


def test_every_file_that_the_walks_name_exists() -> None:
    names = {n for n in NAMED.findall(PAGE) if not n.startswith("src/")}
    assert names
    absent = [n for n in names if not (ROOT / "src" / "pffl" / n).is_file()]
    assert absent == []


def section(title: str) -> set[str]:
    """Files that a section of the page names."""
    return set(NAMED.findall(PAGE.partition(f"## {title}")[2].partition("\n## ")[0]))


def test_the_walks_are_what_is_walked() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run, deployed = house.trace(house.run_command), house.trace(one_round)
    assert section("The walk of a row") - {file for file, _ in run} == set()
    assert section("The walk of a round") - {file for file, _ in deployed} == set()
    # What a site counts, masks and signs, and by which lies are found, is beside it.
    assert len({file for file, _ in deployed} - PRIVACY) <= 20
