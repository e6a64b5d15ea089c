"""The first screen: three verdicts and a table of cells, alike wherever they are shown.

Terminal, page and notebook differ in how they draw; what they say is made here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, TypeAlias

from pffl.evidence import promise, verdict
from pffl.evidence.advice import no_better
from pffl.evidence.certificate import VERDICTS
from pffl.evidence.metrics import Rate, rates
from pffl.evidence.noise import Noise, between, ends
from pffl.evidence.record import Evidence, known
from pffl.evidence.training import losses
from pffl.evidence.verdict import CellResult
from pffl.text import decimals, down, up, visible, words

Tone: TypeAlias = Literal["good", "caution", "bad", "plain"]

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
Split: TypeAlias = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")
ABOVE = "▲"  # beside a figure that is above its bound
NOTHING = "–"
OBVIOUS = ("rows", "bound")  # titles of columns
WITHOUT = ", no bounds"  # after the rows on which the model without bounds was measured


@dataclass(frozen=True)
class Verdict:
    """One of the three: whom it speaks of, in a word, in a sentence."""

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
    more = f", also for people not seen, {sure} sure" if promise.asked(e) else ""
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


def verdicts(e: Evidence) -> tuple[Verdict, ...]:
    """Return the three verdicts, as they are shown, and a warning where one is due."""
    found = tuple(
        Verdict(VERDICTS[key][0], one["verdict"], one["sentence"])
        for key, one in verdict.verdicts(e).items()
    )
    warning = no_better(e)
    if warning is not None:
        found += (Verdict("Warning", "no better than a guess", warning),)
    return found


def splits(e: Evidence) -> tuple[str, str]:
    """Return what the rows at hand are called, and those that stand for new people."""
    held, path = known(e.heldout), known(e.path)
    chosen = held is not None and path is not None and path.split in held.splits
    apart = "calibration" if chosen else "test"
    return ("train", apart) if e.trained else ("audited", "audited")


def as_html(found: Iterable[Verdict]) -> str:
    """Return verdicts as HTML for a notebook, light or dark, every text escaped."""
    return "".join(
        f"<p>{escape(v.title)}: "
        f'<strong style="color:{COLOURS[v.tone]}">{v.sign} {escape(v.word)}</strong>'
        f"<br>{escape(visible(v.sentence))}</p>"
        for v in found
    )


@dataclass(frozen=True)
class Figure:
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
class Column:
    """A column of a table, and what it means."""

    title: str
    meaning: str
    figures: tuple[Figure, ...]


def columns(e: Evidence, cells: Sequence[CellResult]) -> list[Column]:
    """Return the table of some cells, but for their names; no column is empty."""
    rows = "training rows" if e.trained else "rows at hand"
    sure = f"{100 * e.terms.confidence:.4g} %"
    compared = any(cell.before_train_loss is not None for cell in cells)
    found = [
        Column(
            "rows", f"{rows} of the cell", tuple(Figure(f"{c.count:,}") for c in cells)
        ),
        Column(
            "before",
            f"mean loss of the same model without bounds, {rows}",
            _plain([c.before_train_loss for c in cells]),
        ),
        Column(
            "after" if compared else "loss",
            f"mean loss, {rows}{_noisy(e, sure)}",
            _against(e, cells, "train"),
        ),
        Column("bound", "what was asked for", _plain([c.bound for c in cells])),
    ]
    if e.trained:  # of a model from elsewhere all rows are held out
        found.append(
            Column(
                "held-out",
                "mean loss of the held-out rows",
                _against(e, cells, "test"),
            )
        )
    shown = promise.asked(e) and promise.rise(e) is None
    apart = "all cells at once" if shown else "each cell by itself"
    promised = Column(
        "promised at most",
        f"mean loss of people not seen, {apart}, {sure} sure",
        tuple(_promised(c) for c in cells),
    )
    guessed = Column(
        "constant guess",
        "loss of guessing the cell's own rates (or mean) for everyone in it",
        _plain([c.constant or None for c in cells]),  # of one label: nothing to guess
    )
    alone = Column(
        "alone",
        "the lowest loss that was found for this cell, whatever the others'",
        _plain([c.alone for c in cells]),
    )
    found += [promised, *([] if isinstance(e.privacy, Noise) else [guessed]), alone]
    return [c for c in found if any(figure.text != NOTHING for figure in c.figures)]


def loss_in_words(e: Evidence) -> str:
    """Say what a loss means to a person."""
    worst = by_urgency(verdict.cell_results(e))[:1]
    if isinstance(e.privacy, Noise):
        worst = []  # noise would choose it
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


def risk_note(e: Evidence) -> list[str]:
    """Say why the risk is above every cell's loss, where it is."""
    for split in SPLITS:
        found = verdict.split_metrics(e, split)
        if found is None or found.risk is None or e.terms.weighting != "silos":
            continue
        # Groups are everybody; cells may leave out some, whose loss is in the risk.
        cell, group = found.worst_cell_loss, found.worst_group_loss
        if group is not None and found.risk > max(group, cell or 0.0):
            return [
                "The risk is above the loss of every cell: in it each silo weighs the "
                "same, however few rows it has"
            ]
    return []


