"""The terminal: results to stdout, all else to stderr, on at least 60 columns.

The first screen of a run has its group losses, its error rates and three verdicts. All
else that was measured is shown with --verbose. Both are read off `Conclusions`.
"""

from __future__ import annotations

import math
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any

from pffl.text import LOWER, UPPER, decimals, figure, shorten, up, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from pffl.evidence.conclude import CellResult, Conclusions
    from pffl.evidence.rates import GroupRates, Rate
    from pffl.evidence.statements import Verdict
    from pffl.evidence.tables import Split

MIN_WIDTH = 60  # columns; on a narrower terminal lines are wrapped by the terminal
MAX_NOTE = 500
MAX_ROWS, MAX_ON_SCREEN = 30, 8  # of a table, and of one of the first screen
MAX_NAME, MAX_CELL, MAX_TITLE = 40, 120, 80
MIN_NAMES, ROOMY = 12, 76  # columns: for names, for three blanks between entries
STYLES = {
    "good": "bold green",
    "caution": "bold yellow",
    "bad": "bold red",
    "plain": "bold",
}
#: Rates of the first screen, by their names in result.json.
RATES = {
    "missed (false negatives)": "false_negative",
    "false alarms": "false_positive",
    "errors": "error",
    "selected ({})": "selected",
}


# Where text goes


