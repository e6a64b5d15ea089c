"""A site answers: bytes in, bytes out, and nothing else ever leaves it.

Rows that the floor leaves out are as if not there: were they in F, then F less the
cells would be theirs. With noise no floor applies, since one person more or less must
not decide about others: noise bounds what leaves.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pffl import files
from pffl.data.rows import Rows, Silo
from pffl.data.schema import Schema
from pffl.deploy import messages, secure_sum
from pffl.deploy import rows as prepared
from pffl.deploy.federation import Agreement, agreed_sets, left_out, plan_of
from pffl.deploy.keys import SiteKey
from pffl.deploy.messages import OURS, Answer, Request, masked_body, shown
from pffl.deploy.store import ANSWER, CHARGE, REFUSAL, Records, RunRecord, SiteMemory
from pffl.errors import (
    ArtefactError,
    Malformed,
    PFFLError,
    PrivacyBudgetError,
    Problems,
    Refused,
    UsageError,
    wrong,
)
from pffl.models import LinearModel, Model
from pffl.models.external import Recipe
from pffl.privacy.run import sharing
from pffl.queries import ModelQuery, Place, Query, Total, Train, View, read_query
from pffl.queries.base import Rebuild
from pffl.queries.release import Adding
from pffl.records import check as check_types
from pffl.tensors import Parcel
from pffl.typing import BoolArray, FloatArray, IntArray

FARTHEST = 10.0  # a mean from the site's own, in spreads of either
STEEPEST = 1000.0  # own spread of a column, in units of the server's scale
RIDGE, ARCHITECTURE = "l2", "architecture"  # of a model that is described
LAYOUT = "layout of cells"  # of a query, among its marks
STEPS_OUT = "steps that lead out of the norm ball"
NO_NOISE = "[not-under-noise] a sum without noise, and the agreed run has noise"
NO_BUDGET = "[no-privacy-budget] a release with noise, and the agreed run has none"
BATCHES = "[no-batches] steps on batches: the site takes steps on all of its rows"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that only the site can change.

    Parameters
    ----------
    floor
        Fewest people of a cell, in a split, that the site answers about; below 2 it
        answers about all.
    queries
        Queries about its people that it answers in all, over all runs; the census is
        not counted. `Exact` asks about twenty a run, `PFFL` thousands.
    radius
        Largest norm of a model's parameters; of a linear one also in units in which
        every input has spread 1 at the site, and times the sharpness of smooth scores.
    layouts
        Ways to cut the rows into cells that a run may use.
    epsilon, delta
        What all releases with noise about the site's people may come to, over all runs:
        (ε, δ). 0: the site answers nothing with noise.
    largest_message
        Bytes.
    """

    floor: int = 10
    queries: int = 1000
    radius: float = 15.0
    layouts: int = 4
    epsilon: float = 0.0
    delta: float = 1e-6
    largest_message: int = 64 << 20

    def __post_init__(self) -> None:
        with Problems("limits", UsageError) as problems:
            check_types(vars(self), Limits, "a site", problems)
            for name, value in vars(self).items():
                if type(value) in (int, float) and not value >= 0:
                    problems.add(wrong(name, "a site", "at least 0", value))
            if not self.delta < 1:
                problems.add(wrong("delta", "a site", "below 1", self.delta))

    def weaker(self) -> list[str]:
        """Return a sentence for each limit that protects less than the default."""
        usual = Limits()
        signs = {"floor": 1, "queries": -1, "radius": -1}  # more people, fewer queries
        return [
            f"{name}: {getattr(self, name):g}, and {getattr(usual, name):g} by default"
            for name, sign in signs.items()
            if sign * getattr(self, name) < sign * getattr(usual, name)
        ]


def model_of(agreed: Agreement) -> dict[str, object]:
    """Return what all queries of the agreed run say of their model.

    A ridge may differ; of a network only its name is compared, since no ball makes one
    tame. Nothing where no run was agreed on.
    """
    plan = plan_of(agreed)
    if plan is not None and isinstance(plan.model, Recipe):
        return {ARCHITECTURE: agreed.run["model"]["kind"]}
    return {} if plan is None else _described(plan.model_for(agreed.schema))


