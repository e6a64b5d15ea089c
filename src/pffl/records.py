"""One typed reader for plain data: what came out of TOML or JSON becomes an object.

Two ways in, and the same rules: names that are not known are refused, types are
checked by pydantic and never converted, NaN and infinity are no numbers, and all
problems are collected.

- `read`: a whole JSON text, into a `Record` (a frozen dataclass, nested as it may be).
- `check` and `construct`: one section of a TOML file, for the object that it becomes.
  The parameters of a method are the fields of its class, those of a data set the
  parameters of its function; so a new method or data set needs no line here.
"""

from __future__ import annotations

import difflib
import inspect
import json
import operator
import os
import re
import sys
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, reduce
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    create_model,
)

from pffl.errors import ArtefactError, PFFLError, Problems, UsageError, wrong

T = TypeVar("T")
Source = Callable[..., object]  # a dataclass or a function

STRICT = ConfigDict(strict=True, allow_inf_nan=False)
SCALARS: dict[object, str] = {
    int: "a whole number",
    float: "a finite number",
    str: "text",
    bool: "true or false",
}
#: An entry of a docstring: names of parameters, and their descriptions.
ENTRY = re.compile(r"^([a-z_0-9]+(?:, [a-z_0-9]+)*)\n((?: {4}.*\n?|\n)+)", re.MULTILINE)
LONGEST = 80  # characters of a value in a message
MOST_NAMED = 30  # names in a message


