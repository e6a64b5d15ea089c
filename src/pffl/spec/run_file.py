"""A run file becomes typed objects here, and no dictionary goes further.

[data]         name of a data set, or path of a table, and their options
[model]        kind, l2 (a number, or "auto"), …
[constraint]   kind, bound, …; or several [[constraint]] at once
[method]       kind and parameters
[run]          engine, seed, weighting, confidence, …
[policy]       of a deployed run: quorum, seconds, …
[about]        purpose, owner and date of the model, contact, license: for its card
"""

from __future__ import annotations

import operator
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any, Generic, TypeVar

import tomli_w

from pffl.constraints import CONSTRAINTS, BoundedGroupLoss, Constraint
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.engines import DEPLOYED, ENGINES, Engine
from pffl.errors import PFFLError, Problems, UsageError, wrong
from pffl.evidence.evidence import About
from pffl.methods import METHODS, Method
from pffl.methods.pffl import PFFL
from pffl.models import (
    LINEAR_MODELS,
    LeastSquares,
    LinearModel,
    LogisticRegression,
    Model,
)
from pffl.models.linear import NumericModel
from pffl.models.recipes import RECIPES, Recipe, section_of
from pffl.preparation import Options, default_model
from pffl.records import (
    check,
    construct,
    parameters,
    read_toml,
    suggestion,
    table,
)
from pffl.registry import Registry
from pffl.solving import default_method
from pffl.spec.data import SPEC, DataSource, other_data, read_data
from pffl.wire import Policy

F = TypeVar("F", Federation, Engine)
MODELS: dict[str, Callable[..., LinearModel | Recipe]] = {**LINEAR_MODELS, **RECIPES}

AUTO = "auto"  # l2 that is chosen on training rows set aside
TABLES = ("data", "model", "method", "run", "policy", "about")
SECTIONS = (*TABLES, "constraint")


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


@dataclass(frozen=True, kw_only=True)
class Job(Generic[F]):
    """Everything that `solve` takes, and where it came from.

    Attributes
    ----------
    federation, constraint, model, method, options, engine, seed
        As for `pffl.solve`.
    source
        Where the data came from.
    policy
        What a deployed run asks of its sites.
    about
        Purpose, owner and date of the model.
    """

    federation: F
    constraint: Constraint | None
    model: Model
    method: Method[Any]
    options: Options
    engine: str
    seed: int | None
    source: DataSource
    policy: Policy | None = None
    about: About = field(default_factory=About)

    def dump(self, directory: str | os.PathLike[str], *, seed: int) -> str:
        """Write the run file of this job, every default spelt out.

        Parameters
        ----------
        directory
            Where the file will lie: paths are written relative to it.
        seed
            The seed that was used.
        """
        options = asdict(self.options)
        chosen = {"l2": AUTO} if options.pop("l2") == AUTO else {}
        run = {"engine": self.engine, "seed": seed, **options}
        return dumps(
            {
                "data": self.source.sections(directory),
                "model": {**section_of(self.model), **chosen},
                "constraint": constraint_sections(self.constraint),
                "method": self.method.describe(),
                "run": run,
                "policy": None if self.policy is None else asdict(self.policy),
                "about": about_section(self.about),
            }
        )


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A run file that was checked; `build` opens the data.

    Attributes
    ----------
    data
        Where the rows come from.
    model
        The model, or its parameters for whatever the labels ask for, or a network
        whose sizes are the data's.
    any_model
        Whether the kind of the model is left to the labels.
    policy
        What a deployed run asks of its sites.
    about
        Purpose, owner and date of the model.
    """

    data: DataSource
    model: LinearModel | Recipe
    any_model: bool
    constraint: Constraint | None
    method: Method[Any]
    options: Options
    settings: RunSettings
    policy: Policy = field(default_factory=Policy)
    about: About = field(default_factory=About)

    def build(self, progress: object = None) -> Job[Federation]:
        """Open the data, with `progress` as there, and fit the pieces together."""
        return self.over(self.data.open(progress=progress))

    def over(self, federation: F) -> Job[F]:
        """Fit the pieces together over rows that are open, or an engine's."""
        return Job(
            federation=federation,
            constraint=self.constraint,
            model=self.model_for(federation.schema),
            method=self.method,
            options=self.options,
            engine=self.settings.engine,
            seed=self.settings.seed,
            source=self.data,
            policy=None if isinstance(federation, Federation) else self.policy,
            about=self.about,
        )

    def model_for(self, schema: Schema) -> Model:
        """Return the model, of the kind that the labels ask for if none was named."""
        if isinstance(self.model, Recipe):
            return self.model.build(schema)
        if not self.any_model:
            return self.model
        chosen, mine = type(default_model(schema)), self.model
        if isinstance(mine, NumericModel) and not issubclass(chosen, NumericModel):
            raise UsageError(
                f"target_range is for numbers, and '{schema.target}' has classes"
            )
        known = set(parameters(chosen)) & set(parameters(type(mine)))
        return chosen(**{name: getattr(mine, name) for name in known})


