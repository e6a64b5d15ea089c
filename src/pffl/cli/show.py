"""Results on a terminal of at least 60 columns: the first screen, certificates, tables.

The first screen of a run has its group losses, its error rates and three verdicts. All
else that was measured is shown with --verbose. Both are read off `Conclusions`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pffl.cli.options import in_options
from pffl.evidence import tables
from pffl.evidence.judged import FEWEST, named
from pffl.evidence.metrics import GroupRates, Rate
from pffl.evidence.noise import between
from pffl.evidence.record import Training, known
from pffl.text import LOWER, UPPER, decimals, figure, shorten, up, visible

if TYPE_CHECKING:
    from rich.console import Console

    from pffl.evidence.certificate import Certificate
    from pffl.evidence.conclude import CellResult, Conclusions
    from pffl.evidence.tables import Split, Tone, VerdictLine

MOST_CELLS = 30
MOST_ON_SCREEN = 8  # groups in a table of the first screen
LONGEST_NAME = 40
LONGEST_CELL = 120  # where names wrap
LONGEST_TITLE = 80
NARROWEST = 12  # column of names
ROOMY = 76  # columns
STYLES: dict[Tone, str] = {
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


def name(text: str, longest: int = LONGEST_NAME) -> Text:
    """A name from the data: harmless and short."""
    return Text(shorten(visible(text), longest))


# The first screen


def screen(console: Console, c: Conclusions) -> None:
    """Show group losses, error rates, and three verdicts."""
    console.print(Text(headline(c, console.width), style="bold"))
    console.print()
    print_whole(console, loss_table(c, console.width))
    console.print()
    if groups := c.rates:
        compared = any(group.error.unconstrained is not None for group in groups)
        both = ", unconstrained → constrained" if compared else ""
        rows = tables.splits(c.evidence)[_held(groups)]
        rows = rows.replace("train", "training")
        noise = ", with noise" * (c.evidence.noise is not None)
        console.print(f"on {rows} rows{noise}{both}")
        print_whole(console, rate_table(console, c, groups))
        console.print()
    verdicts(console, c)


def headline(c: Conclusions, width: int) -> str:
    """Say what was run on what, as far as it fits."""
    e = c.evidence
    (here, apart), path, held = tables.splits(e), known(e.path), known(e.heldout)
    rows = {here: e.seen.rows}
    rows |= {} if path is None else {"calibration": path.shipped.calibration.rows}
    rows |= {} if held is None or not e.trained else {apart: held.rows}
    about = "about " * (e.noise is not None)
    parts = [
        shorten(visible(e.data.name), LONGEST_TITLE),
        f"{e.data.silos:,} silo{'' if e.data.silos == 1 else 's'}",
        about + " / ".join(f"{rows[split]:,} {split}" for split in rows) + " rows",
    ]
    if clipped := named(e):
        parts[2] += f" · {clipped}"
    if isinstance(e.training, Training):
        parts.append(str(e.training.method.get("kind", "")))
        parts.append(f"{e.training.rounds:,} rounds")
    while len(parts) > 3 and cell_len(" · ".join(parts)) > width:
        parts.pop()
    return " · ".join(filter(None, parts))


def worst_first(c: Conclusions) -> list[CellResult]:
    """Sort cells by the largest of their losses, beside their bounds.

    Under noise they stay as they are: it may have chosen the worst.
    """

    def excess(cell: CellResult) -> float:
        losses = (cell.before_train_loss, cell.train_loss, cell.test_loss)
        there = [loss for loss in losses if loss is not None and not math.isnan(loss)]
        return max(there, default=-math.inf) - (cell.bound or 0.0)

    noisy = c.evidence.noise is not None
    return list(c.cells) if noisy else sorted(c.cells, key=excess, reverse=True)


def fixed(number: float | None, digits: int, rounding: str = ROUND_HALF_EVEN) -> str:
    """Write a number with so many decimals."""
    if number is None or math.isnan(number):
        return tables.NOTHING
    if not abs(number) < 1e9:
        return f"{number:.3g}"
    return f"{Decimal(number).quantize(Decimal(1).scaleb(-digits), rounding):,}"


def digits_of(cells: Iterable[CellResult]) -> int:
    """Return the decimals that losses need: three, or more beside a close bound."""
    pairs = [
        (loss, cell.bound or 0.0)
        for cell in cells
        for loss in (cell.train_loss, cell.test_loss, cell.bound)
        if loss is not None and math.isfinite(loss)
    ]
    power = math.floor(math.log10(max((a for a, _ in pairs if a > 0), default=1.0)))
    digits = 2 - power if power < 0 else max(0, 3 - power)
    over = [pair for pair in pairs if pair[0] > pair[1] * (1 + 1e-6)]
    while digits < 6 and any(fixed(a, digits) == fixed(b, digits) for a, b in over):
        digits += 1
    return digits


def loss_table(c: Conclusions, width: int) -> Table:
    """Return the mean loss of each group, the worst first, beside its bound."""
    e = c.evidence
    cells, (here, apart) = worst_first(c), tables.splits(e)
    digits, shown = digits_of(cells), cells[:MOST_ON_SCREEN]
    columns = {
        "": [Text(f"({cell.count:,})") for cell in shown],
        "unconstrained": [Text(fixed(r.before_train_loss, digits)) for r in shown],
        here: _losses(c, shown, "train", digits),
        **({apart: _losses(c, shown, "test", digits)} if e.trained else {}),
        "bound": [Text(fixed(cell.bound, digits)) for cell in shown],
    }
    absent = {tables.NOTHING}
    known = [k for k, v in columns.items() if {f.plain for f in v} - absent]
    other = "squared error" if e.model.kind == "least-squares" else "loss"
    loss = f"mean {'log loss' if e.labels else other}"
    table = _table(width, loss, *known, rule=False)
    for z, cell in enumerate(shown):
        table.add_row(name(cell.cell, LONGEST_CELL), *(columns[k][z] for k in known))
    return _ended(table, len(cells) - len(shown))


def _losses(
    c: Conclusions, cells: Sequence[CellResult], split: Split, digits: int
) -> list[Text]:
    """Write losses; under noise the interval of each, rounded outwards."""
    out = []
    for cell in cells:
        text = fixed(cell.train_loss if split == "train" else cell.test_loss, digits)
        if (found := tables.ends_of(c, cell, split)) is not None:
            low, high = found
            ends = fixed(low, digits, ROUND_FLOOR), fixed(high, digits, ROUND_CEILING)
            text = "–".join(ends)
        over = tables.above(c, cell, split)
        style = STYLES["bad"] if over else ""
        out.append(Text(f"{tables.ABOVE * over}{text}", style=style))
    return out


def rate_table(console: Console, c: Conclusions, groups: Sequence[GroupRates]) -> Table:
    """Return rates with a column per group, or a row where columns do not fit."""
    e, split, old = c.evidence, "test" if _held(groups) else "train", c.before or {}
    new, noise = c.test if _held(groups) else c.train, e.noise
    free = old[split].error if split in old else None
    rows = []
    for title, kind in RATES.items():
        found = {group.group: getattr(group, kind) for group in groups}
        if None in found.values():
            continue  # there are more than two classes
        label = shorten(visible(e.labels[-1]), NARROWEST)
        row = {"": title.format(label)} | {
            group: _share(rate, noise is not None) for group, rate in found.items()
        }
        row["all"] = ""
        if kind == "error" and noise is not None:
            ends = between(e, noise, split, "wrong")
            row["all"] = "" if ends is None else tables.percent_ends(*ends)
        elif kind == "error" and new is not None:
            row["all"] = _arrow(_percent(free, 1), _percent(new.error, 1))
        if kind == "selected" and noise is None:
            ratio = _ratio([rate.unconstrained for rate in found.values()])
            now = _ratio([rate.value for rate in found.values()])
            row["all"] = f"ratio {_arrow(ratio, now)}"
        rows.append(row)
    table = text_rows(rows, console.width, rule=False)
    if width_of(console, table) <= console.width:
        return table
    ranked = sorted(groups, key=lambda group: -group.error.people)
    turned = [
        {"": g} | {r[""].replace(" ", "\n"): re.sub("^ratio.*", "", r[g]) for r in rows}
        for g in ("all", *(group.group for group in ranked))
    ]
    return text_rows(turned, console.width, MOST_ON_SCREEN + 1, rule=False)


def _held(groups: Sequence[GroupRates]) -> bool:
    return groups[0].rows == "held-out"


def _share(rate: Rate, noisy: bool) -> str:
    """Write a rate without and with bounds; under noise between what it is."""
    if noisy and rate.lower is not None and rate.upper is not None:
        return tables.percent_ends(rate.lower, rate.upper)
    return _arrow(_percent(rate.unconstrained), _percent(rate.value))


def _percent(share: float | None, digits: int = 0) -> str | None:
    if share is None:
        return None
    least = 0 < share < 0.005 and not digits
    return "<1 %" if least else f"{100 * share:.{digits}f} %"


def _ratio(shares: Sequence[float | None]) -> str | None:
    known = [share for share in shares if share is not None]
    whole = len(known) == len(shares) and any(known)
    return f"{min(known) / max(known):.2f}" if whole else None


def _arrow(old: str | None, new: str | None) -> str:
    now = tables.NOTHING if new is None else new
    return now if old is None else f"{old} → {now:>4}"


def verdicts(console: Console, c: Conclusions) -> None:
    """Show the three verdicts, a line each: sign, rows, word, a short reason.

    Below them, where the model is no better than a guess, a warning.
    """
    titles = ("training", tables.splits(c.evidence)[1], "new people", "warning")
    found = tables.verdicts(c)
    lines = Table.grid(padding=(0, 1, 0, 0))
    for least in (1, 12, 13):
        lines.add_column(no_wrap=True, min_width=least)
    lines.add_column(overflow="fold")
    for title, one, reason in zip(titles, found, reasons(c, found), strict=False):
        style = STYLES[one.tone]
        word = Text("" if title == "warning" else one.word, style)
        lines.add_row(Text(one.sign, style), title, word, name(reason, LONGEST_CELL))
    console.print(lines)


def reasons(c: Conclusions, found: Sequence[VerdictLine]) -> list[str]:
    """Say why each verdict is what it is: in few words, or by its first sentence."""
    e = c.evidence
    out = [re.split(r"(?<=\.) (?=[A-Z])", one.sentence)[0] for one in found]
    out = [one.partition(": ")[0] if len(one) > LONGEST_CELL else one for one in out]
    words = [one.word for one in found]
    least, alike = c.smallest_bound, len(set(e.bounds.tolist())) == 1
    if words[0] == "met":
        out[0] = "every group is at or below its bound"
    if words[0] == "impossible" and least is not None:
        rise = f"a bound of {up(least)}" if alike else f"bounds higher by {up(least)}"
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
        high = fixed(worst.test_upper, digits_of(c.cells), ROUND_CEILING)
        out[2] = f"{shorten(worst.cell)} could be as high as {high}"
    return out


def _worst(c: Conclusions, split: Split) -> str:
    """Name the group that is furthest above its bound, or closest to it."""
    judged = [r for r in c.cells if split == "train" or r.test_count >= FEWEST]
    losses = [r.train_loss if split == "train" else r.test_loss or 0.0 for r in judged]
    excess = [a - (r.bound or 0.0) for a, r in zip(losses, judged, strict=True)]
    z, digits = excess.index(max(excess)), digits_of(c.cells)
    cell, over = judged[z], [tables.above(c, row, split) for row in judged]
    text = f"{shorten(cell.cell)} at {fixed(losses[z], digits)}"
    if cell.bound is None:
        return f"largest: {text}"
    text += f" of {fixed(cell.bound, digits)}"
    many = f"{sum(over)} of {len(c.cells)}" if any(over) else "closest"
    return f"{many}: {text}"


# All else that was measured


def details(console: Console, c: Conclusions) -> None:
    """Show notes on the data, all figures, what they mean, the verdicts in full."""
    e = c.evidence
    if e.data.notes:
        console.print(remarks(e.data.notes))
        console.print()
    cells = tables.table(c, tables.by_urgency(c.cells))
    found = (tables.tried_bounds(e), tables.path_table(c), cells)
    for rows in (*found, tables.rate_table(c), tables.measures(c)):
        if rows:
            print_whole(console, text_rows(rows, console.width))
            console.print()
    console.print(remarks(footnotes(c)))
    console.print()
    sentences = (f"{one.title}: {one.sentence}" for one in tables.verdicts(c))
    for text in filter(None, (c.binding, *sentences)):
        console.print(Text(visible(text)))
    console.print()


def text_rows(
    rows: Sequence[Mapping[str, Any]],
    width: int,
    most: int = MOST_CELLS,
    *,
    rule: bool = True,
) -> Table:
    """A row per mapping; the first ones of many."""
    first, *titles = dict.fromkeys(key for row in rows for key in row)
    heads = titles if not rule else [title.replace(" ", "\n") for title in titles]
    table = _table(width, first, *heads, rule=rule)
    for row in rows[:most]:
        figures = (_entry(title, row.get(title)) for title in titles)
        table.add_row(name(str(row[first]), LONGEST_CELL), *figures)
    return _ended(table, len(rows) - most)


def _entry(title: str, value: object) -> str:
    if isinstance(value, float) and title not in (*UPPER, *LOWER):
        return decimals(value)
    return f"{value:,}" if type(value) is int else figure(title, value)


def _ended(table: Table, more: int) -> Table:
    """Add how many rows are left out."""
    if more > 0:
        table.add_row(Text(f"… {more:,} more", style="dim"))
    return table


def footnotes(c: Conclusions) -> list[str]:
    """What the numbers stand for, and how they were reached."""
    e, columns = c.evidence, tables.columns(c, c.cells)
    notes = [tables.meanings(columns), *tables.risk_note(c), *e.notes]
    notes += ["synthetic data: no real person is described"] * bool(e.data.synthetic)
    notes += [tables.rates_in_words(c)] * bool(e.labels)
    if c.noticed and c.limits:
        notes.append(c.limits)
    if isinstance(e.training, Training):
        run, gap = e.training, c.gap
        notes.append(
            f"duality gap {'not available' if gap is None else f'{gap:.2g}'}, "
            f"{run.rounds:,} rounds, {run.queries['messages']:,} messages to every "
            f"silo, {run.seconds:.1f} s, seed {run.seed}"
        )
        notes += [run.chosen] if run.chosen else []
    return notes


# A certificate


def certificate(target: Console, certified: Certificate) -> None:
    """Show a certificate as it is printed, with lines that keep their indent."""
    for line in str(certified).splitlines():
        text, indent = line.lstrip(), len(line) - len(line.lstrip())
        target.print(Padding(text or " ", (0, 0, 0, indent), expand=False))


# Tables


def remarks(notes: Sequence[str]) -> Text:
    """Remarks, one a line, in words of the command line, that do not shout."""
    return Text("\n".join(visible(in_options(n)) for n in notes), style="dim")


def print_whole(console: Console, table: Table) -> None:
    """Print a table that never cuts a number.

    Where the terminal is too narrow, names take more lines, then all lines wrap.
    """
    names, needed = table.columns[0], width_of(console, table)
    if needed > console.width and names.max_width is not None:
        longest = max((cell_len(str(cell)) for cell in names.cells), default=0)
        used = min(names.max_width, longest)
        names.max_width = max(NARROWEST, used - (needed - console.width))
        needed = width_of(console, table)
    width, console.width = console.width, max(console.width, needed)
    console.print(table)
    console.width = width


def width_of(console: Console, table: Table) -> int:
    """Return how many columns a table needs where nothing wraps."""
    wide = console.options.update(max_width=10_000)
    return Measurement.get(console, wide, table).maximum


def plain_table(width: int, *, rule: bool = True) -> Table:
    """A table without a frame, with a rule under its head, dense where it is narrow."""
    right = (0 if width < ROOMY else 1) if rule else (1 if width < ROOMY else 3)
    kind = box.SIMPLE_HEAD if rule else None
    return Table(box=kind, padding=(0, right, 0, 0), pad_edge=False, show_edge=False)


def _table(width: int, first: str, *numbers: str, rule: bool = True) -> Table:
    table = plain_table(width, rule=rule)
    table.add_column(first, overflow="fold", max_width=LONGEST_NAME)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table
