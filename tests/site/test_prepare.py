"""site.toml, the agreement, and the way from a table to prepared rows."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.data import Federation
from pffl.errors import ArtefactError, DataError, UsageError
from pffl.site import Agreement, Site, SiteConfig, prepare
from tests.helpers import make_federation
from tests.raising import raises
from tests.site.sites import census, send, write_site


def test_a_table_becomes_rows_that_answer(tmp_path: Path) -> None:
    folder = write_site(tmp_path / "north")
    summary = prepare(SiteConfig.load(folder))
    assert {split: int(n.sum()) for split, n in summary.counts.items()} == {
        "train": 160,
        "test": 40,
    }
    site = Site.open(folder)
    assert isinstance(site.silo.rows("train").X, np.memmap)
    answer = send(site, census(site))
    assert not answer.refusal
    assert answer.silo == "north"
    expected = make_federation(0, sizes=(200, 60), test=20).silos[0].rows("train")
    stored = np.concatenate([site.silo.rows(s).X for s in ("train", "test")])
    assert np.sort(stored, axis=0) == pytest.approx(np.sort(expected.X, axis=0))


def test_prepared_files_are_for_their_owner(tmp_path: Path) -> None:
    folder = write_site(tmp_path / "north")
    prepare(SiteConfig.load(folder))
    place = folder / "prepared"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    names = {path.name for path in place.iterdir()}
    assert names == {"manifest.json"} | {
        f"{s}.{a}.npy" for s in ("train", "test") for a in ("X", "y", "group")
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}


def test_the_split_is_that_of_its_seed(tmp_path: Path) -> None:
    def rows(seed: int, folder: str) -> np.ndarray:
        text = f'[site]\nname = "north"\ntable = "rows.csv"\n[split]\nseed = {seed}\n'
        place = write_site(tmp_path / folder, text)
        return np.array(prepare(SiteConfig.load(place)).site.silo.rows("test").X)

    assert np.array_equal(rows(1, "a"), rows(1, "b"))
    assert not np.array_equal(rows(1, "a"), rows(2, "c"))


def test_columns_are_mapped_and_a_column_splits(tmp_path: Path) -> None:
    text = """
[site]
name = "north"
table = "mine.csv"
[columns]
x0 = "AGE"
sex = "gender at birth"
[split]
column = "part"
"""
    folder = write_site(tmp_path / "north", text)
    frame = pd.read_csv(folder / "rows.csv")
    frame = frame.rename(columns={"x0": "AGE", "sex": "gender at birth"})
    frame["x0"] = "something else that has the federation's name"
    frame["part"] = np.where(np.arange(len(frame)) < 150, "train", "test")
    frame.to_csv(folder / "mine.csv", index=False)
    site = prepare(SiteConfig.load(folder)).site
    assert len(site.silo.rows("train")) == 150
    assert np.array(site.silo.rows("train").X[:, 0]) == pytest.approx(
        frame["AGE"][:150].to_numpy()
    )


def test_all_problems_of_a_site_file_at_once(tmp_path: Path) -> None:
    text = """
[site]
table = 3
[splitt]
[limits]
flor = 3
queries = -1
radius = "big"
[columns]
x = 3
"""
    named = ("'name'", "'table'", "'split'", "'floor'", "'queries'", "'radius'")
    with raises(UsageError, "missing-key", *named, "[columns]") as error:
        SiteConfig.load(write_site(tmp_path, text))
    assert len(error.value.codes) == 7


def test_all_problems_of_a_table_at_once(tmp_path: Path) -> None:
    text = """
