"""What data sets of pictures share: a schema of pixels, and pictures decoded once.

Decoded pictures are kept as one NumPy file of bytes, shape (pictures, size · size · 3),
beside a small JSON file with its SHA-256. It is written under another name first and
renamed when it is whole, so neither a crash nor a second process can leave half of one.
"""

from __future__ import annotations

import io
import json
import logging
import os
import zipfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pffl import files
from pffl.data.checks import listing
from pffl.data.schema import Attribute, Schema
from pffl.datasets._archive import DAMAGED, check_entries
from pffl.datasets._fetch import Progress, locked
from pffl.errors import DataError, MissingExtraError, Problems

logger = logging.getLogger(__name__)

COLOURS = ("red", "green", "blue")
LARGEST_FILE = 16 << 20
LARGEST_SIDE = 4096
MOST_MEMBERS = 1_000_000
BLOCK = 64  # pictures that a thread decodes at a time


def picture_schema(size: int, label: str, group: str) -> Schema:
    """Schema of size × size pictures, colours last, with yes-or-no label and group."""
    pixels = tuple(
        f"{row},{column} {colour}"
        for row in range(size)
        for column in range(size)
        for colour in COLOURS
    )
    attribute = Attribute(group, (f"not {group}", group))
    return Schema(pixels, (attribute,), (f"not {label}", label), label)


@dataclass(frozen=True)
class Store:
    """Where pictures are read from: their names, and a function from name to file."""

    names: Collection[str]
    read: Callable[[str], bytes]

    @classmethod
    def folder(cls, path: Path) -> Store:
        """Pictures as files in a folder."""

        def read(name: str) -> bytes:
            _check_size((path / name).stat().st_size)
            return (path / name).read_bytes()

        return cls({entry.name for entry in path.iterdir()}, read)

    @classmethod
    def archive(cls, path: Path) -> Store:
        """Pictures in a zip file, never unpacked; all its entries are checked."""
        try:
            opened = zipfile.ZipFile(path)
        except (*DAMAGED, OSError) as error:
            raise DataError(
                f"[damaged-file] archive '{path.name}' is damaged: {error}"
            ) from error
        entries = opened.infolist()
        with Problems(f"archive '{path.name}'", DataError) as problems:
            check_entries(entries, MOST_MEMBERS, problems)
            pictures = [
                info
                for info in entries
                if info.filename.endswith(".jpg") and not info.filename.startswith("__")
            ]
            members = {info.filename.rpartition("/")[2]: info for info in pictures}
            if len(members) < len(pictures):
                problems.add(
                    "[repeated-name] pictures of the same name in several folders"
                )

        def read(name: str) -> bytes:
            _check_size(members[name].file_size)
            try:
                return opened.read(members[name])
            except DAMAGED as error:
                raise OSError(str(error)) from error

        return cls(members, read)


def _check_size(size: int) -> None:
    if size > LARGEST_FILE:
        raise OSError(f"more than {LARGEST_FILE:,} bytes")


def decoded(
    opening: Callable[[], Store],
    names: Sequence[str],
    size: int,
    *,
    cache: Path,
    key: str,
    workers: int | None = None,
    progress: Progress | None = None,
) -> NDArray[np.uint8]:
    """Return the pictures as rows of bytes, from the cache or decoded now.

    `key` stands for the edition; with the names and the size it names the cache. Only
    where that is not there is the store opened.
    """
    digest = files.digest("\0".join([key, str(size), *names]))
    target, shape = cache / f"celeba-{digest[:16]}.npy", (len(names), size * size * 3)
    with locked(target, "CelebA", "decoding it", patience=6):
        known = _cached(target, shape)
        if known is None:
            _decode_all(opening(), names, size, target, workers, progress)
            known = _cached(target, shape)
    if known is None:
        raise DataError(
            f"[changed-file] CelebA: '{target}' changed while it was written"
        )
    return known


def _cached(target: Path, shape: tuple[int, int]) -> NDArray[np.uint8] | None:
    """Return the cache if it is there and whole; a damaged one is written anew."""
    try:
        facts = json.loads(target.with_suffix(".json").read_text("utf-8"))
        array = np.load(target, mmap_mode="r", allow_pickle=False)
        if array.dtype != np.uint8 or array.shape != shape:
            return None
        return array if facts.get("sha256") == files.digest(array) else None
    except (OSError, EOFError, ValueError, AttributeError):
        return None


def _decode_all(
    store: Store,
    names: Sequence[str],
    size: int,
    target: Path,
    workers: int | None,
    progress: Progress | None,
) -> None:
    """Decode in threads into a file that is renamed when it is whole."""
    decode = decoder(size)
    missing = [name for name in names if name not in store.names]
    if missing:
        raise DataError(
            f"[missing-pictures] CelebA: {len(missing)} pictures are missing: "
            f"{listing(missing)} (`pictures='present'` draws people from those that "
            "are there)"
        )
    arriving = target.with_suffix(".arriving.npy")
    array = np.lib.format.open_memmap(
        arriving, mode="w+", dtype=np.uint8, shape=(len(names), size * size * 3)
    )
    damaged: list[str] = []

    def work(start: int) -> int:
        part = names[start : start + BLOCK]
        for row, name in enumerate(part, start):
            try:
                array[row] = decode(store.read(name))
            except (OSError, ValueError, SyntaxError) as error:
                damaged.append(f"{name} ({error})")
        return len(part)

    try:
        done = 0
        with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
            for count in pool.map(work, range(0, len(names), BLOCK)):
                done += count
                if progress is not None:
                    progress("pictures", done, len(names))
        if damaged:
            raise DataError(
                f"[damaged-pictures] CelebA: {len(damaged)} pictures cannot be read: "
                f"{listing(sorted(damaged))}"
            )
        array.flush()
        facts = {"sha256": files.digest(array), "pictures": len(names), "size": size}
        target.with_suffix(".json").write_text(json.dumps(facts) + "\n", "utf-8")
        os.replace(arriving, target)
        logger.info("decoded %d pictures of CelebA into '%s'", len(names), target)
    finally:
        arriving.unlink(missing_ok=True)


def decoder(size: int) -> Callable[[bytes], NDArray[np.uint8]]:
    """Return a function from a JPEG file to size · size · 3 bytes, colours last."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise MissingExtraError("celeba", "reading CelebA's pictures") from error

    def decode(content: bytes) -> NDArray[np.uint8]:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as picture:
            if max(picture.size) > LARGEST_SIDE:
                raise ValueError(f"{picture.size[0]} × {picture.size[1]} pixels")
            # As LEAF does: the whole picture, squeezed into a square.
            square = picture.convert("RGB").resize(
                (size, size), Image.Resampling.BICUBIC
            )
            return np.asarray(square, dtype=np.uint8).reshape(-1)

    return decode
