"""Debian's Chromium, where it is installed: what a page does, and what it asks for."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="Debian's chromium and chromium-driver are absent"
)
AXE = Path(__file__).parent / "axe" / "axe.min.js"  # axe-core 4.14.0, MPL-2.0
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
#: What is cut, or beyond the screen, of verdicts, of names beside dots, of tables.
OUT_OF_SIGHT = """
return [...document.querySelectorAll(
    '.verdicts li, .dot-row .name, .dots .head, .stack td, .stack tbody th, h1, h2')]
  .filter(e => { const r = e.getBoundingClientRect();
    return r.width && (r.left < -1 || r.right > innerWidth + 1
      || e.scrollWidth > e.clientWidth + 1 && e.clientWidth); })
  .map(e => e.textContent)
"""
SMALL_PRINT = """
return [...document.querySelectorAll('svg text, td, th, p, li, dd')]
  .filter(e => parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.textContent)
"""
SERIOUS = """
const done = arguments[0];
axe.run({resultTypes: ['violations']}).then(found => done(found.violations
  .filter(v => ['serious', 'critical'].includes(v.impact))
  .map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html).join(' '))));
"""


class Window:
    """A window of a browser that tells what was asked for and what went wrong."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def show(self, path: Path, width: int = 1440, scheme: str = "light") -> None:
        """Open a page, so wide, in light or dark."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1}
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {**size, "mobile": width < 600}
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [feature]}
        )
        self.driver.get_log("performance")
        self.driver.get(path.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script, and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def picture(self, path: Path, top: float = 0, height: float | None = None) -> None:
        """Save what is shown as PNG: the whole page, or so much of it."""
        size = self.run(
            "const e = document.documentElement; return [innerWidth, e.scrollHeight]"
        )
        clip = {"x": 0, "y": top, "width": size[0], "height": height or size[1]}
        taken = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot",
            {"captureBeyondViewport": True, "clip": {**clip, "scale": 1}},
        )
        path.write_bytes(base64.b64decode(taken["data"]))

    def find(self, selector: str) -> Any:
        """Return the first element of a kind."""
        return self.driver.find_element("css selector", selector)

    def errors(self) -> list[Any]:
        """What the console says."""
        return list(self.driver.get_log("browser"))

    def requests(self) -> list[str]:
        """What was asked for that is neither this file nor inside it."""
        entries = [
            json.loads(entry["message"])["message"]
            for entry in self.driver.get_log("performance")
        ]
        sent = [
            entry["params"]["request"]["url"]
            for entry in entries
            if entry["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith(("file:", "data:"))]

    def misfits(self) -> list[str]:
        """What is cut, too small, or makes the page scroll sideways."""
        found = [*self.run(OUT_OF_SIGHT), *self.run(SMALL_PRINT)]
        wide = "return document.documentElement.scrollWidth > window.innerWidth"
        return [*found, *(["the page scrolls sideways"] if self.run(wide) else [])]

    def violations(self) -> list[str]:
        """What axe-core finds to be serious or critical."""
        self.run(AXE.read_text("utf-8"))
        return list(self.driver.execute_async_script(SERIOUS))


@pytest.fixture(scope="module")
def window() -> Iterator[Window]:
    with opened() as found:
        yield found


@contextmanager
def opened() -> Iterator[Window]:
    """Open a browser without a window."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(120)
    try:
        yield Window(driver)
    finally:
        driver.quit()
