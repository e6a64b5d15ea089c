"""What is typed: options that several commands share, and the run file they describe.

`@takes("data", "constraint")` gives a command the DATA argument and the options of
these sections of a run file, but those that it makes no use of; the command itself
receives them as one `Draft`.
"""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.models import ArgumentInfo

if TYPE_CHECKING:
    from pffl.constraints.base import Number
    from pffl.data import Federation
    from pffl.spec import DataSource, Job, RunSpec

DATA_HELP = (
    "A data set (pffl data list), a table (CSV, Excel, …), or a run file (.toml)."
)
RESUME = "resume"  # option of a command that can go on with a stopped run
SET_HELP = "Any key of a run file: --set section.key=value."
TYPED = "command line"
KINDS = ("model", "constraint", "method")
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also show all figures and remarks."),
]


@dataclass(frozen=True)
class Shared:
    """An option and the keys of the run file that it sets.

    Attributes
    ----------
    flag
        Its name, without dashes.
    type
        `str`, `int` or `float`; `list` for text that may be given several times, and
        `tuple` for names, which may also stand in one text, with commas between them.
    help, metavar
        What `--help` shows.
    keys
        Keys that it sets; by default the flag's name in the section.
    """

    flag: str
    type: type
    help: str
    metavar: str | None = None
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the parameter."""
        return self.flag.replace("-", "_")

    def parameter(self, section: str) -> inspect.Parameter:
        """Return the parameter that typer makes an option of."""
        option = typer.Option(
            None,
            f"--{self.flag}",
            help=self.help,
            metavar=self.metavar,
            rich_help_panel=section.capitalize(),
            show_default=False,
        )
        several = self.type in (list, tuple)
        kind: Any = list[str] | None if several else self.type | None
        return _parameter(self.name, kind, option)

    def read(self, value: Any) -> Any:
        """Return what was given; names cut at commas."""
        if self.type is not tuple or value is None:
            return value
        return [name for text in value for name in listed(text)]


OPTIONS: dict[str, tuple[Shared, ...]] = {
    "data": (
        Shared("label", str, "Column to predict (of a file).", "COLUMN"),
        Shared("group", tuple, "Protected attribute; several are crossed.", "NAMES"),
        Shared("silo", str, "Column that says where a row lives.", "COLUMN"),
        Shared("silos", int, "Number of silos to simulate.", "N"),
        Shared("partition", str, "How to simulate: equal, dirichlet, quantile_bands."),
        Shared(
            "partition-by", str, "Column to cut silos by.", "COLUMN", keys=("data.by",)
        ),
        Shared("id", str, "Column that says whom a row is about.", "COLUMN"),
        Shared("weight", str, "Column that says how much a row counts.", "COLUMN"),
        Shared("positive", str, "Which of two labels is the positive one.", "VALUE"),
        Shared("drop", tuple, "Columns to exclude.", "COLUMNS"),
        Shared(
            "input",
            tuple,
            "Columns to use although they look protected.",
            "COLUMNS",
            keys=("data.inputs",),
        ),
        Shared(
            "columns",
            str,
            "Run file whose [columns] declare what columns hold (with --epsilon).",
            "FILE",
        ),
        Shared("categorical", tuple, "Columns whose numbers are codes.", "COLUMNS"),
        Shared(
            "dates",
            tuple,
            "What dates become: year, month, weekday, age (years); default: left out.",
            "PARTS",
        ),
        Shared("date-order", str, "Of dates such as 03/04/2021: dmy or mdy."),
        Shared("date-origin", str, "Day until which ages count; default: the last."),
        Shared("decimal", str, "Decimal mark of numbers written as text.", "MARK"),
        Shared("rare", int, "Join values of a category with fewer rows.", "ROWS"),
        Shared(
            "hash",
            list,
            "Text column and the number of inputs its words are hashed to, such as "
            "notes=2**16; may be repeated.",
            "COLUMN=INPUTS",
        ),
        Shared("missing", str, "Missing inputs: refuse, indicator, drop_column."),
        Shared("missing-group", str, "Missing groups: refuse, or missing (a group)."),
        Shared(
            "unseen",
            str,
            "Categories new to the model, later: refuse, ignore, most_frequent.",
        ),
        Shared("test-fraction", float, "Share of each silo kept for testing."),
        Shared(
            "calibration-fraction",
            float,
            "Share of the training rows set apart to test a promise on. Default: the "
            "test rows are used.",
        ),
        Shared(
            "seed",
            int,
            "Of silos, split and training; default: 0, and one drawn for training.",
            keys=("data.seed", "run.seed"),
        ),
    ),
    "constraint": (
        Shared(
            "constraint",
            str,
            "bgl (per group), cbgl (per group and label), minmax, per-silo.",
            "KIND",
            keys=("constraint.kind",),
        ),
        Shared(
            "bound",
            list,
            "Largest mean loss: a number, or CELL=NUMBER for each cell (others are not "
            "bounded); auto: chosen on training rows set aside.",
            "NUMBER",
        ),
        Shared("labels", list, "Label that cbgl bounds; may be repeated.", "LABEL"),
        Shared("by", tuple, "Attribute that makes the groups; several cross.", "NAMES"),
    ),
    "model": (
        Shared(
            "model",
            str,
            "logistic, softmax, least-squares, huber; mlp, celeba_cnn (networks, extra "
            "torch). Default: by the labels.",
            "KIND",
            keys=("model.kind",),
        ),
        Shared(
            "target-range",
            tuple,
            "Smallest and largest value that a numeric target can have: predictions "
            "are kept between them.",
            "LOW,HIGH",
        ),
        Shared(
            "l2",
            str,
            "Weight of the ridge term; auto: chosen on training rows set aside.",
            "NUMBER",
        ),
    ),
    "method": (
        Shared(
            "method",
            str,
            "auto (one that fits), exact, first-order, pffl, fedavg, …",
            "KIND",
            keys=("method.kind",),
        ),
        Shared(
            "multiplier-bound",
            float,
            "B: the highest price of a violation; raised as needed if not given.",
        ),
        Shared(
            "target-gap",
            float,
            "Duality gap, in parts of β + Σλ, at which a run counts as converged "
            "(exact, first-order: 1e-6, pffl: 0.01).",
        ),
        Shared("risk-weight", float, "β: weight of the overall risk."),
        Shared("dual-rounds", int, "E: steps of the multipliers."),
        Shared("rounds-per-dual", int, "T: rounds of training for each of them."),
        Shared("rounds", int, "Rounds of training (fedavg)."),
        Shared("local-steps", int, "J: steps of a silo in a round."),
        Shared("step-size", float, "Step size of the model; default: from the data."),
        Shared("dual-step-size", float, "Step size of the multipliers."),
        Shared("batch-size", int, "Rows per local step; default: all."),
        Shared(
            "iterate",
            str,
            "Which model to return: average, recent (later rounds count more), last "
            "or best.",
        ),
    ),
    "run": (
        Shared("engine", str, "local (fast), reference (plain loop) or flower."),
        Shared("weighting", str, "Weight of a silo: silos (all alike) or rows."),
        Shared("empty-cells", str, "Cells without rows: refuse or remove."),
        Shared("radius", float, "A norm ball, declared before the data was seen."),
        Shared(
            "error-at-most",
            float,
            "With --bound auto: the error, on the rows set aside, that a bound may "
            "cost. Default: a point above that without bounds.",
        ),
        Shared(
            "weight-bound",
            float,
            "What no row's weight is above (with --weight): needed for people not "
            "seen.",
        ),
        Shared("reach", bool, "Also find how low each cell alone can go (20 at most)."),
        Shared("confidence", float, "Of statements about unseen people."),
        Shared(
            "promise",
            str,
            "unseen: find the model with the least risk whose bounds can be promised "
            "for people not seen.",
            "unseen",
        ),
        Shared(
            "models", int, "With --promise: models to try, from the safest on.", "N"
        ),
    ),
    "privacy": (
        Shared(
            "secure-sum",
            bool,
            "Add silos' answers under masks: nobody reads a single one's. With "
            "--epsilon the silos share the noise.",
        ),
        Shared(
            "epsilon",
            float,
            "Noise with a budget: ε of all that is released about one person.",
        ),
        Shared("delta", float, "With --epsilon: δ (1e-6)."),
        Shared(
            "clip",
            float,
            "With --epsilon: length to which scaled inputs are shortened, of networks "
            "each person's gradient (4).",
        ),
        Shared(
            "range",
            list,
            "With --epsilon: what a numeric input is between; several times.",
            "NAME=LOW,HIGH",
        ),
    ),
    "about": (
        Shared("purpose", str, "What the model is to be used for: for its card."),
        Shared("owner", str, "Who answers for it."),
        Shared("date", str, "Its date, as nobody's clock is asked.", "YEAR-MONTH-DAY"),
    ),
}


def takes(
    *sections: str, without: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command DATA, the options of these sections, and ``--set``.

    Options `without` effect there are left out, and their keys refused. The command's
    own arguments come before DATA. A command with an option of its own
    named `resume` takes DATA and options, or the directory of a run that was stopped.
    """
    unused = {key for section in sections for key in _unused(section, without.split())}
    shared = [
        (section, option)
        for section in sections
        for option in OPTIONS[section]
        if option.flag not in without.split()
    ]
    known = {
        option.name: (option, option.keys or (f"{section}.{option.name}",))
        for section, option in shared
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        draft, *own = inspect.signature(command, eval_str=True).parameters.values()
        own = [p.replace(kind=p.KEYWORD_ONLY) for p in own]

        @functools.wraps(command)
        def wrapper(**values: Any) -> None:
            data, settings = values.pop("data"), values.pop("set_") or []
            given = {
                targets: option.read(values.pop(name))
                for name, (option, targets) in known.items()
            }
            place = values.get(RESUME)
            values[draft.name] = (
                Draft.of(data, given, settings)
                if place is None
                else Draft.resumed(place, data, given, settings)
            )
            if data is None or not Path(data).is_dir():  # a run is more than its file
                _refuse(unused, values[draft.name], command.__name__)
            command(**values)

        signature = inspect.Signature(
            [
                *(p for p in own if _is_argument(p)),
                _data(optional=any(p.name == RESUME for p in own)),
                *(option.parameter(section) for section, option in shared),
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


def _unused(section: str, flags: Sequence[str]) -> list[str]:
    """Return the keys that are set by options of these names alone."""
    there = [option for option in OPTIONS[section] if option.flag in flags]
    return [key for o in there for key in o.keys or (f"{section}.{o.name}",)]


def _refuse(unused: set[str], draft: Draft, command: str) -> None:
    """Refuse keys that a command makes no use of, unless they say what is anyway so."""
    from pffl.errors import Problems, UsageError
    from pffl.models import LogisticRegression
    from pffl.preparation import Options

    others = {"l2": LogisticRegression().l2, "unseen": "refuse", "engine": "local"}
    usual, found = {**vars(Options()), **others}, []
    for section, key in sorted(name.split(".") for name in unused):
        table = draft.sections.get(section)
        given = table.get(key) if isinstance(table, Mapping) else None
        if given not in (None, usual.get(key)):
            found.append(f"{section}.{key}")
    run = draft.sections.get("run")
    deployed = isinstance(run, Mapping) and run.get("engine") == "flower"
    if draft.sections.get("policy") and not deployed and command != "deploy":
        found.append("[policy]")
    with Problems(draft.source, UsageError) as problems:
        problems.extend(
            f"[no-effect] 'pffl {command}' makes no use of {key}" for key in found
        )


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(m, ArgumentInfo) for m in parameter.annotation.__metadata__)


def _data(*, optional: bool) -> inspect.Parameter:
    """Return DATA; it may be left out where a stopped run can go on instead."""
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
    "classification=False": "--model least-squares",
    "clip=P": "--clip P",
    "method=FirstOrder()": "--method first-order",
    "model=LeastSquares()": "--model least-squares",
    "model=SoftmaxRegression()": "--model softmax",
    "p_min=P": "--p-min P",
    "target_range=LOW,HIGH": "--target-range LOW,HIGH",
}
HASHED = re.compile(r"\{['\"](.*)['\"]: (\d+)\}")  # as Python writes it


def in_options(message: str) -> str:
    """Say in options what a message says in Python, between backticks.

    >>> in_options("`missing='indicator'` marks them, `drop=` leaves it out")
    '--missing indicator marks them, --drop leaves it out'
    """
    return re.sub(r"`(\w+)=([^`]*)`", _as_option, message)


def _as_option(found: re.Match[str]) -> str:
    key, value = found[1], found[2].strip("'")
    if found[0].strip("`") in SAID:
        return SAID[found[0].strip("`")]
    if key == "hash":
        return "--hash " + shlex.quote(HASHED.sub(r"\1=\2", value))
    for section in ("data", "run"):
        for option in OPTIONS[section]:
            if f"{section}.{key}" in (option.keys or (f"{section}.{option.name}",)):
                return f"--{option.flag} {value}".strip()
    return f"--set data.{key}={value.lower() or 'VALUE'}"


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
    """

    sections: Mapping[str, Any]
    source: str
    base: Path

    @classmethod
    def of(
        cls,
        data: str | None,
        given: Mapping[tuple[str, ...], Any],
        settings: Sequence[str] = (),
    ) -> Draft:
        """Lay options and settings over what DATA names.

        Parameters
        ----------
        data
            A data set, a table, a run file or a run directory.
        given
            Keys of the run file and the value that an option gives them, if any.
        settings
            As ``section.key=value``.
        """
        from pffl.errors import UsageError
        from pffl.spec import merge, named, parse_setting

        if data is None:
            raise UsageError("[missing-data] DATA is missing: give it, or --resume DIR")
        sections, file, base = named(data)
        options: dict[str, Any] = {}
        for keys, value in given.items():
            if value is not None and value != []:
                plain = READERS[keys](value) if keys in READERS else value
                for section, key in (name.split(".") for name in keys):
                    options.setdefault(section, {})[key] = plain
        if "columns" in options.get("data", {}):
            options["columns"] = options["data"].pop("columns")
        for setting in settings:
            options = merge(options, parse_setting(setting))
        sections = _other_kinds_forgotten(sections, options)
        return cls(merge(sections, options), file or TYPED, base)

    @classmethod
    def resumed(
        cls,
        place: Path,
        data: str | None,
        given: Mapping[tuple[str, ...], Any],
        settings: Sequence[str] = (),
    ) -> Draft:
        """Return the run that was stopped in a directory; nothing else may be given."""
        from pffl.errors import ArtefactError, UsageError
        from pffl.log import SPEC as STOPPED

        others = [keys[-1] for keys, value in given.items() if value not in (None, [])]
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

    def with_a_bound(self, *, minimax: bool = False) -> tuple[Draft, bool]:
        """Let a constraint without a bound name cells; also say whether it had one.

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
        from pffl.spec import parse

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


def bound(given: Sequence[str]) -> Number | dict[str, Number]:
    """Read ``--bound``: one number, or ``cell=number`` for each cell; or ``auto``."""
    from pffl.constraints.base import AUTO
    from pffl.errors import Problems, UsageError

    cells: dict[str, Number] = {}
    with Problems("--bound", UsageError) as problems:
        for text in given:
            cell, _, number = text.rpartition("=")
            try:
                name, auto = cell.strip(), number.strip() == AUTO
                cells[name] = AUTO if auto else float(number)
            except ValueError:
                hint = " (a point, not a comma)" if "," in number else ""
                problems.add(
                    f"[wrong-value] must be NUMBER, CELL=NUMBER{hint} or auto. Got "
                    f"{text!r} instead."
                )
        if not problems.found and "" in cells and len(given) > 1:
            problems.add(
                "[bounds-mixed] give one number for all cells, or CELL=NUMBER for each"
            )
    return cells.get("", cells)


def widths(given: Sequence[str]) -> dict[str, int]:
    """Read ``--hash``: a column and its number of inputs, also as a power of two.

    >>> widths(["notes=2**16", "codes=1000"])
    {'notes': 65536, 'codes': 1000}
    """
    from pffl.errors import Problems, UsageError

    found: dict[str, int] = {}
    with Problems("--hash", UsageError) as problems:
        for text in given:
            column, _, width = text.rpartition("=")
            read = re.fullmatch(r"(?:(\d{1,9})|2(?:\*\*|\^)(\d\d?))", width.strip())
            if read is None or not column.strip():
                problems.add(
                    "[wrong-value] must be COLUMN=INPUTS, such as notes=65536 or "
                    f"notes=2**16, a whole number. Got {text!r} instead."
                )
            elif column.strip() in found:
                problems.add(
                    f"[repeated-name] column '{column.strip()}' is there twice"
                )
            else:
                own, power = read.groups()
                found[column.strip()] = int(own) if own else 2 ** int(power)
    return found


def declared(path: str) -> object:
    """Read ``--columns``: the section of a run file."""
    from pffl.errors import UsageError
    from pffl.records import read_toml

    if "columns" not in (found := read_toml(path)):
        raise UsageError(f"[missing-section] '{path}' has no section [columns]")
    return found["columns"]


def number(text: str) -> float | str:
    """Read a number, if it is one; a word stays, to be judged with its run file."""
    try:
        return float(text)
    except ValueError:
        return text


#: How the text of an option becomes the value of its keys.
READERS: dict[tuple[str, ...], Callable[[Any], object]] = {
    ("constraint.bound",): bound,
    ("data.columns",): declared,
    ("data.hash",): widths,
    ("model.l2",): number,
    ("model.target_range",): lambda ends: [number(end) for end in ends],
}


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
