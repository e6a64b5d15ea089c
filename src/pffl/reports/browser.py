"""A browser that is at hand: opens a page, or prints it to PDF without a window."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import webbrowser
from pathlib import Path

from pffl.errors import ArtefactError, UsageError

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)
PATIENCE = 120.0  # seconds


def open_page(path: str | os.PathLike[str]) -> bool:
    """Show a page in the browser of the desktop; False where there is none."""
    return webbrowser.open(Path(path).resolve().as_uri())


def chromium() -> str:
    """Return a Chromium, or say that there is none."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise UsageError(
        "a PDF needs Chromium or Chrome on the path; or open the page and print it"
    )


def print_pdf(page: str, path: str | os.PathLike[str]) -> None:
    """Print a page, as HTML text, to a PDF file."""
    program, out = chromium(), Path(path).resolve()
    if not out.parent.is_dir():
        raise ArtefactError(f"{path}: there is no such folder")
    # As root Chromium's sandbox does not start; the page loads nothing.
    alone = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as place:
        source, made = Path(place, "page.html"), Path(place, "page.pdf")
        source.write_text(page, encoding="utf-8")
        command = [
            program,
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            f"--user-data-dir={place}/profile",
            *alone,
            "--no-pdf-header-footer",
            f"--print-to-pdf={made}",
            source.as_uri(),
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
            shutil.copyfile(made, out)
        except (OSError, subprocess.SubprocessError) as error:
            raise ArtefactError(f"{path}: {program} printed no PDF: {error}") from error
