"""The site: Sphinx, MyST-NB, the pydata theme. One command builds it, offline.

    .venv/bin/python -m sphinx -W -n -c docs . docs/_build/html

The source is the whole repository, so that links between docs/, benchmarks/,
reproduction/ and the files at the root are the same in a checkout and on the site.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from sphinx.util.inspect import stringify_signature

import pffl
from pffl.figures import COLOURS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

# Notebooks say the same on every machine: no colours, no bars, one width.
os.environ |= {"NO_COLOR": "1", "COLUMNS": "88", "PFFL_THREADS": "1"}


def chart_colours() -> Path:
    """Write the colours of charts for the switch of the theme; their folder."""
    place = HERE / "_cache" / "static"
    place.mkdir(parents=True, exist_ok=True)
    sheets = []
    for i, theme in enumerate(("light", "dark")):
        named = "".join(f"--pffl-{n}:{pair[i]};" for n, pair in COLOURS.items())
        sheets.append(f'html[data-theme="{theme}"]{{{named}}}\n')
    (place / "charts.css").write_text("".join(sheets), "utf-8")
    return place


#: Members that a class's page shows; other classes show their parameters.
MEMBERS = {
    "pffl.FairClassifier": "fit, predict, predict_proba, certificate",
    "pffl.FairRegressor": "fit, predict, certificate",
    "pffl.Federation": "from_table, from_arrays, with_calibration, export",
    "pffl.data.TableEncoder": "inputs, rows, as_transformer, as_dict, from_dict",
    "pffl.Solution": "status, message, gap, cells, history, certificate, notes, "
    "predictor, predict, predict_proba, plot, report, card, save, as_dict",
    "pffl._feasible.Feasible": "sentence, table, alone, forecast, as_dict",
    "pffl.evidence.statements.Certificate": "of_kind, holds, insist, as_dict",
    "pffl.Predictor": "predict, predict_proba, decision_function, save, coefficients, "
    "to_sklearn, to_onnx",
    "pffl.experiments.Comparison": "table, points, differences, front, chart, save",
    "pffl.figures.Chart": "axes, save",
    "pffl.deploy.GroupSums": "pick, add, record",
    "pffl.methods.Method": "run",
    "pffl.constraints.Constraint": "cells, describe",
    "pffl.callbacks.Callback": "after_round, solved",
}

project = "pffl"
author = "The pffl authors"
copyright = "The pffl authors, Apache-2.0"
version = release = pffl.__version__
language = "en"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "benchmarks/README.md",
    "examples/*/README.md",
    "reproduction/README.md",
    "reproduction/tasks/README.md",
    "CODE_OF_CONDUCT.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = [".*", "**/.*", "**/_*", "runs", "audits", "src", "tests"]
suppress_warnings = ["myst.header"]  # pages that programs write begin with ###
default_role = "autolink"
nitpicky = True
# Of the types in signatures only those of pffl's API are pages here.
nitpick_ignore_regex = [(r"py:.*", r".*")]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = os.environ.get("PFFL_NOTEBOOKS", "cache")
nb_execution_cache_path = str(HERE / "_cache")
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_output_stderr = "remove"  # warnings name paths of the machine

toc_object_entries_show_parents = "hide"
templates_path = [str(HERE / "_templates")]
shutil.rmtree(HERE / "api" / "generated", ignore_errors=True)  # of names that are gone
autosummary_generate = True
autosummary_context = {"shown_members": MEMBERS}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
maximum_signature_line_length = 80
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# Links to other projects, where there is a network: PFFL_INTERSPHINX=1.
if os.environ.get("PFFL_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
    }

html_theme = "pydata_sphinx_theme"
html_title = "pffl"
html_static_path = ["_static", str(chart_colours())]
html_css_files = ["site.css", "charts.css"]
html_extra_path = ["_extra"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "logo": {"text": "pffl"},
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "show_toc_level": 2,
    "back_to_top_button": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"**": ["contents.html"]}


def shown_signature(
    app: object,
    what: str,
    name: str,
    thing: Any,
    options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str, str | None] | None:
    """Show the parameters that a docstring describes, and no internal ones."""
    if what != "class" or not inspect.isclass(thing) or signature is None:
        return None
    text = inspect.getdoc(thing) or ""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return None
    words = set(text.replace(",", " ").split())
    kept = [p for p in found.parameters.values() if p.name in words]
    with suppress(NameError, TypeError):  # "silos" or "rows", not the name of a type
        hints = get_type_hints(thing if is_dataclass(thing) else thing.__init__)
        kept = [p.replace(annotation=_values(hints, p)) for p in kept]
    shown = found.replace(parameters=kept, return_annotation=found.empty)
    return stringify_signature(shown, unqualified_typehints=True), None


def _values(hints: dict[str, Any], parameter: inspect.Parameter) -> Any:
    """Return the allowed values of a parameter, where they are listed."""
    hint = hints.get(parameter.name)
    return hint if "Literal[" in str(hint) else parameter.annotation


def beside_the_pages(app: Any, tree: Any) -> None:
    """Mark what is linked and not listed; results stay out of the search."""
    name = app.env.docname
    if name.startswith(("benchmarks", "reproduction", "examples", "CODE")):
        app.env.metadata[name]["orphan"] = True
    if name.startswith(("benchmarks", "reproduction")):
        app.env.metadata[name]["nosearch"] = True


def setup(sphinx: Any) -> None:
    """Register what is ours."""
    sphinx.connect("doctree-read", beside_the_pages)
    sphinx.connect("autodoc-process-signature", shown_signature)
