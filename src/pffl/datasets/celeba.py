"""CelebA: faces of celebrities with forty attributes each; every person is a silo.

Liu, Luo, Wang, Tang: *Deep Learning Face Attributes in the Wild* (2015), shared out by
person as LEAF does (Caldas et al. 2018). Its terms allow research that is not
commercial and forbid passing it on, so it is not downloaded here: docs/celeba.md says
how to get it.

    list_attr_celeba.txt    line 1: number of pictures; line 2: names of attributes;
                            then  000001.jpg -1  1  1 …   (1 yes, -1 no)
    identity_CelebA.txt     000001.jpg 2880

Lines end with CR LF or LF, and blanks come singly or in pairs.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import listing
from pffl.data.federation import Federation
from pffl.data.silo import Rows
from pffl.datasets._fetch import Progress, cache_folder
from pffl.datasets._pictures import Archive, Folder, Store, decoded, picture_schema
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import BoolArray, IntArray

ATTRIBUTES = "list_attr_celeba.txt"
IDENTITIES = "identity_CelebA.txt"
ARCHIVE = "img_align_celeba.zip"
FOLDERS = ("", "Anno", "Img", "img_align_celeba", "Img/img_align_celeba")
MD5 = {
    ATTRIBUTES: "75e246fa4810816ffd6ee81facbd244c",
    IDENTITIES: "32bd1bd63d3c78cd57e08160ec5ed1e2",
    ARCHIVE: "00d2c5bc6d35e252742224ab0c1e8fcb",
}
HOW = (
    "CelebA is downloaded by hand after accepting its terms: put img_align_celeba.zip, "
    "list_attr_celeba.txt and identity_CelebA.txt into one folder and name it with "
    "source= (docs/celeba.md says where they are)"
)


def celeba(
    source: str | os.PathLike[str] | None = None,
    *,
    label: str = "Smiling",
    group: str = "Male",
    clients: int | None = 472,
    least_images: int = 5,
    size: int = 84,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    edition: Literal["official", "any"] = "official",
    workers: int | None = None,
    progress: Progress | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Federation:
    """Load CelebA from a folder with its official files; a person is a silo.

    Rows are pictures of size × size × 3 bytes, colours last: give them to
    `pffl.models.celeba_cnn`. They are decoded once and kept in the cache folder.

    Parameters
    ----------
    source
        A folder with ``img_align_celeba.zip`` (or a folder ``img_align_celeba`` of
        pictures), ``list_attr_celeba.txt`` and ``identity_CelebA.txt``, side by side or
        in ``Img`` and ``Anno``.
    label, group
        Any two of the forty attributes: what to predict, and who is protected.
    clients
        How many people, drawn with `seed`; None for all. The paper has 472.
    least_images
        Leave out people with fewer pictures; LEAF's 5 leaves 9,343.
    size
        Height and width in pixels.
    test_fraction, validation_fraction
        Share of each person's pictures kept for testing and validation.
    edition
        "official" checks the MD5 of the files, "any" reads what is there.
    workers, progress
        Threads that decode, and a function that is told ("pictures", done, all) now
        and then.
    cache_dir
        Where to keep decoded pictures, see `pffl.datasets`.
    seed
        Seed of the people drawn and of the split.
    """
    _check(label, group, clients, least_images, size, edition)
    folder, attributes, identities, archive = _files(source, edition)
    lists = read_lists(attributes, identities, label, group)
    chosen = choose(lists, clients, least_images, seed)
    X = decoded(
        lambda: _open_store(folder, archive, official=edition == "official"),
        chosen.picture.tolist(),
        size,
        cache=cache_folder(cache_dir) / "celeba",
        key=_edition_key(edition, archive or folder, attributes, identities),
        workers=workers,
        progress=progress,
    )
    people, silo = np.unique(chosen.person, return_inverse=True)
    return Federation.from_rows(
        picture_schema(size, label, group),
        Rows.of(X, chosen.label, chosen.group),
        silo.reshape(-1),
        [f"person {number}" for number in people],
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        name=f"CelebA ({len(people):,} people)",
        seed=seed,
        notes=(
            f"{len(people):,} people with at least {least_images} pictures, drawn with "
            f"seed {seed}: {len(X):,} pictures of {size} × {size}",
            f"label: 'not {label}' → 0, '{label}' → 1 (positive)",
        ),
    )


def choose(lists: Lists, clients: int | None, least_images: int, seed: int) -> Lists:
    """Keep people with enough pictures, and of them a random sample."""
    people, counts = np.unique(lists.person, return_counts=True)
    kept = people[counts >= least_images]
    if clients is not None:
        if len(kept) < clients:
            raise DataError(
                f"CelebA: {len(kept):,} people have at least {least_images} pictures, "
                f"clients={clients:,} were asked for"
            )
        kept = np.random.default_rng(seed).choice(kept, clients, replace=False)
    return lists.take(np.flatnonzero(np.isin(lists.person, kept)))


def _files(
    source: str | os.PathLike[str] | None, edition: str
) -> tuple[Path, Path, Path, Path | None]:
    """Find the files and check them; all that is wrong is said at once."""
    if source is None:
        raise DataError(HOW)
    folder = Path(source).expanduser()
    found = {name: find(folder, name) for name in (ATTRIBUTES, IDENTITIES, ARCHIVE)}
    with Problems("CelebA", DataError) as problems:
        if not folder.is_dir():
            problems.add(f"'{folder}' is not a folder. {HOW}")
        for name in (ATTRIBUTES, IDENTITIES):
            if folder.is_dir() and found[name] is None:
                problems.add(f"'{folder}' has no {name}. {HOW}")
            elif edition == "official" and (path := found[name]) is not None:
                check_hash(path, name, problems)
    attributes, identities = found[ATTRIBUTES], found[IDENTITIES]
    if attributes is None or identities is None:  # said above
        raise DataError(HOW)
    return folder, attributes, identities, found[ARCHIVE]


def _open_store(source: Path, archive: Path | None, *, official: bool) -> Store:
    """Return where the pictures are: the archive, or the first folder with any."""
    if archive is not None and official:
        with Problems("CelebA", DataError) as problems:
            check_hash(archive, ARCHIVE, problems)
    if archive is not None:
        return Archive(archive)
    for name in reversed(FOLDERS):
        folder = source / name
        if folder.is_dir() and next(folder.glob("*.jpg"), None) is not None:
            return Folder(folder)
    raise DataError(
        f"'{source}' holds neither img_align_celeba.zip nor pictures (*.jpg)"
    )


def _edition_key(edition: str, place: Path, attributes: Path, identities: Path) -> str:
    """What the decoded pictures depend on: the lists, and where pictures are."""
    parts = [edition, md5(attributes), md5(identities), str(place.resolve())]
    if place.is_file():
        facts = place.stat()
        parts += [str(facts.st_size), str(facts.st_mtime_ns)]
    return " ".join(parts)


def _check(
    label: str,
    group: str,
    clients: int | None,
    least_images: int,
    size: int,
    edition: str,
) -> None:
    with Problems("celeba", UsageError) as problems:
        for name, value in (
            ("clients", clients),
            ("least_images", least_images),
            ("size", size),
        ):
            if value is not None and (int(value) != value or value < 1):
                problems.add(
                    f"'{name}' must be a whole number ≥ 1. Got {value} instead."
                )
        if edition not in ("official", "any"):
            problems.add(
                f"'edition' must be 'official' or 'any'. Got '{edition}' instead."
            )
        if label == group:
            problems.add(f"label and group must differ. Both are '{label}'.")


@dataclass(frozen=True, eq=False)
class Lists:
    """Pictures in the order of their names, with person, label and group.

    Attributes
    ----------
    picture
        File names.
    person
        Number of the person shown.
    label, group
        Whether the picture has the two attributes that were asked for.
    """

    picture: NDArray[np.str_]
    person: IntArray
    label: BoolArray
    group: BoolArray

    def take(self, index: IntArray) -> Lists:
        """Return some of the pictures."""
        return Lists(
            self.picture[index],
            self.person[index],
            self.label[index],
            self.group[index],
        )


def find(source: Path, name: str) -> Path | None:
    """Return the file of that name in the folder, or where CelebA keeps it below."""
    places = (source / folder / name for folder in FOLDERS)
    return next((place for place in places if place.is_file()), None)


def md5(path: Path) -> str:
    """MD5 of a file: what CelebA's mirrors publish. It finds damage, not malice."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def check_hash(path: Path, name: str, problems: Problems) -> None:
    """Note a file that is not the official one."""
    found = md5(path)
    if found != MD5[name]:
        problems.add(
            f"'{path}' has MD5 {found} ({path.stat().st_size:,} bytes), the official "
            f"file has {MD5[name]}: it is damaged or another edition (edition='any' "
            "reads it all the same)"
        )


