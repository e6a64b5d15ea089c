"""CelebA: faces of celebrities with forty attributes each, in silos of people.

Liu, Luo, Wang, Tang: *Deep Learning Face Attributes in the Wild* (2015), divided by
person as LEAF does (Caldas et al. 2018). Its terms allow research that is not
commercial and forbid passing it on, so it is not downloaded here: docs/networks.md says
how to get it.

    list_attr_celeba.txt    line 1: number of pictures; line 2: names of attributes;
                            then  000001.jpg -1  1  1 …   (1 yes, -1 no)
    identity_CelebA.txt     000001.jpg 2880

Lines end with CR LF or LF, and blanks come singly or in pairs.

LEAF's JSON, {"user_data": {"2880": {"x": ["000001.jpg"], "y": [1]}}}, stands in for the
list of people: those that it does not name are left out. The split is drawn here.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pffl.data import Attribute, Federation, Rows, Schema
from pffl.data.checks import check_whole, listing
from pffl.datasets._fetch import DAMAGED
from pffl.errors import DataError, MissingExtraError, Problems, UsageError
from pffl.typing import BoolArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

Pictures: TypeAlias = Mapping[str, Callable[[], IO[Any]]]

ATTRIBUTES = "list_attr_celeba.txt"
IDENTITIES = "identity_CelebA.txt"
ARCHIVE = "img_align_celeba.zip"
LEAF = ("all_data/*.json", "t[er]*/*.json")  # who is shown
PICTURES = "img_align_celeba"
FOLDERS = ("", "Anno", "Img", PICTURES, f"Img/{PICTURES}", "raw", f"raw/{PICTURES}")
MD5 = {
    ATTRIBUTES: "75e246fa4810816ffd6ee81facbd244c",
    IDENTITIES: "32bd1bd63d3c78cd57e08160ec5ed1e2",
}
HOW = (
    "CelebA is downloaded by hand after accepting its terms: put img_align_celeba.zip, "
    "list_attr_celeba.txt and identity_CelebA.txt into one folder and name it with "
    "source= (docs/networks.md says where they are)"
)
PAPER = 472  # people, of the paper's draw
MAX_PICTURE_BYTES = 16 << 20
MAX_SIDE = 4096


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
    random_state: int = 0,
) -> Federation:
    """Load CelebA from a folder with its official files; a person is a silo, or part.

    Rows are pictures of size × size × 3 bytes, colours last: give them to
    `pffl.models.celeba_cnn`. The folder may hold a part of the
    pictures, and other lists than the official ones: name and notes say so.

    Parameters
    ----------
    source
        A folder with ``img_align_celeba.zip`` (or a folder ``img_align_celeba`` of
        pictures), ``list_attr_celeba.txt`` and ``identity_CelebA.txt``, side by side or
        in ``Img`` and ``Anno``; LEAF's JSON (``all_data`` or ``train`` and ``test``)
        where no list says who is shown.
    label, group
        Any two of the forty attributes: what to predict, and who is protected.
    clients
        How many people at most, drawn at random; None for all. "auto": all if they are
        joined into `silos`, otherwise 472, as in the paper.
    silos
        Join people into as many silos of about equal size, mostly of one group,
        and split by person: test pictures show no one of the training pictures. None:
        each person is a silo, whose pictures are split, so that nothing can be
        certified for new people.
    least_images
        Leave out people with fewer pictures; LEAF's 5 leaves 9,343.
    size
        Height and width in pixels.
    test_fraction, validation_fraction
        Share of people, or of each person's pictures, for testing and validation.
    random_state
        Seed of the people drawn and of the split.
    """
    with Problems("celeba", UsageError) as problems:
        if clients == "auto":
            clients = PAPER if silos is None else None
        whole = {"clients": clients, "silos": silos}
        given: dict[str, int] = {k: v for k, v in whole.items() if v is not None}
        check_whole(problems, **given, least_images=least_images, size=size)
        if label == group:
            problems.add("wrong-column:celeba", label=label)
    if source is None:
        raise DataError(f"[file-missing] {HOW}")
    source = Path(source).expanduser()
    attributes, identities = _find_lists(source)
    names, person, flags = _read_lists(attributes, identities, (label, group))
    hashes = list(map(_md5, (attributes, *identities)))
    with ExitStack() as stack:
        pictures = _open_pictures(_find_pictures(source), stack)
        held = np.array([name in pictures for name in names], dtype=bool)
        people, counts = np.unique(person[held], return_counts=True)
        kept = people[counts >= least_images]
        if not len(kept):
            many = int(held.sum())
            raise DataError("too-few-people:celeba", least=least_images, held=many)
        if clients is not None and len(kept) > clients:
            drawn = np.random.default_rng(random_state)
            kept = drawn.choice(kept, clients, replace=False)
        chosen = np.flatnonzero(held & np.isin(person, kept))
        wanted = [names[k] for k in chosen.tolist()]
        X = _decode(pictures, wanted, size)
    people, who = np.unique(person[chosen], return_inverse=True)
    who = who.reshape(-1)
    ids = tuple(f"person {number}" for number in people)
    silo, silo_names = who, list(ids)
    if silos is not None:
        silo = _join_people(who, flags[chosen, 1], silos, random_state)[who]
        silo_names = [f"silo {k + 1}" for k in range(silos)]
    count, said = f"{len(people):,} people", f"{len(people):,} people"
    notes = [
        f"{count} with at least {least_images} pictures, drawn with seed "
        f"{random_state}: {len(X):,} pictures of {size} × {size}",
        f"label: 'not {label}' → 0, '{label}' → 1 (positive)",
    ]
    if not held.all():
        said += f", {len(X):,} pictures present"
        listed = f"{len(names):,} pictures of {len(np.unique(person)):,} people"
        found = f"{held.sum():,} of {len(np.unique(person[held])):,}"
        told = f"part of CelebA: of {listed} in the lists, {found} are present"
        notes.insert(0, told)
    if hashes != list(MD5.values()):
        said += ", other lists"
        notes.append("the lists are not the official ones, whose MD5 is published")
    federation = Federation.from_rows(
        picture_schema(size, label, group),
        replace(Rows.of(X, *flags[chosen].T), person=who),
        silo,
        silo_names,
        people=None if silos is None else (ids, who),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        random_state=random_state,
        name=f"CelebA ({said})",
        notes=tuple(notes),
    )
    return replace(federation, ids=ids)


def picture_schema(size: int, label: str, group: str) -> Schema:
    """Schema of size × size pictures, colours last, with yes-or-no label and group."""
    pixels = tuple(
        f"{row},{column} {colour}"
        for row in range(size)
        for column in range(size)
        for colour in ("red", "green", "blue")
    )
    attribute = Attribute(group, (f"not {group}", group))
    return Schema(pixels, (attribute,), (f"not {label}", label), label)


def _join_people(who: IntArray, group: BoolArray, silos: int, seed: int) -> IntArray:
    """Return each person's silo: neighbours by the share of the group, then drawn."""
    pictures = np.bincount(who)
    share = np.bincount(who, group) / pictures
    drawn = np.random.default_rng(seed).random(len(pictures))
    order = np.lexsort((drawn, share))
    ends = np.cumsum(pictures[order])
    place = np.empty(len(pictures), dtype=np.int64)
    place[order] = (ends - pictures[order] / 2) * silos // ends[-1]
    if len(np.unique(place)) < silos:
        people = len(pictures)
        raise DataError("too-few-people:join-people", people=people, silos=silos)
    return place


