"""What is typed: options that several commands share, and the run file they describe.

`@takes("label", "bound")` gives a command the DATA argument, these options and
``--set``; the command itself receives them as one `Draft`. An option is a key of the
run file, whose pydantic model says how its text is read.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.models import ArgumentInfo

from pffl.errors import Problems, UsageError

if TYPE_CHECKING:
    from pffl.config import Job, RunSpec
    from pffl.constraints import Number
    from pffl.data import Federation

CERTIFY_ALONE = "yes"  # what `--certify` says where no confidence follows
KINDS = ("model", "constraint", "method")
TABLE = """
Data     | label      | data.label          | COLUMN       | Column to predict.
Data     | group      | data.group          | NAMES…       | Protected columns; several cross.
Data     | silo       | data.silo           | COLUMN       | Column that names the silo.
Data     | silos      | data.silos          | N            | Number of silos to simulate.
Data     | id         | data.id             | COLUMN       | Person identifier.
Data     | drop       | data.drop           | NAMES…       | Columns to exclude.
Data     | missing    | data.missing        | HOW          | Missing values: refuse or indicator.
Fairness | constraint | constraint.kind     | KIND         | bgl, cbgl, minmax, per-silo, fnr, fpr, error.
Fairness | bound      | constraint.bound    | NUMBER…      | Largest mean loss (or rate); GROUP=NUMBER; auto.
Fairness | certify    | run.certify         | [CONFIDENCE] | Certify bounds for new people (0.95).
Training | model      | model.kind          | KIND         | logistic, softmax, least-squares, huber, …
Training | method     | method.kind         | KIND         | auto, exact, first-order, pffl, fedavg, …
Training | l2         | model.l2            | NUMBER       | Ridge term.
Training | threshold  | model.threshold     | NUMBER       | Probability above which to select (0.5); 20% selects that share.
Training | seed       | data.seed, run.seed | N            | Seed of silos, split and training.
Training | epsilon    | privacy.epsilon     | NUMBER       | Privacy budget: adds noise.
"""  # noqa: E501


def option(
    help: str, metavar: str | None = None, *flags: str, default: Any = None, **more: Any
) -> Any:
    """Return what typer makes an option of."""
    more |= {"help": help, "metavar": metavar, "show_default": False}
    return typer.Option(default, *flags, **more)


def flag(help: str, *flags: str) -> Any:
    """Return what typer makes an option without a value of."""
    return typer.Option(False, *flags, help=help)


def argument(metavar: str, help: str, default: Any = ...) -> Any:
    """Return what typer makes an argument of."""
    return typer.Argument(default, metavar=metavar, help=help, show_default=False)


JSON = flag("Print JSON, and nothing else.", "--json")
VERBOSE = flag("Also show all figures and remarks.", "--verbose", "-v")


class SharedOption(NamedTuple):
    """An option, the keys of the run file that it sets, and its heading."""

    panel: str
    keys: tuple[str, ...]
    metavar: str
    help: str
    several: bool

    @classmethod
    def read(cls, line: str) -> tuple[str, SharedOption]:
        """Read a line of the table; a metavar with … may be repeated."""
        panel, name, keys, metavar, help = (part.strip() for part in line.split("|"))
        shown, several = metavar.rstrip("…"), metavar.endswith("…")
        return name, cls(panel, tuple(keys.split(", ")), shown, help, several)


OPTIONS = dict(map(SharedOption.read, TABLE.strip().splitlines()))
COLUMNS = ("label", "group", "silo", "silos", "id", "drop", "missing")


def takes(
    *flags: str, unused: str = "", optional: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command DATA, these shared options, and ``--set``.

    `unused` are patterns of keys that the command makes no use of: typed, they are
    refused. The command's own arguments come before DATA. Where that is `optional`, the
    command receives None if nothing was typed.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(data: str | None, set_: list[str] | None, **values: Any) -> None:
            given = {name: values.pop(name) for name in flags}
            draft = None
            if data is not None or any(given.values()) or set_:
                if values.get("resume") is not None:
                    raise UsageError("options-conflict:wrapper")
                draft = Draft.of(data, given, set_ or [])
                draft.refuse(command.__name__, *unused.split())
            command(draft, **values)

        about = "A data set, a table, a run file (.toml) or a run."
        words = argument("DATA", about, None if optional else ...)
        added: dict[str, tuple[Any, Any]] = {
            "data": (str | None if optional else str, words)
        }
        for name in flags:
            panel, _, metavar, help, several = OPTIONS[name]
            panels = {"rich_help_panel": panel} if set(flags) == set(OPTIONS) else {}
            kind = list[str] | None if several else str | None
            added[name] = kind, option(help, metavar, f"--{name}", **panels)
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        mine = {one.name: (one.annotation, one.default) for one in own}
        first = {k: one for k, one in mine.items() if isinstance(one[1], ArgumentInfo)}
        setting = option("Any key: docs/commands.md.", "KEY=VALUE", "--set")
        every = {**first, **added, **mine, "set_": (list[str] | None, setting)}
        typed = inspect.Parameter
        wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [typed(k, typed.KEYWORD_ONLY, default=v) for k, (_, v) in every.items()]
        )
        wrapper.__annotations__ = {name: kind for name, (kind, _) in every.items()}
        return wrapper

    return decorate


def listed(text: str) -> list[str]:
    """Cut a list of names at its commas.

    >>> listed("a, b,")
    ['a', 'b']
    """
    return [name for part in text.split(",") if (name := part.strip())]


# Words

OWN_OPTIONS = ("clip", "p_min")  # of audit


def in_options(message: str) -> str:
    """Say in options what a message says in Python, between backticks.

    >>> in_options("`missing='indicator'` marks them, `drop=` leaves it out")
    '--missing indicator marks them, --drop leaves it out'
    """
    return re.sub(r"`(\w+)=([^`]*)`", _as_option, message)


def _as_option(found: re.Match[str]) -> str:
    from pffl.config import keys

    key, value = found[1], found[2].strip("'")
    if key == "columns" and value.startswith("{"):
        ((column, entry),) = ast.literal_eval(value).items()
        ((key, given),) = entry.items()
        name = column if re.fullmatch(r"[A-Za-z0-9_-]+", column) else f'"{column}"'
        text = given if isinstance(given, str) else json.dumps(given)
        return "--set " + shlex.quote(f"columns.{name}.{key}={text}")
    if (key, value) == ("classification", "False"):
        return "--model least-squares"
    if key in OPTIONS or key in OWN_OPTIONS:
        return f"--{key.replace('_', '-')} {value}".strip()
    sections = ("data", "run", "model")
    section = next((s for s in sections if f"{s}.{key}" in keys()), "run")
    plain = value.lower() if value in ("True", "False") else value
    return f"--set {section}.{key}={plain or 'VALUE'}"


# Names that are gone

COMMANDS_GONE = {
    "card": "pffl report RUN --card",
    "certify": "pffl audit RUN DATA --certify",
    "plan": "pffl feasible DATA --certify",
    "schema": "pffl data TABLE",
    "sweep": "pffl compare DATA --grid bound=0.6,0.7",
    "watch": "pffl report RUN",
    "data fetch": "pffl data NAME",
    "data info": "pffl data DATA",
    "data list": "pffl data",
}
OPTIONS_GONE = {
    "--cell": "--only GROUP",
    "--columns": "--set columns=FILE",
    "--confidence": "--certify CONFIDENCE, or --set run.confidence=NUMBER",
    "--hash": "--set columns.COLUMN.hash=INPUTS",
    "--input": "--set data.inputs=COLUMN",
    "--partition-by": "--set data.by=COLUMN",
    "--promise": "--certify [CONFIDENCE]",
    "--range": "--set privacy.ranges.NAME=[LOW,HIGH]",
    "--reach": "pffl feasible DATA",
    "--require": "--certify [CONFIDENCE]",
}


def now_called(arguments: Sequence[str]) -> str | None:
    """Return what the name of a command that is gone is called now; None if it is not.

    >>> now_called(["plan", "compas"])
    'pffl feasible DATA --certify'
    """
    both = " ".join(arguments[:2])
    return COMMANDS_GONE.get(both) or COMMANDS_GONE.get(" ".join(arguments[:1]))


def now_typed(name: str) -> str | None:
    """Return what an option that is gone is called now: mostly, a key of the run file.

    >>> now_typed("--local-steps")
    '--set method.local_steps=VALUE'
    """
    from pffl.config import keys

    if name in OPTIONS_GONE:
        return OPTIONS_GONE[name]
    plain = name.removeprefix("--").replace("-", "_")
    there = [key for key in keys() if key.partition(".")[2] == plain]
    return f"--set {there[0]}=VALUE" if there else None


# The run file that was typed


@dataclass(frozen=True)
class Draft:
    """A run file as the command line describes it, still unchecked.

    Attributes
    ----------
    sections
        Its tables.
    source
        What to call it in messages.
    base
        Folder that its relative paths start from.
    typed
        The keys that were typed.
    of_run
        Whether they are those of a run that ended: its file spells everything out.
    """

    sections: Mapping[str, Any]
    source: str
    base: Path
    typed: frozenset[str] = frozenset()
    of_run: bool = False

    @classmethod
    def of(
        cls, data: str | None, given: Mapping[str, Any], settings: Sequence[str] = ()
    ) -> Draft:
        """Lay options and settings over what DATA names.

        Parameters
        ----------
        data
            A data set, a table, a run file or a run directory.
        given
            The text of options, by flag; None where one is not given.
        settings
            As ``section.key=value``.
        """
        from pffl.config import merge, named, parse_setting

        if data is None:
            raise UsageError("missing-data:of")
        sections, file, base = named(data)
        options: dict[str, Any] = {}
        for name, text in given.items():
            for key, value in _values(name, text).items() if text else ():
                section, _, own = key.partition(".")
                options.setdefault(section, {})[own] = value
        for setting in settings:
            options = merge(options, parse_setting(setting))
        typed = {
            f"{section}.{key}".rstrip(".")
            for section in options
            for key in table_of(options, section) or [""]
        }
        for name in KINDS:  # another kind than the file's begins its section anew
            now = table_of(options, name).get("kind")
            there = table_of(sections, name).get("kind")
            if name in sections and now not in (None, there):
                sections = {**sections, name: {}}
        merged, of_run = merge(sections, options), bool(file) and Path(data).is_dir()
        return cls(merged, file or "command line", base, frozenset(typed), of_run)

    def refuse(self, command: str, *patterns: str) -> None:
        """Refuse keys without effect in a command, unless they say what is usual.

        A file may have whole sections (``method.*``) that are for other commands.
        """
        from pffl.config import keys

        found = {k for k in self.typed if any(fnmatch(k, p) for p in patterns)}
        for key in () if self.of_run else patterns:
            section, _, name = key.partition(".")
            value = table_of(self.sections, section).get(name)
            if value is not None and value != keys()[key].default:
                found.add(key)
        with Problems(self.source, UsageError) as problems:
            for key in sorted(found):
                problems.add("no-effect:refuse", command=command, key=key)

    def where(self, key: str, value: object) -> Draft:
        """Return a draft with another value of one key."""
        from pffl.config import merge

        section, _, name = key.partition(".")
        return replace(self, sections=merge(self.sections, {section: {name: value}}))

    def certified(self, text: str) -> Draft:
        """Return a draft with the confidence of ``--certify``, if it has one."""
        sure = certified(text).get("run.confidence")
        return self if sure is None else self.where("run.confidence", sure)

    def with_a_bound(self, *, minimax: bool = False) -> tuple[Draft, bool]:
        """Let a constraint without a bound name groups; also say whether it had one.

        Minimax, which has none, is kept where it is wanted.
        """
        from pffl.constraints import is_minimax

        section = table_of(self.sections, "constraint")
        several = isinstance(self.sections.get("constraint"), list)
        kept = several or (minimax and is_minimax(section))
        if kept or "bound" in section or "upper_bound" in section:
            return self, True
        more = {"kind": "bgl"} if is_minimax(section) else {}
        sections = {**self.sections, "constraint": {**section, **more, "bound": 0.0}}
        return replace(self, sections=sections), False

    def check(self) -> RunSpec:
        """Turn it into typed objects; all problems at once."""
        from pffl.config import parse

        return parse(self.sections, source=self.source, base=self.base)

    def build(self) -> Job[Federation]:
        """Check it, open the data, and fit the pieces together: not for one run."""
        spec = self.check()
        alone = "for 'pffl run' and 'pffl deploy' alone"
        if spec.secure_sum:
            raise UsageError(f"[no-secure-sums] secure sums are {alone}")
        if spec.privacy:
            raise UsageError(f"[not-under-noise] a privacy budget is {alone}")
        return spec.build()


def table_of(sections: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section; an empty one where it is no table."""
    found = sections.get(name)
    return found if isinstance(found, Mapping) else {}


