"""Evidence: all that was declared and measured of one model, in one plain record.

After training every further query is asked once (`measure`), and what came back is
kept here. Verdicts, sentences, tables, page and exit code are pure functions of it. A
part that could not be had is `Missing`, and says why. Vectors are plain lists.

certificate.json is the file that all of it can be verified from. It begins with what a
reader looks for, and ends with what all of it follows from:

    verdicts       training, test, new_people: of each a word and a sentence
    date, data     as stated; the name of the data
    groups, bounds one bound for each group, or null
    confidence     1 − δ of statements on new people
    statements     every claim with its number, figures per group, and grounds
    fingerprints, notes
    format, version
    figures        every figure that is shown anywhere: what result.json holds
    evidence       this record: see `Evidence`

`schemas/` has its JSON Schema, which a test compares with the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

import numpy as np

from pffl.bounds.checks import Interval
from pffl.bounds.gap import gap_of
from pffl.bounds.infeasible import FAR, NEAR, Support
from pffl.bounds.mean import MOMENTS, Bets, Moments
from pffl.errors import ArtefactError, Problems, UsageError, wrong
from pffl.privacy.terms import epsilon_of
from pffl.records import Record, read
from pffl.typing import FloatArray

if TYPE_CHECKING:
    from pffl.flow import Bounds

FORMAT = "pffl.evidence"
VERSION = 3
WEIGHTED = "needs rows of equal weight"

Stopped: TypeAlias = Literal["diverged", "interrupted"] | None
T = TypeVar("T")


@dataclass(frozen=True)
class Missing(Record):
    """A part that is not available, and why."""

    missing: str


NOT_ASKED = Missing("not asked for")
AT_HAND = Missing("the silos were in one process: no one else answered")


@dataclass(frozen=True)
class Cell(Record):
    """One cell: its name, its bound, who belongs to it, and its multiplier λ.

    Attributes
    ----------
    silo
        The silo that it is confined to, if any.
    of
        Pairs of group and label; the label is None for a numeric target.
    scale
        Its mean loss under the best constant model of all rows: what is small against
        it is small.
    aimed
        The bound that the solver was given: the cell's own, less the margin of the
        model on a path; None where they are the same.
    """

    cell: str
    bound: float
    silo: str | None
    of: list[tuple[str, str | None]]
    multiplier: float
    scale: float = 1.0
    aimed: float | None = None


@dataclass(frozen=True)
class Sample(Record):
    """Sums over the rows of some splits, at one w.

    Attributes
    ----------
    splits
        The splits that were added.
    risk, bounded_risk, share
        Σ p_k × silo k's mean loss, of the model and of the bounded predictor, and Σ
        p_k, over the silos with rows.
    cells, strata
        The columns of `evaluate`, one number per cell, and per group and label.
    bets, bet_weights
        γ and π of each cell, planned before these rows were looked at; none where they
        stand for no others.
    people
        Sums over the people of each cell, of `STAKES`: how many they are, how many rows
        are above s_max, and moments of t = weight / s_max and x = bounded loss / M. A
        person's are the means of theirs; rows are people where no id is
        known. Of unweighted rows t and s_max are 1.
    levels, logs
        The losses at which bets are tested, and Σ log(1 − γu) over a cell's people for
        each bet and level, u = tx + (1 − t)·level/M. Of unweighted rows: 0 and M.
    """

    splits: list[str]
    risk: float
    bounded_risk: float
    share: float
    cells: dict[str, list[float]]
    strata: dict[str, list[float]]
    bets: list[list[float]] = field(default_factory=list)
    bet_weights: list[list[float]] = field(default_factory=list)
    people: dict[str, list[float]] = field(default_factory=dict)
    levels: list[list[float]] = field(default_factory=list)
    logs: list[list[list[float]]] = field(default_factory=list)

    def column(self, name: str, *, of: str = "strata") -> FloatArray:
        """One column by name, per stratum or (``of="cells"``) per cell."""
        table = self.strata if of == "strata" else self.cells
        if name == "wrong":
            return self.column("weight", of=of) - self.column("correct", of=of)
        return np.asarray(table[name], dtype=np.float64)

    def of_cells(self, column: str) -> FloatArray:
        """One column, a number per cell."""
        return self.column(column, of="cells")

    def of_strata(self, column: str, groups: int) -> FloatArray:
        """One column, shape (groups, labels)."""
        return np.asarray(self.strata[column], dtype=np.float64).reshape(groups, -1)

    def of_people(self, column: str) -> FloatArray:
        """One column over people, a number per cell.

        That is what bounds on unseen people take: rows of one person are no independent
        draws.
        """
        return np.asarray(self.people[column], dtype=np.float64)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(sum(self.strata["count"]))

    @property
    def weighted(self) -> bool:
        """Whether some rows count more than others."""
        return self.strata["weight"] != self.strata["count"]

    @property
    def means(self) -> FloatArray:
        """Mean loss per cell of the shipped predictor; NaN where there are no rows."""
        return self.mean_of("bounded_loss")

    @property
    def own_means(self) -> FloatArray:
        """Mean loss per cell of the model itself; NaN where there are no rows."""
        return self.mean_of("loss")

    def overall(self, column: str) -> float:
        """Return the mean of a column over all rows."""
        return float(self.column(column).sum() / self.column("weight").sum())

    @property
    def variances(self) -> FloatArray:
        """Variance per cell of the bounded predictor's losses; NaN without rows."""
        second = self.mean_of("bounded_loss_squared")
        return np.maximum(second - self.means**2, 0.0)

    def mean_of(self, column: str) -> FloatArray:
        """Mean of a column per cell; NaN where there are no rows."""
        weight, sums = self.of_cells("weight"), self.of_cells(column)
        out = np.full_like(sums, np.nan)
        return np.divide(sums, weight, out=out, where=weight > 0)

    @property
    def plain(self) -> Sample:
        """The same without what is there for statements on unseen people."""
        return replace(self, bets=[], bet_weights=[], people={}, levels=[], logs=[])

    def moments(self, cell: int) -> Moments | None:
        """Moments of a cell's people; None without any."""
        if not self.people:
            return None
        sums = np.array([self.people[name][cell] for name in MOMENTS])
        return Moments.of(sums, self.people["count"][cell])

    @property
    def unweighted(self) -> bool:
        """Whether bets are on unweighted rows: levels do not matter."""
        return bool(self.levels) and len(self.levels[0]) == 2

    @property
    def planned(self) -> Bets | None:
        """The bets, as the log-sum bound takes them; None without any."""
        if not self.bets:
            return None
        return Bets(np.array(self.bets), np.array(self.bet_weights))