class Record:
    """Base of frozen dataclasses that are read from outside."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", **STRICT)


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
    got = repr(entry["input"])
    got = got if len(got) <= LONGEST else got[: LONGEST - 1] + "…"
    return f"[wrong-value] '{where}': {entry['msg']}. Got {got} instead."


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file, or say where it is not one."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"[cannot-read] '{path}' cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"[not-text] '{path}' is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"[not-toml] '{path}' is not TOML: {error}") from error


@cache
def parameters(source: Source) -> Mapping[str, Any]:
    """Names of what can be set from a file, with their types in plain form.

    Fields that a class hides (``repr=False``) and types that a file cannot hold are
    left out.
    """
    if is_dataclass(source):
        written = {f.name: f.type for f in fields(source) if f.init and f.repr}
    else:
        given = inspect.signature(source).parameters.values()
        written = {parameter.name: parameter.annotation for parameter in given}
    space = _namespace(source)
    hints = {name: _resolve(kind, space) for name, kind in written.items()}
    plain = {name: plain_type(hint) for name, hint in hints.items()}
    return {name: kind for name, kind in plain.items() if kind is not None}


def required(source: Source) -> list[str]:
    """Names of the parameters without a default."""
    given = inspect.signature(source).parameters
    return [
        n for n in parameters(source) if given[n].default is inspect.Parameter.empty
    ]


@dataclass(frozen=True)
class Key:
    """What is known of one key of a section.

    Attributes
    ----------
    kind
        Its type.
    default
        What holds without it.
    meaning
        What its class or function says of it.
    kinds
        The kinds of the section that have it.
    """

    kind: Any
    default: object
    meaning: str
    kinds: list[str] = field(default_factory=list)


def keys_of(source: Source, told_by: Source | None = None) -> dict[str, Key]:
    """Return the keys that a class or function makes of a section.

    `told_by` is the function whose docstring says what they mean, if it is another.
    """
    given, said = inspect.signature(source).parameters, meanings(told_by or source)
    return {
        name: Key(kind, given[name].default, said.get(name, ""))
        for name, kind in parameters(source).items()
    }


def meanings(source: Source) -> dict[str, str]:
    """Return what the docstring of a class or function says of each parameter."""
    found: dict[str, str] = {}
    kinds = inspect.getmro(source) if inspect.isclass(source) else (source,)
    for kind in reversed(kinds):
        text = (inspect.getdoc(kind) or "").partition("\n----------\n")[2] + "\n"
        for names, words in ENTRY.findall(text):
            one = " ".join(words.replace("``", "`").split())
            found |= dict.fromkeys(names.split(", "), one)
    return found


@cache
def _model(source: Source) -> type[BaseModel]:
    """Return the pydantic model of a section: strict, and nothing else in it."""
    entries: Any = {name: (kind, None) for name, kind in parameters(source).items()}
    strict = ConfigDict(extra="forbid", protected_namespaces=(), **STRICT)
    return create_model(source.__name__, __config__=strict, **entries)


def check(
    values: Mapping[str, object],
    source: Source,
    owner: str,
    problems: Problems,
    *,
    others: Mapping[str, Source] | None = None,
) -> tuple[dict[str, Any], bool]:
    """Check names and types; return what is good, and whether all is.

    `others` may be named as having an unknown key.
    """
    known, model, good = parameters(source), _model(source), dict(values)
    try:
        found = model.model_validate(good)
    except ValidationError as refused:
        for key in dict.fromkeys(str(entry["loc"][0]) for entry in refused.errors()):
            del good[key]
            if key in known:
                problems.add(wrong(key, owner, words(known[key]), values[key]))
            else:
                problems.add(unknown_key(key, owner, known, others or {}))
        found = model.model_validate(good)
    # A whole number where any number may be is one with a point.
    read = {key: _frozen(getattr(found, key)) for key in good}
    return read, len(good) == len(values)


def construct(
    make: Callable[..., T], values: Mapping[str, Any], to: Problems
) -> T | None:
    """Make the object, or note why it refuses these values."""
    try:
        return make(**values)
    except PFFLError as error:
        codes = dict(enumerate(error.codes))
        for place, reason in enumerate(reasons(error)):
            to.add(f"[{codes.get(place, error.code)}] {reason}")
        return None


def table(values: object, owner: str, problems: Problems) -> Mapping[str, Any]:
    """Return what must be a table; otherwise an empty one, with a note."""
    if isinstance(values, Mapping):
        return values
    problems.add(f"[wrong-value] {owner} must be a table. Got {values!r} instead.")
    return {}


def unknown_key(
    key: str, owner: str, known: Iterable[str], others: Mapping[str, Source]
) -> str:
    """Say that a key is unknown, and what may have been meant."""
    having = [name for name, other in others.items() if key in parameters(other)]
    if having:
        hint = f"({', '.join(having)} {'has' if len(having) == 1 else 'have'} it)"
        return f"[unknown-key] {owner} has no parameter '{key}' {hint}"
    return f"[unknown-key] {owner} has no parameter '{key}': {suggestion(key, known)}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say what may have been meant, or list the choices."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"there are {', '.join(names[:MOST_NAMED])}{more}"


def reasons(error: PFFLError) -> list[str]:
    """Take apart an error that lists several problems."""
    head, *lines = str(error).split("\n  - ")
    return lines or [head.partition(": ")[2] or head]


def plain_type(hint: Any) -> Any:
    """Return the part of a type that a TOML file can express; None without one."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (*SCALARS, types.NoneType) or origin is Literal:
        return hint
    if hint in (object, Any):
        return bool | int | float | str
    if origin in (Union, types.UnionType):
        parts = [part for part in map(plain_type, arguments) if part is not None]
        known = set(parts) - {types.NoneType}
        return reduce(operator.or_, parts) if known else None
    if origin is os.PathLike:
        return str
    if origin in (tuple, list, Sequence):
        inside = plain_type(arguments[0])
        return None if inside is None else types.GenericAlias(list, (inside,))
    if origin in (dict, Mapping):
        inside = plain_type(arguments[1])
        return None if inside is None else types.GenericAlias(dict, (str, inside))
    return None


def words(kind: Any) -> str:
    """A plain type in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in SCALARS:
        return SCALARS[kind]
    if origin is Literal:
        one_of = "one of " if len(arguments) > 1 else ""
        return one_of + ", ".join(repr(value) for value in arguments)
    if origin in (Union, types.UnionType):
        parts = [words(part) for part in arguments if part is not types.NoneType]
        return " or ".join(dict.fromkeys(parts))
    if origin is list:
        return f"a list ({words(arguments[0])})"
    return f"a table ({words(arguments[1])} each)"


def _namespace(source: Source) -> dict[str, Any]:
    """Names that the annotations of a class (with its bases) or a function can use."""
    owners = reversed(source.__mro__) if inspect.isclass(source) else [source]
    modules = [sys.modules[owner.__module__] for owner in owners]
    return {name: value for m in modules for name, value in vars(m).items()}


def _resolve(written: object, space: dict[str, Any]) -> object:
    """Resolve one annotation; one that only a type checker can resolve is None."""
    owner = type("Owner", (), {"__annotations__": {"it": written}})
    try:
        return get_type_hints(owner, space)["it"]
    except NameError:
        return None


def _frozen(value: object) -> object:
    """Lists as tuples: what is built from a file does not change."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
