"""MLflow: rounds as metrics, settings as parameters, verdicts as tags, files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pffl.integrations.tracker import Outcome, Tracker, keys, required


class MLflow(Tracker):
    """Log to the active run of MLflow; where there is none, one is started and ended.

    Where runs are kept is said to MLflow itself, by ``mlflow.set_tracking_uri`` and
    ``mlflow.set_experiment``.
    """

    def __init__(self) -> None:
        self._mlflow = required("mlflow")
        self._started = False

    def record(self, numbers: Mapping[str, float], step: int) -> None:
        """Log the numbers of a round."""
        self._begin()
        self._mlflow.log_metrics(dict(numbers), step=step)

    def conclude(self, outcome: Outcome, folder: Path) -> None:
        """Log the outcome, and the files as artefacts."""
        self._begin()
        self._mlflow.log_params(dict(outcome.settings))
        self._mlflow.log_metrics(dict(outcome.numbers))
        tags = zip(keys(list(outcome.words)), outcome.words.values(), strict=True)
        self._mlflow.set_tags({f"pffl.{key}": word for key, word in tags})
        self._mlflow.log_artifacts(str(folder))
        if self._started:
            self._mlflow.end_run()
            self._started = False

    def _begin(self) -> None:
        if self._mlflow.active_run() is None:
            self._mlflow.start_run()
            self._started = True