def _find_lists(source: Path) -> tuple[Path, list[Path]]:
    """Find the lists of attributes and of people."""
    flags, people = (_places(source, name)[:1] for name in (ATTRIBUTES, IDENTITIES))
    for other in LEAF:
        people = people or _places(source, other)
    if not flags or not people:
        lost = IDENTITIES if flags else ATTRIBUTES
        raise DataError("file-missing:find-lists", source=source, lost=lost, how=HOW)
    return flags[0], people


def _find_pictures(source: Path) -> Path:
    """Return where the pictures are: the archive, or the last folder with any."""
    if archives := _places(source, ARCHIVE):
        return archives[0]
    for part in reversed(FOLDERS):
        if next((source / part).glob("*.jpg"), None) is not None:
            return source / part
    raise DataError("file-missing:find-pictures", source=source, archive=ARCHIVE)


def _open_pictures(place: Path, stack: ExitStack) -> Pictures:
    """How to open each picture; an archive is never unpacked."""
    if place.is_dir():
        return {path.name: partial(path.open, "rb") for path in place.iterdir()}
    try:
        archive = stack.enter_context(zipfile.ZipFile(place))
    except (*DAMAGED, OSError) as error:
        name = place.name
        raise DataError("damaged-file:archive", name=name, error=error) from error
    names = [n for n in archive.namelist() if n.endswith(".jpg") and n[:2] != "__"]
    pictures = {n.rpartition("/")[2]: partial(archive.open, n) for n in names}
    if len(pictures) < len(names):
        raise DataError("repeated-name:open-pictures", name=place.name)
    return pictures


def _places(source: Path, pattern: str) -> list[Path]:
    """Files of a name in the folders where they may be."""
    return [p for part in FOLDERS for p in sorted((source / part).glob(pattern))]


