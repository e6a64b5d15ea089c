"""Messages and keys: what is written is read, and nothing else is."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from pffl.deploy import PublicKey, SiteKey
from pffl.errors import ArtefactError, Malformed, UsageError
from pffl.tensors import Parcel, pack, unpack
from tests.inside import (
    MOST_QUERIES,
    PROTOCOL,
    Answer,
    Request,
    SiteLine,
    bodies_digest,
    first_transcript,
    framed_digest,
    masked_body,
    next_transcript,
    node_key,
    read_answer,
    read_lines,
    read_masked,
    read_request,
    signed_content,
    write_answer,
    write_request,
)
from tests.raising import raises

BODY = Parcel({"query": "census", "split": "train"}, {"w": np.arange(3.0)})
KNOWN = {"relay": (b"one", b"", b"three"), "heads": {"a": "1"}}
REQUEST = Request("run", "s" * 64, (BODY, BODY), step=2, **KNOWN)
WORDS = masked_body(np.arange(6, dtype=np.uint64))
ANSWER = Answer("run", (WORDS,), "north", 2, "", "a", "t", "h", "00")


def test_what_is_written_is_read():
    back = read_answer(write_answer(ANSWER))
    for sent, read in ((REQUEST, read_request(write_request(REQUEST))), (ANSWER, back)):
        assert bodies_digest(read.bodies) == bodies_digest(sent.bodies)
        for field in fields(sent):
            if field.name != "bodies":
                assert getattr(read, field.name) == getattr(sent, field.name)
    assert read_masked(back, 6).tolist() == list(range(6))
    for wrong in (5, 7):
        with raises(Malformed, "bad-message"):
            read_masked(back, wrong)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run", "x" * 301),
        ("run", 7),
        ("step", -1),
        ("step", True),
        ("step", 2**60),
        ("bodies", "no list"),
        ("bodies", [{}] * (MOST_QUERIES + 1)),
        ("bodies", [7]),
        ("relay", [4, 5]),
        ("relay", [10**15]),
        ("heads", {"a": 7}),
        ("format", "pffl answer"),
        ("more", 1),
        ("version", None),
    ],
)
def test_headers_that_are_not_ours_are_refused(name, value):
    parcel = unpack(write_request(REQUEST))
    content = pack(Parcel({**parcel.header, name: value}, parcel.arrays))
    with pytest.raises(Malformed):
        read_request(content)


def test_another_protocol_is_named():
    parcel = unpack(write_request(REQUEST))
    other = {**parcel.header, "protocol": PROTOCOL + 1, "version": "9.9\x1b[2J"}
    with raises(Malformed, "other-version", "9.9 [2J", str(PROTOCOL)):
        read_request(pack(Parcel(other, parcel.arrays)))
    with pytest.raises(Malformed):
        read_answer(write_answer(replace(ANSWER, refusal="and totals")))
    lost = {**parcel.arrays, "7 w": np.zeros(1)}
    with pytest.raises(Malformed):
        read_request(pack(Parcel(parcel.header, lost)))


def test_the_decoder_survives_ten_thousand_mutated_messages():
    rng = np.random.default_rng(0)
    wholes = [write_request(REQUEST), write_answer(ANSWER)]
    for number in range(10_000):
        content = bytearray(wholes[number % 2])
        for _ in range(int(rng.integers(1, 6))):
            place, how = int(rng.integers(len(content))), rng.integers(3)
            if how == 0:
                content[place] = int(rng.integers(256))
            elif how == 1:
                del content[place : place + int(rng.integers(1, 9))]
            else:
                content[place:place] = bytes(rng.integers(0, 256, 3).tolist())
        for read in (read_request, read_answer):
            with suppress(Malformed):
                read(bytes(content))


def test_a_transcript_depends_on_all_that_was_said():
    flats = [np.arange(4, dtype=np.uint64) + k for k in range(3)]
    first = first_transcript("agreed", "run")
    said = {
        next_transcript(first, "asked", flats),
        next_transcript(first_transcript("agreed", "other"), "asked", flats),
        next_transcript(first_transcript("other", "run"), "asked", flats),
        next_transcript(first, "other", flats),
        next_transcript(first, "asked", flats[::-1]),
        next_transcript(first, "asked", flats[:2]),
    }
    assert len(said) == 6
    assert framed_digest("1", "11") != framed_digest("11", "1")
    assert bodies_digest((BODY,)) != bodies_digest((BODY, BODY))


def test_a_signature_is_of_one_content_and_one_key():
    own, other = SiteKey.generate(), SiteKey.generate()
    signed = replace(ANSWER, signature=own.sign(signed_content(ANSWER)))
    assert own.public.verify(signed_content(signed), signed.signature)
    assert not other.public.verify(signed_content(signed), signed.signature)
    others = {"site": "south", "step": 3, "asked": "b", "head": "x", "bodies": ()}
    for name, value in {**others, "refusal": "no"}.items():
        found = replace(signed, **{name: value})
        assert not own.public.verify(signed_content(found), signed.signature)
    assert not own.public.verify(b"", "no hexadecimal")


def test_a_key_file_is_for_its_owner_alone(tmp_path: Path):
    key = SiteKey.generate()
    key.write(tmp_path / "site.key")
    assert (tmp_path / "site.key").stat().st_mode & 0o777 == 0o600
    assert SiteKey.read(tmp_path / "site.key") == key
    assert key.secret.hex() not in repr(key)
    (tmp_path / "site.key").chmod(0o644)
    with raises(ArtefactError, "open-key-file", "644"):
        SiteKey.read(tmp_path / "site.key")
    for text in ("", "{}", json.dumps({"format": "pffl site key", "version": 2})):
        (tmp_path / "other").write_text(text)
        with raises(ArtefactError, "other-format"):
            SiteKey.read(tmp_path / "other")


def test_the_line_of_a_site_is_signed_and_each_is_there_once():
    own, other = SiteKey.generate(), SiteKey.generate()
    line = SiteLine("north", own.public, node_key()[1]).text(own)
    second = SiteLine("south", other.public, node_key()[1]).text(other)
    found = read_lines(f"{line}\n\n{second}\n")
    assert list(found) == ["north", "south"]
    assert found["north"].key == own.public
    assert found["north"].node.startswith("ecdsa-sha2-nistp384 ")
    forged = line.replace("north", "nord")
    for text, code in (
        (forged, "changed-line"),
        (line[:-2] + ("00" if line[-2:] != "00" else "01"), "changed-line"),
        ("hello", "wrong-line"),
        (f"{line}\n{line}", "repeated-key"),
    ):
        with raises(UsageError, code):
            read_lines(text)
    with raises(Malformed, "wrong-keys"):
        PublicKey("zz")
