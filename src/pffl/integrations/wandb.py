"""Weights & Biases: rounds as a history, the outcome as a summary, files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pffl.integrations.tracker import Outcome, Tracker, required


class WandB(Tracker):
    """Log to the active run of W&B; where there is none, one is started and finished.

    Parameters
    ----------
    init
        Keywords of ``wandb.init`` for that: project, name, mode, …
    """

    def __init__(self, **init: Any) -> None:
        self._wandb, self._init = required("wandb"), init
        self._run: Any = None
        self._started = False

    def record(self, numbers: Mapping[str, float], step: int) -> None:
        """Log the numbers of a round."""
        self._begin().log(dict(numbers), step=step)

    def conclude(self, outcome: Outcome, folder: Path) -> None:
        """Log the outcome, and the files as one artefact."""
        run = self._begin()
        run.config.update(dict(outcome.settings), allow_val_change=True)
        run.summary.update({**outcome.numbers, **outcome.words})
        artefact = self._wandb.Artifact("pffl", type="model")
        artefact.add_dir(str(folder))
        run.log_artifact(artefact)
        if self._started:
            run.finish()
        self._run, self._started = None, False

    def _begin(self) -> Any:
        if self._run is None:
            self._started = self._wandb.run is None
            self._run = self._wandb.run or self._wandb.init(**self._init)
        return self._run
