"""One typed reader for plain data: what came out of TOML, JSON or a call.

Pydantic's strict rules for all: names that are not known are refused, types are never
converted, NaN and infinity are no numbers, all problems are collected.

- `read`: a whole JSON text, into a `Record` (a frozen dataclass, nested as it may be).
- `check` and `make`: one section of a TOML file, for the object that it becomes. The
  parameters of a method are the fields of its class, those of a data set the parameters
  of its function; so a new method or data set needs no line here.
- `check_parameters`: the fields of an object that was made by hand. Their types say
  what is allowed: ``step_size: Positive | None``, ``batch: Literal["all", "one"]``.
  Types that JSON cannot describe, such as arrays, are not checked.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from pffl.errors import ArtefactError, PFFLError, Problems, UsageError, wrong
from pffl.text import shorten

T = TypeVar("T")
Source = Callable[..., object]  # a dataclass or a function

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
LONGEST = 80  # characters of a value in a message
MOST_NAMED = 30  # names in a message
BEGINNING = "^(Input should be|Value error,) "  # of pydantic's messages


def _ascending(ends: tuple[float, float]) -> tuple[float, float]:
    if not ends[0] < ends[1]:
        raise ValueError("two numbers, the smaller first")
    return ends


Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Probability = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Interval = Annotated[tuple[float, float], AfterValidator(_ascending)]


class Record:
    """Base of frozen dataclasses that are read from outside."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT


def read(
    kind: type[T],
    content: bytes | str | object,
    *,
    source: str,
    error: type[PFFLError] = ArtefactError,
) -> T:
    """Read JSON (its text, or what it was parsed to), or raise all that is wrong.

    Parameters
    ----------
    kind
        A `Record`, or any type of plain values.
    content
        The JSON.
    source
        What to call it in the message.
    error
        What to raise.
    """
    wanted: Any = kind
    try:
        plain = json.loads(content) if isinstance(content, bytes | str) else content
        return _adapter(wanted).validate_json(json.dumps(plain, allow_nan=False))
    except ValidationError as refused:
        problems = Problems(source, error)
        for entry in refused.errors():
            problems.add(_problem(entry))
        problems.raise_if_any()
        raise
    except (ValueError, TypeError, RecursionError) as reason:
        raise error(f"[not-json] {source}: it is not JSON: {reason}") from reason


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # A dataclass has its own configuration.
    return TypeAdapter(kind, config=None if is_dataclass(kind) else STRICT)


