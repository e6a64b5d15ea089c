"""Read a run directory back, and say whether it is as the run left it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pffl.data.schema import Schema
from pffl.errors import ArtefactError
from pffl.models import Inputs, Model
from pffl.run_directory import files
from pffl.run_directory.contents import HISTORY, MODEL, RESULT, SPEC
from pffl.run_directory.model_file import ModelFile, read_model
from pffl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run that was saved.

    Attributes
    ----------
    directory
        Where it lies.
    result
        `result.json`.
    saved
        `model.safetensors`: model, schema, parameters and multipliers.
    spec_text
        `spec.toml`.
    mismatches
        Files that are not as the manifest knows them; empty if the record is verified.
    """

    directory: Path
    result: Mapping[str, Any]
    saved: ModelFile
    spec_text: str
    mismatches: tuple[str, ...]

    @property
    def verified(self) -> bool:
        """Whether every file is as the run left it."""
        return not self.mismatches

    @property
    def w(self) -> FloatArray:
        """Parameters of the model."""
        return self.saved.w

    @property
    def multipliers(self) -> FloatArray:
        """λ of each cell."""
        return self.saved.multipliers

    @property
    def model(self) -> Model:
        """The model, bound to its schema and scaling."""
        return self.saved.model

    @property
    def inputs(self) -> Inputs:
        """How raw features become the model's inputs."""
        return self.saved.inputs

    @property
    def schema(self) -> Schema:
        """Names of features, groups and labels."""
        return self.saved.schema

    def require_verified(self) -> RunRecord:
        """Return self, or raise if a file was changed after the run."""
        if self.mismatches:
            raise ArtefactError(
                f"'{self.directory}' is not verified: {'; '.join(self.mismatches)}"
            )
        return self


def load(
    directory: str | os.PathLike[str],
    *,
    require_verified: bool = False,
    module: object = None,
) -> RunRecord:
    """Read a run directory.

    Parameters
    ----------
    directory
        What `save` wrote.
    require_verified
        Refuse a directory that was edited by hand, instead of saying so in
        `RunRecord.mismatches` (fault 74).
    module
        Of a network with a module of your own; see `read_model`.
    """
    place = Path(directory)
    hashes = files.read_manifest(place)
    absent = [name for name in (RESULT, MODEL) if not (place / name).is_file()]
    if absent:
        raise ArtefactError(f"'{place}' is incomplete: no {', '.join(absent)}")
    expected = {RESULT, MODEL, HISTORY, SPEC, *hashes}
    mismatches = [_mismatch(place / n, hashes.get(n)) for n in sorted(expected)]
    spec = files.read(place / SPEC) if (place / SPEC).is_file() else b""
    record = RunRecord(
        place,
        _result(place / RESULT),
        read_model(place / MODEL, module=module),
        spec.decode("utf-8", errors="replace"),
        tuple(problem for problem in mismatches if problem),
    )
    return record.require_verified() if require_verified else record


def _mismatch(path: Path, known: str | None) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    if known is None:
        return f"{path.name} is not in the manifest"
    same = files.digest(files.read(path)) == known
    return None if same else f"{path.name} was changed after the run"


def _result(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(files.read(path), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"'{path}' is not a result of pffl: {error}") from error
    if not isinstance(result, dict) or "status" not in result:
        raise ArtefactError(f"'{path}' is not a result of pffl: it has no status")
    return result


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
