"""A site's limits, over the life of its rows: which queries it answers, and how many.

Only the site sets them (`pffl site join`). They bound what honest queries can tell; no
limit protects from a server that means to read rows from sums: noise does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from pffl import files
from pffl.data.rows import Rows
from pffl.deploy.federation import Agreement
from pffl.errors import Problems, Refused, UsageError, wrong
from pffl.models import LINEAR_MODELS, LinearModel, Model
from pffl.models.linear import default_model
from pffl.queries import ModelQuery
from pffl.records import check, parameters
from pffl.typing import FloatArray

FARTHEST = 10.0  # a mean from the site's own, in spreads of either
STEEPEST = 1000.0  # own spread of a column, in units of the server's scale
RIDGE, ARCHITECTURE = "l2", "architecture"  # of a model that is described
LAYOUT = "layout"  # of a query's cells, among its marks
STEPS_OUT = "steps that lead out of the norm ball"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that only the site can change.

    Parameters
    ----------
    floor
        Fewest people of a cell, in a split, that the site answers about; below 2 it
        answers about all.
    queries
        Queries about its people that it answers in all, over all runs; the census is
        not counted. `Exact` asks about twenty a run, `PFFL` thousands.
    radius
        Largest norm of a model's parameters; of a linear one also in units in which
        every input has spread 1 at the site, and times the sharpness of smooth scores.
    batches
        Whether steps on batches of the rows are answered. The server weighs the cells,
        and a cell may have one row in a batch: its gradient is that row.
    layouts
        Ways to cut the rows into cells that a run may use.
    epsilon, delta
        What all releases with noise about the site's people may come to, over all runs:
        (ε, δ). 0: the site answers nothing with noise.
    largest_message
        Bytes.
    """

    floor: int = 10
    queries: int = 1000
    radius: float = 15.0
    batches: bool = False
    layouts: int = 4
    epsilon: float = 0.0
    delta: float = 1e-6
    largest_message: int = 64 << 20

    def __post_init__(self) -> None:
        with Problems("limits", UsageError) as problems:
            for field in fields(self):
                value = getattr(self, field.name)
                kind: type = type(field.default)
                own = isinstance(value, (int, float)) if kind is float else None
                if not (type(value) is kind if own is None else own) or not value >= 0:
                    wanted = f"a {kind.__name__} ≥ 0"
                    problems.add(wrong(field.name, "a site", wanted, value))
                elif field.name == "delta" and not 0 < value < 1:
                    wanted = "a number between 0 and 1"
                    problems.add(wrong("delta", "a site", wanted, value))

    def weaker(self) -> list[str]:
        """Return a sentence for each limit that protects less than the default."""
        usual, found = Limits(), []
        if self.floor < usual.floor:
            found.append(f"floor: {self.floor} people, and {usual.floor} by default")
        for name, what in (("queries", "queries"), ("radius", "as a norm")):
            own, default = getattr(self, name), getattr(usual, name)
            if own > default:
                found.append(f"{name}: {own:g} {what}, and {default:g} by default")
        if self.batches:
            found.append("batches: a gradient of a batch can be that of one row")
        return found


def model_of(agreed: Agreement) -> dict[str, object]:
    """Return what all queries of the agreed run say of their model.

    A ridge may differ; of a network only its name is compared, since no ball makes one
    tame. Nothing where no run was agreed on.
    """
    if not agreed.run:
        return {}
    given = {k: v for k, v in agreed.run.get("model", {}).items() if k != RIDGE}
    name = given.pop("kind", type(default_model(agreed.schema)).name)
    if name not in LINEAR_MODELS:
        return {ARCHITECTURE: name}
    kind = LINEAR_MODELS[name]
    with Problems("the agreed model", UsageError) as problems:
        known = {key: given[key] for key in given.keys() & parameters(kind)}
        values, _ = check(known, kind, name, problems)
    return _described(kind(**values))


def check_model(query: ModelQuery[Any], agreed: Mapping[str, object]) -> None:
    """Refuse another model than the agreed run has: one may be as steep as it likes."""
    found = _described(query.task.model)
    for name, wanted in agreed.items():
        if found.get(name) != wanted:
            raise Refused(
                "[other-model] another model than that of the agreed run: its "
                f"'{name}' differs"
            )


def _described(model: Model) -> dict[str, object]:
    plain = {k: v for k, v in model.describe().items() if k != RIDGE}
    if isinstance(network := plain.get(ARCHITECTURE), Mapping):
        plain[ARCHITECTURE] = network.get("name")
    return plain


