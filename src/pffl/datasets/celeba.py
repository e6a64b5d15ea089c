"""CelebA: faces of celebrities with forty attributes each, in silos of people.

Liu, Luo, Wang, Tang: *Deep Learning Face Attributes in the Wild* (2015), shared out by
person as LEAF does (Caldas et al. 2018). Its terms allow research that is not
commercial and forbid passing it on, so it is not downloaded here: docs/celeba.md says
how to get it.

    list_attr_celeba.txt    line 1: number of pictures; line 2: names of attributes;
                            then  000001.jpg -1  1  1 …   (1 yes, -1 no)
    identity_CelebA.txt     000001.jpg 2880

Lines end with CR LF or LF, and blanks come singly or in pairs. Mirrors ship the same as
tables, which are read too:

    list_attr_celeba.csv    image_id,5_o_Clock_Shadow,Arched_Eyebrows,…   (the names)
                            000001.jpg,-1,1,…
    identity_CelebA.csv     image_id,identity   (or without such a line)
                            000001.jpg,2880
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
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
TABLES = {  # how mirrors name the same lists
    ATTRIBUTES: "list_attr_celeba.csv",
    IDENTITIES: "identity_CelebA.csv",
}
PICTURES = "img_align_celeba"
FOLDERS = ("", "Anno", "Img", PICTURES, f"Img/{PICTURES}", f"{PICTURES}/{PICTURES}")
MD5 = {
    ATTRIBUTES: "75e246fa4810816ffd6ee81facbd244c",
    IDENTITIES: "32bd1bd63d3c78cd57e08160ec5ed1e2",
    ARCHIVE: "00d2c5bc6d35e252742224ab0c1e8fcb",
}
HOW = (
    "CelebA is downloaded by hand after accepting its terms: put img_align_celeba.zip, "
    "list_attr_celeba.txt and identity_CelebA.txt into one folder and name it with "
    "source= (docs/celeba.md says where they are, and how mirrors name them)"
)


def celeba(
    source: str | os.PathLike[str] | None = None,
    *,
    label: str = "Smiling",
    group: str = "Male",
    clients: int | Literal["auto"] | None = "auto",
    silos: int | None = None,
    least_images: int = 5,
    size: int = 84,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    edition: Literal["official", "any"] = "official",
    pictures: Literal["all", "present"] = "all",
    workers: int | None = None,
    progress: Progress | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Federation:
    """Load CelebA from a folder with its official files; a person is a silo, or part.

    Rows are pictures of size × size × 3 bytes, colours last: give them to
    `pffl.models.celeba_cnn`. They are decoded once and kept in the cache folder.

    Parameters
    ----------
    source
        A folder with ``img_align_celeba.zip`` (or a folder ``img_align_celeba`` of
        pictures), ``list_attr_celeba.txt`` and ``identity_CelebA.txt``, side by side or
        in ``Img`` and ``Anno``. Mirrors' ``list_attr_celeba.csv`` and
        ``identity_CelebA.csv`` do as well, with ``edition="any"``.
    label, group
        Any two of the forty attributes: what to predict, and who is protected.
    clients
        How many people, drawn with `seed`; None for all. "auto": all if they are joined
        into `silos`, otherwise 472, as in the paper.
    silos
        Join people into so many silos of about as many pictures, mostly of one group,
        and split by person: test pictures show nobody of the training pictures. None:
        each person is a silo, whose pictures are split, so that nothing can be
        certified for new people.
    least_images
        Leave out people with fewer pictures; LEAF's 5 leaves 9,343.
    size
        Height and width in pixels.
    test_fraction, validation_fraction
        Share of people, or of each person's pictures, for testing and validation.
    edition
        "official" checks the MD5 of the files, "any" reads what is there.
    pictures
        "all" draws people from the lists, and refuses where a picture of theirs is
        missing; "present" draws, from the pictures that the folder holds, as many of
        `clients` as have enough of them. Name and notes then say how many those are.
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
        if clients == "auto":
            clients = 472 if silos is None else None
        if clients is not None:
            check_whole(problems, clients=clients)
        if silos is not None:
            check_whole(problems, silos=silos)
        check_choice(problems, "edition", edition, ("official", "any"))
        check_choice(problems, "pictures", pictures, ("all", "present"))
        if label == group:
            problems.add(
                f"[wrong-column] label and group must differ. Both are '{label}'."
            )
    folder, attributes, identities, archive = _files(source, edition)
    names, person, flags = _read_lists(attributes, identities, (label, group))

    @cache
    def store() -> Store:
        return _open_store(folder, archive, official=edition == "official")

    part = pictures == "present"
    here = [name in store().names for name in names] if part else [True] * len(names)
    held = np.array(here, dtype=bool)
    chosen = _choose(person, held, clients, least_images, seed, part=part)
    X = decoded(
        store,
        [names[place] for place in chosen.tolist()],
        size,
        cache=cache_folder(cache_dir) / "celeba",
        key=_edition_key(edition, archive or folder, attributes, identities),
        workers=workers,
        progress=progress,
    )
    people, who = np.unique(person[chosen], return_inverse=True)
    who = who.reshape(-1)
    ids = tuple(f"person {number}" for number in people)
    silo, names_of = who, list(ids)
    if silos is not None:
        silo = _joined(who, flags[chosen, 1], silos, seed)[who]
        names_of = [f"silo {k + 1}" for k in range(silos)]
    of_whom = f"{len(people):,} people"
    told = [
        f"{of_whom} with at least {least_images} pictures, drawn with seed {seed}: "
        f"{len(X):,} pictures of {size} × {size}",
        f"label: 'not {label}' → 0, '{label}' → 1 (positive)",
    ]
    if part:
        listed = f"{len(names):,} pictures of {len(np.unique(person)):,} people"
        found = f"{held.sum():,} of {len(np.unique(person[held])):,}"
        told.insert(0, f"part of CelebA: of {listed} in the lists, {found} are present")
    federation = Federation.from_rows(
        picture_schema(size, label, group),
        replace(Rows.of(X, *flags[chosen].T), person=who),
        silo,
        names_of,
        people=None if silos is None else (ids, who),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        name=f"CelebA ({of_whom}{f', {len(X):,} pictures present' * part})",
        seed=seed,
        notes=tuple(told),
    )
    return replace(federation, ids=ids)


