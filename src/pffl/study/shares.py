"""Seeds of a study shared out to processes, each with a journal of its own.

A trial on one seed needs nothing of another, and what is in the journal is not trained
again: so processes train some seeds each, their journals are put together, and the
study then finds everything there. A process that was ended leaves what it finished.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pffl import files
from pffl.errors import ArtefactError, DataError, PFFLError, UsageError
from pffl.evidence.looks import LOOKS

PROGRAM = "pffl"  # or who extends it
ROWS = "rows.jsonl"
PLACE = "share-{}-of-{}"
ERRORS = {2: UsageError, 3: DataError, 6: ArtefactError}


def mine(seeds: Sequence[int], share: tuple[int, int] | None) -> Sequence[int]:
    """Return the seeds of a share (which one, of how many); all for None."""
    return seeds if share is None else seeds[share[0] - 1 :: share[1]]


def train(command: Sequence[str], jobs: int, folder: Path) -> None:
    """Run a command in several processes, each with ``--share k/n --out`` of its own.

    The first shows how far it is; of the others what they say is kept, and shown if one
    fails. Whatever was finished is put together, however it ends.
    """
    gather(folder)
    started: list[tuple[subprocess.Popen[bytes], Path]] = []
    try:
        for k in range(1, jobs + 1):
            place = files.folder(folder / PLACE.format(k, jobs))
            if (folder / ROWS).exists():
                shutil.copyfile(folder / ROWS, place / ROWS)
            own = [*command, "--share", f"{k}/{jobs}", "--out", str(place)]
            log = place / "log.txt"
            with log.open("wb") as stream:
                shown = None if k == 1 else stream
                process = subprocess.Popen(
                    [sys.executable, "-m", PROGRAM, *own],
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=shown,
                )
            started.append((process, log))
        ends = [(process.wait(), log) for process, log in started]
        for code, log in ends:
            if code:
                lines = log.read_text(errors="replace").strip().splitlines()
                last = f": {lines[-1]}" if lines else ""
                error = ERRORS.get(code, PFFLError)
                raise error(f"one of {jobs} processes ended with {code}{last}")
    finally:
        for process, _ in started:
            if process.poll() is None:
                process.terminate()
                process.wait()
        gather(folder)


def gather(folder: Path) -> None:
    """Put the journals of processes into that of the folder, and remove theirs."""
    places = sorted(folder.glob(PLACE.format("*", "*")))
    if not places:
        return
    whole = files.Journal(folder / ROWS)
    for place in places:
        part = files.Journal(place / ROWS)
        for key, entry in part.items():
            if key not in whole or whole[key] != entry:
                whole.put(key, entry)
        looks = place / LOOKS
        if looks.exists():
            with (folder / LOOKS).open("ab") as stream:
                stream.write(looks.read_bytes())
        shutil.rmtree(place)
