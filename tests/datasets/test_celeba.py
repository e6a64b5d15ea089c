"""CelebA from official-format files that are small and drawn; damage of every kind."""

from __future__ import annotations

import json
import sys
from importlib import import_module

import numpy as np
import pytest

from pffl.datasets import _pictures, celeba
from pffl.errors import DataError, MissingExtraError, UsageError
from tests.datasets.archives import zip_file, zip_with_link
from tests.datasets.celeba_files import ATTRIBUTES, Drawn, colour, jpeg
from tests.raising import raises

module = import_module("pffl.datasets.celeba")


@pytest.fixture
def drawn(tmp_path):
    return Drawn(tmp_path / "celeba")


@pytest.fixture
def load(tmp_path):
    """Return `celeba` for drawn files, with a cache of its own."""

    def call(folder, **changes):
        settings = {
            "edition": "any",
            "clients": None,
            "size": 8,
            "cache_dir": tmp_path / "cache",
        }
        return celeba(folder, **{**settings, **changes})

    return call


def rows_by_name(drawn, federation):
    """Recognise each row's picture by its colour; return {name: (silo, y, group)}."""
    known = {}
    for silo in federation.silos:
        for rows in silo.splits.values():
            for x, y, group in zip(rows.X, rows.y, rows.group, strict=True):
                middle = x.reshape(8, 8, 3)[4, 4].astype(int)
                near = [
                    k
                    for k in range(len(drawn.names))
                    if np.abs(middle - colour(k)).max() <= 2
                ]
                known.setdefault(silo.name, []).append((near, int(y), int(group)))
    return known


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
@pytest.mark.parametrize("place", ["zip", "folder", "beside", "Anno and Img"])
def test_people_are_silos_and_pictures_are_rows(tmp_path, load, place, ending):
    drawn = Drawn(tmp_path / "celeba", ending=ending)
    folder = drawn.folder
    if place == "folder":
        drawn.unzipped()
    elif place == "beside":
        drawn.unzipped(beside=True)
    else:
        drawn.zipped()
    if place == "Anno and Img":
        for part, files in (("Anno", "*.txt"), ("Img", "*.zip")):
            (folder / part).mkdir()
            for file in folder.glob(files):
                file.rename(folder / part / file.name)
    federation = load(folder)
    assert (federation.schema.n_features, federation.synthetic) == (8 * 8 * 3, False)
    assert federation.schema.groups == ("not Male", "Male")
    assert federation.schema.labels == ("not Smiling", "Smiling")
    counts = {p: int((drawn.person == p).sum()) for p in np.unique(drawn.person)}
    kept = {f"person {p}": n for p, n in counts.items() if n >= 5}
    assert {
        silo.name: sum(map(len, silo.splits.values())) for silo in federation.silos
    } == kept
    assert federation.pooled("train").X.dtype == np.uint8
    # Every row is one of the person's own pictures, with its own label and group.
    male, smiling = ATTRIBUTES.index("Male"), ATTRIBUTES.index("Smiling")
    for name, rows in rows_by_name(drawn, federation).items():
        own = np.flatnonzero(drawn.person == int(name.split()[1]))
        expected = sorted(
            (k % 40, int(drawn.flags[k, smiling] > 0), int(drawn.flags[k, male] > 0))
            for k in own
        )
        found = sorted((near[0] % 40, y, g) for near, y, g in rows)
        assert found == expected


def test_pictures_are_squeezed_as_leaf_does_with_colours_last(drawn, load):
    half = np.zeros((218, 178, 3), dtype=np.uint8)
    half[:109] = (250, 10, 10)
    half[109:] = (10, 10, 250)
    from PIL import Image

    from pffl.datasets._pictures import decoder

    path = drawn.folder / "half.jpg"
    Image.fromarray(half).save(path, "JPEG", quality=95)
    picture = decoder(16)(path.read_bytes()).reshape(16, 16, 3)
    assert picture[1, 8, 0] > 230 > 30 > picture[1, 8, 2]
    assert picture[14, 8, 2] > 230 > 30 > picture[14, 8, 0]


def test_any_attributes(drawn, load):
    federation = load(drawn.zipped(), label="Young", group="Eyeglasses")
    assert federation.schema.groups == ("not Eyeglasses", "Eyeglasses")
    assert federation.schema.target == "Young"
    with raises(DataError, "unknown-attribute", "Happy"):
        load(drawn.folder, label="Happy")


