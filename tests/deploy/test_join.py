"""What is typed: init, deploy, join, serve, show; and a run over real sockets."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from pffl.deploy import Agreement, InMemory, SiteKey
from pffl.errors import ArtefactError, UsageError
from tests.cli.helpers import pffl as command
from tests.deploy.processes import (
    PRIVATE,
    RUN_FILE,
    entries,
    free_ports,
    write_rows,
)
from tests.helpers import make_federation
from tests.inside import (
    SiteFolder,
    SiteServer,
    changes,
    prepared_rows,
    read_answer,
)
from tests.raising import raises

NAMES = ("north", "south", "west")
JOIN = ("--trust-keys", "--yes")


@pytest.fixture
def typed(capsys, tmp_path, monkeypatch):
    """Type a command in the test's folder; return what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object, code: int = 0) -> str:
        done = command(capsys, *map(str, words))
        assert done.code == code, done.err
        return done.out + done.err

    return run


def deployed(typed, run_file: str, mode: str) -> Path:
    """Three sites that were made, and a folder that was deployed for them."""
    lines = "\n".join(typed("site", "init", name) for name in NAMES).splitlines()
    found = [line for line in lines if line.startswith("pffl-site-3")]
    Path("lines.txt").write_text("\n".join(found))
    Path("run.toml").write_text(run_file)
    address = ("--address", f"127.0.0.1:{free_ports()}")
    given = ("--sites", "lines.txt", "-o", "study", *address)
    assert f"{mode} mode" in typed("deploy", "run.toml", *given)
    write_rows(Path("study"), run_file, NAMES)
    return Path("study").resolve()


@pytest.fixture
def study(typed):
    return deployed(typed, RUN_FILE, "masked")


def join(typed, *options: str, name: str = "north", rows: str = "", code: int = 0):
    """What a site is told that joins, or tries to."""
    rows = rows or f"study/rows/{name}.csv"
    given = ("--rows", rows, "--site", name, *options)
    return typed("site", "join", "study/federation.json", *given, code=code)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def joined(typed, *names: str) -> None:
    for name in names or NAMES:
        join(typed, *JOIN, name=name)


def test_a_site_is_for_its_account_alone(typed, tmp_path):
    said = typed("site", "init", "north")
    assert mode(tmp_path / "north") == mode(tmp_path / "north.node") == 0o700
    names = {p.name for p in (tmp_path / "north").iterdir()}
    assert names == {"site.key", "site.db"}
    key = SiteKey.read(tmp_path / "north" / "site.key")
    assert key.public.sign in said
    assert key.secret.hex() not in said
    typed("site", "init", "north", code=2)  # it is there
    typed("site", "init", "../north", code=2)
    assert "joined no federation" in typed("site", "show")


def test_deploy_writes_what_is_needed_and_no_rows(study, typed, tmp_path):
    agreed = Agreement.read(study / "federation.json")
    assert agreed.sites == NAMES
    assert (agreed.secure_sum, agreed.mode, agreed.floor) == (True, "masked", 10)
    assert agreed.run["run"]["seed"] == 0
    assert mode(study / "server") == 0o700
    assert mode(study / "server" / "server.key") == 0o600
    app = (study / "app" / "client_app.py").read_text()
    assert len([line for line in app.splitlines() if line.strip()]) < 25
    assert "pffl." not in app.replace("pffl deploy", "")
    proxy = (study / "server" / "nginx.conf").read_text()
    assert "location /v1/fleet/" in proxy
    assert "location / { return 403; }" in proxy
    commands = (study / "COMMANDS.md").read_text()
    assert "6 to 8 seconds" in commands
    assert all(key.fingerprint in commands for key in agreed.keys.values())
    given = ("deploy", "run.toml", "--sites", "lines.txt", "-o")
    typed(*given, "bare")
    assert not (tmp_path / "bare" / "rows").exists()
    typed(*given, "study", code=6)  # there


def test_deploy_that_is_stopped_anywhere_leaves_nothing(study, typed, monkeypatch):
    from tests.inside import coordinator

    write, left = coordinator._write, [0]

    def dying(path: Path, text: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        write(path, text)

    monkeypatch.setattr(coordinator, "_write", dying)
    for many in range(0, 14, 3):
        left[0] = many
        given = ("run.toml", "--sites", "lines.txt", "-o", "stopped")
        typed("deploy", *given, code=130)
        assert not Path("stopped").exists()
    left[0] = 99
    typed("deploy", *given)
    assert Path("stopped/federation.json").exists()


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("constraint.bound=auto", "auto"),
        ("constraint.kind=per-silo", "per-silo"),
        ("method.kind=fedavg method.participation=0.5", "every site"),
        ("method.kind=afl", "AFL"),
    ],
)
def test_what_cannot_be_deployed_is_refused_before_anything_is_written(
    study, typed, tmp_path, setting, code
):
    sets = [f"--set={one}" for one in setting.split()]
    given = ("--sites", "lines.txt", "-o", "other", *sets)
    assert code.lower() in typed("deploy", "run.toml", *given, code=2).lower()
    assert not (tmp_path / "other").exists()


