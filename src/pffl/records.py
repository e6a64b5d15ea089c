"""One typed reader for plain data: what came out of TOML or JSON becomes an object.

Two ways in, and pydantic's strict rules for both: names that are not known are refused,
types are never converted, NaN and infinity are no numbers, all problems are collected.

- `read`: a whole JSON text, into a `Record` (a frozen dataclass, nested as it may be).
- `check` and `make`: one section of a TOML file, for the object that it becomes. The
  parameters of a method are the fields of its class, those of a data set the parameters
  of its function; so a new method or data set needs no line here.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    ClassVar,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from pffl.errors import ArtefactError, PFFLError, Problems, UsageError

T = TypeVar("T")
Source = Callable[..., object]  # a dataclass or a function

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
LONGEST = 80  # characters of a value in a message
MOST_NAMED = 30  # names in a message


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
        if isinstance(content, bytes | str):
            json.loads(content, parse_constant=_refuse)  # which pydantic lets through
            return _adapter(wanted).validate_json(content)
        return _adapter(wanted).validate_json(json.dumps(content, allow_nan=False))
    except ValidationError as refused:
        problems = Problems(source, error)
        for entry in refused.errors():
            problems.add(_problem(entry))
        problems.raise_if_any()
        raise
    except (ValueError, TypeError, RecursionError) as reason:
        raise error(f"[not-json] {source}: it is not JSON: {reason}") from reason


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


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
    return f"[wrong-value] '{where}': {entry['msg']}. Got {_seen(entry)} instead."


def _seen(entry: Any) -> str:
    got = repr(entry["input"])
    return got if len(got) <= LONGEST else got[: LONGEST - 1] + "…"


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


# Sections of a run file


def parameters(source: Source) -> Mapping[str, FieldInfo]:
    """Return what can be set from a file, with types and defaults."""
    return _section(source).model_fields


@cache
def _section(source: Source) -> type[BaseModel]:
    """Return the pydantic model of a section: all parameters that a file can hold.

    Fields that a class hides (``repr=False``) are not among them.
    """
    hints, hidden = get_type_hints(source, include_extras=True), set[str]()
    if is_dataclass(source):
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
    try:  # in JSON a list may be what becomes a tuple
        found = model.model_validate_json(json.dumps(good, default=str))
    except ValidationError as refused:
        told: dict[str, list[Any]] = {}
        for entry in sorted(refused.errors(), key=lambda one: one["type"] == "missing"):
            told.setdefault(str((*entry["loc"], "")[0]), []).append(entry)
        for key, entries in told.items():
            problems.add(_refused(key, entries, model, owner, others or {}))
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


def _refused(
    key: str,
    entries: Sequence[Any],
    model: type[BaseModel],
    owner: str,
    others: Mapping[str, Source],
) -> str:
    """Say what is wrong with a key, and what may have been meant."""
    if entries[0]["type"] == "missing":
        return f"[missing-key] {owner} needs `{key}=`"
    if entries[0]["type"] == "extra_forbidden":
        has = [n for n, other in others.items() if key in parameters(other)]
        hint = f"({', '.join(has)} {'has' if len(has) == 1 else 'have'} it)"
        hint = hint if has else f": {suggestion(key, model.model_fields)}"
        return f"[unknown-key] {owner} has no parameter '{key}'{' ' * bool(has)}{hint}"
    wanted = [one["msg"].removeprefix("Input should be ") for one in entries]
    return (
        f"[wrong-value] The '{key}' parameter of {owner} must be "
        f"{' or '.join(dict.fromkeys(wanted))}. Got {_seen(entries[0])} instead."
    )


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