def _md5(path: Path) -> str:
    """MD5 of a file, which is published. It finds damage, not malice."""
    import pooch

    return str(pooch.file_hash(str(path), alg="md5"))


def _read_lists(
    attributes: Path, identities: Sequence[Path], wanted: Sequence[str]
) -> tuple[list[str], IntArray, BoolArray]:
    """Pictures in the order of their names: who is shown, and two of the attributes.

    Every problem of either list is named.
    """
    leaf = identities[0].suffix == ".json"
    with Problems("CelebA", DataError) as problems:
        # The number of pictures, names of attributes, pictures.
        flags = _read_list(attributes, skiprows=1)
        told = attributes.read_bytes()[:20].partition(b"\n")[0].decode(errors="replace")
        if told.strip() != str(n := len(flags)):
            problems.add("cut-off", path=attributes, n=n, told=told.strip())
        _check_list(attributes, flags, flags.isin([1, -1]).all(axis=1), problems)
        as_text: Any = {"header": None, "index_col": 0, "dtype": str}
        if leaf:
            people = _read_leaf(identities)
        else:
            people = _read_list(identities[0], **as_text, names=["", "person"])
        _check_list(identities[0], people, people["person"].str.isdigit(), problems)
        either = flags.index.symmetric_difference(people.index)
        for what, known in (("a person", people.index), ("attributes", flags.index)):
            alone = either.difference(known)
            if len(alone) and not (leaf and what == "a person"):
                problems.add("lists-differ", what=what, alone=listing(alone))
        if absent := listing(repr(name) for name in wanted if name not in flags):
            there = ", ".join(map(str, flags.columns))
            problems.add("unknown-attribute", absent=absent, there=there)
    people = people.sort_index()
    shown = flags.loc[people.index, [*wanted]].to_numpy() == 1
    return [*people.index], people["person"].to_numpy(np.int64), shown


def _read_list(path: Path, **options: Any) -> pd.DataFrame:
    """Read a list, by pictures."""
    import pandas as pd

    try:
        return pd.read_csv(path, sep=r"\s+", **options)
    except ValueError as error:
        raise DataError("bad-record:read-list", path=path, error=error) from error


def _read_leaf(paths: Sequence[Path]) -> pd.DataFrame:
    """Read who is shown in each picture that LEAF took."""
    import pandas as pd

    people: dict[str, str] = {}
    for path in paths:
        try:
            users = json.loads(path.read_bytes())["user_data"]
            people |= {name: user for user in users for name in users[user]["x"]}
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("bad-record:read-leaf", path=path, error=error) from error
    return pd.DataFrame({"person": people}, dtype=str)


def _check_list(
    path: Path, pictures: pd.DataFrame, fine: pd.Series[bool], problems: Problems
) -> None:
    """Note the pictures of a list with values that it cannot have, or listed twice."""
    named = pictures.index.map(str)
    if bad := listing(named[~fine.fillna(False).astype(bool)]):
        problems.add("bad-record:check-list", path=path, bad=bad)
    if twice := listing(named[named.duplicated()]):
        problems.add("repeated-name:check-list", path=path, twice=twice)


def _decode(pictures: Pictures, names: Sequence[str], size: int) -> NDArray[np.uint8]:
    """Return the pictures as rows of bytes; name all that cannot be read."""
    rows = np.empty((len(names), size * size * 3), np.uint8)
    decode, damaged = decoder(size), list[str]()

    def work(place: int) -> None:
        try:
            with pictures[names[place]]() as stream:
                rows[place] = decode(stream.read(MAX_PICTURE_BYTES))
        except (OSError, ValueError, SyntaxError, *DAMAGED) as error:
            damaged.append(f"{names[place]} ({error})")

    with ThreadPoolExecutor() as pool:
        list(pool.map(work, range(len(names))))
    if damaged:
        names = listing(sorted(damaged))
        raise DataError("damaged-pictures", n=len(damaged), names=names)
    return rows


def decoder(size: int) -> Callable[[bytes], NDArray[np.uint8]]:
    """Return a function from a JPEG file to size · size · 3 bytes, colours last."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise MissingExtraError("celeba", "reading CelebA's pictures") from error

    def decode(content: bytes) -> NDArray[np.uint8]:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as picture:
            if max(picture.size) > MAX_SIDE:
                raise ValueError(f"{picture.size[0]} × {picture.size[1]} pixels")
            # As LEAF does: the whole picture, squeezed into a square.
            square = picture.convert("RGB").resize(
                (size, size), Image.Resampling.BICUBIC
            )
            return np.asarray(square, dtype=np.uint8).reshape(-1)

    return decode
