"""Attacks of a server that chooses w: windows on an input, and hyperplanes in a tail.

With a long w the slope of a loss is a step and its curvature a window, so that a sum
over a large cell is a sum over few of its people, or over one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit

from tests.attacks.askers import Ask
from tests.attacks.product import (
    Cells,
    Census,
    Curvature,
    Inputs,
    Schema,
    Slopes,
    Task,
    Train,
)


@dataclass(frozen=True)
class Read:
    """What a window read: people per cell and value, and the sums of their inputs."""

    counts: np.ndarray
    sums: np.ndarray

    def exact(self, truth: np.ndarray, most: int = 9) -> tuple[int, int]:
        """Of the cells with 1 to `most` people: how many counts are right, of all."""
        small = (truth > 0) & (truth <= most)
        right = (np.abs(self.counts - truth) < 0.1) & small
        return int(right.sum()), int(small.sum())

    def alone(self) -> list[np.ndarray]:
        """Inputs of those who seem to be alone with their value in their cell."""
        one = np.abs(self.counts - 1) < 0.1
        return list(self.sums[one])


@dataclass(frozen=True)
class Moved:
    """The last input with a mean far away, and a scale: it is `gain` for everybody."""

    gain: float
    stretch: float

    def task(self, task: Task) -> Task:
        """Return the task with such a scaling."""
        model: Any = task.model
        mean, scale = model.inputs.mean.copy(), model.inputs.scale.copy()
        scale[-1] *= self.stretch
        mean[-1] -= self.gain * scale[-1]
        inputs = Inputs(mean, scale)
        return replace(task, model=replace(model, inputs=inputs))


FAR = Moved(1e7, 1.0)  # costs no norm
WIDE = Moved(9.9, 1e6)  # costs a tenth, and is within ten of its own scales


def window(
    ask: Ask,
    task: Task,
    values: np.ndarray,
    *,
    radius: float,
    moved: Moved | None = None,
) -> Read:
    """Read a cell's people by their value of the first input.

    Each question looks through a window σ′ around one value; the windows' kernel is
    inverted. `moved`: the last input is made an intercept, so that its parameter moves
    the window, and nearly all of the radius goes into sharpness.
    """
    task = task if moved is None else moved.task(task)
    inputs = task.model.inputs
    at = (values - inputs.mean[0]) / inputs.scale[0]
    gain = 1.0 if moved is None else moved.gain
    sharp = 0.99 * radius / np.hypot(1.0, np.abs(at).max() / gain)
    kernel, hessians = [], []
    for place in at:
        w = np.zeros(task.model.n_parameters)
        w[0], w[-1 if moved is None else -2] = sharp, -sharp * place / gain
        total = ask(Curvature(task, w))
        if total is None:
            continue
        z = sharp * (at - place)
        kernel.append(expit(z) * expit(-z))
        hessians.append(total.cell_hessians[:, -1])
    n_cells, p = len(task.cells), task.model.n_parameters
    if not hessians:
        none = np.zeros((n_cells, len(values)))
        return Read(none, np.zeros((*none.shape, p - 1)))
    flat = np.reshape(hessians, (len(hessians), -1))
    sums = np.linalg.lstsq(np.array(kernel), flat, rcond=1e-14)[0]
    sums = np.moveaxis(sums.reshape(len(values), n_cells, p), 0, 1)
    counts = sums[..., -1]
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = sums[..., :-1] / counts[..., None] * inputs.scale + inputs.mean
    return Read(counts, np.nan_to_num(rows, nan=np.inf))


def counts_by_value(
    task: Task, first: np.ndarray, atoms: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """The truth: people per cell and value of the first input."""
    member = task.cells.membership[:, atoms]
    return np.array([(member & (first == value)).sum(axis=1) for value in values]).T


def tail(
    ask: Ask, task: Task, *, radius: float, questions: int, seed: int = 0
) -> list[np.ndarray]:
    """Read whoever stands furthest out in random directions, cell by cell.

    A gradient's last entry counts the people beyond a hyperplane. It is moved until
    it is 1: then the gradient is that person's inputs.
    """
    rng = np.random.default_rng(seed)
    model: Any = task.model
    counted = ask(Slopes(task, np.zeros(model.n_parameters)))
    if counted is None:
        return []
    # At w = 0 slopes are ½: the cells' labels, by which side counts.
    side = np.sign(counted.cell_gradients[:, -1])
    read: list[np.ndarray] = []
    low, high, cell, direction = 0.0, 0.0, 0, np.zeros(0)
    for _ in range(questions - 1):
        if high - low < 0.05:
            direction = rng.normal(size=model.n_parameters - 1)
            direction /= np.linalg.norm(direction)
            low, high, cell = 0.0, 6.0, int(rng.integers(len(side)))
        far = (low + high) / 2
        w = side[cell] * 0.99 * radius / np.hypot(1.0, far) * np.append(direction, -far)
        total = ask(Slopes(task, w))
        if total is None:
            return read
        gradients = side[:, None] * total.cell_gradients
        alone = gradients[np.abs(gradients[:, -1] - 1) < 0.01]
        inputs = alone[:, :-1] / alone[:, -1:]
        read += list(inputs * model.inputs.scale + model.inputs.mean)
        beyond = gradients[cell, -1]
        low, high = (far, high) if beyond > 1.5 else (low, far)
        if abs(beyond - 1) < 0.01:
            high = low
    return read


FAST, SHARP = 1e7, 1000.0  # length of a local step, and of the w that it leads to


def stepped(
    ask: Ask, task: Task, schema: Schema, values: np.ndarray
) -> list[np.ndarray]:
    """Read whoever is alone with a value of the first input, by steps out of any ball.

    The w that is sent is next to the minimiser, where the server knows the gradient: a
    long first step leads from there to whatever w it likes, and the second has the
    slopes at that. Beyond a threshold these are 1 or 0, so they count and add people.
    """
    task = replace(task, cells=Cells.none(schema))
    inputs, w = task.model.inputs, np.zeros(task.model.n_parameters)
    counted = ask(Census(schema))
    n = counted.rows.sum()
    told = [ask(Curvature(task, w))]
    for _ in range(5):
        w = w - np.linalg.solve(told[-1].risk_hessian, told[-1].risk_gradient)
        told.append(ask(Curvature(task, w)))
    # At w = 0 slopes are ½ − y, from which Σ y·(x, 1) follows.
    sums = np.append((counted.feature_sums - n * inputs.mean) / inputs.scale, n)
    positive = sums / 2 - n * told[0].risk_gradient
    steps, curved = np.array([FAST, FAST]), FAST * told[-1].risk_hessian
    read, before = [], None
    for value in np.sort(values)[::-1]:
        far = np.zeros(len(w))
        far[0], far[-1] = SHARP, SHARP * (inputs.mean[0] - value) / inputs.scale[0]
        start = w - np.linalg.solve(curved - np.eye(len(w)), far - w)
        none = np.zeros(0)
        total = ask(Train(task, start, 1.0, none, steps, ridge=0.0, slope=True))
        if total is None:
            return read
        above = positive - n * (total.update / FAST + total.gradient)
        if before is not None and abs(above[-1] - before[-1] - 1) < 0.1:
            one = above - before
            read.append(one[:-1] / one[-1] * inputs.scale + inputs.mean)
        before = above
    return read
