"""The shipped schemas of run files and site files, which editors complete by.

``python -m tests.test_file_schemas`` writes them anew.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import pffl
from pffl.constraints import CONSTRAINTS
from pffl.datasets import DATASETS
from pffl.methods import METHODS
from pffl.preparation import Options
from pffl.records import parameters
from pffl.sections import MODELS, PrivacySettings, RunSettings
from pffl.site import Rules
from pffl.spec import parse
from pffl.wire import Policy
from tests.cli.helpers import pffl as command
from tests.inside import SECTIONS, About, ColumnOptions, Place, Split, TableOptions

DRAFT = "http://json-schema.org/draft-07/schema#"
ENTRY = re.compile(r"^([a-z_0-9]+(?:, [a-z_0-9]+)*)\n((?: {4}.*\n?|\n)+)", re.MULTILINE)
LABELS = {"path": str | dict[str, str], "federation": str, "name": str}


#: Where each lies in the package.
SCHEMAS = {
    "run": "pffl.spec",
    "site": "pffl.spec",
    "result": "pffl.evidence",
    "certificate": "pffl.evidence",
    "evidence": "pffl.evidence",
}


def shipped(name):
    """A schema, as text."""
    place = files(SCHEMAS[name]).joinpath("schemas", f"{name}.json")
    return place.read_text("utf-8")


def told(source):
    """What the docstring of a class or function says of each parameter."""
    found: dict[str, str] = {}
    kinds = inspect.getmro(source) if inspect.isclass(source) else (source,)
    for kind in reversed(kinds):
        text = (inspect.getdoc(kind) or "").partition("\n----------\n")[2] + "\n"
        for names, words in ENTRY.findall(text):
            one = " ".join(words.replace("``", "`").split())
            found |= dict.fromkeys(names.split(", "), one)
    return found


def plain(schema):
    """Without titles and defaults, and of a tuple that it is an array."""
    if isinstance(schema, list):
        return [plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = {"title", "default", "prefixItems", "maxItems", "minItems"}
    return {key: plain(part) for key, part in schema.items() if key not in left_out}


def properties(source):
    """The parameters that a file can hold, with types and words."""
    words = told(source)
    out = {}
    for name, kind in parameters(source).items():
        if name == "kind":
            continue
        schema = plain(TypeAdapter(kind).json_schema())
        if words.get(name):
            schema["description"] = words[name]
        out[name] = schema
    return out


def joined(sources):
    """Parameters of several kinds; where types differ, any of them."""
    out: dict[str, Any] = {}
    for source in sources.values():
        for name, schema in properties(source).items():
            known = out.setdefault(name, schema)
            bare = {key: part for key, part in schema.items() if key != "description"}
            options = known.get("anyOf", [known])
            seen = [{k: v for k, v in o.items() if k != "description"} for o in options]
            more = [o for o in bare.get("anyOf", [bare]) if o not in seen]
            if more:
                text = {k: v for k, v in known.items() if k == "description"}
                out[name] = {"anyOf": [*seen, *more], **text}
    return out


def closed(entries, words):
    """A table of these entries, and no others."""
    table: dict[str, Any] = {"type": "object", "description": words}
    return table | {"properties": entries, "additionalProperties": False}


def of_kinds(kinds, words):
    """A table whose `kind` says which entries it may have; others' kinds any."""
    own: Mapping[str, Callable[..., Any]] = getattr(kinds, "own", kinds)
    rules = [
        {
            "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
            "then": {"propertyNames": {"enum": ["kind", *properties(kind)]}},
        }
        for name, kind in own.items()
    ]
    named = {"anyOf": [{"enum": sorted(own)}, {"type": "string"}]}
    entries = {"kind": named, **joined(own)}
    table: dict[str, Any] = {"type": "object", "description": words}
    return table | {"properties": entries, "allOf": rules}


