"""A site's folder is put back from a copy, or keys of a run are not the sites' own.

The server has all that was ever sent, and sends it again. Where masks came from keys
that stayed, it read a new patient's row: two answers under one mask, less each other.
Now the same request gets the same bytes or none, and any other has another mask.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.product import (
    Federation,
    InMemory,
    Parcel,
    Rows,
    Rules,
    apart,
    believing,
    engine_of,
    masked_words,
    pffl,
    plain_words,
    read_answer,
    read_request,
    refused_by,
    signed_content,
    write_answer,
    write_request,
)
from tests.deploy.sites import RUN, agree, keys_of, put_back, sites_of
from tests.helpers import make_federation
from tests.inside import masked_body

FIRST = "site 0"
DURING = 3  # messages of the run before the copy is made: the second step
Log = list[tuple[bytes, bytes]]
Monday = tuple[Path, Log]


@cache
def people() -> Federation:
    """Three sites, none of which has few people of a group."""
    return make_federation(5, sizes=(120, 100, 110), test=60)


@cache
def with_one_more() -> Federation:
    """The same, and one patient more at the first."""
    first, *others = people().silos
    rows = first.rows("train")
    X = np.vstack([np.asarray(rows.X), np.full(people().schema.n_features, 7.25)])
    more = Rows.of(X, np.append(rows.y, 1.0), np.append(rows.group, 1))
    first = replace(first, splits={**first.splits, "train": more})
    return replace(people(), silos=(first, *others))


def opened(folder: Path, data: Federation | None = None, name: str = FIRST) -> Any:
    """A site as a new process finds it, which lives for one message."""
    agreed = agree(people(), run=RUN)
    return sites_of(data or people(), agreed, folder=folder, rules=Rules())[name]


def honest_run(folder: Path) -> Log:
    """Run what was agreed on; return what was asked of the first site, and said.

    Copies of its folder are made before the run, during it, after the last step and
    when the run has ended.
    """
    log: Log = []
    names = people().silo_names
    north = folder / FIRST

    def answering(name: str) -> Callable[[bytes], bytes]:
        def answer(content: bytes) -> bytes:
            said: bytes = opened(folder, name=name).answer(content)
            if name == FIRST:
                log.append((content, said))
                if len(log) == DURING:
                    shutil.copytree(north, folder / "during")
            return said

        return answer

    for name in names:
        (folder / name).mkdir()
    shutil.copytree(north, folder / "before")
    transport = InMemory({name: answering(name) for name in names})
    agreed = agree(people(), run=RUN)
    engine = engine_of(people(), {}, agreed, transport=transport, run="monday")
    constraint = pffl.BoundedGroupLoss(0.69)
    found = pffl.solve(engine, constraint, method="exact", random_state=0)
    assert found.status == "met"
    shutil.copytree(north, folder / "after")
    engine.end()
    shutil.copytree(north, folder / "ended")
    return log[:-1]


def read_from(folder: Path, data: Federation, one: tuple[bytes, bytes], said: bytes):
    """What the server reads from one more answer, by those of the run.

    Under one mask the difference of two answers is that of two sums; under two masks it
    is random.
    """
    content, before = one
    if read_answer(said).refusal:
        return REFUSED
    if np.array_equal(masked_words(said), masked_words(before)):
        return SAME
    asked = read_request(content)
    difference = apart(masked_words(said), masked_words(before))
    if asked.bodies:
        now, then = (opened(folder, d) for d in (data, people()))
        sums = apart(plain_words(now, asked), plain_words(then, asked))
        if np.array_equal(difference, sums):
            return ROWS
    bits = np.unpackbits(difference.view(np.uint8))  # of two masks: they look drawn
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)
    return NOTHING


REFUSED, SAME, NOTHING = "refused", "same bytes", "nothing"
ROWS = "the rows that differ"


@pytest.fixture(scope="module")
def monday(tmp_path_factory: pytest.TempPathFactory) -> Monday:
    """An honest run, its copies, and what was said."""
    folder = tmp_path_factory.mktemp("monday")
    return folder, honest_run(folder)


@pytest.mark.parametrize("changed", [False, True], ids=["same rows", "one row more"])
@pytest.mark.parametrize("copy", ["before", "during", "after", "ended"])
def test_a_folder_that_is_put_back_never_sends_two_messages_under_one_mask(
    monday: Monday, copy: str, changed: bool
) -> None:
    folder, log = monday
    put_back(folder, FIRST, copy)
    data = with_one_more() if changed else people()
    sent_again = [(one, opened(folder, data).answer(one[0])) for one in log]
    found = [read_from(folder, data, one, said) for one, said in sent_again]
    many = len(log)
    if copy == "before":  # it begins anew, with another key
        wanted = [NOTHING] + [REFUSED] * (many - 1)
    elif changed or copy == "ended":
        wanted = [REFUSED] * many
    elif copy == "during":  # the greeting, and from the second step on
        wanted = [SAME, REFUSED] + [SAME] * (many - 2)
    else:
        wanted = [SAME] + [REFUSED] * (many - 2) + [SAME]
    assert found == wanted


@pytest.mark.parametrize("changed", [False, True], ids=["same rows", "one row more"])
def test_a_folder_that_is_put_back_begins_anew_under_other_masks(
    monday: Monday, changed: bool
) -> None:
    """The server relays the new key with the others' of then, and asks the same."""
    folder, log = monday
    put_back(folder, FIRST, "before")
    data = with_one_more() if changed else people()
    key = opened(folder, data).answer(log[0][0])
    asked = read_request(log[1][0])
    asked = replace(asked, relay=(key, *asked.relay[1:]))
    said = opened(folder, data).answer(write_request(asked))
    assert read_from(folder, data, log[1], said) == NOTHING


