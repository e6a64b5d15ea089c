"""Tables and remarks, alike wherever they are shown: written from `Conclusions`.

Terminal, page, card and notebook differ in how they draw; what they say is made here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, TypeAlias

from pffl.evidence.certificate import VERDICTS
from pffl.evidence.conclude import CellResult, Conclusions
from pffl.evidence.metrics import Metrics, Rate
from pffl.evidence.record import NOT_ASKED, Candidate, Choice, Evidence, Training, known
from pffl.text import decimals, down, up, visible, words

Tone: TypeAlias = Literal["good", "caution", "bad", "plain"]
Split: TypeAlias = Literal["train", "test"]

TONES: dict[str, Tone] = {
    "met": "good",
    "within": "good",
    "certified": "good",
    "holds": "good",
    "not decided": "caution",
    "not certified": "caution",
    "interrupted": "caution",
    "no better than a guess": "caution",
    "no bounds": "plain",
    "not measured": "plain",
}
SIGNS: dict[Tone, str] = {"good": "✓", "caution": "!", "bad": "✗", "plain": "–"}
COLOURS: dict[Tone, str] = {
    "good": "#008a5e",
    "caution": "#b06f00",
    "bad": "#d4401c",
    "plain": "inherit",
}
ABOVE = "▲"  # beside a figure that is above its bound
NOTHING = "–"
HERE = "◀"  # beside the model that is shipped, or the bound that was chosen
EQUAL = 1e-12  # errors this close are equal
OBVIOUS = ("rows", "bound")  # titles of columns
WITHOUT = ", no bounds"  # after the rows on which the model without bounds was measured
PASSED, FAILED, UNTRIED = "certified", "not certified", "not tested"


# Verdicts


@dataclass(frozen=True)
class VerdictLine:
    """A verdict as it is shown: whom it speaks of, in a word, in a sentence."""

    title: str
    word: str
    sentence: str

    @property
    def tone(self) -> Tone:
        """How good it is; a word that is not known to be good is bad."""
        return TONES.get(self.word, "bad")

    @property
    def sign(self) -> str:
        """What tells the tones apart without colour."""
        return SIGNS[self.tone]


def verdicts(c: Conclusions) -> tuple[VerdictLine, ...]:
    """Return the three verdicts, as they are shown, and a warning where one is due."""
    found = tuple(
        VerdictLine(VERDICTS[key][0], one.word, one.sentence)
        for key, one in c.verdicts.items()
    )
    if c.warning is not None:
        found += (VerdictLine("Warning", "no better than a guess", c.warning),)
    return found


def as_html(found: Iterable[VerdictLine]) -> str:
    """Return verdicts as HTML for a notebook, light or dark, every text escaped."""
    return "".join(
        f"<p>{escape(v.title)}: "
        f'<strong style="color:{COLOURS[v.tone]}">{v.sign} {escape(v.word)}</strong>'
        f"<br>{escape(visible(v.sentence))}</p>"
        for v in found
    )


def asked(e: Evidence) -> str:
    """Say what was asked for, in words."""
    many = f"{e.data.silos:,} silos" if e.data.silos > 1 else "one silo"
    what = f"One model for '{e.data.name}', from {many}"
    aim = ", with as little loss as it can" if e.trained and not e.minimax else ""
    if not e.trained:
        what = f"A model that was not trained here, measured on '{e.data.name}'"
    cells = f"{len(e.cells):,} {_kind_of(e)}"
    if e.minimax:
        return f"{what}, as good as it can be for the worst of {cells}."
    if not e.promise:
        return f"{what}{aim}; no bound was asked for."
    low, high = words(float(e.bounds.min())), words(float(e.bounds.max()))
    bound = low if low == high else f"{low} to {high}"
    every = cells if len(e.cells) == 1 else f"each of {cells}"
    sure = f"{100 * e.terms.confidence:.4g} %"
    more = (
        f", also for new people, with {sure} confidence" if e.path != NOT_ASKED else ""
    )
    return f"{what}{aim}, and a mean loss of at most {bound} in {every}{more}."


def _kind_of(e: Evidence) -> str:
    """Say what cells are: groups, groups with a label, or silos."""
    many = "s" * (len(e.cells) > 1)
    if any(cell.silo is not None for cell in e.cells):
        return f"silo{many}"
    every: set[str | None] = set(e.labels) or {None}
    if any({label for _, label in cell.of} != every for cell in e.cells):
        return f"group{many} of people with the same true label"
    return f"group{many}"


def splits(e: Evidence) -> tuple[str, str]:
    """Return what the rows at hand are called, and those that stand for new people."""
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
    e = c.evidence
    rows = "training rows" if e.trained else "rows at hand"
    sure, noisy = f"{100 * e.terms.confidence:.4g} %", e.noise is not None
    compared = any(cell.before_train_loss is not None for cell in cells)
    ends = (
        f", in brackets as far as noise lets them be known, all together, {sure} sure"
    )
    apart = "all at once" if c.asked and c.rise is None else "each group by itself"
    found = [
        TableColumn(
            "rows", f"{rows} of the group", tuple(Shown(f"{r.count:,}") for r in cells)
        ),
        TableColumn(
            "unconstrained",
            f"mean loss of the same model without bounds, {rows}",
            _plain(r.before_train_loss for r in cells),
        ),
        TableColumn(
            "constrained" if compared else "loss",
            f"mean loss, {rows}{ends * noisy}",
            _against(c, cells, "train"),
        ),
        TableColumn("bound", "what was asked for", _plain(r.bound for r in cells)),
    ]
    if e.trained:  # of a model from elsewhere all rows are held out
        held = "mean loss of the test rows"
        found.append(TableColumn("test", held, _against(c, cells, "test")))
    most = f"mean loss of new people, {apart}, with {sure} confidence"
    found.append(TableColumn("certified at most", most, tuple(map(_promised, cells))))
    if not noisy:
        guess = "loss of guessing the group's own rates (or mean) for everyone in it"
        # Of one label there is nothing to guess.
        figures = _plain(r.constant or None for r in cells)
        found.append(TableColumn("constant guess", guess, figures))
    alone = "the lowest loss that was found for this group, whatever the others'"
    found.append(TableColumn("alone", alone, _plain(r.alone for r in cells)))
    return [one for one in found if any(f.text != NOTHING for f in one.figures)]


def meanings(found: Iterable[TableColumn]) -> str:
    """Say what the columns of a table are, and its sign, where there is one."""
    found = list(found)
    told = [f"{c.title}: {c.meaning}" for c in found if c.title not in OBVIOUS]
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


def _plain(values: Iterable[float | None]) -> tuple[Shown, ...]:
    return tuple(Shown(_number(value)) for value in values)


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
    if found is None or c.evidence.noise is None:
        return None
    z = found.names.index(cell.cell)
    return float(found.low[z]), float(found.high[z])


def _against(
    c: Conclusions, cells: Sequence[CellResult], split: Split
) -> tuple[Shown, ...]:
    """Write losses, under noise with their ends; those above bounds are marked."""
    out = []
    for cell in cells:
        text = _number(cell.train_loss if split == "train" else cell.test_loss)
        ends = ends_of(c, cell, split)
        text = text if ends is None else f"{text} ({ends_in_words(*ends)})"
        out.append(Shown(text, "bad" if above(c, cell, split) else "plain"))
    return tuple(out)


def _promised(cell: CellResult) -> Shown:
    """Write an upper bound, rounded up; one above the cell's bound shows nothing."""
    if cell.test_upper is None:
        return Shown(NOTHING)
    if cell.test_upper == cell.bound:
        return Shown(decimals(cell.test_upper))
    over = cell.bound is not None and cell.test_upper > cell.bound
    return Shown(up(cell.test_upper), "caution" if over else "plain")