def stdout(*, stderr: bool = False) -> Console:
    """Where results are shown."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    console.width = max(console.width, MIN_WIDTH)
    return console


def error(message: str, *, trace: bool = False) -> None:
    """Show an error."""
    if trace:
        traceback.print_exc()
    _labelled("error", "bold red", message)


def note(message: str) -> None:
    """Show a remark that does not stop anything."""
    _labelled("note", "yellow", shorten(message, MAX_NOTE))


def _labelled(label: str, style: str, message: str) -> None:
    from rich.text import Text

    from pffl.cli.options import in_options

    text = Text.assemble((f"{label}: ", style), clean(in_options(message)))
    stdout(stderr=True).print(text, soft_wrap=True)


def show(*lines: str) -> None:
    """Show lines of a result, however long."""
    for text in lines:
        stdout().print(visible(text), soft_wrap=True)


def print_json(plain: object) -> None:
    """Print JSON, and nothing else."""
    from pffl.files import json_text

    sys.stdout.write(json_text(plain, ascii_only=True))


def clean(text: str) -> str:
    """Text of several lines that cannot steer a terminal."""
    return "\n".join(map(visible, text.split("\n")))


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Show each different warning once, as one line."""
    shown: set[str] = set()

    def show_once(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            note(text)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for hidden in (DeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", hidden)
        warnings.showwarning = show_once
        yield


def tolerate_any_encoding() -> None:
    """Escape what the terminal's encoding does not have, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


# Tables


def name(text: str, longest: int = MAX_NAME) -> Text:
    """A name from the data: harmless and short."""
    from rich.text import Text

    return Text(shorten(visible(text), longest))


def text_rows(
    rows: Sequence[Mapping[str, Any]],
    most: int = MAX_ROWS,
    *,
    rule: bool = True,
    left: Sequence[str] = (),
) -> Table:
    """A row per mapping, the first ones of many, without a frame.

    The first column holds names, those of `left` text, all others numbers.
    """
    from rich import box
    from rich.table import Table

    first, *titles = dict.fromkeys(key for row in rows for key in row)
    kind, right = box.SIMPLE_HEAD if rule else None, 1
    if not rule and stdout().width >= ROOMY:
        right = 3
    table = Table(box=kind, padding=(0, right, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold", max_width=MAX_NAME)
    for title in titles:
        head, text = shorten(clean(title), MAX_NAME), title in left
        head = head.replace(" ", "\n") if rule else head
        table.add_column(head, justify="left" if text else "right", no_wrap=not text)
    for row in rows[:most]:
        figures = (_entry(title, row.get(title)) for title in titles)
        table.add_row(name(str(row[first]), MAX_CELL), *figures)
    if len(rows) > most:
        table.add_row(f"… {len(rows) - most:,} more", style="dim")
    return table


def _entry(title: str, value: object) -> str | Text:
    from rich.text import Text

    if isinstance(value, Text):
        return value
    if isinstance(value, float) and title not in (*UPPER, *LOWER):
        return decimals(value)
    return f"{value:,}" if type(value) is int else figure(title, value)


def print_rows(
    rows: Sequence[Mapping[str, Any]], most: int = MAX_ROWS, left: Sequence[str] = ()
) -> None:
    """Print a table of results below an empty line; nothing for no rows."""
    if rows:
        target = stdout()
        target.print()
        print_whole(target, text_rows(rows, most, left=left))


def print_whole(console: Console, table: Table) -> None:
    """Print a table that never cuts a number: what is too wide, the terminal wraps."""
    width, console.width = console.width, max(console.width, _width_of(console, table))
    console.print(table)
    console.width = width


def _width_of(console: Console, table: Table) -> int:
    """Return how many columns a table needs where nothing wraps."""
    from rich.measure import Measurement

    wide = console.options.update(max_width=10_000)
    return Measurement.get(console, wide, table).maximum


def print_remarks(notes: Sequence[str], above: str = "\n") -> None:
    """Print remarks below an empty line, in words of the command line, in grey."""
    from pffl.cli.options import in_options

    lines = "\n".join(visible(in_options(n)) for n in notes)
    stdout().print(f"{above}{lines}", style="dim")


def print_head(title: str, *notes: str) -> None:
    """Print a title, and remarks."""
    stdout().print(f"\n{shorten(visible(title), MAX_TITLE)}", style="bold")
    print_remarks(notes, above="")


# The first screen


def print_screen(console: Console, c: Conclusions) -> None:
    """Show group losses, error rates, and three verdicts."""
    from pffl.evidence import tables

    console.print(_headline(c), style="bold", soft_wrap=True)
    console.print()
    print_whole(console, _loss_table(c))
    console.print()
    if groups := c.rates:
        compared = any(group.error.unconstrained is not None for group in groups)
        both = ", unconstrained → constrained" if compared else ""
        rows = tables.splits(c.evidence)[_is_test(groups)]
        rows = rows.replace("train", "training")
        noise = ", with noise" * (c.evidence.noise is not None)
        console.print(f"on {rows} rows{noise}{tables.threshold(c)}{both}")
        print_whole(console, _rate_table(console, c, groups))
        console.print()
    print_verdicts(console, c)


def _headline(c: Conclusions) -> str:
    """Say what was run on what."""
    from pffl.evidence import tables
    from pffl.evidence.figures import named
    from pffl.evidence.record import Training, known

    e = c.evidence
    (here, apart), path, test = tables.splits(e), known(e.path), known(e.heldout)
    rows = {here: e.seen.rows}
    rows |= {} if path is None else {"calibration": path.shipped.calibration.rows}
    rows |= {} if test is None or not e.trained else {apart: test.rows}
    about = "about " * (e.noise is not None)
    parts = [
        shorten(visible(e.data.name), MAX_TITLE),
        f"{e.data.silos:,} silo{'' if e.data.silos == 1 else 's'}",
        about + " / ".join(f"{rows[split]:,} {split}" for split in rows) + " rows",
    ]
    if clipped := named(e):
        parts[2] += f" · {clipped}"
    if isinstance(e.training, Training):
        parts.append(str(e.training.method.get("kind", "")))
    return " · ".join(filter(None, parts))


def _fixed(number: float | None, digits: int, rounding: str = ROUND_HALF_EVEN) -> str:
    """Write a number with n decimals."""
    if number is None or math.isnan(number):
        return "–"
    if not abs(number) < 1e9:
        return f"{number:.3g}"
    return f"{Decimal(number).quantize(Decimal(1).scaleb(-digits), rounding):,}"


def _digits_of(cells: Sequence[CellResult]) -> int:
    """Return the decimals that losses need: three, or more near a close bound."""
    pairs = [
        (loss, cell.bound or 0.0)
        for cell in cells
        for loss in (cell.train_loss, cell.test_loss, cell.bound)
        if loss is not None and math.isfinite(loss)
    ]
    power = math.floor(math.log10(max((a for a, _ in pairs if a > 0), default=1.0)))
    digits = 2 - power if power < 0 else max(0, 3 - power)
    over = [pair for pair in pairs if pair[0] > pair[1] * (1 + 1e-6)]
    while digits < 6 and any(_fixed(a, digits) == _fixed(b, digits) for a, b in over):
        digits += 1
    return digits


def _loss_table(c: Conclusions) -> Table:
    """Return the mean loss of each group, the worst first, next to its bound.

    Under noise groups stay as they are: it may have chosen the worst.
    """
    from pffl.evidence import tables
    from pffl.figures import excess

    e, cells, (here, apart) = c.evidence, list(c.cells), tables.splits(c.evidence)
    if e.noise is None:
        cells.sort(key=lambda cell: excess(vars(cell)))
    digits = _digits_of(cells)
    other = "squared error" if e.model.kind == "least-squares" else "loss"
    title = f"mean {'log loss' if e.labels else other}"
    title = c.measure if e.terms.on_rates else title
    rows = []
    for cell in cells:
        row: dict[str, Any] = {
            title: cell.cell,
            "": f"({cell.count:,})",
            "unconstrained": _fixed(cell.before_train_loss, digits),
            here: _loss(c, cell, "train", digits),
        }
        row |= {apart: _loss(c, cell, "test", digits)} if e.trained else {}
        rows.append({**row, "bound": _fixed(cell.bound, digits)})
    empty = [key for key in rows[0] if all(str(row[key]) == "–" for row in rows)]
    rows = [{k: v for k, v in row.items() if k not in empty} for row in rows]
    return text_rows(rows, MAX_ON_SCREEN, rule=False)


def _loss(c: Conclusions, cell: CellResult, split: Split, digits: int) -> Text:
    """Write a loss; under noise its interval, rounded outwards."""
    from rich.text import Text

    from pffl.evidence import tables

    text = _fixed(cell.train_loss if split == "train" else cell.test_loss, digits)
    if (ends := tables.ends_of(c, cell, split)) is not None:
        roundings = zip(ends, (ROUND_FLOOR, ROUND_CEILING), strict=True)
        text = "–".join(_fixed(end, digits, rounding) for end, rounding in roundings)
    over = tables.above(c, cell, split)
    return Text(f"{tables.ABOVE * over}{text}", style=STYLES["bad"] if over else "")


def _rate_table(
    console: Console, c: Conclusions, groups: Sequence[GroupRates]
) -> Table:
    """Return rates with a column per group, or a row where columns do not fit."""
    e, split = c.evidence, "test" if _is_test(groups) else "train"
    new, old, noise = c.test if split == "test" else c.train, c.before or {}, e.noise
    rows = []
    for title, kind in RATES.items():
        found = {group.group: getattr(group, kind) for group in groups}
        if None in found.values():
            continue  # there are more than two classes
        row = {"": title.format(shorten(visible(e.labels[-1]), MIN_NAMES))}
        row |= {group: _share(rate, noise is not None) for group, rate in found.items()}
        row["all"] = ""
        if kind == "error" and noise is None and new is not None:
            free = old[split].error if split in old else None
            row["all"] = _arrow(_percent(free, 1), _percent(new.error, 1))
        if kind == "selected" and (ratio := c.selection_ratio) is not None:
            shown = [None if x is None else f"{x:.2f}" for x in ratio.values()]
            row["all"] = f"ratio {_arrow(*shown)}"
        rows.append(row)
    table = text_rows(rows, rule=False)
    if _width_of(console, table) <= console.width:
        return table
    ranked = sorted(groups, key=lambda group: -group.error.people)
    turned = [
        {"": g} | {r[""].replace(" ", "\n"): re.sub("^ratio.*", "", r[g]) for r in rows}
        for g in ("all", *(group.group for group in ranked))
    ]
    return text_rows(turned, MAX_ON_SCREEN + 1, rule=False)


def _is_test(groups: Sequence[GroupRates]) -> bool:
    return groups[0].rows != "training"


def _share(rate: Rate, noisy: bool) -> str:
    """Write a rate without and with bounds; under noise between what it is."""
    if noisy and rate.lower is not None and rate.upper is not None:
        return f"{math.floor(100 * rate.lower)}–{math.ceil(100 * rate.upper)} %"
    return _arrow(_percent(rate.unconstrained), _percent(rate.value))


def _percent(share: float | None, digits: int = 0) -> str | None:
    if share is None:
        return None
    least = 0 < share < 0.005 and not digits
    return "<1 %" if least else f"{100 * share:.{digits}f} %"


def _arrow(old: str | None, new: str | None) -> str:
    now = "–" if new is None else new
    return now if old is None else f"{old} → {now:>4}"


def print_verdicts(console: Console, c: Conclusions) -> None:
    """Show the three verdicts, a line each: sign, rows, word, a short reason.

    Below them, where the model is no better than a guess, a warning.
    """
    from rich.table import Table
    from rich.text import Text

    from pffl.evidence import tables

    titles = ("training", tables.splits(c.evidence)[1], "new people", "warning")
    found, lines = tables.verdicts(c), Table.grid(padding=(0, 1, 0, 0))
    for least in (1, 12, 13):
        lines.add_column(no_wrap=True, min_width=least)
    lines.add_column(overflow="fold")
    for title, one, reason in zip(titles, found, _reasons(c, found), strict=False):
        style = STYLES[one.tone]
        word = Text("" if title == "warning" else one.word, style)
        lines.add_row(Text(one.sign, style), title, word, name(reason, MAX_CELL))
    console.print(lines)


def _reasons(c: Conclusions, found: Sequence[Verdict]) -> list[str]:
    """Say why each verdict is what it is: in few words, or by its first sentence."""
    e, words = c.evidence, [one.word for one in found]
    out = [re.split(r"(?<=\.) (?=[A-Z])", one.sentence)[0] for one in found]
    out = [one.partition(": ")[0] if len(one) > MAX_CELL else one for one in out]
    least, equal = c.smallest_bound, len(set(e.bounds.tolist())) == 1
    if words[0] == "met":
        out[0] = "every group is at or below its bound"
    if words[0] == "impossible" and least is not None:
        rise = f"a bound of {up(least)}" if equal else f"bounds higher by {up(least)}"
        out[0] = f"no linear model can meet the bounds; {rise} can be met"
    if words[0] == "no bounds" and not e.minimax:
        out[0] = "--bound 0.6 would set one for every group"
    if words[2] == "certified":
        out[2] = f"every bound holds with {100 * e.terms.confidence:.4g} % confidence"
    if e.noise is not None:  # it may have chosen which group is the worst
        undecided = f"noise leaves it open at ε = {e.noise.epsilon:g}"
        return [undecided if words[z] == "not decided" else out[z] for z in range(3)]
    if words[0] == "not met":
        out[0] = _worst(c, "train")
    if words[1] in ("within", "exceeded", "no bounds"):
        out[1] = _worst(c, "test")
    if words[2] in ("not certified", "no bounds"):
        worst = max(c.cells, key=lambda r: (r.test_upper or 0.0) - (r.bound or 0.0))
        high = _fixed(worst.test_upper, _digits_of(c.cells), ROUND_CEILING)
        out[2] = f"{shorten(worst.cell)} could be as high as {high}"
    return out


def _worst(c: Conclusions, split: Split) -> str:
    """Name the group that is furthest above its bound, or closest to it."""
    from pffl.evidence import tables
    from pffl.evidence.figures import FEWEST

    judged = [r for r in c.cells if split == "train" or r.test_count >= FEWEST]
    if not judged:
        return f"fewer than {FEWEST} rows of every group"
    losses = [r.train_loss if split == "train" else r.test_loss or 0.0 for r in judged]
    excess = [a - (r.bound or 0.0) for a, r in zip(losses, judged, strict=True)]
    z, digits = excess.index(max(excess)), _digits_of(c.cells)
    cell, over = judged[z], [tables.above(c, row, split) for row in judged]
    text = f"{shorten(cell.cell)} at {_fixed(losses[z], digits)}"
    if cell.bound is None:
        return f"largest: {text}"
    text += f" of {_fixed(cell.bound, digits)}"
    many = f"{sum(over)} of {len(c.cells)}" if any(over) else "closest"
    return f"{many}: {text}"


# All else that was measured


def print_details(c: Conclusions) -> None:
    """Show notes on the data, all figures, what they mean, the verdicts in full."""
    from pffl.evidence import tables
    from pffl.evidence.record import Training

    e = c.evidence
    notes = [tables.meanings(tables.columns(c, c.cells)), *e.notes]
    notes += [tables.rates_in_words(c)] * bool(e.labels)
    notes += [c.limits] if c.limits else []
    if isinstance(e.training, Training):
        run, gap = e.training, "not available" if c.gap is None else f"{c.gap:.2g}"
        notes.append(
            f"duality gap {gap}, {run.rounds:,} rounds, {run.queries['messages']:,} "
            f"messages to every silo, {run.seconds:.1f} s, seed {run.seed}"
        )
        notes += [run.chosen] if run.chosen else []
    if e.data.notes:
        print_remarks(e.data.notes, above="")
    cells = tables.table(c, tables.by_urgency(c.cells))
    for rows in (tables.path_table(c), cells, tables.rate_table(c)):
        print_rows(rows)
    print_remarks(notes)
    sentences = [f"{one.title}: {one.sentence}" for one in tables.verdicts(c)]
    overall = tables.overall_in_words(c)
    texts = filter(None, (overall, c.binding, *c.changes, *sentences))
    stdout().print("", *map(visible, texts), "", sep="\n")
