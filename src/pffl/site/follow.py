"""A site follows the run: it answers what the agreed run asks next, and nothing else.

A run is a deterministic conversation. The site replays it from totals that it has added
up itself (`site.masking`), and compares what comes next with what it is asked: kinds,
shapes, whole numbers and texts must be the same, numbers that the run computes may
differ by what another processor rounds. So the server cannot choose a w. It is free to
end the training early, and nothing else.

Where the replay stands is plain data, one entry a stage, as in a server's checkpoint:
a process that lives for one message goes on with it.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pffl.callbacks import Callback, Round
from pffl.checkpoint import NotFinite, Tree
from pffl.driver import Driver, pack_total, unpack_total
from pffl.errors import PFFLError, Problems, Refused, UsageError
from pffl.flow import Flow
from pffl.parcel import Parcel
from pffl.preparation import Setting
from pffl.problem import Problem
from pffl.questions import CensusTotal, ModelQuestion, Question, Total
from pffl.questions.noised import Releasing
from pffl.sections import Plan, read_plan
from pffl.site.agreement import Agreement
from pffl.site.config import Rules
from pffl.solution import Solution
from pffl.solving import adding_of, solving, with_noise
from pffl.typing import BoolArray
from pffl.wire import masks
from pffl.wire.steps import Course

COPIES = 5  # of a total, in a replay
ROUNDING = 1e-9  # of an input's scale, of noise: what everybody adds in one way
EXACT = ("membership",)
SCALING = ("input_mean", "input_scale", "target")
W = "w"


@dataclass(frozen=True)
class Replay:
    """Where a replay stands, at the first question of an exchange.

    Attributes
    ----------
    before
        Totals of the exchanges in which the run found out what it is.
    journal
        Where its stages stand since then; see `driver`.
    given
        Totals of the steps of the present exchange.
    census, hidden
        As for `Course`, when the exchange began.
    seconds
        Processor time spent on the replay so far.
    """

    before: list[list[Total]] = field(default_factory=list)
    journal: Tree = None
    given: list[list[Total]] = field(default_factory=list)
    census: Mapping[str, CensusTotal] = field(default_factory=dict)
    hidden: Mapping[str, BoolArray] = field(default_factory=dict)
    seconds: float = 0.0

    def tree(self) -> Tree:
        """Plain form, for the file."""
        return {
            "before": [list(map(pack_total, totals)) for totals in self.before],
            "journal": self.journal,
            "given": [list(map(pack_total, totals)) for totals in self.given],
            "census": {split: pack_total(of) for split, of in self.census.items()},
            "hidden": dict(self.hidden),
            "seconds": self.seconds,
        }

    @classmethod
    def of(cls, tree: Tree) -> Replay:
        """Rebuild from the plain form; None is a run that has not begun."""
        if tree is None:
            return cls()
        return cls(
            [list(map(unpack_total, totals)) for totals in tree["before"]],
            tree["journal"],
            [list(map(unpack_total, totals)) for totals in tree["given"]],
            {split: unpack_total(of) for split, of in tree["census"].items()},
            tree["hidden"],
            tree["seconds"],
        )


class Follower:
    """Replays the run that the sites agreed on.

    Parameters
    ----------
    agreement
        With the run in it.
    rules
        How long a replay may take, and how much it may hold.

    Attributes
    ----------
    adding
        How the sites share the noise of the agreed run; None where it has none.
    """

    def __init__(self, agreement: Agreement, rules: Rules) -> None:
        self._agreement, self._rules = agreement, rules
        check_packages(agreement.packages)
        self._plan = plan_of(agreement)
        self._setting = Setting.pooled(
            agreement.name, agreement.encoding, agreement.splits, len(agreement.sites)
        )
        self.adding = None
        if (terms := self._plan.privacy.terms) is not None:
            if terms.repeatable:
                raise UsageError(
                    "the agreed run has a seed for the noise ('noise_seed'): whoever "
                    "knows it can take the noise off"
                )
            self.adding = adding_of(self._setting, terms, shared=True)

    def next(
        self, journal: Tree, totals: Sequence[Total], bodies: Sequence[Parcel]
    ) -> Tree:
        """Go on with the totals of the last step; refuse what the run does not ask now.

        Return where the replay then stands.
        """
        at = Replay.of(journal)
        at = replace(at, given=[*at.given, list(totals)] if totals else at.given)
        began, watch = time.process_time(), Watch()
        found, asked, differs = self._advance(at, watch, bodies)
        if differs and watch.seen:  # a server may end the training here
            ended, others, other = self._advance(at, Watch(stop=True), bodies)
            if not other:
                found, asked, differs = ended, others, None
        if differs:
            raise Refused(f"not what the agreed run asks next: {differs}")
        seconds = at.seconds + time.process_time() - began
        self._check_limits(seconds, asked)
        return replace(found, seconds=seconds).tree()

    def _check_limits(self, seconds: float, asked: Sequence[Question[Any]]) -> None:
        """Refuse a run that takes longer to follow, or more memory, than it may."""
        most = self._rules
        if seconds > most.replay_seconds:
            raise Refused(
                f"following the run has taken {seconds:.0f} s of processor time, and "
                f"the site gives it {most.replay_seconds} ('replay_seconds' in "
                "site.toml)"
            )
        copies = len(self._agreement.sites) + COPIES
        held = copies * sum(8 * masks.size(question) for question in asked)
        if held > most.replay_memory:
            raise Refused(
                f"the totals of a step take about {held / 1e6:,.0f} MB, and the site "
                f"gives them {most.replay_memory / 1e6:,.0f} ('replay_memory' in "
                "site.toml)"
            )

    def _flow(self) -> Flow[Solution]:
        plan, terms = self._plan, self._plan.privacy.terms
        known: dict[str, Any] = {
            "model": plan.model_for(self._agreement.schema),
            "method": plan.method,
            "options": plan.options,
            "seed": plan.settings.seed or 0,
        }
        if terms is None or self.adding is None:
            return solving(self._setting, plan.constraint, **known)
        return with_noise(
            self._setting, plan.constraint, privacy=terms, adding=self.adding, **known
        )

    def _advance(
        self, at: Replay, watch: Watch, bodies: Sequence[Parcel]
    ) -> tuple[Replay, list[Question[Any]], str | None]:
        """Let the run go on until it asks for a step whose totals are not given.

        Return where it stands, what it asks, and how that differs from what is asked
        of the site; if in nothing but rounding, it goes on from the w that was sent.
        """
        kept = Kept(at.journal)
        driver = Driver(1, callbacks=[watch], keeper=kept)
        try:
            with (
                closing(driver.exchanges(self._flow())) as exchanges,
                warnings.catch_warnings(action="ignore"),
            ):
                questions = next(exchanges)
                for totals in at.before:
                    questions = exchanges.send(totals)
                while True:
                    course = self._course(at)
                    step, totals = _through(course.steps(questions), at.given)
                    if step is not None:
                        allowed = self._rules.replay_tolerance
                        differs = difference(step, bodies, allowed)
                        if not differs:
                            adopt(step, bodies)
                        return replace(at, journal=kept.tree()), step, differs
                    before = at.before if kept.begun else [*at.before, totals]
                    at = replace(
                        at,
                        before=before,
                        given=[],
                        census=dict(course.census),
                        hidden=dict(course.hidden),
                    )
                    questions = exchanges.send(totals)
        except StopIteration:
            raise Refused("the agreed run is over, and asks nothing more") from None
        except (PFFLError, KeyboardInterrupt, NotFinite) as error:
            why = f": {error}" if isinstance(error, PFFLError) else ""
            raise Refused(f"the agreed run ends here{why}") from error

    def _course(self, at: Replay) -> Course:
        agreed = self._agreement
        counting = self.adding is None
        course = Course(agreed.schema, agreed.splits, agreed.floor, counting=counting)
        course.census, course.hidden = dict(at.census), dict(at.hidden)
        return course


class Kept:
    """The journal of a replay, in memory."""

    identity: Mapping[str, Any]

    def __init__(self, saved: Tree) -> None:
        self.identity = {}
        self.begun = False  # whether the run knows what it is
        self._saved = saved
        self._make: Callable[[], Tree] | None = None

    def load(self) -> Tree:
        """Return where the run stood."""
        self.begun = True
        return self._saved

    def offer(self, journal: Callable[[], Tree]) -> None:
        """Take where it stands."""
        self._make = journal

    def flush(self) -> None:
        """Do nothing: it is saved with the rest."""

    def tree(self) -> Tree:
        """Return where it stands now."""
        return self._saved if self._make is None else self._make()


class Watch(Callback):
    """Sees whether a round of the training ended; and ends it there, if told to."""

    def __init__(self, *, stop: bool = False) -> None:
        self.stop, self.seen = stop, False

    def after_round(self, problem: Problem, row: Round) -> bool:
        """Note that there was a round."""
        self.seen = True
        return self.stop


def _through(
    steps: Any, given: Sequence[list[Total]]
) -> tuple[list[Question[Any]] | None, list[Total]]:
    """Return the step that comes after those given; None and all totals at the end."""
    try:
        step: list[Question[Any]] = next(steps)
        for totals in given:
            step = steps.send(totals)
    except StopIteration as done:
        return None, done.value
    return step, []


def plan_of(agreement: Agreement) -> Plan:
    """Return the run that was agreed on; raise all that is wrong with it at once."""
    with Problems("the agreed run", UsageError) as problems:
        plan = read_plan(agreement.run, problems)
    if plan is None or plan.settings.seed is None:
        raise UsageError("the agreed run has no seed: all must draw alike")
    return plan


def check_packages(packages: Mapping[str, str]) -> None:
    """Refuse other versions of what the agreed run needs beside pffl."""
    for name, wanted in packages.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "none"
        if found != wanted:
            raise UsageError(
                f"the agreed run needs {name} {wanted}, and this site has {found}"
            )


# What is asked, beside what the run asks


def difference(
    own: Sequence[Question[Any]], posed: Sequence[Parcel], tolerance: float
) -> str | None:
    """Say where questions first differ from the agreed run's; None if nowhere."""
    kinds = [question.kind for question in own]
    asked = [str(body.header.get("question"))[:40] for body in posed]
    if kinds != asked:
        return f"{_named(asked)}, where it asks {_named(kinds)}"
    for number, (question, body) in enumerate(zip(own, posed, strict=True), start=1):
        header, arrays = question.plain(0)
        plain = json.loads(json.dumps(header))  # as it reads in a message
        for name, far in _far(plain, arrays, body):
            # What a release costs is agreed on: only where it is asked may be off.
            exact = isinstance(question, Releasing) and name != W
            if not far <= (min(ROUNDING, tolerance) if exact else tolerance):
                what = f"'{name}' of question {number} ({question.kind}) is another"
                if not np.isfinite(far):
                    return what
                limit = f"{tolerance:g} ('replay_tolerance' in site.toml)"
                return f"{what}: it differs by {far:.1e}, and may by {limit}"
    return None


