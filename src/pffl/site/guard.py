"""The guard: which questions a site answers, remembered over processes.

A client process lives for one message, so what a run has asked lies in a file, which
is written before the answer is computed: whoever ends the process gains no question.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pffl import files
from pffl.codec import Request
from pffl.errors import ArtefactError
from pffl.models import LinearModel
from pffl.models.base import trained
from pffl.questions import Curvature, Evaluate, ModelQuestion, Question, Task, Train
from pffl.site.rules import Refused, Rules
from pffl.typing import FloatArray

FORMAT = "pffl guard"
VERSION = 1
STEEPEST = 1000.0  # own spread of a column, in units of the server's scale
LOSS_BOUNDS = 4  # caps on losses that a run may use; each is a point of their curve
SECONDS = 30.0  # to wait for another process that answers at the same time


@dataclass
class Asked:
    """What a run has asked so far; hashes, and no figure of the rows."""

    last: tuple[int, int] = (-1, -1)
    questions: int = 0
    layouts: list[str] = field(default_factory=list)
    scaling: str = ""
    batches: str = ""
    loss_bounds: list[float] = field(default_factory=list)


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
        self._memory: dict[str, Asked] = {}
        self._turn = threading.Lock()

    def admit(self, request: Request, question: Question[Any]) -> None:
        """Remember the question, or raise `Refused`."""
        with self._state() as runs:
            self._judge(runs, request, question)
            self._save(runs)

    def check(self, request: Request, question: Question[Any]) -> None:
        """Raise `Refused` if the question would be; remember nothing."""
        with self._turn:
            self._judge(self._load(), request, question)

    def _judge(
        self, runs: dict[str, Asked], request: Request, question: Question[Any]
    ) -> None:
        """Check one question against its run, and enter it there."""
        if request.run not in runs and len(runs) >= self.rules.runs:
            raise Refused(
                f"the site answers {self.rules.runs} runs ('runs' in site.toml), and "
                "this is another one"
            )
        asked = runs.setdefault(request.run, Asked())
        if request.number <= asked.last:
            raise Refused(
                f"number {request.number} is not above {asked.last}, which this run "
                "has used: no number is answered twice"
            )
        if isinstance(question, ModelQuestion):
            self._judge_parts(asked, question)
        asked.last = request.number

    def _judge_parts(self, asked: Asked, question: ModelQuestion[Any]) -> None:
        asked.questions += 1
        if asked.questions > self.rules.questions:
            raise Refused(
                f"the run has asked {self.rules.questions} questions, which is the "
                "site's budget ('questions' in site.toml)"
            )
        _keep(asked, "scaling", _scaling(question.task), "the input scaling or model")
        layout = files.digest_arrays(question.task.cells.membership.astype(np.uint8))
        if layout not in asked.layouts:
            asked.layouts.append(layout)
        if len(asked.layouts) > self.rules.layouts:
            raise Refused(
                f"another layout of cells, and the site allows {self.rules.layouts} in "
                "a run ('layouts' in site.toml)"
            )
        if isinstance(question, Train) and question.batch_size is not None:
            kept = f"{question.batch_size} {question.seed}"
            _keep(asked, "batches", kept, "the batch size or its seed")
        if isinstance(question, Evaluate) and np.isfinite(question.loss_bound):
            asked.loss_bounds = sorted({*asked.loss_bounds, question.loss_bound})
            if len(asked.loss_bounds) > LOSS_BOUNDS:
                raise Refused(f"more than {LOSS_BOUNDS} loss bounds in a run")

    @contextmanager
    def _state(self) -> Iterator[dict[str, Asked]]:
        """Give what is remembered, to one process and thread at a time."""
        lock = nullcontext() if self.path is None else self._lock(self.path)
        with self._turn, lock:
            yield self._load()

    @contextmanager
    def _lock(self, path: Path) -> Iterator[None]:
        try:
            lock = path.with_name(f".{path.name}.lock")
            with files.lock(lock, seconds=SECONDS, private=True):
                yield
        except files.Locked as error:
            raise Refused("the site is busy with other questions") from error

    def _load(self) -> dict[str, Asked]:
        if self.path is None:
            return {run: Asked(**asdict(asked)) for run, asked in self._memory.items()}
        if not self.path.exists():
            return {}
        try:
            plain = json.loads(self.path.read_bytes())
            if (plain["format"], plain["version"]) != (FORMAT, VERSION):
                raise ValueError(f"format {plain['format']!r}")
            return {run: _asked(known) for run, known in plain["runs"].items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArtefactError(f"'{self.path}' cannot be read: {error}") from error

    def _save(self, runs: dict[str, Asked]) -> None:
        if self.path is None:
            self._memory = runs
            return
        known = {run: asdict(asked) for run, asked in runs.items()}
        plain = {"format": FORMAT, "version": VERSION, "runs": known}
        files.write(self.path, json.dumps(plain).encode(), private=True)


def check_batches(question: ModelQuestion[Any], rules: Rules, rows: int) -> None:
    """Refuse batches, unless the site allows them, and all but all of the rows.

    What a batch is short of the whole is a batch, too.
    """
    size = question.batch_size if isinstance(question, Train) else None
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


def check_ball(question: ModelQuestion[Any], radius: float, X: FloatArray) -> None:
    """Refuse a model outside the ball, or one whose inputs or scores evade it.

    Steep inputs have the effect of large parameters, and so have sharp scores: with
    them a sum takes in, or leaves out, single rows. So the parameters count with the
    spread that their inputs have at the site, and with the sharpness.
    """
    model = question.task.model
    w = trained(model, question.w)
    norm = float(np.linalg.norm(w))
    if isinstance(model, LinearModel):
        spread = X.std(axis=0, dtype=np.float64) if len(X) else np.zeros(X.shape[1])
        if (spread > STEEPEST * model.inputs.scale).any():
            raise Refused(
                "an input's scale is below a thousandth of its spread: the norm ball "
                "needs scaled inputs (standardize = true)"
            )
        table = w.reshape(model.n_outputs, -1)[:, : len(spread)]
        norm = max(norm, float(np.linalg.norm(table * (spread / model.inputs.scale))))
    if isinstance(question, Curvature):
        norm *= max(question.sharpness, 1.0)
    if isinstance(question, Train):
        sizes, pull = question.step_sizes, question.ridge_weight + question.proximal
        if (sizes < 0).any() or (sizes * pull > 2).any():
            raise Refused("steps that lead out of the norm ball whatever the rows are")
    if not norm <= radius * (1 + 1e-9):
        raise Refused(
            f"parameters outside the site's norm ball of {radius:g} ('radius' in "
            "site.toml)"
        )


def _keep(asked: Asked, name: str, value: str, what: str) -> None:
    """Fix a value at its first use in a run."""
    if (getattr(asked, name) or value) != value:
        raise Refused(f"{what} changed within the run")
    setattr(asked, name, value)


def _scaling(task: Task) -> str:
    described = {k: v for k, v in task.model.describe().items() if k != "l2"}
    text = json.dumps(described, sort_keys=True, default=str).encode()
    inputs = task.model.inputs
    return files.digest_arrays(inputs.mean, inputs.scale, np.frombuffer(text, np.uint8))


def _asked(plain: dict[str, Any]) -> Asked:
    session, sequence = plain.pop("last")
    return Asked(last=(int(session), int(sequence)), **plain)
