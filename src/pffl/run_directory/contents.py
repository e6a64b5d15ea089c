"""What the files of a run directory hold."""

from __future__ import annotations

from pffl.files import csv_text, json_text
from pffl.run_directory.model_file import write_model
from pffl.solution import Solution

RESULT = "result.json"
MODEL = "model.safetensors"
HISTORY = "history.csv"
SPEC = "spec.toml"


def of(solution: Solution, spec_text: str) -> dict[str, bytes]:
    """Every file but the manifest."""
    return {
        RESULT: json_text(solution.as_dict()).encode(),
        MODEL: write_model(solution),
        HISTORY: csv_text(solution.history_rows()).encode(),
        SPEC: spec_text.encode(),
    }
