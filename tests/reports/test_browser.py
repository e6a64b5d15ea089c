"""The report in a browser: it works, fits, can be read by all, and asks for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import pffl
from pffl import runs
from tests.inside import render
from tests.reports.browsing import Window, needs_browser
from tests.reports.browsing import window as window
from tests.reports.folders import NAMES, NASTY, federation
from tests.reports.kinds import KINDS


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run and a comparison of people with difficult names."""
    base = tmp_path_factory.mktemp("browser")
    data = federation(NAMES, rows=1_500)
    solution = pffl.solve(data, pffl.BoundedGroupLoss(0.69), random_state=0)
    runs.save(solution, base / "run", "[data]\n")
    methods = {"fedavg": "fedavg", NASTY: "exact"}
    grid = {"bound": [0.5, 0.6]}
    compared = pffl.compare(data, methods=methods, grid=grid, seeds=2, budget=5)
    written = {
        "run": render(base / "run"),
        "comparison": render(compared),
    }
    out = {}
    for name, text in written.items():
        out[name] = base / f"{name}.html"
        out[name].write_text(text, encoding="utf-8")
    return out


@needs_browser
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("run", 390, "light"),
        ("run", 768, "dark"),
        ("run", 1440, "light"),
        ("comparison", 390, "dark"),
        ("comparison", 1440, "light"),
        ("run", 768, "light"),
    ],
)
def test_it_fits_and_everyone_can_read_it(window, pages, name, width, scheme):
    sound(window, pages[name], width, scheme)
    alert = "return [...document.querySelectorAll('script')].length"
    ours = 1 + ('id="certificate"' in Path(pages[name]).read_text("utf-8"))
    assert window.run(alert) == ours  # none that a name has brought
    assert NASTY in window.run("return document.body.textContent")


#: Quick to make; where it fits is tried at one width here, at all among the slow ones.
SOME = {
    "deployed": (390, "light"),
    "monitor_alarm": (390, "light"),
    "promise_not_shown": (390, "light"),
    "regression": (768, "dark"),
}


def sound(window: Window, path: Path, width: int, scheme: str) -> None:
    """Check what a page must be, at any width, whatever it shows."""
    window.show(path, width, scheme)
    assert window.errors() == []
    assert window.requests() == []
    assert window.misfits() == []
    assert window.violations() == []


LOOKS = [(width, scheme) for width in (390, 768, 1440) for scheme in ("light", "dark")]


@needs_browser
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "looks"),
    [
        *((kind, [look]) for kind, look in SOME.items()),
        *(pytest.param(kind, LOOKS, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_every_folder_fits_and_everyone_can_read_it(window, tmp_path, kind, looks):
    path = tmp_path / "page.html"
    path.write_text(KINDS[kind](tmp_path / kind), encoding="utf-8")
    assert path.stat().st_size < 2_000_000
    for width, scheme in looks:
        sound(window, path, width, scheme)


@needs_browser
def test_words_are_explained_by_keyboard_and_by_finger(window, pages):
    from selenium.webdriver.common.keys import Keys

    tip = (
        "const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent"
    )
    window.show(pages["run"])
    window.run("document.querySelector('th .term').focus()")
    assert window.run(tip)
    window.find("body").send_keys(Keys.ESCAPE)
    assert window.run(tip) == ""
    window.show(pages["run"], 390)
    window.run("document.querySelector('.stack td[data-title=\"test\"]').click()")
    assert window.run(tip)
    box = "const r = document.getElementById('tip').getBoundingClientRect();"
    assert window.run(f"{box} return r.left >= 0 && r.right <= innerWidth")