def about_section(about: About) -> dict[str, str] | None:
    """What was stated, as a table of a run file; None if nothing was."""
    stated = {key: value for key, value in asdict(about).items() if value is not None}
    return stated or None


def constraint_sections(constraint: Constraint | None) -> object:
    """Constraints as a table of a run file, as several, or as none."""
    tables = [] if constraint is None else list(_flat(constraint.describe()))
    return tables[0] if len(tables) == 1 else tables or None


def _flat(plain: Mapping[str, Any]) -> Iterable[Mapping[str, object]]:
    if "of" not in plain:
        return [plain]
    return [table for part in plain["of"] for table in _flat(part)]


# Reading


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunSpec:
    """Read a run file; `overrides` are settings such as ``method.rounds=50``."""
    sections = read_toml(path)
    for setting in overrides:
        sections = merge(sections, parse_setting(setting))
    return parse(sections, source=str(path), base=Path(path).parent)


def of_run(directory: str | os.PathLike[str], data: str | None = None) -> RunSpec:
    """Read the run file of a run directory, with other data where they are given."""
    path = Path(directory) / SPEC
    sections = read_toml(path) if path.is_file() else {}
    if data is not None:
        sections["data"] = other_data(sections.get("data"), data)
    elif not sections:
        raise UsageError(f"'{path}' is missing: say where the data are")
    return parse(sections, source=str(path), base=Path(directory))


def parse(
    sections: Mapping[str, object], *, source: str = "run file", base: Path = Path()
) -> RunSpec:
    """Check all sections, and raise all their problems as one error.

    Parameters
    ----------
    sections
        The tables of the file.
    source
        What to call them in messages.
    base
        Folder that relative paths start from.
    """
    problems = Problems(source, UsageError)
    for name in sections:
        if name not in SECTIONS:
            problems.add(f"there is no section [{name}]: {suggestion(name, SECTIONS)}")
    tables = {n: table(sections.get(n, {}), f"[{n}]", problems) for n in TABLES}
    if tables["model"].get("l2") == AUTO:
        tables["run"] = {**tables["run"], "l2": AUTO}
        tables["model"] = {k: v for k, v in tables["model"].items() if k != "l2"}
    data = read_data(_numeric_target(tables), base, problems)
    model = read_model(tables["model"], problems)
    constraint = read_constraint(sections.get("constraint"), problems)
    method = read_method(tables["method"], model, problems)
    options, settings = _read_run(tables["run"], problems)
    policy = construct(
        Policy, check(tables["policy"], Policy, "[policy]", problems).values, problems
    )
    about = _read_about(tables["about"], problems)
    problems.raise_if_any()
    if not (data and model and method and options and settings and policy and about):
        raise UsageError(f"{source}: incomplete")
    if policy.weight_bound is None:  # what is assumed of rows is asked of sites
        policy = replace(policy, weight_bound=options.weight_bound)
    return RunSpec(
        data=data,
        model=model,
        any_model="kind" not in tables["model"],
        constraint=constraint,
        method=method,
        options=options,
        settings=settings,
        policy=policy,
        about=about,
    )