[site]
name = "north"
table = "rows.csv"
[columns]
sexx = "SEX"
x0 = "x00"
[split]
column = "prat"
"""
    named = ("'sexx'", "'sex'", "'x00'", "'x0'", "'prat'")
    with raises(DataError, "missing-column", *named) as error:
        prepare(SiteConfig.load(write_site(tmp_path, text)))
    assert len(error.value.codes) == 3


def test_values_of_the_split_column(tmp_path: Path) -> None:
    text = '[site]\nname = "north"\ntable = "rows.csv"\n[split]\ncolumn = "sex"\n'
    with raises(DataError, "wrong-split"):
        prepare(SiteConfig.load(write_site(tmp_path, text)))


def test_splits_below_the_floor_and_missing_ones(tmp_path: Path) -> None:
    text = (
        '[site]\nname = "north"\ntable = "rows.csv"\n'
        "[split]\ntest = 0.0\nvalidation = 0.02\n"
    )
    with raises(DataError, "no-rows", "'test'", "'validation'", "4", "10") as error:
        prepare(SiteConfig.load(write_site(tmp_path, text)))
    assert "too-few-rows" in error.value.codes


def test_a_site_that_is_not_agreed_on(tmp_path: Path) -> None:
    text = '[site]\nname = "noth"\ntable = "rows.csv"\n'
    with raises(UsageError, "unknown-site", "north"):
        prepare(SiteConfig.load(write_site(tmp_path, text)))


def test_changed_rows_are_not_answered_from(tmp_path: Path) -> None:
    folder = write_site(tmp_path)
    prepare(SiteConfig.load(folder))
    path = folder / "prepared" / "train.X.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    site = Site.open(folder)
    assert send(site, census(site)).refusal == "ArtefactError at the site"
    with raises(ArtefactError, "changed-file"):
        site.silo.rows("train")
    assert not send(site, census(site, "test"), (0, 2)).refusal


def test_rows_of_another_schema_are_not_opened(tmp_path: Path) -> None:
    folder = write_site(tmp_path)
    prepare(SiteConfig.load(folder))
    agreed = json.loads((folder / "federation.json").read_text())
    agreed["target"] = "something else"
    schema = pffl.data.Schema(
        tuple(column["name"] for column in agreed["columns"]),
        tuple(pffl.data.Attribute(n, tuple(v)) for n, v in agreed["attributes"]),
        tuple(agreed["labels"]),
        agreed["target"],
    )
    agreed["schema_hash"] = schema.hash
    (folder / "federation.json").write_text(json.dumps(agreed))
    with raises(ArtefactError, "other-schema"):
        Site.open(folder)


def test_an_unprepared_site_says_what_to_do(tmp_path: Path) -> None:
    with raises(ArtefactError, "no-prepared-rows"):
        Site.open(write_site(tmp_path))


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 20, n),
            "weight": rng.normal(70, 20, n),
            "ward": rng.choice(["a", "b", "c"], n),
            "sex": rng.choice(["f", "m"], n),
            "race": rng.choice(["x", "y", "z"], n),
            "site": rng.choice(["north", "south"], n),
            "sick": rng.choice(["no", "yes"], n),
        }
    )
    frame.loc[::7, "age"] = np.nan
    return frame


def test_the_agreement_is_read_as_written(tmp_path: Path) -> None:
    federation = Federation.from_table(
        table(), label="sick", group=("sex", "race"), silo="site", missing="indicator"
    )
    agreed = Agreement.of(federation)
    path = tmp_path / "federation.json"
    path.write_text(agreed.text(), "utf-8")
    again = Agreement.read(path)
    assert again == agreed
    assert again.schema.hash == federation.schema.hash
    rows = again.encoding.rows(table())
    assert pytest.approx(federation.encoding.rows(table()).X) == rows.X  # type: ignore[union-attr]
    assert again.columns == ("age", "weight", "ward", "sex", "race", "sick")


def test_sites_read_dates_and_rare_values_as_was_agreed(tmp_path: Path) -> None:
    whole = table()
    days = pd.Timestamp("1950-01-01") + pd.to_timedelta(np.arange(len(whole)) * 50, "D")
    whole["born"] = days.strftime("%Y-%m-%d")
    whole["zip"] = [f"z{i % 7 if i % 3 else i}" for i in range(len(whole))]
    federation = Federation.from_table(
        whole,
        label="sick",
        group="sex",
        silo="site",
        missing="indicator",
        dates=["age", "weekday"],
        date_origin=whole["born"].max(),
        rare=5,
    )
    path = tmp_path / "federation.json"
    path.write_text(Agreement.of(federation).text(), "utf-8")
    agreed = Agreement.read(path)
    # A site has none of the frequent values, and the last day is another one's.
    own = whole[:9].assign(zip="elsewhere")
    X, names = agreed.encoding.rows(own).X, agreed.schema.features
    assert (X[:, names.index("zip=other")] == 1).all()
    ages = X[:, names.index("born.age")]
    last = pd.Timestamp(whole["born"].max())
    expected = [(last - pd.Timestamp(day)).days / 365.25 for day in own["born"]]
    np.testing.assert_allclose(ages, expected)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": 2}, "2"),
        ({"extra": 1}, "'extra'"),
        ({"labels": ["no", "maybe"]}, "hash"),
        ({"sites": ["a", "a"]}, "['a', 'a']"),
        ({"sites": []}, "[]"),
        ({"columns": [{"name": "x"}]}, "kind"),
        ({"columns": 3}, "federation"),
        ({"attributes": [["sex", ["f", 3]]]}, "name"),
    ],
)
def test_what_is_no_agreement_is_refused(
    change: dict[str, object], named: str, tmp_path: Path
) -> None:
    agreed = Agreement.of(make_federation())
    path = tmp_path / "federation.json"
    path.write_text(json.dumps(agreed.as_dict() | change))
    with raises(DataError, "other-format", named):
        Agreement.read(path)
    path.write_text("[]")
    with pytest.raises(DataError):
        Agreement.read(path)


def test_inputs_that_set_few_rows_apart_are_named(tmp_path: Path) -> None:
    """The sum of an indicator is a count, and its gradient that of these rows."""
    folder = write_site(tmp_path / "north")
    config = SiteConfig.load(folder)
    assert prepare(config).notes == ()
    lines = (folder / "rows.csv").read_text().splitlines()
    first = ["1.0" if n < 3 else "0.0" for n in range(len(lines) - 1)]
    body = [
        f"{x},{row.split(',', 1)[1]}" for x, row in zip(first, lines[1:], strict=True)
    ]
    (folder / "rows.csv").write_text("\n".join([lines[0], *body]) + "\n")
    (note,) = prepare(config).notes
    assert f"'{config.agreement().schema.features[0]}'" in note
    assert "10" in note
