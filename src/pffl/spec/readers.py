"""Each section of a run file but [data], read into the object that it stands for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

from pffl.admission import Policy
from pffl.constraints import CONSTRAINTS, BoundedGroupLoss, Constraint
from pffl.engines import DEPLOYED, ENGINES
from pffl.errors import Problems, UsageError
from pffl.methods import METHODS, Method
from pffl.methods.pffl import PFFL
from pffl.models import LINEAR_MODELS, LinearModel, LogisticRegression
from pffl.models.recipes import RECIPES, Recipe
from pffl.preparation import Options
from pffl.records import check, construct, parameters, suggestion, wrong
from pffl.solving import default_method

T = TypeVar("T")

MODELS: dict[str, Callable[..., LinearModel | Recipe]] = {
    **LINEAR_MODELS,
    **RECIPES,
}


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
                problems.add(f"no engine '{self.engine}': {hint}")
            if self.seed is not None and self.seed < 0:
                problems.add(wrong("seed", "[run]", "a whole number ≥ 0", self.seed))


def read_model(
    table: Mapping[str, object], problems: Problems
) -> LinearModel | Recipe | None:
    """Read [model]."""
    values = dict(table)
    kind = _kind(values, MODELS, "model", LogisticRegression.name, problems)
    if kind is None:
        return None
    section = check(values, MODELS[kind], kind, problems, others=MODELS)
    return construct(MODELS[kind], section.values, problems)


def read_constraint(given: object, problems: Problems) -> Constraint | None:
    """Read [constraint], or all of several [[constraint]]; None if there is none."""
    if given is None:
        return None
    tables: list[Any] = given if isinstance(given, list) else [given]
    if not all(isinstance(table, Mapping) for table in tables):
        problems.add(f"[constraint] must be a table. Got {given!r} instead.")
        return None
    parts = [_one_constraint(dict(table), problems) for table in tables]
    if any(part is None for part in parts) or not parts:
        return None
    try:
        joined: Constraint = reduce(operator.and_, parts)
    except UsageError as error:
        problems.add(str(error))
        return None
    return joined


def _one_constraint(values: dict[str, object], problems: Problems) -> Any:
    kind = _kind(values, CONSTRAINTS, "constraint", BoundedGroupLoss.name, problems)
    if kind is None:
        return None
    section = check(values, CONSTRAINTS[kind], kind, problems, others=CONSTRAINTS.own)
    if "bound" in values and "bound" not in section.values:
        return None
    return construct(CONSTRAINTS[kind], section.values, problems)


def read_method(
    table: Mapping[str, object],
    model: LinearModel | Recipe | None,
    problems: Problems,
) -> Method[Any] | None:
    """Read [method]; the model says which method is meant where no kind is given."""
    values = dict(table)
    network = isinstance(model, Recipe)
    default = PFFL.name if network else default_method(LogisticRegression()).name
    kind = _kind(values, METHODS, "method", default, problems)
    if kind is None:
        return None
    section = check(values, METHODS[kind], kind, problems, others=METHODS.own)
    return construct(METHODS[kind], section.values, problems)


def read_run(
    table: Mapping[str, object], problems: Problems
) -> tuple[Options | None, RunSettings | None]:
    """Read [run]: the fields of `Options` and of `RunSettings`."""
    known = [*parameters(Options), *parameters(RunSettings)]
    for key in table:
        if key not in known:
            hint = suggestion(key, known)
            problems.add(f"[run] has no parameter '{key}': {hint}")
    return (
        _part(Options, table, problems),
        _part(RunSettings, table, problems),
    )


def read_policy(table: Mapping[str, object], problems: Problems) -> Policy | None:
    """Read [policy]: what a deployed run asks of its sites."""
    section = check(table, Policy, "[policy]", problems)
    return construct(Policy, section.values, problems)


def _part(
    kind: Callable[..., T], table: Mapping[str, object], problems: Problems
) -> T | None:
    mine = {key: value for key, value in table.items() if key in parameters(kind)}
    section = check(mine, kind, "[run]", problems)
    return construct(kind, section.values, problems)


def constraint_sections(constraint: Constraint | None) -> object:
    """Constraints as a table of a run file, as several, or as none."""
    tables = [] if constraint is None else list(_flat(constraint.describe()))
    return tables[0] if len(tables) == 1 else tables or None


def _flat(plain: Mapping[str, Any]) -> Iterable[Mapping[str, object]]:
    if "of" not in plain:
        return [plain]
    return [table for part in plain["of"] for table in _flat(part)]


def _kind(
    values: dict[str, object],
    kinds: Mapping[str, object],
    section: str,
    default: str,
    problems: Problems,
) -> str | None:
    """Take the kind out of a section; None if there is no such kind."""
    kind = values.pop("kind", default)
    if kind in kinds:
        return str(kind)
    problems.add(f"no {section} '{kind}': {suggestion(str(kind), kinds)}")
    return None