def _read_about(values: Mapping[str, object], problems: Problems) -> About | None:
    """Read [about]; a date may be one of TOML's own."""
    plain = {k: str(v) if type(v) is date else v for k, v in values.items()}
    return construct(About, check(plain, About, "[about]", problems).values, problems)


def _numeric_target(tables: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return [data]; the label of a table is a number where the model asks for one."""
    kind = MODELS.get(str(tables["model"].get("kind")))
    numeric = isinstance(kind, type) and issubclass(kind, NumericModel)
    if (numeric or "target_range" in tables["model"]) and "path" in tables["data"]:
        return {"classification": False, **tables["data"]}
    return tables["data"]


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
        problems.add(str(error))
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
        problems.add(f"no {section} '{name}': {suggestion(name, kinds)}")
        return None
    try:
        kind = kinds[name]
    except PFFLError as error:  # of another package, which is broken
        problems.add(str(error))
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
            problems.add(f"[run] has no parameter '{key}': {hint}")
    made = []
    for kind in kinds:
        mine = {key: value for key, value in values.items() if key in parameters(kind)}
        found = check(mine, kind, "[run]", problems)
        made.append(construct(kind, found.values, problems))
    return made[0], made[1]


# TOML


def dumps(sections: Mapping[str, object]) -> str:
    """Write tables as TOML; entries that are None are left out.

    >>> print(dumps({"run": {"seed": 1}, "data": {"path": "a.csv", "id": None}}))
    [run]
    seed = 1
    <BLANKLINE>
    [data]
    path = "a.csv"
    <BLANKLINE>
    """
    try:
        text = tomli_w.dumps(_without_none(sections))
        text.encode()
    except TypeError as error:
        raise UsageError(f"a run file cannot hold this: {error}") from error
    except UnicodeEncodeError as error:
        raise UsageError("a run file cannot hold half of a surrogate pair") from error
    return text


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        known = {key: entry for key, entry in value.items() if entry is not None}
        return {key: _without_none(entry) for key, entry in known.items()}
    if isinstance(value, list | tuple):
        return [_without_none(entry) for entry in value]
    return value


def parse_setting(setting: str) -> dict[str, object]:
    """Turn ``a.b=c`` into nested tables; a value that is not TOML is text.

    >>> parse_setting("method.dual_rounds=50")
    {'method': {'dual_rounds': 50}}
    >>> parse_setting("data.group=sex")
    {'data': {'group': 'sex'}}
    """
    key, sign, value = setting.partition("=")
    if not sign or not key.strip():
        raise UsageError(
            f"a setting must look like section.key=value. Got {setting!r} instead."
        )
    quoted = dumps({"it": value.strip()}).partition(" = ")[2]
    for text in (value.strip(), quoted):
        try:
            parsed = tomllib.loads(f"{key} = {text}")
        except tomllib.TOMLDecodeError:
            continue
        # A line break inside the value would smuggle in further keys.
        if "\n" not in setting:
            return parsed
    raise UsageError(f"'{key.strip()}' is not a key such as section.key: {setting!r}")


def merge(
    below: Mapping[str, object], above: Mapping[str, object]
) -> dict[str, object]:
    """Lay one table over another; tables inside are merged, all else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        several = isinstance(under, list) and any(isinstance(t, Mapping) for t in under)
        if isinstance(value, Mapping) and several:
            raise UsageError(
                f"there are several [[{key}]]: say in the file which one is meant"
            )
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(under, value) if both else value  # type: ignore[arg-type]
    return merged
