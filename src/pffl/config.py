"""The run file: TOML, checked all at once, becomes the objects of a run; and back.

[data]         name of a data set, or path of a table, and their options
[columns]      of a table: kind, values and range of every column, declared
[model]        kind, l2, …
[constraint]   kind, bound, …; or several [[constraint]] at once
[method]       kind and parameters
[run]          engine, seed, weighting, certify, confidence, …
[policy]       of a deployed run: seconds, retries, …
[privacy]      secure_sum; epsilon, delta, clip, range, …: noise with a budget
[about]        purpose, owner and date of the model, contact, license: for its card

Every section is a pydantic model, made of the class or function that takes its values.
So a new method or data set needs no line here, and the command line and the reference
page follow from the same models.
"""

from __future__ import annotations

import operator
import os
import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

import tomli_w
from pydantic import NonNegativeInt

from pffl._solve import default_method
from pffl.constraints import CONSTRAINTS, BoundedGroupLoss, Constraint
from pffl.data.federation import Federation
from pffl.data.schema import Schema
from pffl.data.table import TableOptions
from pffl.datasets import DATASETS
from pffl.engines import Engine
from pffl.errors import DataError, Problems, UsageError, wrong
from pffl.evidence.record import About
from pffl.methods import METHODS, Method
from pffl.methods.pffl import PFFL
from pffl.models import LINEAR_MODELS, LeastSquares, LinearModel, LogisticRegression
from pffl.models import Model as AnyModel
from pffl.models.external import RECIPES, Recipe, section_of
from pffl.models.linear import NumericModel, default_model
from pffl.numerics import is_number
from pffl.prepare import Options
from pffl.privacy.terms import Privacy
from pffl.queries.validation import Policy
from pffl.records import check, make, parameters, read_toml, suggestion, table
from pffl.registry import Registry

F = TypeVar("F", Federation, Engine)
OPTIONS = fields(Options)

SPEC = "run.toml"  # the run file of a run directory
APART = "calibration_fraction"  # of the training rows: what bounds are certified on
STATE = "random_state"  # of loaders and tables: `seed` in a run file
SHARE = 0.3  # of them, unless told otherwise
PATHS = ("path", "source", "cache_dir", "federation")
TABLES = ("data", "columns", "model", "method", "run", "policy", "privacy", "about")
SECTIONS = (*TABLES, "constraint")
MODELS: dict[str, Callable[..., LinearModel | Recipe]] = {**LINEAR_MODELS, **RECIPES}


# What is trained, and how