def ends_in_words(low: float, high: float) -> str:
    """Write between what noise lets a figure be known, rounded outwards."""
    return f"{down(low, digits=3)}–{up(high, digits=3)}"


def percent_ends(low: float, high: float) -> str:
    """Write between what noise lets a share be known, rounded outwards."""
    return f"{math.floor(100 * low)}–{math.ceil(100 * high)} %"


def loss_in_words(c: Conclusions) -> str:
    """Say what a loss means to a person."""
    e = c.evidence
    worst = by_urgency(c.cells)[:1] if e.noise is None else []  # it would choose it
    if not e.labels:
        text = (
            "The loss is the squared error (less for large errors, with Huber's), so "
            "its root is a typical error in the target's unit"
        )
        if worst and worst[0].train_loss >= 0.0:
            root = words(math.sqrt(worst[0].train_loss))
            text += f": {root} for '{worst[0].cell}'"
            if worst[0].constant:
                guess = words(math.sqrt(worst[0].constant))
                text += f", where guessing its own mean for everyone has {guess}"
        return text
    many = len(e.labels)
    coin = "a coin" if many == 2 else f"a fair draw among {many} labels"
    text = f"A loss of {decimals(math.log(many))} is {coin}, 0 is sure and right"
    if worst and math.isfinite(worst[0].train_loss):
        loss, cell = worst[0].train_loss, worst[0].cell
        text += (
            f"; {decimals(loss)} of '{cell}' means that what is true was given a "
            f"probability of {math.exp(-loss):.2f} (geometric mean)"
        )
        if worst[0].constant:
            text += (
                f", and the best constant guess for it has {words(worst[0].constant)}"
            )
    return text


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


