"""The [data] section: a data set by name, one table, or one table per silo.

Or `federation`, a federation.json: the rows are elsewhere, and stay there.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pffl.data.federation import Federation
from pffl.data.table import ColumnOptions, TableOptions
from pffl.datasets import DATASETS
from pffl.errors import DataError, Problems, UsageError, wrong
from pffl.numerics import is_number
from pffl.records import check, construct, read_toml, required, suggestion

if TYPE_CHECKING:
    from pffl.site.agreement import Agreement

SPEC = "spec.toml"  # the run file of a run directory
APART = "calibration_fraction"  # of the training rows: what a promise is tested on
PATHS = ("path", "source", "cache_dir", "federation")


@dataclass(frozen=True)
class DataSource:
    """Where rows come from.

    Attributes
    ----------
    name
        What to call a run on these data.
    open
        Opens them; ``progress=`` is handed to loaders that show how far they are.
    values
        The section as it was given, with paths that do not depend on its place.
    agreement
        Reads what the sites agreed on, where their rows stay with them.
    """

    name: str
    open: Callable[..., Federation]
    values: Mapping[str, object]
    agreement: Callable[[], Agreement] | None = None

    def sections(self, directory: str | os.PathLike[str]) -> dict[str, object]:
        """Return [data] and [columns] as they read in a file in `directory`."""
        seen_from = Path(directory).resolve()
        data = _map_paths(self.values, lambda path: _relative(path, seen_from))
        return {"data": data, "columns": data.pop("columns", None)}


def named(data: str) -> tuple[dict[str, Any], str | None, Path]:
    """Return the sections that a text stands for, the file they are in, its folder.

    A data set, a table, a run file or a run directory; the first two are in no file.
    """
    path = Path(data)
    if (path / SPEC).is_file():
        path = path / SPEC
    if path.suffix == ".toml":
        return read_toml(path), str(path), path.parent
    if data in DATASETS or not (path.exists() or path.suffix or os.sep in data):
        return {"data": {"name": data}}, None, Path()
    if not path.is_file():
        raise DataError(f"[file-missing] '{data}' is not a file")
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
            raise UsageError(
                "[needs-run-file] the run was on a data set, so a table says too "
                "little: give a run file (.toml) whose [data] names its columns"
            )
        return {**first, "path": str(Path(data).resolve())}
    if given == {"name": first.get("name")}:
        return dict(first)  # the same data set, with the run's own options
    return _map_paths(given, lambda path: str((folder / path).resolve()))


def read_data(
    table: Mapping[str, object], base: Path, problems: Problems
) -> DataSource | None:
    """Read [data]; paths start from `base`."""
    if "federation" in table:
        return _elsewhere(table, base, problems)
    values = dict(table)
    share: Any = values.pop(APART, None)
    found = _at_hand(values, base, problems)
    if share is None or found is None:
        return found
    if not (is_number(share) and 0 < share < 1):
        problems.add(wrong(APART, "[data]", "a number between 0 and 1", share))
        return None
    apart = {APART: share, "seed": values.get("seed", 0)}

    def opened(progress: object = None) -> Federation:
        return set_apart(found.open(progress=progress), apart)

    return replace(found, open=opened, values={**found.values, APART: share})


def set_apart(federation: Federation, values: Mapping[str, Any]) -> Federation:
    """Set calibration rows apart as the values of a [data] section say, if they do."""
    if (share := values.get(APART)) is None:
        return federation
    return federation.with_calibration(float(share), seed=values.get("seed", 0))


def _at_hand(
    values: dict[str, object], base: Path, problems: Problems
) -> DataSource | None:
    """A data set by name, or tables."""
    path: Any = values.pop("path", None)
    name = values.get("name")
    if path is None and name is None:
        there = ", ".join(DATASETS)
        problems.add(
            f"[missing-data] [data] needs a name (of {there}) or the path of a table"
        )
        return None
    if path is not None and not _is_path(path):
        wanted = "text, or a table (text each)"
        problems.add(wrong("path", "[data]", wanted, path))
        return None
    if path is not None:
        return _tables(path, values, base, problems)
    values.pop("name")
    if name not in DATASETS:
        hint = suggestion(str(name), DATASETS)
        problems.add(
            f"[unknown-data] no data set '{name}': {hint} (for a file, give its path)"
        )
        return None
    load = DATASETS[str(name)][0]
    section = check(values, load, str(name), problems)
    options = _map_paths(section.values, lambda path: str(base / path))

    def opened(progress: object = None) -> Federation:
        shows = (
            progress is not None and "progress" in inspect.signature(load).parameters
        )
        return load(**options, **({"progress": progress} if shows else {}))

    return DataSource(str(name), opened, {"name": name, **options})


def _elsewhere(
    values: Mapping[str, object], base: Path, problems: Problems
) -> DataSource | None:
    """Rows that stay with the sites: there is nothing to open."""
    given = values["federation"]
    others = sorted(set(values) - {"federation"})
    if others:
        problems.add(
            "[options-conflict] [data] has a federation file, so nothing else: not "
            f"{others}"
        )
    if not isinstance(given, str) or not given:
        problems.add(wrong("federation", "[data]", "text", given))
        return None
    path = base / given

    def opened(progress: object = None) -> Federation:
        raise UsageError(
            f"[rows-elsewhere] the rows of '{path}' stay with the sites: deploy the "
            "run (pffl deploy)"
        )

    def agreement() -> Agreement:
        from pffl.site.agreement import Agreement

        return Agreement.read(path)

    return DataSource(path.stem, opened, {"federation": str(path)}, agreement)


def _tables(
    path: str | dict[str, str],
    values: dict[str, object],
    base: Path,
    problems: Problems,
) -> DataSource | None:
    """One table for all silos, or one for each."""
    one = isinstance(path, str)
    make = Federation.from_table if one else Federation.from_silos
    keywords = TableOptions if one else ColumnOptions
    section = check(values, keywords, "[data]", problems)
    absent = [f"`{key}=`" for key in required(keywords) if key not in values]
    if absent:
        problems.add(f"[missing-key] a table needs {' and '.join(absent)}")
    elif section.complete and one:
        # What does not go together is refused before a table is read.
        construct(TableOptions, section.values, problems)
    place = _map_paths({"path": path}, lambda path: str(base / path))
    options = section.values
    fallback = Path(path).stem if isinstance(path, str) else "tables"
    return DataSource(
        str(options.get("name", fallback)),
        lambda progress=None: make(place["path"], **options),
        {**place, **options},
    )


def _is_path(path: object) -> bool:
    if isinstance(path, Mapping):
        return bool(path) and all(isinstance(p, str) for p in path.values())
    return isinstance(path, str) and bool(path)


def _map_paths(
    values: Mapping[str, Any], change: Callable[[str], str]
) -> dict[str, Any]:
    """Change the paths of a section, and leave all else."""
    out = dict(values)
    for key in PATHS:
        if isinstance(out.get(key), Mapping):
            out[key] = {silo: change(path) for silo, path in out[key].items()}
        elif isinstance(out.get(key), str):
            out[key] = change(out[key])
    return out


def _relative(path: str, directory: Path) -> str:
    try:
        return Path(os.path.relpath(Path(path).resolve(), directory)).as_posix()
    except ValueError:  # another drive
        return str(Path(path).resolve())
