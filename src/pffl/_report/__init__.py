"""The page, the model card, and charts: templates over `Conclusions`.

Page and card are functions of the evidence, so that `verify` can make them again and
compare bytes: no clock, no locale, no path and no width of a screen is in them.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from pffl.errors import MissingExtraError


def packaged(name: str) -> str:
    """Return a file of this folder."""
    return files("pffl._report").joinpath(name).read_text("utf-8")


def render_template(name: str, filters: dict[str, Any], **context: Any) -> str:
    """Fill a template; names are escaped in one for HTML."""
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("report", "a report") from error
    environment = jinja2.Environment(
        autoescape=name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(packaged),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(name).render(**context)
