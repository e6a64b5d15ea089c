"""The guard: which queries a site answers, and how many.

A client process lives for one message, so what a run has asked lies in a file, which is
written before the answer is computed: whoever ends the process gains no query.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pffl import files
from pffl.data.silo import Rows
from pffl.errors import Problems, Refused, UsageError
from pffl.models import LINEAR_MODELS, LinearModel, Model
from pffl.models.linear import default_model
from pffl.queries import ModelQuery, Query
from pffl.records import Record, check, parameters, read
from pffl.site.agreement import Agreement
from pffl.site.config import Rules
from pffl.typing import FloatArray
from pffl.wire import Request

FILE = "guard.json"
FARTHEST = 10.0  # a mean from the site's own, in spreads of either
STEEPEST = 1000.0  # own spread of a column, in units of the server's scale
CAPS = 8  # bounds on losses that a run may use; each is a point of their curve
RIDGE, ARCHITECTURE = "l2", "architecture"  # of a model that is described
STEPS_OUT = "steps that lead out of the norm ball"
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
    queries: int = 0
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
    """Admits queries by the site's rules.

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
        self, request: Request, queries: Sequence[Query[Any]], *, remember: bool
    ) -> None:
        """Enter the queries of a message into its run, or raise `Refused`.

        In its turn.
        """
        runs = self.runs()
        self._enter(runs, request, queries)
        if remember:
            self._save(runs)

    def left(self, run: str) -> dict[str, float]:
        """Return how many queries a run may still ask, and runs the site takes."""
        runs = self.runs()
        asked = runs[run].queries if run in runs else 0
        return {
            "queries": max(self.rules.queries - asked, 0),
            "runs": max(self.rules.runs - len(runs), 0),
        }

    def begin(self, run: str, *, remember: bool) -> None:
        """Enter a run that has asked nothing, or raise `Refused`; in its turn."""
        runs = self.runs()
        self._check_new(runs, run)
        runs.setdefault(run, RunMemory())
        if remember:
            self._save(runs)

    def asked(self, run: str) -> bool:
        """Whether anything was answered in a run."""
        runs = self.runs()
        return run in runs and runs[run].last >= (0, 0)

    def _check_new(self, runs: Mapping[str, RunMemory], run: str) -> None:
        if run not in runs and len(runs) >= self.rules.runs:
            raise Refused(
                f"[too-many-runs] the site answers {self.rules.runs} runs ('runs' in "
                "site.toml), and this is another one"
            )

    def _enter(
        self,
        runs: dict[str, RunMemory],
        request: Request,
        queries: Sequence[Query[Any]],
    ) -> None:
        self._check_new(runs, request.run)
        asked = runs.setdefault(request.run, RunMemory())
        if request.number <= asked.last:
            raise Refused(
                f"[repeated-number] number {request.number} is not above "
                f"{asked.last}, which this run has used: no number is answered twice"
            )
        for query in queries:
            if isinstance(query, ModelQuery):
                self._count(asked, query)
        asked.last = request.number

    def _count(self, asked: RunMemory, query: ModelQuery[Any]) -> None:
        asked.queries += 1
        if asked.queries > self.rules.queries:
            raise Refused(
                f"[too-many-queries] the run has asked {self.rules.queries} "
                "queries, which is the site's budget ('queries' in site.toml)"
            )
        scoring = query.task.scoring
        kept = {"the input scaling or model": scoring, **query.kept}
        for what, value in kept.items():
            if asked.kept.setdefault(what, value) != value:
                raise Refused(f"[changed-task] {what} changed within the run")
        layout = files.digest_arrays(query.task.cells.membership.astype(np.uint8))
        if layout not in asked.layouts:
            asked.layouts.append(layout)
        if len(asked.layouts) > self.rules.layouts:
            raise Refused(
                "[too-many-layouts] another layout of cells, and the site allows "
                f"{self.rules.layouts} in a run ('layouts' in site.toml)"
            )
        asked.caps = sorted({*asked.caps, *query.caps})
        if len(asked.caps) > CAPS:
            raise Refused(
                f"[too-many-loss-bounds] more than {CAPS} loss bounds in a run"
            )

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
            raise Refused("[site-busy] the site is busy with other queries") from error

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


def model_of(agreed: Agreement) -> dict[str, object]:
    """Return what all queries of the agreed run say of their model.

    A ridge may differ; of a network only its name is compared, since no ball makes one
    tame. Nothing where no run was agreed on.
    """
    if not agreed.run:
        return {}
    given = {k: v for k, v in agreed.run.get("model", {}).items() if k != RIDGE}
    name = given.pop("kind", type(default_model(agreed.schema)).name)
    if name not in LINEAR_MODELS:
        return {ARCHITECTURE: name}
    kind = LINEAR_MODELS[name]
    with Problems("the agreed model", UsageError) as problems:
        known = {key: given[key] for key in given.keys() & parameters(kind)}
        values = check(known, kind, name, problems).values
    return _described(kind(**values))


