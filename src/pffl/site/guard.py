"""The guard: which questions a site answers, and how many.

A client process lives for one message, so what a run has asked lies in a file, which is
written before the answer is computed: whoever ends the process gains no question.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pffl import files
from pffl.data.silo import Rows
from pffl.errors import Refused
from pffl.models import LinearModel
from pffl.questions import ModelQuestion, Question
from pffl.records import Record, read
from pffl.site.config import Rules
from pffl.wire import Request

FARTHEST = 10.0  # a mean from the site's own, in spreads of either
STEEPEST = 1000.0  # own spread of a column, in units of the server's scale
CAPS = 8  # bounds on losses that a run may use; each is a point of their curve
SECONDS = 30.0  # to wait for another process that answers at the same time


@dataclass
class RunMemory(Record):
    """What a run has asked so far; hashes, and no figure of the rows.

    Attributes
    ----------
    last
        The last number that was answered.
    layouts
        Ways to cut the rows into cells.
    kept
        What may not change within the run.
    caps
        Caps on losses.
    """

    last: tuple[int, int] = (-1, -1)
    questions: int = 0
    layouts: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    caps: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Memory(Record):
    """What a site remembers of all runs, as a file."""

    runs: dict[str, RunMemory]
    format: Literal["pffl guard"] = "pffl guard"
    version: Literal[2] = 2


class Guard:
    """Admits questions by the site's rules.

    Parameters
    ----------
    rules
        What the site allows.
    path
        Where to remember; None for the memory of this process.
    """

    def __init__(self, rules: Rules, path: Path | None = None) -> None:
        self.rules = rules
        self.path = path
        self._memory: dict[str, RunMemory] = {}
        self._turn = threading.Lock()

    @contextmanager
    def turn(self, *, remember: bool) -> Iterator[None]:
        """Let one message at a time be admitted."""
        with self._turn, self._lock() if remember else nullcontext():
            yield

    def admit(
        self, request: Request, questions: Sequence[Question[Any]], *, remember: bool
    ) -> None:
        """Enter the questions of a message into its run, or raise `Refused`.

        In its turn.
        """
        runs = self.runs()
        self._enter(runs, request, questions)
        if remember:
            self._save(runs)

    def left(self, run: str) -> dict[str, float]:
        """Return how many questions a run may still ask, and runs the site takes."""
        runs = self.runs()
        asked = runs[run].questions if run in runs else 0
        return {
            "questions": max(self.rules.questions - asked, 0),
            "runs": max(self.rules.runs - len(runs), 0),
        }

    def _enter(
        self,
        runs: dict[str, RunMemory],
        request: Request,
        questions: Sequence[Question[Any]],
    ) -> None:
        if request.run not in runs and len(runs) >= self.rules.runs:
            raise Refused(
                f"the site answers {self.rules.runs} runs ('runs' in site.toml), and "
                "this is another one"
            )
        asked = runs.setdefault(request.run, RunMemory())
        if request.number <= asked.last:
            raise Refused(
                f"number {request.number} is not above {asked.last}, which this run "
                "has used: no number is answered twice"
            )
        for question in questions:
            if isinstance(question, ModelQuestion):
                self._count(asked, question)
        asked.last = request.number

    def _count(self, asked: RunMemory, question: ModelQuestion[Any]) -> None:
        asked.questions += 1
        if asked.questions > self.rules.questions:
            raise Refused(
                f"the run has asked {self.rules.questions} questions, which is the "
                "site's budget ('questions' in site.toml)"
            )
        scoring = question.task.scoring
        kept = {"the input scaling or model": scoring, **question.kept}
        for what, value in kept.items():
            if asked.kept.setdefault(what, value) != value:
                raise Refused(f"{what} changed within the run")
        layout = files.digest_arrays(question.task.cells.membership.astype(np.uint8))
        if layout not in asked.layouts:
            asked.layouts.append(layout)
        if len(asked.layouts) > self.rules.layouts:
            raise Refused(
                f"another layout of cells, and the site allows {self.rules.layouts} in "
                "a run ('layouts' in site.toml)"
            )
        asked.caps = sorted({*asked.caps, *question.caps})
        if len(asked.caps) > CAPS:
            raise Refused(f"more than {CAPS} loss bounds in a run")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one process at a time have the file."""
        if self.path is None:
            yield
            return
        try:
            lock = self.path.with_name(f".{self.path.name}.lock")
            with files.lock(lock, seconds=SECONDS, private=True):
                yield
        except files.Locked as error:
            raise Refused("the site is busy with other questions") from error

    def runs(self) -> dict[str, RunMemory]:
        """Return what all runs have asked so far."""
        if self.path is None:
            return deepcopy(self._memory)
        if not self.path.exists():
            return {}
        source = f"'{self.path}' cannot be read"
        return read(Memory, files.read(self.path), source=source).runs

    def _save(self, runs: dict[str, RunMemory]) -> None:
        if self.path is None:
            self._memory = runs
            return
        content = json.dumps(asdict(Memory(runs))).encode()
        files.write(self.path, content, private=True)


def check_batches(question: ModelQuestion[Any], rules: Rules, rows: int) -> None:
    """Refuse batches, unless the site allows them, and all but all of the rows.

    What a batch is short of the whole is a batch, too.
    """
    size = question.batch
    if size is None or size >= rows:
        return
    if not rules.batches:
        raise Refused(
            "the site takes steps on all of its rows, not on batches ('batches' in "
            "site.toml)"
        )
    if min(size, rows - size) < rules.floor:
        raise Refused(
            f"batches of {size} rows, and the site's floor is {rules.floor}: too few "
            "are in them, or left out"
        )


def check_ball(question: ModelQuestion[Any], radius: float, rows: Rows) -> None:
    """Refuse a model outside the ball, or one whose inputs or scores evade it.

    Steep inputs have the effect of large parameters, and so have sharp scores: with
    them a sum takes in, or leaves out, single rows. So the parameters count with the
    spread that their inputs have at the site, and with the sharpness. An input whose
    mean is put far away is an intercept: what they all come to at the site's own mean
    counts as one.
    """
    model, spread = question.task.model, rows.spread
    vectors = [v[: model.n_trained] for v in question.parameters]
    norm = max(float(np.linalg.norm(v)) for v in vectors)
    if isinstance(model, LinearModel):
        if (spread > STEEPEST * model.inputs.scale).any():
            raise Refused(
                "an input's scale is below a thousandth of its spread: the norm ball "
                "needs scaled inputs (standardize = true)"
            )
        wide = np.maximum(spread, model.inputs.scale)
        far = np.abs(model.inputs.mean - rows.mean) > FARTHEST * wide
        if len(rows) and far.any():
            raise Refused(
                f"an input's mean is more than {FARTHEST:g} spreads from what it is at "
                "this site: the norm ball needs centred inputs (standardize = true)"
            )
        away = (rows.mean - model.inputs.mean) / model.inputs.scale
        for v in vectors:
            table = v.reshape(model.n_outputs, -1)
            slopes, intercept = np.split(table, [len(spread)], axis=1)
            # In units in which inputs have mean 0 and spread 1 at the site.
            own = [slopes * (spread / model.inputs.scale), slopes @ away]
            own[1] = own[1] + intercept.sum(axis=1)
            norm = max(norm, float(np.linalg.norm(np.column_stack(own))))
    if question.leaves_ball:
        raise Refused("steps that lead out of the norm ball whatever the rows are")
    if not norm * question.steepness <= radius * (1 + 1e-9):
        raise Refused(
            f"parameters outside the site's norm ball of {radius:g} ('radius' in "
            "site.toml)"
        )