@dataclass(frozen=True)
class Before(Record):
    """The same model fitted without bounds: its weights, and sums by split."""

    model: list[float]
    samples: dict[str, Sample]


@dataclass(frozen=True)
class ModelFacts(Record):
    """The model: what it is, how long its weights are, and whether it is convex.

    `unit` is what losses are measured in: that of a prediction one scale of a numeric
    target off, and 1 of classes.
    """

    kind: str
    parameters: int
    outputs: int
    length: float
    l2: float
    unit: float
    convex: bool
    linear: bool
    described: dict[str, Any]
    fingerprint: str

    @property
    def mu(self) -> float:
        """Weight of (·/2)‖w‖² next to losses: μ, in their unit."""
        return self.l2 * self.unit


@dataclass(frozen=True)
class Data(Record):
    """The rows: what they are called, and what is known of them.

    Attributes
    ----------
    synthetic
        Whether no real person is described; None if unknown.
    fingerprint
        Hash of the rows, where they are known.
    trained_on
        Hash of the rows that the model was trained on, if known.
    overlap
        Held-out rows that are training rows, too; None if unknown.
    by_person
        Whether an id names the person of each row: then `overlap` counts rows of people
        who are in training as well, otherwise rows that equal a training row.
    splits
        Hash of the rows of each split but ``train``, inputs and labels, where rows are
        in one process.
    several
        Whether an id says that some people have several rows: those are no independent
        draws.
    shared
        How many people have rows in several silos; None if unknown.
    weighted, weights
        Whether held-out rows have weights, where rows are in one process; then the
        smallest and largest weight of a training row.
    """

    name: str
    silos: int
    schema: str
    synthetic: bool | None
    fingerprint: str | None = None
    trained_on: str | None = None
    overlap: int | None = None
    by_person: bool = False
    several: bool = False
    shared: int | None = None
    splits: dict[str, str] = field(default_factory=dict)
    weighted: bool | None = None
    weights: list[float] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def other(self) -> bool:
        """Whether these are known not to be the rows that the model was trained on."""
        known = None not in (self.trained_on, self.fingerprint)
        return known and self.trained_on != self.fingerprint


