"""TensorBoard: rounds and the outcome as scalars, files beside them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from pffl.files import json_text
from pffl.integrations.tracker import Outcome, Tracker, required


class TensorBoard(Tracker):
    """Write event files into a folder, for ``tensorboard --logdir``.

    Certificate, card, page and model are written into the same folder, and
    ``outcome.json`` with status, verdicts and settings.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        writer = required("tensorboard.summary").Writer
        self.folder, self._last = Path(folder), 0
        self._writer = writer(str(self.folder))

    def record(self, numbers: Mapping[str, float], step: int) -> None:
        """Write the numbers of a round."""
        self._last = step
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)

    def conclude(self, outcome: Outcome, folder: Path) -> None:
        """Write the outcome, and the files."""
        for name, number in outcome.numbers.items():
            self._writer.add_scalar(f"outcome/{name}", number, self._last)
        self._writer.flush()
        shutil.copytree(folder, self.folder, dirs_exist_ok=True)
        (self.folder / "outcome.json").write_text(json_text(vars(outcome)), "utf-8")