@dataclass(frozen=True)
class RunSettings(Options):
    """The [run] section: options of `solve`, engine and seed.

    Parameters
    ----------
    engine
        Where silos are: "local" (fast), "reference" (a plain loop) or "flower".
    seed
        Of the training. None: one is drawn, and written into the run file.
    """

    engine: Literal["local", "reference", "flower"] = "local"
    seed: NonNegativeInt | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What is to be trained, and how.

    Attributes
    ----------
    model
        The model, or its parameters for whatever the labels ask for, or a network
        whose sizes are the data's.
    any_model
        Whether the kind of the model is left to the labels.
    constraint, method, privacy
        As for `pffl.solve`.
    settings
        Options of `solve`, engine and seed.
    secure_sum
        Whether answers are added under masks. None: over three machines and more.
    """

    model: LinearModel | Recipe
    any_model: bool
    constraint: Constraint | None
    method: Method
    settings: RunSettings
    secure_sum: bool | None = None
    privacy: Privacy | None = None

    @property
    def options(self) -> Options:
        """Options of `solve`."""
        return Options(**{f.name: getattr(self.settings, f.name) for f in OPTIONS})

    def model_for(self, schema: Schema) -> AnyModel:
        """Return the model, of the kind that the labels ask for if none was named."""
        if isinstance(self.model, Recipe):
            return self.model.build(schema)
        if not self.any_model:
            return self.model
        chosen, mine = type(default_model(schema)), self.model
        if isinstance(mine, NumericModel) and not issubclass(chosen, NumericModel):
            raise UsageError("wrong-model:model-for", target=schema.target)
        if getattr(mine, "threshold", 0.5) != 0.5 and chosen is not LogisticRegression:
            raise UsageError("wrong-model:model-for-2", target=schema.target)
        known = parameters(chosen).keys() & parameters(type(mine)).keys()
        return chosen(**{name: getattr(mine, name) for name in known})


def read_plan(sections: Mapping[str, object]) -> TrainingPlan:
    """Read model, constraint, method, run, privacy; all problems are one error."""
    model, method, run, privacy = (
        dict(table(sections.get(name, {}), f"[{name}]"))
        for name in ("model", "method", "run", "privacy")
    )
    # Only numeric targets have a range; networks are trained in rounds.
    usual_model = LeastSquares if "target_range" in model else LogisticRegression
    linear = default_method(LogisticRegression()).name
    usual = PFFL.name if model.get("kind") in RECIPES else linear
    secure_sum: Any = privacy.pop("secure_sum", None)
    found: dict[str, Any] = {"secure_sum": secure_sum, "any_model": "kind" not in model}
    with Problems("run file", UsageError) as problems:
        with problems.noting():
            found["model"] = _read_kind(model, "model", usual_model.name)
        with problems.noting():
            found["method"] = _read_kind(method, "method", usual)
        with problems.noting():
            found["constraint"] = read_constraint(sections.get("constraint"))
        with problems.noting():
            found["settings"] = make(run, RunSettings, "[run]")
        with problems.noting():
            found["privacy"] = make(privacy, Privacy, "[privacy]") if privacy else None
        if secure_sum not in (None, True, False):
            problems.add(wrong("secure_sum", "[privacy]", "true or false", secure_sum))
    return TrainingPlan(**found)


def read_constraint(given: object) -> Constraint | None:
    """Read [constraint], or all of several [[constraint]]; None without one."""
    tables = given if isinstance(given, list) else [] if given is None else [given]
    usual = BoundedGroupLoss.name
    parts = [
        _read_kind(table(one, "[constraint]"), "constraint", usual) for one in tables
    ]
    return reduce(operator.and_, parts) if parts else None


KINDS: dict[str, Mapping[str, Any]] = {
    "model": MODELS,
    "constraint": CONSTRAINTS,
    "method": METHODS,
}


def _read_kind(values: Mapping[str, object], section: str, usual: str) -> Any:
    """Read a section whose `kind` names a class."""
    mine, kinds = dict(values), KINDS[section]
    name = str(mine.pop("kind", usual))
    if name not in kinds:
        hint = suggestion(name, kinds)
        raise UsageError(
            "unknown-name:read-kind", section=section, name=name, hint=hint
        )
    return make(mine, kinds[name], name, _own(section))


def _own(section: str) -> Mapping[str, Any]:
    """Return our kinds of a section: those of other packages are loaded when named."""
    kinds = KINDS[section]
    return kinds.own if isinstance(kinds, Registry) else kinds


# Where the rows come from


@dataclass(frozen=True)
class DataSource:
    """Where rows come from.

    Attributes
    ----------
    name
        What to call a run on these data.
    load
        Opens them, whole.
    values
        The section as it was given, with paths that do not depend on its place.
    federation
        What the sites agreed on, where their rows stay with them.
    """

    name: str
    load: Callable[[], Federation]
    values: Mapping[str, object]
    federation: Path | None = None

    def open(self) -> Federation:
        """Open the rows; those to certify on are set apart."""
        return set_apart(self.load(), self.values)

    def sections(self, directory: str | os.PathLike[str]) -> dict[str, object]:
        """Return [data] and [columns] as they read in a file in `directory`."""
        seen_from = Path(directory).resolve()
        data = _map_paths(
            self.values,
            lambda path: Path(
                os.path.relpath(Path(path).resolve(), seen_from)
            ).as_posix(),
        )
        data = {"seed" if key == STATE else key: data[key] for key in data}
        return {"data": data, "columns": data.pop("columns", None)}


def named(data: str) -> tuple[dict[str, Any], str | None, Path]:
    """Return the sections that a text stands for, the file they are in, its folder.

    A data set, a table, a run file or a run directory; the first two are in no file.
    """
    path = Path(data)
    if data in DATASETS and path.exists():
        warnings.warn(f"'{data}' is the data set; the file is ./{data}", stacklevel=2)
    elif (path / SPEC).is_file():
        path = path / SPEC
    if data in DATASETS or not (path.exists() or path.suffix or os.sep in data):
        return {"data": {"name": data}}, None, Path()
    if path.suffix == ".toml":
        return read_toml(path), str(path), path.parent
    if not path.is_file():
        raise DataError("file-missing:named", data=data)
    return {"data": {"path": data}}, None, Path()


def other_data(section: object, data: str) -> dict[str, Any]:
    """Return a [data] section for other rows; another table is read as the first was.

    Parameters
    ----------
    section
        That of the run.
    data
        As for `named`.
    """
    sections, file, folder = named(data)
    given: dict[str, Any] = dict(sections.get("data", {}))
    first = section if isinstance(section, Mapping) else {}
    if file is None and "path" in given:
        if "path" not in first:
            raise UsageError("needs-run-file")
        return {**first, "path": str(Path(data).resolve())}
    if given == {"name": first.get("name")}:
        return dict(first)  # the same data set, with the run's own options
    return _map_paths(given, lambda path: str((folder / path).resolve()))


def set_apart(federation: Federation, values: Mapping[str, Any]) -> Federation:
    """Set calibration rows apart as the values of a [data] section say, if they do."""
    if not (share := values.get(APART)):
        return federation
    return federation.with_calibration(float(share), random_state=values.get(STATE, 0))


def read_data(section: Mapping[str, object], base: Path) -> DataSource:
    """Read [data]; paths start from `base`."""
    if "federation" in section:
        return _elsewhere(section, base)
    values = dict(section)
    share: Any = values.pop(APART, None)
    found = (_table if "path" in values else _data_set)(values, base)
    if share is None:
        return found
    if not (is_number(share) and 0 <= share < 1):
        raise UsageError(wrong(APART, "[data]", "a number from 0 to below 1", share))
    return replace(found, values={**found.values, APART: share})


def _data_set(values: dict[str, object], base: Path) -> DataSource:
    """Return a data set by its name."""
    name = values.pop("name", None)
    if name is None:
        there = ", ".join(DATASETS)
        raise UsageError("missing-data:data-set", there=there)
    if name not in DATASETS:
        hint = suggestion(str(name), DATASETS)
        raise UsageError("unknown-data", name=name, hint=hint)
    load = DATASETS[str(name)]
    with Problems(str(name), UsageError) as problems:
        found = check(values, load, str(name), problems)
    options = _map_paths(found, lambda path: str(base / path))

    return DataSource(str(name), partial(load, **options), {"name": name, **options})


def _table(values: dict[str, Any], base: Path) -> DataSource:
    """Return one table, of all silos."""
    path = _text(values.pop("path"), "path")
    known = make(
        values, TableOptions, "a table"
    )  # what does not go together is refused
    options = {key: getattr(known, key) for key in values}
    place = str(base / path)
    return DataSource(
        Path(path).stem,
        partial(Federation.from_table, place, **options),
        {"path": place, **options},
    )


def _elsewhere(values: Mapping[str, object], base: Path) -> DataSource:
    """Return rows that stay with the sites: there is nothing to open."""
    if others := sorted(set(values) - {"federation"}):
        raise UsageError("options-conflict:elsewhere", others=others)
    path = base / _text(values["federation"], "federation")

    def opened() -> Federation:
        raise UsageError("rows-elsewhere", path=path)

    return DataSource(path.stem, opened, {"federation": str(path)}, path)


def _text(value: object, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(wrong(key, "[data]", "text", value))
    return value


def _map_paths(
    values: Mapping[str, Any], change: Callable[[str], str]
) -> dict[str, Any]:
    """Change the paths of a section, and leave all else."""
    out = dict(values)
    for key in PATHS:
        if isinstance(out.get(key), str):
            out[key] = change(out[key])
    return out


# The whole file


@dataclass(frozen=True, kw_only=True)
class RunSpec(TrainingPlan):
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

    def build(self) -> Job[Federation]:
        """Open the data, and fit the pieces together."""
        return self.over(self.data.open())

    def over(self, federation: F) -> Job[F]:
        """Fit the pieces together over rows that are open, or an engine's."""
        return Job(self, federation, self.model_for(federation.schema))


