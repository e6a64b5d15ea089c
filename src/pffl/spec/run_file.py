"""A run file becomes typed objects here, and no dictionary goes further.

[data]         name of a data set, or path of a table, and their options
[model]        kind, l2, …
[constraint]   kind, bound, …; or several [[constraint]] at once
[method]       kind and parameters
[run]          engine, seed, weighting, confidence, …
[policy]       of a deployed run: quorum, seconds, …
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pffl.admission import Policy
from pffl.constraints import Constraint
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.errors import Problems, UsageError
from pffl.methods import Method
from pffl.models import LinearModel, Model
from pffl.models.recipes import Recipe, section_of
from pffl.preparation import Options, default_model
from pffl.records import parameters, suggestion
from pffl.spec import toml
from pffl.spec.data import DataSource, read_data
from pffl.spec.readers import (
    RunSettings,
    constraint_sections,
    read_constraint,
    read_method,
    read_model,
    read_policy,
    read_run,
)

TABLES = ("data", "model", "method", "run", "policy")
SECTIONS = (*TABLES, "constraint")


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that `solve` takes, and where it came from.

    Attributes
    ----------
    federation, constraint, model, method, options, engine, seed
        As for `pffl.solve`.
    source
        Where the data came from.
    """

    federation: Federation
    constraint: Constraint | None
    model: Model
    method: Method[Any]
    options: Options
    engine: str
    seed: int | None
    source: DataSource

    def dump(self, directory: str | os.PathLike[str], *, seed: int) -> str:
        """Write the run file of this job, every default spelt out.

        Parameters
        ----------
        directory
            Where the file will lie: paths are written relative to it.
        seed
            The seed that was used.
        """
        return _dumped(
            self.source.sections(directory),
            self.model,
            self.constraint,
            self.method,
            {"engine": self.engine, "seed": seed, **asdict(self.options)},
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
    """

    data: DataSource
    model: LinearModel | Recipe
    any_model: bool
    constraint: Constraint | None
    method: Method[Any]
    options: Options
    settings: RunSettings
    policy: Policy = field(default_factory=Policy)

    def build(self, progress: object = None) -> Job:
        """Open the data, with `progress` as there, and fit the pieces together."""
        federation = self.data.open(progress=progress)
        return Job(
            federation=federation,
            constraint=self.constraint,
            model=self.model_for(federation.schema),
            method=self.method,
            options=self.options,
            engine=self.settings.engine,
            seed=self.settings.seed,
            source=self.data,
        )

    def model_for(self, schema: Schema) -> Model:
        """Return the model, of the kind that the labels ask for if none was named."""
        if isinstance(self.model, Recipe):
            return self.model.build(schema)
        if not self.any_model:
            return self.model
        chosen = type(default_model(schema))
        return chosen(**{n: getattr(self.model, n) for n in parameters(chosen)})

    def dump(
        self, directory: str | os.PathLike[str], *, schema: Schema, seed: int
    ) -> str:
        """Write the run file of a deployed run, whose rows are elsewhere.

        Parameters
        ----------
        directory
            Where the file will lie: paths are written relative to it.
        schema
            What the sites agree on.
        seed
            The seed that was used.
        """
        return _dumped(
            self.data.sections(directory),
            self.model_for(schema),
            self.constraint,
            self.method,
            {"engine": self.settings.engine, "seed": seed, **asdict(self.options)},
            asdict(self.policy),
        )


def _dumped(
    data: object,
    model: Model,
    constraint: Constraint | None,
    method: Method[Any],
    run: Mapping[str, object],
    policy: Mapping[str, object] | None = None,
) -> str:
    """Return the text of a run file."""
    return toml.dumps(
        {
            "data": data,
            "model": section_of(model),
            "constraint": constraint_sections(constraint),
            "method": method.describe(),
            "run": run,
            "policy": policy,
        }
    )


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunSpec:
    """Read a run file; `overrides` are settings such as ``method.rounds=50``."""
    sections = read_sections(path)
    for setting in overrides:
        sections = toml.merge(sections, toml.parse_setting(setting))
    return parse(sections, source=str(path), base=Path(path).parent)


def read_sections(path: str | os.PathLike[str]) -> dict[str, object]:
    """Read a TOML file, or say where it is not one."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"'{path}' is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"'{path}' is not TOML: {error}") from error


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
    tables = {name: _table(sections, name, problems) for name in TABLES}
    data = read_data(tables["data"], base, problems)
    model = read_model(tables["model"], problems)
    constraint = read_constraint(sections.get("constraint"), problems)
    method = read_method(tables["method"], model, problems)
    options, settings = read_run(tables["run"], problems)
    policy = read_policy(tables["policy"], problems)
    problems.raise_if_any()
    if not (data and model and method and options and settings and policy):
        raise UsageError(f"{source}: incomplete")
    return RunSpec(
        data=data,
        model=model,
        any_model="kind" not in tables["model"],
        constraint=constraint,
        method=method,
        options=options,
        settings=settings,
        policy=policy,
    )


def _table(
    sections: Mapping[str, object], name: str, problems: Problems
) -> Mapping[str, object]:
    table = sections.get(name, {})
    if isinstance(table, Mapping):
        return table
    problems.add(f"[{name}] must be a table. Got {table!r} instead.")
    return {}
