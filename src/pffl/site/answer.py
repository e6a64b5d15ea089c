"""A site answers: bytes in, bytes out, and nothing else ever leaves it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pffl import files
from pffl.codec import (
    Answer,
    Request,
    decode_question,
    encode_total,
    read_request,
    refusal,
    write_answer,
)
from pffl.codec.questions import Rebuild
from pffl.data.schema import Schema
from pffl.data.silo import Silo
from pffl.errors import ArtefactError, UsageError
from pffl.parcel import Malformed
from pffl.questions import Census, ModelQuestion, Question, Total, View
from pffl.site import store, suppression
from pffl.site.guard import Guard, check_ball, check_batches
from pffl.site.rules import Refused, Rules
from pffl.typing import BoolArray

if TYPE_CHECKING:
    from pffl.site.config import SiteConfig

GUARD = "guard.json"
LOG = "refusals.jsonl"
LARGEST_LOG = 10 << 20  # bytes; then it is put aside, and an older one dropped
OURS = version("pffl")
Admit = Callable[[Request, Question[Any]], None]


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
        own_model: Rebuild | None = None,
    ) -> None:
        self.silo = silo
        self.schema = schema
        self.rules = rules
        self.guard = Guard(rules, None if state is None else state / GUARD)
        self.own_model = own_model
        self._log = None if state is None else state / LOG

    @classmethod
    def of(
        cls,
        silo: Silo,
        schema: Schema,
        rules: Rules,
        state: Path | None = None,
        *,
        own_model: Rebuild | None = None,
    ) -> Site:
        """Return a site over rows in memory."""
        return cls(silo, schema, rules, state, own_model)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Site:
        """Return a site over prepared rows; `folder` holds its site.toml."""
        from pffl.site.config import SiteConfig

        return cls.configured(SiteConfig.load(folder))

    @classmethod
    def configured(cls, config: SiteConfig) -> Site:
        """Return the site that a configuration describes, over prepared rows."""
        schema = config.agreement().schema
        silo = store.read(config.prepared, name=config.name, schema_hash=schema.hash)
        return cls(silo, schema, config.rules, config.folder)

    @property
    def name(self) -> str:
        """Name of the site."""
        return self.silo.name

    def answer(self, content: bytes) -> bytes:
        """Answer a message; what is wrong with it is the answer, and no exception."""
        request: Request | None = None
        try:
            request = self._read(content)
            return self._answer(request, self.guard.admit)
        except Exception as error:
            return self._refuse(request, _reason(error))

    def preview(self, content: bytes) -> bytes:
        """Return the bytes that would leave, and remember nothing of it."""
        request: Request | None = None
        try:
            request = self._read(content)
            return self._answer(request, self.guard.check)
        except Exception as error:
            return write_answer(self._refusal(request, _reason(error)))

    def hidden(self, split: str) -> BoolArray:
        """Say which atoms of a split are withheld."""
        rows = self.silo.rows(split)
        atoms = self.schema.atoms(rows.group, rows.y)
        counts = np.bincount(atoms, minlength=self.schema.n_atoms)
        return suppression.withheld(counts, self.rules.floor)

    def _read(self, content: bytes) -> Request:
        return read_request(content, largest=self.rules.largest_message)

    def _answer(self, request: Request, admit: Admit) -> bytes:
        self._shake_hands(request)
        question, index = decode_question(
            request.body, self.schema, own_model=self.own_model
        )
        rows = len(self.silo.rows(question.split))
        least = max(self.rules.floor, 1)
        if rows < least and (rows > 0 or question.split == "train"):
            raise Refused(
                f"split '{question.split}' has fewer rows than the site's floor"
            )
        if isinstance(question, ModelQuestion):
            check_ball(question, self.rules.radius, self.silo.rows(question.split).X)
            check_batches(question, self.rules, rows)
        admit(request, question)
        hidden = self.hidden(question.split)
        total = self._total(question, index, hidden)
        # Secure sums and noise will be applied here, to the total, and nowhere else.
        return write_answer(
            Answer(
                request.run,
                request.session,
                request.sequence,
                OURS,
                self.name,
                self.schema.hash,
                tuple(self.silo.splits),
                int(hidden.sum()),
                body=encode_total(total),
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

    def _total(self, question: Question[Any], index: int, hidden: BoolArray) -> Total:
        if isinstance(question, Census):
            view = View.of(self.silo, self.schema, None, question.split)
            return suppression.census(question.answer(view), hidden)
        if not isinstance(question, ModelQuestion):
            raise TypeError(f"{type(question).__name__} is none of the questions")
        view = View.of(self.silo, self.schema, question.task.model, question.split)
        return suppression.answer(question, replace(view, index=index), hidden)

    def _refusal(self, request: Request | None, reason: str) -> Answer:
        return refusal(
            request,
            version=OURS,
            silo=self.name,
            schema=self.schema.hash,
            reason=reason,
        )

    def _refuse(self, request: Request | None, reason: str) -> bytes:
        answer = self._refusal(request, reason)
        self._log_refusal(request, answer.refusal)
        return write_answer(answer)

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
            "question": (
                str(request.body.header.get("question"))[:40] if request else None
            ),
            "refused": reason,
        }
        with suppress(ArtefactError):
            files.append(self._log, line, private=True, largest=LARGEST_LOG)


def _reason(error: Exception) -> str:
    """Say why; errors that may hold something of the rows are named by their class."""
    if isinstance(error, Malformed | Refused | UsageError):
        return str(error)
    return f"{type(error).__name__} at the site"
