"""What a site agreed to: what changed is said, and nothing else is in force."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from pffl.errors import ArtefactError, UsageError
from pffl.site import Agreement, Site, SiteConfig, prepare
from tests.helpers import make_federation
from tests.inside import SiteKeys, consent
from tests.inside import wire_keys_FILE as FILE
from tests.raising import raises
from tests.site.sites import write_site

SITES = ("north", "south", "west")
KEYS = {name: SiteKeys.generate() for name in (*SITES, "east")}
RUN = {"method": {"kind": "exact"}, "run": {"seed": 3}}


def agreement(sites: tuple[str, ...] = SITES, **changes: object) -> Agreement:
    plain = replace(
        Agreement.of(make_federation()),
        sites=sites,
        keys={name: KEYS[name].public for name in sites},
        secure_sum=True,
        run=RUN,
    )
    return replace(plain, **changes)


def config(folder: Path, name: str = "north") -> SiteConfig:
    return SiteConfig.parse({"site": {"name": name}}, folder)


def test_what_is_agreed_to_is_in_force_and_nothing_else(tmp_path: Path) -> None:
    site, first = config(tmp_path), agreement()
    with raises(UsageError, "not-agreed", "north"):
        consent.check(site, first)
    consent.give(site, first)
    consent.check(site, site.agreement())
    consent.check(site, first)
    assert (tmp_path / consent.FILE).stat().st_mode & 0o777 == 0o600
    others = [
        agreement(floor=9),
        agreement(run={**RUN, "run": {"seed": 4}}),
        agreement(keys={**first.keys, "west": KEYS["east"].public}),
        agreement((*SITES, "east")),
        agreement(("south", "north", "west")),
        agreement(name="another"),
        agreement(secure_sum=False),
        agreement(secure_sum=False, keys={}),
    ]
    for other in others:  # as if somebody had put another file there
        with raises(UsageError, "not-agreed", "north"):
            consent.check(site, other)
    plain = agreement(secure_sum=False, keys={})
    consent.give(site, plain)
    consent.check(site, plain)
    consent.check(site, replace(plain, floor=9))  # there is nothing to protect


def test_a_site_s_own_floor_is_not_undercut(tmp_path: Path) -> None:
    site, low = config(tmp_path), agreement(floor=1)
    consent.give(site, low)
    with raises(UsageError, "other-floor", "north", "10"):
        consent.check(site, low)
    lower = SiteConfig.parse(
        {"site": {"name": "north"}, "limits": {"floor": 1}}, tmp_path
    )
    consent.check(lower, low)


def test_consent_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    site = config(tmp_path)
    consent.give(site, agreement())
    path = tmp_path / consent.FILE
    plain = json.loads(path.read_text())
    for wrong in ({**plain, "version": 2}, {}, [], {**plain, "federation": {}}):
        path.write_text(json.dumps(wrong))
        with raises(ArtefactError, "bad-consent"):
            consent.given(tmp_path)
    path.write_text("{")
    with raises(ArtefactError, "bad-consent"):
        consent.check(site, agreement())


def test_every_change_is_said() -> None:
    before = agreement()
    assert consent.changes(before, before) == []
    cases = {
        "'east'": agreement((*SITES, "east")),
        "'west'": agreement(SITES[:2]),
        "order": agreement(("south", "north", "west")),
        "'south'": agreement(keys={**before.keys, "south": KEYS["east"].public}),
        "keys": agreement(keys={}),
        "secure sums": agreement(secure_sum=False),
        "10 becomes 3": agreement(floor=3),
        "seed 3 becomes 4": agreement(run={**RUN, "run": {"seed": 4}}),
        "method": agreement(run={"run": {"seed": 3}}),
        "'splits'": agreement(splits=("train",)),
        "'name'": agreement(name="another"),
    }
    for named, after in cases.items():
        found = consent.changes(before, after)
        assert any(named in line for line in found), (named, found)
        assert before.hash != after.hash
    assert len(consent.changes(agreement(keys={}), before)) == 1


def test_no_field_of_an_agreement_changes_silently() -> None:
    """Whatever makes another file makes a sentence: also what is not known here."""
    before = agreement()
    for name in before.as_dict():
        after = replace(before)
        other = {**before.as_dict(), name: [] if name == "sites" else {}}
        if name in ("keys", "secure_sum", "floor", "run", "sites"):
            continue  # above, from the attributes
        after.__dict__["as_dict"] = lambda other=other: other
        assert consent.changes(before, after) == [f"'{name}' is another"] or (
            before.as_dict()[name] == {}
        )


def test_two_sets_of_sites_are_warned_of() -> None:
    before = agreement()
    for after, alone in (
        (agreement((*SITES, "east")), "'east'"),
        (agreement(SITES[:2]), "'west'"),
        (agreement(("north", "south", "east")), "'east' and 'west'"),
    ):
        assert alone in consent.differencing(before, after, "north")
    assert "'north'" in consent.differencing(None, before, "north")
    same = agreement(run={**RUN, "run": {"seed": 4}})
    assert consent.differencing(before, same, "north") == ""
    plain = agreement(secure_sum=False)  # every site's sums were read already
    assert consent.differencing(plain, agreement((*SITES, "east")), "north") == ""
    assert consent.differencing(before, plain, "north") == ""


def test_a_site_answers_under_the_key_that_was_agreed_on(tmp_path: Path) -> None:
    site, agreed = config(tmp_path), agreement()
    with raises(UsageError, "missing-key"):
        consent.own_keys(site, agreed)
    assert consent.own_keys(site, agreement(keys={}, secure_sum=False)) is None
    KEYS["east"].write(tmp_path / FILE)
    with raises(UsageError, "other-key", "north"):
        consent.own_keys(site, agreed)
    KEYS["north"].write(tmp_path / FILE)
    assert consent.own_keys(site, agreed) == KEYS["north"]


def test_a_site_does_not_open_under_what_nobody_agreed_to(tmp_path: Path) -> None:
    limits = '[site]\nname = "north"\ntable = "rows.csv"\n[limits]\nfloor = 30\n'
    folder = write_site(tmp_path, limits)
    federation = folder / "federation.json"
    plain = Agreement.read(federation)
    made = {name: SiteKeys.generate() for name in (*plain.sites, "x", "y")}
    secure = replace(
        plain,
        sites=tuple(made),
        keys={name: own.public for name, own in made.items()},
        secure_sum=True,
        floor=30,
        run=RUN,
    )
    assert any(
        hidden.any() for hidden in prepare(SiteConfig.load(folder)).hidden.values()
    )
    federation.write_text(secure.text())
    site = SiteConfig.load(folder)
    summary = prepare(site)  # which shows nothing to anybody
    assert not any(hidden.any() for hidden in summary.hidden.values())  # one set
    made[site.name].write(folder / FILE)
    with raises(UsageError, "not-agreed", "north"):
        Site.open(folder)
    consent.give(site, secure)
    assert Site.open(folder).name == "north"
    federation.write_text(replace(secure, floor=2).text())  # by whoever runs the server
    with raises(UsageError, "not-agreed", "north"):
        Site.open(folder)