def rate_table(e: Evidence) -> list[dict[str, str]]:
    """Return how often the model is wrong about each group, with intervals, as text."""
    return [
        {
            "group": group.group,
            "people": f"{group.error.people:,}",
            "wrong": _rate(group.error),
            "false positive": _rate(group.false_positive),
            "false negative": _rate(group.false_negative),
            "selected": _rate(group.selected),
        }
        for group in rates(e)
    ]


def measures(e: Evidence) -> list[dict[str, str]]:
    """Return risk, error and gaps over all rows, by split, as text."""
    names = {"train": "training", "test": "held-out"}
    if not e.trained:  # no row was trained on here
        names = {"train": "used"}
    found = {
        split: verdict.split_metrics(e, split) for split in SPLITS if split in names
    }
    old = verdict.before_metrics(e) or {}
    pairs = [
        (f"{names[split]}{more}", one)
        for split in found
        for more, one in ((WITHOUT, old.get(split)), ("", found[split]))
    ]
    if isinstance(e.privacy, Noise):
        return [
            _noisy_measures(e, e.privacy, split, names[split], one.rows)
            for split, one in found.items()
            if one is not None
        ]
    return [
        {
            "measured on": name,
            "rows": f"{one.rows:,}",
            "risk": _number(one.risk),
            "wrong": NOTHING if one.error is None else _share(one.error),
            "worst cell": _number(one.worst_cell_loss),
            "DP gap": _number(one.dp_gap),
            "EO gap": _number(one.eo_gap),
        }
        for name, one in pairs
        if one is not None
    ]


def _noisy_measures(
    e: Evidence, noise: Noise, split: str, name: str, rows: int
) -> dict[str, str]:
    """Return what noise lets be known of all rows, each figure by its ends."""
    risk = between(e, noise, split, "loss")
    wrong = between(e, noise, split, "wrong") if e.labels else None
    figures = noise.seen if split == "train" else noise.heldout
    low, high = ends(e, noise, figures)
    return {
        "measured on": name,
        "rows": f"about {rows:,}",
        "risk": NOTHING if risk is None else ends_in_words(*risk),
        "wrong": NOTHING if wrong is None else percent_ends(*wrong),
        "worst cell": ends_in_words(float(low.max()), float(high.max())),
    }


def percent_ends(low: float, high: float) -> str:
    """Write between what noise lets a share be known, rounded outwards."""
    return f"{math.floor(100 * low)}–{math.ceil(100 * high)} %"


def cost_in_words(e: Evidence) -> str | None:
    """Say what the bounds cost in all: wrong predictions without and with them.

    By held-out rows where there are any; None where nothing was compared.
    """
    before = verdict.before_metrics(e) or {}
    split: Literal["train", "test"] = "test" if "test" in before else "train"
    old, new = before.get(split), verdict.split_metrics(e, split)
    if old is None or new is None or not e.promise:
        return None
    where = f"the {new.rows:,} {'held-out' if split == 'test' else 'training'} rows"
    if old.error is None or new.error is None:
        if old.risk is None or new.risk is None:
            return None
        now, then = words(new.risk), words(old.risk)
        return f"On {where} the risk is {now}, and {then} without bounds."
    now, then = _share(new.error), _share(old.error)
    text = f"On {where} {now} of predictions are wrong, and {then} without bounds"
    more = round((new.error - old.error) * new.rows)
    if not e.weighted:
        more_or_fewer = "more" if more > 0 else "fewer"
        text += f": {abs(more):,} {more_or_fewer}" if more else ": as many"
    return f"{text}."


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def rates_in_words(e: Evidence) -> str:
    """Say what the table of rates is about."""
    found = rates(e)
    rows = f"{found[0].rows} rows" if e.trained and found else "all rows used"
    text = f"Share of wrong predictions, {rows}"
    noise = isinstance(e.privacy, Noise)
    if len(e.labels) == 2:
        text += (
            f"; false positive: '{e.labels[1]}' predicted where '{e.labels[0]}' is "
            "true, false negative: the other way round"
        )
    if any(group.error.upper is not None for group in found):
        sure = f"{100 * e.terms.confidence:.4g} %"
        who = "as far as noise lets it be known" if noise else "for people not seen"
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


