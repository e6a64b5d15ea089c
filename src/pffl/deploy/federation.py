"""`federation.json`: what the sites agree on before the first message.

It holds names (of columns, groups, labels and sites), public keys, the run with its
seed and its privacy terms, and where the server is; no rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, PlainValidator

from pffl import files
from pffl.constraints import Constraint
from pffl.data.columns import TableEncoder
from pffl.data.federation import Federation
from pffl.data.read import is_number
from pffl.data.rows import Rows
from pffl.data.schema import Schema, counted_alike
from pffl.deploy.keys import PublicKey
from pffl.errors import DataError, Problems
from pffl.queries.validation import MIN_SITES
from pffl.records import Record, read
from pffl.typing import BoolArray, IntArray

if TYPE_CHECKING:
    from pffl.config import TrainingPlan

FORMAT = {"format": "pffl federation", "version": 3}
FILE = "federation.json"
RUN = ("model", "constraint", "method", "run", "privacy")  # sections of a run file
Name = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, Field(ge=0)]
Key = Annotated[PublicKey, PlainValidator(PublicKey)]


def _read_encoding(plain: Any) -> TableEncoder:
    try:
        return TableEncoder.from_dict(plain)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"[bad-encoding] {error!r}") from error


Encoding = Annotated[TableEncoder, PlainValidator(_read_encoding)]


@dataclass(frozen=True)
class Agreement(Record):
    """Who takes part, how each of them reads its table, and what is run.

    Attributes
    ----------
    name
        What to call the data.
    encoding
        How a table becomes rows; its `schema` is what all sites share.
    sites
        Names of the sites, in order.
    splits, shares
        Splits that every site has, and the share of each but the training rows.
    keys
        The sites' public keys, by name, which check signatures.
    secure_sum
        Whether answers are added under masks, so that no single site's can be read.
    floor
        Fewest people of a cell that a site of a secure sum answers about.
    run
        The run: the sections `RUN` of its file, seed included, and `privacy` where
        noise is added.
    queries
        How many the run asks at most; 0 where that is not known.
    address, certificate
        Where sites reach the server, and by which certificate they know it.
    """

    name: Name
    encoding: Encoding
    sites: tuple[Name, ...]
    splits: tuple[Name, ...] = ("train", "test")
    shares: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, Key] = field(default_factory=dict)
    secure_sum: bool = False
    floor: Whole = 10
    run: Mapping[str, Any] = field(default_factory=dict)
    queries: Whole = 0
    address: str = ""
    certificate: str = ""

    @property
    def schema(self) -> Schema:
        """Names of features, protected attributes and labels."""
        return self.encoding.schema

    @property
    def private(self) -> bool:
        """Whether noise is added to all that is answered."""
        return "privacy" in self.run

    @property
    def counts_sites(self) -> bool:
        """Whether a run begins by counting sites with enough people of each group.

        With noise that count would tell of single people.
        """
        return self.secure_sum and not self.private and self.floor > 1

    @property
    def fewest_holders(self) -> int:
        """Sites that must have people of a set, for anybody to be told of it.

        Of two, each knows the other's sum; so three, where there are more than three.
        """
        return 2 if len(self.sites) == MIN_SITES else 3

    @property
    def mode(self) -> str:
        """What the sites are protected by, in a word."""
        if self.private:
            return "private" if self.secure_sum else "private, without secure sums"
        return "masked" if self.secure_sum else "not protected"

    @classmethod
    def of(
        cls, federation: Federation, sites: Sequence[str] | None = None
    ) -> Agreement:
        """Take the names, and no rows, from data in this process.

        `sites` renames the silos, in order.
        """
        encoding = federation.encoding
        kinds = {column.name: column.kind for column in encoding.columns}
        twice = [encoding.label] if encoding.label in kinds else []
        for attribute in encoding.schema.attributes:  # a number may be a group, too
            if kinds.get(attribute.name) == "number":
                numbers = all(is_number(v) for v in attribute.values)
                twice += [] if numbers else [attribute.name]
        if twice:
            raise DataError("repeated-name:of", twice=twice)
        names = federation.silo_names if sites is None else tuple(sites)
        return cls(federation.name, encoding, names, federation.splits)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Agreement:
        """Read `federation.json`; refuse whatever is not one."""
        content, name = files.read(Path(path)), str(path)
        plain = read(dict[str, Any], content, source=name, error=DataError)
        return cls.from_dict(plain, name)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], source: str = FILE) -> Agreement:
        """Rebuild from the plain form."""
        found = {name: plain.get(name) for name in FORMAT}
        if found != FORMAT:
            raise DataError(
                "other-format:from-dict", source=source, found=found, format=FORMAT
            )
        own = {name: value for name, value in plain.items() if name not in FORMAT}
        agreed = read(cls, own, source=source, error=DataError)
        agreed.check()
        return agreed

    def check(self) -> None:
        """Refuse what cannot be agreed on; all problems at once."""
        sites, keys = self.sites, self.keys
        with Problems("federation", DataError) as problems:
            if not sites or len(set(sites)) < len(sites):
                problems.add("wrong-sites:check", sites=list(sites))
            if keys and set(keys) != set(sites):
                odd = sorted(set(keys) ^ set(sites))
                problems.add("wrong-keys:check", odd=odd)
            if len(set(keys.values())) < len(keys):
                problems.add("repeated-key:check")
            if self.secure_sum and not keys:
                problems.add("missing-key:check")
            if self.secure_sum and len(sites) < MIN_SITES:
                few = f"a secure sum needs {MIN_SITES} sites or more, not {len(sites)}"
                problems.add(f"[too-few-sites] {few}")
            if odd := sorted(set(self.run) - set(RUN)):
                problems.add("unknown-key:check", odd=odd)

    def as_dict(self) -> dict[str, Any]:
        """Plain form, for the file."""
        keys = {name: key.sign for name, key in self.keys.items()}
        plain = {**vars(self), "keys": keys, "encoding": self.encoding.as_dict()}
        return json.loads(json.dumps(FORMAT | plain))  # type: ignore[no-any-return]

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


# The floor: a site leaves out its own people of which it has few, whatever others say.


def plan_of(agreed: Agreement) -> TrainingPlan | None:
    """Return the run that was agreed on; None where none was."""
    if not agreed.run:
        return None
    from pffl.config import read_plan

    return read_plan(agreed.run)


def agreed_sets(agreed: Agreement) -> IntArray:
    """Number, for each stratum, the set of the agreed constraint that it is in.

    Where no run was agreed on, each stratum is a set.
    """
    schema, plan = agreed.schema, plan_of(agreed)
    if plan is None:
        return np.arange(schema.n_strata)
    return sets_of(plan.constraint, schema, agreed.sites)


def sets_of(
    constraint: Constraint | None, schema: Schema, sites: tuple[str, ...]
) -> IntArray:
    """Number the smallest sets into which a constraint's cells split, by stratum.

    Groups, or (group, label)s where the bounds are conditional.
    """
    if constraint is None:
        return np.zeros(schema.n_strata, dtype=np.int64)
    member = constraint.cells(schema, sites).membership
    return np.unique(member, axis=1, return_inverse=True)[1].reshape(-1)


def left_out(rows: Rows, schema: Schema, sets: IntArray, floor: int) -> BoolArray:
    """Say which strata a site leaves out: of sets with fewer people than the floor.

    People, not rows, where it is known whose rows they are.
    """
    rows = rows.counting
    code, n = sets[schema.strata(rows.group, rows.y)], int(sets.max()) + 1
    people = counted_alike(code, rows.weight, n)
    if rows.person is not None:
        pairs = np.unique(np.stack([code, rows.person], axis=1), axis=0)
        people = np.minimum(people, np.bincount(pairs[:, 0], minlength=n))
    return (people < floor)[sets]


# What joining again would change


def changes(before: Agreement, after: Agreement) -> list[str]:
    """Return a line for each thing that an agreement would change."""
    old, new = _flat(before.as_dict()), _flat(after.as_dict())
    return [
        f"{key}: {str(old.get(key, 'not given'))[:200]} becomes "
        f"{str(new.get(key, 'not given'))[:200]}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


def new_keys(before: Agreement, after: Agreement) -> list[str]:
    """Return sites that stay and have another key."""
    both = set(before.keys) & set(after.keys)
    return [s for s in after.sites if s in both and after.keys[s] != before.keys[s]]


def run_lines(agreed: Agreement) -> list[str]:
    """Return the agreed run in words, a line for each section."""
    said = {
        section: ", ".join(f"{key} {value}" for key, value in _flat(values).items())
        for section, values in agreed.run.items()
    }
    return [f"{name}: {text or 'as pffl chooses'}" for name, text in said.items()]


def _flat(values: Any, name: str = "") -> dict[str, Any]:
    """Return nested tables as one, and lists of tables by their places."""
    if isinstance(values, list) and values and isinstance(values[0], Mapping):
        values = {str(place): one for place, one in enumerate(values, start=1)}
    if not isinstance(values, Mapping):
        return {name: values}
    parts = (_flat(one, f"{name}.{key}".strip(".")) for key, one in values.items())
    return {key: value for part in parts for key, value in part.items()}
