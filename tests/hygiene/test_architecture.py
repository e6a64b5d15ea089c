"""CONTRIBUTING.md and the pages on queries tell the truth about the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pffl.queries import Query

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
TREE = PAGE[PAGE.index("### Five ideas") : PAGE.index("## Tests")]
NAMED = re.compile(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/deploy.md", "SECURITY.md"])
def test_every_query_is_named(page):
    text = (ROOT / page).read_text("utf-8")
    # Only what the package declares: tests add queries of their own.
    ours = {n: k for n, k in Query.kinds.items() if k.__module__.startswith("pffl.")}
    assert [kind for kind in sorted(ours) if f"`{kind}`" not in text] == []


def test_every_file_of_the_architecture_exists():
    names = set(NAMED.findall(TREE))
    assert len(names) > 30
    assert [n for n in names if not (ROOT / "src" / "pffl" / n).exists()] == []
