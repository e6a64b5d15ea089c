"""docs/architecture.md tells the truth about the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pffl.queries import Query

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")


@pytest.mark.parametrize(
    "page", ["docs/architecture.md", "docs/deploy.md", "SECURITY.md"]
)
def test_every_query_is_told_of(page):
    text = (ROOT / page).read_text("utf-8")
    # Only what the package declares: tests add queries of their own.
    ours = {n: k for n, k in Query.kinds.items() if k.__module__.startswith("pffl.")}
    kinds = sorted(ours)
    assert [kind for kind in kinds if f"`{kind}`" not in text] == []


def test_every_file_that_the_walks_name_exists():
    names = {n for n in NAMED.findall(PAGE) if not n.startswith("src/")}
    assert names
    absent = [n for n in names if not (ROOT / "src" / "pffl" / n).is_file()]
    assert absent == []