def read_lists(attributes: Path, identities: Path, label: str, group: str) -> Lists:
    """Read both lists; every problem of either is named."""
    with Problems("CelebA", DataError) as problems:
        names, flags = _read_attributes(attributes, (label, group), problems)
        people = _read_identities(identities, problems)
        if not problems.found:
            _compare(names, people, problems)
    order = np.argsort(names, kind="stable")
    picture = np.array(names, dtype=np.str_)[order]
    return Lists(
        picture,
        np.array([people[name] for name in picture.tolist()], dtype=np.int64),
        flags[order, 0],
        flags[order, 1],
    )


def _read_attributes(
    path: Path, wanted: tuple[str, str], problems: Problems
) -> tuple[list[str], BoolArray]:
    """Names of the pictures, and the wanted attributes, shape (n, 2)."""
    lines = _lines(path)
    known = lines[1].split() if len(lines) > 1 else []
    nothing: tuple[list[str], BoolArray] = ([], np.zeros((0, 2), dtype=bool))
    if len(lines) < 3 or not lines[0].strip().isdigit():
        problems.add(f"'{path}' is not CelebA's list of attributes")
        return nothing
    absent = [name for name in wanted if name not in known]
    if absent:
        problems.add(
            f"no attribute {', '.join(map(repr, absent))}: there are {', '.join(known)}"
        )
        return nothing
    places = [known.index(name) + 1 for name in wanted]
    names, flags, wrong = [], [], []
    for number, line in enumerate(lines[2:], start=3):
        words = line.split()
        if len(words) != len(known) + 1 or not {words[p] for p in places} <= {
            "1",
            "-1",
        }:
            wrong.append(str(number))
            continue
        names.append(words[0])
        flags.append([words[p] == "1" for p in places])
    if wrong:
        problems.add(f"'{path}': lines {listing(wrong)} cannot be read")
    elif len(names) != int(lines[0]):
        problems.add(
            f"'{path}' announces {int(lines[0]):,} pictures and lists {len(names):,}: "
            "it is cut off"
        )
    _check_names(path, names, problems)
    return names, np.array(flags, dtype=bool).reshape(-1, 2)


