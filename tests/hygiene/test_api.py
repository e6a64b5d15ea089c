"""Every public name has its place in the reference, and a docstring that is one."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import pffl
from pffl import figures

API = Path(__file__).parents[2] / "docs" / "api"
NAMES = [n for n in pffl.__all__ if n not in ("__version__", *pffl._MODULES)]
#: Set by the library when a model is bound to data; no parameters of a user's.
INTERNAL = {"inputs", "n_outputs", "target", "args", "kwargs"}
DATA_SETS = ("acs", "adult", "celeba", "compas", "synthetic")
SECTION = re.compile(r"^([A-Z]\w+)\n-+$", re.MULTILINE)


def sections(value: Any) -> dict[str, str]:
    """The sections of a docstring, by title."""
    parts = SECTION.split(inspect.getdoc(value) or "")
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_docstring_is_whole(name):
    value = getattr(pffl, name)
    found = sections(value)
    assert ">>> " in found.get("Examples", ""), "no running example"
    if inspect.isfunction(value):
        assert {"Parameters", "Returns", "Raises"} <= set(found)
    told = found.get("Parameters", "") + found.get("Attributes", "")
    if "…" not in told and name != "PFFLError":  # "and so on": see what is named
        parameters = set(inspect.signature(value).parameters) - INTERNAL
        assert {p for p in parameters if not re.search(rf"\b{p}\b", told)} == set()


def test_every_public_name_is_in_the_reference():
    told = (API / "index.md").read_text("utf-8")
    shown = set(re.findall(r"^   ([\w.]+)$", told, re.MULTILINE))
    wanted = {*NAMES, *(f"figures.{n}" for n in figures.__all__)}
    wanted |= {f"datasets.{n}" for n in DATA_SETS}
    assert wanted - shown == set()
    for name in shown:
        owner, _, own = f"pffl.{name}".rpartition(".")
        assert hasattr(importlib.import_module(owner), own), name
