"""The two files of a checkpoint, and when they are written."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pffl import files
from pffl.checkpoint import standing as file
from pffl.checkpoint.identity import differences
from pffl.checkpoint.standing import Damaged, Standing
from pffl.checkpoint.tree import NotFinite
from pffl.errors import ArtefactError
from pffl.parcel import LARGEST, Parcel

CURRENT = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"
SPEC = "checkpoint.toml"
SPARING = 10  # times the cost of a save must have passed before the next one


class Checkpoint:
    """Where a run in a directory stands: saved while it runs, read when it goes on.

    A round is saved when ten times as long has passed since the last save as that save
    took. So a run of fast rounds spends a tenth of its time on saving, at most, and
    loses at most that little if it is killed, while a run of slow rounds, as over a
    network, is saved after each. An interruption or an error always saves the last
    finished round.

    A save is written beside its target, forced to the disk, and renamed; the one before
    is kept under another name. So there is a whole one at any time (faults 65, 66).

    Parameters
    ----------
    directory
        Where the files lie; made with the first save.
    identity
        What the run is; `solve` fills it in. A checkpoint of another one is refused.

    Attributes
    ----------
    elapsed
        Seconds that the run took before it went on here.
    ready
        Whether a later run can go on from what this one loaded or saved.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.identity: Mapping[str, Any] = identity or {}
        self.elapsed, self.ready = 0.0, False
        self._latest: Standing | None = None  # offered, and not yet saved
        self._whole = False  # whether CURRENT is known to be good
        self._cost, self._saved = 0.0, -float("inf")

    def saved(self) -> tuple[int, int] | None:
        """Return seed and rounds of the run that was saved; None if there is none."""
        for path in filter(Path.exists, self._paths):
            with suppress(Damaged, KeyError, TypeError, ValueError):
                header = file.read(path).header
                return int(header["identity"]["run"]["seed"]), int(header["rounds"])
        return None

    def load(self, like: Any) -> Standing | None:
        """Return where the run stood; None if nothing was saved.

        `like` is the method's first state. A file that is damaged is passed over for
        the previous one, with a warning; one of another run is refused.
        """
        reasons = []
        for path in filter(Path.exists, self._paths):
            try:
                parcel = file.read(path)
                self._refuse_other(path, parcel)
                found = file.decode(parcel, like)
            except Damaged as damage:
                reasons.append(f"'{path}' {damage}")
                continue
            if path.name == PREVIOUS:
                reasons = reasons or [f"'{self._paths[0]}' is not there"]
                warnings.warn(
                    f"{'; '.join(reasons)}: going on from the previous one, after "
                    f"round {found.rounds}",
                    stacklevel=2,
                )
            self._whole, self.ready = path.name == CURRENT, True
            self.elapsed = found.seconds
            return found
        if reasons:
            raise ArtefactError(f"no checkpoint is left: {'; '.join(reasons)}")
        return None

    def offer(self, standing: Standing) -> None:
        """Take what a finished round led to, and save it if that is due."""
        self._latest = standing
        if time.monotonic() - self._saved >= SPARING * self._cost:
            self.flush()

    def flush(self) -> None:
        """Save what was offered last, unless that is done."""
        if self._latest is None:
            return
        began = time.monotonic()
        try:
            content = file.encode(self._latest, self.identity)
            self._write(content)
        except NotFinite:
            pass  # the run is about to diverge; an earlier round will do so, too
        except ArtefactError:
            self._latest = None
            raise
        self._latest = None
        self._saved = time.monotonic()
        self._cost = self._saved - began

    def remove(self) -> None:
        """Remove the files: the run is over."""
        for path in (*self._paths, self.directory / SPEC):
            for name in (path, path.with_name(f".{path.name}.tmp")):
                try:
                    name.unlink(missing_ok=True)
                except OSError as error:
                    raise files.cannot_write(name, error) from error

    @property
    def _paths(self) -> tuple[Path, Path]:
        return self.directory / CURRENT, self.directory / PREVIOUS

    def _write(self, content: bytes) -> None:
        if len(content) > LARGEST:
            raise ArtefactError(
                f"'{self._paths[0]}' would have {len(content):,} bytes; at most "
                f"{LARGEST:,} could be read back: run without a checkpoint"
            )
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise files.cannot_write(self.directory, error) from error
        kept = {CURRENT: PREVIOUS} if self._whole else {}
        files.write_all(self.directory, {CURRENT: content}, previous=kept)
        self._whole = self.ready = True

    def _refuse_other(self, path: Path, parcel: Parcel) -> None:
        """Refuse the checkpoint of another run, and say what differs (fault 67)."""
        header = parcel.header
        saved = {"version": header.get("version"), **_mapping(header.get("identity"))}
        now = {"version": file.VERSION, **self.identity}
        found = differences(saved, now)
        if found:
            listing = "\n".join(
                f"  - {key}: {old} in the checkpoint, {new} now"
                for key, old, new in found
            )
            raise ArtefactError(
                f"'{path}' is of another run:\n{listing}\nRepeat that run exactly, or "
                "choose another directory"
            )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
