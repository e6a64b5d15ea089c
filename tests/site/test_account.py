"""A site's privacy account, and runs with noise over sites that keep one."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import pffl
from pffl.errors import ArtefactError, FederationError, PrivacyBudgetError, Refused
from pffl.privacy import Privacy
from pffl.queries import Census
from pffl.site import Rules, Site, SiteConfig, prepare
from pffl.wire import Policy
from tests.cli.helpers import pffl as pffl_command
from tests.helpers import make_federation
from tests.inside import (
    HEAD,
    KEPT,
    LINES,
    OPENING,
    Account,
    InMemory,
    Noise,
    Noisy,
    Remote,
    composed,
    epsilon_of,
)
from tests.raising import raises
from tests.site.sites import write_site


@pytest.fixture
def account(tmp_path):
    found = Account(tmp_path, 1.0, 1e-6)
    found.begin()
    return found


def test_it_adds_up_and_stops_before_the_release(account):
    part = account.budget / 2
    for number in range(4):
        account.charge("run", f"q{number}", "train", part)
    assert account.spent_epsilon() == pytest.approx(1.0, rel=1e-6)
    with raises(PrivacyBudgetError, "budget-exceeded", "1"):
        account.charge("another run", "q5", "test", 0.01)
    assert len(account.lines()) == 4
    # Another process, or one after a restart, sees the same; a raise lets it go on.
    again = Account(account.folder, 1.0, 1e-6)
    assert again.spent == account.spent
    raised = Account(account.folder, 2.0, 1e-6)
    raised.charge("another run", "q5", "test", 0.01)
    assert len(raised.lines()) == 5


def change(place, old, new):
    place.write_text(place.read_text().replace(old, new, 1))


BROKEN = {
    "deleted": lambda folder: (folder / LINES).unlink(),
    "opening deleted": lambda folder: (folder / OPENING).unlink(),
    "another opening": lambda folder: (
        Account(folder.parent, 1.0, 1e-6).begin()
        or (folder.parent / OPENING).replace(folder / OPENING)
    ),
    "head deleted": lambda folder: (folder / HEAD).unlink(),
    "both deleted": lambda folder: (
        (folder / HEAD).unlink() or (folder / LINES).unlink()
    ),
    "a figure edited": lambda folder: change(folder / LINES, '"mu": 0.1', '"mu": 0.0'),
    "the last line taken out": lambda folder: (folder / LINES).write_text(
        "".join((folder / LINES).read_text().splitlines(keepends=True)[:-1])
    ),
    "the first line taken out": lambda folder: (folder / LINES).write_text(
        "".join((folder / LINES).read_text().splitlines(keepends=True)[1:])
    ),
    "not JSON": lambda folder: (folder / LINES).write_text("{"),
    "emptied": lambda folder: (folder / LINES).write_text(""),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_changed_account_stops_the_site(account, how):
    for number in range(3):
        account.charge("run", f"q{number}", "train", 0.1)
    BROKEN[how](account.folder)
    with raises(Refused, "damaged-account"):
        account.charge("run", "q9", "train", 0.1)
    with raises(Refused, "damaged-account"):
        account.lines()


def remove_all(folder):
    """Take away everything that knows of the account."""
    for name in (LINES, HEAD, OPENING, ".privacy.lock"):
        (folder / name).unlink()
    if (folder / KEPT).exists():
        shutil.rmtree(folder / KEPT)


def test_an_account_that_is_gone_as_a_whole_is_not_begun_again(account):
    account.charge("run", "q", "train", 0.1)
    with account.turn():
        pass
    remove_all(account.folder)
    with raises(Refused, "no-account"):
        account.charge("run", "q2", "train", 0.1)
    # Only by a declaration; what was is kept beside it.
    account.begin("the people of the new clinic")
    account.charge("run", "q2", "train", 0.1)
    opening = json.loads((account.folder / OPENING).read_text())
    assert opening["declared"] == "the people of the new clinic"
    first = account.key
    account.begin("again others")
    assert account.key != first
    assert account.lines() == []
    kept = list(account.folder.glob(f"privacy-before/*/{LINES}"))
    assert len(kept) == 1
    assert len(kept[0].read_text().splitlines()) == 1


def test_a_crash_between_line_and_head_loses_nothing(account):
    account.charge("run", "q1", "train", 0.1)
    before = (account.folder / HEAD).read_text()
    account.charge("run", "q2", "train", 0.1)
    (account.folder / HEAD).write_text(before)
    assert len(account.lines()) == 2
    account.charge("run", "q3", "train", 0.1)
    assert len(account.lines()) == 3


# Over sites


@pytest.fixture(scope="module")
def data():
    return make_federation(0, sizes=(1500,) * 3, test=600)


def sites_of(data, folder, epsilon):
    rules = Rules(epsilon=epsilon, floor=10)
    out = {}
    for silo in data.silos:
        place = folder / silo.name
        place.mkdir(exist_ok=True)
        out[silo.name] = Site(silo, data.schema, rules, place)
    return out


def engine_of(data, sites, **more):
    return Noisy(
        InMemory({name: site.answer for name, site in sites.items()}),
        data.schema,
        data.silo_names,
        encoding=data.encoding,
        policy=Policy(seconds=60.0),
        name=data.name,
        **more,
    )


def budget(data, epsilon=2.0):
    ranges = {str(name): (-6.0, 6.0) for name in data.schema.features}
    return Privacy(epsilon, ranges=ranges)


def solve(data, sites, epsilon=2.0, **more):
    return pffl.solve(
        engine_of(data, sites),
        pffl.BoundedGroupLoss(0.69),
        method="exact",
        seed=0,
        privacy=budget(data, epsilon),
        **more,
    )


def test_a_run_over_sites_has_the_same_account_everywhere(data, tmp_path):
    sites = sites_of(data, tmp_path, 10.0)
    found = solve(data, sites)
    part = found.evidence.privacy
    assert isinstance(part, Noise)
    assert (part.sites, part.shared, part.repeatable) == (3, False, False)
    spent = []
    for name in sites:
        account = Account(tmp_path / name, 10.0, 1e-6)
        lines = account.lines()
        by_split = {
            split: composed(line.mu for line in lines if line.split == split)
            for split in ("train", "test")
        }
        assert epsilon_of(by_split["train"], 1e-6) == pytest.approx(2.0, rel=1e-6)
        assert epsilon_of(by_split["test"], 1e-6) == pytest.approx(2.0, rel=1e-6)
        assert part.mu == pytest.approx(by_split["train"])
        spent.append(account.spent)
    assert len(set(spent)) == 1
    # Exact counts are whole: what came back has noise down to the last digit.
    assert all(count % 1 for count in part.seen.counts)
    kept = [next((tmp_path / name / "released").iterdir()) for name in sites]
    assert len({place.read_bytes() for place in kept}) == len(kept)


def test_the_budget_ends_with_exit_7_and_goes_on_after_a_raise(data, tmp_path):
    sites = sites_of(data, tmp_path, 2.2)  # enough for training, not for the rest
    keep = tmp_path / "checkpoint"
    with raises(PrivacyBudgetError, "budget-exceeded") as end:
        solve(data, sites, checkpoint=keep)
    assert end.value.exit_code == 7
    before = Account(tmp_path / "site 0", 2.2, 1e-6).lines()
    assert any(keep.iterdir())
    raised = sites_of(data, tmp_path, 10.0)
    found = solve(data, raised, checkpoint=keep)
    after = Account(tmp_path / "site 0", 10.0, 1e-6).lines()
    # Nothing was released twice: the rest of the plan, and no more.
    assert after[: len(before)] == before
    total = composed(line.mu for line in after if line.split == "train")
    assert epsilon_of(total, 1e-6) == pytest.approx(2.0, rel=1e-6)
    assert isinstance(found.evidence.privacy, Noise)


def test_sites_without_a_budget_or_with_a_broken_account_refuse(data, tmp_path):
    with pytest.raises(FederationError, match="no budget"):
        solve(data, sites_of(data, tmp_path / "..", 0.0))
    sites = sites_of(data, tmp_path, 10.0)
    solve(data, sites)
    (tmp_path / "site 1" / LINES).unlink()
    with pytest.raises(FederationError, match="is not whole"):
        solve(data, sites, epsilon=1.0)


def test_a_site_with_a_budget_answers_nothing_without_noise(data, tmp_path):
    sites = sites_of(data, tmp_path, 3.0)
    transport = InMemory({name: site.answer for name, site in sites.items()})
    with pytest.raises(FederationError, match="a sum without noise"):
        Remote(
            transport,
            data.schema,
            data.silo_names,
            encoding=data.encoding,
            policy=Policy(seconds=60.0),
            name=data.name,
        ).ask(Census(data.schema))


def tally(schema, noise=9.0):
    ends = np.full(schema.n_features, -6.0), np.full(schema.n_features, 6.0)
    low, high = ends
    return Census(schema, noise=np.full(2, noise), low=low, high=high, longest=2.0)


def test_the_same_release_again_is_the_same_and_free(data, tmp_path):
    """A server that asks again learns nothing more, in this run or in another."""
    sites = sites_of(data, tmp_path, 10.0)
    engine, query = engine_of(data, sites), tally(data.schema)
    first, again = engine.ask(query), engine.ask(query)
    other = engine_of(data, sites).ask(query)
    assert np.array_equal(first.sums, again.sums)
    assert np.array_equal(first.sums, other.sums)
    assert len(Account(tmp_path / "site 0", 10.0, 1e-6).lines()) == 1
    assert json.loads((tmp_path / "site 0" / HEAD).read_text())[0] == 1


# From a table


BUDGET = '[site]\nname = "north"\ntable = "rows.csv"\n[limits]\nepsilon = 3.0\n'


def prepared(folder):
    silo = prepare(SiteConfig.load(folder)).site.silo
    return {
        split: {row.tobytes() for row in silo.rows(split).X}
        for split in ("train", "test")
    }


def test_a_site_with_a_budget_cuts_each_row_by_itself(tmp_path):
    """One row more moves no other; and the account is begun with the first rows."""
    folder = write_site(tmp_path / "north", BUDGET)
    before = prepared(folder)
    assert Account(folder, 3.0, 1e-6).lines() == []
    frame = pd.read_csv(folder / "rows.csv")
    frame.drop(index=7).to_csv(folder / "rows.csv", index=False)
    after = prepared(folder)
    assert all(after[split] <= before[split] for split in before)
    lost = [len(before[split] - after[split]) for split in before]
    assert sorted(lost) == [0, 1]


def test_rows_cut_at_random_are_refused_under_noise(tmp_path):
    folder = write_site(tmp_path / "north")
    prepare(SiteConfig.load(folder))
    (folder / "site.toml").write_text(BUDGET)
    site = Site.open(folder)
    with raises(Refused, "wrong-split"):
        site.releases.open(fresh=site.fresh, remember=True)
    # There are rows already, and maybe answers: only a declaration begins an account.
    with raises(ArtefactError, "no-account"):
        prepare(SiteConfig.load(folder))


def test_an_administrator_begins_an_account(tmp_path, capsys):
    folder = write_site(tmp_path / "north", BUDGET)
    prepared(folder)
    for name in (LINES, HEAD, OPENING):
        (folder / name).unlink()
    with raises(ArtefactError, "no-account"):
        prepare(SiteConfig.load(folder))
    assert pffl_command(capsys, "site", "ledger", str(folder)).error == "no-account"
    empty = pffl_command(capsys, "site", "ledger", str(folder), "--begin", " ", "--yes")
    assert empty.code == 2
    text = "patients of 2027; none was here before"
    done = pffl_command(capsys, "site", "ledger", str(folder), "--begin", text, "--yes")
    assert done.code == 0, done.err
    assert json.loads((folder / OPENING).read_text())["declared"] == text
    prepared(folder)
    assert pffl_command(capsys, "site", "ledger", str(folder)).code == 0


def test_prepared_rows_are_answered_about_and_stop_without_their_account(tmp_path):
    """From table to release; then everything that knows of the account is removed."""
    folder = write_site(tmp_path / "north", BUDGET)
    prepare(SiteConfig.load(folder))

    def ask(noise):
        site = Site.open(folder)
        engine = Noisy(
            InMemory({"north": site.answer}),
            site.schema,
            ("north",),
            encoding=SiteConfig.load(folder).agreement().encoding,
            policy=Policy(seconds=60.0),
            name="data",
        )
        engine.ask(tally(site.schema, noise))

    ask(9.0)
    assert len(Account(folder, 3.0, 1e-6).lines()) == 1
    remove_all(folder)
    for name in ("guard.json", "answers.jsonl"):  # and the memory of any answer
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(FederationError, match="gone, or was never begun"):
        ask(8.0)
