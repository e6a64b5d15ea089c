"""`import pffl` loads nothing, and its names are what they say in any order."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import FunctionType, ModuleType

import pytest

import pffl


def run(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_import_loads_no_numpy() -> None:
    run("import sys, pffl; assert not {'numpy', 'pandas', 'rich'} & set(sys.modules)")


@pytest.mark.parametrize("name", ["solve", "certify"])
@pytest.mark.parametrize(
    "before",
    [
        "import pffl",
        "import pffl.{name}",
        "import pffl; pffl.{name}; import pffl.{name}",
        "from pffl.{name} import {name}",
        "import importlib; importlib.import_module('pffl.{name}')",
        "import pffl.cli.run, pffl.sweep, pffl.certify.basis",
    ],
)
def test_functions_are_functions_in_any_order(name: str, before: str) -> None:
    code = before.format(name=name)
    run(
        f"{code}\nimport sys, types, pffl\nfrom pffl import {name} as imported\n"
        f"assert isinstance(pffl.{name}, types.FunctionType), pffl.{name}\n"
        f"assert imported is pffl.{name} is sys.modules['pffl.{name}'].{name}"
    )


def test_every_public_name_is_there() -> None:
    for name in pffl.__all__:
        try:
            value = getattr(pffl, name)
        except ImportError:  # an extra that is not installed
            assert name == "Network"
            continue
        assert isinstance(value, ModuleType) == (name == "datasets")
    assert set(pffl.__all__) <= set(dir(pffl))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = pffl.nothing  # type: ignore[attr-defined]


def test_names_can_be_replaced_in_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pffl, "solve", len)
        assert pffl.solve is len
    assert isinstance(pffl.solve, FunctionType)
    assert importlib.import_module("pffl.solve").solve is pffl.solve
