"""A run file becomes typed objects here, and no dictionary goes further.

[data]         name of a data set, or path of a table, and their options
[columns]      of a table: kind, values and range of every column, declared
[model]        kind, l2 (a number, or "auto"), …
[constraint]   kind, bound, …; or several [[constraint]] at once
[method]       kind and parameters
[run]          engine, seed, weighting, confidence, …
[policy]       of a deployed run: quorum, seconds, …
[privacy]      secure_sum: whether silos' answers are added under masks;
               epsilon, delta, clip, range, …: noise with a budget
[about]        purpose, owner and date of the model, contact, license: for its card
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Generic, TypeVar

import tomli_w

from pffl.constraints import Constraint
from pffl.data.federation import Federation
from pffl.engines import Engine
from pffl.errors import Problems, UsageError
from pffl.evidence.record import About
from pffl.methods import Method
from pffl.models import Model
from pffl.models.linear import NumericModel
from pffl.models.recipes import section_of
from pffl.preparation import Options
from pffl.records import check, construct, read_toml, suggestion, table
from pffl.sections import AUTO, MODELS, Plan, PrivacySettings, read_plan
from pffl.spec.data import SPEC, DataSource, other_data, read_data
from pffl.wire import Policy

F = TypeVar("F", Federation, Engine)
TABLES = ("data", "columns", "model", "method", "run", "policy", "privacy", "about")
SECTIONS = (*TABLES, "constraint")


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
    privacy
        What is kept from whom.
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
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    about: About = field(default_factory=About)

    @property
    def secure_sum(self) -> bool:
        """Whether answers are added under masks; over machines, as sites agreed on."""
        if isinstance(self.federation, Federation):
            return bool(self.privacy.secure_sum)
        return self.federation.pooled > 0

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
                **self.source.sections(directory),
                "model": {**section_of(self.model), **chosen},
                "constraint": constraint_sections(self.constraint),
                "method": self.method.describe(),
                "run": run,
                "policy": None if self.policy is None else asdict(self.policy),
                "privacy": replace(
                    self.privacy, secure_sum=True if self.secure_sum else None
                ).section(),
                "about": about_section(self.about),
            }
        )


@dataclass(frozen=True, kw_only=True)
class RunSpec(Plan):
    """A run file that was checked; `build` opens the data.

    Attributes
    ----------
    data
        Where the rows come from.
    policy
        What a deployed run asks of its sites.
    about
        Purpose, owner and date of the model.
    """

    data: DataSource
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
            privacy=self.privacy,
            about=self.about,
        )


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
        raise UsageError(f"[file-missing] '{path}' is missing: say where the data are")
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
            problems.add(
                f"[unknown-key] there is no section [{name}]: "
                f"{suggestion(name, SECTIONS)}"
            )
    tables = {n: table(sections.get(n, {}), f"[{n}]", problems) for n in TABLES}
    section = _numeric_target(tables)
    if tables["columns"]:
        section = {**section, "columns": tables["columns"]}
    data = read_data(section, base, problems)
    plan = read_plan({**tables, "constraint": sections.get("constraint")}, problems)
    policy = construct(
        Policy, check(tables["policy"], Policy, "[policy]", problems).values, problems
    )
    about = _read_about(tables["about"], problems)
    problems.raise_if_any()
    if not (data and plan and policy and about):
        raise UsageError(f"[missing-section] {source}: incomplete")
    if policy.weight_bound is None:  # what is assumed of rows is asked of sites
        policy = replace(policy, weight_bound=plan.options.weight_bound)
    return RunSpec(**vars(plan), data=data, policy=policy, about=about)


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
        raise UsageError(f"[not-toml] a run file cannot hold this: {error}") from error
    except UnicodeEncodeError as error:
        raise UsageError(
            "[not-toml] a run file cannot hold half of a surrogate pair"
        ) from error
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
            "[wrong-setting] a setting must look like section.key=value. Got "
            f"{setting!r} instead."
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
    raise UsageError(
        f"[wrong-setting] '{key.strip()}' is not a key such as section.key: {setting!r}"
    )


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
                f"[wrong-setting] there are several [[{key}]]: say in the file which "
                "one is meant"
            )
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(under, value) if both else value  # type: ignore[arg-type]
    return merged
