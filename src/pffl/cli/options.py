"""Options that several commands share: each is a key of a run file.

`@takes("data", "constraint")` gives a command the DATA argument and the options of
these sections; the command itself receives them as one `Draft`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer

from pffl.cli.draft import Draft

DATA_HELP = "A data set (pffl data list), a CSV or Parquet file, or a run file (.toml)."
RESUME = "resume"  # option of a command that can go on with a stopped run
SET_HELP = "Any key of a run file: --set section.key=value."


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
        names = (name.strip() for text in value for name in text.split(","))
        return [name for name in names if name]


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
        Shared("positive", str, "Which of two labels is the positive one.", "VALUE"),
        Shared("drop", tuple, "Columns that are no inputs.", "COLUMNS"),
        Shared("categorical", tuple, "Columns whose numbers are codes.", "COLUMNS"),
        Shared("missing", str, "Missing inputs: refuse, indicator, drop_column."),
        Shared("missing-group", str, "Missing groups: refuse, or missing (a group)."),
        Shared("test-fraction", float, "Share of each silo kept for testing."),
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
            "Largest mean loss: a number, or CELL=NUMBER for each cell.",
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
        Shared("l2", float, "Weight of the ridge term."),
    ),
    "method": (
        Shared("method", str, "exact, pffl, fedavg, …", "KIND", keys=("method.kind",)),
        Shared("multiplier-bound", float, "B: the highest price of a violation."),
        Shared("risk-weight", float, "β: weight of the overall risk."),
        Shared("dual-rounds", int, "E: steps of the multipliers."),
        Shared("rounds-per-dual", int, "T: rounds of training for each of them."),
        Shared("rounds", int, "Rounds of training (fedavg)."),
        Shared("local-steps", int, "J: steps of a silo in a round."),
        Shared("step-size", float, "Step size of the model; default: from curvature."),
        Shared("dual-step-size", float, "Step size of the multipliers."),
        Shared("batch-size", int, "Rows per local step; default: all."),
        Shared("iterate", str, "Which model to return: average, last or best."),
    ),
    "run": (
        Shared("engine", str, "local (fast), reference (plain loop) or flower."),
        Shared("weighting", str, "Weight of a silo: silos (all alike) or rows."),
        Shared("empty-cells", str, "Cells without rows: refuse or remove."),
        Shared("radius", float, "Norm ball over which infeasibility is proved."),
        Shared("loss-bound", float, "M: unseen people's losses count up to M."),
        Shared("confidence", float, "Of statements about unseen people."),
    ),
}


def takes(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command DATA, the options of these sections, and ``--set``.

    A command with an option of its own named `resume` takes DATA and options, or the
    directory of a run that was stopped.
    """
    shared = [(section, option) for section in sections for option in OPTIONS[section]]
    known = {
        option.name: (option, option.keys or (f"{section}.{option.name}",))
        for section, option in shared
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        draft, *own = inspect.signature(command, eval_str=True).parameters.values()

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
            command(**values)

        signature = inspect.Signature(
            [
                _data(optional=any(p.name == RESUME for p in own)),
                *(option.parameter(section) for section, option in shared),
                *(p.replace(kind=p.KEYWORD_ONLY) for p in own),
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