@dataclass(frozen=True)
class Declared(Record):
    """What was declared.

    Attributes
    ----------
    weighting
        Of silos in the risk: equally, or by rows.
    risk_weight, multiplier_bound, radius
        β, B and R of the norm ball.
    loss_bound
        M: the shipped predictor is kept within limits so that no loss is above it; None
        if it is not.
    clipping
        How M was found: declared, or chosen on training rows. Of a model from
        elsewhere: asked for (``clip``), or the declared range of its outputs.
    weight_bound
        s_max: no weight is above it, where rows have weights; as declared.
    target_gap
        The duality gap that a converged run is under, relative to (β + Σλ)·unit; None
        for methods that do not aim at the saddle point.
    confidence
        1 − δ of a statement on unseen people.
    candidates, counted
        How many models were compared on the held-out rows, all fixed before the first
        look, and share δ; whether the folder counted.
    later, others
        This is the `later`-th certificate on the same rows after the first; and how
        many models with other settings the folder knows to be measured on them.
    goal
        What bounds are on: the mean loss, or a rate.
    """

    weighting: Literal["silos", "rows"]
    risk_weight: float
    multiplier_bound: float
    radius: float
    loss_bound: float | None
    confidence: float
    clipping: Literal["declared", "chosen", "clip", "range"] | None = None
    target_gap: float | None = None
    candidates: int = 1
    counted: bool = False
    later: int = 0
    others: int = 0
    weight_bound: float | None = None
    goal: Literal["loss", "error", "fnr", "fpr"] = "loss"

    @property
    def on_rates(self) -> bool:
        """Whether bounds are on rates: the share of wrong predictions in each cell."""
        return self.goal != "loss"

    @property
    def later_part(self) -> int:
        """l(l + 1): what divides the risk of the l-th later certificate on the rows."""
        return max(1, self.later * (self.later + 1))


@dataclass(frozen=True)
class Pair(Record):
    """The duality gap of (w, λ): its two ends, and where the lower one was proved.

    The lower end holds for ‖w‖ ≤ `radius`, or for all w where that is None.
    """

    upper: float
    lower: float
    at: list[float]
    radius: float | None = None

    @classmethod
    def of(cls, bounds: Bounds) -> Pair:
        """Return what a method, or a measurement, ended with."""
        upper, lower, at, radius = bounds
        return cls(upper, lower, at.tolist(), radius if np.isfinite(radius) else None)

    @property
    def gap(self) -> float:
        """ν: upper − lower, at least what rounding can hide."""
        return gap_of(self.upper, self.lower)


@dataclass(frozen=True)
class Least(Record):
    """How low bounds can go: s* = min_w max_z (mean loss of z − offset_z).

    Attributes
    ----------
    offsets
        What each bound has besides the common part: 0 for all, if the bounds are equal.
    lower, upper
        Enclose s*; `lower` among all w with ‖w‖ ≤ `reach`.
    multipliers, at, direction
        λ on the simplex, w and v of the `witness` that proves `lower`.
    reach, slope
        How far the proof goes, and what `lower` loses for each unit further.
    longest
        Length of the longest w that was seen, or that at which weights begin to matter.
    model, risk
        A w that attains `upper`, and its F.
    """

    lower: float
    upper: float
    multipliers: list[float]
    at: list[float]
    direction: list[float]
    reach: float
    slope: float
    longest: float
    model: list[float]
    offsets: list[float]
    risk: float

    @property
    def everywhere(self) -> bool:
        """Whether `lower` holds for all models, for any purpose."""
        return self.reach >= FAR * self.longest

    def enclosed(self, longest: float = 0.0) -> tuple[Interval, float]:
        """Enclose s*, and say up to which ‖w‖ the lower end holds.

        That is well beyond the longest w known of: no proof may leave out a model that
        was found. Where it would, it is made to reach further, at the price of its
        slope.
        """
        reach = max(self.reach, NEAR * max(longest, self.longest))
        lower = max(0.0, self.lower - (reach - self.reach) * self.slope)
        return Interval(min(lower, self.upper), self.upper), reach

    def excess(self, bounds: FloatArray) -> Interval:
        """Enclose what all bounds must rise by; they differ as the offsets do."""
        base = float(bounds.max())
        return Interval(self.lower - base, self.upper - base)

    def proof(
        self, bounds: FloatArray, longest: float = 0.0
    ) -> tuple[float, float] | None:
        """Return by how much bounds are impossible, up to which ‖w‖; None if not.

        `longest` is the length of the longest w that is known of elsewhere.
        """
        value = self.lower + self.reach * self.slope - float(bounds.max())
        return Support(value, self.slope).proof(max(longest, self.longest))


