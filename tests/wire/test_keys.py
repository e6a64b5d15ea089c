"""A site's keys: what they sign, who else can read them, and what is no key."""

import json
import os

import pytest

from pffl.errors import ArtefactError, Malformed, PFFLError, Refused
from tests.inside import (
    PUBLIC_FILE,
    PublicKeys,
    SiteKeys,
    announced,
    collect,
    read_public,
    shared,
)
from tests.inside import wire_keys_FILE as FILE
from tests.raising import raises


def test_a_signature_is_of_one_content_and_one_key() -> None:
    mine, other = SiteKeys.generate(), SiteKeys.generate()
    signature = mine.sign(b"an answer")
    assert mine.public.verify(b"an answer", signature)
    assert not mine.public.verify(b"an answer!", signature)
    assert not other.public.verify(b"an answer", signature)
    for wrong in ("", "zz", signature[:-2], "00" * 64):
        assert not mine.public.verify(b"an answer", wrong)


@pytest.mark.parametrize("theirs", ["00" * 32, "01" + "00" * 31, "ab"])
def test_a_key_that_agrees_with_everybody_is_refused(theirs: str) -> None:
    with raises(Refused, "wrong-keys"):
        shared(os.urandom(32), bytes.fromhex(theirs))


def test_two_sites_agree_on_what_others_do_not_know() -> None:
    mine, other, third = (os.urandom(32) for _ in range(3))
    found = shared(mine, announced(other))
    assert found == shared(other, announced(mine))
    assert found not in (shared(mine, announced(third)), mine, other)


def test_private_keys_are_shown_nowhere() -> None:
    keys = SiteKeys.generate()
    shown = f"{keys!r} {keys} {keys.public!r}"
    assert keys.sign_secret.hex() not in shown
    assert str(keys.sign_secret) not in shown


def test_a_key_file_is_for_its_owner_alone(tmp_path) -> None:
    path = tmp_path / FILE
    keys = SiteKeys.generate()
    keys.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert SiteKeys.read(path) == keys
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with raises(ArtefactError, "open-key-file"):
            SiteKeys.read(path)


def test_a_key_file_is_ours_and_whole(tmp_path) -> None:
    path = tmp_path / FILE
    SiteKeys.generate().write(path)
    plain = json.loads(path.read_text())
    wrong = [
        {**plain, "version": 1},
        {**plain, "mask": plain["sign"]},
        {**plain, "sign": "00"},
        {"format": "x"},
        [],
        3,
    ]
    for each in wrong:
        path.write_text(json.dumps(each))
        with pytest.raises((ArtefactError, Malformed)):
            SiteKeys.read(path)
    path.write_bytes(b"\xff{")
    with raises(ArtefactError, "other-format"):
        SiteKeys.read(path)
    os.remove(path)
    with raises(ArtefactError, "cannot-read"):
        SiteKeys.read(path)


def test_public_keys_travel_signed(tmp_path) -> None:
    path = tmp_path / PUBLIC_FILE
    keys, other = SiteKeys.generate(), SiteKeys.generate().public
    keys.write_public(path, "Süd")
    assert read_public(path) == ("Süd", keys.public)
    text = path.read_text()
    assert keys.sign_secret.hex() not in text
    plain = json.loads(text)
    for change in ({"site": "north"}, {"sign": other.sign}):
        path.write_text(json.dumps({**plain, **change}))
        with raises(ArtefactError, "changed-file"):
            read_public(path)


def test_a_fingerprint_is_of_one_key() -> None:
    one, two = SiteKeys.generate().public, SiteKeys.generate().public
    assert one.fingerprint != two.fingerprint
    assert PublicKeys.from_dict(one.as_dict()) == one


@pytest.mark.parametrize(
    "plain", [{}, [], {"sign": "00"}, {"sign": "00" * 32, "mask": "00" * 32}, None]
)
def test_what_is_no_public_key_is_refused(plain: object) -> None:
    with pytest.raises(Malformed):
        PublicKeys.from_dict(plain)


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        ("missing", "missing-key", "'b'"),
        ("stranger", "unknown-site", "'other.pub'"),
        ("twice", "repeated-key", "'other.pub'"),
        ("forged", "changed-file", "from a.pub"),
        ("nothing", "file-missing", "elsewhere"),
    ],
)
def test_keys_of_all_sites_and_of_nobody_else(tmp_path, change, code, named) -> None:
    keys = {name: SiteKeys.generate() for name in "ab"}
    for name, own in keys.items():
        own.write_public(tmp_path / f"from {name}.pub", name)
    public = {name: own.public for name, own in keys.items()}
    assert collect(tmp_path, ["b", "a"]) == public
    folder = tmp_path
    if change == "missing":
        (tmp_path / "from b.pub").unlink()
    elif change in ("stranger", "twice"):
        name = "z" if change == "stranger" else "b"
        SiteKeys.generate().write_public(tmp_path / "other.pub", name)
    elif change == "forged":  # a key of the server, in the middle
        path = tmp_path / "from a.pub"
        other = SiteKeys.generate().public.sign
        path.write_text(path.read_text().replace(public["a"].sign, other))
    else:
        folder = tmp_path / "elsewhere"
    with raises(PFFLError, code, named):
        collect(folder, ["a", "b"])