def task_marks(query: ModelQuery[Any]) -> dict[str, str]:
    """Return what may not change within a run, and the query's layout of cells."""
    member = query.task.cells.membership.astype(np.uint8)
    kept = {"the input scaling or model": query.task.scoring, **query.kept}
    return {**kept, LAYOUT: files.digest_arrays(member)}


def check_batches(query: ModelQuery[Any], limits: Limits, rows: int) -> None:
    """Refuse batches, unless the site allows them, and all but all of the rows.

    What a batch is short of the whole is a batch, too.
    """
    size = query.batch
    if size is None or size >= rows:
        return
    if not limits.batches:
        raise Refused(
            "[no-batches] the site takes steps on all of its rows, not on batches "
            "(pffl site join --batches)"
        )
    if min(size, rows - size) < limits.floor:
        raise Refused(
            f"[small-batches] batches of {size} rows, and the site's floor is "
            f"{limits.floor}: too few are in them, or left out"
        )


@dataclass(frozen=True)
class Ball:
    """The norm ball of a query's model, in the units of a site's rows.

    Steep inputs have the effect of large parameters, and so have sharp scores: with
    them a sum takes in, or leaves out, single rows. So the parameters count with the
    spread that their inputs have at the site, and with the sharpness. An input whose
    mean is put far away is an intercept: what they all come to at the site's own mean
    counts as one.

    Attributes
    ----------
    query, radius, rows
        What is asked, the ball's radius, and the rows.
    """

    query: ModelQuery[Any]
    radius: float
    rows: Rows

    def check(self) -> None:
        """Refuse what is outside, and inputs or steps by which it would be evaded."""
        model, rows = self.query.task.model, self.rows
        if isinstance(model, LinearModel):
            spread, mean = self._filled
            if (spread > STEEPEST * model.inputs.scale).any():
                raise Refused(
                    "[unscaled-inputs] an input's scale is below a thousandth of its "
                    "spread: the norm ball needs scaled inputs (standardize = true)"
                )
            wide = np.maximum(spread, model.inputs.scale)
            far = np.abs(model.inputs.mean - mean) > FARTHEST * wide
            if len(rows) and far.any():
                raise Refused(
                    f"[uncentred-inputs] an input's mean is more than {FARTHEST:g} "
                    "spreads from what it is at this site: the norm ball needs "
                    "centred inputs (standardize = true)"
                )
        if self.query.leaves_ball:
            raise Refused(f"[outside-ball] {STEPS_OUT} whatever the rows are")
        if not all(map(self.holds, self.query.parameters)):
            raise Refused(
                "[outside-ball] parameters outside the site's norm ball of "
                f"{self.radius:g} (pffl site join --radius)"
            )

    def check_step(self, w: FloatArray) -> None:
        """Refuse a w to which local steps have led, and at which the next would be."""
        if not self.holds(w):
            raise Refused(
                f"[outside-ball] {STEPS_OUT} of {self.radius:g} (pffl site join "
                "--radius)"
            )

    def holds(self, v: FloatArray) -> bool:
        """Whether a vector that rows are scored with is in the ball."""
        model = self.query.task.model
        v = v[: model.n_trained]
        norm = float(np.linalg.norm(v))
        if isinstance(model, LinearModel):
            spread, away = self._units
            slopes, intercept = np.split(
                v.reshape(model.n_outputs, -1), [len(spread)], axis=1
            )
            # In units in which inputs have mean 0 and spread 1 at the site.
            own = [slopes * spread, slopes @ away + intercept.sum(axis=1)]
            norm = max(norm, float(np.linalg.norm(np.column_stack(own))))
        return norm * self.query.steepness <= self.radius * (1 + 1e-9)

    @cached_property
    def _units(self) -> tuple[FloatArray, FloatArray]:
        """Return the site's spreads and means, as the model scales and centres them."""
        inputs, (spread, mean) = self.query.task.model.inputs, self._filled
        return spread / inputs.scale, (mean - inputs.mean) / inputs.scale

    @cached_property
    def _filled(self) -> tuple[FloatArray, FloatArray]:
        """Return the site's spreads and means, missing inputs as the model has them."""
        rows, inputs = self.rows, self.query.task.model.inputs
        mean, second = inputs.fill_sums(rows.mean, rows.spread**2 + rows.mean**2)
        spread, some = rows.spread.copy(), inputs.gaps[0]
        spread[some] = np.sqrt(np.maximum(second - mean**2, 0.0)[some])
        return spread, mean
