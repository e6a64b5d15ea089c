"""`site.toml`: where a site's rows are, how they are split, and what it allows."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pffl.data.partition import CALIBRATION, check_fractions
from pffl.errors import Problems, UsageError, wrong
from pffl.numerics import is_number
from pffl.records import check, construct, read_toml, suggestion, table
from pffl.site import agreement
from pffl.site.agreement import Agreement

FILE = "site.toml"
PARTS = (
    "radius",
    "epsilon",
    "delta",
)  # limits that need not be whole
ENDLESS = ("radius",)  # and those that there need not be


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Limits that only the site can change.

    Parameters
    ----------
    floor
        Fewest people of a cell, in a split, that the site answers about; below 2 it
        answers about all.
    queries
        Queries that a run may ask, the census not counted. `Exact` asks about twenty,
        `PFFL` asks E·T, and with the defaults that is in the thousands.
    runs
        Runs that are answered in all: names of runs are the server's to choose.
    radius
        Largest norm of a model's parameters; of a linear one also in units in which
        every input has spread 1 at the site, and times the sharpness of smooth scores.
    batches
        Whether steps on batches of the rows are answered. The server weighs the cells,
        and a cell may have one row in a batch: its gradient is that row.
    layouts
        Ways to cut the rows into cells that a run may use.
    epsilon, delta
        What all releases with noise about the site's people may come to, over all runs:
        (ε, δ). 0: the site answers nothing with noise.
    largest_message
        Bytes.
    """

    floor: int = 10
    queries: int = 200
    runs: int = 100
    radius: float = 15.0
    batches: bool = False
    layouts: int = 4
    epsilon: float = 0.0
    delta: float = 1e-6
    largest_message: int = 64 << 20

    def __post_init__(self) -> None:
        with Problems("limits", UsageError) as problems:
            if not isinstance(self.batches, bool):
                wanted = "true or false"
                problems.add(wrong("batches", "[limits]", wanted, self.batches))
            for field in fields(self):
                value = getattr(self, field.name)
                if field.name == "batches":
                    continue
                whole = field.name not in PARTS
                endless = field.name in ENDLESS and value == math.inf
                good = endless or (is_number(value) and value >= 0)
                if not good or (whole and type(value) is not int):
                    wanted = f"a {'whole ' if whole else ''}number ≥ 0"
                    problems.add(wrong(field.name, "[limits]", wanted, value))
            if is_number(self.delta) and not 0 < self.delta < 1:
                wanted = "a number between 0 and 1"
                problems.add(wrong("delta", "[limits]", wanted, self.delta))


@dataclass(frozen=True, kw_only=True)
class Split:
    """How the rows are cut: by a column that says so, or at random.

    Parameters
    ----------
    column
        Column with ``train``, ``test``, ``validation`` or ``calibration`` in every row.
    test, validation, calibration
        Shares drawn at random with `seed`, if there is no such column.
    """

    column: str | None = None
    test: float = 0.2
    validation: float = 0.0
    calibration: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_fractions(self.fractions)
        if self.seed < 0:
            raise UsageError(wrong("seed", "[split]", "≥ 0", self.seed))

    @property
    def fractions(self) -> dict[str, float]:
        """Shares by name."""
        names = ("test", "validation", CALIBRATION)
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Place:
    """The [site] section.

    Parameters
    ----------
    name
        Name of the site, as in federation.json.
    table
        CSV or Parquet file with the rows; not needed where they are prepared already.
    prepared
        Folder of the prepared rows.
    federation
        What the sites agreed on.
    """

    name: str
    table: str | None = None
    prepared: str = "prepared"
    federation: str = agreement.FILE


@dataclass(frozen=True)
class SiteConfig:
    """A site file that was checked.

    Attributes
    ----------
    folder
        Where the file lies: relative paths start there, and the guard's memory and
        the log lie there.
    place, split, rules
        Its sections [site], [split] and [limits].
    columns
        From the federation's names of columns to the site's, where they differ.
    """

    folder: Path
    place: Place
    split: Split = field(default_factory=Split)
    rules: Rules = field(default_factory=Rules)
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the site."""
        return self.place.name

    @property
    def prepared(self) -> Path:
        """Folder of the prepared rows."""
        return self.folder / self.place.prepared

    @property
    def table(self) -> Path | None:
        """File with the rows."""
        return None if self.place.table is None else self.folder / self.place.table

    @property
    def federation(self) -> Path:
        """File with what the sites agreed on."""
        return self.folder / self.place.federation

    def agreement(self, path: Path | None = None) -> Agreement:
        """Read what the sites agreed on, here or in a file that proposes it.

        Refuse a site that is not among them.
        """
        place = self.federation if path is None else path
        agreed = Agreement.read(place)
        if self.name not in agreed.sites:
            hint = suggestion(self.name, agreed.sites)
            raise UsageError(
                f"[unknown-site] '{place}' knows no site '{self.name}': {hint}"
            )
        return agreed

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SiteConfig:
        """Read a site file, or the one in a folder; all its problems at once."""
        place = Path(path)
        place = place / FILE if place.is_dir() else place
        return cls.parse(read_toml(place), place.parent, source=str(place))

    @classmethod
    def parse(
        cls, sections: Mapping[str, Any], folder: Path, *, source: str = FILE
    ) -> SiteConfig:
        """Check the sections of a site file."""
        kinds = {"site": Place, "split": Split, "limits": Rules}
        known = [*kinds, "columns"]
        built: dict[str, Any] = {}
        with Problems(source, UsageError) as problems:
            for name in sections:
                if name not in known:
                    hint = suggestion(name, known)
                    problems.add(f"[unknown-key] there is no section [{name}]: {hint}")
            for name, kind in kinds.items():
                built[name] = _section(name, kind, sections.get(name, {}), problems)
            columns = sections.get("columns", {})
            texts = isinstance(columns, Mapping) and all(
                isinstance(value, str) for value in columns.values()
            )
            if not texts:
                problems.add(
                    '[wrong-value] [columns] must be a table of texts: name = "theirs"'
                )
        return cls(folder, built["site"], built["split"], built["limits"], columns)


def _section(name: str, kind: type[Any], values: object, problems: Problems) -> Any:
    owner = f"[{name}]"
    given = table(values, owner, problems)
    if kind is Place and given is values and not given.get("name"):
        problems.add(f"[missing-key] {owner} needs a 'name'")
    section = check(given, kind, owner, problems)
    if kind is Place and not section.values.get("name"):
        return None
    return construct(kind, section.values, problems)
