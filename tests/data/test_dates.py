from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pffl.data import DataWarning, TableEncoding
from pffl.errors import DataError, Problems, UsageError
from tests.data.tables import build, people
from tests.inside import VALUES, Column, days_of, order_of, part_of
from tests.raising import raises

DAYS = st.lists(st.dates(datetime.date(1, 1, 1)), min_size=1, max_size=8)
WRITTEN = {
    "ymd": ("{0:%Y}-{0:%m}-{0:%d}", "{0.year:04d}/{0.month}/{0.day}"),
    "dmy": ("{0.day}.{0.month}.{0.year:04d}", "{0:%d}/{0:%m}/{0.year:04d}"),
    "mdy": ("{0.month}/{0.day}/{0.year:04d}", "{0:%m}-{0:%d}-{0.year:04d}"),
}


@given(DAYS, st.sampled_from(sorted(WRITTEN)), st.integers(0, 1), st.booleans())
def test_what_is_written_is_read_or_asked_about(days, order, form, timed):
    days = [day.replace(year=max(day.year, 1000)) for day in days]
    texts = [WRITTEN[order][form].format(d) + " 23:59:59" * timed for d in days]
    if order == "ymd":
        assert order_of(texts) == order
    else:
        with raises(DataError, "bad-date", "date_order='dmy'"):
            order_of(texts)
        assert order_of(texts, order) == order
    assert days_of(pd.Series(texts), order).tolist() == days


@given(DAYS)
def test_parts_are_those_of_the_calendar(days):
    own = np.array(days, dtype="datetime64[D]")
    last = max(days)
    assert part_of(own, "year", None).tolist() == [d.year for d in days]
    assert part_of(own, "month", None).tolist() == [d.month - 1 for d in days]
    assert part_of(own, "weekday", None).tolist() == [d.weekday() for d in days]
    assert part_of(own, "age", last.isoformat()) == pytest.approx(
        [(last - d).days / 365.25 for d in days]
    )


@pytest.mark.parametrize(
    "texts",
    [["2021-02-30"], ["2021-04"], ["2021"], ["soon"], ["31/12/2021", "12/31/2021"]],
)
def test_what_is_no_date(texts):
    assert order_of(texts, "dmy") is None


def test_all_kinds_of_dates_are_one():
    days = [datetime.date(1980, 2, 29), datetime.date(2001, 12, 31)]
    stamps = pd.to_datetime(pd.Series(days)) + pd.Timedelta(hours=23)
    texts = pd.Series([day.isoformat() for day in days])
    for series in (pd.Series(days), stamps, stamps.dt.tz_localize("Asia/Tokyo"), texts):
        assert days_of(series, None).tolist() == days


def dated(rows=120):
    born = pd.Timestamp("1960-03-01") + pd.to_timedelta(np.arange(rows) * 97, "D")
    return people(rows).assign(born=born)


def test_dates_become_the_parts_that_were_asked_for(recwarn):
    frame = dated()
    federation = build(frame, dates=["year", "month", "age"], test_fraction=0.0)
    features = federation.schema.features
    assert features[-14:] == (
        "born.year",
        *(f"born.month={m}" for m in VALUES["month"]),
        "born.age",
    )
    last = frame["born"].max()
    again = TableEncoding.from_dict(federation.encoding.as_dict())
    assert again == federation.encoding
    new = frame[:3].assign(born=["1999-12-31", "2000-01-01 08:00", "2031-07-04"])
    X = again.inputs(new)[:, -14:]
    np.testing.assert_array_equal(X[:, 0], [1999, 2000, 2031])
    np.testing.assert_array_equal(X[:, 1:13].argmax(axis=1), [11, 0, 6])
    np.testing.assert_array_equal(X[:, 1:13].sum(axis=1), 1)
    ages = [(last - pd.Timestamp(t)).days / 365.25 for t in new["born"].str[:10]]
    np.testing.assert_allclose(X[:, 13], ages)


def test_dates_are_left_out_until_they_are_asked_for():
    frame = dated().assign(born=lambda d: d["born"].dt.strftime("%d.%m.%Y"))
    with pytest.warns(DataWarning, match="'born' .*1960-03-01"):
        federation = build(frame, date_order="dmy")
    assert not any("born" in name for name in federation.schema.features)
    told = build(frame, dates="age", date_order="dmy")
    assert told.schema.features[-1] == "born.age"


def test_a_missing_date_is_marked(recwarn):
    frame = dated()
    frame.loc[3, "born"] = pd.NaT
    federation = build(
        frame, dates=["age", "weekday"], missing="indicator", test_fraction=0.0
    )
    assert federation.schema.features[-1] == "born=missing"
    X = federation.encoding.inputs(frame[2:5])[:, -9:]
    np.testing.assert_array_equal(X[1], [0.0] * 8 + [1.0])
    assert X[0, -1] == 0
    assert X[0, 1:8].sum() == 1
    assert {one.column for one in federation.tell()} >= {"born.age", "born.weekday"}


def test_days_and_months_are_not_guessed():
    texts = [f"0{1 + i % 9}/0{1 + i % 7}/2021" for i in range(120)]
    frame = people().assign(seen=texts)
    with raises(DataError, "bad-date", "'seen': '01/01/2021'"):
        build(frame, dates="month")
    with raises(DataError, "bad-date", "'seen': '13/01/2021'"):
        build(frame.assign(seen="13/01/2021"), dates="month")
    with pytest.warns(DataWarning, match="'seen'"):
        build(frame)
    X = build(frame, dates="month", date_order="mdy").encoding.inputs(frame)
    np.testing.assert_array_equal(X[:9, -12:].argmax(axis=1), np.arange(9))


def test_a_word_among_dates_is_named_with_its_place():
    frame = dated().assign(born=lambda d: d["born"].dt.strftime("%Y-%m-%d"))
    frame.loc[7, "born"] = "2021-02-30"
    with raises(DataError, "mixed-types", "2021-02-30", "1", "7"):
        build(frame, dates="age")
    column = Column("born", "date", parts=("age",), origin="2021-01-01")
    problems = Problems("table", DataError)
    column.encode(frame["born"], problems)
    assert "'2021-02-30' (1)" in problems.found[0]


def test_wrong_options_are_refused():
    for wrong, code in (
        ({"dates": ["day"]}, "wrong-value"),
        ({"dates": "age", "date_origin": "1.2.2020"}, "bad-date"),
    ):
        with raises(UsageError, code):
            build(people(), **wrong)
    with raises(DataError, "bad-column"):
        Column("born", "date")