@dataclass(frozen=True)
class Job(Generic[F]):
    """A run file, its rows (or an engine that reaches them), and its model."""

    spec: RunSpec
    federation: F
    model: AnyModel

    @property
    def secure_sum(self) -> bool:
        """Whether answers are added under masks; over machines, as sites agreed on."""
        if isinstance(self.federation, Federation):
            return bool(self.spec.secure_sum)
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
        spec, model = self.spec, section_of(self.model)
        options = asdict(spec.options)
        if not options["certify"]:
            del options["certify"]
        masked = {"secure_sum": True} if self.secure_sum else {}
        noise = {} if spec.privacy is None else asdict(spec.privacy)
        here = isinstance(self.federation, Federation)
        return dumps(
            {
                **spec.data.sections(directory),
                "model": model,
                "constraint": constraint_sections(spec.constraint),
                "method": spec.method.describe(),
                "run": {"engine": spec.settings.engine, "seed": seed, **options},
                "policy": None if here else asdict(spec.policy),
                "privacy": {**masked, **noise},
                "about": asdict(spec.about),
            }
        )


def constraint_sections(constraint: Constraint | None) -> object:
    """Constraints as a table of a run file, as several, or as none."""
    tables = [] if constraint is None else list(_flat(constraint.describe()))
    return tables[0] if len(tables) == 1 else tables or None