def rates_in_words(c: Conclusions) -> str:
    """Say what the table of rates is about."""
    e, found = c.evidence, c.rates
    rows = "all rows used"
    if e.trained and found:
        rows = "training rows" if found[0].rows == "training" else "test rows"
    text = f"Error rates, {rows}"
    if len(e.labels) == 2:
        text += (
            f"; false positive: '{e.labels[1]}' predicted where '{e.labels[0]}' is "
            "true, false negative: the other way round"
        )
    if any(group.error.upper is not None for group in found):
        sure = f"{100 * e.terms.confidence:.4g} %"
        noisy = e.noise is not None
        who = "as far as noise lets it be known" if noisy else "for new people"
        text += f"; in brackets {who}, each by itself, {sure} sure"
    return text


def _rate(rate: Rate | None) -> str:
    """Write a rate in percent, with its interval, which is rounded outwards."""
    if rate is None or rate.value is None:
        return NOTHING
    text = f"{100 * rate.value:.1f} %"
    if rate.lower is None or rate.upper is None:
        return text
    low, high = math.floor(100 * rate.lower), math.ceil(100 * rate.upper)
    return f"{text} ({low}–{high})"


# All rows together


def measures(c: Conclusions) -> list[dict[str, str]]:
    """Return risk, error and gaps over all rows, by split, as text."""
    e, old = c.evidence, c.before or {}
    names: dict[Split, str] = {"train": "training", "test": "held-out"}
    if not e.trained:  # no row was trained on here
        names = {"train": "used"}
    out = []
    for split, name in names.items():
        found = c.train if split == "train" else c.test
        if found is not None and e.noise is not None:
            out.append(_noisy_measures(c, split, name, found.rows))
        elif found is not None:
            both = ((f"{name}{WITHOUT}", old.get(split)), (name, found))
            out += [_measures(name, one) for name, one in both if one is not None]
    return out


def _measures(name: str, one: Metrics) -> dict[str, str]:
    return {
        "measured on": name,
        "rows": f"{one.rows:,}",
        "risk": _number(one.risk),
        "errors": NOTHING if one.error is None else _share(one.error),
        "worst group": _number(one.worst_cell_loss),
        "DP gap": _number(one.dp_gap),
        "EO gap": _number(one.eo_gap),
    }


def _noisy_measures(
    c: Conclusions, split: Split, name: str, rows: int
) -> dict[str, str]:
    """Return what noise lets be known of all rows, each figure by its ends."""
    cells, risk = c.losses[split], c.between(split, "loss")
    wrong = c.between(split, "wrong") if c.evidence.labels else None
    return {
        "measured on": name,
        "rows": f"about {rows:,}",
        "risk": NOTHING if risk is None else ends_in_words(*risk),
        "errors": NOTHING if wrong is None else percent_ends(*wrong),
        "worst group": ends_in_words(float(cells.low.max()), float(cells.high.max())),
    }


def risk_note(c: Conclusions) -> list[str]:
    """Say why the risk is above every cell's loss, where it is."""
    for found in (c.train, c.test):
        if found is None or found.risk is None:
            continue
        # Groups are everybody; cells may leave out some, whose loss is in the risk.
        cell, group = found.worst_cell_loss, found.worst_group_loss
        alike = c.evidence.terms.weighting == "silos"
        if alike and group is not None and found.risk > max(group, cell or 0.0):
            return [
                "The risk is above the loss of every group: in it each silo weighs the "
                "same, however few rows it has"
            ]
    return []