def test_two_sites_are_not_masked_and_that_is_said(study, typed):
    lines = Path("lines.txt").read_text().splitlines()[:2]
    Path("two.txt").write_text("\n".join(lines))
    typed("deploy", "run.toml", "--sites", "two.txt", "-o", "two")
    (study / "federation.json").write_text(Path("two/federation.json").read_text())
    said = join(typed, *JOIN)
    assert said.startswith("NOT PROTECTED: the server reads this site's sums")


def test_join_says_what_it_means_and_asks_for_fingerprints(study, typed):
    agreed, bare = Agreement.read(study / "federation.json"), ("--yes",)
    said = join(typed, *bare, code=2)
    assert said.startswith("Masked mode: a curious server or site")
    told = "promises nothing against a server or site that cheats", "bound 0.68"
    told += ("server and one site together learn the sum of the other two",)
    told += ("floor: your people of a set with fewer than 10",)
    told += ("'south' was not compared", "'west' was not compared")
    assert [text for text in told if text not in said] == []
    peers = {name: agreed.keys[name].fingerprint for name in ("south", "west")}
    right = [f"--peer={name}={value}" for name, value in peers.items()]
    wrong = [right[0], f"--peer=west={peers['south']}"]
    assert "do not join" in join(typed, *bare, *wrong, code=2)
    weak = ("--floor", "3", "--radius", "1e9")
    said = join(typed, *bare, *right, *weak)
    assert said.count("WEAKER THAN THE DEFAULT") == 2
    assert "flower-supernode" in said
    assert "Masked mode" in typed("site", "show", "--site", "north")


def test_no_field_of_an_agreement_changes_silently(study):
    agreed = Agreement.read(study / "federation.json")
    others = {
        "name": "x",
        "sites": agreed.sites[::-1],
        "splits": ("train",),
        "shares": {"test": 0.5},
        "keys": {**agreed.keys, "north": SiteKey.generate().public},
        "secure_sum": False,
        "floor": 3,
        "run": {**agreed.run, "run": {"seed": 1}},
        "queries": 7,
        "address": "127.0.0.1:1",
        "certificate": "x",
        "encoding": Agreement.of(make_federation(0)).encoding,
    }
    assert set(others) == set(agreed.__dataclass_fields__)
    for name, value in others.items():
        other = replace(agreed, **{name: value})
        assert changes(agreed, other), name
        assert other.hash != agreed.hash, name


def test_what_gets_worse_needs_a_word_of_its_own(study, typed):
    joined(typed)
    agreed = Agreement.read(study / "federation.json")
    keys, key = dict(agreed.keys), SiteKey.generate().public
    seed = {**agreed.run, "run": {"seed": 9}}
    for changed, code, word in (
        ({"secure_sum": False}, 2, "--end-secure-sums"),
        ({"keys": {**keys, "west": key}}, 2, "a NEW KEY of west: --new-keys"),
        ({"keys": {**keys, "north": key}}, 2, "another key of 'north'"),
        ({"queries": 10**6}, 2, "--queries"),
        ({"queries": 5, "run": seed}, 0, "CHANGES: run.run.seed: 0 becomes 9"),
    ):
        text = replace(agreed, **changed).text()  # by the coordinator
        (study / "federation.json").write_text(text)
        assert word in join(typed, *JOIN, code=code)


def test_other_columns_and_few_changed_rows_are_refused(study, typed, tmp_path):
    table = pd.read_csv("study/rows/north.csv")
    table.rename(columns={"flag 1": "flag_1"}).to_csv("other.csv", index=False)
    assert "no column 'flag 1'" in join(typed, *JOIN, rows="other.csv", code=3)
    joined(typed, "north")
    memory = SiteFolder.find(tmp_path / "north").memory()
    memory.add("answer", {"task": {}}, queries=1)  # something was answered
    memory.close()
    table.drop(index=[0]).to_csv("fewer.csv", index=False)
    assert "--changed-rows" in join(typed, *JOIN, rows="fewer.csv", code=2)
    join(typed, *JOIN, "--changed-rows", rows="fewer.csv")
    # Rows that were put there without consent, and a table that nobody agreed to.
    place = SiteFolder.find(tmp_path / "north")
    kept = (place.path / prepared_rows.FILE).read_bytes()
    unasked = [word for word in JOIN if word != "--yes"]
    join(typed, *unasked, "--changed-rows", code=1)  # nobody answered "Join?"
    assert (place.path / prepared_rows.FILE).read_bytes() == kept
    site = place.open()
    silo = replace(site.silo, splits={"train": site.silo.rows("test")})
    site.memory.close()
    prepared_rows.write(place.path, silo, site.schema.hash)
    with raises(ArtefactError, "changed-file"):
        place.open()


