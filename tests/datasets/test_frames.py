"""`as_frame=True`: the same rows as frames, of every data set."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pffl import datasets
from pffl.config import parse
from pffl.errors import UsageError
from tests.golden import people as golden
from tests.raising import raises


def adult(folder):
    files = dict(
        zip(("adult.data", "adult.test"), golden.adult_files(300), strict=True)
    )
    for name, data in files.items():
        (folder / name).write_bytes(data)
    hashes = tuple(map(golden.sha256, files.values()))
    return {"source": folder, "sha256": hashes, "group": ("sex", "race"), "silos": 2}


def celeba(folder):
    pytest.importorskip("PIL")
    from tests.datasets.celeba_files import Drawn

    usual = {"size": 8, "silos": 3}
    return {"source": Drawn(folder / "celeba").zipped(), **usual}


def synthetic(folder):
    return {"rows": 300, "silos": 3, "groups": {"sex": ("f", "m"), "age": 3}}


MORE = {"celeba": {"person"}}


@pytest.mark.parametrize("options", [adult, celeba, synthetic])
def test_frames_hold_the_rows_of_the_federation(tmp_path, options):
    name, given = options.__name__, options(tmp_path)
    load = getattr(datasets, name)
    federation, frames = load(**given), load(**given, as_frame=True)
    X, y, sensitive, about = frames
    assert set(about) == {"silo", "split", *MORE.get(name, ())}
    assert list(X) == list(federation.schema.features)
    for silo in federation.silos:
        for split, rows in silo.splits.items():
            own = about.index[(about["silo"] == silo.name) & (about["split"] == split)]
            np.testing.assert_array_equal(X.loc[own], rows.X)
            np.testing.assert_array_equal(y[own], rows.y)
            words = [" × ".join(row) for row in sensitive.loc[own].to_numpy()]
            assert [federation.schema.groups[code] for code in rows.group] == words
    assert len(X) == sum(federation.rows(split) for split in federation.splits)


def test_frames_of_a_regression_and_no_frames_in_a_run_file():
    frames = datasets.synthetic(200, task="regression", as_frame=True)
    assert frames.y.dtype == np.float64
    assert frames.X.dtypes.eq(np.float64).all()
    assert isinstance(frames.sensitive_features, pd.DataFrame)
    with raises(UsageError, "unknown-key", "as_frame"):
        parse({"data": {"name": "synthetic", "as_frame": True}})
