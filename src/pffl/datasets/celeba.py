"""CelebA: faces of celebrities with forty attributes each; every person is a silo.

Liu, Luo, Wang, Tang: *Deep Learning Face Attributes in the Wild* (2015), shared out by
person as LEAF does (Caldas et al. 2018). Its terms allow research that is not
commercial and forbid passing it on, so it is not downloaded here: docs/celeba.md says
how to get it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import numpy as np

from pffl.data.federation import Federation
from pffl.data.silo import Rows
from pffl.datasets._celeba_lists import (
    ARCHIVE,
    ATTRIBUTES,
    IDENTITIES,
    Lists,
    check_hash,
    find,
    md5,
    read_lists,
)
from pffl.datasets._celeba_pictures import Progress, decoded, open_store
from pffl.datasets._fetch import cache_folder
from pffl.datasets._pictures import picture_schema
from pffl.errors import DataError, Problems, UsageError

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
        Threads that decode, and a function that is told (done, all) now and then.
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
        lambda: open_store(folder, archive, official=edition == "official"),
        chosen.picture.tolist(),
        size,
        cache=cache_folder(cache_dir) / "celeba",
        key=_edition_key(edition, folder, attributes, identities, archive),
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


def _edition_key(
    edition: str, folder: Path, attributes: Path, identities: Path, archive: Path | None
) -> str:
    """What the decoded pictures depend on: the lists, and where pictures are."""
    parts = [edition, md5(attributes), md5(identities)]
    if archive is None:
        parts.append(str(folder.resolve()))
    else:
        facts = archive.stat()
        parts.append(f"{archive.resolve()} {facts.st_size} {facts.st_mtime_ns}")
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
