"""A run or an audit, as the page shows it: all of it follows from its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from pffl import figures
from pffl.evidence import sites, tables
from pffl.evidence.certificate import Certificate, grounds_of, mark, numbered
from pffl.evidence.conclude import Conclusions
from pffl.evidence.record import Evidence, Missing
from pffl.evidence.tables import Shown, TableColumn, VerdictLine
from pffl.figures import Plot, Rows
from pffl.figures.tables import urgency
from pffl.models.predictor import Predictor
from pffl.reports import card
from pffl.reports.explorer import Explorer, path_of
from pffl.reports.grid import GLOSSARY, Grid, margin
from pffl.reports.inputs import InputsThatMatter
from pffl.reports.privacy import PrivacyView
from pffl.text import visible

NOT_STATED = "not stated"
LONGEST = 200  # of a refusal
FIRST = 15  # cells of the first picture; the table below has all

History: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class RunView:
    """A run, laid out in the order in which a reader asks."""

    name: str
    conclusions: Conclusions
    history: History = ()
    spec: str = ""
    predictor: Predictor | None = None
    result: Mapping[str, Any] = field(init=False)
    certified: Certificate | None = field(init=False)

    def __post_init__(self) -> None:
        c, put = self.conclusions, object.__setattr__
        put(self, "name", self.name or c.evidence.data.name)
        put(self, "result", c.result())
        # Of an interrupted run nothing is certified.
        done = c.evidence.stopped != "interrupted"
        put(self, "certified", c.certificate if done else None)

    @property
    def evidence(self) -> Evidence:
        """What was declared and measured."""
        return self.conclusions.evidence

    @cached_property
    def sections(self) -> list[str]:
        """What the page of it has, in the order in which a reader asks."""
        r = self.result
        there = {
            "cells": True,
            "wrong": self.rates.rows,
            "cost": True,
            "binds": r["binding"],
            "bounds": self.tried.rows or r["witness"],
            "sites": self.site_text,
            "privacy": self.privacy,
            "certificate": self.certified,
            "data": r["data"]["card"],
            "inputs": self.matter,
            "rounds": self.rounds,
            "from": True,
        }
        return [name for name, has in there.items() if has]

    # The first screen

    @property
    def kind(self) -> str:
        """What it is, in a word or two."""
        if not self.evidence.trained:
            return "audit"
        return "run" if isinstance(self.evidence.sites, Missing) else "deployed run"

    @property
    def asked(self) -> str:
        """What was asked for."""
        return tables.asked(self.evidence)

    @property
    def about(self) -> dict[str, str]:
        """Who answers for it, what for, and since when."""
        return {k: v or NOT_STATED for k, v in vars(self.evidence.about).items()}

    @property
    def unstated(self) -> list[str]:
        """What nobody stated."""
        return card.missing_of(self.evidence)

    @property
    def verdicts(self) -> Sequence[VerdictLine]:
        """The three verdicts."""
        return tables.verdicts(self.conclusions)

    @property
    def drawn(self) -> list[dict[str, Any]]:
        """The cells as they are drawn: under noise with the ends of training losses."""
        noise = (self.result.get("privacy") or {}).get("cells", [])
        ends = {
            one["cell"]: {"train_lower": one["lower"], "train_upper": one["upper"]}
            for one in noise
        }
        return [{**cell, **ends.get(cell["cell"], {})} for cell in self.result["cells"]]

    @property
    def cell_chart(self) -> Rows:
        """The one picture: losses, bounds, held-out rows, promises."""
        cells, held = self.drawn, f"{tables.splits(self.evidence)[1]} rows"
        if self.evidence.trained:
            return figures.group_losses(cells, most=FIRST, held=held)
        # No row was trained on here: all of them are held out.
        once = [{**cell, "test_loss": None} for cell in cells]
        return figures.group_losses(once, rows="rows at hand", most=FIRST)

    @property
    def loss_in_words(self) -> str:
        """What the number means for a person."""
        return tables.loss_in_words(self.conclusions)

    @property
    def columns(self) -> list[TableColumn]:
        """The columns of the table of cells."""
        return tables.columns(self.conclusions, self.conclusions.cells)

    @property
    def meanings(self) -> str:
        """What the columns of the table of cells mean."""
        return tables.meanings(self.columns)

    @property
    def cells(self) -> Grid:
        """The table of cells, with multipliers where there are bounds.

        In the order of the picture.
        """
        rows, columns = self.result["cells"], self.columns
        heads = [("cell", GLOSSARY["cell"])]
        heads += [(column.title, column.meaning) for column in columns]
        table = [
            [Shown(row["cell"]), *(column.figures[z] for column in columns)]
            for z, row in enumerate(rows)
        ]
        if self.evidence.promise and self.evidence.trained:
            heads.append(("multiplier", GLOSSARY["multiplier"]))
            for row, entries in zip(rows, table, strict=True):
                entries.append(Shown(margin(row["multiplier"])))
        order = sorted(range(len(rows)), key=lambda z: urgency(rows[z]))
        return Grid("Losses per cell", heads, [table[z] for z in order])

    # Below it

    @property
    def rates(self) -> Grid:
        """How often it is wrong about each group."""
        rows = tables.rate_table(self.conclusions)
        return Grid.of("Errors per group", rows, "stack list")

    @property
    def rates_in_words(self) -> str:
        """What the rates are about."""
        return tables.rates_in_words(self.conclusions)

    @property
    def rate_chart(self) -> Rows:
        """The same as a picture, with intervals."""
        return figures.group_rates(self.result["groups"])

    @property
    def cost_in_words(self) -> str | None:
        """What the bounds cost in all."""
        return tables.cost_in_words(self.conclusions)

    @property
    def measures(self) -> Grid:
        """Risk, error and gaps over all rows, without and with bounds."""
        return Grid.of("All rows together", tables.measures(self.conclusions))

    @property
    def risk_note(self) -> Sequence[str]:
        """Why the risk is above every loss, where it is."""
        return tables.risk_note(self.conclusions)

    @property
    def witness(self) -> Grid:
        """The weights that prove bounds impossible."""
        weights = self.result["witness"] or {}
        rows = [{"cell": cell, "weight": margin(w)} for cell, w in weights.items()]
        return Grid.of("Witness", rows, "scroll")

    @property
    def kept_within(self) -> str | None:
        """Between which limits predictions are kept."""
        return self.conclusions.limits

    @property
    def tried(self) -> Grid:
        """The bounds that were tried, where one was chosen."""
        return Grid.of("Bounds that were tried", tables.tried_bounds(self.evidence))

    @cached_property
    def path(self) -> Explorer | None:
        """The models among which one was chosen for a promise."""
        return path_of(self.conclusions)

    # Sites

    @property
    def site_chart(self) -> Rows | None:
        """How far sites differ, and what one could have hidden."""
        rows = sites.rows_of(self.evidence)
        return figures.site_losses(rows) if rows else None

    @property
    def site_text(self) -> str | None:
        """What is said of sites; None where silos are in one process."""
        found = self.result["sites"]
        return None if found is None else found["sentence"]

    @property
    def site_rows(self) -> Grid:
        """Per cell, what one site could have hidden."""
        return Grid.of("Cells between sites", sites.rows_of(self.evidence))

    @cached_property
    def privacy(self) -> PrivacyView | None:
        """What noise was added, and what it spent; None where there was none."""
        found = self.result.get("privacy")
        return None if found is None else PrivacyView.of(found)

    # Grounds

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The certificate, each statement with title, word and table."""
        return None if self.certified is None else _laid_out(self.certified)

    @property
    def seal(self) -> str:
        """The hash of certificate.json."""
        return "" if self.certified is None else card.seal(self.conclusions)

    @property
    def data_rows(self) -> Grid:
        """Training rows per silo and group, longer than it is wide."""
        card = self.result["data"]["card"]
        floor = Shown(f"< {card['floor']}")
        counts = [
            [floor if n is None else Shown(f"{n:,}") for n in row]
            for row in card["rows"]
        ]
        down, across, corner = card["silos"], card["groups"], "silo"
        if len(across) > len(down):
            counts = [list(column) for column in zip(*counts, strict=True)]
            down, across, corner = across, down, "group"
        rows = [
            [Shown(visible(name)), *row] for name, row in zip(down, counts, strict=True)
        ]
        heads = [(corner, GLOSSARY.get(corner, "")), *((name, "") for name in across)]
        return Grid("Rows per silo and group", heads, rows)

    @property
    def matter(self) -> InputsThatMatter | None:
        """The inputs that move the model most."""
        return None if self.predictor is None else InputsThatMatter.of(self.predictor)

    @property
    def inputs(self) -> Grid | None:
        """The table of inputs that matter."""
        if (found := self.matter) is None:
            return None
        rows = [list(map(Shown, row)) for row in found.rows]
        return Grid("Inputs that matter", found.heads, rows, "scroll")

    @property
    def rounds(self) -> list[Plot]:
        """Gap, losses and multipliers by round, where there is a history."""
        charts = [
            figures.convergence(self.history),
            figures.by_round(self.history, "loss", "Mean loss of each cell by round"),
            figures.by_round(
                self.history, "multiplier", "Multiplier of each cell by round"
            ),
        ]
        return [chart for chart in charts if chart is not None]

    @property
    def card(self) -> str:
        """The model card."""
        return card.markdown(self.conclusions, self.predictor)


def _told(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a statement, less what says nothing: that no figure is vacuous."""
    idle = {"vacuous"} if not any(row.get("vacuous") for row in rows) else set()
    return [{k: v for k, v in row.items() if k not in idle} for row in rows]


def _laid_out(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate in plain form, each statement with title, word and table.

    What they stand on is listed once; a statement has the numbers of its grounds.
    """
    statements, grounds = [], numbered(certificate)
    proved = certificate.holds(
        "infeasible"
    )  # then the verdict names the smallest bound
    for one in certificate.statements:
        if one.kind == "attainable" and proved:
            continue
        word, rows = mark(one), one.per_cell or ()
        statements.append(
            {
                **one.as_dict(),
                "title": one.title,
                "mark": word,
                "tone": tables.TONES.get(word, "bad"),
                "numbers": [grounds[g] for g in grounds_of(one)],
                "grid": Grid.of(
                    one.title, _told(rows) if one.kind != "measured" else ()
                ),
            }
        )
    found = {"statements": statements, "notes": certificate.notes}
    return {**found, "grounds": list(grounds)}
