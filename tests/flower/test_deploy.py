"""What `pffl deploy` writes: whole, linted, without rows, followed to the answer."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pffl import files
from pffl.config import load, parse
from pffl.data import Federation
from pffl.errors import ArtefactError, MissingExtraError, UsageError
from pffl.site import Agreement, Site, SiteConfig, prepare
from tests.inside import (
    PLACE,
    RUN,
    Address,
    consent,
    deploy,
    folders,
    site_names,
    table_of,
)
from tests.raising import raises
from tests.site.sites import census, send

SECTIONS: dict[str, Any] = {
    "data": {"name": "synthetic", "rows": 900, "silos": 3, "seed": 1},
    "constraint": {"kind": "bgl", "bound": 0.62},
    "method": {"kind": "exact", "multiplier_bound": 10.0},
    "privacy": {"secure_sum": False},
}
LOCAL = Address("127.0.0.1", 8441)


def made(out: Path, sections: dict[str, Any] = SECTIONS, **options: Any) -> Path:
    spec = parse(sections)
    return deploy(spec, sections, out, **{"address": LOCAL, **options}).folder


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment with certificates and rows; left as it is by all tests."""
    out = tmp_path_factory.mktemp("deployed") / "out"
    names = ("north", "Süd", 'it\'s "west"; $(touch x)')
    return made(out, sites=names, trial_certificates=True, trial_data=True)


