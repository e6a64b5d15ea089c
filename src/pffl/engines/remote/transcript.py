"""What a server keeps of a run under secure sums: totals, and the last masked answers.

A step that was answered is never asked anew: sites answer each once. So its sum is on
disk before anybody uses it, and with it all sites' last answers, which the next request
must bring to them. A server that was stopped goes on where it was; no single site's
numbers are in what it keeps, masked ones apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from pffl import files
from pffl.errors import ArtefactError, Malformed
from pffl.parcel import Parcel, pack, unpack
from pffl.wire import (
    KEY,
    Answer,
    bodies_digest,
    first_transcript,
    masks,
    next_transcript,
    read_answer,
    read_masked,
    write_answer,
)

SUMS, ANSWERS = "sums.jsonl", "answers.safetensors"
STEP, LENGTHS, CONTENT = "step", "lengths", "content"


class Transcript:
    """The steps of a run so far.

    Parameters
    ----------
    agreement, run
        Hash of what was agreed on, and the run's name.
    folder
        Where to keep it; None to keep it in memory.

    Attributes
    ----------
    hash
        Of all that was said before the step that comes next.
    relay
        All sites' answers to the last step, as they were sent: to the first, their
        keys of the run.
    """

    def __init__(self, agreement: str, run: str, folder: Path | None = None) -> None:
        self.hash = first_transcript(agreement, run)
        self.relay: tuple[bytes, ...] = ()
        self._folder = folder
        self._sums = files.Journal(None if folder is None else folder / SUMS)
        for entry in self._sums:
            self.hash = entry["hash"]
        if folder is not None and (folder / ANSWERS).exists():
            self._recall(folder / ANSWERS)
        self._before = list(range(1, self.step))  # answered before the server stopped

    @property
    def step(self) -> int:
        """The number of the step that comes next."""
        return 1 + len(self._sums)

    @property
    def begun(self) -> bool:
        """Whether the sites' keys of the run are known."""
        return bool(self.relay) or self.step > 1

    def open(self, answers: Sequence[Answer]) -> None:
        """Take all sites' keys of the run, in their order; they repeat them."""
        flats = [read_masked(answer, KEY) for answer in answers]
        self.hash = next_transcript(self.hash, bodies_digest(()), flats)
        self.relay = tuple(write_answer(answer) for answer in answers)

    def recalled(self, asked: str) -> masks.Limbs | None:
        """Return the sum of a step that was answered before the server was stopped.

        A run that goes on asks the same as then, from some step on.
        """
        for place, step in enumerate(self._before):
            entry = self._sums[str(step)]
            if entry["asked"] == asked:
                del self._before[: place + 1]
                return np.frombuffer(bytes.fromhex(entry["sum"]), np.uint64)
        return None

    def add(self, asked: str, answers: Sequence[Answer], length: int) -> masks.Limbs:
        """Take all sites' answers to a step, in their order; return the sum.

        It is on disk when this returns.
        """
        relay = tuple(write_answer(answer) for answer in answers)
        if self._folder is not None:
            content = np.frombuffer(b"".join(relay), np.uint8)
            header = {STEP: self.step, LENGTHS: [len(one) for one in relay]}
            files.write(
                self._folder / ANSWERS, pack(Parcel(header, {CONTENT: content}))
            )
        return self._added(asked, answers, relay, length)

    def _added(
        self,
        asked: str,
        answers: Sequence[Answer],
        relay: tuple[bytes, ...],
        length: int,
    ) -> masks.Limbs:
        flats = [read_masked(answer, length) for answer in answers]
        total = masks.add(flats)
        said = next_transcript(self.hash, asked, flats)
        entry = {"asked": asked, "hash": said, "sum": total.tobytes().hex()}
        self._sums.put(str(self.step), entry)
        self.hash, self.relay = said, relay
        return total

    def _recall(self, path: Path) -> None:
        """Read the last answers; a crash may have come before their sum was kept."""
        try:
            parcel = unpack(files.read(path))
            ends = np.cumsum([0, *parcel.header[LENGTHS]]).tolist()
            content = parcel.arrays[CONTENT].tobytes()
            relay = tuple(content[a:b] for a, b in pairwise(ends))
            if parcel.header[STEP] == len(self._sums):
                self.relay = relay
            elif parcel.header[STEP] == self.step:
                answers = [read_answer(one) for one in relay]
                self.hash = answers[0].transcript
                length = answers[0].bodies[0].arrays["masked"].size
                self._added(answers[0].asked, answers, relay, length)
            else:
                raise Malformed("[other-step] answers to another step than the last")
        except (Malformed, KeyError, TypeError, IndexError) as error:
            raise ArtefactError(
                f"[bad-transcript] '{path}' cannot be read, and sites answer no step "
                f"twice: the run cannot go on ({error})"
            ) from error
