"""What is typed: options that several commands share, and the run file they describe.

`@takes("label", "bound")` gives a command the DATA argument, these options and
``--set``; the command itself receives them as one `Draft`. An option is a key of the
run file, whose type says how its text is read.
"""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.models import ArgumentInfo

if TYPE_CHECKING:
    from pffl.config import DataSource, Job, RunSpec
    from pffl.constraints import Number
    from pffl.data import Federation

DATA_HELP = "A data set, a table, a run file (.toml) or a run."
RESUME = "resume"  # option of a command that can go on with a stopped run
SET_HELP = "Any key: docs/commands.md."
TYPED = "command line"
KINDS = ("model", "constraint", "method")
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show all figures and remarks.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]


@dataclass(frozen=True)
class Shared:
    """An option and the keys of the run file that it sets.

    Attributes
    ----------
    keys
        Keys that it sets, with their section.
    help, metavar
        What `--help` shows.
    panel
        The heading that it stands under.
    several
        Whether it may be repeated.
    """

    keys: tuple[str, ...]
    help: str
    metavar: str
    panel: str
    several: bool = False

    def parameter(self, flag: str, *, panels: bool) -> inspect.Parameter:
        """Return the parameter that typer makes an option of; under its heading."""
        option = typer.Option(
            None,
            f"--{flag}",
            help=self.help,
            metavar=self.metavar,
            rich_help_panel=self.panel if panels else None,
            show_default=False,
        )
        kind: Any = list[str] | None if self.several else str | None
        return _parameter(flag, kind, option)


def _options() -> dict[str, Shared]:
    data, fair, train = "Data", "Fairness", "Training"
    return {
        "label": Shared(("data.label",), "Column to predict.", "COLUMN", data),
        "group": Shared(
            ("data.group",), "Protected columns; several cross.", "NAMES", data, True
        ),
        "silo": Shared(("data.silo",), "Column that names the silo.", "COLUMN", data),
        "silos": Shared(("data.silos",), "Number of silos to simulate.", "N", data),
        "id": Shared(
            ("data.id",), "Person identifier.",
            "COLUMN", data,
        ),
        "drop": Shared(("data.drop",), "Columns to exclude.", "NAMES", data, True),
        "missing": Shared(
            ("data.missing",), "Missing: refuse, indicator, drop_column.",
            "HOW", data,
        ),
        "constraint": Shared(
            ("constraint.kind",), "bgl, cbgl, minmax or per-silo.",
            "KIND", fair,
        ),
        "bound": Shared(
            ("constraint.bound",), "Largest mean loss; GROUP=NUMBER; auto.",
            "NUMBER", fair, True,
        ),
        "certify": Shared(
            ("run.certify",), "Certify bounds for new people (0.95).",
            "[CONFIDENCE]", fair,
        ),
        "model": Shared(
            ("model.kind",), "logistic, softmax, least-squares, huber, …",
            "KIND", train,
        ),
        "method": Shared(
            ("method.kind",), "auto, exact, first-order, pffl, fedavg, …",
            "KIND", train,
        ),
        "l2": Shared(("model.l2",), "Ridge term; or auto.", "NUMBER", train),
        "seed": Shared(
            ("data.seed", "run.seed"), "Seed of silos, split and training.", "N", train
        ),
        "epsilon": Shared(
            ("privacy.epsilon",), "Privacy budget: adds noise.", "NUMBER", train
        ),
    }  # fmt: skip


OPTIONS = _options()
COLUMNS = ("label", "group", "silo", "silos", "id", "drop", "missing")