def adopt(own: Sequence[Question[Any]], posed: Sequence[Parcel]) -> None:
    """Put the w that was sent in the place of one's own, in the run's own state.

    The totals are of that w, and roundings do not add up over steps.
    """
    for question, body in zip(own, posed, strict=True):
        if isinstance(question, ModelQuestion) and question.w.flags.writeable:
            np.copyto(question.w, body.arrays[W])


def _named(kinds: Sequence[str]) -> str:
    return " and ".join(kinds) or "nothing"


def _far(
    header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], posed: Parcel
) -> Iterator[tuple[str, float]]:
    """Yield by how much each field differs; by infinitely much if it may not at all."""
    for name in sorted(header.keys() | posed.header.keys()):
        mine, theirs = header.get(name), posed.header.get(name)
        if type(mine) is float and type(theirs) is float:
            yield name, _ratio(abs(mine - theirs), abs(mine))
        else:
            there = (name in header) == (name in posed.header)
            same = there and mine == theirs and type(mine) is type(theirs)
            yield name, 0.0 if same else np.inf
    for name in sorted(arrays.keys() | posed.arrays.keys()):
        yield name, _apart(name, arrays, posed.arrays.get(name))


def _apart(
    name: str, own: Mapping[str, NDArray[Any]], theirs: NDArray[Any] | None
) -> float:
    """Return by how much an array differs from one's own."""
    mine = own.get(name)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return np.inf
    gap = np.abs(mine - theirs)
    if name in SCALING:
        scale = own["target"][1] if name == "target" else own["input_scale"]
        return 0.0 if (gap <= ROUNDING * scale).all() else np.inf
    largest = float(np.abs(mine).max(initial=0.0))
    size = 0.0 if name in EXACT else max(1.0, largest) if name == W else largest
    return _ratio(float(gap.max(initial=0.0)), size)


def _ratio(gap: float, size: float) -> float:
    return 0.0 if gap == 0 else gap / size if size else np.inf
