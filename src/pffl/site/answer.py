"""A site answers: bytes in, bytes out, and nothing else ever leaves it.

Rows that the floor leaves out are as if not there: were they in F, then F less the
cells would be theirs. Under secure sums it acts on the sets of the agreed constraint
(`site.floor`), otherwise on atoms (group × label): no difference of cells is smaller.

The guard (`site.guard`) says which queries are answered.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pffl.data.schema import Schema, counted_alike, withheld
from pffl.data.silo import Silo
from pffl.errors import (
    ArtefactError,
    Malformed,
    PrivacyBudgetError,
    Refused,
    UsageError,
)
from pffl.parcel import Parcel
from pffl.queries import (
    Census,
    ModelQuery,
    Place,
    Query,
    Total,
    View,
    read_query,
)
from pffl.queries.base import Rebuild
from pffl.queries.release import Adding
from pffl.site import consent, store
from pffl.site.account import Account
from pffl.site.agreement import Agreement
from pffl.site.config import Rules, SiteConfig
from pffl.site.floor import agreed_sets, left_out
from pffl.site.guard import FILE as GUARD
from pffl.site.guard import Ball, Guard, check_batches, check_model, model_of
from pffl.site.log import Entry, Log
from pffl.site.masking import FOLDER as RUNS
from pffl.site.masking import Member, Standing, marks_of
from pffl.site.pause import paused
from pffl.site.releases import Releases
from pffl.typing import BoolArray, IntArray
from pffl.wire import (
    Answer,
    Gate,
    Policy,
    Request,
    bodies_digest,
    masked_body,
    masks,
    read_request,
    refusal,
    signed_content,
    total_body,
    write_answer,
)
from pffl.wire.keys import SiteKeys

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
    agreement
        All that the federation agreed on, where that is more than the schema: under
        secure sums nothing but masked answers leaves the site.
    keys
        The site's own, to sign its answers with.
    sets
        Under secure sums: of each atom, the set that the floor acts on; those of the
        agreed constraint unless it is said.
    """

    def __init__(
        self,
        silo: Silo,
        schema: Schema,
        rules: Rules,
        state: Path | None = None,
        *,
        own_model: Rebuild | None = None,
        agreement: Agreement | None = None,
        keys: SiteKeys | None = None,
        sets: IntArray | None = None,
    ) -> None:
        self.silo, self.name = silo, silo.name
        self.schema = schema
        self.rules = rules
        self.guard = Guard(rules, None if state is None else state / GUARD)
        self.own_model = own_model
        self._log = None if state is None else Log(state)
        self._keys = keys
        account: Account | None = None
        if state is not None and rules.epsilon > 0:
            account = Account(state, rules.epsilon, rules.delta)
        self.releases = Releases(silo, schema, account)
        self.adding: Adding | None = None  # how the sites of a secure sum share noise
        self._model = {} if agreement is None else model_of(agreement)
        self._member: Member | None = None
        self._sets, self._floor = sets, rules.floor
        if agreement is not None and agreement.secure_sum:
            self._sets = agreed_sets(agreement) if sets is None else sets
            self._floor = max(rules.floor, agreement.floor)
            if "privacy" in agreement.run:
                # A site without noise loads no solver.
                from pffl.site.terms import adding_of

                self.adding = adding_of(agreement)
            self._member = Member(
                self.name,
                agreement,
                keys,
                known={
                    "rows": store.digest(silo),
                    "floor": str(self._floor),
                    "version": OURS,
                },
                folder=None if state is None else state / RUNS,
            )

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Site:
        """Return a site over prepared rows; `folder` holds its site.toml."""
        return cls.configured(SiteConfig.load(folder))

    @classmethod
    def configured(cls, config: SiteConfig) -> Site:
        """Return the site that a configuration describes, over prepared rows."""
        agreed = config.agreement()
        consent.check(config, agreed)
        schema = agreed.schema
        silo = store.read(config.prepared, name=config.name, schema_hash=schema.hash)
        keys = consent.own_keys(config, agreed)
        rules, folder = config.rules, config.folder
        return cls(silo, schema, rules, folder, agreement=agreed, keys=keys)

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
        """Say which atoms of a split are left out."""
        rows = self.silo.rows(split)
        if self._sets is not None:
            return left_out(rows, self.schema, self._sets, self._floor)
        atoms = self.schema.atoms(rows.group, rows.y)
        counts = counted_alike(atoms, rows.weight, self.schema.n_atoms)
        return withheld(counts, counts < self.rules.floor, self.rules.floor)

    def shown(self, split: str) -> IntArray:
        """Count the rows of each atom of a split that is not left out."""
        return np.where(self.hidden(split), 0, self.counts(split))

    @property
    def fresh(self) -> bool:
        """Whether nothing was ever answered about these rows."""
        prepared = isinstance(self.silo.splits, store.Stored)
        return not (prepared or any(map(self.guard.asked, self.guard.runs())))

    def _answer(self, request: Request, *, remember: bool) -> bytes:
        self._shake_hands(request)
        if self._member is not None:
            return self._add(self._member, request, remember=remember)
        if not request.bodies:  # who is there: the guard need not know of it
            return self._write(request, ())
        if request.step:
            raise Refused(
                "[no-secure-sums] a step of a secure sum, which this site did not "
                "agree to"
            )
        posed = [self._read(body) for body in request.bodies]
        asked = [query for query, _ in posed]
        noisy = any(query.released for query in asked)
        if noisy or self.releases.account is not None:
            return self._release(request, asked, remember=remember)
        for query in asked:
            self._check_floor(query)
            self._check(query, int(self.shown(query.split).sum()))
        with self.guard.turn(remember=remember):
            self.guard.admit(request, asked, remember=remember)
        views: dict[tuple[str, str], View] = {}
        bodies = [self._body(query, index, views) for query, index in posed]
        return self._write(request, tuple(bodies))

    def _release(
        self, request: Request, asked: Sequence[Query[Any]], *, remember: bool
    ) -> bytes:
        """Answer with noise.

        No floor applies: noise bounds what leaves.
        """
        self.releases.check(asked)
        self.releases.open(fresh=self.fresh, remember=remember)
        with self.guard.turn(remember=remember):
            self.guard.admit(request, asked, remember=remember)
        bodies = self.releases.apart(request, asked, remember=remember)
        return self._write(request, tuple(bodies))

    def _read(self, body: Parcel, place: Place | None = None) -> tuple[Query[Any], int]:
        own = self.own_model
        header, arrays = body.header, body.arrays
        return read_query(header, arrays, self.schema, own_model=own, place=place)

    def _write(
        self, request: Request, bodies: tuple[Parcel, ...], transcript: str = ""
    ) -> bytes:
        """Return the bytes of an answer, signed if the site has a key."""
        answer = Answer(
            request.run,
            *request.number,
            OURS,
            self.schema.hash,
            bodies,
            self.name,
            tuple(self.silo.splits),
            asked=bodies_digest(request.bodies),
            step=request.step,
            transcript=transcript,
        )
        if self._keys is not None:
            signature = self._keys.sign(signed_content(answer))
            answer = replace(answer, signature=signature)
        return write_answer(answer)

    # Under secure sums

    def _add(self, member: Member, request: Request, *, remember: bool) -> bytes:
        """Answer a step of a secure sum, or repeat what was answered to it.

        A greeting is answered with the site's key of the run, and ends it at a step.
        """
        with member.turn():
            ends = bool(request.step) and not request.bodies
            if remember:
                member.end(request.run if ends else None)
            if ends:
                return self._write(request, ())
            standing = member.standing(request.run)
            if standing is None:
                standing = self._begin(member, request, remember=remember)
            if not request.bodies:
                said = member.begun(request.run)
                return self._write(request, (masked_body(standing.key),), said)
            if not member.answered(standing, request):
                standing = self._step(member, standing, request, remember=remember)
        body = masked_body(standing.masked)
        return self._write(request, (body,), standing.transcript)

    def _begin(self, member: Member, request: Request, *, remember: bool) -> Standing:
        """Begin a run; not one in which something was answered, and nothing is left."""
        if self.guard.asked(request.run):
            raise Refused(
                "[memory-lost] the run has ended, or what the site remembers of it is "
                f"gone from '{RUNS}': it does not go on, and does not begin again"
            )
        if request.bodies:
            raise Refused(
                f"[other-step] step {request.step} of a run that has not begun: it "
                "begins with the sites' keys"
            )
        with self.guard.turn(remember=remember):
            self.guard.begin(request.run, remember=remember)
        standing = member.begin(request.run)
        if remember:
            member.save(request.run, standing)
        return standing

    def _step(
        self, member: Member, standing: Standing, request: Request, *, remember: bool
    ) -> Standing:
        """Answer a step that was not answered; return where the run then stands."""
        standing, place = member.hear(standing, request), self._place(member)
        asked = [self._read(body, place)[0] for body in request.bodies]
        for query in asked:
            member.admit(query, noise=self.adding is not None)
        if self.adding is None:
            self._check_all(asked)
        elif remember:
            self._check_budget(asked)
        else:
            raise Refused(
                "[not-under-noise] a release with noise is charged: it is not shown "
                "beforehand"
            )
        with self.guard.turn(remember=remember):
            self.guard.admit(request, asked, remember=remember)
        if self.adding is None:
            totals = self._totals(asked, member.index)
        else:
            self.releases.enter(request.run, marks_of(standing, request), asked)
            source = self.adding.source or member.source(standing, request)
            totals = self.releases.shared(asked, self.adding, source)
        standing = member.mask(standing, request, masks.encode_all(asked, totals))
        if remember:
            member.save(request.run, standing)
        return standing

    def _check_all(self, asked: Sequence[Query[Any]]) -> None:
        self.releases.check(asked)
        for query in asked:
            self._check(query, int(self.shown(query.split).sum()))

    def _check_budget(self, asked: Sequence[Query[Any]]) -> None:
        """Refuse what has no budget, or is no release."""
        self.releases.check(asked)
        self.releases.open(fresh=self.fresh, remember=True)

    def _totals(self, asked: Sequence[Query[Any]], index: int) -> list[Total]:
        """Answer, and judge the answers as a server would that could read them.

        Under masks nobody else can.
        """
        views: dict[tuple[str, str], View] = {}
        gate, totals = Gate(Policy(), self.schema), []
        for query in asked:
            split, hidden = query.split, self.hidden(query.split)
            if gate.frozen(index, split) is None:
                counting = Census(self.schema, split)
                census: Any = self._total(counting, index, hidden, views)
                gate.freeze(index, split, census, 0)
            totals.append(self._total(query, index, hidden, views))
            if isinstance(query, ModelQuery):  # as to a silo by itself
                query = replace(query, task=replace(query.task, pool=None))
            gate.report(query, index, totals[-1])
        return totals

    def _place(self, member: Member) -> Place:
        if self.adding is not None:
            return Place(member.index, 0.0)  # nothing but noise hides its rows' weight
        rows = self.silo.rows("train")
        hidden = self.hidden("train")[self.schema.atoms(rows.group, rows.y)]
        return Place(member.index, float(rows.weights[~hidden].sum()))

    def _shake_hands(self, request: Request) -> None:
        """Refuse another version or schema, and show both."""
        if request.version != OURS:
            raise Refused(
                f"[other-version] the server has pffl {request.version[:40]}, this "
                f"site {OURS}: install the same version everywhere"
            )
        if request.schema != self.schema.hash:
            raise Refused(
                f"[other-schema] the server's schema is {request.schema[:12]}, this "
                f"site's {self.schema.hash[:12]}: use the same federation.json "
                "everywhere"
            )

    def _check_floor(self, query: Query[Any]) -> None:
        """Refuse what tells of fewer rows than the floor."""
        if query.split == "train" and not self.shown("train").any():
            raise Refused(
                "[small-counts] every (group, label) has fewer training rows than the "
                "site's floor"
            )

    def _check(self, query: Query[Any], shown: int) -> None:
        """Refuse what is not answered whoever asks, and however often."""
        if isinstance(query, ModelQuery):
            if self.own_model is None:
                check_model(query, self._model)
            self._ball(query).check()
            check_batches(query, self.rules, shown)

    def _ball(self, query: ModelQuery[Any]) -> Ball:
        return Ball(query, self.rules.radius, self.silo.rows(query.split))

    def _body(
        self, query: Query[Any], index: int, views: dict[tuple[str, str], View]
    ) -> Parcel:
        hidden = self.hidden(query.split)
        total = self._total(query, index, hidden, views)
        return total_body(query, total, int(hidden.sum()))

    def _total(
        self,
        query: Query[Any],
        index: int,
        hidden: BoolArray,
        views: dict[tuple[str, str], View],
    ) -> Total:
        """Answer a query without hidden rows; rows are scaled once a message."""
        key = query.view_key
        if key not in views:
            model = None if query.task is None else query.task.model
            whole = View.of(self.silo, self.schema, model, query.split)
            views[key] = whole.without(hidden)
        view = replace(views[key], index=index)
        if not isinstance(query, ModelQuery):
            total: Total = query.answer(view)
            return total
        total = query.within(view, self._ball(query).check_step)
        return total

    def _refuse_if_paused(self) -> None:
        pause = None if self._log is None else paused(self._log.path.parent)
        if pause is not None:
            raise Refused(f"[site-paused] {pause}")


def _reason(error: Exception) -> str:
    """Say why; errors that may hold something of the rows are named by their class."""
    if isinstance(error, Malformed | Refused | UsageError | PrivacyBudgetError):
        return str(error)
    return f"{type(error).__name__} at the site"