def _described(model: Model) -> dict[str, object]:
    plain = {k: v for k, v in model.describe().items() if k != RIDGE}
    if isinstance(network := plain.get(ARCHITECTURE), Mapping):
        plain[ARCHITECTURE] = network.get("name")
    return plain


def task_marks(query: ModelQuery[Any]) -> dict[str, str]:
    """Return what may not change within a run, and the query's layout of cells."""
    member = query.task.cells.membership.astype(np.uint8)
    kept = {"input scaling or model": query.task.scoring}
    if isinstance(query, Train) and query.batch_size is not None:
        kept["batch size or its seed"] = f"{query.batch_size} {query.seed}"
    return {**kept, LAYOUT: files.digest_arrays(member)}


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
                raise Refused("unscaled-inputs")
            wide = np.maximum(spread, model.inputs.scale)
            far = np.abs(model.inputs.mean - mean) > FARTHEST * wide
            if len(rows) and far.any():
                raise Refused("uncentred-inputs")
        if isinstance(self.query, Train) and self.query.leaves_ball:
            raise Refused("outside-ball:check", steps_out=STEPS_OUT)
        if not all(map(self.holds, self.query.parameters)):
            raise Refused("outside-ball:check-2", radius=self.radius)

    def check_step(self, w: FloatArray) -> None:
        """Refuse a w to which local steps have led, and at which the next would be."""
        if not self.holds(w):
            raise Refused(
                "outside-ball:check-step", steps_out=STEPS_OUT, radius=self.radius
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


class Site:
    """One site's rows behind its limits.

    Parameters
    ----------
    silo
        The rows.
    agreement
        All that the federation agreed on: under secure sums nothing but masked answers
        leaves the site.
    limits
        What the site allows.
    folder
        Where to remember what was answered; None for the memory of this process.
    key
        The site's own, to sign its answers with.
    own_model
        Rebuilds models with a module of the user's own.
    sets
        Of each stratum, the set that the floor acts on; those of the agreed constraint
        unless stated.
    trusting
        Whether whoever asks has the rows anyway: nothing but masks and floor applies.
    """

    def __init__(
        self,
        silo: Silo,
        agreement: Agreement,
        limits: Limits | None = None,
        folder: Path | None = None,
        *,
        key: SiteKey | None = None,
        own_model: Rebuild | None = None,
        sets: IntArray | None = None,
        trusting: bool = False,
    ) -> None:
        self.silo, self.name, self.agreement = silo, silo.name, agreement
        self.limits = limits or Limits()
        self.own_model, self.trusting = own_model, trusting
        self._check_key(key)
        self._key, self.memory = key, SiteMemory(folder)
        self._model = model_of(agreement)
        self._sets = agreed_sets(agreement) if sets is None else sets
        self.floor = max(self.limits.floor, agreement.floor)
        # How the sites share noise; None where the agreed run has none.
        self.adding = adding_of(agreement)
        known = {"rows": prepared.digest(silo), "floor": str(self.floor)}
        self.records = Records(self.name, agreement, known, folder)

    @property
    def schema(self) -> Schema:
        """Names of features, groups and labels."""
        return self.agreement.schema

    def answer(self, content: bytes) -> bytes:
        """Answer a message; what is wrong with it is the answer, and no exception."""
        request: Request | None = None
        try:
            request = messages.read_request(
                content, largest=self.limits.largest_message
            )
            with self.memory.turn():
                answer, record = self._answered(request)
                reply = answer if isinstance(answer, bytes) else self._signed(answer)
            # What is counted and charged is on disk. A crash before the next line gives
            # the same answer again, which is counted once.
            if record is not None:
                self.records.save(request.run, replace(record, answer=reply))
        except Exception as error:
            reply = self._signed(self._refusal(request, error))
        return reply

    def refuse(self, error: Exception) -> bytes:
        """Return the answer that says why it is missing."""
        return self._signed(self._refusal(None, error))

    def counts(self, split: str) -> IntArray:
        """Count the rows of each stratum of a split."""
        rows = self.silo.rows(split)
        strata = self.schema.strata(rows.group, rows.y)
        return np.bincount(strata, minlength=self.schema.n_strata)

    def hidden(self, split: str, record: RunRecord | None = None) -> BoolArray:
        """Say which strata of a split are left out: here, or in a run at all sites."""
        few = left_out(self.silo.rows(split), self.schema, self._sets, self.floor)
        if record is not None and split in (record.shared_sets or {}):
            few |= ~np.array((record.shared_sets or {})[split])[self._sets]
        return few

    def _answered(self, request: Request) -> tuple[Answer | bytes, RunRecord | None]:
        """Answer a request, or repeat it; return also where the run then stands."""
        self._shake_hands(request)
        records, run = self.records, request.run
        if request.step and not request.bodies:
            records.end(run)
            return self._answer(request, ()), None
        records.end()
        record = records.find(run)
        if not request.step and request.bodies:
            raise Refused("other-step:answered")
        if not request.step:
            return self._greeted(request, record), None
        if record is None:
            self._refuse_lost(run)
            raise Refused("other-step:answered-2", step=request.step)
        if request.step == record.step:
            if request.asked == record.asked:
                return record.answer, None
            raise Refused("repeated-step", step=request.step)
        if request.step != record.step + 1:
            raise Refused(
                "other-step:answered-3", step=request.step, step_2=record.step
            )
        record = self._heard(record, request)
        bodies = self._stepped(record, request)
        answer = self._answer(request, bodies, record.transcript)
        return answer, replace(record, step=request.step, asked=request.asked)

    def _greeted(self, request: Request, record: RunRecord | None) -> Answer:
        """Say who is there, with the site's key of the run; begin it if it is new."""
        if self._key is not None and self.name in request.heads:
            self.memory.check_head(self.name, self._key, request.heads[self.name])
        if record is None:
            self._refuse_lost(request.run)
            record = self.records.begin(request.run)
            self.records.save(request.run, record)
        masked = self.agreement.secure_sum
        bodies = (masked_body(record.own_key),) if masked else ()
        return self._answer(request, bodies, self.records.first(request.run))

    def _heard(self, record: RunRecord, request: Request) -> RunRecord:
        """Take what all sites answered to the step before."""
        step = record.step
        record, total = self.records.hear(record, request)
        if not (self.agreement.counts_sites and step == 1):
            return record
        held = secure_sum.read_counts(total, len(self.agreement.sites))
        enough = np.split(
            held >= self.agreement.fewest_holders, len(self.agreement.splits)
        )
        known = {
            s: e.tolist() for s, e in zip(self.agreement.splits, enough, strict=True)
        }
        return replace(record, shared_sets=known)

    def _refuse_lost(self, run: str) -> None:
        """Refuse a run in which something was answered, and nothing is left."""
        if self.memory.knows(run=run):
            raise Refused("memory-lost:refuse-lost")

    def _stepped(self, record: RunRecord, request: Request) -> tuple[Parcel, ...]:
        """Answer a step that was not answered."""
        if self.agreement.counts_sites and request.step == 1:
            if request.asked != messages.bodies_digest((messages.HOLDERS,)):
                raise Refused("other-step:stepped")
            flat = secure_sum.write_counts(self._present())
            return (self.records.masked(record, request, flat),)
        hidden = {split: self.hidden(split, record) for split in self.silo.splits}
        masked, noise = self.agreement.secure_sum, self.adding
        place = self._place(hidden["train"]) if masked else None
        known: dict[str, Any] = {"own_model": self.own_model, "place": place}
        posed = [
            read_query(body.header, body.arrays, self.schema, **known)
            for body in request.bodies
        ]
        asked = [query for query, _ in posed]
        index = self.records.index if masked else posed[0][1]
        if not self.trusting:
            self._check_all(asked, hidden)
            self._enter(record, request, asked)
        totals: list[Any]
        if noise is None:
            totals = self._totals(asked, index, hidden)
        else:
            source = noise.source or record.source(request)
            releases: list[Any] = list(asked)
            totals = [
                q.noised(q.answer(self._view(q)), source, factor=noise.each)
                for q in releases
            ]
        if masked:
            flat = secure_sum.encode_all(asked, totals, len(self.agreement.sites))
            return (self.records.masked(record, request, flat),)
        return tuple(
            messages.total_body(q, t, 0 if noise else int(hidden[q.split].sum()))
            for q, t in zip(asked, totals, strict=True)
        )

    def _present(self) -> BoolArray:
        """Say of each split and set whether the site has enough people of it."""
        first = np.unique(self._sets, return_index=True)[1]
        return np.concatenate(
            [~self.hidden(split)[first] for split in self.agreement.splits]
        )

    def _enter(
        self, record: RunRecord, request: Request, asked: Sequence[Query[Any]]
    ) -> None:
        """Count and charge what is asked, once, before anything is computed."""
        pairs: Any = zip(record.marks(request), asked, strict=True)
        new: list[tuple[str, Any]] = [
            (mark, q) for mark, q in pairs if not self.memory.knows(mark=mark)
        ]
        models = sum(isinstance(query, ModelQuery) for _, query in new)
        if self.memory.queries + models > self.limits.queries:
            raise Refused("too-many-queries:enter", queries=self.limits.queries)
        costs = [float(q.mu) ** 2 if q.released else 0.0 for _, q in new]
        if any(costs):
            self.memory.allow(costs, self.limits.epsilon, self.limits.delta)
        for (mark, query), cost in zip(new, costs, strict=True):
            about = {"query": query.kind, "split": query.split, "step": request.step}
            self.memory.add(
                CHARGE if cost else ANSWER,
                {**about, "task": self._task_marks(request.run, query)},
                run=request.run,
                mark=mark,
                queries=int(isinstance(query, ModelQuery)),
                mu2=cost,
            )

    def _task_marks(self, run: str, query: Query[Any]) -> dict[str, str]:
        """Refuse what changed within a run, and a layout of cells too many."""
        if not isinstance(query, ModelQuery):
            return {}
        known, found = self.memory.entries(ANSWER, CHARGE), task_marks(query)
        tasks = [found, *(entry.body["task"] for entry in known if entry.run == run)]
        for name in found:
            most = self.limits.layouts if name == LAYOUT else 1
            if len({task[name] for task in tasks if name in task}) > most:
                raise Refused("changed-task", name=name)
        return found

    def _check_all(
        self, asked: Sequence[Query[Any]], hidden: Mapping[str, BoolArray]
    ) -> None:
        """Refuse what is not answered whoever asks, and however often."""
        sites, noisy = len(self.agreement.sites), self.adding is not None
        for query in asked:
            if query.released != noisy:
                raise Refused(NO_NOISE if noisy else NO_BUDGET)
            pool = None if query.task is None else query.task.pool
            if pool is not None and pool.silos != sites:
                raise Refused("wrong-sites:check-all", silos=pool.silos, sites=sites)
            rows = int(self.counts(query.split)[~hidden[query.split]].sum())
            if query.split == "train" and not rows and not noisy:
                raise Refused("small-counts")
            if isinstance(query, ModelQuery):
                self._check_model(query)
                if not noisy:
                    self._ball(query).check()
                    size = query.batch_size if isinstance(query, Train) else None
                    if size is not None and size < rows:
                        raise Refused(BATCHES)

    def _check_model(self, query: ModelQuery[Any]) -> None:
        """Refuse another model than agreed: one may be as steep as it likes."""
        found = _described(query.task.model)
        for name, wanted in self._model.items():
            if found.get(name) != wanted:
                raise Refused("other-model:check-model", name=name)

    def _ball(self, query: ModelQuery[Any]) -> Ball:
        return Ball(query, self.limits.radius, self.silo.rows(query.split))

    def _totals(
        self, asked: Sequence[Query[Any]], index: int, hidden: Mapping[str, BoolArray]
    ) -> list[Total]:
        """Answer without the rows that are left out."""
        views: dict[tuple[str, str], View] = {}  # rows are scaled once a message
        totals: list[Total] = []
        for query in asked:
            if query.view_key not in views:
                without = self._view(query).without(hidden[query.split])
                views[query.view_key] = replace(without, index=index)
            view = views[query.view_key]
            if isinstance(query, ModelQuery) and not self.trusting:
                totals.append(query.within(view, self._ball(query).check_step))
            else:
                totals.append(query.answer(view))
            totals[-1].check_size()
        return totals

    def _view(self, query: Query[Any]) -> View:
        model = None if query.task is None else query.task.model
        return View.of(self.silo, self.schema, model, query.split)

    def _place(self, hidden: BoolArray) -> Place:
        if self.adding is not None:  # nothing but noise hides its rows' weight
            return Place(self.records.index, 0.0)
        rows = self.silo.rows("train")
        kept = ~hidden[self.schema.strata(rows.group, rows.y)]
        return Place(self.records.index, float(rows.weights[kept].sum()))

    def _shake_hands(self, request: Request) -> None:
        """Refuse another version or federation, and show both."""
        if request.version != OURS:
            raise Refused(
                "other-version:shake-hands", what=shown(request.version, 40), ours=OURS
            )
        own, theirs = self.agreement.hash, request.federation
        if theirs != own:
            raise Refused(
                "other-run:shake-hands", theirs=shown(theirs[:12]), own=own[:12]
            )

    def _check_key(self, key: SiteKey | None) -> None:
        known = self.agreement.keys.get(self.name)
        if known is None:
            return
        if key is None:
            raise UsageError("missing-key:check-key", name=self.name)
        if key.public != known:
            raise UsageError(
                "other-key:check-key",
                name=self.name,
                fingerprint=known.fingerprint,
                fingerprint_2=key.public.fingerprint,
            )

    def _answer(
        self, request: Request, bodies: tuple[Parcel, ...], transcript: str = ""
    ) -> Answer:
        said = {"asked": request.asked, "transcript": transcript}
        return Answer(request.run, bodies, self.name, request.step, **said)

    def _refusal(self, request: Request | None, error: Exception) -> Answer:
        """Say why there is no answer, here in full, and to others in a sentence."""
        reason = shown(reason_of(error), messages.LONGEST)
        run, step = (request.run, request.step) if request else ("", 0)
        kinds = request.kinds if request else ()
        # A full disk keeps no refusal back.
        with suppress(PFFLError):
            whole = str(error) if isinstance(error, PFFLError) else type(error).__name__
            body = {"reason": whole, "queries": [*kinds], "step": step}
            self.memory.add(REFUSAL, body, run=run)
        return Answer(run, (), self.name, step, refusal=reason)

    def _signed(self, answer: Answer) -> bytes:
        if self._key is not None:
            with suppress(PFFLError):
                head = self.memory.signed_head(self.name, self._key)
                answer = replace(answer, head=head)
            answer = replace(
                answer, signature=self._key.sign(messages.signed_content(answer))
            )
        return messages.write(answer)


def adding_of(agreed: Agreement) -> Adding | None:
    """Say how the sites of the agreed run add noise; None where it has none."""
    plan = plan_of(agreed)
    if plan is None or not agreed.private:
        return None
    terms, many = plan.privacy, len(agreed.sites)
    if terms is None:
        raise UsageError("needs-epsilon")
    if terms.repeatable:
        raise UsageError("noise-seed")
    # Without masks each site adds all of it.
    return sharing(many, terms) if agreed.secure_sum else Adding(None, many)


def reason_of(error: BaseException) -> str:
    """Say why; errors that may hold something of the rows are named by a code."""
    known = (Malformed, Refused, UsageError, PrivacyBudgetError)
    if isinstance(error, known):
        return str(error)
    space = isinstance(error, OSError) and error.errno == errno.ENOSPC
    cause = error.__cause__
    space |= isinstance(cause, OSError) and cause.errno == errno.ENOSPC
    if space or (isinstance(error, ArtefactError) and error.code == "disk-full"):
        return "no space left on the site's disk (disk-full)"
    code = error.code if isinstance(error, PFFLError) else type(error).__name__
    return f"an error at the site ({code}): its own log says which"