def takes(
    *flags: str, unused: str = "", optional: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command DATA, these shared options, and ``--set``.

    `unused` are patterns of keys that the command makes no use of: typed, they are
    refused. The command's own arguments come before DATA, which may be `optional`. A
    command with an option of its own named `resume` takes DATA and options, or the
    directory of a run that was stopped.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        draft, *own = inspect.signature(command, eval_str=True).parameters.values()
        own = [p.replace(kind=p.KEYWORD_ONLY) for p in own]

        @functools.wraps(command)
        def wrapper(**values: Any) -> None:
            data, settings = values.pop("data"), values.pop("set_") or []
            given = {flag: values.pop(flag) for flag in flags}
            place = values.get(RESUME)
            if data is None and optional:
                _refuse_all(given, settings)
                made: Draft | None = None
            elif place is None:
                made = Draft.of(data, given, settings)
                made.refuse(command.__name__, *unused.split())
            else:
                made = Draft.resumed(place, data, given, settings)
            values[draft.name] = made
            command(**values)

        panels = set(flags) == set(OPTIONS)
        may_lack = optional or any(p.name == RESUME for p in own)
        signature = inspect.Signature(
            [
                *(p for p in own if _is_argument(p)),
                _data(optional=may_lack),
                *(OPTIONS[flag].parameter(flag, panels=panels) for flag in flags),
                *(p for p in own if not _is_argument(p)),
                _parameter(
                    "set_",
                    list[str] | None,
                    typer.Option(None, "--set", metavar="KEY=VALUE", help=SET_HELP),
                ),
            ]
        )
        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        parameters = signature.parameters.values()
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def _refuse_all(given: Mapping[str, Any], settings: Sequence[str]) -> None:
    """Refuse options without data."""
    from pffl.errors import UsageError

    typed = [f"--{flag}" for flag, value in given.items() if value]
    if typed or settings:
        raise UsageError(
            f"[missing-data] DATA is missing: {', '.join([*typed, *settings])} say "
            "how to read it"
        )


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(m, ArgumentInfo) for m in parameter.annotation.__metadata__)


def _data(*, optional: bool) -> inspect.Parameter:
    """Return DATA."""
    default, kind = (None, str | None) if optional else (..., str)
    argument = typer.Argument(
        default, help=DATA_HELP, metavar="DATA", show_default=False
    )
    return _parameter("data", kind, argument)


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    place = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, place, default=default, annotation=kind)


def listed(text: str) -> list[str]:
    """Cut a list of names at its commas.

    >>> listed("a, b,")
    ['a', 'b']
    """
    return [name for part in text.split(",") if (name := part.strip())]


# Words

SAID = {
    "bound=NUMBER": "--bound NUMBER",
    "unseen='ignore'": "--unseen ignore",
    "classification=False": "--model least-squares",
    "clip=P": "--clip P",
    "method=FirstOrder()": "--method first-order",
    "model=LeastSquares()": "--model least-squares",
    "model=SoftmaxRegression()": "--model softmax",
    "p_min=P": "--p-min P",
    "target_range=LOW,HIGH": "--set model.target_range=[LOW,HIGH]",
}
HASHED = re.compile(r"\{['\"](.*)['\"]: (\d+)\}")  # as Python writes it


def in_options(message: str) -> str:
    """Say in options what a message says in Python, between backticks.

    >>> in_options("`missing='indicator'` marks them, `drop=` leaves it out")
    '--missing indicator marks them, --drop leaves it out'
    """
    return re.sub(r"`(\w+)=([^`]*)`", _as_option, message)


def _as_option(found: re.Match[str]) -> str:
    from pffl.config import keys

    key, value = found[1], found[2].strip("'")
    if found[0].strip("`") in SAID:
        return SAID[found[0].strip("`")]
    hashed = HASHED.fullmatch(value)
    if key == "hash" and hashed:
        name = hashed[1] if re.fullmatch(r"[\w-]+", hashed[1]) else f'"{hashed[1]}"'
        return "--set " + shlex.quote(f"data.hash.{name}={hashed[2]}")
    for flag, option in OPTIONS.items():
        if option.keys[0] == f"data.{key}":
            return f"--{flag} {value}".strip()
    section = "data" if f"data.{key}" in keys() else "run"
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
    "--calibration-fraction": "--set data.calibration_fraction=NUMBER",
    "--candidates": "pffl.audit(candidates=N) in Python",
    "--cell": "--only GROUP",
    "--columns": "--set columns=FILE",
    "--confidence": "--certify CONFIDENCE, or --set run.confidence=NUMBER",
    "--dates": "--set 'data.dates=[\"year\"]'",
    "--extras": "a page is always written",
    "--hash": "--set data.hash.COLUMN=INPUTS",
    "--input": "--set 'data.inputs=[\"COLUMN\"]'",
    "--labels": "--set 'constraint.labels=[\"LABEL\"]'",
    "--no-extras": "a page is always written",
    "--partition-by": "--set data.by=COLUMN",
    "--promise": "--certify [CONFIDENCE]",
    "--quiet": "2> /dev/null",
    "--range": "--set 'privacy.range=[\"NAME=LOW,HIGH\"]'",
    "--reach": "pffl feasible DATA",
    "--require": "--certify [CONFIDENCE]",
    "--target-range": "--set 'model.target_range=[LOW, HIGH]'",
}


