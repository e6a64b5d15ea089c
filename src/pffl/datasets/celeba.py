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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from pffl.data.checks import check_choice, check_whole, listing
from pffl.data.federation import Federation
from pffl.data.silo import Rows
from pffl.datasets._fetch import Progress, cache_folder
from pffl.datasets._pictures import Store, decoded, picture_schema
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import BoolArray, IntArray

T = TypeVar("T")

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
    with Problems("celeba", UsageError) as problems:
        check_whole(problems, least_images=least_images, size=size)
        if clients is not None:
            check_whole(problems, clients=clients)
        check_choice(problems, "edition", edition, ("official", "any"))
        if label == group:
            problems.add(f"label and group must differ. Both are '{label}'.")
    folder, attributes, identities, archive = _files(source, edition)
    names, person, flags = _read_lists(attributes, identities, (label, group))
    chosen = _choose(person, clients, least_images, seed)
    X = decoded(
        lambda: _open_store(folder, archive, official=edition == "official"),
        [names[place] for place in chosen.tolist()],
        size,
        cache=cache_folder(cache_dir) / "celeba",
        key=_edition_key(edition, archive or folder, attributes, identities),
        workers=workers,
        progress=progress,
    )
    people, silo = np.unique(person[chosen], return_inverse=True)
    return Federation.from_rows(
        picture_schema(size, label, group),
        Rows.of(X, *flags[chosen].T),
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


def _choose(
    person: IntArray, clients: int | None, least_images: int, seed: int
) -> IntArray:
    """Places of pictures of people with enough of them, and of those a sample."""
    people, counts = np.unique(person, return_counts=True)
    kept = people[counts >= least_images]
    if clients is not None:
        if len(kept) < clients:
            raise DataError(
                f"CelebA: {len(kept):,} people have at least {least_images} pictures, "
                f"clients={clients:,} were asked for"
            )
        kept = np.random.default_rng(seed).choice(kept, clients, replace=False)
    return np.flatnonzero(np.isin(person, kept))


def _files(
    source: str | os.PathLike[str] | None, edition: str
) -> tuple[Path, Path, Path, Path | None]:
    """Find the files and check them; all that is wrong is said at once."""
    if source is None:
        raise DataError(HOW)
    folder = Path(source).expanduser()
    found = {
        name: next((p for f in FOLDERS if (p := folder / f / name).is_file()), None)
        for name in (ATTRIBUTES, IDENTITIES, ARCHIVE)
    }
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
        return Store.archive(archive)
    for name in reversed(FOLDERS):
        folder = source / name
        if folder.is_dir() and next(folder.glob("*.jpg"), None) is not None:
            return Store.folder(folder)
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


def md5(path: Path) -> str:
    """MD5 of a file: what CelebA's mirrors publish. It finds damage, not malice."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
    return digest.hexdigest()


def check_hash(path: Path, name: str, problems: Problems) -> None:
    """Note a file that is not the official one."""
    found = md5(path)
    if found != MD5[name]:
        problems.add(
            f"'{path}' has MD5 {found} ({path.stat().st_size:,} bytes), the official "
            f"file has {MD5[name]}: it is damaged or another edition (`edition='any'` "
            "reads it all the same)"
        )


def _read_lists(
    attributes: Path, identities: Path, wanted: tuple[str, str]
) -> tuple[list[str], IntArray, BoolArray]:
    """Pictures in the order of their names: who is shown, and two of the attributes.

    Every problem of either list is named.
    """
    with Problems("CelebA", DataError) as problems:
        looks = _read_attributes(attributes, wanted, problems)
        people = _read_list(identities, _lines(identities), 1, _number, problems)
        if not problems.found:
            for what, alone in (
                ("a person", looks.keys() - people.keys()),
                ("attributes", people.keys() - looks.keys()),
            ):
                if alone:
                    problems.add(f"pictures without {what}: {listing(sorted(alone))}")
    names = sorted(looks)
    person = np.array([people[name] for name in names], dtype=np.int64)
    return names, person, np.array([looks[name] for name in names], dtype=bool)


def _number(words: Sequence[str]) -> int | None:
    return int(words[0]) if len(words) == 1 and words[0].isdigit() else None


def _read_attributes(
    path: Path, wanted: tuple[str, str], problems: Problems
) -> dict[str, tuple[bool, ...]]:
    """Whether each picture has the wanted attributes."""
    lines = _lines(path)
    if len(lines) < 3 or not lines[0].strip().isdigit():
        problems.add(f"'{path}' is not CelebA's list of attributes")
        return {}
    known = lines[1].split()
    absent = [name for name in wanted if name not in known]
    if absent:
        problems.add(
            f"no attribute {', '.join(map(repr, absent))}: there are {', '.join(known)}"
        )
        return {}
    places = [known.index(name) for name in wanted]

    def look(words: Sequence[str]) -> tuple[bool, ...] | None:
        if len(words) != len(known) or {words[p] for p in places} - {"1", "-1"}:
            return None
        return tuple(words[p] == "1" for p in places)

    before = len(problems.found)
    looks = _read_list(path, lines[2:], 3, look, problems)
    if len(problems.found) == before and len(looks) != int(lines[0]):
        problems.add(
            f"'{path}' announces {int(lines[0]):,} pictures and lists {len(looks):,}: "
            "it is cut off"
        )
    return looks


def _read_list(
    path: Path,
    lines: Sequence[str],
    first: int,
    meaning: Callable[[Sequence[str]], T | None],
    problems: Problems,
) -> dict[str, T]:
    """Read lines of a picture's name and what is said of it, each picture once.

    A name is that of a file, never a path that leads elsewhere.
    """
    found: dict[str, T] = {}
    wrong, twice = [], False
    for number, line in enumerate(lines, start=first):
        name, *words = line.split() or [""]
        value = meaning(words)
        if value is None:
            wrong.append(str(number))
            continue
        twice = twice or name in found
        found[name] = value
    if wrong:
        problems.add(f"'{path}': lines {listing(wrong)} cannot be read")
    bad = [name for name in found if name != Path(name).name or "\\" in name]
    if bad:
        problems.add(f"'{path}': not names of pictures: {listing(bad)}")
    if twice:
        problems.add(f"'{path}' lists a picture twice")
    return found


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("ascii")
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}': byte {error.start} is not text") from error
    return text.splitlines()
