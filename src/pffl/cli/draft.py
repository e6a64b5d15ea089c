"""What was typed becomes the sections of a run file, still unchecked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pffl.spec import RunSpec

SPEC = "spec.toml"
TYPED = "command line"
KINDS = ("model", "constraint", "method")


@dataclass(frozen=True)
class Draft:
    """A run file as the command line describes it.

    Attributes
    ----------
    sections
        Its tables.
    source
        What to call it in messages.
    base
        Folder that its relative paths start from.
    """

    sections: Mapping[str, Any]
    source: str
    base: Path

    @classmethod
    def of(
        cls,
        data: str | None,
        given: Mapping[tuple[str, ...], Any],
        settings: Sequence[str] = (),
    ) -> Draft:
        """Lay options and settings over what DATA names.

        Parameters
        ----------
        data
            A data set, a table, a run file or a run directory.
        given
            Keys of the run file and the value that an option gives them, if any.
        settings
            As ``section.key=value``.
        """
        from pffl.errors import UsageError
        from pffl.spec import merge, parse_setting

        if data is None:
            raise UsageError("DATA is missing: give it, or --resume DIR")
        sections, source, base = named(data)
        options: dict[str, Any] = {}
        for keys, value in given.items():
            if value is not None and value != []:
                plain = bound(value) if keys == ("constraint.bound",) else value
                for section, key in (name.split(".") for name in keys):
                    options.setdefault(section, {})[key] = plain
        for setting in settings:
            options = merge(options, parse_setting(setting))
        sections = _other_kinds_forgotten(sections, options)
        return cls(merge(sections, options), source, base)

    @classmethod
    def resumed(
        cls,
        place: Path,
        data: str | None,
        given: Mapping[tuple[str, ...], Any],
        settings: Sequence[str] = (),
    ) -> Draft:
        """Return the run that was stopped in a directory; nothing else may be given."""
        from pffl.checkpoint import SPEC as STOPPED
        from pffl.errors import ArtefactError, UsageError

        others = [keys[-1] for keys, value in given.items() if value not in (None, [])]
        others += [] if data is None else [f"DATA {data}"]
        if others or settings:
            raise UsageError(
                f"--resume goes on with the run of '{place}' as it was: leave out "
                f"{', '.join([*others, *settings])}"
            )
        if not (place / STOPPED).is_file():
            raise ArtefactError(
                f"'{place}' holds no run that was stopped: there is no {STOPPED}"
            )
        return cls.of(str(place / STOPPED), {})

    def check(self) -> RunSpec:
        """Turn it into typed objects; all problems at once."""
        from pffl.spec import parse

        return parse(self.sections, source=self.source, base=self.base)


def named(data: str) -> tuple[dict[str, Any], str, Path]:
    """Sections, name and folder of what DATA stands for."""
    from pffl.datasets import DATASETS
    from pffl.errors import DataError
    from pffl.records import read_toml

    path = Path(data)
    if (path / SPEC).is_file():
        path = path / SPEC
    if path.suffix == ".toml":
        return read_toml(path), str(path), path.parent
    if data in DATASETS or not (path.exists() or path.suffix or os.sep in data):
        return {"data": {"name": data}}, TYPED, Path()
    if not path.is_file():
        raise DataError(f"'{data}' is not a file")
    return {"data": {"path": data}}, TYPED, Path()


def bound(given: Sequence[str]) -> float | dict[str, float]:
    """Read ``--bound``: one number, or ``cell=number`` for each cell."""
    from pffl.errors import Problems, UsageError

    cells: dict[str, float] = {}
    with Problems("--bound", UsageError) as problems:
        for text in given:
            cell, _, number = text.rpartition("=")
            try:
                cells[cell.strip()] = float(number)
            except ValueError:
                hint = " (a point, not a comma)" if "," in number else ""
                problems.add(
                    f"must be NUMBER or CELL=NUMBER{hint}. Got {text!r} instead."
                )
        if not problems.found and "" in cells and len(given) > 1:
            problems.add("give one number for all cells, or CELL=NUMBER for each")
    return cells.get("", cells)


def _other_kinds_forgotten(
    sections: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Start a section anew where the command line asks for another kind."""
    kept = dict(sections)
    for name in KINDS:
        table, there = options.get(name), kept.get(name)
        asked = table.get("kind") if isinstance(table, Mapping) else None
        now = there.get("kind") if isinstance(there, Mapping) else None
        if asked is not None and there is not None and now != asked:
            kept[name] = {}
    return kept
