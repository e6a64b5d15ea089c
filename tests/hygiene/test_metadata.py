"""The files around the code agree with each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)")


def requirements() -> list[str]:
    extras = PROJECT["optional-dependencies"].values()
    every = {*PROJECT["dependencies"], *(item for extra in extras for item in extra)}
    return sorted(item for item in every if not item.startswith("pffl["))


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    found = [PIN.fullmatch(line) for line in lines if not line.startswith("#")]
    assert None not in found, "constraints.txt holds something else than name==version"
    return {canonicalize_name(pin[1]): pin[2] for pin in found if pin}


@pytest.mark.parametrize("requirement", requirements())
def test_requirement_is_pinned_within_its_bounds(requirement: str) -> None:
    wanted = Requirement(requirement)
    pinned = pins()[canonicalize_name(wanted.name)]
    assert wanted.specifier.contains(pinned)


def test_citation_names_the_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in citation


def test_changelog_starts_with_unreleased() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    sections = [line for line in lines if line.startswith("## ")]
    assert sections[0] == "## [Unreleased]"
