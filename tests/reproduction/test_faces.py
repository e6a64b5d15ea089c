"""Drawn faces: CelebA's shape, most clients of one gender, looks of three kinds."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.faces import faces

SIZE = 16


def everything(federation):
    """All pictures of all splits, shape (n, size, size, 3), with labels and groups."""
    pools = [federation.pooled(split) for split in federation.splits]
    X, y, group = (np.concatenate([p[i] for p in pools]) for i in range(3))
    return X.reshape(len(X), SIZE, SIZE, 3), y, group


@pytest.fixture(scope="module")
def people():
    return faces(120, size=SIZE, seed=1)


def test_most_clients_have_one_gender_and_men_are_fewer(people):
    shares = np.array([s.rows().group.mean() for s in people.silos])
    one_gender = (shares == 0) | (shares == 1)
    assert one_gender.mean() > 0.85
    assert not one_gender.all()
    assert 0.3 < shares.mean() < 0.55
    few = [s.rows().group.mean() for s in faces(120, size=SIZE, look="apart").silos]
    assert 0.15 < np.mean(few) < 0.4


def read(federation, learn_from):
    """Guess held-out smiles of each gender, having learnt from pictures of one.

    A ridge regression on the pixels: enough to see a mouth. Returns, for women and men,
    the share of right guesses, and how many more smiles are guessed than there are.
    """
    train, test = federation.pooled("train"), federation.pooled("test")
    own = train.group == learn_from
    X, y = train.X[own] / 255.0, 2.0 * train.y[own] - 1.0
    mean = X.mean(axis=0)
    X = X - mean
    w = np.linalg.solve(X.T @ X + 10.0 * np.eye(X.shape[1]), X.T @ (y - y.mean()))
    guess = (test.X / 255.0 - mean) @ w + y.mean() > 0
    right = guess == (test.y > 0)
    return [
        (right[at].mean(), guess[at].mean() - test.y[at].mean())
        for at in (test.group == 0, test.group == 1)
    ]


def test_a_smile_is_in_the_picture_and_a_beard_hides_it():
    options = {
        "size": SIZE,
        "look": "apart",
        "men": 0.5,
        "label_noise": 0.0,
        "seed": 2,
    }
    women = read(faces(200, **options), learn_from=0)[0][0]
    assert women > 0.8  # chance is a half
    thick, clear = (
        read(faces(200, beard=b, **options), learn_from=1)[1][0] for b in (1.0, 0.0)
    )
    assert clear > 0.8
    assert clear > thick + 0.03


def test_label_noise_is_as_asked():
    """The same drawings with wrong labels: only the labels differ."""
    clean, noisy = (
        everything(faces(60, size=SIZE, label_noise=share, test_fraction=0.0, seed=5))
        for share in (0.0, 0.2)
    )
    np.testing.assert_array_equal(clean[0], noisy[0])
    wrong = clean[1] != noisy[1]
    assert wrong.mean() == pytest.approx(0.2, abs=0.04)
