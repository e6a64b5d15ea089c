"""Frozen oracles are as they were recorded, and reach the product by one adapter."""

from __future__ import annotations

import pytest

from tests.frozen import ROOT, digest, imports, recorded

RECORDED = recorded()
ADVICE = (
    "This file is frozen. If the change is meant, say why in CHANGELOG.md and run "
    "`python -m tests.frozen`, in a commit of its own without changes of src/."
)


def test_the_oracles_are_frozen() -> None:
    assert len(RECORDED) >= 30


@pytest.mark.parametrize("path", RECORDED)
def test_a_frozen_file_is_as_recorded(path: str) -> None:
    assert (ROOT / path).is_file(), f"{path} is gone. {ADVICE}"
    source = (ROOT / path).read_text("utf-8")
    assert digest(source) == RECORDED[path], ADVICE
    ours = {name for name in imports(source) if name.partition(".")[0] == "pffl"}
    assert ours == set(), "import names of the product from tests.oracles"


def test_what_a_test_does_is_hashed_and_how_it_looks_is_not() -> None:
    plain = "import a\n\ndef test_b():\n    '''Words.'''\n    assert f(1) == 2\n"
    same = "from tests.c import f  # why\ndef test_b():\n  assert f( 1 ) == 2\n"
    assert digest(plain) == digest(same)
    for other in ("assert f(1) == 3", "assert f(1) >= 2", "assert True", "pass"):
        assert digest(plain.replace("assert f(1) == 2", other)) != digest(plain)
    assert digest("@slow\n" + plain[10:]) != digest(plain[10:])
