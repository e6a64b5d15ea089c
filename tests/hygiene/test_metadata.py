"""The files around the code agree with each other."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "pffl"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = SETTINGS["project"]
FOR_TESTS = {"dev", "docs", "test"}
#: Imported under another name than they are installed by.
INSTALLED_AS = {"PIL": "pillow", "sklearn": "scikit-learn", "tomli_w": "tomli-w"}
#: Not installed with any extra: whoever calls the one function that needs it is told.
ASKED_FOR = {"fairlearn"}
#: Imported by pandas, not by us.
BY_PANDAS = {"openpyxl"}
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
def test_requirement_is_pinned_within_its_bounds(requirement):
    wanted = Requirement(requirement)
    pinned = pins()[canonicalize_name(wanted.name)]
    assert wanted.specifier.contains(pinned)


def test_what_is_imported_is_what_is_declared():
    imported = {name for path in SRC.rglob("*.py") for name in imports(path)}
    foreign = imported - sys.stdlib_module_names - {"pffl"} - ASKED_FOR
    extras = PROJECT["optional-dependencies"].items()
    own = [item for name, extra in extras if name not in FOR_TESTS for item in extra]
    declared = {Requirement(item).name for item in [*PROJECT["dependencies"], *own]}
    assert {INSTALLED_AS.get(n, n) for n in foreign} == declared - {"pffl"} - BY_PANDAS


def imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    plain = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    froms = [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    return {name.partition(".")[0] for name in (*plain, *froms)}


def test_settings_name_modules_that_exist():
    named = [
        m for part in SETTINGS["tool"]["mypy"]["overrides"] for m in part["module"]
    ]
    ours = [name.removesuffix(".*") for name in named if name.startswith("pffl")]
    places = [SRC.parent.joinpath(*name.split(".")) for name in ours]
    found = [p.is_dir() or p.with_suffix(".py").is_file() for p in places]
    assert [name for name, there in zip(ours, found, strict=True) if not there] == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("CITATION.cff", "\nversion: {}\n"),
        ("recipe/recipe.yaml", 'version: "{}"'),
        ("src/pffl/__init__.py", '__version__ = "{}"'),
    ],
)
def test_versions_agree(name, said):
    assert said.format(PROJECT["version"]) in (ROOT / name).read_text("utf-8")


def test_the_recipe_has_the_dependencies_of_the_project():
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text("utf-8")
    parts = dict(re.findall(r"^  (host|run):\n((?:    - .*\n)+)", recipe, re.MULTILINE))
    listed = {
        key: {line.replace(" ", "").removeprefix("-") for line in part.splitlines()}
        for key, part in parts.items()
    }
    python = f"python{PROJECT['requires-python']}"
    assert listed["run"] == {python, *PROJECT["dependencies"]}
    assert listed["host"] == {python, "pip", *SETTINGS["build-system"]["requires"]}


def test_python_versions_are_those_that_are_tested():
    matrix = (ROOT / "tests" / "matrix.py").read_text("utf-8")
    tested = re.findall(r'"(3\.\d+)"', matrix.partition("PYTHONS = ")[2].split("\n")[0])
    named = re.findall(r":: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == tested


def test_an_index_page_has_no_dead_links():
    hooks = SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    (rule,) = hooks["substitutions"]
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = re.sub(rule["pattern"], rule["replacement"], readme)
    links = re.findall(r"\]\(([^)]*)\)", shown)
    assert [link for link in links if not link.startswith("https://")] == []
    assert "choose a constraint and a bound" in shown  # the words stay
