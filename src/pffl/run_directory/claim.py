"""Claim a directory for one run: before the training, not after it."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from pffl import checkpoint
from pffl.checkpoint import Checkpoint
from pffl.errors import ArtefactError
from pffl.run_directory import contents, files
from pffl.solution import Solution

LOCK = ".lock"
OWNER = ".owner.json"
AUDIT = ("record.jsonl", "session.json")  # of a deployed run
STOPPED = {checkpoint.SPEC, checkpoint.CURRENT, checkpoint.PREVIOUS}


@dataclass(frozen=True)
class Claim:
    """A directory that belongs to this process for the time of a run."""

    directory: Path

    def save(self, solution: Solution, spec_text: str) -> Path:
        """Write the run; what an earlier run left under its manifest goes away."""
        stale = self._known()
        written = contents.of(solution, spec_text)
        self._write(written, {})
        files.remove(self.directory / n for n in sorted(set(stale) - set(written)))
        return self.directory

    def begin(self, spec_text: str) -> Checkpoint:
        """Write down which run is about to start; return where to save its rounds.

        An earlier run of the directory stays whole until `save`. Of a run that was
        stopped there, what was written down then stays.
        """
        if not (self.directory / checkpoint.SPEC).exists():
            files.write_all(self.directory, {checkpoint.SPEC: spec_text.encode()})
        return Checkpoint(self.directory)

    def add(self, name: str, content: bytes) -> None:
        """Write one more file (a certificate, say) and enter it in the manifest."""
        self._write({name: content}, self._known())

    def _known(self) -> dict[str, str]:
        if not (self.directory / files.MANIFEST).exists():
            return {}
        return files.read_manifest(self.directory)

    def _write(self, written: Mapping[str, bytes], known: Mapping[str, str]) -> None:
        hashes = {name: files.digest(content) for name, content in written.items()}
        manifest = files.manifest_text({**known, **hashes})
        files.write_all(self.directory, {**written, files.MANIFEST: manifest})


def save(
    solution: Solution, directory: str | os.PathLike[str], spec_text: str = ""
) -> Path:
    """Write the run directory of a solution.

    Parameters
    ----------
    solution
        What `solve` returned.
    directory
        A new or empty directory, or an earlier run directory, which is replaced.
    spec_text
        The run file that repeats the run.
    """
    with claim(directory, unfinished=True) as claimed:
        return claimed.save(solution, spec_text)


@contextmanager
def claim(
    directory: str | os.PathLike[str], *, unfinished: bool = False
) -> Iterator[Claim]:
    """Hold a directory; refuse one that holds something else or is in use (fault 70).

    A directory that was made for the claim and stays empty is taken away again. One
    with a run that was stopped is refused, unless `unfinished` asks for it.
    """
    place = Path(directory)
    made = not place.exists()
    try:
        place.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(place, unfinished)
        lock = FileLock(place / LOCK, timeout=0)
        lock.acquire()
    except Timeout as error:
        raise ArtefactError(
            f"'{place}' is in use by another run ({_owner(place)}): wait for it, or "
            "choose another directory"
        ) from error
    except OSError as error:
        raise files.cannot_write(place, error) from error
    try:
        _refuse_foreign(place, unfinished)
        files.write_all(place, {OWNER: _me()})
        yield Claim(place)
    finally:
        _leave(place, lock, made=made)


def refuse_recorded(directory: str | os.PathLike[str]) -> None:
    """Refuse to begin a deployed run where another one ended: its record is kept."""
    place = Path(directory)
    if (place / files.MANIFEST).exists() and (place / AUDIT[0]).exists():
        raise ArtefactError(
            f"'{place}' holds the record of an earlier run, which is kept: choose "
            "another directory"
        )


@contextmanager
def claim_next(parent: str | os.PathLike[str], name: str) -> Iterator[Claim]:
    """Claim the first free of ``parent/name-001``, ``parent/name-002`` and so on."""
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.").lower() or "run"
    number = 1
    while True:
        place = Path(parent) / f"{stem}-{number:03d}"
        try:
            place.mkdir(parents=True)
            break
        except FileExistsError:
            number += 1
        except OSError as error:
            raise files.cannot_write(place, error) from error
    try:
        with claim(place) as claimed:
            yield claimed
    finally:
        with suppress(OSError):
            place.rmdir()


def _refuse_foreign(place: Path, unfinished: bool) -> None:
    """Refuse a directory with files in it that no run wrote, or an unfinished one."""
    names = {entry.name for entry in place.iterdir()} - {LOCK, OWNER}
    names = {n for n in names if not (n.startswith(".") and n.endswith(".tmp"))}
    if names & STOPPED and not unfinished:
        raise ArtefactError(
            f"'{place}' holds a run that was stopped: go on with it "
            f"(pffl run --resume '{place}'), or choose another directory"
        )
    names -= STOPPED | set(AUDIT)
    if names and files.MANIFEST not in names:
        shown = ", ".join(sorted(names)[:3])
        raise ArtefactError(
            f"'{place}' is not empty and not a run directory (it holds {shown}): "
            "choose another one"
        )
    if names:
        files.read_manifest(place)


def _leave(place: Path, lock: FileLock, *, made: bool) -> None:
    """Give the directory free; take it away if it is ours and nothing was saved."""
    with suppress(OSError):
        (place / OWNER).unlink(missing_ok=True)
        unused = not any(entry.name != LOCK for entry in place.iterdir())
        if unused:
            (place / LOCK).unlink(missing_ok=True)
    lock.release()
    if made:
        with suppress(OSError):
            place.rmdir()


def _me() -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    plain = {"process": os.getpid(), "machine": platform.node(), "since": since}
    return json.dumps(plain).encode()


def _owner(place: Path) -> str:
    try:
        owner = json.loads((place / OWNER).read_bytes())
        who = f"process {owner['process']} on {owner['machine']}"
        return f"{who}, since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "owner unknown"
