"""A site answers: bytes in, bytes out, and nothing else ever leaves it.

Cells are unions of atoms (group × label), so no difference of cells is smaller than an
atom, and the floor acts on atoms. Rows of a withheld atom get an extra code that
belongs to no cell: they count in F, and in nothing else.

The guard (`site.guard`) says which questions are answered.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pffl import files
from pffl.data.schema import Schema, withheld
from pffl.data.silo import Silo
from pffl.errors import ArtefactError, Malformed, Refused, UsageError
from pffl.parcel import Parcel
from pffl.questions import ModelQuestion, Question, Total, View, read_question
from pffl.questions.base import Rebuild
from pffl.site import store
from pffl.site.config import Rules, SiteConfig
from pffl.site.guard import Guard, check_ball, check_batches
from pffl.site.log import Entry, Log
from pffl.site.pause import paused
from pffl.typing import BoolArray, IntArray
from pffl.wire import (
    Answer,
    Request,
    bodies_digest,
    read_request,
    refusal,
    total_body,
    write_answer,
)

GUARD = "guard.json"
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
        Folder for what must be remembered between processes, and for the log; None to
        remember in this process, without a log.
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
        self._log = None if state is None else Log(state)

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
            if remember:
                self._refuse_if_paused()
            answered = self._answer(request, remember=remember)
            if remember and self._log is not None:
                left = self.guard.left(request.run)
                self._log.write(Entry.of(request, answered, left=left))
            return answered
        except Exception as error:
            reason, own = _reason(error), self.schema.hash
            answer = refusal(
                request, version=OURS, silo=self.name, schema=own, reason=reason
            )
            refused = write_answer(answer)
            if remember and self._log is not None:
                with suppress(ArtefactError):  # a full disk keeps no refusal back
                    self._log.write(Entry.of(request, refused, refused=answer.refusal))
            return refused

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
        return withheld(counts, counts < self.rules.floor, self.rules.floor)

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
                asked=bodies_digest(request.bodies),
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

    def _refuse_if_paused(self) -> None:
        pause = None if self._log is None else paused(self._log.path.parent)
        if pause is not None:
            raise Refused(f"the site is {pause}")


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