def check_model(query: ModelQuery[Any], agreed: Mapping[str, object]) -> None:
    """Refuse another model than the agreed run has: one may be as steep as it likes."""
    found = _described(query.task.model)
    for name, wanted in agreed.items():
        if found.get(name) != wanted:
            raise Refused(
                "[other-model] another model than that of the agreed run: its "
                f"'{name}' differs"
            )


def _described(model: Model) -> dict[str, object]:
    plain = {k: v for k, v in model.describe().items() if k != RIDGE}
    if isinstance(network := plain.get(ARCHITECTURE), Mapping):
        plain[ARCHITECTURE] = network.get("name")
    return plain


def check_batches(query: ModelQuery[Any], rules: Rules, rows: int) -> None:
    """Refuse batches, unless the site allows them, and all but all of the rows.

    What a batch is short of the whole is a batch, too.
    """
    size = query.batch
    if size is None or size >= rows:
        return
    if not rules.batches:
        raise Refused(
            "[no-batches] the site takes steps on all of its rows, not on batches "
            "('batches' in site.toml)"
        )
    if min(size, rows - size) < rules.floor:
        raise Refused(
            f"[small-batches] batches of {size} rows, and the site's floor is "
            f"{rules.floor}: too few are in them, or left out"
        )


@dataclass(frozen=True)
class Ball:
    """The norm ball of a query's model, in the units of a site's rows.

    Steep inputs have the effect of large parameters, and so have sharp scores: with
    them a sum takes in, or leaves out, single rows. So the parameters count with the
    spread that their inputs have at the site, and with the sharpness. An input whose
    mean is put far away is an intercept: what they all come to at the site's own mean
    counts as one.

    Attributes
    ----------
    query, radius, rows
        What is asked, the ball's radius, and the rows.
    """

    query: ModelQuery[Any]
    radius: float
    rows: Rows

    def check(self) -> None:
        """Refuse what is outside, and inputs or steps by which it would be evaded."""
        model, rows = self.query.task.model, self.rows
        if isinstance(model, LinearModel):
            spread, mean = self._filled
            if (spread > STEEPEST * model.inputs.scale).any():
                raise Refused(
                    "[unscaled-inputs] an input's scale is below a thousandth of its "
                    "spread: the norm ball needs scaled inputs (standardize = true)"
                )
            wide = np.maximum(spread, model.inputs.scale)
            far = np.abs(model.inputs.mean - mean) > FARTHEST * wide
            if len(rows) and far.any():
                raise Refused(
                    f"[uncentred-inputs] an input's mean is more than {FARTHEST:g} "
                    "spreads from what it is at this site: the norm ball needs "
                    "centred inputs (standardize = true)"
                )
        if self.query.leaves_ball:
            raise Refused(f"[outside-ball] {STEPS_OUT} whatever the rows are")
        if not all(map(self.holds, self.query.parameters)):
            raise Refused(
                "[outside-ball] parameters outside the site's norm ball of "
                f"{self.radius:g} ('radius' in site.toml)"
            )

    def check_step(self, w: FloatArray) -> None:
        """Refuse a w to which local steps have led, and at which the next would be."""
        if not self.holds(w):
            raise Refused(
                f"[outside-ball] {STEPS_OUT} of {self.radius:g} ('radius' in site.toml)"
            )

    def holds(self, v: FloatArray) -> bool:
        """Whether a vector that rows are scored with is in the ball."""
        model = self.query.task.model
        v = v[: model.n_trained]
        norm = float(np.linalg.norm(v))
        if isinstance(model, LinearModel):
            spread, away = self._units
            slopes, intercept = np.split(
                v.reshape(model.n_outputs, -1), [len(spread)], axis=1
            )
            # In units in which inputs have mean 0 and spread 1 at the site.
            own = [slopes * spread, slopes @ away + intercept.sum(axis=1)]
            norm = max(norm, float(np.linalg.norm(np.column_stack(own))))
        return norm * self.query.steepness <= self.radius * (1 + 1e-9)

    @cached_property
    def _units(self) -> tuple[FloatArray, FloatArray]:
        """Return the site's spreads and means, as the model scales and centres them."""
        inputs, (spread, mean) = self.query.task.model.inputs, self._filled
        return spread / inputs.scale, (mean - inputs.mean) / inputs.scale

    @cached_property
    def _filled(self) -> tuple[FloatArray, FloatArray]:
        """Return the site's spreads and means, missing inputs as the model has them."""
        rows, inputs = self.rows, self.query.task.model.inputs
        mean, second = inputs.fill_sums(rows.mean, rows.spread**2 + rows.mean**2)
        spread, some = rows.spread.copy(), inputs.gaps[0]
        spread[some] = np.sqrt(np.maximum(second - mean**2, 0.0)[some])
        return spread, mean