def cost_in_words(c: Conclusions) -> str | None:
    """Say what the bounds cost in all: wrong predictions without and with them.

    By held-out rows where there are any; None where nothing was compared.
    """
    before = c.before or {}
    split: Split = "test" if "test" in before else "train"
    old, new = before.get(split), c.test if split == "test" else c.train
    if old is None or new is None or not c.evidence.promise:
        return None
    where = f"the {new.rows:,} {'test' if split == 'test' else 'training'} rows"
    if old.error is None or new.error is None:
        if old.risk is None or new.risk is None:
            return None
        now, then = words(new.risk), words(old.risk)
        return f"On {where} the risk is {now}, and {then} without bounds."
    now, then = _share(new.error), _share(old.error)
    text = f"On {where} the error rate is {now}, and {then} without bounds"
    more = round((new.error - old.error) * new.rows)
    if not c.evidence.weighted:
        side = "more" if more > 0 else "fewer"
        text += f": {abs(more):,} {side} errors" if more else ": as many errors"
    return f"{text}."


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


# How a bound was chosen, or a model of a path


def chosen_bound(choice: Choice, *, numeric: bool) -> str:
    """Say which bound was chosen, by what, and on which rows."""
    free, *others = choice.trials
    taken = next(trial for trial in others if trial.bound == choice.bound)
    error = "a mean loss" if numeric else "an error"
    limit = f"{error} of at most {words(choice.error_at_most)}"
    if not choice.declared:
        more = "1 % more than" if numeric else "a point above"
        limit += f" ({more} the {words(free.error)} without it)"
    within = sum(t.error <= choice.error_at_most + EQUAL for t in others)
    return (
        f"bound = {words(choice.bound, digits=5)} was chosen on {choice.aside:,} of "
        f"the {choice.rows:,} training rows, set aside while the others were trained "
        f"on: {within:,} of {len(others):,} bounds have {limit} there, and this one "
        f"has the smallest worst loss of them, {words(taken.worst)} of "
        f"'{taken.cell}' ({words(free.worst)} of '{free.cell}' without it); no "
        "test row was used"
    )


def tried_bounds(e: Evidence) -> list[dict[str, str]]:
    """Return what every bound that was tried did on the rows set aside."""
    choice = e.training.choice if isinstance(e.training, Training) else None
    if choice is None:
        return []
    error, out = "error" if e.labels else "mean loss", []
    for trial in choice.trials:
        bound = "none" if trial.bound is None else words(trial.bound, digits=5)
        here = f" {HERE}" * (trial.bound == choice.bound)
        out.append(
            {
                "bound tried": f"{bound}{here}",
                f"{error} aside": decimals(trial.error),
                "worst loss aside": decimals(trial.worst),
                "of": trial.cell,
            }
        )
    return out


def path_models(c: Conclusions) -> list[dict[str, Any]]:
    """Return the models of a path: what each costs, what came of it, a sentence."""
    e, path = c.evidence, known(c.evidence.path)
    if path is None:
        return []
    many, out = len(path.candidates), []
    error = "error rate" if e.labels else "mean loss"
    rows = f"{path.shipped.calibration.rows:,} calibration rows"
    for place, one in enumerate(path.candidates):
        cells, wrong = c.losses_of(one.training), error_of(e, one)
        state, came = UNTRIED, "It was not tested: one before it could not be shown."
        if place < len(c.tested) and c.tested[place]:
            state, came = PASSED, f"On {rows} every bound was shown."
        elif place < len(c.tested):
            state = FAILED
            came = f"On {rows} not every bound could be shown, and here the test ends."
        ends = "safest" if place == 0 else "least constrained" * (place == many - 1)
        text = f"Model {place + 1} of {many}{f', the {ends}' if ends else ''}: a "
        text += f"{error} of {decimals(wrong)} on training rows, where "
        text += f"{c.standing_of(cells, cells.worst)}. {came}"
        text += " This is the model that is shipped." * (place == path.chosen)
        out.append(
            {
                "state": state,
                "error": wrong,
                "room": cells.names[cells.worst],
                "margin": one.margin,
                "shipped": place == path.chosen,
                "text": text,
            }
        )
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


def error_of(e: Evidence, one: Candidate) -> float:
    """Return the share of wrong predictions on training rows; of numbers the loss."""
    sums = one.training.atoms
    total = sum(sums["weight"])
    if e.labels:
        return float(1.0 - sum(sums["correct"]) / total)
    return float(sum(sums["loss"]) / total)