def scripts(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.sh"))


def test_folders_and_their_files(trial: Path) -> None:
    site = trial / "sites" / "north"
    names = {path.name for path in site.iterdir()}
    assert names == {
        "site.toml",
        "federation.json",
        "README.md",
        "start.sh",
        "pffl-north.service",
        "ca.crt",
        "node_key",
        "node_key.pub",
        "site_key",
        "site_key.pub",
        "agreed.json",
        "rows.csv",
    }
    assert {path.name for path in (trial / "app").iterdir()} == {
        "LICENSE",
        "client_app.py",
        "federation.json",
        "pyproject.toml",
        "server_app.py",
        "run.toml",
    }
    assert {path.name for path in (trial / "sites").iterdir()} == {
        "north",
        "s-d",
        "it-s-west-touch-x",
    }
    for script in scripts(trial):
        assert stat.S_IMODE(script.stat().st_mode) == 0o755
    for secret in ("server/server.key", "sites/north/node_key", "sites/north/rows.csv"):
        assert stat.S_IMODE((trial / secret).stat().st_mode) == 0o600


def test_no_place_is_left_unfilled(trial: Path) -> None:
    for path in trial.rglob("*"):
        if path.is_file() and path.suffix in (".sh", ".md", ".service", ".toml"):
            assert not PLACE.search(path.read_text("utf-8")), path


def test_shellcheck_finds_nothing(trial: Path) -> None:
    program = shutil.which("shellcheck")
    if program is None:
        pytest.skip("shellcheck is not installed")
    run = subprocess.run(
        [program, *map(str, scripts(trial))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert len(scripts(trial)) == 5


def test_units_are_accepted_by_systemd(trial: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in trial.rglob("*.service"):
        text = unit.read_text("utf-8")
        folder = "server" if unit.parent.name == "server" else unit.parent.name
        assert f"ExecStart=/srv/pffl/{folder}/start.sh" in text
        here = tmp_path / unit.name
        text = text.replace(f"/srv/pffl/{folder}", str(unit.parent))
        here.write_text(text.replace("User=pffl", "User=root"))
        run = subprocess.run(
            [program, "verify", "--man=no", str(here)],
            capture_output=True,
            text=True,
            check=False,
        )
        ours = [line for line in run.stderr.splitlines() if here.name in line]
        assert ours == []


def test_scripts_switch_off_what_calls_home(trial: Path) -> None:
    for script in scripts(trial):
        text = script.read_text()
        assert "FLWR_TELEMETRY_ENABLED=0" in text
        assert "FLWR_DISABLE_UPDATE_CHECK=1" in text
        assert "--insecure" not in text
        assert "0.0.0.0" not in text  # noqa: S104 - that is what is tested
    server = (trial / "server" / "start.sh").read_text()
    assert "--enable-supernode-auth" in server
    assert "--disable-runtime-dependency-installation" in server
    assert "127.0.0.1" in server


FLAGS = {  # the command of a script, and the one of Flower's that gets its arguments
    "server/start.sh": ("python -m pffl.flower.superlink", "flower-superlink"),
    "sites/north/start.sh": ("python -m pffl.flower.node", "flower-supernode"),
}


@pytest.mark.parametrize("script", FLAGS)
def test_flower_knows_every_flag(trial: Path, script: str) -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    command, program = FLAGS[script]
    text = (trial / script).read_text()
    assert command in text
    flags = {word for word in text.split() if word.startswith("--")}
    assert len(flags) >= 5
    if program == "flower-supernode":  # what the node adds
        flags |= {"--host", "--isolation", "--superexec-auth-secret-file"}
    shown = subprocess.run(
        [str(Path(sys.executable).with_name(program)), "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=quiet(),
    ).stdout
    known = {word.strip("[],|") for word in shown.split() if "--" in word}
    assert flags <= known
    for flag in flags:
        start = shown.rindex(f"  {flag} ") if f"  {flag} " in shown else 0
        assert "deprecated" not in shown[start : start + 160].lower()


def quiet() -> dict[str, str]:
    switches = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    return os.environ | switches


def test_a_script_says_what_is_missing(tmp_path: Path) -> None:
    out = made(tmp_path / "out")
    for folder, file in (("server", "ca.crt"), ("sites/silo-1", "prepared/manifest")):
        run = subprocess.run(
            [str(out / folder / "start.sh")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 1
        assert f"'{file}" in run.stderr
        assert "README.md" in run.stderr


@pytest.mark.filterwarnings("ignore:GitWildMatch:DeprecationWarning")
def test_flower_accepts_the_app(trial: Path) -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    config, warnings = load_and_validate(trial / "app" / "pyproject.toml")
    assert warnings == []
    assert config["tool"]["flwr"]["app"]["fab-format-version"] == 1
    assert build_fab_from_disk(trial / "app")


def test_the_run_file_names_the_federation_and_no_rows(trial: Path) -> None:
    spec = load(trial / "app" / "run.toml")
    assert spec.data.federation is not None
    agreed = Agreement.read(spec.data.federation)
    assert agreed.sites == ("north", "Süd", 'it\'s "west"; $(touch x)')
    with raises(UsageError, "rows-elsewhere"):
        spec.data.open()
    assert spec.method.multiplier_bound == 10.0  # type: ignore[attr-defined]
    assert spec.settings.engine == "flower"  # so that --resume needs no option


def test_without_trial_data_no_rows_are_written(tmp_path: Path) -> None:
    out = made(tmp_path / "out")
    assert not list(out.rglob("*.csv"))
    assert not list(out.rglob("*key"))
    assert not list(out.rglob("*.crt"))
    sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    assert max(sizes) < 20_000


def test_trial_sites_answer_as_the_silos_do(trial: Path) -> None:
    federation = parse(SECTIONS).data.open()
    for index, folder in enumerate(["north", "s-d", "it-s-west-touch-x"]):
        place = trial / "sites" / folder
        prepare(SiteConfig.load(place))
        site = Site.open(place)
        for split in federation.splits:
            rows, known = site.silo.rows(split), federation.silos[index].rows(split)
            assert np.array(rows.X) == pytest.approx(known.X, rel=1e-15)
            assert np.array_equal(rows.y, known.y)
            assert np.array_equal(rows.group, known.group)
        answer = send(site, census(site))
        assert answer.silo == SiteConfig.load(place).name
        assert not answer.refusal


def test_three_sites_and_more_answer_under_masks(tmp_path: Path) -> None:
    sections = {k: v for k, v in SECTIONS.items() if k != "privacy"}
    out = made(tmp_path / "out", sections, trial_certificates=True)
    for path in out.rglob("federation.json"):
        assert Agreement.read(path).secure_sum
    with raises(UsageError, "missing-key"):
        made(tmp_path / "b", sections)
    silos = {"data": {**sections["data"], "silos": 2}}
    out = made(tmp_path / "c", sections | silos, trial_certificates=True)
    assert not Agreement.read(out / "app" / "federation.json").secure_sum
    asked = sections | silos | {"privacy": {"secure_sum": True}}
    with raises(UsageError, "too-few-sites", "3"):
        made(tmp_path / "d", asked, trial_certificates=True)
    per_silo = {"constraint": {"kind": "per-silo", "bound": 0.62}}
    quorum = {"policy": {"quorum": 2}}
    refused = ((per_silo, "not-with-secure-sums"), (quorum, "secure-sum-quorum"))
    for other, code in refused:
        with raises(UsageError, code):
            made(tmp_path / "e", sections | other, trial_certificates=True)


def test_deploying_from_a_federation_file(trial: Path, tmp_path: Path) -> None:
    shutil.copy(trial / "app" / "federation.json", tmp_path / "agreed.json")
    sections = SECTIONS | {"data": {"federation": str(tmp_path / "agreed.json")}}
    out = made(tmp_path / "out", sections)
    agreed = Agreement.read(trial / "app" / "federation.json")
    found = Agreement.read(out / "app" / "federation.json")
    assert replace(found, run={}) == replace(agreed, run={})
    # A seed was drawn, which sites and server agree on.
    assert load(out / "app" / "run.toml").settings.seed == found.run["run"]["seed"]
    named = {name for name in sections if name in RUN} - {"privacy"}  # without noise
    assert set(found.run) == named | {"run"}
    with raises(UsageError, "no-rows"):
        made(tmp_path / "b", sections, trial_data=True)
    with raises(UsageError, "other-sites"):
        made(tmp_path / "c", sections, sites=("a", "b", "c"))
    with raises(UsageError, "other-sites", "2", "3"):
        made(tmp_path / "d", sites=("a", "b"))


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ({"kind": "pffl", "dual_rounds": 40, "rounds_per_dual": 25}, 1008),  # and looks
        ({"kind": "fcfl", "stage_one_rounds": 300, "stage_two_rounds": 100}, 400),
        ({"kind": "fairfed", "rounds": 200}, 400),  # two queries a round
        ({"kind": "fedavg", "rounds": 200, "batch_size": 32}, 200),
        # Without a plan, what it may ask at most.
        ({"kind": "reductions", "iterations": 200}, 600),
        ({"kind": "first-order"}, 500),  # twice its rounds at most, and proofs
    ],
)
def test_queries_are_enough_for_the_method(
    tmp_path: Path, method: dict[str, Any], asked: int
) -> None:
    out = made(tmp_path / "out", SECTIONS | {"method": method})
    config = SiteConfig.load(out / "sites" / "silo-1")
    assert config.rules.queries == asked + 50
    assert config.rules.batches == ("batch_size" in method)
    assert f" {asked:,}" in (out / "sites/silo-1/site.toml").read_text()


def test_queries_are_enough_for_what_auto_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = {key: SECTIONS[key] for key in ("data", "constraint", "privacy")}
    few = made(tmp_path / "few", sections)
    monkeypatch.setattr("pffl.methods.auto.MAX_HESSIAN_PARAMETERS", 2)
    many = made(tmp_path / "many", sections)
    rules = [SiteConfig.load(out / "sites" / "silo-1").rules for out in (few, many)]
    assert [rule.queries for rule in rules] == [200, 550]


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with raises(ArtefactError, "file-exists"):
        made(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt"}


def test_an_empty_folder_gives_way_unless_it_is_where_you_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    assert (made(tmp_path / "empty") / "README.md").exists()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with raises(ArtefactError, "file-exists"):
        made(Path())
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "here"}


def test_two_that_deploy_into_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = files.folder

    def late(path: Path, *, private: bool = False) -> Path:
        if path.name == "keys":
            with raises(ArtefactError, "lock-held"):
                made(tmp_path / "out")
        return write(path, private=private)

    monkeypatch.setattr(files, "folder", late)
    assert (made(tmp_path / "out") / "README.md").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


TOUCHING = ("open", "os.mkdir", "os.chmod", "os.remove", "os.rename")


def deploy_until(out: Path, event: int) -> bool:
    """Deploy in a process that is killed at an event of its files; say if it was."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    seen = 0

    def watch(what: str, given: tuple[object, ...]) -> None:
        nonlocal seen
        if what in TOUCHING and str(given[0]).startswith(str(out.parent)):
            seen += 1
            if seen == event:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(watch)
        made(out, trial_certificates=True, trial_data=True)
        os._exit(0)
    finally:
        os._exit(1)


def names_in(out: Path) -> set[Path]:
    """Return what is in a folder; an app is named by its hash, and has its own seed."""
    found = [path.relative_to(out) for path in out.rglob("*")]
    return set(found)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "step", [41, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"]
)
def test_fault_100_deploy_killed_anywhere_leaves_nothing_or_everything(
    tmp_path: Path, step: int
) -> None:
    pytest.importorskip("flwr.cli.build", reason="the extra 'flower' is not installed")
    out = tmp_path / "runs" / "out"
    assert not deploy_until(out, 0)
    whole = names_in(out)
    assert len(whole) > 40
    killed, event = [], 1
    while True:
        shutil.rmtree(out)
        killed.append(deploy_until(out, event))
        if not killed[-1]:
            break
        if out.exists():
            assert names_in(out) == whole
        else:  # and the next one is not disturbed by what is left beside it
            out.mkdir()
        event += step
    assert len(killed) > 150 / step
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert names_in(out) == whole


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("0.0.0.0:8000", "every-interface"),
        ("[::]:8000", "every-interface"),
        (":8000", "every-interface"),
        ("host", "wrong-address"),
        ("host:0", "wrong-address"),
        ("host:99999", "wrong-address"),
        ("a b:80", "wrong-address"),
        ("$(x):80", "wrong-address"),
    ],
)
def test_addresses_that_are_refused(text: str, code: str) -> None:
    with raises(UsageError, code):
        Address.parse(text)


def test_addresses_and_names() -> None:
    assert str(Address.parse("fl.example.org:8443")) == "fl.example.org:8443"
    assert str(Address.parse("[fd00::1]:8443")) == "[fd00::1]:8443"
    assert site_names("a, b") == ("a", "b")
    with pytest.raises(UsageError):
        site_names("a,a")
    assert len(set(folders(["A b", "a-b", "a.b", "…"]).values())) == 4
    assert len(set(folders(["a-3", "a", "A"]).values())) == 3


def test_tables_are_read_back_as_the_same_rows() -> None:
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "weight": rng.normal(70, 10, n),
            "ward": rng.choice(["a", "b", "c"], n),
            "split": rng.choice(["x", "y"], n),
            "sex": rng.choice(["f", "m"], n),
            "race": rng.choice(["r", "s", "t"], n),
            "site": rng.choice(["north", "south"], n),
            "sick": rng.choice(["no", "yes"], n),
        }
    )
    frame.loc[::9, "age"] = np.nan
    frame.loc[::11, "ward"] = None
    federation = Federation.from_table(
        frame,
        label="sick",
        group=("race", "sex"),
        silo="site",
        missing="indicator",
    )
    encoding = federation.encoding
    assert encoding is not None
    for silo in federation.silos:
        table, split = table_of(silo, encoding)
        assert split == "split_"
        for name in federation.splits:
            rows = encoding.rows(table[table[split] == name])
            assert np.array_equal(rows.X, silo.rows(name).X)
            assert np.array_equal(rows.y, silo.rows(name).y)
            assert np.array_equal(rows.group, silo.rows(name).group)


def commands(readme: str, *steps: str) -> list[str]:
    """The commands of some steps, as they stand there."""
    parts = {part.partition("\n")[0][:1]: part for part in readme.split("\n## ")[1:]}
    lines = [line for step in steps for line in parts[step].splitlines()]
    return [line.strip() for line in lines if line.startswith("    ")]


PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


def test_the_run_files_of_the_page_can_be_deployed(tmp_path: Path) -> None:
    texts = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(texts) == 2
    for text in texts:
        parse(tomllib.loads(text))
    sections = tomllib.loads(texts[0])
    (tmp_path / "federation.json").write_text(
        Agreement.of(parse(SECTIONS).data.open(), ("a", "b", "c")).text()
    )
    sections["data"]["federation"] = str(tmp_path / "federation.json")
    out = made(tmp_path / "out", sections, trial_certificates=True)
    agreed = Agreement.read(out / "sites" / "a" / "federation.json")
    assert agreed.secure_sum
    assert agreed.run["run"]["seed"] == 7


LOOKING_AFTER = ("status", "log", "pause", "resume")  # tests/cli/test_site_cli.py


def test_the_site_readme_is_followed_word_by_word(tmp_path: Path) -> None:
    """Steps 4 to 6; what step 2 installs is the environment of these tests."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    environment = Path(sys.executable).parent.parent
    if not (environment / "bin" / "pffl").exists():
        pytest.skip("there is no pffl command beside this Python")
    site = made(tmp_path / "out", trial_data=True) / "sites" / "silo-1"
    readme = (site / "README.md").read_text("utf-8")
    install = commands(readme, "2")
    assert install[0] == "python3 -m venv venv"
    assert install[1].startswith("venv/bin/pip install 'pffl[flower]==")
    (site / "venv").symlink_to(environment)
    done = commands(readme, "4", "5", "6")
    assert len(done) == 5
    done = [f"{one} --yes" if "agree" in one else one for one in done]
    for command in done:
        run = subprocess.run(
            ["sh", "-c", command], cwd=site, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, (command, run.stderr)
    assert (site / "prepared" / "manifest.json").exists()
    assert stat.S_IMODE((site / "node_key").stat().st_mode) == 0o600
    pytest.importorskip("cryptography", reason="cryptography is missing")
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    assert load_ssh_private_key((site / "node_key").read_bytes(), None).key_size == 384
    assert consent.given(site) == Agreement.read(site / "federation.json")
    assert [line for line in commands(readme, "7") if line == "./start.sh"]
    after = [f"venv/bin/pffl site {what} ." for what in LOOKING_AFTER]
    assert commands(readme, "8") == after


def test_the_server_readme_names_every_site(trial: Path) -> None:
    readme = (trial / "server" / "README.md").read_text("utf-8")
    keys = [line for line in commands(readme, "5") if "register" in line]
    assert len(keys) == 3
    for line in keys:
        script, *_, key, _, _ = line.split()
        assert (trial / "server" / script).exists()
        assert (trial / "server" / key).exists()
    assert "./flwr.sh run ../app --stream" in commands(readme, "6")


def test_certificates_without_their_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "pffl.flower.tls", raising=False)
    with raises(MissingExtraError, "missing-extra"):
        made(tmp_path / "out", trial_certificates=True)


def test_a_federation_file_goes_with_nothing_else() -> None:
    data = {"federation": "federation.json", "silos": 3}
    with raises(UsageError, "options-conflict", "silos"):
        parse(SECTIONS | {"data": data})
    with raises(UsageError, "wrong-value", "federation"):
        parse(SECTIONS | {"data": {"federation": 3}})