def _joined(who: IntArray, group: BoolArray, silos: int, seed: int) -> IntArray:
    """Return each person's silo: neighbours by the share of the group, then drawn."""
    pictures = np.bincount(who)
    share = np.bincount(who, group) / pictures
    drawn = np.random.default_rng(seed).random(len(pictures))
    order = np.lexsort((drawn, share))
    ends = np.cumsum(pictures[order])
    place = np.empty(len(pictures), dtype=np.int64)
    place[order] = (ends - pictures[order] / 2) * silos // ends[-1]
    if len(np.unique(place)) < silos:
        raise DataError(
            f"[too-few-people] CelebA: {len(pictures):,} people cannot be joined into "
            f"{silos:,} silos of about as many pictures"
        )
    return place


def _choose(
    person: IntArray,
    held: BoolArray,
    clients: int | None,
    least_images: int,
    seed: int,
    *,
    part: bool,
) -> IntArray:
    """Places of pictures of people with enough of them, and of those a sample.

    Only pictures that are `held` count; of a part, as many people as there are.
    """
    people, counts = np.unique(person[held], return_counts=True)
    kept = people[counts >= least_images]
    enough = f"{len(kept):,} people have at least {least_images} pictures"
    if not len(kept):
        most = int(counts.max(initial=0))
        raise DataError(
            f"[too-few-people] CelebA: {enough}: of the {int(held.sum()):,} at hand "
            f"nobody has more than {most:,} (`least_images=` asks for fewer)"
        )
    if clients is not None and (len(kept) >= clients or not part):
        if len(kept) < clients:
            raise DataError(
                f"[too-few-people] CelebA: {enough}, clients={clients:,} were asked "
                "for (`clients=None` takes all of them)"
            )
        kept = np.random.default_rng(seed).choice(kept, clients, replace=False)
    return np.flatnonzero(held & np.isin(person, kept))


def _files(
    source: str | os.PathLike[str] | None, edition: str
) -> tuple[Path, Path, Path, Path | None]:
    """Find the files and check them; all that is wrong is said at once."""
    if source is None:
        raise DataError(f"[file-missing] {HOW}")
    folder = Path(source).expanduser()

    def place(name: str) -> Path | None:
        return next((p for f in FOLDERS if (p := folder / f / name).is_file()), None)

    found = {name: place(name) for name in (ATTRIBUTES, IDENTITIES, ARCHIVE)}
    tables = {name: place(table) for name, table in TABLES.items()}
    with Problems("CelebA", DataError) as problems:
        if not folder.is_dir():
            problems.add(f"[file-missing] '{folder}' is not a folder. {HOW}")
        for name, table in tables.items():
            if folder.is_dir() and found[name] is None and table is not None:
                found[name] = table
                if edition == "official":
                    problems.add(
                        f"[no-hash] '{table}' is a mirror's, for which there is no "
                        "hash to check (`edition='any'` reads it); the official list "
                        f"is {name}"
                    )
            elif folder.is_dir() and found[name] is None:
                problems.add(
                    f"[file-missing] '{folder}' has no {name}, nor {TABLES[name]}. "
                    f"{HOW}"
                )
            elif edition == "official" and (path := found[name]) is not None:
                check_hash(path, name, problems)
    attributes, identities = found[ATTRIBUTES], found[IDENTITIES]
    if attributes is None or identities is None:  # said above
        raise DataError(f"[file-missing] {HOW}")
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
        f"[file-missing] '{source}' holds neither img_align_celeba.zip nor pictures "
        "(*.jpg)"
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
            f"[wrong-hash] '{path}' has MD5 {found} ({path.stat().st_size:,} bytes), "
            f"the official file has {MD5[name]}: it is damaged or another edition "
            "(`edition='any'` reads it all the same)"
        )


