"""`import pffl` loads nothing, and its names are what they say in any order."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import pffl
from pffl.methods import Exact

FUNCTIONS = ("solve", "certify", "compare", "report", "feasible", "load")
FUNCTIONS += ("audit", "verify", "monitor")

MODULES = {"constraints", "datasets", "figures", "methods", "metrics", "models"}


def run(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_version_is_said_without_a_command_line():
    run(
        "import sys\nfrom pffl.cli import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit as done:\n"
        "    assert done.code == 0\n"
        "assert not {'typer', 'rich', 'numpy'} & set(sys.modules)"
    )


def test_a_run_is_ready_without_what_few_runs_use():
    heavy = {"pandas", "pyarrow", "sklearn", "torch", "scipy", "pffl.deploy", "flwr"}
    run(
        "import sys, pffl.runs, pffl.config, pffl._solve, pffl.methods\n"
        f"loaded = {heavy} & set(sys.modules)\nassert not loaded, loaded"
    )


@pytest.mark.parametrize("names", [FUNCTIONS, FUNCTIONS[::-1]], ids=["so", "back"])
def test_functions_are_functions_in_any_order(names):
    run(
        "import pffl.cli.run, pffl.experiments.comparison, pffl._report.page\n"
        "import sys, types, pffl\n"
        f"names = {names}\n"
        "seen = {}\n"
        "for name in names:\n"
        "    exec(f'from pffl import {name} as imported', seen)\n"
        "    seen[name] = seen['imported']\n"
        "for name in names:\n"  # whatever was imported since
        "    one = seen[name]\n"
        "    assert isinstance(one, types.FunctionType), one\n"
        "    assert one is getattr(pffl, name), one\n"
        "    assert one is getattr(sys.modules[one.__module__], name), one\n"
    )


def test_no_module_takes_the_name_of_a_function():
    """Python would bind the module to the name when it is imported."""
    modules = {module.name for module in pkgutil.iter_modules(pffl.__path__)}
    assert not modules & set(pffl.__all__) - MODULES


def test_functions_that_mention_it_can_be_sent():
    """As joblib and Ray send them: by value, to another process."""
    cloudpickle = pytest.importorskip("cloudpickle")
    code = cloudpickle.dumps(lambda: pffl.solve.__module__ + Exact().name)
    run(f"import pickle; assert pickle.loads({code!r})() == 'pffl._solveexact'")


def test_every_public_name_is_there():
    for name in pffl.__all__:
        assert isinstance(getattr(pffl, name), ModuleType) == (name in MODULES)
    assert set(pffl.__all__) <= set(dir(pffl))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = pffl.nothing  # type: ignore[attr-defined]