def _values(name: str, text: Any) -> dict[str, Any]:
    """Read the text of an option, by the type of its key."""
    from pffl.config import keys, read_text

    if name == "bound":
        return {"constraint.bound": bound(text)}
    if name == "certify":
        return certified(text)
    if name == "threshold" and text.endswith("%"):
        return {"run.selection_rate": read_text(text[:-1], float) / 100}
    if not isinstance(text, str):
        text = [one for given in text for one in listed(given)]
    return {key: read_text(text, keys()[key].kind) for key in OPTIONS[name].keys}


def certified(text: str) -> dict[str, Any]:
    """Read ``--certify``, with or without a confidence."""
    from pffl.config import read_text

    if text == CERTIFY_ALONE:
        return {"run.certify": True}
    return {"run.certify": True, "run.confidence": read_text(text, float)}


def bound(given: Sequence[str]) -> Number | dict[str, Number]:
    """Read ``--bound``: one number, or ``group=number`` for each; or ``auto``."""
    from pffl.config import read_text

    cells: dict[str, Number] = {}
    for text in (part for one in given for part in _several(one)):
        cell, _, found = text.rpartition("=")
        value = read_text(found.strip(), float)
        if isinstance(value, str) and value != "auto":
            raise UsageError("wrong-value:bound", text=text)
        cells[cell.strip()] = value
    if "" in cells and len(given) > 1:
        raise UsageError("bounds-mixed")
    return cells.get("", cells)


def _several(text: str) -> list[str]:
    """Cut GROUP=NUMBER,GROUP=NUMBER; a comma in the name of a group cuts nothing.

    >>> _several("f=0.6,m=0.7"), _several("f, yes=0.6")
    (['f=0.6', 'm=0.7'], ['f, yes=0.6'])
    """
    parts = text.split(",")
    return parts if all("=" in part for part in parts) else [text]