def test_the_sample_of_people_is_seeded(drawn, load):
    folder = drawn.zipped()
    first, again = load(folder, clients=4, seed=1), load(folder, clients=4, seed=1)
    assert first.silo_names == again.silo_names
    assert first.fingerprint == again.fingerprint
    assert len(first) == 4
    drawn_people = {load(folder, clients=4, seed=k).silo_names for k in range(6)}
    assert len(drawn_people) > 1
    with raises(DataError, "too-few-people", "9", "5"):
        load(folder, clients=10)
    assert len(load(folder, clients=None, least_images=1)) == 12


def test_pictures_are_decoded_once_and_a_damaged_cache_is_written_anew(
    drawn, load, tmp_path, monkeypatch
):
    folder, seen = drawn.zipped(), []
    first = load(folder, progress=lambda _, done, of: seen.append((done, of)))
    assert seen[-1][0] == seen[-1][1] == first.rows("train") + first.rows("test")
    (cached,) = (tmp_path / "cache" / "celeba").glob("*.npy")
    with monkeypatch.context() as patch:
        patch.setattr(_pictures, "decoder", lambda size: pytest.fail("again"))
        assert load(folder).fingerprint == first.fingerprint
    content = bytearray(cached.read_bytes())
    content[-1] ^= 255
    for damage in (bytes(content), bytes(content[:-100]), b"", b"\x93NUMPY"):
        cached.write_bytes(damage)
        assert load(folder).fingerprint == first.fingerprint
    facts = cached.with_suffix(".json")
    assert set(json.loads(facts.read_text())) == {"sha256", "pictures", "size"}
    facts.write_text("[]")
    assert load(folder).fingerprint == first.fingerprint
    assert not list(cached.parent.glob("*arriving*"))


def test_decoding_is_the_same_with_any_number_of_threads(
    drawn, load, tmp_path, monkeypatch
):
    monkeypatch.setattr(_pictures, "BLOCK", 3)
    one = load(drawn.zipped(), workers=1, cache_dir=tmp_path / "one")
    four = load(drawn.folder, workers=4, cache_dir=tmp_path / "four")
    assert one.fingerprint == four.fingerprint


def test_missing_and_corrupt_pictures_are_named(drawn, load, tmp_path):
    kept = [n for n, p in zip(drawn.names, drawn.person, strict=True) if p == 107]
    cut, text, gone = kept[:3]
    drawn.pictures[cut] = drawn.pictures[cut][:400]
    drawn.pictures[text] = b"not a picture"
    with raises(DataError, "damaged-pictures", "2", cut, text):
        load(drawn.zipped())
    assert not list((tmp_path / "cache").rglob("*.npy"))
    del drawn.pictures[gone]
    folder = drawn.zipped()
    with raises(DataError, "missing-pictures", gone):
        load(folder)
    (folder / "img_align_celeba.zip").unlink()
    with raises(DataError, "missing-pictures", gone):
        load(drawn.unzipped())


def test_a_picture_of_another_kind_or_of_enormous_size_is_refused(
    drawn, load, monkeypatch
):
    name = next(n for n, p in zip(drawn.names, drawn.person, strict=True) if p == 107)
    drawn.pictures[name] = jpeg((1, 2, 3), size=(5000, 8))
    with raises(DataError, "damaged-pictures", name):
        load(drawn.zipped())
    monkeypatch.setattr(_pictures, "LARGEST_FILE", 100)
    for folder in (drawn.folder, drawn.unzipped()):
        with raises(DataError, "damaged-pictures", "100"):
            load(folder)
        (folder / "img_align_celeba.zip").unlink(missing_ok=True)


def test_a_picture_packed_wrongly_is_named(drawn, load):
    """Bytes that are no packed data at all: zlib's own error, not only a checksum."""
    path, first = drawn.folder / "img_align_celeba.zip", drawn.names[0]
    zip_file(path, drawn.pictures)
    data = bytearray(path.read_bytes())
    data[30 + len(first)] = 0xFF
    path.write_bytes(bytes(data))
    with raises(DataError, "damaged-pictures", "1"):
        load(path.parent, clients=None, least_images=1)