def meanings(found: Iterable[Column]) -> str:
    """Say what the columns of a table are, and its sign, where there is one."""
    found = list(found)
    told = [f"{c.title}: {c.meaning}" for c in found if c.title not in OBVIOUS]
    if any(figure.marked for column in found for figure in column.figures):
        noise = any("noise" in column.meaning for column in found)
        only = "; of losses only where noise cannot explain it" * noise
        told.append(f"{ABOVE} above its bound{only}")
    return "; ".join(told)


def table(e: Evidence, cells: Sequence[CellResult]) -> list[dict[str, str]]:
    """Return the table of some cells as text, one mapping per row."""
    found = columns(e, cells)
    return [
        {"cell": cell.cell, **{c.title: str(c.figures[z]) for c in found}}
        for z, cell in enumerate(cells)
    ]


def by_urgency(cells: Iterable[CellResult]) -> list[CellResult]:
    """Sort: the cell furthest above its bound first, or with the largest loss."""
    return sorted(
        cells, key=lambda c: -(c.train_loss if c.violation is None else c.violation)
    )


def _number(value: float | None) -> str:
    return NOTHING if value is None else decimals(value)


def _plain(values: Sequence[float | None]) -> tuple[Figure, ...]:
    return tuple(Figure(_number(value)) for value in values)


def _tolerances(e: Evidence) -> dict[str, float]:
    """Return how little above its bound each cell's training loss counts as met."""
    return dict(zip(e.names, losses(e, e.seen).tolerance, strict=True))


def exceeding(e: Evidence, cells: Sequence[CellResult], split: Split) -> list[bool]:
    """Say which cells are above their bounds, by more than is tolerated in training.

    Under noise those whose lower end is above: of others noise may be the reason.
    """
    ends_of = blurred(e, split)
    allowed = _tolerances(e) if split == "train" else {}
    out = []
    for cell in cells:
        loss = cell.train_loss if split == "train" else cell.test_loss
        over = False
        if loss is not None and cell.bound is not None:
            over = bool(loss - cell.bound > allowed.get(cell.cell, 0.0))
            over = over and ends_of.get(cell.cell, (math.inf,))[0] > cell.bound
        out.append(over)
    return out


def _against(
    e: Evidence, cells: Sequence[CellResult], split: Split
) -> tuple[Figure, ...]:
    """Write losses, under noise with their ends; those above bounds are marked."""
    losses = [c.train_loss if split == "train" else c.test_loss for c in cells]
    ends_of, out = blurred(e, split), []
    over = exceeding(e, cells, split)
    for cell, one, above in zip(cells, _plain(losses), over, strict=True):
        ends = ends_of.get(cell.cell)
        text = one.text if ends is None else f"{one.text} ({ends_in_words(*ends)})"
        out.append(Figure(text, "bad" if above else one.tone))
    return tuple(out)


def blurred(e: Evidence, split: Split) -> dict[str, tuple[float, float]]:
    """Return between what losses of a split are under noise; nothing without it."""
    if not isinstance(e.privacy, Noise):
        return {}
    figures = e.privacy.seen if split == "train" else e.privacy.heldout
    if figures is None:
        return {}
    low, high = ends(e, e.privacy, figures)
    return dict(
        zip(e.names, zip(low.tolist(), high.tolist(), strict=True), strict=True)
    )


def ends_in_words(low: float, high: float) -> str:
    """Write between what noise lets a figure be known, rounded outwards."""
    return f"{down(low, digits=3)}–{up(high, digits=3)}"


def _noisy(e: Evidence, sure: str) -> str:
    told = ", in brackets as far as noise lets them be known, all together"
    return f"{told}, {sure} sure" if isinstance(e.privacy, Noise) else ""


def _promised(cell: CellResult) -> Figure:
    """Write an upper bound, rounded up; one above the cell's bound shows nothing."""
    if cell.test_upper is None:
        return Figure(NOTHING)
    if cell.test_upper == cell.bound:
        return Figure(decimals(cell.test_upper))
    over = cell.bound is not None and cell.test_upper > cell.bound
    return Figure(up(cell.test_upper), "caution" if over else "plain")
