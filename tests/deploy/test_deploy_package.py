"""The package without Flower: what needs it says so, the rest works."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pffl.deploy
from pffl.errors import MissingExtraError
from tests.raising import raises


def test_without_flower_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    with raises(MissingExtraError, "missing-extra"):
        pffl.deploy.FairFedAvg  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pffl.deploy.nothing  # noqa: B018


def test_sites_and_folders_need_no_flower():
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "import pffl.deploy.coordinator, pffl.deploy.join"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