def now_called(arguments: Sequence[str]) -> str | None:
    """Return what the name of a command that is gone is called now; None if it is not.

    >>> now_called(["plan", "compas"])
    'pffl feasible DATA --certify'
    """
    both = " ".join(arguments[:2])
    return COMMANDS_GONE.get(both) or COMMANDS_GONE.get(" ".join(arguments[:1]))


def now_typed(option: str) -> str | None:
    """Return what an option that is gone is called now: mostly, a key of the run file.

    >>> now_typed("--local-steps")
    '--set method.local_steps=VALUE'
    """
    from pffl.config import keys

    if option in OPTIONS_GONE:
        return OPTIONS_GONE[option]
    name = option.removeprefix("--").replace("-", "_")
    there = [key for key in keys() if key.partition(".")[2] == name]
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
        cls,
        data: str | None,
        given: Mapping[str, Any],
        settings: Sequence[str] = (),
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
        from pffl.errors import UsageError

        if data is None:
            raise UsageError("[missing-data] DATA is missing: give it, or --resume DIR")
        sections, file, base = named(data)
        options: dict[str, Any] = {}
        for flag, text in given.items():
            if text is not None and text != []:
                for key, value in _values(flag, text).items():
                    section, _, name = key.partition(".")
                    options.setdefault(section, {})[name] = value
        for setting in settings:
            options = merge(options, parse_setting(setting))
        typed = [
            f"{section}.{key}" if isinstance(table, Mapping) else section
            for section, table in options.items()
            for key in (table if isinstance(table, Mapping) else [""])
        ]
        sections = _other_kinds_forgotten(sections, options)
        return cls(
            merge(sections, options),
            file or TYPED,
            base,
            frozenset(typed),
            Path(data).is_dir(),
        )

    @classmethod
    def resumed(
        cls,
        place: Path,
        data: str | None,
        given: Mapping[str, Any],
        settings: Sequence[str] = (),
    ) -> Draft:
        """Return the run that was stopped in a directory; nothing else may be given."""
        from pffl.errors import ArtefactError, UsageError
        from pffl.log import SPEC as STOPPED

        others = [f"--{flag}" for flag, text in given.items() if text]
        others += [] if data is None else [f"DATA {data}"]
        if others or settings:
            raise UsageError(
                f"[options-conflict] --resume goes on with the run of '{place}' as it "
                f"was: leave out {', '.join([*others, *settings])}"
            )
        if not (place / STOPPED).is_file():
            raise ArtefactError(
                f"[no-stopped-run] '{place}' holds no run that was stopped: there is "
                f"no {STOPPED}"
            )
        return cls.of(str(place / STOPPED), {})

    def refuse(self, command: str, *patterns: str) -> None:
        """Refuse keys without effect in a command, unless they say what is usual.

        A file may have whole sections (``method.*``) that are for other commands.
        """
        from pffl.config import keys
        from pffl.errors import Problems, UsageError

        found = {k for k in self.typed if any(fnmatch(k, p) for p in patterns)}
        for key in () if self.of_run else patterns:
            section, _, name = key.partition(".")
            table = self.sections.get(section)
            value = table.get(name) if isinstance(table, Mapping) else None
            if value is not None and value != keys()[key].default:
                found.add(key)
        with Problems(self.source, UsageError) as problems:
            problems.extend(
                f"[no-effect] 'pffl {command}' makes no use of {key}"
                for key in sorted(found)
            )

    def where(self, key: str, value: object) -> Draft:
        """Return a draft with another value of one key."""
        from pffl.config import merge

        section, _, name = key.partition(".")
        changed = merge(self.sections, {section: {name: value}})
        return replace(self, sections=changed)

    def with_a_bound(self, *, minimax: bool = False) -> tuple[Draft, bool]:
        """Let a constraint without a bound name groups; also say whether it had one.

        Minimax, which has none, is kept where it is wanted.
        """
        from pffl.constraints import is_minimax

        given = self.sections.get("constraint")
        section: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
        kept = isinstance(given, list) or (minimax and is_minimax(section))
        if kept or "bound" in section or "upper_bound" in section:
            return self, True
        if is_minimax(section):
            section["kind"] = "bgl"
        section["bound"] = 0.0
        return replace(self, sections={**self.sections, "constraint": section}), False

    def check(self) -> RunSpec:
        """Turn it into typed objects; all problems at once."""
        from pffl.config import parse

        return parse(self.sections, source=self.source, base=self.base)

    def build(self) -> Job[Federation]:
        """Check it, open the data, and fit the pieces together: not for one run."""
        from pffl.errors import UsageError

        spec = self.check()
        if spec.privacy.secure_sum:
            raise UsageError(
                "[no-secure-sums] secure sums ([privacy] secure_sum) are for 'pffl "
                "run' and 'pffl deploy': --set privacy.secure_sum=false"
            )
        if spec.privacy.terms is not None:
            raise UsageError(
                "[not-under-noise] a privacy budget ([privacy] epsilon) is for one "
                "'pffl run': each further model would have to be paid from it"
            )
        return build(spec)


