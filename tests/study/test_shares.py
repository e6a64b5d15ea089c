"""Seeds that are shared out to processes end as if one had trained them all."""

from __future__ import annotations

from tests.inside import parse, run_figure, shares
from tests.study.test_reproduce import TINY, open_data


def told(result):
    """What a panel says, without what it took by the clock."""
    record = result.as_dict()
    for line in (record, *record["means"]):
        del line["seconds"]
    return record


def test_shares_that_are_gathered_are_the_whole(tmp_path):
    figure = parse("tiny", TINY)
    (whole,) = run_figure(figure, open_data, out=tmp_path / "whole")
    out = tmp_path / "shared"
    for k in (1, 2):
        place = out / shares.PLACE.format(k, 2)
        assert run_figure(figure, open_data, out=place, share=(k, 2)) == []
    shares.gather(out)
    assert not list(out.glob("share-*"))
    lines = (out / "rows.jsonl").read_bytes()
    looks = (out / "looks.jsonl").read_text().splitlines()
    alone = (tmp_path / "whole" / "looks.jsonl").read_text().splitlines()
    assert sorted(looks) == sorted(alone)
    (found,) = run_figure(figure, open_data, out=out)
    assert (out / "rows.jsonl").read_bytes() == lines  # nothing is trained again
    assert told(found) == told(whole)
