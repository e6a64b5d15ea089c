"""The package without Flower: what needs it says so, the rest works."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pffl.flower
from pffl.errors import MissingExtraError
from tests.raising import raises


def test_without_flower_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    with raises(MissingExtraError, "missing-extra"):
        pffl.flower.client_app  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pffl.flower.nothing  # noqa: B018


def test_folders_are_written_and_runs_launched_without_flower():
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "import pffl.flower.deploy, pffl.flower.launch, pffl.flower.live"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