def _problem(entry: Any) -> str:
    """One of pydantic's errors in our words."""
    where = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in entry["loc"]
    ).removeprefix(".")
    if entry["type"] == "missing":
        return f"[missing-key] '{where}' is missing"
    if entry["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"[unknown-key] '{where}' is not known"
    if entry["type"] == "value_error":
        reason = entry["ctx"]["error"]
        code = getattr(reason, "code", "wrong-value")
        return f"[{code}] {reason}"
    got = shorten(repr(entry["input"]), LONGEST)
    return f"[wrong-value] '{where}': {entry['msg']}. Got {got} instead."


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file, or say where it is not one."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            "cannot-read:cannot-read", path=path, strerror=error.strerror
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError("not-text:read-toml", path=path) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError("not-toml", path=path, error=error) from error


# Parameters: of a section of a run file, or of an object


def parameters(source: Source) -> Mapping[str, FieldInfo]:
    """Return what can be set from a file, with types and defaults."""
    return _section(source).model_fields


@cache
def _section(source: Source, *, every: bool = False) -> type[BaseModel]:
    """Return the pydantic model of all parameters that a file can hold.

    Fields that a class hides (``repr=False``) are among them if it is `every` one.
    """
    hints, hidden = get_type_hints(source, include_extras=True), set[str]()
    if is_dataclass(source) and not every:
        hidden = {f.name for f in fields(source) if not f.repr}
    entries: Any = {
        name: (hints[name], ... if one.default is one.empty else one.default)
        for name, one in inspect.signature(source).parameters.items()
        if name not in hidden and _is_plain(hints[name])
    }
    config = ConfigDict(protected_namespaces=(), **STRICT)
    return create_model(source.__name__, __config__=config, **entries)


@cache
def _is_plain(hint: Any) -> bool:
    """Whether a file can hold values of a type: JSON can describe them."""
    try:
        TypeAdapter(hint).json_schema()
    except PydanticUserError:
        return False
    return True


def _validated(model: type[BaseModel], values: Mapping[str, object]) -> Any:
    """Validate values as JSON, where a list may be what becomes a tuple."""
    return model.model_validate_json(json.dumps(values, default=_plain))


def _plain(value: object) -> object:
    """Return what JSON cannot hold as what it can: a date, say, is text."""
    if isinstance(value, np.generic):
        return value.item()
    return vars(value) if isinstance(value, Record) else str(value)


def check_parameters(owner: Any, problems: Problems | None = None) -> None:
    """Refuse the fields of a dataclass that are not of their types, all at once.

    Those found are added to `problems`, where they are given.
    """
    kind: Any = type(owner)
    found = problems or Problems(kind.__name__, UsageError)
    model = _section(kind, every=True)
    try:
        _validated(model, {name: getattr(owner, name) for name in model.model_fields})
    except ValidationError as refused:
        for key, entries in _by_key(refused).items():
            found.add(_refused(key, entries, kind.__name__, getattr(owner, key)))
    if problems is None:
        found.raise_if_any()


def check(
    values: Mapping[str, object],
    source: Source,
    owner: str,
    problems: Problems,
    others: Mapping[str, Source] | None = None,
) -> dict[str, Any]:
    """Check names and types of a section; return what is good, nothing if a key lacks.

    `others` may be named as having an unknown key. Text where a list is meant is cut at
    its commas, and a date is text.
    """
    model, good = _section(source), dict(values)
    for key, value in values.items():
        known = model.model_fields.get(key)
        if isinstance(value, str) and known and _is_list(known.annotation):
            good[key] = [part.strip() for part in value.split(",")]
    try:
        found = _validated(model, good)
    except ValidationError as refused:
        told = _by_key(refused)
        for key, entries in told.items():
            if entries[0]["type"] == "extra_forbidden":
                problems.add(_unknown(key, model, owner, others or {}))
            else:
                problems.add(_refused(key, entries, owner, values.get(key)))
        rest = {key: value for key, value in values.items() if key not in told}
        needed = {key for key, one in model.model_fields.items() if one.is_required()}
        return check(rest, source, owner, problems) if needed <= rest.keys() else {}
    return {key: _frozen(getattr(found, key)) for key in good}


def make(
    values: Mapping[str, object],
    source: Any,
    owner: str,
    others: Mapping[str, Source] | None = None,
) -> Any:
    """Return the object of a section, or raise all that is wrong with it."""
    with Problems(owner, UsageError) as problems:
        good = check(values, source, owner, problems, others)
        # One message about a key that is needed is enough.
        refused = "bound" in values and "bound" not in good
        if not refused and (good or not problems.found):
            with problems.noting():
                made = source(**good)
    return made


def _by_key(refused: ValidationError) -> dict[str, list[Any]]:
    """Return pydantic's errors by the parameter, keys that lack last."""
    told: dict[str, list[Any]] = {}
    for entry in sorted(refused.errors(), key=lambda one: one["type"] == "missing"):
        told.setdefault(str((*entry["loc"], "")[0]), []).append(entry)
    return told


def _refused(key: str, entries: Sequence[Any], owner: str, value: object) -> str:
    """Say what a parameter must be, and what it is."""
    if entries[0]["type"] == "missing" and len(entries[0]["loc"]) == 1:
        return f"[missing-key] {owner} needs `{key}=`"
    wanted = [re.sub(BEGINNING, "", one["msg"]) for one in entries]
    return wrong(key, owner, " or ".join(dict.fromkeys(wanted)), value)


def _unknown(
    key: str, model: type[BaseModel], owner: str, others: Mapping[str, Source]
) -> str:
    """Say that a parameter is not known, and what may have been meant."""
    has = [n for n, other in others.items() if key in parameters(other)]
    hint = f" ({', '.join(has)} {'has' if len(has) == 1 else 'have'} it)"
    hint = hint if has else f": {suggestion(key, model.model_fields)}"
    return f"[unknown-key] {owner} has no parameter '{key}'{hint}"


def table(values: object, owner: str) -> Mapping[str, Any]:
    """Return what must be a table."""
    if not isinstance(values, Mapping):
        raise UsageError("wrong-value:table", owner=owner, values=values)
    return values


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say what may have been meant, or list the choices."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"there are {', '.join(names[:MOST_NAMED])}{more}"


def _is_list(kind: Any) -> bool:
    """Whether a type is that of lists, and not of text as well."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    lists = (list, tuple, Sequence)
    return str not in kinds and any(get_origin(one) in lists for one in kinds)


def _frozen(value: object) -> object:
    """Lists as tuples: what is built from a file does not change."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
