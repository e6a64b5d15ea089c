"""Templates, filled in; and the texts that depend on the federation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

from pffl.site import Agreement, Rules
from pffl.spec import dumps

PLACE = re.compile(r"@([A-Z_]+)@")


def filled(name: str, values: Mapping[str, str]) -> str:
    """Return a template with every @PLACE@ filled."""
    text = (files("pffl.deploy") / "templates" / name).read_text("utf-8")
    return PLACE.sub(lambda place: values[place[1]], text)


def site_file(
    name: str, agreed: Agreement, rules: Rules, asks: str, split: str | None
) -> str:
    """Return a site.toml with a remark at every line."""
    quoted = dumps({"name": name}).strip()
    lines = [
        "[site]",
        quoted,
        'table = "rows.csv"         # your table, CSV or Parquet; paths start here',
        'prepared = "prepared"      # folder that pffl site prepare writes',
        "",
        "[columns]",
        "# The federation's name of a column = your name of it, where they differ:",
        *(f"# {_pair(column)}" for column in agreed.columns),
        "",
        "[split]",
        *(
            [f"{_pair('column', split)}  # says train, test or validation in each row"]
            if split
            else [
                "# Shares of your rows kept apart, drawn at random with the seed; or",
                '# column = "…", which says train, test or validation in every row.',
                f"test = {0.2 if 'test' in agreed.splits else 0.0}",
                f"validation = {0.1 if 'validation' in agreed.splits else 0.0}",
                "seed = 0",
            ]
        ),
        "",
        "[limits]",
        "# Counts and sums over fewer rows than this are withheld.",
        f"floor = {rules.floor}",
        f"# Questions that a run may ask. {asks}",
        f"questions = {rules.questions}",
        "# Runs that are answered in all. Raise it when you agree to more.",
        f"runs = {rules.runs}",
        "# Largest norm of a model's parameters, for inputs of spread 1.",
        f"radius = {rules.radius}",
        "# Steps on batches of rows: a server that cheats can single out rows in them.",
        f"batches = {str(rules.batches).lower()}",
        "# Ways to cut the rows into cells that a run may use.",
        f"layouts = {rules.layouts}",
        "# Bytes of the largest message that is read.",
        f"largest_message = {rules.largest_message}",
    ]
    return "\n".join(lines) + "\n"


def pyproject(agreed: Agreement, version: str, target: str) -> str:
    """Return the app's pyproject.toml."""
    return dumps(
        {
            "project": {
                "name": "pffl-run",
                "version": "1.0.0",
                "description": f"pffl run on {agreed.name}",
                "license": {"file": "LICENSE"},
                "requires-python": ">=3.11",
                "dependencies": [f"pffl[flower]=={version}", "flwr>=1.41,<2"],
            },
            "tool": {
                "flwr": {
                    "app": {
                        "publisher": "pffl",
                        "fab-format-version": 1,
                        "flwr-version-target": target,
                        "components": {
                            "serverapp": "server_app:app",
                            "clientapp": "client_app:app",
                        },
                        "config": {
                            "out": "run",
                            "resume": False,
                            "extras": True,
                            "seconds": 0.0,  # as in spec.toml
                        },
                    }
                }
            },
        }
    )


def _pair(name: str, value: str | None = None) -> str:
    return dumps({name: name if value is None else value}).strip()