def run_file():
    data = joined({"table": TableOptions, "silos": ColumnOptions}) | {
        name: plain(TypeAdapter(kind).json_schema()) for name, kind in LABELS.items()
    }
    sets = joined({name: known.load for name, known in DATASETS.items()})
    data = {**sets, **data, "calibration_fraction": {"type": "number"}}
    data["name"]["description"] = f"A data set ({', '.join(DATASETS)}), or any name."
    data["path"]["description"] = "A table, or one for each silo."
    data["federation"]["description"] = "federation.json: rows that stay with sites."
    model = of_kinds(MODELS, "What is trained; by default what the labels ask for.")
    model["properties"]["l2"] = {"anyOf": [{"type": "number"}, {"const": "auto"}]}
    constraint = of_kinds(CONSTRAINTS, "What is promised to whom.")
    run = {**properties(Options), **properties(RunSettings)}
    sections = {
        "columns": data.pop("columns"),
        "data": closed(data, "Where the rows come from."),
        "model": model,
        "constraint": {
            "anyOf": [constraint, {"type": "array", "items": constraint}],
            "description": "One [constraint], or several [[constraint]] at once.",
        },
        "method": of_kinds(METHODS, "How it is trained; by default what fits."),
        "run": closed(run, "Engine, seed, weighting, confidence, …"),
        "policy": closed(properties(Policy), "Of a deployed run."),
        "privacy": closed(properties(PrivacySettings), "What is kept from whom."),
        "about": closed(properties(About), "For the model card."),
    }
    sections["about"]["properties"]["date"] = {"description": "A date, or as text."}
    assert set(sections) == set(SECTIONS)
    head = {"$schema": DRAFT, "title": "pffl run file", "type": "object"}
    return {**head, "properties": sections, "additionalProperties": False}


def site_file():
    sections = {
        "site": closed(properties(Place), "Which site, and where its rows are."),
        "split": closed(properties(Split), "How the rows are cut."),
        "limits": closed(properties(Rules), "Limits that only the site can change."),
        "columns": {
            "type": "object",
            "description": "From the federation's names of columns to the site's.",
            "additionalProperties": {"type": "string"},
        },
    }
    sections["limits"]["properties"]["radius"].pop("type", None)  # TOML has inf
    head = {"$schema": DRAFT, "title": "pffl site file", "type": "object"}
    rest = {"required": ["site"], "additionalProperties": False}
    return {**head, "properties": sections, **rest}


WRITTEN = {"run": run_file, "site": site_file}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_shipped_is_what_the_code_reads(name):
    assert json.loads(shipped(name)) == WRITTEN[name](), (
        "run python -m tests.test_file_schemas"
    )


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one(name):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(shipped(name))
    jsonschema.validators.validator_for(schema).check_schema(schema)


def problems(name, text):
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft7Validator(json.loads(shipped(name)))
    return [error.message for error in validator.iter_errors(tomllib.loads(text))]


GOOD = """
data = { path = "people.csv", label = "hired", group = ["sex"] }
model = { l2 = "auto" }
constraint = [
    { kind = "bgl", bound = 0.6, by = "sex" },
    { kind = "cbgl", bound = { "a, yes" = 0.7 } },
]
method = { kind = "pffl", dual_rounds = 20 }
run = { seed = 7, confidence = 0.9 }
about = { owner = "Unit 7", date = "2026-11-17" }
"""


def test_a_run_file_is_valid_and_read():
    assert problems("run", GOOD) == []
    parse(tomllib.loads(GOOD))


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("seed = 7", "sed = 7"),
        ("dual_rounds = 20", "dual_round = 20"),
        ("confidence = 0.9", 'confidence = "much"'),
        ("about =", "abaut ="),
        ("bound = 0.6", "bounds = 0.6"),
    ],
)
def test_what_pffl_refuses_an_editor_marks(change, to):
    text = GOOD.replace(change, to)
    assert problems("run", text)
    with pytest.raises(pffl.PFFLError):
        parse(tomllib.loads(text))


def test_a_method_of_another_package_is_not_marked():
    text = '[method]\nkind = "tilted"\ntilt = 2.0\n'
    assert problems("run", text) == []


def test_run_files_that_runs_leave_are_valid(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ("run", "synthetic", "--silos=3", "--bound=0.8", "--seed=0", "--no-extras")
    assert command(capsys, *asked, "--out=here").code == 0
    assert problems("run", Path("here/spec.toml").read_text("utf-8")) == []


def test_site_files():
    good = '[site]\nname = "north"\ntable = "rows.csv"\n[limits]\nradius = inf\n'
    assert problems("site", good) == []
    assert problems("site", good.replace("radius", "radios"))
    assert problems("site", "[limits]\n")  # whose?


if __name__ == "__main__":
    for name, make in WRITTEN.items():
        text = json.dumps(make(), indent=1, ensure_ascii=False) + "\n"
        Path(str(files("pffl.spec") / "schemas" / f"{name}.json")).write_text(text)
