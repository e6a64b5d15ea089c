"""From a federation and a constraint to a problem: census, scaling, cells, refusals."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pffl.constraints import Cells, Constraint
from pffl.data.checks import listing
from pffl.data.columns import TableEncoder
from pffl.data.schema import Schema
from pffl.errors import DataError, Problems, UsageError
from pffl.evidence.record import Data
from pffl.flow import Flow, ask
from pffl.methods import METHODS, Method
from pffl.methods.base import MULTIPLIER_BOUNDS
from pffl.models.base import Inputs, Model, Target
from pffl.models.linear import LinearModel, default_model
from pffl.numerics import divisors
from pffl.problem import Access, Problem
from pffl.queries import Census, CensusTotal, Pool, Task
from pffl.records import Count, Positive, Probability, check_parameters
from pffl.text import up
from pffl.typing import FloatArray

Weighting = Literal["silos", "rows"]

RADIUS = 100.0  # of the norm ball at the start, for inputs with a mean square of 1
NARROW = 1e-6  # of the mean square: a smaller variance has lost digits
ALIKE = 1e-6  # of the largest input's size: smaller ones play no part in it
FAR = 20  # times the loss of a constant guess: a bound with a slip in it


@dataclass(frozen=True)
class Options:
    """How `solve` trains and measures, whatever the model and the method.

    Attributes
    ----------
    weighting
        p_k: "silos" gives every silo 1/K (the paper), "rows" m_k/m.
    empty_cells
        "refuse" cells without rows, or "remove" them and say so.
    radius
        R of a declared norm ball ‖w‖ ≤ R, for the solver where there is no ridge.
        None: the solver starts with one from the data, which grows where models come
        near it.
    weight_bound
        What no row's weight is above, seen or unseen, where rows have weights. None:
        no statement on new people.
    confidence
        Of the statements about unseen people.
    baseline
        Whether to also fit the model without bounds (linear models only), so that each
        cell's loss before and after can be shown.
    smallest_bound
        Whether to enclose how low all bounds can go together (linear models only).
        None: where a bound is missed.
    selection_rate
        Of two classes: the share of people to select. The threshold is chosen on the
        training rows, after training; None keeps the model's own.
    certify
        Whether to find the model with the least risk whose bounds hold for new people,
        with the confidence asked for.
    models
        With `certify`: how many models are tried, at most. None: 20, and 6 where rows
        are elsewhere or the model is a network. More cost time, and no confidence.

    Raises
    ------
    UsageError
        A parameter is out of its range.

    Examples
    --------
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"])
    >>> options = pffl.Options(weighting="rows", confidence=0.9)
    >>> bounds = pffl.BoundedGroupLoss(0.65)
    >>> pffl.solve(people, bounds, options=options, random_state=0).confidence
    0.9
    """

    weighting: Weighting = "silos"
    empty_cells: Literal["refuse", "remove"] = "refuse"
    radius: Positive | None = None
    weight_bound: Positive | None = None
    confidence: Probability = 0.95
    baseline: bool = True
    smallest_bound: bool | None = None
    selection_rate: Probability | None = None
    certify: bool = False
    models: Count | None = None

    def __post_init__(self) -> None:
        with Problems("options", UsageError) as problems:
            check_parameters(self, problems)
            if self.selection_rate is not None and self.certify:
                problems.add("options-conflict:options")
            if self.models is not None and not self.certify:
                problems.add("no-effect:options")


def risk_weight_and_bound(
    constraint: Constraint | None, method: Method
) -> tuple[float, float]:
    """Return β and B, the bound on multipliers: the constraint's, or the method's.

    Where the method leaves B open, it is the one to start with.
    """
    beta, bound = None, None
    if constraint is not None:
        beta, bound = constraint.risk_weight, constraint.multiplier_bound
    beta = method.risk_weight if beta is None else beta
    bound = method.multiplier_bound if bound is None else bound
    return beta, MULTIPLIER_BOUNDS[0] if bound is None else bound


@dataclass(frozen=True, eq=False)
class Setting:
    """What is known of the silos before anything is asked.

    Attributes
    ----------
    schema, silo_names, splits
        As for an engine.
    data
        What is known of the rows.
    encoding
        How tables become rows.
    access
        How the silos are reached, and what they show.
    calibration_overlap
        Rows set apart for a promise that are training rows, too; None if they could not
        look.
    """

    schema: Schema
    silo_names: tuple[str, ...]
    splits: tuple[str, ...]
    data: Data
    encoding: TableEncoder
    access: Access = field(default_factory=Access)
    calibration_overlap: int | None = None

    @classmethod
    def pooled(
        cls,
        name: str,
        encoding: TableEncoder,
        splits: Sequence[str],
        sites: int,
        floor: int = 1,
    ) -> Setting:
        """Return the setting of sites that answer as one silo, under secure sums.

        No figure of a single site is in it.
        """
        return cls(
            encoding.schema,
            (f"all {sites} sites",),
            tuple(splits),
            Data(name, sites, encoding.schema.hash, None),
            encoding,
            Access(elsewhere=True, pooled=sites, floor=floor),
        )


def prepare(
    setting: Setting,
    constraint: Constraint | None,
    model: Model | None,
    method: Method,
    options: Options,
    seed: int,
    *,
    counting: Flow[Counted] | None = None,
) -> Flow[tuple[Problem, tuple[str, ...]]]:
    """Ask the census and build the problem; also return notes for the record.

    `counting` asks another census than the exact one, as a private run does.
    """
    check_pooled(setting, constraint, method)
    if constraint is not None and constraint.open:
        raise UsageError("auto-refused:prepare")
    if constraint is not None and constraint.goal != "loss" and not options.certify:
        raise UsageError("needs-certify", name=constraint.name)
    schema = setting.schema
    counted = yield from counting or count(schema)
    census, bare = counted.census, model or default_model(schema)
    inputs = Inputs.from_sums(
        counted.mass,
        counted.feature_sums,
        counted.feature_squares,
        counted.centre[1:],
        schema.texts,
        gaps=schema.gaps,
        centred=bare.centred,
    )
    bound = bare.bind(schema, inputs)
    if not schema.labels:
        bound = bound.with_target(counted.scaling(bound))
    cells = (
        Cells.none(schema)
        if constraint is None
        else constraint.cells(schema, setting.silo_names)
    )
    cells, counts, notes = _covered(cells, census, options, setting.access)
    if cells.unbounded:
        notes += (f"no bound was given for {listing(cells.unbounded)}",)
    beta, multiplier_bound = risk_weight_and_bound(constraint, method)
    _warn(cells, counts, beta)
    problem = Problem(
        task_of(bound, cells, census, options.weighting, setting.access),
        schema,
        setting.silo_names,
        cells.totals(census.weights),
        census.counts,
        census.weights,
        census.weight,
        counted.deviations,
        *counted.sizes(bound),
        beta,
        multiplier_bound,
        options.radius or counted.radius(bound),
        seed,
        options.radius is not None,
        stored=stored_of(census, setting.access),
        access=setting.access,
    )
    return problem, notes if counting else notes + _idle(problem)


@dataclass(frozen=True, eq=False)
class Counted:
    """A census, and sums about centres at which nothing cancels.

    `centre` is that of the target, then one for each feature; 0 where none was needed.
    Sums of features are those with missing values at the mean of the others.
    """

    census: CensusTotal
    centre: FloatArray
    target: FloatArray
    targets: FloatArray
    feature_sums: FloatArray
    feature_squares: FloatArray

    @property
    def mass(self) -> float:
        """What all rows weigh."""
        return float(self.census.weight.sum())

    def radius(self, model: Model) -> float:
        """Return 100 / the smallest root mean square of an input of the model."""
        mean, scale = model.inputs.mean - self.centre[1:], model.inputs.scale
        first, second = self.feature_sums / self.mass, self.feature_squares / self.mass
        squares = np.append((second - 2 * mean * first + mean**2) / scale**2, 1.0)
        sizes = np.sqrt(np.maximum(squares, 0.0))
        smallest = float(sizes[sizes > ALIKE * sizes.max()].min())
        return float(f"{RADIUS / smallest:.3g}")

    def sizes(self, model: Model) -> tuple[FloatArray, float]:
        """Return √Σsx² of the inputs as a linear model sees them, and the target's."""
        if not isinstance(model, LinearModel):
            return np.zeros(0), 0.0
        at = model.inputs.mean - self.centre[1:]
        columns = self._lengths(self.feature_sums, self.feature_squares, at)
        columns = columns / model.inputs.scale
        if model.intercept:
            columns = np.append(columns, np.sqrt(self.mass))
        if not self.target.size:
            return columns, 0.0
        total, at = self.target.sum(axis=0), model.target.mean - self.centre[:1]
        far = self._lengths(total[:1], total[1:], at)
        return columns, float(far[0]) / model.target.scale

    def _lengths(
        self, sums: FloatArray, squares: FloatArray, mean: FloatArray
    ) -> FloatArray:
        """Return an upper bound of √Σs(x − mean)².

        Σs(x − mean)² = Σsx² − 2·mean·Σsx + mean²·Σs cancels; what rounding of n
        additions can do to it is added.
        """
        centred = squares - 2 * mean * sums + self.mass * mean**2
        size = squares + 2 * np.abs(mean * sums) + self.mass * mean**2
        rounding = 4 * (int(self.census.rows.sum()) + 8) * 2.0**-53 * size
        return np.sqrt(np.maximum(centred, 0.0) + rounding)

    def scaling(self, model: Model) -> Target:
        """Return the scaling of a numeric target."""
        there, centre = self.census.counts > 0, float(self.centre[0])
        sums = self.census.weights[there], self.targets[there]
        return Target.from_sums(*sums, centre=centre, robust=model.robust)

    @property
    def deviations(self) -> FloatArray:
        """Σ(y − ȳ) and Σ(y − ȳ)² per (silo, stratum); nothing of classes."""
        if not self.target.size:
            return self.targets
        n, mean = self.census.weights, float(self.target[:, 0].sum()) / self.mass
        total, squares = np.moveaxis(self.targets, -1, 0)
        centred = squares - 2 * mean * total + n * mean**2
        return np.stack([total - n * mean, np.maximum(centred, 0.0)], axis=-1)


