"""What the sites agreed on before the first round, as a file: `federation.json`.

It holds names (of columns, groups, labels and sites), the run that was agreed on, and
public keys, but no rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pffl import files
from pffl.data.encoding import TableEncoding, read_name, read_names
from pffl.data.federation import Federation
from pffl.data.reading import is_number
from pffl.data.schema import Schema
from pffl.errors import DataError, PFFLError, Problems
from pffl.wire.keys import PublicKeys

FORMAT = "pffl federation"
VERSION = 1
FILE = "federation.json"
KEYS = {"format", "version", "name", "target", "label", "labels", "attributes"}
KEYS |= {"columns", "sites", "splits", "schema_hash"}
RUN = ("model", "constraint", "method", "run", "privacy")  # sections of a run file
LATER = {"label_type", "unseen", "weight"}  # which pffl 0.1.0 did not write
LATER |= {"keys", "secure_sum", "floor", "run"}
FEWEST = 3  # sites of a secure sum: of two, each knows the other's


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
    keys
        The sites' public keys, by name, which check signatures; none where answers are
        not signed.
    secure_sum
        Whether answers are added under masks, so that nobody reads a single site's.
    floor
        Fewest people of a cell that a site of a secure sum answers about.
    run
        The run that was agreed on: the sections `RUN` of its file, seed included, and
        `privacy` where noise is added.
    """

    name: str
    encoding: TableEncoding
    sites: tuple[str, ...]
    splits: tuple[str, ...] = ("train", "test")
    keys: Mapping[str, PublicKeys] = field(default_factory=dict)
    secure_sum: bool = False
    floor: int = 10
    run: Mapping[str, Any] = field(default_factory=dict)

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
        encoding = federation.encoding
        kinds = {column.name: column.kind for column in encoding.columns}
        with Problems("federation", DataError) as problems:
            if encoding.label in kinds:
                problems.add(
                    f"[repeated-name] input '{encoding.label}' is called like the label"
                )
            for attribute in encoding.schema.attributes:
                numbers = all(is_number(value) for value in attribute.values)
                if kinds.get(attribute.name) == "number" and not numbers:
                    problems.add(
                        f"[repeated-name] input '{attribute.name}' is called like a "
                        "group"
                    )
        return cls(
            federation.name,
            encoding,
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
            raise DataError(
                f"[cannot-read] '{place}' cannot be read: {error.strerror}"
            ) from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"[not-json] '{place}' is not JSON: {error}") from error
        try:
            return cls.from_dict(plain)
        except (PFFLError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"[other-format] '{place}' is not a {FORMAT} file: {error}"
            ) from error

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Agreement:
        """Rebuild from the plain form."""
        with Problems("federation", DataError) as problems:
            found = (plain.get("format"), plain.get("version"))
            if found != (FORMAT, VERSION):
                problems.add(
                    f"[other-format] format {found}, and this version reads "
                    f"{FORMAT, VERSION}"
                )
            elif set(plain) - LATER != KEYS:
                odd = sorted((set(plain) - LATER) ^ KEYS)
                problems.add(f"[unknown-key] fields {odd} are missing or unknown")
        encoding = TableEncoding.from_dict(plain)
        sites = read_names(plain["sites"])
        with Problems("federation", DataError) as problems:
            if encoding.schema.hash != plain["schema_hash"]:
                problems.add(
                    "[wrong-hash] the names do not have the hash that the file states"
                )
            if not sites or len(set(sites)) < len(sites):
                problems.add(f"[wrong-sites] sites {list(sites)}: none, or one twice")
        return cls(
            read_name(plain["name"]),
            encoding,
            sites,
            read_names(plain["splits"]),
            **_later(plain, sites),
        )

    def as_dict(self) -> dict[str, object]:
        """Plain form, for the file."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "sites": list(self.sites),
            "splits": list(self.splits),
            **self.encoding.as_dict(),
            "schema_hash": self.schema.hash,
            "keys": {name: keys.as_dict() for name, keys in self.keys.items()},
            "secure_sum": self.secure_sum,
            "floor": self.floor,
            "run": dict(self.run),
        }

    def text(self) -> str:
        """Return the file's text."""
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"

    @property
    def hash(self) -> str:
        """SHA-256 of all that was agreed on."""
        return files.digest(json.dumps(self.as_dict(), sort_keys=True))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a site's table must have."""
        names = [column.name for column in self.encoding.columns]
        names += [attribute.name for attribute in self.schema.attributes]
        weight = filter(None, [self.encoding.weight])
        return tuple(dict.fromkeys([*names, self.encoding.label, *weight]))


def _later(plain: Mapping[str, Any], sites: tuple[str, ...]) -> dict[str, Any]:
    """Read what is agreed on beside names."""
    keys = {
        read_name(name): PublicKeys.from_dict(of)
        for name, of in plain.get("keys", {}).items()
    }
    secure, floor = plain.get("secure_sum", False), plain.get("floor", 10)
    run = plain.get("run", {})
    with Problems("federation", DataError) as problems:
        if keys and set(keys) != set(sites):
            odd = sorted(set(keys) ^ set(sites))
            problems.add(
                f"[wrong-keys] keys of some of the sites only, or of others: {odd}"
            )
        if len(set(keys.values())) < len(keys):
            problems.add(
                "[repeated-key] a key is there twice: every site makes its own"
            )
        if type(secure) is not bool or type(floor) is not int or floor < 0:
            problems.add(f"[wrong-value] 'secure_sum' is {secure!r}, 'floor' {floor!r}")
        elif secure and not keys:
            problems.add("[missing-key] a secure sum needs every site's keys")
        if secure and len(sites) < FEWEST:
            problems.add(
                f"[too-few-sites] a secure sum needs {FEWEST} sites or more, and "
                f"there are {len(sites)}"
            )
        if not isinstance(run, dict) or not set(run) <= set(RUN):
            problems.add(
                f"[unknown-key] 'run' has other sections than {', '.join(RUN)}"
            )
        elif secure and not run:
            problems.add("[missing-run] a secure sum needs the run that was agreed on")
    return {
        "keys": keys,
        "secure_sum": secure,
        "floor": floor,
        "run": run,
    }
