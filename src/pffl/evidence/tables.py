"""Tables and remarks, the same wherever they are shown: written from `Conclusions`.

Terminal, page, card and notebook differ in how they draw; what they say is made here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, TypeAlias

from pffl.evidence.conclude import CellResult, Conclusions
from pffl.evidence.rates import Rate, ranking
from pffl.evidence.record import Choice, Evidence, known
from pffl.evidence.statements import TONES as TONES
from pffl.evidence.statements import Tone, Verdict
from pffl.text import decimals, down, up, visible, words

Split: TypeAlias = Literal["train", "test"]

COLOURS: dict[Tone, str] = {
    "good": "#008a5e",
    "caution": "#b06f00",
    "bad": "#d4401c",
    "plain": "inherit",
}
ABOVE = "▲"  # next to a figure that is above its bound
NOTHING = "–"
HERE = "◀"  # next to the model that is shipped
PASSED, FAILED, UNTRIED = "certified", "not certified", "not tested"


# Verdicts


def verdicts(c: Conclusions) -> tuple[Verdict, ...]:
    """Return the three verdicts, as they are shown, and a warning where one is due."""
    found = tuple(c.verdicts.values())
    if c.warning is not None:
        found += (Verdict("Warning", "no better than a guess", c.warning),)
    return found


def as_html(found: Iterable[Verdict]) -> str:
    """Return verdicts as HTML for a notebook, light or dark, every text escaped."""
    return "".join(
        f"<p>{escape(v.title)}: "
        f'<strong style="color:{COLOURS[v.tone]}">{v.sign} {escape(v.word)}</strong>'
        f"<br>{escape(visible(v.sentence))}</p>"
        for v in found
    )


def _sure(e: Evidence) -> str:
    return f"{100 * e.terms.confidence:.4g} %"


def splits(e: Evidence) -> tuple[str, str]:
    """Return what the rows given are called, and those that stand for new people."""
    held, path = known(e.heldout), known(e.path)
    chosen = held is not None and path is not None and path.split in held.splits
    apart = "calibration" if chosen else "test"
    return ("train", apart) if e.trained else ("audited", "audited")


# Losses of cells


@dataclass(frozen=True)
class Shown:
    """An entry of a table; `tone` is that of what lies above its bound."""

    text: str
    tone: Tone = "plain"

    @property
    def marked(self) -> bool:
        """Whether it is above its bound."""
        return self.tone != "plain"

    def __str__(self) -> str:
        """Return the figure, with a sign where it is above its bound."""
        return f"{ABOVE}{self.text}" if self.marked else self.text


@dataclass(frozen=True)
class TableColumn:
    """A column of a table, and what it means."""

    title: str
    meaning: str
    figures: tuple[Shown, ...]


def columns(c: Conclusions, cells: Sequence[CellResult]) -> list[TableColumn]:
    """Return the table of some cells, but for their names; no column is empty."""
    e, sure, noisy = c.evidence, _sure(c.evidence), c.noise is not None
    rows = "training rows" if e.trained else "rows at hand"
    compared = any(cell.before_train_loss is not None for cell in cells)
    what = c.measure
    loss = f"{what}, {rows}" + noisy * (
        f", in brackets as far as noise lets them be known, all together, {sure} sure"
    )
    free = f"{what} of the same model without bounds, {rows}"
    apart = "all at once" if c.by_path else "each group by itself"
    most = f"{what} of new people, {apart}, with {sure} confidence"

    def column(title: str, meaning: str, figures: Iterable[Shown]) -> TableColumn:
        return TableColumn(title, meaning, tuple(figures))

    def plain(name: str) -> Iterable[Shown]:
        return (Shown(_number(getattr(cell, name))) for cell in cells)

    counts = (Shown(f"{cell.count:,}") for cell in cells)
    found = [
        column("rows", f"{rows} of the group", counts),
        column("unconstrained", free, plain("before_train_loss")),
        column(
            "constrained" if compared else "rate" if e.terms.on_rates else "loss",
            loss,
            _against(c, cells, "train"),
        ),
        column("bound", "what was asked for", plain("bound")),
    ]
    if e.trained:  # of a model from elsewhere all rows are test rows
        held = f"{what} of the test rows"
        found.append(column("test", held, _against(c, cells, "test")))
    found.append(column("certified at most", most, map(_promised, cells)))
    return [one for one in found if any(f.text != NOTHING for f in one.figures)]


def meanings(found: Iterable[TableColumn]) -> str:
    """Say what the columns of a table are, and its sign, where there is one."""
    found, obvious = list(found), ("rows", "bound")
    told = [f"{c.title}: {c.meaning}" for c in found if c.title not in obvious]
    if any(figure.marked for column in found for figure in column.figures):
        noise = any("noise" in column.meaning for column in found)
        only = "; of losses only where noise cannot explain it" * noise
        told.append(f"{ABOVE} above its bound{only}")
    return "; ".join(told)


def table(c: Conclusions, cells: Sequence[CellResult]) -> list[dict[str, str]]:
    """Return the table of some cells as text, one mapping per row."""
    found = columns(c, cells)
    return [
        {"group": cell.cell, **{one.title: str(one.figures[z]) for one in found}}
        for z, cell in enumerate(cells)
    ]


def by_urgency(cells: Iterable[CellResult]) -> list[CellResult]:
    """Sort: the cell furthest above its bound first, or with the largest loss."""
    return sorted(
        cells, key=lambda c: -(c.train_loss if c.violation is None else c.violation)
    )


def _number(value: float | None) -> str:
    return NOTHING if value is None else decimals(value)


def above(c: Conclusions, cell: CellResult, split: Split) -> bool:
    """Whether a cell is above its bound; under noise: whatever noise did."""
    found = c.losses.get(split)
    if found is None or cell.bound is None:
        return False
    return bool(found.above[found.names.index(cell.cell)])


def ends_of(
    c: Conclusions, cell: CellResult, split: Split
) -> tuple[float, float] | None:
    """Return between what noise lets a loss be known; None without noise."""
    found = c.losses.get(split)
    if found is None or c.noise is None:
        return None
    z = found.names.index(cell.cell)
    return float(found.low[z]), float(found.high[z])


def _against(
    c: Conclusions, cells: Sequence[CellResult], split: Split
) -> Iterable[Shown]:
    """Write losses, under noise with their ends; those above bounds are marked."""
    for cell in cells:
        text = _number(cell.train_loss if split == "train" else cell.test_loss)
        ends = ends_of(c, cell, split)
        text = text if ends is None else f"{text} ({ends_in_words(*ends)})"
        yield Shown(text, "bad" if above(c, cell, split) else "plain")


def _promised(cell: CellResult) -> Shown:
    """Write an upper bound, rounded up; one above the cell's bound shows nothing."""
    high = cell.test_upper
    if high is None or high == cell.bound:
        return Shown(_number(high))
    over = cell.bound is not None and high > cell.bound
    return Shown(up(high), "caution" if over else "plain")


