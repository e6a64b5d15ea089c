"""Our charts against Vega-Lite: the same two, by size, time, and what readers meet.

A chart of 15 cells and a sweep of 10,000 points, made by `pffl.figures` and by altair,
each as one page that needs no network. Not a dependency, so installed beside:

    .venv/bin/pip install --target scratch altair vl-convert-python
    PYTHONPATH=scratch .venv/bin/python -m benchmarks.vega_lite
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pffl import figures
from pffl.figures.html import as_html, css
from tests.reports.browsing import Window, opened
from tests.reports.folders import sweep_of

NAME = "Female × Asian-Pac-Islander × never married × income {:02d}"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
PAINT = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
ELEMENTS = "return document.querySelectorAll('*').length"
WHOLE = "return document.body.innerText.includes(arguments[0]) || [...document\
.querySelectorAll('text')].some(t => t.textContent.includes(arguments[0]))"
WIDE = "return document.documentElement.scrollWidth"
SMALLEST = """return Math.min(...[...document.querySelectorAll('text, .name, .key li')]
  .map(e => e.getBoundingClientRect().height))"""
TURNS = 5


def cells() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "cell": NAME.format(i),
            "bound": 0.7,
            "before_train_loss": 0.6 + 0.2 * rng.random(),
            "train_loss": 0.6 + 0.1 * rng.random(),
            "test_loss": 0.6 + 0.12 * rng.random(),
            "test_upper": 0.75 + 0.2 * rng.random(),
        }
        for i in range(15)
    ]


def own(kind: str) -> str:
    """A page with our chart, and nothing else."""
    chart = (
        figures.group_losses(cells())
        if kind == "cells"
        else figures.tradeoff(sweep_of(10_000))
    )
    style = f"<style>body {{ font:16px sans-serif }} {css()}</style>"
    return page(style + as_html(chart))


def page(body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>x</title>'
        '<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"></head>'
        f"<body><main><h1>x</h1>{body}</main></body></html>"
    )


def vega_cells() -> Any:
    import altair as alt

    table = pd.DataFrame(cells())
    y = alt.Y("cell:N", title=None, sort=None, axis=alt.Axis(labelLimit=0))

    def x(column: str) -> Any:
        return alt.X(f"{column}:Q", title="mean loss", scale=alt.Scale(zero=False))

    base = alt.Chart(table).encode(y=y)
    return alt.layer(
        base.mark_rule(color="#6b737c").encode(
            x=x("before_train_loss"), x2="train_loss:Q"
        ),
        base.mark_rule(color="#00785a").encode(x=x("test_loss"), x2="test_upper:Q"),
        base.mark_point(color="#6b737c").encode(x=x("before_train_loss")),
        base.mark_circle(color="#0072B2", size=90).encode(x=x("train_loss")),
        base.mark_point(color="#00785a", shape="diamond").encode(x=x("test_loss")),
        base.mark_tick(color="#b5260d", thickness=3).encode(x=x("bound")),
    ).properties(width="container")


def vega_sweep() -> Any:
    import altair as alt

    rows = [
        {key: row[key] for key in ("bound", "test_error", "test_worst_cell_loss")}
        for row in sweep_of(10_000)
    ]
    alt.data_transformers.disable_max_rows()
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_circle(opacity=0.45)
        .encode(
            x=alt.X("test_error:Q", axis=alt.Axis(format="%")),
            y="test_worst_cell_loss:Q",
            tooltip=["bound"],
        )
        .properties(width="container", height=240)
    )


def vega(kind: str) -> str:
    """The page that altair makes for use without a network, drawn as SVG."""
    chart = vega_cells() if kind == "cells" else vega_sweep()
    options = {"renderer": "svg", "actions": False}
    text = str(chart.to_html(inline=True, embed_options=options))
    return text.replace(
        "<head>", '<head><meta name="viewport" content="width=device-width">', 1
    )


def guarded(text: str) -> str:
    """The same page under our Content-Security-Policy."""
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return text.replace("<head>", f"<head>{policy}", 1)


def measured(window: Window, path: Path) -> dict[str, Any]:
    paints = []
    for _ in range(TURNS):
        window.show(path)
        time.sleep(1.5)
        paints.append(window.run(PAINT))
    out = {
        "page, kB": path.stat().st_size / 1e3,
        "first paint, ms, median of 5": statistics.median(paints),
        "elements": window.run(ELEMENTS),
        "requests that leave the page": len(window.requests()),
    }
    window.driver.set_script_timeout(30)
    try:
        out["serious by axe-core"] = "; ".join(
            v.partition(":")[0] for v in window.violations()
        )
    except Exception as error:
        out["serious by axe-core"] = f"no end: {type(error).__name__}"
    window.show(path, 390)
    time.sleep(1.0)
    out["at 390 px: width of the page"] = window.run(WIDE)
    out["at 390 px: a name of 54 characters is whole"] = window.run(
        WHOLE, NAME.format(3)
    )
    out["at 390 px: height of the smallest text"] = round(window.run(SMALLEST), 1)
    window.errors()
    return out


def main() -> None:
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place, opened() as window:
        for kind in ("cells", "sweep"):
            for name, text in (("pffl", own(kind)), ("Vega-Lite", vega(kind))):
                path = Path(place, f"{name}-{kind}.html")
                path.write_text(text, encoding="utf-8")
                one = measured(window, path)
                under = Path(place, f"{name}-{kind}-guarded.html")
                under.write_text(text if name == "pffl" else guarded(text), "utf-8")
                window.show(under)
                time.sleep(1.5)
                one["errors where eval is forbidden"] = len(window.errors())
                window.show(path)
                one["PDF, kB"] = len(window.printed()) / 1e3
                found[f"{kind}: {name}"] = one
    print(json.dumps(found, indent=1))
    wheel = Path(next(iter(__import__("vl_convert").__path__)))
    size = sum(path.stat().st_size for path in wheel.rglob("*") if path.is_file())
    print(f"vl-convert: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
