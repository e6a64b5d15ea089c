"""Every example runs as a user would run it, and says what the library does."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pffl
from pffl.testing import check_constraint, check_method, check_optimum

EXAMPLES = Path(__file__).parents[1] / "examples"
SAID = {
    "quickstart.py": ["synthetic", "met: Every bound is met", "gap", "test_upper"],
    "plain_pffl.py": ["plain loop:", "largest difference"],
    "own_method.py": ["tilted not met", "tilted met"],
    "own_constraint.py": ["met: Every bound is met", "class 1"],
    "lightning_loop.py": ["Trainer.fit: ", "solve_loaders: ", "\nmet: Every bound is"],
    "hugging_face.py": ["\nnot met: ", "\nmet: Every bound is", "is praise with"],
    "torch_loaders.py": ["not met\n", "\nmet\n", "test_loss"],
    "fair_classifier.py": ["met: Every bound is met", "No bound below 0.6", "95 %"],
}
#: What an example needs beside pffl.
NEEDS = {
    "torch_loaders.py": "torch",
    "lightning_loop.py": "pytorch_lightning",
    "hugging_face.py": "transformers",
}
OUTSIDERS = {"lightning_loop.py", "hugging_face.py"}


def load(name: str) -> ModuleType:
    """Import an example by its path."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_example_is_listed_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAID)


def ran(name: str, place: Path) -> str:
    """Run an example in a folder, where it leaves nothing; what it printed."""
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=place,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert list(place.iterdir()) == []
    return run.stdout


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in OUTSIDERS))
        for name in sorted(SAID)
    ],
)
def test_example_runs(name, tmp_path):
    told = ran(name, tmp_path)
    for text in SAID[name]:
        assert text in told


@pytest.mark.parametrize("seed", range(2))
def test_the_library_reproduces_the_plain_loop(seed):
    plain = load("plain_pffl")
    federation = pffl.datasets.synthetic(
        700, silos=4, groups=3, features=5, heterogeneity=1.0, random_state=seed
    )
    w, lam = plain.plain_pffl(plain.scaled_silos(federation), groups=3)
    solution = plain.library_pffl(federation)
    looks = 6  # at the gap, ever rarer; the rounds are the same
    assert solution.rounds == plain.E * plain.T + looks
    np.testing.assert_allclose(solution.w, w, rtol=0, atol=1e-9)
    np.testing.assert_allclose(solution.multipliers, lam, rtol=0, atol=1e-9)


def test_the_examples_of_contributing_pass_the_kit():
    constraint = load("own_constraint").BoundedLabelLoss(0.66)
    check_constraint(constraint)
    tilted = load("own_method").TiltedLoss
    check_method(tilted(rounds=5, tilt=3.0))

    def value(sample, w):
        shares = sample.problem.counts / sample.problem.counts.sum()
        tilt = np.log(shares @ np.exp(3.0 * sample.means(w))) / 3.0
        return tilt + sample.ridge(w)

    method = tilted(rounds=400, tilt=3.0, local_steps=1)
    check_optimum(method, value, tolerance=1e-5)