@dataclass(frozen=True)
class Proofs(Record):
    """What was proved of the training rows.

    Attributes
    ----------
    gap
        The ends of the duality gap.
    least
        How low the bounds can go together, the differences between them kept.
    """

    gap: Pair | Missing
    least: Least | Missing


@dataclass(frozen=True)
class BoundTrial(Record):
    """One bound that was tried, and what its model did on the rows set aside.

    Attributes
    ----------
    bound
        None: without the bounds that are chosen.
    worst, cell
        The largest loss of a cell whose bound is chosen, and whose it is.
    error
        Share of wrong predictions; the mean loss for a numeric target.
    """

    bound: float | None
    worst: float
    cell: str
    error: float


@dataclass(frozen=True)
class Choice(Record):
    """The bound that was chosen, and all that were tried, without bounds first.

    Attributes
    ----------
    error_at_most
        The error that was allowed: a little above that of the first trial.
    aside, rows
        How many of n training rows were set aside.
    """

    bound: float
    error_at_most: float
    aside: int
    rows: int
    trials: list[BoundTrial]


@dataclass(frozen=True)
class Candidate(Record):
    """One model of a path, and what training and calibration rows say of it.

    Attributes
    ----------
    margin
        The least room of a cell below its bound on training rows, in units of
        `ModelPath.spread`.
    model
        Its weights.
    loss_bound
        M of its predictor.
    training
        Sums over the training rows, and the moments that bets on weighted rows are
        planned by.
    calibration
        Sums over the calibration rows, with bets that were planned before.
    """

    margin: float
    model: list[float]
    loss_bound: float
    training: Sample
    calibration: Sample


@dataclass(frozen=True)
class ModelPath(Record):
    """Models that were fixed before a calibration row was looked at, safest first.

    Attributes
    ----------
    split
        The rows that they were tested on.
    confidence
        1 − δ of each test by which the model was chosen.
    spread
        About one standard error of each cell's mean on these rows, by training rows.
    candidates
        The models, in the order in which they are tested.
    chosen
        Place of the model that is shipped: the last up to which every one was shown,
        or the first.
    overlap
        Calibration rows that are training rows, too; see `Data.overlap`.
    """

    split: str
    confidence: float
    spread: list[float]
    candidates: list[Candidate]
    chosen: int
    overlap: int | None = None

    @property
    def shipped(self) -> Candidate:
        """The model that is shipped."""
        return self.candidates[self.chosen]


@dataclass(frozen=True)
class Training(Record):
    """How the model came about.

    Attributes
    ----------
    method, constraint
        Plain forms.
    rounds, stopped
        Rounds of the method, and why it ended early, if it did.
    queries
        Asked of the federation in all, different ones among them, and the messages in
        which they went out.
    choice
        How the bound was chosen, where it was.
    chosen
        Why this method, in words, where it was chosen.
    settled
        Whether losses had settled at the end, where another app trained.
    """

    method: dict[str, Any]
    constraint: dict[str, Any]
    seed: int
    rounds: int
    stopped: Stopped
    queries: dict[str, int]
    seconds: float
    choice: Choice | None = None
    chosen: str | None = None
    settled: bool | None = None


@dataclass(frozen=True)
class Released(Record):
    """Sums that were released, `times` times.

    Attributes
    ----------
    sensitivity
        Δ: the length of what one person can change.
    mu, sigma
        Standard deviation that the account counts on, and μ = √times·Δ/sigma.
    deviation
        Standard deviation of what was added in all, by all sites.
    """

    name: str
    split: str
    times: int
    mu: float
    sensitivity: float
    sigma: float
    deviation: float