def test_private_mode_names_its_cost_and_needs_a_budget_and_two_accounts(
    typed, tmp_path
):
    deployed(typed, PRIVATE, "private")
    said = join(typed, *JOIN, code=2)
    assert said.startswith("Private mode: (ε, δ) = (4, 1e-06)")
    assert "--epsilon" in said
    join(typed, *JOIN, "--epsilon", "9")
    assert "privacy account: ε = 0 of 9" in typed("site", "show", "--site", "north")
    with serving(tmp_path / "north") as (server, _):
        refused = read_answer(carried(server.path, b"anything")).refusal
    assert "two accounts" in refused


# Over sockets


@contextmanager
def serving(folder: Path, node_account: str | None = None):
    """A site that answers in a thread; what it says, and its socket."""
    said: list[str] = []
    server = SiteServer(SiteFolder.find(folder), node_account, said.append)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server, said
    finally:
        server.stop()
        thread.join(20)
        assert not server.path.exists()


def carried(path: Path, body: bytes, announced: int | None = None) -> bytes:
    """What the ClientApp does."""
    with socket.socket(socket.AF_UNIX) as site, site.makefile("rwb") as stream:
        site.connect(str(path))
        length = len(body) if announced is None else announced
        stream.write(length.to_bytes(8, "big") + body)
        stream.flush()
        return stream.read(int.from_bytes(stream.read(8), "big"))


def test_a_run_over_sockets_is_written_and_forgotten(study, typed, tmp_path, capsys):
    pytest.importorskip("flwr")
    from tests.inside import flower_app

    joined(typed)
    with ExitStack() as stack:
        begun = {n: stack.enter_context(serving(tmp_path / n)) for n in NAMES}
        north, said = begun["north"]
        sites = {name: partial(carried, one.path) for name, (one, _) in begun.items()}
        solution = flower_app.run(InMemory(sites), study, tmp_path / "run")
        assert solution.status == "met"
        with raises(UsageError, "port-taken"):
            SiteServer(SiteFolder.find(tmp_path / "north"))
        answer = read_answer(carried(north.path, b"", announced=1 << 40))
        assert "too-large" in answer.refusal or "bytes" in answer.refusal
    assert any("warning" in text and "account" in text for text in said)
    assert sum(": answered" in text for text in said) > 5
    assert not list((tmp_path / "north" / "runs").glob("*"))
    heads = json.loads((study / "heads.json").read_text())
    assert set(heads) == set(NAMES)
    shown = typed("site", "show", "--site", "north")
    assert "queries answered:" in shown
    assert "no answer" in shown  # the server is not there any more
    kept = json.loads(typed("site", "show", "--site", "north", "--json"))
    assert [e["number"] for e in kept] == list(range(1, len(kept) + 1))
    assert typed("verify", tmp_path / "run")
    rounds = [e for e in entries(tmp_path / "run") if e.get("event") == "round"]
    assert rounds[-1]["seconds"] > 0

    class Gone(InMemory):
        def addresses(self):
            raise SystemExit(1)  # as Flower ends a ServerApp without a SuperLink

    with pytest.raises(SystemExit):
        flower_app.run(Gone({}), study, tmp_path / "gone")
    assert entries(tmp_path / "gone")[-1]["code"] == 5
    # Another run file than the sites joined.
    text = (study / "run.toml").read_text().replace("bound = 0.68", "bound = 0.9")
    (study / "run.toml").write_text(text)
    with raises(UsageError, "other-run", "[constraint]"):
        flower_app.run(InMemory({}), study, tmp_path / "other")


@pytest.mark.skipif(os.geteuid() != 0, reason="making requests as others needs root")
def test_only_the_nodes_account_is_answered(study, typed, tmp_path):
    joined(typed, "north")
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o755)
    with serving(tmp_path / "north", "41001") as (server, said):
        assert not server.one_account
        for user, answered in ((41001, True), (41002, False), (0, False)):
            assert bool(_asked_as(user, server.path)) == answered
    assert sum("refused: account" in text for text in said) == 2


def _asked_as(user: int, path: Path) -> bytes:
    """Ask the socket from a process of another account."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(user, user, user)
            os.write(write, carried(path, b"hello")[:1])
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as stream:
        return stream.read()


def test_a_folder_that_others_can_open_and_a_site_that_did_not_join(typed, tmp_path):
    typed("site", "init", "north")
    folder = SiteFolder.find(tmp_path / "north")
    with raises(UsageError, "not-joined"):
        SiteServer(folder)
    folder.path.chmod(0o750)
    with raises(UsageError, "open-folder"):
        SiteServer(folder)
    with raises(UsageError, "no-site"):
        SiteFolder.find(tmp_path / "nothing")


def test_a_foreign_line_or_file_is_refused(typed, study, tmp_path):
    line = Path("lines.txt").read_text().splitlines()[0]
    (tmp_path / "lines.txt").write_text(line.replace("north", "nord"))
    given = ("--sites", "lines.txt", "-o", "other")
    assert "changed after" in typed("deploy", "run.toml", *given, code=2)
    path = study / "federation.json"
    for text in ('{"format": "pffl federation"}', path.read_text()[:-9]):
        path.write_text(text)
        join(typed, *JOIN, code=3)
