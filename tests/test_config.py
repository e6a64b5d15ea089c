from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pffl import config
from pffl.data import Federation
from pffl.datasets import DATASETS
from pffl.errors import UsageError
from pffl.methods import METHODS
from pffl.models import LeastSquares, LogisticRegression, SoftmaxRegression
from pffl.records import parameters
from tests.inside import TableOptions
from tests.raising import raises

SYNTHETIC: dict[str, Any] = {"name": "synthetic", "rows": 300, "silos": 2}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
tables = st.recursive(
    st.dictionaries(texts, scalars | st.lists(scalars), min_size=1, max_size=3),
    lambda inner: st.dictionaries(
        texts, inner | st.lists(inner, min_size=1) | scalars, min_size=1, max_size=3
    ),
    max_leaves=6,
)


# Drawing a nested table on a busy machine may take long; that is no fault of ours.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(tables)
def test_what_is_written_is_read_back(table):
    assert tomllib.loads(config.dumps(table)) == table


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("a.b=1", {"a": {"b": 1}}),
        ("a.b = 1e-3", {"a": {"b": 0.001}}),
        ("a.b=true", {"a": {"b": True}}),
        ('a.b=["x", "y"]', {"a": {"b": ["x", "y"]}}),
        ("a.b=two words", {"a": {"b": "two words"}}),
        ('a.b=say "x"=y', {"a": {"b": 'say "x"=y'}}),
        ('a.b."c.d"=0.5', {"a": {"b": {"c.d": 0.5}}}),
        ("a.b=", {"a": {"b": ""}}),
    ],
)
def test_setting(setting, expected):
    assert config.parse_setting(setting) == expected


@pytest.mark.parametrize("setting", ["", "a", "=1", "a b=1", "a..b=1", "a=1\nb=2"])
def test_setting_that_is_none(setting):
    with pytest.raises(UsageError):
        config.parse_setting(setting)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, LogisticRegression),
        ({"classes": 3}, SoftmaxRegression),
        ({"task": "regression"}, LeastSquares),
    ],
)
def test_model_without_a_kind_suits_the_labels(data, expected):
    sections = {"data": {**SYNTHETIC, **data}, "model": {"l2": 0.5, "intercept": False}}
    model = config.parse(sections).build().model
    assert isinstance(model, expected)
    assert model.describe() == expected(0.5, intercept=False).describe()


@pytest.mark.parametrize(
    "constraint",
    [
        None,
        {"bound": 0.7},
        {"kind": "per-silo", "bound": {"silo 1": 0.7, "silo 2": 0.8}},
        {"kind": "minmax", "by": ["sex"]},
        [{"bound": 0.7}, {"kind": "cbgl", "bound": 0.9, "labels": ["class 0"]}],
    ],
)
def test_dump_is_read_back_as_the_same_job(constraint, tmp_path):
    sections = {
        "data": {**SYNTHETIC, "groups": {"sex": ["f", "m"], 'odd "name"': 2}},
        "model": {"kind": "logistic", "l2": 0.01},
        "method": {"kind": "pffl", "dual_rounds": 3, "step_size": 0.1},
        "run": {"engine": "reference", "weighting": "rows", "confidence": 0.9},
    }
    if constraint is not None:
        sections["constraint"] = constraint
    job = config.parse(sections).build()
    path = tmp_path / "run.toml"
    path.write_text(job.dump(tmp_path, seed=5), "utf-8")
    again = config.load(path).build()
    assert again.federation.fingerprint == job.federation.fingerprint
    assert again.model.describe() == job.model.describe()
    one, other = job.spec, again.spec
    assert other.settings == replace(one.settings, seed=5)
    assert (other.method, other.constraint) == (one.method, one.constraint)
    assert (other.privacy, other.secure_sum, other.about) == (None, None, one.about)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_written_and_read(name):
    method = METHODS[name]()
    written = tomllib.loads(config.dumps({"method": method.describe()}))
    assert config.parse({"data": SYNTHETIC, **written}).method == method


def test_every_parameter_of_a_table_can_be_set():
    taken = {known.name for known in fields(TableOptions)}
    assert set(parameters(TableOptions)) == taken
    told = inspect.getdoc(Federation.from_table)
    assert [name for name in taken if not re.search(rf"\b{name}\b", told)] == []
    needed = {n for n, key in parameters(TableOptions).items() if key.is_required()}
    assert needed == {"label", "group"}


@pytest.mark.parametrize("name", DATASETS)
def test_every_parameter_of_a_data_set_can_be_set(name):
    load = DATASETS[name]
    assert set(parameters(load)) == set(inspect.signature(load).parameters)


def test_a_type_that_a_file_cannot_hold_is_not_offered():
    def load(rows: int, progress: Callable[[], None], X: np.ndarray) -> None:
        """A data set."""

    assert set(parameters(load)) == {"rows"}
    assert "inputs" not in parameters(LogisticRegression)


@pytest.fixture
def table(tmp_path):
    rows = (f"{i % 7},{'ab'[i % 2]},{'nm'[i // 2 % 2]},{i % 3 % 2}" for i in range(80))
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["x,g,site,y", *rows]) + "\n")
    return path


def test_paths_start_from_the_run_file(table):
    path = table.parent / "run.toml"
    path.write_text(
        '[data]\npath = "people.csv"\nlabel = "y"\ngroup = "g"\nsilos = 4\n'
    )
    job = config.load(path, ["data.silos=2", "data.test_fraction=0.5"]).build()
    assert (len(job.federation), job.federation.rows("test")) == (2, 40)
    below = table.parent / "runs" / "one"
    assert tomllib.loads(job.dump(below, seed=0))["data"]["path"] == "../../people.csv"


def test_wrong_columns_go_together_before_the_table_is_read(tmp_path):
    data = {"path": "absent.csv", "label": "y", "group": "g", "silo": "a", "silos": 2}
    with raises(UsageError, "needs-silos"):
        config.parse({"data": data}, base=tmp_path)


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"[data\n", "not-toml", "line 1"),
        (b"\xff\xfe", "not-text", "run.toml"),
        (b"data = 3\n", "wrong-value", "[data]"),
        (b"constraint = 3\n", "wrong-value", "[constraint]"),
        (b"", "missing-data", "[data]"),
        (None, "cannot-read", "run.toml"),
    ],
)
def test_a_file_that_is_no_run_file(content, code, said, tmp_path):
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with raises(UsageError, code, said):
        config.load(path)


def test_a_range_of_the_target_makes_it_a_number(tmp_path):
    table = {"path": "a.csv", "label": "y", "group": "g", "silos": 2}
    found = config.parse({"data": table, "model": {"target_range": [0, 5]}})
    assert isinstance(found.model, LeastSquares)
    assert found.model.target_range == (0.0, 5.0)
    regression = {**SYNTHETIC, "task": "regression"}
    job = config.parse({"data": regression, "model": {"target_range": [-9, 9]}}).build()
    assert job.model.target_range == (-9.0, 9.0)  # type: ignore[attr-defined]
    (tmp_path / "run.toml").write_text(job.dump(tmp_path, seed=0))
    again = config.load(tmp_path / "run.toml").build()
    assert again.model.describe() == job.model.describe()
    with raises(UsageError, "wrong-model"):
        config.parse({"data": SYNTHETIC, "model": {"target_range": [0, 5]}}).build()
    with raises(UsageError, "wrong-value", "target_range"):
        config.parse({"data": regression, "model": {"target_range": [5, 0]}})
