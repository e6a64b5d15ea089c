"""CelebA's two lists: who is shown in each picture, and what they look like.

    list_attr_celeba.txt    line 1: number of pictures; line 2: names of attributes;
                            then  000001.jpg -1  1  1 …   (1 yes, -1 no)
    identity_CelebA.txt     000001.jpg 2880

Lines end with CR LF or LF, and blanks come singly or in pairs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import listing
from pffl.errors import DataError, Problems
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
SHOWN = 5


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