def _read_identities(path: Path, problems: Problems) -> dict[str, int]:
    names, people, wrong = [], [], []
    for number, line in enumerate(_lines(path), start=1):
        words = line.split()
        if len(words) != 2 or not words[1].isdigit():
            wrong.append(str(number))
            continue
        names.append(words[0])
        people.append(int(words[1]))
    if wrong:
        problems.add(f"'{path}': lines {listing(wrong)} cannot be read")
    _check_names(path, names, problems)
    return dict(zip(names, people, strict=True))


def _check_names(path: Path, names: list[str], problems: Problems) -> None:
    """A name is that of a file, never a path that leads elsewhere; and stands once."""
    bad = [name for name in names if name != Path(name).name or "\\" in name]
    if bad:
        problems.add(f"'{path}': not names of pictures: {listing(bad)}")
    if len(set(names)) < len(names):
        problems.add(f"'{path}' lists a picture twice")


def _compare(names: list[str], people: dict[str, int], problems: Problems) -> None:
    without = sorted(set(names) - people.keys())
    if without:
        problems.add(f"pictures without a person: {listing(without)}")
    unknown = sorted(people.keys() - set(names))
    if unknown:
        problems.add(f"pictures without attributes: {listing(unknown)}")


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("ascii")
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}': byte {error.start} is not text") from error
    return text.splitlines()
