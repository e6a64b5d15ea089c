"""Tables with natural silos: what is made of them. Files as small as they can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pffl.files import digest_file
from reproduction.natural import SOURCES, natural

WORDS = {
    "mortgages": "nonwhite vet_wwko home_ownership",
    "happiness": """vhappy mothfath16 babies preteen teens occattend regattend black
        female""",
    "colleges": "nearc2 nearc4 momdad14 sinmom14 step14 smsa66 libcrd14 black",
    "alcohol": """abuse mothalc fathalc employ exhealth vghealth goodhealth northeast
        midwest south centcity outercity white married""",
}
COLUMNS = {name: words.split() for name, words in WORDS.items()}


def table_of(name: str, rows: int = 400) -> pd.DataFrame:
    """Rows with the columns of a table, drawn at random."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({c: rng.integers(0, 2, rows) for c in COLUMNS[name]})
    if name == "mortgages":
        frame["bpl"] = rng.choice(["Ohio", "Texas", "Maine"], rows)
        frame["qob"] = rng.integers(1, 5, rows)
        frame["qob_minus_kw"] = rng.normal(size=rows)
    if name == "happiness":
        frame["region"] = rng.choice(["pacific", "mountain"], rows)
        frame["year"], frame["educ"] = 1994, rng.integers(8, 20, rows).astype(float)
        frame.loc[:9, "educ"] = np.nan
    if name == "colleges":
        region = rng.integers(1, 10, rows)
        for i in range(1, 10):
            frame[f"reg66{i}"] = (region == i).astype(int)
        for c in ("age", "fatheduc", "motheduc", "educ"):
            frame[c] = rng.integers(8, 20, rows).astype(float)
        frame.loc[:9, "fatheduc"] = np.nan
    if name == "alcohol":
        for c in ("age", "educ", "famsize", "unemrate"):
            frame[c] = rng.integers(8, 20, rows)
    return frame


@pytest.mark.parametrize("name", list(SOURCES))
@pytest.mark.filterwarnings("ignore")
def test_what_is_made_of_a_table(name, tmp_path, monkeypatch):
    source, path = SOURCES[name], tmp_path / SOURCES[name].file.name
    table_of(name).to_csv(path, index=False)
    file = replace(source.file, sha256=digest_file(path))
    monkeypatch.setitem(SOURCES, name, replace(source, file=file))
    found = natural(name, source=path, validation_fraction=0.2)
    assert set(found.splits) == {"train", "validation", "test"}
    rows = sum(found.rows(split) for split in found.splits)
    assert rows == 390 if name == "happiness" else 350 < rows <= 400
    assert len(found.schema.attributes) == len(source.groups)
    assert len(found.silos) > 1
    for hidden in (*source.groups, source.silo, source.label):
        assert not any(f.startswith(f"{hidden}=") for f in found.schema.features)
        assert hidden not in found.schema.features
    again = natural(name, source=path, validation_fraction=0.2, split_seed=7)
    assert again.silo_names == found.silo_names
    assert again.fingerprint != found.fingerprint
    few = natural(name, source=path, people=100)
    assert sum(few.rows(split) for split in few.splits) == 100
