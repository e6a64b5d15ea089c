"""CelebA from official-format files that are small and drawn; damage of every kind."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from PIL import Image

from pffl.datasets import celeba
from pffl.errors import DataError, MissingExtraError, UsageError
from tests.datasets.acs_files import zip_file
from tests.datasets.celeba_files import ATTRIBUTES, Drawn, colour, jpeg
from tests.inside import datasets_celeba as module
from tests.raising import raises

ARCHIVE, FLAGS, PEOPLE = (
    "img_align_celeba.zip", "list_attr_celeba.txt", "identity_CelebA.txt",
)  # fmt: skip


@pytest.fixture
def drawn(tmp_path):
    return Drawn(tmp_path / "celeba")


@pytest.fixture
def load():
    """Return `celeba` for drawn files."""
    usual = {"clients": None, "size": 8}
    return lambda folder, **changes: celeba(folder, **{**usual, **changes})


def rows_of(drawn, federation):
    """Rows of each person: the picture, known by its colour, its label and group."""
    colours = np.array([colour(k) for k in range(40)])
    known = {}
    for silo in federation.silos:
        for rows in silo.splits.values():
            for x, y, group in zip(rows.X, rows.y, rows.group, strict=True):
                middle = x.reshape(8, 8, 3)[4, 4].astype(int)
                (near,) = np.flatnonzero(np.abs(middle - colours).max(axis=1) <= 2)
                known.setdefault(silo.name, []).append((near, int(y), int(group)))
    return {name: sorted(rows) for name, rows in known.items()}


def expected(drawn, held=None, least=5):
    """The same from the lists alone, of the pictures held."""
    held = np.ones(len(drawn.names), bool) if held is None else held
    flags = drawn.flags[:, [ATTRIBUTES.index("Smiling"), ATTRIBUTES.index("Male")]] > 0
    own = {}
    for k in np.flatnonzero(held):
        row = (k % 40, *map(int, flags[k]))
        own.setdefault(f"person {drawn.person[k]}", []).append(row)
    return {name: sorted(rows) for name, rows in own.items() if len(rows) >= least}


def moved(drawn, *pairs):
    for part, files in pairs:
        place = drawn.folder / part
        place.mkdir(parents=True)
        for file in drawn.folder.glob(files):
            if file != place.parent:
                file.rename(place / file.name)


PLACES = {
    "zip": lambda d: d.zipped(),
    "folder": lambda d: d.unzipped(),
    "beside": lambda d: d.unzipped(beside=True),
    "Anno and Img": lambda d: (
        d.zipped(), moved(d, ("Anno", "*.txt"), ("Img", "*.zip")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_people_are_silos_and_pictures_are_rows(tmp_path, load, place):
    drawn = Drawn(tmp_path / "celeba", ending="\n" if place == "zip" else "\r\n")
    PLACES[place](drawn)
    federation = load(drawn.folder)
    assert (federation.schema.n_features, federation.synthetic) == (8 * 8 * 3, False)
    assert federation.schema.groups == ("not Male", "Male")
    assert federation.schema.labels == ("not Smiling", "Smiling")
    assert federation.pooled("train").X.dtype == np.uint8
    assert rows_of(drawn, federation) == expected(drawn)


def test_pictures_are_squeezed_as_leaf_does_with_colours_last(tmp_path):
    half = np.zeros((218, 178, 3), dtype=np.uint8)
    half[:109], half[109:] = (250, 10, 10), (10, 10, 250)
    Image.fromarray(half).save(tmp_path / "half.jpg", "JPEG", quality=95)
    picture = module.decoder(16)((tmp_path / "half.jpg").read_bytes())
    picture = picture.reshape(16, 16, 3)
    assert picture[1, 8, 0] > 230 > 30 > picture[1, 8, 2]
    assert picture[14, 8, 2] > 230 > 30 > picture[14, 8, 0]


def test_official_lists_are_known_by_their_hash(drawn, load, monkeypatch):
    folder = drawn.zipped()
    assert "not the official" in load(folder).notes[-1]
    official = {name: module._md5(folder / name) for name in (FLAGS, PEOPLE)}
    monkeypatch.setattr(module, "MD5", official)
    assert load(folder).name == "CelebA (9 people)"


def test_the_sample_of_people_is_seeded(drawn, load):
    folder = drawn.zipped()
    first, again, *others = (
        load(folder, clients=4, random_state=k) for k in (1, 1, 2, 3, 4)
    )
    assert first.fingerprint == again.fingerprint
    assert len(first) == 4
    assert any(other.silo_names != first.silo_names for other in others)
    assert len(load(folder, clients=10)) == 9
    assert len(load(folder, least_images=1)) == 12


@pytest.mark.parametrize("parts", [("all_data",), ("train", "test")])
def test_leaf_s_json_says_who_is_shown(drawn, load, parts):
    """Pictures and people that it does not name are left out."""
    drawn.zipped()
    (drawn.folder / PEOPLE).unlink()
    whole = {int(p): np.array(drawn.names)[drawn.person == p] for p in range(103, 109)}
    for k, part in enumerate(parts):
        (drawn.folder / part).mkdir()
        users = {str(p): {"x": list(n[k :: len(parts)])} for p, n in whole.items()}
        text = json.dumps({"users": [*users], "user_data": users})
        (drawn.folder / part / "niid.json").write_text(text)
    federation = load(drawn.folder)
    known = expected(drawn, np.isin(drawn.person, [*whole]))
    assert rows_of(drawn, federation) == known
    assert federation.name == f"CelebA ({len(known)} people, other lists)"
    (drawn.folder / parts[0] / "niid.json").write_text('{"users": []}')
    with raises(DataError, "bad-record", "niid.json"):
        load(drawn.folder)


def test_damaged_pictures_are_named(drawn, load, monkeypatch):
    kept = [n for n, p in zip(drawn.names, drawn.person, strict=True) if p == 107]
    cut, text, large = kept[:3]
    whole = dict(drawn.pictures)
    drawn.pictures[cut] = drawn.pictures[cut][:400]
    drawn.pictures[text] = b"not a picture"
    drawn.pictures[large] = jpeg((1, 2, 3), size=(5000, 8))
    with raises(DataError, "damaged-pictures", "3", cut, text, large):
        load(drawn.zipped())
    path = zip_file(drawn.folder / ARCHIVE, whole)
    data = bytearray(path.read_bytes())
    data[30 + len(drawn.names[0])] = 0xFF  # no packed data at all: zlib's own error
    path.write_bytes(bytes(data))
    with raises(DataError, "damaged-pictures", "1"):
        load(drawn.folder, least_images=1)
    monkeypatch.setattr(module, "MAX_PICTURE_BYTES", 100)
    for folder in (drawn.zipped, drawn.unzipped):
        with raises(DataError, "damaged-pictures"):
            load(folder())
        path.unlink(missing_ok=True)


def lines(name, change, ending="\n"):
    """A change of the lines of a list."""

    def damage(drawn):
        path = drawn.zipped() / name
        path.write_text(ending.join(change(path.read_text().splitlines())))

    return damage


def truncated(drawn):
    path = drawn.zipped() / ARCHIVE
    path.write_bytes(path.read_bytes()[:9999])


WRONG = {
    "cut archive": (truncated, "damaged-file", ARCHIVE),
    "cut list": (lines(FLAGS, lambda x: x[:-7]), "cut-off", "68", "61"),
    "cut line": (lines(FLAGS, lambda x: [*x[:-1], x[-1][:-9]]), "bad-record", "68"),
    "long line": (lines(FLAGS, lambda x: [*x[:-1], x[-1] + " 1"]), "bad-record", "70"),
    "zero": (lines(FLAGS, lambda x: [*x[:-1], x[-1][:-2] + " 0"]), "bad-record", "68"),
    "no list": (lines(FLAGS, lambda x: ["hello"]), "bad-record"),
    "no person": (lines(PEOPLE, lambda x: x[1:]), "lists-differ", "000001.jpg"),
    "no flags": (lines(PEOPLE, lambda x: [*x, "999999.jpg 7"]), "lists-differ", "999"),
    "twice": (lines(PEOPLE, lambda x: [*x, x[0]]), "repeated-name", PEOPLE),
    "a path": (lines(PEOPLE, lambda x: [*x, "../x.jpg 3"]), "lists-differ", "../x"),
    "a name": (lines(PEOPLE, lambda x: [*x[1:], "000001.jpg Jo"]), "bad-record", "01"),
    "no text": (
        lambda d: (d.zipped() / PEOPLE).write_bytes(b"\xff\xfe00"), "bad-record",
    ),
    "twins": (lambda d: d.zipped(**{"other/000001.jpg": b"x"}), "repeated-name"),
    "no pictures": (lambda d: None, "file-missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_with_their_names(drawn, load, name):
    damage, code, *said = WRONG[name]
    damage(drawn)
    with raises(DataError, code, *said):
        load(drawn.folder)


def test_what_is_missing_is_said(load, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (None, tmp_path / "nowhere", tmp_path / "empty"):
        with raises(DataError, "file-missing"):
            load(folder)


def test_bad_parameters_are_listed_at_once(drawn):
    wrong = {"clients": 0, "least_images": -1, "size": 0}
    with raises(UsageError, "wrong-value") as caught:
        celeba(drawn.folder, **wrong, label="Male")
    assert len(caught.value.codes) == 4


def test_without_pillow_the_extra_is_named(drawn, load, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with raises(MissingExtraError, "missing-extra", "pffl[celeba]"):
        load(drawn.zipped())


@pytest.mark.parametrize("packed", [False, True])
def test_present_pictures_are_used_and_counted(drawn, load, packed):
    """People are drawn from what is there, and name, notes and fingerprint say so."""
    kept = drawn.names[::2]
    whole = load(drawn.unzipped())
    for name in set(drawn.names) - set(kept):
        del drawn.pictures[name]
        (drawn.folder / "img_align_celeba" / name).unlink()
    if packed:
        drawn.zipped()
    some = load(drawn.folder, least_images=3, clients=472)
    held = np.isin(drawn.names, kept)
    own = expected(drawn, held, 3)
    assert rows_of(drawn, some) == own
    assert 0 < len(own) < 12
    n = sum(map(len, own.values()))
    said = f"{len(own)} people, {n} pictures present, other lists"
    assert some.name == f"CelebA ({said})"
    told = f"{len(kept)} of {len(set(drawn.person[held]))}"
    assert told in some.notes[0]
    assert some.fingerprint != whole.fingerprint
    fewer = load(drawn.folder, least_images=3, clients=2, random_state=3)
    assert len(fewer) == 2
    assert set(fewer.silo_names) < set(own)
    with raises(DataError, "too-few-people", "least_images="):
        load(drawn.folder, least_images=9)
