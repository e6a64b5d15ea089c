"""A site answers: bytes in, bytes out, and nothing else ever leaves it.

Cells are unions of atoms (group × label), so no difference of cells is smaller than an
atom, and the floor acts on atoms. Rows of a withheld atom get an extra code that
belongs to no cell: they count in F, and in nothing else.

The guard says which questions are answered. A client process lives for one message, so
what a run has asked lies in a file, which is written before the answer is computed:
whoever ends the process gains no question.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pffl import files
from pffl.data.schema import Schema
from pffl.data.silo import Silo
from pffl.errors import ArtefactError, Malformed, Refused, UsageError
from pffl.models import LinearModel
from pffl.parcel import Parcel
from pffl.questions import ModelQuestion, Question, Task, Total, View, read_question
from pffl.questions.base import Rebuild
from pffl.records import Record, read
from pffl.site import store
from pffl.site.config import Rules, SiteConfig
from pffl.typing import BoolArray, FloatArray, IntArray
from pffl.wire import (
    Answer,
    Request,
    read_request,
    refusal,
    total_body,
    write_answer,
)

GUARD = "guard.json"
LOG = "refusals.jsonl"
LARGEST_LOG = 10 << 20  # bytes; then it is put aside, and an older one dropped
STEEPEST = 1000.0  # own spread of a column, in units of the server's scale
CAPS = 8  # bounds on losses that a run may use; each is a point of their curve
SECONDS = 30.0  # to wait for another process that answers at the same time
OURS = version("pffl")


class Site:
    """One site's rows behind its rules; lives for one message, or for many.

    Parameters
    ----------
    silo
        The rows.
    schema
        What the federation agreed on.
    rules
        What the site allows.
    state
        Folder for what must be remembered between processes, and for the log of
        refusals; None to remember in this process, without a log.
    own_model
        Rebuilds models with a module of the user's own.
    """

    def __init__(
        self,
        silo: Silo,
        schema: Schema,
        rules: Rules,
        state: Path | None = None,
        *,
        own_model: Rebuild | None = None,
    ) -> None:
        self.silo, self.name = silo, silo.name
        self.schema = schema
        self.rules = rules
        self.guard = Guard(rules, None if state is None else state / GUARD)
        self.own_model = own_model
        self._log = None if state is None else state / LOG

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Site:
        """Return a site over prepared rows; `folder` holds its site.toml."""
        return cls.configured(SiteConfig.load(folder))

    @classmethod
    def configured(cls, config: SiteConfig) -> Site:
        """Return the site that a configuration describes, over prepared rows."""
        schema = config.agreement().schema
        silo = store.read(config.prepared, name=config.name, schema_hash=schema.hash)
        return cls(silo, schema, config.rules, config.folder)

    def answer(self, content: bytes, *, remember: bool = True) -> bytes:
        """Answer a message; what is wrong with it is the answer, and no exception."""
        request: Request | None = None
        try:
            request = read_request(content, largest=self.rules.largest_message)
            return self._answer(request, remember=remember)
        except Exception as error:
            reason, own = _reason(error), self.schema.hash
            refused = refusal(
                request, version=OURS, silo=self.name, schema=own, reason=reason
            )
            if remember:
                self._log_refusal(request, refused.refusal)
            return write_answer(refused)

    def preview(self, content: bytes) -> bytes:
        """Return the bytes that would leave, and remember nothing of it."""
        return self.answer(content, remember=False)

    def counts(self, split: str) -> IntArray:
        """Count the rows of each atom of a split."""
        rows = self.silo.rows(split)
        atoms = self.schema.atoms(rows.group, rows.y)
        return np.bincount(atoms, minlength=self.schema.n_atoms)

    def hidden(self, split: str) -> BoolArray:
        """Say which atoms of a split are withheld.

        Of rows that do not count alike, as many as would count as much together: one
        heavy row among many light ones is nearly alone in their sums.
        """
        rows = self.silo.rows(split)
        counts = self.counts(split)
        if rows.weight is not None:
            atoms = self.schema.atoms(rows.group, rows.y)
            first, second = (
                np.bincount(atoms, rows.weight**power, len(counts)) for power in (1, 2)
            )
            alike = first**2 / np.where(counts > 0, second, 1.0)  # Kish
            counts = np.minimum(counts, np.floor(alike * (1 + 1e-9)).astype(np.int64))
        return withheld(counts, self.rules.floor)

    def _answer(self, request: Request, *, remember: bool) -> bytes:
        self._shake_hands(request)
        own = self.own_model
        posed = [
            read_question(body.header, body.arrays, self.schema, own_model=own)
            for body in request.bodies
        ]
        for question, _ in posed:
            self._check(question)
        asked = [question for question, _ in posed]
        self.guard.admit(request, asked, remember=remember)
        views: dict[tuple[str, str], View] = {}
        bodies = [self._body(question, index, views) for question, index in posed]
        return write_answer(
            Answer(
                request.run,
                *request.number,
                OURS,
                self.schema.hash,
                tuple(bodies),
                self.name,
                tuple(self.silo.splits),
            )
        )

    def _shake_hands(self, request: Request) -> None:
        """Refuse another version or schema, and show both."""
        if request.version != OURS:
            raise Refused(
                f"the server has pffl {request.version[:40]}, this site {OURS}: "
                "install the same version everywhere"
            )
        if request.schema != self.schema.hash:
            raise Refused(
                f"the server's schema is {request.schema[:12]}, this site's "
                f"{self.schema.hash[:12]}: use the same federation.json everywhere"
            )

    def _check(self, question: Question[Any]) -> None:
        """Refuse what is not answered whoever asks, and however often."""
        rows = self.silo.rows(question.split)
        least = max(self.rules.floor, 1)
        if len(rows) < least and (len(rows) > 0 or question.split == "train"):
            raise Refused(
                f"split '{question.split}' has fewer rows than the site's floor"
            )
        if isinstance(question, ModelQuestion):
            check_ball(question, self.rules.radius, rows.spread)
            check_batches(question, self.rules, len(rows))

    def _body(
        self, question: Question[Any], index: int, views: dict[tuple[str, str], View]
    ) -> Parcel:
        """Answer a question; rows are scaled once a message, split and scaling."""
        model = None if question.task is None else question.task.model
        inputs = () if model is None else (model.inputs.mean, model.inputs.scale)
        key = (question.split, files.digest_arrays(*inputs))
        if key not in views:
            views[key] = View.of(self.silo, self.schema, model, question.split)
        hidden = self.hidden(question.split)
        total = answer(question, replace(views[key], index=index), hidden)
        # Secure sums and noise will be applied here, to the total, and nowhere else.
        return total_body(question, total, int(hidden.sum()))

    def _log_refusal(self, request: Request | None, reason: str) -> None:
        """Say when, who asked, what, and why not; no figures.

        A full disk does not keep the refusal from being sent.
        """
        if self._log is None:
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "run": request.run if request else None,
            "number": list(request.number) if request else None,
            "question": request.kind if request else None,
            "refused": reason,
        }
        with suppress(ArtefactError):
            files.append(self._log, line, private=True, largest=LARGEST_LOG)


def withheld(counts: IntArray, floor: int) -> BoolArray:
    """Say which atoms to withhold, given the rows of each.

    All with 0 < rows < floor; and the next smallest, until at least two atoms and
    `floor` rows are: F less all cells that are shown is the sum over what is withheld.

    >>> withheld(np.array([3, 40, 12, 0]), floor=10).tolist()
    [True, False, True, False]
    """
    hidden = (counts > 0) & (counts < floor)
    if not hidden.any():
        return hidden
    for atom in np.argsort(counts, kind="stable"):
        if hidden.sum() > 1 and counts[hidden].sum() >= floor:
            break
        hidden[atom] |= counts[atom] > 0
    return hidden


def answer(question: Question[Any], view: View, hidden: BoolArray) -> Total:
    """Answer without the withheld atoms; the extra one is taken off again."""
    total: Total
    if not hidden.any():
        total = question.answer(view)
        return total
    n_atoms = len(hidden)
    moved = replace(view, atom=np.where(hidden[view.atom], n_atoms, view.atom))
    total = question.padded().answer(moved)
    return total.cut("atoms", n_atoms)


def _reason(error: Exception) -> str:
    """Say why; errors that may hold something of the rows are named by their class."""
    if isinstance(error, Malformed | Refused | UsageError):
        return str(error)
    return f"{type(error).__name__} at the site"


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

    def admit(
        self, request: Request, questions: Sequence[Question[Any]], *, remember: bool
    ) -> None:
        """Enter the questions of a message into its run, or raise `Refused`."""
        with self._turn, self._lock() if remember else nullcontext():
            runs = self._load()
            self._enter(runs, request, questions)
            if remember:
                self._save(runs)

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
        kept = {"the input scaling or model": _scaling(question.task), **question.kept}
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

    def _load(self) -> dict[str, RunMemory]:
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


def check_ball(question: ModelQuestion[Any], radius: float, spread: FloatArray) -> None:
    """Refuse a model outside the ball, or one whose inputs or scores evade it.

    Steep inputs have the effect of large parameters, and so have sharp scores: with
    them a sum takes in, or leaves out, single rows. So the parameters count with the
    `spread` that their inputs have at the site, and with the sharpness.
    """
    model = question.task.model
    vectors = [v[: model.n_trained] for v in question.parameters]
    norm = max(float(np.linalg.norm(v)) for v in vectors)
    if isinstance(model, LinearModel):
        if (spread > STEEPEST * model.inputs.scale).any():
            raise Refused(
                "an input's scale is below a thousandth of its spread: the norm ball "
                "needs scaled inputs (standardize = true)"
            )
        for v in vectors:
            table = v.reshape(model.n_outputs, -1)[:, : len(spread)]
            steep = float(np.linalg.norm(table * (spread / model.inputs.scale)))
            norm = max(norm, steep)
    if question.leaves_ball:
        raise Refused("steps that lead out of the norm ball whatever the rows are")
    if not norm * question.steepness <= radius * (1 + 1e-9):
        raise Refused(
            f"parameters outside the site's norm ball of {radius:g} ('radius' in "
            "site.toml)"
        )


def _scaling(task: Task) -> str:
    plain = {k: v for k, v in task.model.describe().items() if k != "l2"}
    text = json.dumps(plain, sort_keys=True, default=str).encode()
    inputs = task.model.inputs
    target = np.array([task.model.target.mean, task.model.target.scale])
    described = np.frombuffer(text, np.uint8)
    return files.digest_arrays(inputs.mean, inputs.scale, target, described)
