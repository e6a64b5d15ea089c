"""TOML as run files need it: a writer, and settings such as ``method.rounds=50``.

The standard library reads TOML but does not write it. Only what a run file can hold is
written: tables, arrays of tables, text, numbers, truth values and lists of them.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from pffl.errors import UsageError

BARE = re.compile(r"[A-Za-z0-9_-]+")
ESCAPES = {
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
}


def dumps(table: Mapping[str, object]) -> str:
    """Write a table; entries that are None are left out.

    >>> print(dumps({"run": {"seed": 1}, "data": {"path": "a.csv", "id": None}}))
    [run]
    seed = 1
    <BLANKLINE>
    [data]
    path = "a.csv"
    <BLANKLINE>
    """
    return "\n".join(_lines(table, ())).strip("\n") + "\n"


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
    for text in (value.strip(), _text(value.strip())):
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
        if isinstance(value, Mapping) and _is_table_array(under):
            raise UsageError(
                f"there are several [[{key}]]: say in the file which one is meant"
            )
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(under, value) if both else value  # type: ignore[arg-type]
    return merged


def _lines(table: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    """Write plain entries first: after a header they would belong to it."""
    known = {key: value for key, value in table.items() if value is not None}
    for key, value in known.items():
        if not isinstance(value, Mapping) and not _is_table_array(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in known.items():
        here = (*path, key)
        name = ".".join(map(_key, here))
        if isinstance(value, Mapping):
            yield from ("", f"[{name}]", *_lines(value, here))
        elif _is_table_array(value):
            for entry in value:  # type: ignore[attr-defined]
                yield from ("", f"[[{name}]]", *_lines(entry, here))


def _is_table_array(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) > 0
        and all(isinstance(entry, Mapping) for entry in value)
    )


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_value, value))}]"
    raise UsageError(f"a run file cannot hold {type(value).__name__}: {value!r}")


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    return f'"{"".join(map(_character, text))}"'


def _character(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        raise UsageError("a run file cannot hold half of a surrogate pair")
    return f"\\u{code:04X}" if code < 0x20 or code == 0x7F else character