def _read_lists(
    attributes: Path, identities: Path, wanted: tuple[str, str]
) -> tuple[list[str], IntArray, BoolArray]:
    """Pictures in the order of their names: who is shown, and two of the attributes.

    Every problem of either list is named.
    """
    with Problems("CelebA", DataError) as problems:
        looks = _read_attributes(attributes, wanted, problems)
        people = _read_identities(identities, problems)
        if not problems.found:
            for what, alone in (
                ("a person", looks.keys() - people.keys()),
                ("attributes", people.keys() - looks.keys()),
            ):
                if alone:
                    problems.add(
                        f"[lists-differ] pictures without {what}: "
                        f"{listing(sorted(alone))}"
                    )
    names = sorted(looks)
    person = np.array([people[name] for name in names], dtype=np.int64)
    return names, person, np.array([looks[name] for name in names], dtype=bool)


def _read_identities(path: Path, problems: Problems) -> dict[str, int]:
    """Who is shown in each picture."""
    lines, first = _lines(path), 1
    if _is_table(path) and lines and _number(lines[0].split(",")[1:]) is None:
        lines, first = lines[1:], 2  # names of columns
    return _read_list(path, lines, first, _number, problems)


def _is_table(path: Path) -> bool:
    return path.suffix == ".csv"


def _number(words: Sequence[str]) -> int | None:
    return int(words[0]) if len(words) == 1 and words[0].isdigit() else None


def _read_attributes(
    path: Path, wanted: tuple[str, str], problems: Problems
) -> dict[str, tuple[bool, ...]]:
    """Whether each picture has the wanted attributes."""
    lines, table = _lines(path), _is_table(path)
    if table:
        lines = [str(len(lines) - 1), *lines]  # it announces no number of pictures
    if len(lines) < 3 or not lines[0].strip().isdigit():
        problems.add(f"[wrong-list] '{path}' is not CelebA's list of attributes")
        return {}
    known = lines[1].split(",")[1:] if table else lines[1].split()
    absent = [name for name in wanted if name not in known]
    if absent:
        problems.add(
            f"[unknown-attribute] no attribute {', '.join(map(repr, absent))}: there "
            f"are {', '.join(known)}"
        )
        return {}
    places = [known.index(name) for name in wanted]

    def look(words: Sequence[str]) -> tuple[bool, ...] | None:
        if len(words) != len(known) or set(words) - {"1", "-1"}:
            return None
        return tuple(words[p] == "1" for p in places)

    before = len(problems.found)
    looks = _read_list(path, lines[2:], 2 if table else 3, look, problems)
    if len(problems.found) == before and len(looks) != int(lines[0]):
        problems.add(
            f"[cut-off] '{path}' announces {int(lines[0]):,} pictures and lists "
            f"{len(looks):,}: it is cut off"
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
    comma = "," if _is_table(path) else None
    for number, line in enumerate(lines, start=first):
        name, *words = [word.strip() for word in line.split(comma)] or [""]
        value = meaning(words)
        if value is None:
            wrong.append(str(number))
            continue
        twice = twice or name in found
        found[name] = value
    if wrong:
        problems.add(f"[bad-record] '{path}': lines {listing(wrong)} cannot be read")
    bad = [name for name in found if name != Path(name).name or "\\" in name]
    if bad:
        problems.add(f"[bad-record] '{path}': not names of pictures: {listing(bad)}")
    if twice:
        problems.add(f"[repeated-name] '{path}' lists a picture twice")
    return found


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("ascii")
    except UnicodeDecodeError as error:
        raise DataError(
            f"[not-text] '{path}': byte {error.start} is not text"
        ) from error
    return text.splitlines()
