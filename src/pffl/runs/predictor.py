"""The predictor of a run directory, or of a file by itself."""

from __future__ import annotations

import os
from pathlib import Path

from pffl import files
from pffl.errors import ArtefactError
from pffl.models.model_file import read_model
from pffl.models.predictor import Predictor
from pffl.runs.directory import MODEL, read_manifest


def load(path: str | os.PathLike[str], *, module: object = None) -> Predictor:
    """Read a predictor: what `Solution.save` wrote, or that of a run directory.

    Parameters
    ----------
    path
        The file, or the directory of a run. A model that was changed after its run is
        refused, unless its file is named.
    module
        Of a network with a module of your own: one of that class, built as it was for
        training. Its weights are those of the file; no code is ever loaded from one.

    Returns
    -------
    Predictor
        The model, with the preparation of its tables.

    Raises
    ------
    ArtefactError
        The file is damaged, foreign, or was changed after its run.

    Examples
    --------
    >>> import tempfile
    >>> import pffl
    >>> people = pffl.datasets.synthetic(600, silos=3, groups=["f", "m"], seed=0)
    >>> solution = pffl.solve(people, pffl.BoundedGroupLoss(0.65), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = solution.save(f"{folder}/model.pffl")
    ...     predictor = pffl.load(path)
    >>> predictor.cells
    ('f', 'm')
    """
    place = Path(path)
    if not place.exists():
        raise ArtefactError(f"[file-missing] '{place}' does not exist")
    if not place.is_dir():
        return read_model(place, module=module)
    hashes, file = read_manifest(place), place / MODEL
    if not file.is_file():
        raise ArtefactError(
            f"[file-missing] '{place}' holds no {MODEL}: a run that ended writes one"
        )
    if files.digest(files.read(file)) != hashes.get(MODEL):
        raise ArtefactError(
            f"[changed-file] '{file}' was changed after the run, whose certificate "
            "speaks of another model: name the file itself to use it"
        )
    return read_model(file, module=module)