def test_another_edition_is_refused_by_its_hash(drawn, load, monkeypatch):
    folder, lists = drawn.zipped(), ("list_attr_celeba.txt", "identity_CelebA.txt")
    with raises(DataError, "wrong-hash", *map(module.MD5.get, lists)):
        load(folder, edition="official")
    official = {name: module.md5(folder / name) for name in lists}
    monkeypatch.setattr(module, "MD5", {**module.MD5, **official})
    with raises(DataError, "wrong-hash"):  # the archive's, before it is opened
        load(folder, edition="official")
    whole = module.md5(folder / "img_align_celeba.zip")
    monkeypatch.setitem(module.MD5, "img_align_celeba.zip", whole)
    assert len(load(folder, edition="official")) == 9


def test_truncated_files_are_refused(drawn, load):
    folder = drawn.zipped()
    archive = folder / "img_align_celeba.zip"
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with raises(DataError, "damaged-file", "img_align_celeba.zip"):
        load(folder)
    archive.write_bytes(whole)
    attributes = folder / "list_attr_celeba.txt"
    lines = attributes.read_bytes().splitlines(keepends=True)
    attributes.write_bytes(b"".join(lines[:-7]))
    with raises(DataError, "cut-off", "68", "61"):
        load(folder)
    attributes.write_bytes(b"".join(lines)[:-9])
    with raises(DataError, "bad-record", "70"):
        load(folder)


def test_lists_that_do_not_fit_are_refused_with_names(drawn, load):
    folder = drawn.zipped()
    identities = folder / "identity_CelebA.txt"
    lines = identities.read_text().splitlines()
    for change, code, said in (
        (lines[1:], "lists-differ", "000001.jpg"),
        ([*lines, "999999.jpg 7"], "lists-differ", "999999.jpg"),
        ([*lines, lines[0]], "repeated-name", "identity_CelebA.txt"),
        ([*lines[1:], "../../x.jpg 3"], "bad-record", "../../x.jpg"),
        ([*lines[1:], "000001.jpg somebody"], "bad-record", "68"),
    ):
        identities.write_text("\n".join(change))
        with raises(DataError, code, said):
            load(folder)
    identities.write_bytes(b"\xff\xfe00")
    with raises(DataError, "not-text", "0"):
        load(folder)
    drawn.write_lists()
    (folder / "list_attr_celeba.txt").write_text("hello\n")
    with raises(DataError, "wrong-list"):
        load(folder)


def test_dangerous_archives_are_refused(drawn, load):
    folder = drawn.zipped(**{"../evil.jpg": b"x"})
    path = folder / "img_align_celeba.zip"
    with raises(DataError, "unsafe-path"):
        load(folder)
    zip_with_link(path, "000001.jpg", "/etc/passwd")
    with raises(DataError, "unsafe-path"):
        load(folder)
    zip_file(path, {"000001.jpg": b"\0" * (4 << 20)})
    with raises(DataError, "too-large"):
        load(folder)
    drawn.zipped(**{"other/000001.jpg": b"x"})
    with raises(DataError, "repeated-name"):
        load(folder)


def test_what_is_missing_is_said_with_where_to_get_it(drawn, load, tmp_path):
    with raises(DataError, "file-missing"):
        celeba()
    with raises(DataError, "file-missing"):
        load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with raises(DataError, "file-missing", "2"):
        load(tmp_path / "empty")
    with raises(DataError, "file-missing"):
        load(drawn.folder)


def test_bad_parameters_are_listed_at_once(drawn):
    with raises(UsageError, "wrong-value", "5"):
        celeba(
            drawn.folder,
            clients=0,
            least_images=-1,
            size=0,
            edition="mine",
            label="Male",
        )