def _flat(plain: Mapping[str, Any]) -> Iterable[Mapping[str, object]]:
    if "of" not in plain:
        return [plain]
    return [table for part in plain["of"] for table in _flat(part)]


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunSpec:
    """Read a run file; `overrides` are settings such as ``method.rounds=50``."""
    sections = reduce(merge, map(parse_setting, overrides), read_toml(path))
    return parse(sections, source=str(path), base=Path(path).parent)


def of_run(directory: str | os.PathLike[str], data: str | None = None) -> RunSpec:
    """Read the run file of a run directory, with other data where they are given."""
    path = Path(directory) / SPEC
    sections = read_toml(path) if path.is_file() else {}
    if data is not None:
        sections["data"] = other_data(sections.get("data"), data)
    elif not sections:
        raise UsageError("file-missing:of-run", path=path)
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
    sections = {**sections, **_declared(sections, base)}
    found: dict[str, Any] = {}
    with Problems(source, UsageError) as problems:
        for name in sections:
            if name not in SECTIONS:
                hint = suggestion(name, SECTIONS)
                problems.add("unknown-key:parse", name=name, hint=hint)
        with problems.noting():
            tables = {n: table(sections.get(n, {}), f"[{n}]") for n in TABLES}
            with problems.noting():
                found["data"] = read_data(_data_section(tables), base)
            with problems.noting():
                found |= vars(read_plan(sections))
            with problems.noting():
                found["policy"] = make(tables["policy"], Policy, "[policy]")
            with problems.noting():
                found["about"] = make(tables["about"], About, "[about]")
    spec = RunSpec(**found)
    if spec.policy.weight_bound is None:  # what is assumed of rows is asked of sites
        policy = replace(spec.policy, weight_bound=spec.options.weight_bound)
        spec = replace(spec, policy=policy)
    return spec


def stated(settings: Sequence[str]) -> About:
    """Read settings of [about], and of nothing else."""
    sections: Mapping[str, Any] = reduce(merge, map(parse_setting, settings), {})
    if others := sorted(set(sections) - {"about"}):
        raise UsageError("no-effect:stated", others=others)
    about: About = make(table(sections.get("about", {}), "[about]"), About, "[about]")
    return about