@dataclass(frozen=True)
class Figures(Record):
    """What was released of one split, per stratum, unchanged: with noise, not rounded.

    Attributes
    ----------
    counts, losses, correct
        People, sums of their bounded losses, and of correct predictions.
    count_deviation, loss_deviation
        Of the noise in each of the first two.
    logs, log_deviation
        Σ log(1 − γx) per cell and bet, and of each the deviation of its noise; none of
        training rows.
    bets, bet_weights
        γ and π.
    """

    counts: list[float]
    losses: list[float]
    correct: list[float]
    count_deviation: float
    loss_deviation: float
    logs: list[list[float]] = field(default_factory=list)
    log_deviation: list[list[float]] = field(default_factory=list)
    bets: list[float] = field(default_factory=list)
    bet_weights: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Noise(Record):
    """The privacy of a run: what was declared, released and spent.

    Attributes
    ----------
    epsilon, delta, mu
        Of all that was released about one person of the training rows.
    heldout_epsilon, heldout_mu
        Of one person of the held-out rows, who is another one.
    clip, loss_bound
        What bounds a person's inputs and loss.
    repeatable
        Whether a seed repeats the noise: then nothing is private.
    sites, shared, colluding
        How many sites added noise; whether they share it, inside secure sums; and of
        how many it is then not counted on.
    by_id
        Whether an id says whose rows are; otherwise each row counts as a person.
    releases
        Everything that was released.
    seen, heldout
        The figures that statements are made from.
    """

    epsilon: float
    delta: float
    mu: float
    heldout_epsilon: float | None
    heldout_mu: float | None
    clip: float
    loss_bound: float
    repeatable: bool
    sites: int
    shared: bool
    colluding: int
    releases: list[Released]
    seen: Figures
    heldout: Figures | None
    ranges: dict[str, list[float]] = field(default_factory=dict)
    by_id: bool = False

    @property
    def epsilon_spent(self) -> float:
        """ε of all that was released about one person of the training rows."""
        return epsilon_of(self.mu, self.delta)


@dataclass(frozen=True)
class Scores(Record):
    """How the probabilities of two classes are spread, of rows in one process.

    Attributes
    ----------
    splits
        The rows.
    thresholds
        Those that are tried; the first is the model's own.
    totals
        Weight of each stratum.
    selected
        Weight of those above each threshold, per stratum.
    auc, free_auc
        Area under the curve of each group, of the shipped predictor and without
        bounds; None where a label is missing.
    probabilities
        Σ weight × probability of the last label, per group.
    """

    splits: list[str]
    thresholds: list[float]
    totals: list[float]
    selected: list[list[float]]
    auc: list[float | None]
    probabilities: list[float]
    free_auc: list[float | None] | None = None


@dataclass(frozen=True)
class Sites(Record):
    """Who answered from elsewhere; under masks how many sites, as one.

    `floor` is how many people of a group a site needs under masks, to count them.
    """

    names: list[str]
    masked: int = 0
    floor: int = 1


@dataclass(frozen=True)
class About(Record):
    """Who answers for a model, and what for: stated by people, and not checked.

    Attributes
    ----------
    purpose
        What it is to be used for.
    owner, contact
        Who answers for it, and how to reach them.
    date
        As YEAR-MONTH-DAY.
    license
        Under which others may use it, by its identifier, such as ``apache-2.0``.

    Raises
    ------
    UsageError
        The date is not one, or a text is empty.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> about = About(purpose="a first look; a person decides", owner="Unit 7")
    >>> solution = pffl.solve(people, None, about=about, random_state=0)
    >>> "Unit 7" in solution.card()
    True
    """

    purpose: str | None = None
    owner: str | None = None
    date: str | None = None
    contact: str | None = None
    license: str | None = None

    def __post_init__(self) -> None:
        with Problems("about", UsageError) as problems:
            for key, value in vars(self).items():
                if value is not None and not value.strip():
                    problems.add(wrong(key, "[about]", "text that is not empty", value))
            if self.date is not None and not _is_date(self.date):
                problems.add(
                    wrong("date", "[about]", "a date such as 2026-11-16", self.date)
                )

    def with_more(self, more: About) -> About:
        """Return this with what another states."""
        given = {key: value for key, value in vars(more).items() if value is not None}
        return replace(self, **given)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