def build(spec: RunSpec) -> Job[Federation]:
    """Open the data of a run file, with something to look at, and fit the pieces."""
    from pffl.progress import arriving

    with arriving() as show:
        return spec.build(progress=show)


def open_data(source: DataSource) -> Federation:
    """Open the data of a run file, with something to look at."""
    from pffl.progress import arriving

    with arriving() as show:
        return source.open(progress=show)


def _values(flag: str, text: Any) -> dict[str, Any]:
    """Read the text of an option, by the type of its key."""
    from pffl.config import keys, read_text

    if flag == "bound":
        return {"constraint.bound": bound(text)}
    if flag == "certify":
        return certified(text)
    if not isinstance(text, str):
        text = [name for one in text for name in listed(one)]
    return {key: read_text(text, keys()[key].kind) for key in OPTIONS[flag].keys}


def certified(text: str) -> dict[str, Any]:
    """Read ``--certify``, with or without a confidence."""
    from pffl.cli import PLAIN

    more = {} if text == PLAIN else {"run.confidence": number(text)}
    return {"run.certify": True, **more}


def number(text: str) -> float | str:
    """Read a number, if it is one; a word stays, to be judged with its run file."""
    try:
        return float(text)
    except ValueError:
        return text


def bound(given: Sequence[str]) -> Number | dict[str, Number]:
    """Read ``--bound``: one number, or ``group=number`` for each; or ``auto``."""
    from pffl.constraints import AUTO
    from pffl.errors import Problems, UsageError

    cells: dict[str, Number] = {}
    with Problems("--bound", UsageError) as problems:
        for text in (part for one in given for part in _several(one)):
            cell, _, found = text.rpartition("=")
            try:
                name, auto = cell.strip(), found.strip() == AUTO
                cells[name] = AUTO if auto else float(found)
            except ValueError:
                hint = " (a point, not a comma)" if "," in found else ""
                problems.add(
                    f"[wrong-value] must be NUMBER, GROUP=NUMBER{hint} or auto. Got "
                    f"{text!r} instead."
                )
        if not problems.found and "" in cells and len(given) > 1:
            problems.add(
                "[bounds-mixed] give one number for all, or GROUP=NUMBER for each"
            )
    return cells.get("", cells)


def _several(text: str) -> list[str]:
    """Cut GROUP=NUMBER,GROUP=NUMBER; a comma in the name of a group cuts nothing.

    >>> _several("f=0.6,m=0.7"), _several("f, yes=0.6")
    (['f=0.6', 'm=0.7'], ['f, yes=0.6'])
    """
    parts = text.split(",")
    return parts if all("=" in part for part in parts) else [text]


def _other_kinds_forgotten(
    sections: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Start a section anew where the command line asks for another kind."""
    kept = dict(sections)
    for name in KINDS:
        table, there = options.get(name), kept.get(name)
        asked = table.get("kind") if isinstance(table, Mapping) else None
        now = there.get("kind") if isinstance(there, Mapping) else None
        if asked is not None and there is not None and now != asked:
            kept[name] = {}
    return kept
