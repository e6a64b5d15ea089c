"""`solve`: from a federation and a constraint to a model with a verdict.

`solving` is the whole run as a flow, from the census to the last proof; `solve` drives
it with an engine.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pffl import files
from pffl._certify import calibration_overlap, check_certifiable, fit_path
from pffl.callbacks import Callback
from pffl.constraints import Bound, Constraint, as_constraint
from pffl.data.federation import Federation
from pffl.data.partition import CALIBRATION
from pffl.driver import Log, Meter, drive
from pffl.engines import DEPLOYED, ENGINES
from pffl.engines.base import Engine
from pffl.errors import UsageError
from pffl.evidence.conclude import Conclusions
from pffl.evidence.measure import Wanted, evidence_of, terms_of
from pffl.evidence.rates import with_scores
from pffl.evidence.record import (
    NOT_ASKED,
    About,
    Data,
    Missing,
    ModelPath,
    Sample,
    Training,
)
from pffl.evidence.tables import chosen_bound
from pffl.fit import at_selection_rate, deciding, fit
from pffl.flow import Flow
from pffl.methods import method_of
from pffl.methods.auto import Auto
from pffl.methods.base import Method
from pffl.methods.pffl import PFFL
from pffl.models.base import Model
from pffl.models.linear import LinearModel, default_model, model_of
from pffl.prepare import Options, Setting, check_pooled, prepare
from pffl.privacy import run as private
from pffl.privacy.terms import Privacy
from pffl.problem import Access, Problem
from pffl.select import Trials, choose_bound
from pffl.solution import Solution

if TYPE_CHECKING:
    import pandas as pd

    from pffl.models.predictor import Table


def solve(
    data: Federation | Engine | Table,
    constraint: Constraint | Bound | str | None,
    *,
    model: Model | str | None = None,
    method: Method | str | None = None,
    engine: str = "local",
    options: Options | None = None,
    random_state: int | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Log | str | os.PathLike[str] | None = None,
    about: About | None = None,
    secure_sum: bool = False,
    certify: bool | float = False,
    privacy: Privacy | None = None,
    **columns: Any,
) -> Solution:
    """Train one model with a bound on every group's loss, and judge it.

    Parameters
    ----------
    data
        A federation, a table or the path of one (with `columns`), or an engine.
    constraint
        A bound for every group, a mapping from group to bound, the name of a
        constraint ("bgl", "cbgl", "minmax", "per-silo", with the bound "auto"), or a
        constraint; None for a model without bounds.
    model
        One, or the name of a linear one ("logistic", "huber", …) with its own
        defaults; by default logistic, softmax or least squares, as the labels ask for.
    method
        One, or the name of one with its own defaults; the one that fits, see `Auto`.
    engine
        "local" or "reference", if a federation is given.
    options
        Silo weights, norm ball, confidence; see `Options`.
    random_state
        Seed of the run; drawn and recorded if None.
    callbacks
        Shown between rounds.
    checkpoint
        A directory in which to keep the log of the run. If the same run was stopped
        there, by an interruption, an error or a crash, it resumes, and ends as if it
        had not been; the seed may be left out. The log is removed once the run is
        finished; that of a `Log` stays, until its owner removes it. With a privacy
        budget nothing is kept of rows in one process, since it would tell of them.
    about
        Purpose, owner and date of the model, for its card.
    secure_sum
        Whether silos' answers are added under masks, so that no one reads a single
        silo's: what a federation of three sites and more does over machines.
    certify
        Find the model with the least risk whose bounds hold for new people, with this
        confidence (True: that of the options): see `Options.certify`.
    privacy
        Add noise to everything that is asked, within a budget: see `Privacy`. With
        `secure_sum` the silos share the noise; without, each adds all of it.
    columns
        Of a table: ``label=``, ``group=``, ``silo=`` and the other parameters of
        `Federation.from_table`.

    Returns
    -------
    Solution
        The model, its three verdicts, its certificate, tables, and all evidence. That
        a bound is missed or impossible is a status, and no error: `or_raise` makes it
        one.

    Raises
    ------
    UsageError
        Parameters that do not fit together, all of them named.
    DataError
        Rows that cannot be used, such as cells without any.
    FederationError
        A silo did not answer, or its answer was refused.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), random_state=0)
    >>> solution.status, bool(solution.cells["train_loss"].max() <= 0.65 + 1e-6)
    ('met', True)
    >>> impossible = pffl.solve(people, pffl.BoundedGroupLoss(0.5), random_state=0)
    >>> impossible.status, round(impossible.smallest_bound, 3)
    ('impossible', 0.622)
    """
    federation = as_federation(data, columns, random_state)
    constraint = as_constraint(constraint)
    model = model_of(model) if isinstance(model, str) else model
    if privacy is not None:
        privacy, federation = known_ranges(federation, privacy), dealt(federation)
    asker = (
        open_secured(federation, engine, model, privacy, constraint)
        if secure_sum
        else open_engine(federation, engine)
    )
    log = checkpoint if isinstance(checkpoint, Log | None) else Log(checkpoint)
    if random_state is None and log is not None:
        random_state = log.seed
    drawn = secrets.randbits(32)
    seed = drawn if random_state is None else int(random_state)
    setting, settings = setting_of(asker), options or Options()
    if certify:
        sure = settings.confidence if certify is True else certify
        settings = replace(settings, certify=True, confidence=sure)
    bare, choice = model or default_model(setting.schema), None
    used = default_method(bare) if method is None else method_of(method)
    notes: list[str] = []
    if privacy is not None:
        if privacy.repeatable and asker.federation is None:
            raise UsageError("not-between-machines")
        if asker.federation is not None:
            log = None  # a changed table could not be noticed without its fingerprint
        plan, clipped = private.planned(
            setting, constraint, model, used, settings, privacy
        )
        for callback in callbacks:
            callback.releasing(plan.lines())
        adding = private.adding_of(setting, privacy, shared=asker.pooled > 0)
        flow = private.run(
            setting, constraint, plan, clipped, used, settings, seed, adding
        )
        named: dict[str, Any] = {
            "data": {"schema": setting.schema.hash},
            "run": {"seed": seed},
            "privacy": privacy.describe(),
        }
    else:
        check_pooled(setting, constraint, used)
        if constraint is not None and constraint.open:
            run = Trials(asker, setting, constraint, bare, used, settings, seed)
            choice = choose_bound(run)
            notes.append(chosen_bound(choice, numeric=not setting.schema.labels))
            constraint = constraint.at(choice.bound)
        flow = solving(
            setting, constraint, model=model, method=used, options=settings, seed=seed
        )
        rows = {
            "schema": setting.schema.hash,
            "silos": files.digest(repr(list(setting.silo_names)))[:32],
            "fingerprint": setting.data.fingerprint,
        }
        named = {"data": rows, "run": {"seed": seed}}
    if log is not None:
        log.begin(
            model=bare.describe(),
            constraint=constraint and constraint.describe(),
            method={"kind": used.name, **vars(used)},
            options=settings,
            **named,
        )
    began = time.monotonic() - (0.0 if log is None else log.seconds)
    meter = Meter()
    solution = drive(asker, flow, callbacks=callbacks, log=log, meter=meter)
    e = replace(solution.evidence, about=about or About())
    if not isinstance(e.training, Missing):
        took = time.monotonic() - began if e.noise is None else 0.0  # it tells of rows
        training = replace(e.training, queries=meter.cost, seconds=took, choice=choice)
        e = replace(e, training=training)
    if not asker.pooled:
        e = with_scores(e, asker.federation, solution.model, solution.w)
    if privacy is None or asker.pooled or asker.federation is None:
        notes += asker.notes
    solution = noted(replace(solution, evidence=e), notes)
    if log is not None and log is not checkpoint and e.stopped != "interrupted":
        log.remove()
    for callback in callbacks:
        callback.solved(solution)
    return solution


def solving(
    setting: Setting,
    constraint: Constraint | None,
    *,
    model: Model | None = None,
    method: Method | None = None,
    options: Options | None = None,
    seed: int = 0,
) -> Flow[Solution]:
    """Solve, as a flow: census, training, every measurement.

    How much was asked, and how long it took, is for its driver to say.
    """
    settings, bare = options or Options(), model or default_model(setting.schema)
    asked = default_method(bare) if method is None else method
    problem, notes = yield from prepare(
        setting, constraint, bare, asked, settings, seed
    )
    if settings.certify:
        check_certifiable(setting, constraint, problem)
    chosen, why = asked.resolved(problem)
    minimax = constraint is not None and constraint.minimax
    goal: Any = "loss" if constraint is None else constraint.goal
    wanted = Wanted(
        setting.splits,
        weighted=setting.data.weighted,
        weight_bound=settings.weight_bound,
        confidence=settings.confidence,
        open_multipliers=asked.multiplier_bound is None and not minimax,
        baseline=settings.baseline,
        smallest=settings.smallest_bound,
        lockstep=setting.data.fingerprint is None,
    )
    path: ModelPath | Missing = NOT_ASKED
    if settings.certify:
        found, path = yield from fit_path(
            problem,
            chosen,
            wanted,
            models=settings.models,
            overlap=calibration_overlap(setting),
            rates=goal != "loss",
        )
    else:
        found = yield from fit(problem, chosen, wanted)
        if settings.selection_rate is not None and found.run.stopped is None:
            rate = settings.selection_rate
            if getattr(bare, "threshold", 0.5) != 0.5:
                raise UsageError("options-conflict:solving")
            found, cut = yield from at_selection_rate(found, rate, wanted)
            problem = deciding(problem, cut)
            share = f"{100 * rate:g} % of the training rows are selected, at most"
            notes = (*notes, f"threshold {cut:.6g}: {share}")
    run, solved = found.run, found.problem
    data = replace(setting.data, trained_on=setting.data.fingerprint)
    held = found.measured.heldout
    if isinstance(path, ModelPath) and isinstance(held, Sample):
        own = held.splits == [path.split]
        data = replace(data, overlap=path.overlap if own else data.overlap)
    evidence = evidence_of(
        data,
        replace(problem, multiplier_bound=solved.multiplier_bound),
        run.point,
        found.measured,
        terms_of(
            solved,
            replace(wanted, loss_bound=found.loss_bound),
            settings.weighting,
            chosen.target_gap if chosen.saddle else None,
            goal=goal,
        ),
        training=Training(
            dict(chosen.describe()),
            {} if constraint is None else dict(constraint.describe()),
            problem.seed,
            run.rounds,
            run.stopped,
            {},
            0.0,
            chosen=f"Solver: {chosen.name} ({why})" if why else None,
        ),
        promise=problem.n_cells > 0 and not minimax,
        minimax=minimax,
        notes=notes,
        aimed=solved.cells.bounds,
    )
    evidence = replace(evidence, path=path)
    return Solution.of(run.point, problem, run.history, evidence, setting.encoding)


def known_ranges(federation: Federation | Engine, privacy: Privacy) -> Privacy:
    """Add the ranges that the data come with; those that are given go before."""
    here = federation if isinstance(federation, Federation) else federation.federation
    if here is None or not here.ranges:
        return privacy
    return replace(privacy, ranges={**here.ranges, **privacy.ranges})


def dealt(federation: Federation | Engine) -> Federation | Engine:
    """Deal rows in this process by a keyed hash; sites elsewhere do so themselves."""
    if isinstance(federation, Federation):
        return federation.keyed()
    here = federation.federation
    if here is not None and not here.private:
        raise UsageError("needs-federation")
    return federation


def planned_releases(
    federation: Federation,
    constraint: Constraint | None,
    *,
    model: Model | None,
    method: Method,
    options: Options,
    privacy: Privacy,
) -> list[str]:
    """Return what a run with noise would release; nothing is asked of the rows."""
    setting = setting_of(open_engine(federation.keyed(), "local"))
    terms = known_ranges(federation, privacy)
    plan, _ = private.planned(setting, constraint, model, method, options, terms)
    return plan.lines()


def noted(solution: Solution, more: Iterable[str]) -> Solution:
    """Add what came to be known on the way, of silos say."""
    e = solution.evidence
    told = [*more, *e.notes, *Conclusions(e).remarks]
    notes = list(dict.fromkeys(told))
    return replace(solution, evidence=replace(e, notes=notes))


def default_method(model: Model) -> Method:
    """Return `Auto`; `PFFL` for models that are not linear, with all it can do."""
    return Auto() if isinstance(model, LinearModel) else PFFL()


def as_federation(
    data: Federation | Engine | Table, columns: Mapping[str, Any], seed: int | None
) -> Federation | Engine:
    """Return silos as they are, and a table as a federation by its columns."""
    if not (isinstance(data, Federation) or hasattr(data, "ask_many")):
        drawn: dict[str, Any] = {} if seed is None else {"random_state": seed}
        return Federation.from_table(cast("pd.DataFrame", data), **drawn, **columns)
    if columns:
        raise UsageError(
            "options-conflict:as-federation", columns=", ".join(sorted(columns))
        )
    return cast("Federation | Engine", data)


def open_engine(federation: Federation | Engine, engine: str) -> Engine:
    """Return the named engine for a federation, or the engine itself."""
    if not isinstance(federation, Federation):
        return federation
    if engine == DEPLOYED:
        raise UsageError("wrong-engine:open-engine")
    if engine not in ENGINES:
        raise UsageError("unknown-engine", engine=engine, engines=sorted(ENGINES))
    return ENGINES[engine](federation)


def open_secured(
    federation: Federation | Engine,
    engine: str,
    model: Model | None,
    privacy: Privacy | None = None,
    constraint: Constraint | None = None,
) -> Engine:
    """Return an engine for secure sums: over sites made here, or the one given."""
    from pffl.deploy.server import secured

    if isinstance(federation, Federation):
        if engine != "local":
            raise UsageError("wrong-engine:open-secured", engine=engine)
        return secured(federation, model, privacy, constraint)
    if not federation.pooled:
        raise UsageError("wrong-engine:open-secured-2")
    return federation


def setting_of(engine: Engine) -> Setting:
    """Say what is known of the silos that an engine reaches."""
    here, pooled = engine.federation, engine.pooled
    data = Data(
        engine.name, pooled or len(engine.silo_names), engine.schema.hash, None
    )  # rows that are elsewhere: not known whether they are synthetic
    if here is not None:
        data = replace(
            data,
            name=here.name,
            synthetic=here.synthetic,
            fingerprint=here.fingerprint,
            notes=list(here.notes),
            overlap=here.overlap if "test" in here.splits else None,
            by_person=here.by_person,
            several=here.several,
            shared=here.shared,
            weighted=here.weighted,
            weights=here.weight_range,
            splits=dict(here.held_out),
        )
    if pooled:
        known = Setting.pooled(
            engine.name, engine.encoding, engine.splits, pooled, engine.floor
        )
        return replace(known, data=data)
    apart = here if here is not None and CALIBRATION in here.splits else None
    return Setting(
        engine.schema,
        engine.silo_names,
        engine.splits,
        data,
        engine.encoding,
        Access(elsewhere=here is None),
        None if apart is None else apart.repeated(CALIBRATION),
    )


def prepared(
    engine: Engine,
    constraint: Constraint | None,
    model: Model | None,
    method: Method,
    options: Options,
    seed: int,
) -> tuple[Problem, tuple[str, ...]]:
    """Ask an engine for the census, and build the problem; also return notes."""
    setting = setting_of(engine)
    problem, notes = drive(
        engine, prepare(setting, constraint, model, method, options, seed)
    )
    return problem, (*engine.notes, *notes)
