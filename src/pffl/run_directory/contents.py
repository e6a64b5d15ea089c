"""What the files of a run directory hold."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence

import numpy as np

from pffl.run_directory.model_file import write_model
from pffl.solution import Solution

RESULT = "result.json"
MODEL = "model.safetensors"
HISTORY = "history.csv"
SPEC = "spec.toml"


def of(solution: Solution, spec_text: str) -> dict[str, bytes]:
    """Every file but the manifest."""
    return {
        RESULT: result_text(solution.as_dict()).encode(),
        MODEL: write_model(solution),
        HISTORY: history_text(solution.history_rows()).encode(),
        SPEC: spec_text.encode(),
    }


def result_text(result: Mapping[str, object], *, ascii_only: bool = False) -> str:
    """Return `result.json`; a number that is not finite becomes null."""
    text = json.dumps(plain(result), indent=2, allow_nan=False, ensure_ascii=ascii_only)
    return text + "\n"


def history_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return `history.csv`; text that a spreadsheet would run is disarmed."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    if rows:
        writer.writerow([disarm(name) for name in rows[0]])
    for row in rows:
        writer.writerow([_entry(value) for value in row.values()])
    return stream.getvalue()


def disarm(text: str) -> str:
    """Put a quote before text that a spreadsheet takes for a formula (fault 76).

    >>> disarm("=1+1"), disarm("Female")
    ("'=1+1", 'Female')
    """
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


def plain(value: object) -> object:
    """Return what JSON can hold: no NumPy types, and null for NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _entry(value: object) -> str:
    known = plain(value)
    if known is None:
        return ""
    return disarm(known) if isinstance(known, str) else repr(known)