@dataclass(frozen=True)
class Evidence(Record):
    """All that was declared and measured.

    Attributes
    ----------
    promise
        Whether bounds were asked for; without, cells are only reported on.
    minimax
        Whether the worst cell was made as good as possible, without bounds.
    training
        The run; missing for a model from elsewhere.
    seen
        Sums over the training rows, or over all rows that were audited.
    heldout
        Sums over the rows that stand for unseen people.
    before
        The same model fitted without bounds, on training and test rows.
    about
        Purpose, owner and date, as they were stated.
    sites
        Who answered, where rows are elsewhere.
    path
        The models among which one was chosen, where a certificate was
        asked for in advance.
    privacy
        What noise was added, what it protects, and the figures that were released with
        it; then `seen` and `heldout` are made of these.
    scores
        Decisions at other thresholds, where rows are in one process.
    """

    promise: bool
    minimax: bool
    data: Data
    model: ModelFacts
    terms: Declared
    groups: list[str]
    labels: list[str]
    cells: list[Cell]
    training: Training | Missing
    seen: Sample
    heldout: Sample | Missing
    before: Before | Missing
    proofs: Proofs
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    about: About = About()
    path: ModelPath | Missing = NOT_ASKED
    sites: Sites | Missing = AT_HAND
    privacy: Noise | Missing = Missing("no noise was added")
    scores: Scores | Missing = Missing("needs two classes, and rows in one process")

    format: ClassVar[str] = FORMAT
    version: ClassVar[int] = VERSION

    @property
    def noise(self) -> Noise | None:
        """The noise of the run, if there was any."""
        return known(self.privacy)

    @property
    def trained(self) -> bool:
        """Whether the run that made the model is known."""
        return isinstance(self.training, Training)

    @property
    def weighted(self) -> bool:
        """Whether some rows count more than others."""
        samples = [self.seen]
        samples += [self.heldout] if isinstance(self.heldout, Sample) else []
        known = bool(self.data.weighted)
        return known or any(sample.weighted for sample in samples)

    @property
    def heldout_weighted(self) -> bool:
        """Whether that is so, as far as anybody knows, of the held-out rows."""
        known = self.data.weighted
        return self.weighted if known is None else known

    def judged(self, sample: Sample) -> str:
        """Return the column that is judged.

        Training rows: the model's own loss, but under noise. Others: the loss of the
        predictor that is shipped. That of a model from elsewhere without a bound is its
        own.
        """
        own = self.trained and sample.splits == ["train"]
        return "loss" if own and isinstance(self.privacy, Missing) else "bounded_loss"

    def means(self, sample: Sample) -> FloatArray:
        """Mean loss (or rate) per cell that bounds are on; NaN without rows."""
        return sample.mean_of("wrong" if self.terms.on_rates else self.judged(sample))

    @property
    def stopped(self) -> Stopped:
        """Why the run ended early, if it did."""
        return None if isinstance(self.training, Missing) else self.training.stopped

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the cells."""
        return tuple(cell.cell for cell in self.cells)

    @cached_property
    def bounds(self) -> FloatArray:
        """ζ, shape (Z,)."""
        return np.array([cell.bound for cell in self.cells], dtype=np.float64)

    @cached_property
    def aimed(self) -> FloatArray:
        """The bounds that the solver was given, shape (Z,)."""
        own = [c.bound if c.aimed is None else c.aimed for c in self.cells]
        return np.array(own, dtype=np.float64)

    @cached_property
    def scales(self) -> FloatArray:
        """The size of each cell's loss, shape (Z,)."""
        return np.array([cell.scale for cell in self.cells], dtype=np.float64)

    @cached_property
    def multipliers(self) -> FloatArray:
        """λ, shape (Z,)."""
        return np.array([cell.multiplier for cell in self.cells], dtype=np.float64)

    @property
    def risk(self) -> float | None:
        """F(w), with its ridge term; None without rows."""
        if self.seen.share <= 0:
            return None
        return (
            self.seen.risk / self.seen.share
            + 0.5 * self.model.mu * self.model.length**2
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain form, for certificate.json."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evidence:
        """Read the plain form; refuse whatever is not one."""
        known = dict(data)
        seen = (known.pop("format", None), known.pop("version", None))
        if seen != (FORMAT, VERSION):
            raise ArtefactError(
                "other-format:from-dict-2", seen=seen, format=(FORMAT, VERSION)
            )
        evidence = read(cls, known, source="evidence")
        if not evidence._fits():
            raise ArtefactError("bad-evidence")
        return evidence

    def _fits(self) -> bool:
        """Whether every table has a number per cell, and per group and label."""
        path, before, held = known(self.path), known(self.before), known(self.heldout)
        least, samples = known(self.proofs.least), [self.seen]
        samples += [] if held is None else [held]
        samples += [] if before is None else before.samples.values()
        for one in [] if path is None else path.candidates:
            samples += [one.training, one.calibration]
        tables: list[Any] = [] if least is None else [least.multipliers]
        for sample in samples:
            tables += [*sample.cells.values(), *sample.people.values()]
            planned = (sample.bets, sample.bet_weights, sample.levels, sample.logs)
            tables += [table for table in planned if table]
        by_stratum = [of for sample in samples for of in sample.strata.values()]
        strata = len(self.groups) * max(1, len(self.labels))
        return (
            all(len(table) == len(self.cells) for table in tables)
            and all(len(column) == strata for column in by_stratum)
            and (path is None or 0 <= path.chosen < len(path.candidates))
        )


def known(part: T | Missing) -> T | None:
    """Return a part, or None where it is missing."""
    return None if isinstance(part, Missing) else part
