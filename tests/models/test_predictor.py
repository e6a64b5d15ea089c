"""A predictor takes raw tables, answers in the labels' own type, fits in a file."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.errors import ArtefactError, DataError, UsageError
from tests.inside import score_file
from tests.raising import raises

LABELS: dict[str, Any] = {
    "text": np.array(["no", "yes"]),
    "integer": np.array([3, 7]),
    "number": np.array([0.0, 1.0]),
    "number with a gap": np.array([-1.5, 2.25]),
    "boolean": np.array([False, True]),
}


def people(rows: int = 120, labels: Any = (0, 1)) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age, job = rng.integers(18, 70, rows), rng.choice(["clerk", "cook", "nurse"], rows)
    sex, branch = rng.choice(["f", "m"], rows), rng.choice(["north", "south"], rows)
    score = (age - 40) / 12 + 1.5 * (job == "nurse") - 0.8 * (sex == "f")
    good = score + rng.logistic(size=rows) > 0
    hired = np.asarray(labels)[good.astype(int)]
    return pd.DataFrame(
        {"age": age, "job": job, "sex": sex, "branch": branch, "hired": hired}
    )


@cache
def solved(kind: str = "integer") -> pffl.Solution:
    return fit(people(labels=LABELS[kind]))


def fit(table: pd.DataFrame, **more: Any) -> pffl.Solution:
    federation = pffl.Federation.from_table(
        table, label="hired", group="sex", silo="branch", **more
    )
    return pffl.solve(federation, pffl.BoundedGroupLoss(0.65), random_state=0)


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back_in_their_own_type(kind: str) -> None:
    table, solution = people(labels=LABELS[kind]), solved(kind)
    found = solution.predict(table)
    assert found.dtype == LABELS[kind].dtype
    assert set(found.tolist()) == set(LABELS[kind].tolist())
    assert (found == table["hired"]).mean() > 0.6
    p = solution.predict_proba(table)
    np.testing.assert_array_equal(found == LABELS[kind][1], p[:, 1] > 0.5)
    np.testing.assert_array_equal(p[:, 1] > 0.5, solution.decision_function(table) > 0)


def test_a_raw_table_gives_what_encoded_rows_give() -> None:
    table, solution = people(labels=LABELS["integer"]), solved()
    encoded = solution.encoding.rows(table).X
    assert encoded.shape[1] == 4
    np.testing.assert_array_equal(
        solution.predict_proba(table), solution.predict_proba(encoded)
    )
    named = pd.DataFrame({name: table[name] for name in ("job", "age")})
    np.testing.assert_array_equal(solution.predict(named), solution.predict(table))


def test_a_saved_predictor_is_the_same_one(tmp_path: Path) -> None:
    table, solution = people(), solved()
    path = solution.predictor.save(tmp_path / "model.pffl")
    loaded = pffl.load(path)
    sent = pickle.loads(pickle.dumps(solution.predictor))  # noqa: S301
    for one in (loaded, sent):
        np.testing.assert_array_equal(
            one.predict_proba(table), solution.predict_proba(table)
        )
        assert one.preparation == solution.encoding
        assert (one.cells, one.bounds.tolist()) == (("f", "m"), [0.65, 0.65])
        assert one.multipliers.tolist() == solution.multipliers.tolist()
        assert one.fingerprint == solution.data.fingerprint
        assert one.loss_bound == solution.loss_bound
    assert "hired" in repr(loaded)
    assert "job" in repr(loaded)
    with raises(ArtefactError, "file-exists"):
        solution.predictor.save(path)


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = (fit(people()).predictor.save(tmp_path / name) for name in "ab")
    assert one.read_bytes() == two.read_bytes()
    again = pffl.load(one).save(tmp_path / "c")
    assert again.read_bytes() == one.read_bytes()


def test_a_run_directory_is_loaded_unless_its_model_was_changed(tmp_path: Path) -> None:
    solution = solved()
    place = solution.save(tmp_path / "run")
    again = pffl.load(place)
    assert again.as_dict() == solution.as_dict()
    assert again.report() == solution.report()
    assert again.card(owner="Unit 7") == solution.card(owner="Unit 7")
    pd.testing.assert_frame_equal(again.cells, solution.cells)
    pd.testing.assert_frame_equal(again.history, solution.history, check_dtype=False)
    np.testing.assert_array_equal(again.w, solution.w)
    np.testing.assert_array_equal(again.predict(people()), solution.predict(people()))
    assert again.plot()._repr_html_() == solution.plot()._repr_html_()
    with raises(UsageError, "not-available"):
        again.plot("spectrum")
    assert again.save(tmp_path / "copy").is_dir()
    other = fit(people().assign(age=1.0 * people()["age"][::-1].to_numpy()))
    file = place / "model.safetensors"
    file.unlink()
    other.predictor.save(file)
    with raises(ArtefactError, "changed-file"):
        pffl.load(place)
    np.testing.assert_array_equal(pffl.load(file).w, other.w)
    file.unlink()
    with raises(ArtefactError, "file-missing"):
        pffl.load(place)
    with raises(ArtefactError, "file-missing"):
        pffl.load(tmp_path / "nowhere")


# Values that are new


def test_unknown_categories_are_refused_or_other() -> None:
    table = people(labels=LABELS["integer"])
    new = table.assign(job=["pilot", "pilot", *table["job"][2:]])
    with raises(DataError, "unknown-category", "pilot", "2", "clerk"):
        solved().predict(new)
    one = fit(table, columns={"job": {"values": ["clerk", "nurse"]}})
    cooks = table.assign(job=["cook", "cook", *table["job"][2:]])
    np.testing.assert_array_equal(one.predict_proba(new), one.predict_proba(cooks))


def test_kept_lists_are_written(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path, out = tmp_path / "rows.parquet", tmp_path / "scores.csv"
    people().assign(seen=[[1, 2]] * 120, note=["=1"] * 120).to_parquet(path)
    score_file(solved().predictor, path, out, keep=["seen", "note"])
    assert out.read_text().splitlines()[1].startswith("[1 2],'=1,")