def ends_in_words(low: float, high: float) -> str:
    """Write between what noise lets a figure be known, rounded outwards."""
    return f"{down(low, digits=3)}–{up(high, digits=3)}"


# Rates of groups


def rate_table(c: Conclusions) -> list[dict[str, str]]:
    """Return how often the model is wrong about each group, with intervals, as text."""
    return [
        {
            "group": group.group,
            "people": f"{group.error.people:,}",
            "errors": _rate(group.error),
            "false positive": _rate(group.false_positive),
            "false negative": _rate(group.false_negative),
            "selected": _rate(group.selected),
        }
        for group in c.rates
    ]


def ranking_table(c: Conclusions) -> list[dict[str, str]]:
    """Return AUC and calibration of each group, as text."""
    titles = {"unconstrained_auc": "AUC, unconstrained", "auc": "AUC"}
    return [
        {
            "group": row["group"],
            **{title: _number(row[key]) for key, title in titles.items()},
            **{key: _share(row[key]) for key in ("predicted", "observed")},
        }
        for row in ranking(c.evidence)
    ]


def threshold(c: Conclusions) -> str:
    """Say above which probability people are selected, where it is not 0.5."""
    found = c.evidence.model.described.get("threshold")
    return "" if found is None else f", threshold {found:g}"


