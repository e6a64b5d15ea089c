"""What the sites agreed on before the first round, as a file: `federation.json`.

It holds names only (of columns, groups, labels and sites), and no rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pffl.data.columns import Column
from pffl.data.encoding import TableEncoding
from pffl.data.federation import Federation
from pffl.data.schema import Attribute, Schema
from pffl.errors import DataError, PFFLError, Problems

FORMAT = "pffl federation"
VERSION = 1
FILE = "federation.json"
KEYS = {"format", "version", "name", "target", "label", "labels", "attributes"}
KEYS |= {"columns", "sites", "splits", "schema_hash"}


@dataclass(frozen=True)
class Agreement:
    """Who takes part, and how each of them reads its table.

    Attributes
    ----------
    name
        What to call the data.
    encoding
        How a table becomes rows; its `schema` is what all sites share.
    sites
        Names of the sites, in order.
    splits
        Splits that every site is to have.
    """

    name: str
    encoding: TableEncoding
    sites: tuple[str, ...]
    splits: tuple[str, ...] = ("train", "test")

    @property
    def schema(self) -> Schema:
        """Names of features, protected attributes and labels."""
        return self.encoding.schema

    @classmethod
    def of(
        cls, federation: Federation, sites: Sequence[str] | None = None
    ) -> Agreement:
        """Take the names, and no rows, from data that are at hand.

        `sites` renames the silos, in order.
        """
        return cls(
            federation.name,
            federation.encoding or plain_encoding(federation.schema),
            federation.silo_names if sites is None else tuple(sites),
            federation.splits,
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Agreement:
        """Read `federation.json`; refuse whatever is not one."""
        place = Path(path)
        try:
            plain = json.loads(place.read_text("utf-8"))
        except OSError as error:
            raise DataError(f"'{place}' cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"'{place}' is not JSON: {error}") from error
        try:
            return cls.from_dict(plain)
        except (PFFLError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"'{place}' is not a {FORMAT} file: {error}") from error

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Agreement:
        """Rebuild from the plain form."""
        with Problems("federation", DataError) as problems:
            found = (plain.get("format"), plain.get("version"))
            if found != (FORMAT, VERSION):
                problems.add(
                    f"format {found}, and this version reads {FORMAT, VERSION}"
                )
            elif set(plain) != KEYS:
                odd = sorted(set(plain) ^ KEYS)
                problems.add(f"fields {odd} are missing or unknown")
        columns = tuple(_column(column) for column in plain["columns"])
        schema = Schema(
            tuple(name for column in columns for name in column.features),
            tuple(Attribute(_text(n), _texts(v)) for n, v in plain["attributes"]),
            _texts(plain["labels"]),
            _text(plain["target"]),
        )
        sites = _texts(plain["sites"])
        with Problems("federation", DataError) as problems:
            if schema.hash != plain["schema_hash"]:
                problems.add("the names do not have the hash that the file states")
            if not sites or len(set(sites)) < len(sites):
                problems.add(f"sites {list(sites)}: none, or one twice")
        encoding = TableEncoding(schema, columns, _text(plain["label"]))
        return cls(_text(plain["name"]), encoding, sites, _texts(plain["splits"]))

    def as_dict(self) -> dict[str, object]:
        """Plain form, for the file."""
        schema = self.schema
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "sites": list(self.sites),
            "splits": list(self.splits),
            "target": schema.target,
            "label": self.encoding.label,
            "labels": list(schema.labels),
            "attributes": [[a.name, list(a.values)] for a in schema.attributes],
            "columns": [
                {
                    "name": column.name,
                    "kind": column.kind,
                    "values": list(column.values),
                    "indicator": column.indicator,
                }
                for column in self.encoding.columns
            ],
            "schema_hash": schema.hash,
        }

    def text(self) -> str:
        """Return the file's text."""
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a site's table must have."""
        names = [column.name for column in self.encoding.columns]
        names += [attribute.name for attribute in self.schema.attributes]
        return tuple(dict.fromkeys([*names, self.encoding.label]))


def plain_encoding(schema: Schema) -> TableEncoding:
    """Encode data that never were a table: every input is a column of numbers.

    The label's column is called like the target.
    """
    with Problems("federation", DataError) as problems:
        taken = {attribute.name for attribute in schema.attributes}
        for name in schema.features:
            if name in taken or name == schema.target:
                problems.add(f"input '{name}' is called like a group or the label")
    columns = tuple(Column(name, "number") for name in schema.features)
    return TableEncoding(schema, columns, schema.target)


def _column(plain: Mapping[str, Any]) -> Column:
    if plain["kind"] not in ("number", "category") or len(plain) != 4:
        raise DataError(f"not a column: {plain}")
    if not isinstance(plain["indicator"], bool):
        raise DataError(f"'indicator' of '{plain['name']}' is not true or false")
    return Column(
        _text(plain["name"]),
        plain["kind"],
        _texts(plain["values"]),
        plain["indicator"],
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise DataError(f"expected a name, got {value!r}")
    return value


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise DataError(f"expected a list of names, got {values!r}")
    return tuple(_text(value) for value in values)