def _declared(sections: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return [columns] of another file, where that is named instead of them."""
    if not isinstance(path := sections.get("columns"), str):
        return {}
    found = read_toml(base / path)
    if "columns" not in found:
        raise UsageError("missing-section", path=path)
    return {"columns": found["columns"]}


def _data_section(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return [data] with what other sections say of it."""
    given = tables["data"]
    section = {STATE if key == "seed" else key: given[key] for key in given}
    kind = MODELS.get(str(tables["model"].get("kind")))
    numeric = isinstance(kind, type) and issubclass(kind, NumericModel)
    if (numeric or "target_range" in tables["model"]) and "path" in section:
        section.setdefault("classification", False)
    if tables["run"].get("certify") is True and "federation" not in section:
        section.setdefault(APART, SHARE)
    if tables["columns"]:
        section["columns"] = tables["columns"]
    return section


# TOML


def dumps(sections: Mapping[str, object]) -> str:
    """Write tables as TOML; entries that are None, and empty tables, are left out.

    >>> print(dumps({"run": {"seed": 1}, "data": {"path": "a.csv", "id": None}}))
    [run]
    seed = 1
    <BLANKLINE>
    [data]
    path = "a.csv"
    <BLANKLINE>
    """
    return tomli_w.dumps(_present(sections))


def _present(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: _present(entry) for key, entry in value.items()}
        return {key: entry for key, entry in kept.items() if entry not in (None, {})}
    return list(map(_present, value)) if isinstance(value, list | tuple) else value


def parse_setting(setting: str) -> dict[str, object]:
    """Turn ``a.b=c`` into nested tables; a value that is not TOML is text.

    >>> parse_setting("method.dual_rounds=50")
    {'method': {'dual_rounds': 50}}
    >>> parse_setting("data.group=sex")
    {'data': {'group': 'sex'}}
    """
    key, sign, value = setting.partition("=")
    if not sign or not key.strip():
        raise UsageError("wrong-setting:parse-setting", setting=setting)
    quoted = dumps({"it": value.strip()}).partition(" = ")[2]
    for text in (value.strip(), quoted):
        try:
            parsed = tomllib.loads(f"{key} = {text}")
        except tomllib.TOMLDecodeError:
            continue
        # A line break inside the value would smuggle in further keys.
        if "\n" not in setting:
            return parsed
    raise UsageError("wrong-setting:parse-setting-2", key=key.strip(), setting=setting)


def merge(
    below: Mapping[str, object], above: Mapping[str, object]
) -> dict[str, object]:
    """Lay one table over another; tables inside are merged, all else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        several = isinstance(under, list) and any(isinstance(t, Mapping) for t in under)
        if isinstance(value, Mapping) and several:
            raise UsageError("wrong-setting:merge", key=key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(under, value) if both else value  # type: ignore[arg-type]
    return merged


# What there is


class Key(NamedTuple):
    """A key of a run file: its type, its default, and what takes it, by kind."""

    kind: Any
    default: object = None
    taken_by: tuple[tuple[str, Any], ...] = ()


@cache
def keys() -> Mapping[str, Key]:
    """Return every key of a run file, as ``section.key``."""
    found = {
        "data.name": Key(str),
        "data.path": Key(str),
        "data.federation": Key(str),
        f"data.{APART}": Key(float),
        "privacy.secure_sum": Key(bool),
        **{f"{name}.kind": Key(str) for name in KINDS},
    }
    for part, sources in {
        "data": [("tables", TableOptions), *DATASETS.items()],
        **{name: list(_own(name).items()) for name in KINDS},
        "run": [("", RunSettings)],
        "privacy": [("", Privacy)],
        "policy": [("", Policy)],
        "about": [("", About)],
    }.items():
        for kind, source in sources:
            for name, entry in parameters(source).items():
                called = f"{part}.{'seed' if name == STATE else name}"
                known = found.get(called, Key(entry.annotation, entry.default))
                if known.kind != entry.annotation:  # one's text, another's list
                    known = known._replace(kind=known.kind | entry.annotation)
                found[called] = known._replace(
                    taken_by=(*known.taken_by, (kind, source))
                )
    return found


def read_text(text: Any, kind: Any) -> Any:
    """Read what was typed as the type of its key; else it stays text."""
    if not isinstance(text, str):
        return text
    plain = [getattr(one, "__origin__", one) for one in (kind, *get_args(kind))]
    for number in (int, float):
        if number in plain:
            try:
                return number(text)
            except ValueError:
                continue
    return text
