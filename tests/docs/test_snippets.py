"""Code in pages that says how to make files is run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn

import pffl
from tests.helpers import make_federation

DOCS = Path(__file__).parents[2] / "docs"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def snippet(page: str, word: str) -> str:
    """The one piece of Python of a page that has a word."""
    found = PYTHON.findall((DOCS / page).read_text("utf-8"))
    (code,) = [one for one in found if word in one]
    return code


def test_figures_and_tables_for_papers(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    code = snippet("compare.md", "to_latex")
    scope = {
        "pffl": pffl,
        "federation": make_federation(5),
        "bounds": pffl.BoundedGroupLoss(0.68),
    }
    exec(compile(code, "docs/compare.md", "exec"), scope)  # noqa: S102
    assert Path("losses.pdf").read_bytes().startswith(b"%PDF")
    told = capsys.readouterr().out
    assert told.startswith("\\begin{tabular}")
    assert "unconstrained" in told


def test_a_tracker_is_told_of_every_round_and_of_the_end():
    told: list[tuple[int, set[str]]] = []

    def log_metrics(numbers: Mapping[str, float], step: int) -> None:
        told.append((step, set(numbers)))

    code = snippet("using.md", "class Tracker")
    data = make_federation(5)
    scope = {
        "pffl": pffl,
        "mlflow": SimpleNamespace(log_metrics=log_metrics),
        "federation": data,
        "bounds": pffl.BoundedGroupLoss(0.68),
    }
    exec(compile(code, "docs/using.md", "exec"), scope)  # noqa: S102
    *rounds, (last, ends) = told
    assert [step for step, _ in rounds] == list(range(1, last + 1))
    wanted = {"risk", *(f"loss/{group}" for group in data.schema.groups)}
    assert all(names == wanted for _, names in rounds)
    assert ends == {"gap", "worst_group_loss"}


def test_a_search_chooses_the_bound_on_folds():
    code = snippet("sklearn.md", "GridSearchCV")
    rng = np.random.default_rng(0)
    df = pd.DataFrame(
        {
            "age": rng.normal(size=400),
            "job": rng.choice(["a", "b"], 400),
            "sex": rng.choice(["f", "m"], 400),
        }
    )
    y = df["age"] + (df["job"] == "a") + rng.logistic(size=400) > 0
    scope: dict[str, Any] = {"pffl": pffl, "df": df, "y": y}
    with sklearn.config_context():
        exec(compile(code, "docs/sklearn.md", "exec"), scope)  # noqa: S102
    search = scope["search"]
    tried = search.cv_results_["param_fairclassifier__bound"].tolist()
    assert tried == [None, 0.6, 0.65]
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    assert search.predict(df).shape == y.shape


def test_statuses_and_exit_codes_are_all_told():
    from pffl import errors
    from tests.inside import EXIT_CODES

    page = (DOCS / "commands.md").read_text("utf-8")
    for status, code in EXIT_CODES.items():
        assert re.search(rf"^\| `{status}` \| {code} \|", page, re.MULTILINE), status
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, pffl.PFFLError)
    ]
    for kind in kinds:
        if kind not in (pffl.PFFLError, errors.Malformed):
            assert f"`{kind.__name__}`" in page, kind
            row = rf"^\| {kind.exit_code}[ ,|].*`{kind.__name__}`"
            assert re.search(row, page, re.MULTILINE), kind
