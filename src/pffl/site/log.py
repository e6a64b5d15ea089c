"""A site's log of refusals: when, who asked, what, and why not; no figures."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pffl.codec import Request
from pffl.site.files import OWN_FILE

LARGEST = 10 << 20  # bytes; then the file is put aside, and an older one dropped


def refused(path: Path | None, request: Request | None, reason: str) -> None:
    """Add a line; a full disk does not keep the refusal from being sent."""
    if path is None:
        return
    body = request.body.header if request else {}
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": request.run if request else None,
        "number": list(request.number) if request else None,
        "question": str(body.get("question"))[:40] if request else None,
        "refused": reason,
    }
    with suppress(OSError):
        if path.exists() and path.stat().st_size > LARGEST:
            os.replace(path, path.with_name(f"{path.name}.1"))
        number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, OWN_FILE)
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
