"""Texts by hashing, and wide tables that are kept without their zeros."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import murmurhash3_32

import pffl
from pffl.data import Attribute, TableEncoder
from pffl.errors import UsageError
from pffl.models import Inputs, LogisticRegression
from tests.data import tables
from tests.inside import Column, Predictor, columns, count_words, score_file
from tests.raising import raises

WIDTH = 1 << 16
SEX = (Attribute("sex", ("f", "m")),)
WORDS = ("Fever", "naïve", "Ünïcode", "x_1", "7", "молоко", "乳", "pain", "Pain,", "né")


def notes(rows=120, *, seed=0):
    """People with a text each, and a category of many values."""
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, 6)) + "." for _ in range(rows)]
    return pd.DataFrame(
        {
            "hired": np.where(generator.random(rows) < 0.5, "yes", "no"),
            "sex": np.where(np.arange(rows) % 2, "f", "m"),
            "branch": np.array(["north", "south"])[np.arange(rows) % 4 // 2],
            "year": generator.normal(2005.0, 8.0, rows),
            "code": [f"E{k:03d}" for k in np.arange(rows) % 50],
            "notes": texts,
        }
    )


def build(frame=None, **changes):
    return tables.build(notes() if frame is None else frame, **changes)


def predictor_of(encoding, seed=0):
    """A model with random weights, as if its inputs had been scaled."""
    generator, d = np.random.default_rng(seed), encoding.schema.n_features
    mean = generator.random(d)
    mean[0] = 2005.0
    inputs = Inputs(mean, generator.random(d) + 0.5)
    model = LogisticRegression().bind(encoding.schema, inputs)
    w = generator.normal(size=model.n_parameters) / 10
    return Predictor(encoding, model, w, 5.0, cells=())


# Words


@pytest.mark.parametrize("width", [2, 1000, WIDTH])
def test_a_word_counts_where_its_hash_says(width):
    texts = [*WORDS, "fever Fever, FEVER!", "", "---"]
    expected = np.zeros((len(texts), width))
    for row, text in zip(expected, texts, strict=True):
        for word in re.findall(r"\w+", text.lower()):
            row[abs(murmurhash3_32(word.encode())) % width] += 1
    found = count_words(pd.Series(texts), width)
    assert np.array_equal(found.toarray(), expected)
    assert found.has_canonical_format


# Tables


@pytest.mark.parametrize("hashed", [False, True])
def test_dense_and_sparse_rows_are_the_same_rows(hashed, monkeypatch):
    frame = notes()
    frame.loc[[3, 7], "notes"] = None
    frame.loc[[4, 7], "year"] = None
    known = {"notes": {"hash": 64}} if hashed else {}
    options = {"missing": "indicator", "drop": [] if hashed else ["notes"]}
    dense = build(frame, columns=known, **options)
    monkeypatch.setattr(columns, "SPARSE_WIDTH", 1)
    monkeypatch.setattr(columns, "SPARSE_SHARE", 9.0)
    sparse = build(frame, columns=known, **options)
    assert dense.schema == sparse.schema
    for one, other in zip(dense.silos, sparse.silos, strict=True):
        assert isinstance(one.rows().X, np.ndarray)
        assert np.array_equal(other.rows().X.toarray(), one.rows().X)
        assert other.rows().X.has_canonical_format
        assert other.rows().X.data.all()
    assert sparse.encoding == TableEncoder.from_dict(sparse.encoding.as_dict())


def test_wide_and_mostly_zero_is_sparse_and_all_else_as_ever():
    def kept(columns):
        return TableEncoder(tuple(columns), SEX, ("0", "1"), "y").keeps_sparse

    def coded(name, size):
        return Column(name, "category", tuple(map(str, range(size))))

    assert not kept([coded("a", 255)])
    assert kept([coded("a", 256)])
    numbers = [Column(f"x{j}", "number") for j in range(300)]
    assert not kept(numbers)
    assert not kept([*numbers, coded("a", 900)])  # 301 of 1,200
    assert kept([*numbers, coded("a", 1_000)])
    assert not kept([Column("t", "text", hash=256)])
    assert kept([Column("t", "text", hash=512)])
    plain = build(drop=["notes"]).encoding.as_dict()
    assert "sparse" not in plain
    assert all("hash" not in column for column in plain["columns"])


# Models


@pytest.mark.parametrize("missing", [False, True])
def test_predictions_of_tables_files_and_exports_agree(tmp_path, missing):
    frame = notes()
    if missing:
        frame.loc[[3, 7], "notes"] = None
        frame.loc[7, "year"] = None
    federation = build(frame, columns={"notes": {"hash": 4096}}, missing="indicator")
    predictor = predictor_of(federation.encoding)
    expected = predictor.predict_proba(frame)
    X = predictor.preparation.inputs(frame)
    z = (X.toarray() - predictor.inputs.mean) / predictor.inputs.scale
    score = z @ predictor.w[:-1] + predictor.w[-1]
    p = np.clip(1 / (1 + np.exp(-score)), np.exp(-5.0), 1 - np.exp(-5.0))
    np.testing.assert_allclose(expected[:, 1], p, rtol=1e-11)
    pipeline = predictor.to_sklearn()
    np.testing.assert_allclose(pipeline.predict_proba(frame), expected, rtol=1e-12)
    again = pffl.load(predictor.save(tmp_path / "model.safetensors"))
    assert again.schema == predictor.schema
    file = tmp_path / "rows.csv"
    frame.to_csv(file, index=False)
    score_file(again, file, tmp_path / "scores.csv", keep=["code"])
    scores = pd.read_csv(tmp_path / "scores.csv")
    np.testing.assert_allclose(scores["probability_yes"], expected[:, 1], rtol=1e-12)
    table = predictor.coefficients()
    assert list(table["input"][:-1]) == list(predictor.schema.features)
    assert table.loc[table["input"] == "notes#17", "value"].item() == "17"
    slopes = table["coefficient"].to_numpy()
    raw = X @ slopes[:-1] + slopes[-1]
    np.testing.assert_allclose(raw, score, atol=1e-9)
    pytest.importorskip("onnx")
    with raises(UsageError, "not-exportable", "notes"):
        predictor.to_onnx()


def test_the_inputs_of_a_text_share_a_scale():
    X = np.random.default_rng(0).poisson([3.0, 1.0, 0.2, 0.0, 2.0], (50, 5)) * 1.0
    sums, squares = X.sum(axis=0), (X**2).sum(axis=0)
    found = Inputs.from_sums(50.0, sums, squares, texts=[slice(1, 4)])
    own = X.std(axis=0)
    whole = np.sqrt((own[1:4] ** 2).sum())
    np.testing.assert_allclose(found.scale, [own[0], *[whole] * 3, own[4]])
    np.testing.assert_allclose(found.mean, X.mean(axis=0))
    z = found.apply(X)[:, 1:4]
    assert np.isclose((z**2).sum(axis=1).mean(), 1.0)  # a text is as long as a number
    nothing = Inputs.from_sums(50.0, 0 * sums, 0 * squares, texts=[slice(1, 4)])
    assert np.array_equal(nothing.scale, np.ones(5))