def rates_in_words(c: Conclusions) -> str:
    """Say what the table of rates is about."""
    e, found, rows = c.evidence, c.rates, "all rows used"
    if e.trained and found:
        rows = "training rows" if found[0].rows == "training" else "test rows"
    text = f"Error rates, {rows}{threshold(c)}"
    if len(e.labels) == 2:
        text += (
            f"; false positive: '{e.labels[1]}' predicted where '{e.labels[0]}' is "
            "true, false negative: the other way round"
        )
    if any(group.error.upper is not None for group in found):
        noise = "as far as noise lets it be known"
        who = "for new people" if c.noise is None else noise
        text += f"; in brackets {who}, each by itself, {_sure(e)} sure"
    return text


def _rate(rate: Rate | None) -> str:
    """Write a rate in percent, with its interval, which is rounded outwards."""
    if rate is None or rate.value is None:
        return NOTHING
    text = _share(rate.value)
    if rate.lower is None or rate.upper is None:
        return text
    return f"{text} ({math.floor(100 * rate.lower)}–{math.ceil(100 * rate.upper)})"


def overall_in_words(c: Conclusions) -> str | None:
    """Say how good the model is over all rows, with and without bounds.

    By test rows where there are any; None under noise.
    """
    split = "train" if c.test is None else "test"
    old, new = (c.before or {}).get(split), c.test or c.train
    what, now, free = "error rate", new.error, None if old is None else old.error
    if now is None:
        what, now, free = "risk", new.risk, None if old is None else old.risk
    if now is None or c.noise is not None:
        return None
    write = words if what == "risk" else _share
    rows = splits(c.evidence)[split == "test"].replace("train", "training")
    text = f"On the {new.rows:,} {rows} rows the {what} is {write(now)}"
    more = "" if free is None else f", and {write(free)} without bounds"
    return f"{text}{more}."


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


# How a bound was chosen, or a model of a path


def chosen_bound(choice: Choice, *, numeric: bool) -> str:
    """Say which bound was chosen, by what, and on which rows."""
    error = "a mean loss" if numeric else "an error"
    return (
        f"bound = {words(choice.bound, digits=5)} was chosen on {choice.aside:,} of "
        f"the {choice.rows:,} training rows, set aside while the others were trained "
        f"on: of all bounds with {error} of at most {words(choice.error_at_most)} "
        "there it has the smallest worst loss of a group; no test row was used"
    )


def path_models(c: Conclusions) -> list[dict[str, Any]]:
    """Return the models of a path: what each costs, and what came of it."""
    e, path, out = c.evidence, known(c.evidence.path), []
    for place, one in enumerate([] if path is None else path.candidates):
        cells, sums = c.losses_of(one.training), one.training
        wrong = 1.0 - sums.overall("correct") if e.labels else sums.overall("loss")
        state = UNTRIED
        if place < len(c.tested):
            state = PASSED if c.tested[place] else FAILED
        told = {"state": state, "error": wrong, "room": cells.names[cells.worst]}
        shipped = path is not None and place == path.chosen
        out.append({**told, "margin": one.margin, "shipped": shipped})
    return out


def path_table(c: Conclusions) -> list[dict[str, str]]:
    """Return the models of a path, as text; none where there is but one."""
    found = path_models(c)
    error = "error" if c.evidence.labels else "mean loss"
    return [
        {
            "model": f"{place}{f' {HERE}' * one['shipped']}",
            "margin": words(one["margin"], digits=3),
            f"training {error}": decimals(one["error"]),
            "least room": one["room"],
            "every bound": one["state"],
        }
        for place, one in enumerate(found if len(found) > 1 else [], start=1)
    ]