def count(schema: Schema) -> Flow[Counted]:
    """Ask the census; and for sums about means that are large against the spread."""
    census = about = yield from ask(Census(schema, "train"))
    mass, target = float(census.weight.sum()), census.target.sum(axis=0)
    first, second = target if len(target) else np.zeros(2)
    marked = census.feature_sums[schema.gaps[1]]
    given = census.feature_sums, census.feature_squares
    sums, squares = with_missing(schema, mass, marked, *given)
    centre = _centres(mass, np.append(first, sums), np.append(second, squares))
    if centre.any():
        about = yield from ask(Census(schema, "train", centre))
        given = about.feature_sums, about.feature_squares
        sums, squares = with_missing(schema, mass, marked, *given)
    return Counted(census, centre, about.target, about.targets, sums, squares)


def with_missing(
    schema: Schema,
    mass: float,
    marked: FloatArray,
    sums: FloatArray,
    squares: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return Σ(x − c) and Σ(x − c)² with missing values at the mean of the others.

    They are no part of the sums so far; `marked` is what their rows weigh.
    """
    sums, squares, inputs = sums.copy(), squares.copy(), schema.gaps[0]
    mean = sums[inputs] / divisors(mass - marked)
    sums[inputs] += marked * mean
    squares[inputs] += marked * mean**2
    return sums, squares


def _centres(rows: float, sums: FloatArray, squares: FloatArray) -> FloatArray:
    """Return the means where Σx² − (Σx)²/n loses digits, 0 elsewhere.

    Sums of few whole numbers are exact: a column of ones needs no second look.
    """
    mean = sums / rows
    narrow = squares / rows - mean**2 <= NARROW * squares / rows
    whole = (squares == np.round(squares)) & (sums == np.round(sums))
    exact = whole & (squares * rows < 2**53) & (sums**2 == squares * rows)
    return np.where(narrow & ~exact & (squares > 0), mean, 0.0)


def stored_of(census: CensusTotal, access: Access) -> int:
    """Return the most inputs that any row stores; 0 where all rows are dense.

    Where some are sparse, and others dense or in a pool that does not tell, all.
    """
    dense = (census.stored == 0) & (census.rows > 0)
    if (access.pooled or dense.any()) and census.stored.any():
        return len(census.feature_sums)
    return int(census.stored.max())


def check_pooled(
    setting: Setting, constraint: Constraint | None, method: Method
) -> None:
    """Refuse what needs figures of single silos, where secure sums show totals only."""
    if not setting.access.pooled:
        return
    able = [n for n, kind in METHODS.own.items() if not kind.looks_at_silos]
    cells = Cells.none(setting.schema)
    if constraint is not None:
        if constraint.open:
            raise UsageError("auto-refused:check-pooled")
        cells = constraint.cells(setting.schema, setting.silo_names)
    refusals = {
        f"{type(method).__name__} needs every silo's own losses or counts: use one of "
        f"{', '.join(sorted(able))}": method.looks_at_silos,
        f"participation = {method.participation:g} asks some of the silos: use 1": (
            method.participation < 1
        ),
        "bounds for single silos (per-silo) need their own losses": (
            not cells.everywhere.all()
        ),
    }
    for why in (why for why, refused in refusals.items() if refused):
        raise UsageError("not-with-secure-sums", why=why)


def task_of(
    model: Model,
    cells: Cells,
    census: CensusTotal,
    weighting: Weighting,
    access: Access,
) -> Task:
    """Return the task with p_k, 1/K or m_k/m; sites of a pool find it themselves."""
    m, by_rows = census.weight, weighting == "rows"
    if access.pooled:
        pool = Pool(access.pooled, by_rows, float(m.sum()))
        return Task(model, cells, np.ones(1), pool=pool)
    return Task(model, cells, m / m.sum() if by_rows else np.full(len(m), 1 / len(m)))


def _covered(
    cells: Cells, census: CensusTotal, options: Options, access: Access
) -> tuple[Cells, FloatArray, tuple[str, ...]]:
    """Count the cells' rows; refuse or remove those without any (faults 3, 4)."""
    counts = cells.totals(census.counts.astype(np.float64))
    empty = [
        name for name, count in zip(cells.names, counts, strict=True) if count == 0
    ]
    if not empty:
        return cells, counts, ()
    if options.empty_cells == "refuse":
        few = " (sites leave out small groups)" if access.elsewhere else ""
        raise DataError("empty-cells:covered", empty=listing(map(repr, empty)), few=few)
    kept = np.flatnonzero(counts)
    if len(kept) == 0:
        raise DataError("empty-cells:covered-2")
    note = f"cells without rows, not covered: {listing(empty)}"
    return cells.take(kept), counts[kept], (note,)


def _idle(problem: Problem) -> tuple[str, ...]:
    """Say that the bounds ask for nothing; warn where they are far from any loss."""
    bounds, guess = problem.cells.bounds, problem.scales
    if not len(bounds) or (bounds < guess).any():
        return ()
    text = (
        "the bounds ask for nothing: one guess for everybody (the overall rate or "
        f"mean) already has a mean loss of at most {up(float(guess.max()))} in every "
        f"cell; the lowest bound is {bounds.min():.4g}"
    )
    if (bounds >= FAR * guess).all():
        warnings.warn(text, stacklevel=4)
    return (text,)


def _warn(cells: Cells, counts: FloatArray, beta: float) -> None:
    """Warn of bounds and cells that cannot end well (faults 26, 38)."""
    if beta > 0 and (cells.bounds == 0).any():
        warnings.warn(
            "a bound of 0 is met only by a model without any loss; expect 'impossible'",
            stacklevel=4,
        )
    tiny = [name for name, n in zip(cells.names, counts, strict=True) if n < 10]
    if tiny:
        warnings.warn(
            f"cells with fewer than 10 training rows: {listing(tiny)}; their losses "
            "say little about anyone else",
            stacklevel=4,
        )