def test_without_pillow_the_extra_is_named(drawn, load, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with raises(MissingExtraError, "missing-extra", "pffl[celeba]"):
        load(drawn.zipped())


@pytest.mark.parametrize("header", [True, False])
def test_mirrors_tables_are_read_as_the_official_lists(drawn, load, header):
    folder = drawn.unzipped()
    official = load(folder)
    drawn.as_tables(header=header)
    with raises(DataError, "no-hash", "2", "edition='any'"):
        load(folder, edition="official")
    assert load(folder).fingerprint == official.fingerprint


def test_what_is_wrong_with_a_mirrors_table_is_named(drawn, load):
    folder = drawn.unzipped()
    drawn.as_tables()
    table = folder / "list_attr_celeba.csv"
    whole = table.read_text().splitlines()
    renamed = whole[0].replace("Smiling", "Grinning")
    for change, code, said in (
        (whole[:1] + whole[2:], "lists-differ", "000001.jpg"),
        ([*whole, whole[1]], "repeated-name", "list_attr_celeba.csv"),
        ([whole[0], whole[1][:-2], *whole[2:]], "bad-record", "lines 2"),
        ([renamed, *whole[1:]], "unknown-attribute", "Smiling"),
        (whole[:1], "wrong-list", "list_attr_celeba.csv"),
    ):
        table.write_text("\n".join(change))
        with raises(DataError, code, said):
            load(folder)


def test_kaggles_folder_in_a_folder_is_found(drawn, load):
    folder = drawn.unzipped()
    whole = load(folder)
    inner = folder / "img_align_celeba"
    inner.rename(folder / "inner")
    inner.mkdir()
    (folder / "inner").rename(inner / "img_align_celeba")
    assert load(folder).fingerprint == whole.fingerprint


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
    with raises(DataError, "missing-pictures", "present"):
        load(drawn.folder, clients=8)
    some = load(drawn.folder, pictures="present", least_images=3, clients=472)
    held = np.isin(drawn.names, kept)
    people, counts = np.unique(drawn.person[held], return_counts=True)
    expected = {f"person {p}": n for p, n in zip(people, counts, strict=True) if n >= 3}
    found = {s.name: sum(map(len, s.splits.values())) for s in some.silos}
    assert found == expected
    assert 0 < len(expected) < 12
    n = sum(expected.values())
    assert some.name == f"CelebA ({len(expected)} people, {n} pictures present)"
    first = f"of 68 pictures of 12 people in the lists, {len(kept)} of {len(people)}"
    assert first in some.notes[0]
    assert "are present" in some.notes[0]
    assert some.fingerprint != whole.fingerprint
    rows = rows_by_name(drawn, some)
    for name, own in rows.items():
        shown = np.flatnonzero(held & (drawn.person == int(name.split()[1])))
        assert sorted(near[0] % 40 for near, *_ in own) == sorted(k % 40 for k in shown)
    fewer = load(drawn.folder, pictures="present", least_images=3, clients=2, seed=3)
    assert len(fewer) == 2
    assert set(fewer.silo_names) < set(expected)


def test_a_part_that_has_nobody_says_what_to_ask_for(drawn, load):
    folder = drawn.unzipped()
    for name in drawn.names[1:]:
        (folder / "img_align_celeba" / name).unlink()
    with raises(DataError, "too-few-people", "1", "least_images="):
        load(folder, pictures="present")
    with raises(UsageError, "wrong-value", "pictures"):
        load(folder, pictures="some")


def test_panels_of_figure_2_open_a_folder_of_pictures(drawn, tmp_path, monkeypatch):
    """`pffl reproduce tradeoff --data celeba --source DIR`, up to the training."""
    pytest.importorskip("torch", reason="networks need the extra 'torch'")
    from pffl.cli.reproduce import open_panel
    from pffl.study.experiment import Seeds
    from pffl.study.reproduce import load as figure

    monkeypatch.setenv("PFFL_CACHE_DIR", str(tmp_path / "cache"))
    folder = drawn.unzipped()
    (folder / "img_align_celeba" / drawn.names[0]).unlink()
    drawn.as_tables()
    spec = figure("tradeoff")
    names = spec.names(None, "celeba")
    assert names == ["celeba-bgl", "celeba-cbgl-y1", "celeba-cbgl-y0"]
    for panel in (panel for panel in spec.panels if panel.name in names):
        section = {**panel.data, "size": 12}
        found = open_panel(section, Seeds(1, 1, 1), str(folder))
        assert "67 of 12 are present" in found.notes[0]
        assert set(found.splits) == {"train", "validation", "test"}
        steps = {len(curve.grid.get("step_size", ())) for curve in panel.curves}
        assert min(steps) >= 2, "step sizes are tuned on validation pictures"
