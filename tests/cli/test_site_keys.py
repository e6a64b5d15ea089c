"""`pffl site key`, `pffl site agree` and `pffl deploy --keys`, as they are typed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from pffl.cli import main
from pffl.site import Agreement
from tests.cli.helpers import SMALL, Command, argv, one_line, pffl
from tests.inside import PUBLIC_FILE, SiteKeys, consent, read_public
from tests.inside import wire_keys_FILE as FILE

SITES = ("north", "south", "west")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return lambda *arguments: pffl(capsys, *arguments)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sites that made their keys, and what was deployed with them."""
    folder = tmp_path_factory.mktemp("keys")
    public = folder / "public"
    public.mkdir()
    for name in SITES:
        keys = SiteKeys.generate()
        (folder / name).mkdir()
        keys.write(folder / name / FILE)
        keys.write_public(public / f"{name}.pub", name)
    run = ("deploy", *SMALL, "--bound", "0.6", "--sites", ",".join(SITES))
    run += ("--keys", str(public), "-o", str(folder / "out"))
    run += ("--set", "privacy.secure_sum=false", "--trial-data")
    with pytest.raises(SystemExit, match="0"):
        main(argv(*run))
    return folder


@pytest.fixture
def site(deployed: Path, tmp_path: Path) -> Path:
    """The folder of a site, with its key."""
    folder = tmp_path / "north"
    shutil.copytree(deployed / "out" / "sites" / "north", folder)
    shutil.copy(deployed / "north" / FILE, folder / FILE)
    return folder


def test_a_key_is_made_once_and_shown_again(run: Command, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    seen = run("site", "key", folder, "--name", "Süd")
    assert seen.code == 0, seen.err
    keys = SiteKeys.read(folder / FILE)
    assert keys.public.fingerprint in seen.out
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert read_public(folder / PUBLIC_FILE) == ("Süd", keys.public)
    again = run("site", "key", folder, "--name", "Süd", "--json")
    assert again.json["fingerprint"] == keys.public.fingerprint
    assert again.json["new"] is False
    assert keys.sign_secret.hex() not in seen.out + again.out


def test_a_key_needs_a_name_and_the_right_one(
    run: Command, tmp_path: Path, site: Path
) -> None:
    assert run("site", "key", tmp_path).error == "file-missing"
    assert not (tmp_path / FILE).exists()
    assert run("site", "key", site, "--name", "south").error == "other-site"


def test_a_rotated_key_is_another_and_not_agreed_on(run: Command, site: Path) -> None:
    old = SiteKeys.read(site / FILE)
    seen = run("site", "key", site, "--rotate")
    assert seen.code == 0
    assert old.public.fingerprint in one_line(seen.err)
    new = SiteKeys.read(site / FILE)
    assert new.public != old.public
    assert read_public(site / PUBLIC_FILE) == ("north", new.public)
    refused = run("site", "agree", site, "--yes")
    assert (refused.code, refused.error) == (2, "other-key")
    for key in (new, old):
        assert key.public.fingerprint in one_line(refused.err)
    assert consent.given(site) is None
    agreed = Agreement.read(site / "federation.json")
    proposal = replace(agreed, keys={**agreed.keys, "north": new.public})
    path = site / "proposal.json"
    path.write_text(proposal.text())
    assert run("site", "agree", site, path, "--yes").code == 0
    assert Agreement.read(site / "federation.json").hash == proposal.hash


def test_deploy_pins_the_keys_and_the_run(deployed: Path) -> None:
    out = deployed / "out"
    agreed = Agreement.read(out / "app" / "federation.json")
    for name in SITES:
        public = read_public(deployed / "public" / f"{name}.pub")[1]
        assert agreed.keys[name] == public
        own = out / "sites" / name
        assert Agreement.read(own / "federation.json").hash == agreed.hash
        assert not (own / FILE).exists()  # nobody but the site has it
        assert consent.given(own) is None
    assert agreed.run["run"]["seed"] == 1


def test_without_every_key_nothing_is_deployed(
    run: Command, deployed: Path, tmp_path: Path
) -> None:
    names = ("--sites", "north,south,east", "--keys", deployed / "public")
    seen = run("deploy", *SMALL, "--bound", "0.6", *names, "-o", tmp_path / "out")
    assert (seen.code, seen.error) == (2, "unknown-site")
    for named in ("'west.pub'", "'east'"):
        assert named in one_line(seen.err)
    assert not (tmp_path / "out").exists()


def test_agree_shows_who_takes_part_and_what_changed(run: Command, site: Path) -> None:
    asked = run("site", "agree", site)
    assert asked.error == "needs-confirmation"  # nobody sits at a test's terminal
    assert consent.given(site) is None
    first = run("site", "agree", site, "--yes")
    assert first.code == 0, first.err
    agreed = Agreement.read(site / "federation.json")
    for name in SITES:
        assert f"{name}: {agreed.keys[name].fingerprint}" in first.out
    assert "seed 1" in first.out
    assert "No secure sums" in first.out
    secure = replace(agreed, secure_sum=True, floor=20)
    path = site.parent / "new.json"
    path.write_text(secure.text())
    second = run("site", "agree", site, path, "--yes")
    assert "secure sums begin" in second.out
    assert "the floor: 10 becomes 20 people" in second.out
    assert consent.given(site) == Agreement.read(site / "federation.json")
    key = SiteKeys.generate().public
    four = replace(secure, sites=(*SITES, "east"), keys={**secure.keys, "east": key})
    path.write_text(four.text())
    refused = run("site", "agree", site, path, "--yes")
    assert refused.error == "needs-confirmation"
    assert consent.given(site) == secure
    third = run("site", "agree", site, path, "--yes", "--other-sites")
    assert third.code == 0
    assert "site 'east' joins" in third.out
    assert "the rows of 'east' alone" in one_line(third.err)
    again = run("site", "agree", site, "--yes")
    assert "alone" not in again.err


def test_under_secure_sums_a_key_of_the_run_is_shown_first(
    run: Command, site: Path
) -> None:
    path = site / "federation.json"
    path.write_text(replace(Agreement.read(path), secure_sum=True).text())
    assert run("site", "prepare", site).code == 0
    assert run("site", "answer", site, "--dry-run").error == "not-agreed"
    assert run("site", "agree", site, "--yes").code == 0
    seen = run("site", "answer", site, "--dry-run", "--json").json
    assert seen["header"]["refusal"] == ""
    assert seen["header"]["step"] == 0
    assert seen["header"]["signature"]
    assert list(seen["arrays"]) == ["masked"]
    again = run("site", "answer", site, "--dry-run", "--json").json
    assert again["header"]["transcript"] == seen["header"]["transcript"]
    assert again != seen  # nothing is remembered, and keys are drawn for each run


@pytest.mark.parametrize("answer", [True, False])
def test_whoever_sits_there_is_asked(
    run: Command, site: Path, monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda text: answer)
    seen = run("site", "agree", site)
    assert seen.code == (0 if answer else 1)
    assert (consent.given(site) is not None) == answer


def test_a_proposal_without_the_site_is_refused(run: Command, site: Path) -> None:
    agreed = Agreement.read(site / "federation.json")
    keys = {name: of for name, of in agreed.keys.items() if name != "north"}
    path = site.parent / "without.json"
    path.write_text(replace(agreed, sites=SITES[1:], keys=keys).text())
    assert run("site", "agree", site, path, "--yes").error == "unknown-site"
