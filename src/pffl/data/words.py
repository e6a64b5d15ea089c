r"""Texts as counts of their words, by hashing: no vocabulary, so none leaves a site.

A word is a run of letters, digits and underscores (``\w+``, in any script), in lower
case. It belongs to the input ``|h| mod width``, h the signed 32-bit MurmurHash3 of its
UTF-8 bytes (seed 0), and adds 1 to it: no sign, so an input is a number of words. That
is scikit-learn's `HashingVectorizer` with the parameters below, alike on every platform
and in every version. Words may share an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pffl.data.codes import plain_text
from pffl.errors import Problems

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import HashingVectorizer

WORD = r"(?u)\w+"
WIDEST = 1 << 24
USUAL = 64  # different words of a text, at a guess
PROSE = 3  # words of a text
FEWEST, MOST = 1 << 10, 1 << 20  # inputs that are advised


def counter(width: int) -> HashingVectorizer:
    """Return what counts the words of texts."""
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(
        token_pattern=WORD,
        n_features=width,
        alternate_sign=False,
        norm=None,
        dtype=np.float64,
    )


def texts_of(series: pd.Series) -> list[str]:
    """Return the texts of a column; a missing one has no words.

    A number is called alike however it is written, since a column of numbers alone is
    read as such: ``007`` is ``7``.
    """
    import pandas as pd

    codes, distinct = pd.factorize(series)
    texts = [*(plain_text(str(value)) for value in pd.Index(distinct).tolist()), ""]
    return [texts[code] for code in codes.tolist()]


def count_words(texts: Sequence[str], width: int) -> csr_array:
    """Return how many words of each text belong to each input."""
    from scipy.sparse import csr_array

    return csr_array(counter(width).transform(texts))


def width_for(texts: Sequence[str]) -> int | None:
    """Return a power of two with room for the words of prose; None where it is none.

    Prose has texts of three words and more, in the mean. Four inputs for each different
    word leave a fifth of them to share one.
    """
    find = counter(2).build_analyzer()
    words = [find(text) for text in texts]
    if sum(map(len, words)) < PROSE * len(texts):
        return None
    different = len({word for own in words for word in own})
    return min(max(1 << (4 * different - 1).bit_length(), FEWEST), MOST)


def check_widths(problems: Problems, widths: Mapping[str, int]) -> None:
    """Note widths that are no number of inputs."""
    for column, width in widths.items():
        whole = isinstance(width, int) and not isinstance(width, bool)
        if not whole or not 2 <= width <= WIDEST:
            problems.add(
                f"[wrong-value] 'hash' of column '{column}' must be a whole number "
                f"from 2 to {WIDEST:,} (2**24). Got {width!r} instead."
            )