def test_another_query_at_a_step_has_another_mask(monday: Monday) -> None:
    """A copy of before the step does not know that it was answered."""
    folder, log = monday
    put_back(folder, FIRST, "during")
    content, before = log[DURING]
    asked = read_request(content)
    first, *rest = asked.bodies
    arrays = first.arrays | {"w": first.arrays["w"] * (1 + 1e-9)}
    other = replace(asked, bodies=(Parcel(first.header, arrays), *rest))
    said = opened(folder).answer(write_request(other))
    assert read_from(folder, people(), (write_request(other), before), said) == NOTHING


def test_the_attack_reads_the_row_where_nothing_stops_it(monday: Monday) -> None:
    """A site that does not look at the hash of its rows: the instrument works."""
    folder, log = monday
    put_back(folder, FIRST, "during")
    site = believing(opened(folder, with_one_more()))
    said = site.answer(log[DURING][0])
    assert read_from(folder, with_one_more(), log[DURING], said) == ROWS


def test_secrets_of_a_run_are_for_the_site_alone_and_go_with_it(monday: Monday) -> None:
    folder, _ = monday
    (path,) = (folder / "after" / "runs").glob("*")
    assert path.stat().st_mode & 0o777 == 0o600
    assert not list((folder / "ended" / "runs").glob("*"))


def test_a_run_that_never_ended_is_forgotten_in_time(monday: Monday) -> None:
    folder, log = monday
    put_back(folder, FIRST, "during")
    (path,) = (folder / FIRST / "runs").glob("*")
    hello = read_request(log[0][0])
    opened(folder).answer(write_request(replace(hello, run="tuesday")))
    assert path.exists()
    os.utime(path, (1.0, 1.0))
    ending = replace(read_request(log[1][0]), bodies=(), relay=())
    opened(folder).answer(write_request(ending)[:-1])  # changes nothing
    assert path.exists()
    opened(folder).answer(write_request(replace(hello, run="friday")))
    assert not path.exists()
    said = read_answer(opened(folder).answer(log[DURING][0]))
    assert "ended" in said.refusal


# Keys of a run that are not the sites' own


def with_key(content: bytes, key: bytes) -> bytes:
    """A greeting's answer with another key in it, under the signature that it had."""
    body = masked_body(np.frombuffer(key, "<u8"))
    return write_answer(replace(read_answer(content), bodies=(body,)))


def said(content: bytes, name: str, key: bytes | None = None, **more: Any) -> bytes:
    """A greeting's answer, perhaps with another key, signed by whoever has that name.

    Without a name nobody has signed it.
    """
    changed = content if key is None else with_key(content, key)
    answer = replace(read_answer(changed), signature="", **more)
    signature = keys_of(name).sign(signed_content(answer)) if name else ""
    return write_answer(replace(answer, signature=signature))


def key_of(content: bytes) -> bytes:
    return masked_words(content).tobytes()


OWN = os.urandom(32)  # a key of the server's, in the middle
SIGN, RELAY, TWICE = "not-signed", "wrong-relay", "repeated-key"
KEYS: dict[str, tuple[str, Callable[..., tuple[bytes, ...]]]] = {
    "the server's own key": (SIGN, lambda a, b, c: (a, with_key(b, OWN), c)),
    "no signature": (SIGN, lambda a, b, c: (a, said(b, ""), c)),
    "a key that another signed": (SIGN, lambda a, b, c: (a, said(b, "x", OWN), c)),
    "another run": (RELAY, lambda a, b, c: (a, said(b, "site 1", run="x"), c)),
    "another federation": (
        RELAY,
        lambda a, b, c: (a, said(b, "site 1", transcript="0" * 64), c),
    ),
    "one site's key twice": (RELAY, lambda a, b, c: (a, b, b)),
    "one key of two": (TWICE, lambda a, b, c: (a, b, said(c, "site 2", key_of(b)))),
    "its own at another": (TWICE, lambda a, b, c: (a, b, said(c, "site 2", key_of(a)))),
    "a key that agrees with everybody": (
        "wrong-keys",
        lambda a, b, c: (a, b, said(c, "site 2", bytes(32))),
    ),
    "one key less": (RELAY, lambda a, b, c: (a, b)),
    "one key more": (RELAY, lambda a, b, c: (a, b, c, c)),
    "no keys": (RELAY, lambda a, b, c: ()),
    "another key of this site": (RELAY, lambda a, b, c: (said(a, "site 0", OWN), b, c)),
    "the order of sites changed": (RELAY, lambda a, b, c: (a, c, b)),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_are_not_the_sites_own_are_refused(monday: Monday, name: str) -> None:
    code, lie = KEYS[name]
    sites = sites_of(people(), agree(people(), run=RUN), rules=Rules())
    hello, asked = (read_request(monday[1][k][0]) for k in (0, 1))
    keys = tuple(site.answer(write_request(hello)) for site in sites.values())
    first = next(iter(sites.values()))
    honest = replace(asked, relay=keys)
    assert refused_by(first, replace(asked, relay=lie(*keys))) == code
    assert refused_by(first, honest) == ""


def test_every_run_has_keys_of_its_own(monday: Monday) -> None:
    sites = sites_of(people(), agree(people(), run=RUN), rules=Rules())
    hello = read_request(monday[1][0][0])
    found = {
        key_of(site.answer(write_request(replace(hello, run=f"run {k}"))))
        for site in sites.values()
        for k in range(3)
        for _ in range(2)  # and one for all greetings of a run
    }
    assert len(found) == 9
