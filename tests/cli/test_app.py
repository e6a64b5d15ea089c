from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pffl as package
from pffl import __version__
from tests.cli.helpers import one_line, pffl

HEAVY = {"numpy", "pandas", "safetensors", "scipy"}  # typer may bring pydantic

# `import pffl` has its own test of lightness; here the package is left out, so that
# what remains is what the command line itself imports.
HELP_ALONE = """
import json, sys, types
package = types.ModuleType("pffl")
package.__path__ = [sys.argv[1]]
sys.modules["pffl"] = package
from pffl.cli import main
try:
    main(sys.argv[2:])
except SystemExit as ending:
    assert not ending.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["data", "-h"]])
def test_help_imports_nothing_heavy(arguments):
    place = str(Path(package.__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", HELP_ALONE, place, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "Usage" in run.stdout
    assert HEAVY.isdisjoint(json.loads(run.stderr.splitlines()[-1]))


def test_version(capsys):
    seen = pffl(capsys, "--version")
    assert (seen.code, seen.out.strip()) == (0, f"pffl {__version__}")


def test_unknown_option_suggests_one(capsys):
    seen = pffl(capsys, "run", "synthetic", "--bund", "0.6")
    assert seen.code == 2
    assert "--bound" in seen.err
    assert seen.out == ""


def test_unexpected_error_asks_for_a_report(capsys, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("one over nothing")

    monkeypatch.setattr("pffl.config.named", fail)
    short = pffl(capsys, "run", "synthetic")
    assert short.code == 1
    assert "ZeroDivisionError: one over nothing" in short.err
    assert "--debug" in one_line(short.err)
    assert "Traceback" not in short.err
    long = pffl(capsys, "run", "synthetic", "--debug")
    assert "Traceback" in long.err


KINDS = ("Usage", "Data", "NotMet", "Federation", "Artefact", "PrivacyBudget")


@pytest.mark.parametrize(("code", "error"), list(enumerate(KINDS, start=2)))
def test_every_kind_of_error_has_its_exit_code(error, code, capsys, monkeypatch):
    def fail(*_, **__):
        raise getattr(package.errors, f"{error}Error")("what is wrong")

    monkeypatch.setattr("pffl.config.named", fail)
    seen = pffl(capsys, "run", "synthetic")
    assert (seen.code, "what is wrong" in seen.err, seen.out) == (code, True, "")
