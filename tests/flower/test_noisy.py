"""A deployed run with noise inside secure sums: folders, accounts, exit 7, resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.flower.noisy import budget_of, noisy_run_file
from tests.flower.runs import run_file
from tests.site.noisy import entered

from pffl import config, runs, verify
from pffl.errors import PrivacyBudgetError, UsageError
from pffl.records import read_toml
from pffl.site import Agreement, Site, SiteConfig, prepare
from tests.cli.helpers import one_line
from tests.cli.helpers import pffl as pffl_command
from tests.inside import (
    RANGES,
    SPEC,
    Account,
    Address,
    InMemory,
    Launch,
    Line,
    composed,
    deploy,
    epsilon_of,
)
from tests.raising import raises


@pytest.fixture(scope="module", autouse=True)
def _imports():
    """Heavy imports, when the first test runs; collecting needs none of them."""
    global run
    pytest.importorskip("flwr")
    from tests.inside import flower_server_run as run


def deployed(
    folder: Path, text: str, *, rows: bool = True
) -> tuple[Path, Mapping[str, Path]]:
    """Write a trial, and prepare its sites if they have rows."""
    path = folder / "run.toml"
    path.write_text(text)
    made = deploy(
        config.load(path),
        read_toml(path),
        folder / "trial",
        address=Address.parse("127.0.0.1:9092"),
        trial_certificates=True,
        trial_data=rows,
    )
    for site in made.sites.values() if rows else ():
        prepare(SiteConfig.load(site))
    return made.folder / "app", made.sites


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noisy")
    return folder, *deployed(folder, noisy_run_file(3000))


def serve(sites: Mapping[str, Path]) -> InMemory:
    """Sites as their nodes open them: anew for every message."""
    return InMemory(
        {
            name: lambda content, at=folder: Site.open(at).answer(content)
            for name, folder in sites.items()
        }
    )


def accounts(sites: Mapping[str, Path]) -> list[list[Line]]:
    return [Account(folder, 10.0, 1e-6).lines() for folder in sites.values()]


def test_what_is_agreed_on_and_allowed(trial, capsys):
    _, app, sites = trial
    agreed = Agreement.read(app / "federation.json")
    assert agreed.secure_sum
    assert agreed.run["privacy"]["epsilon"] == 2.0
    assert "secure_sum" not in agreed.run["privacy"]
    assert agreed.run["privacy"]["colluding"] == 1  # whoever agrees reads it
    site = next(iter(sites.values()))
    rules = SiteConfig.load(site).rules
    # Training and held-out rows together, as an account adds them up.
    assert 2.0 < rules.epsilon < 4.0
    plain = pffl_command(capsys, "site", "show", str(site), "--json")
    assert json.loads(plain.out)["with_the_run"] <= rules.epsilon
    agreeing = pffl_command(capsys, "site", "agree", str(site), "--yes")
    assert agreeing.code == 0
    assert "no more than 1 of the 3" in one_line(agreeing.out)
    dry = pffl_command(capsys, "site", "answer", str(site), "--dry-run")
    assert dry.code == 2


def test_a_run_whose_budget_ends_goes_on_after_a_raise(trial):
    folder, app, sites = trial
    names = list(sites)
    enough = budget_of(sites[names[1]], "1.2")  # of training, a part
    out = folder / "run"
    with raises(PrivacyBudgetError, "budget-exceeded", names[1]) as end:
        run(serve(sites), app, out, extras=False)
    assert end.value.exit_code == 7
    ended = json.loads((out / "record.jsonl").read_text().splitlines()[-1])
    assert (ended["event"], ended["code"]) == ("ended", 7)
    before = accounts(sites)
    assert 2 <= len(before[1]) == len(before[0]) - 1
    budget_of(sites[names[1]], enough)
    solution = run(serve(sites), app, out, resume=True, extras=False)
    after = accounts(sites)
    assert len({str(entered(lines)) for lines in after}) == 1
    for lines, earlier in zip(after, before, strict=True):
        assert lines[: len(earlier)] == earlier
    spent = composed(line.mu for line in after[0] if line.split == "train")
    assert epsilon_of(spent, 1e-6) == pytest.approx(2.0, rel=1e-6)
    part = solution.evidence.privacy
    assert (part.sites, part.shared, part.colluding) == (3, True, 1)
    assert runs.load(out).predictor is not None
    assert [str(one) for one in verify(out) if not one.agrees] == []
    result = json.loads((out / "result.json").read_text())
    assert result["privacy"]["shared"]
    assert np.isfinite(solution.w).all()


def test_a_run_file_that_was_changed_is_refused_before_anything_is_asked(trial):
    folder, app, sites = trial
    other = folder / "other"
    other.mkdir()
    for path in app.iterdir():
        if path.is_file():
            (other / path.name).write_bytes(path.read_bytes())
    text = (other / "run.toml").read_text().replace("epsilon = 2.0", "epsilon = 3.0")
    (other / "run.toml").write_text(text)
    with raises(UsageError, "other-run"):
        run(serve(sites), other, folder / "no", extras=False)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("colluding = 0", "wrong-colluding"),
        ("colluding = 3", "wrong-colluding"),
        ("noise_seed = 1", "not-between-machines"),
    ],
)
def test_refused_when_it_is_deployed(tmp_path, line, code):
    with raises(UsageError, code):
        deployed(tmp_path, noisy_run_file(300, line))


def test_ranges_that_data_come_with_are_agreed_on(tmp_path):
    """COMPAS knows what its inputs are between: sites do not, but by the agreement."""
    text = run_file(tmp_path, secure_sum=True) + "epsilon = 2.0\n"
    path = tmp_path / "run.toml"
    given = text + 'range = ["age=18,70"]\n'
    app, sites = deployed(tmp_path, given, rows=False)
    agreed, there = Agreement.read(app / "federation.json"), config.load(app / SPEC)
    terms = there.privacy.terms
    assert terms is not None
    assert terms.ranges["age"] == (18.0, 70.0)  # what is given goes before
    assert terms.ranges["priors_count"] == RANGES["priors_count"]
    assert agreed.run["privacy"]["range"] == list(there.privacy.range)
    # Without rows a site's budget is for somebody there to set.
    assert {SiteConfig.load(at).rules.epsilon for at in sites.values()} == {0.0}
    launch = Launch(app, None, tmp_path / "out", False, False)
    launch.check(config.load(path))
    path.write_text(text.replace("epsilon = 2.0", "epsilon = 4.0"))
    with raises(UsageError, "other-run"):
        launch.check(config.load(path))
