"""What a run trains, and how: sections model, constraint, method, run and privacy.

Of a run file, or of what sites agreed on; where the rows come from is no part of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

from pffl.constraints import CONSTRAINTS, BoundedGroupLoss, Constraint
from pffl.data.schema import Schema
from pffl.engines import DEPLOYED, ENGINES
from pffl.errors import PFFLError, Problems, UsageError, wrong
from pffl.methods import METHODS, Method
from pffl.methods.pffl import PFFL
from pffl.models import (
    LINEAR_MODELS,
    LeastSquares,
    LinearModel,
    LogisticRegression,
    Model,
)
from pffl.models.linear import NumericModel, default_model
from pffl.models.recipes import RECIPES, Recipe
from pffl.preparation import Options
from pffl.privacy.terms import Privacy
from pffl.records import check, construct, parameters, suggestion, table
from pffl.registry import Registry
from pffl.solving import default_method

MODELS: dict[str, Callable[..., LinearModel | Recipe]] = {**LINEAR_MODELS, **RECIPES}
AUTO = "auto"  # l2 that is chosen on training rows set aside


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The [run] section, but for what `Options` holds."""

    engine: str = "local"
    seed: int | None = None

    def __post_init__(self) -> None:
        with Problems("run", UsageError) as problems:
            known = (*ENGINES, DEPLOYED)
            if self.engine not in known:
                hint = suggestion(self.engine, known)
                problems.add(f"[unknown-engine] no engine '{self.engine}': {hint}")
            if self.seed is not None and self.seed < 0:
                problems.add(wrong("seed", "[run]", "a whole number ≥ 0", self.seed))


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """The [privacy] section.

    Parameters
    ----------
    secure_sum
        Whether silos' answers are added under masks, so that nobody reads a single
        one's. None: in deployed federations of three sites and more. With noise the
        sites then share it; without, each adds all of it.
    epsilon, delta
        A budget: noise is added to all that is released, so that it is (ε, δ)-private
        for each person. None: no noise.
    clip, loss_bound
        With noise: length to which scaled inputs are shortened, and the largest loss.
    range
        With noise: what each numeric input is between, as NAME=LOW,HIGH.
    rounds, colluding
        With noise: rounds of the method; sites of a secure sum whose noise is not
        counted on.
    noise_seed
        With noise: repeats it, for experiments; nothing is private then.
    scaling
        With noise: whether inputs are scaled by released sums of theirs ("sums", paid
        for) or by their ranges ("ranges", free).
    """

    secure_sum: bool | None = None
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    loss_bound: float | None = None
    range: tuple[str, ...] = ()
    rounds: int | None = None
    colluding: int | None = None
    noise_seed: int | None = None
    scaling: Literal["sums", "ranges"] | None = None

    def __post_init__(self) -> None:
        given = [key for key, value in self._noise().items() if value not in (None, ())]
        if self.epsilon is None and given:
            raise UsageError(
                f"[needs-epsilon] [privacy] {', '.join(given)} goes with a budget, "
                "epsilon = …"
            )
        self.terms  # noqa: B018

    def _noise(self) -> dict[str, Any]:
        known = {k: v for k, v in vars(self).items() if k != "secure_sum"}
        return {k: v for k, v in known.items() if k != "epsilon"}

    @property
    def terms(self) -> Privacy | None:
        """The budget; None without one."""
        if self.epsilon is None:
            return None
        given = {k: v for k, v in self._noise().items() if v is not None}
        named = dict(_range(text) for text in given.pop("range"))
        return Privacy(epsilon=self.epsilon, ranges=named, **given)

    def section(self) -> dict[str, Any] | None:
        """Return the section as a run file has it; None if nothing is asked for."""
        plain = {k: v for k, v in vars(self).items() if v not in (None, ())}
        return {**plain, "range": list(self.range)} if self.range else plain or None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be trained, and how.

    Attributes
    ----------
    model
        The model, or its parameters for whatever the labels ask for, or a network
        whose sizes are the data's.
    any_model
        Whether the kind of the model is left to the labels.
    constraint, method, options
        As for `pffl.solve`.
    settings
        Engine and seed.
    privacy
        What is kept from whom.
    """

    model: LinearModel | Recipe
    any_model: bool
    constraint: Constraint | None
    method: Method[Any]
    options: Options
    settings: RunSettings
    privacy: PrivacySettings = field(default_factory=PrivacySettings)

    def model_for(self, schema: Schema) -> Model:
        """Return the model, of the kind that the labels ask for if none was named."""
        if isinstance(self.model, Recipe):
            return self.model.build(schema)
        if not self.any_model:
            return self.model
        chosen, mine = type(default_model(schema)), self.model
        if isinstance(mine, NumericModel) and not issubclass(chosen, NumericModel):
            raise UsageError(
                f"[wrong-model] target_range is for numbers, and '{schema.target}' "
                "has classes"
            )
        known = set(parameters(chosen)) & set(parameters(type(mine)))
        return chosen(**{name: getattr(mine, name) for name in known})


def read_plan(sections: Mapping[str, object], problems: Problems) -> Plan | None:
    """Read the five sections, all their problems at once; None if there are any."""
    tables = {
        name: table(sections.get(name, {}), f"[{name}]", problems)
        for name in ("model", "method", "run", "privacy")
    }
    if tables["model"].get("l2") == AUTO:
        tables["run"] = {**tables["run"], "l2": AUTO}
        tables["model"] = {k: v for k, v in tables["model"].items() if k != "l2"}
    model = read_model(tables["model"], problems)
    constraint = read_constraint(sections.get("constraint"), problems)
    method = read_method(tables["method"], model, problems)
    options, settings = _read_run(tables["run"], problems)
    given = check(tables["privacy"], PrivacySettings, "[privacy]", problems).values
    privacy = construct(PrivacySettings, given, problems)
    if problems.found or not (model and method and options and settings and privacy):
        return None
    return Plan(
        model=model,
        any_model="kind" not in tables["model"],
        constraint=constraint,
        method=method,
        options=options,
        settings=settings,
        privacy=privacy,
    )


def read_model(
    values: Mapping[str, object], problems: Problems
) -> LinearModel | Recipe | None:
    """Read [model]; only numeric targets have a range."""
    kind = LeastSquares if "target_range" in values else LogisticRegression
    return _read_kind(values, MODELS, "model", default=kind.name, problems=problems)


def read_method(
    values: Mapping[str, object],
    model: LinearModel | Recipe | None,
    problems: Problems,
) -> Method[Any] | None:
    """Read [method]; the model says which method is meant where no kind is given."""
    network = isinstance(model, Recipe)
    default = PFFL.name if network else default_method(LogisticRegression()).name
    return _read_kind(values, METHODS, "method", default=default, problems=problems)


def read_constraint(given: object, problems: Problems) -> Constraint | None:
    """Read [constraint], or all of several [[constraint]]; None if there is none."""
    if given is None:
        return None
    tables: list[Any] = given if isinstance(given, list) else [given]
    if not all(isinstance(one, Mapping) for one in tables):
        table(given, "[constraint]", problems)
        return None
    default = BoundedGroupLoss.name
    parts = [
        _read_kind(one, CONSTRAINTS, "constraint", default=default, problems=problems)
        for one in tables
    ]
    if any(part is None for part in parts) or not parts:
        return None
    try:
        joined: Constraint = reduce(operator.and_, parts)
    except UsageError as error:
        problems.add(error)
        return None
    return joined


def _read_kind(
    values: Mapping[str, object],
    kinds: Mapping[str, Any],
    section: str,
    *,
    default: str,
    problems: Problems,
) -> Any:
    """Read a section whose `kind` names a class; None if it cannot be made."""
    mine = dict(values)
    name = str(mine.pop("kind", default))
    if name not in kinds:
        problems.add(f"[unknown-name] no {section} '{name}': {suggestion(name, kinds)}")
        return None
    try:
        kind = kinds[name]
    except PFFLError as error:  # of another package, which is broken
        problems.add(error)
        return None
    others = kinds.own if isinstance(kinds, Registry) else kinds
    found = check(mine, kind, name, problems, others=others)
    if "bound" in mine and "bound" not in found.values:
        return None  # one message about the bound is enough
    return construct(kind, found.values, problems)


def _read_run(
    values: Mapping[str, object], problems: Problems
) -> tuple[Options | None, RunSettings | None]:
    """Read [run]: the fields of `Options` and of `RunSettings`."""
    kinds: tuple[Any, ...] = (Options, RunSettings)
    known = [name for kind in kinds for name in parameters(kind)]
    for key in values:
        if key not in known:
            hint = suggestion(key, known)
            problems.add(f"[unknown-key] [run] has no parameter '{key}': {hint}")
    made = []
    for kind in kinds:
        mine = {key: value for key, value in values.items() if key in parameters(kind)}
        found = check(mine, kind, "[run]", problems)
        made.append(construct(kind, found.values, problems))
    return made[0], made[1]


def _range(text: str) -> tuple[str, tuple[float, float]]:
    """Read NAME=LOW,HIGH."""
    name, found, ends = text.rpartition("=")
    try:
        low, high = (float(end) for end in ends.split(","))
    except ValueError:
        found = ""
    if not (name and found):
        raise UsageError(
            f"[privacy] a range is NAME=LOW,HIGH, such as 'age=18,90'. Got {text!r}"
        )
    return name.strip(), (low, high)
