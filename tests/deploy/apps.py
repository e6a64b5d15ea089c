"""A Flower app of somebody else's, in NumPy: logistic regression on drawn people.

One in four is of group "b", whose labels follow the input the other way round.
"""

# ruff: noqa: F401 — names are here to be used by test_mixin.py, when it runs.
from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedProx

from pffl.deploy import BoundedGroupLossMixin, FairFedAvg
from tests.deploy.memory import MemoryGrid, travelled
from tests.inside import KEY, GroupSums, Order, group_weights

GROUPS, LABELS = ["a", "b"], ["no", "yes"]


def people(partition: int, split: str, rows: int = 200, *, labels: int = 2):
    """Return inputs, labels, groups of a partition."""
    draw = np.random.default_rng([partition, split == "test"])
    group = (draw.random(rows) < 0.25).astype(int)
    x = np.stack([draw.normal(size=rows), group + 0.5 * draw.normal(size=rows)], 1)
    x = np.hstack([x, x[:, :1] * x[:, 1:], np.ones((rows, 1))])
    z = np.where(group == 1, -1.5, 2.0) * x[:, 0]
    if labels == 0:
        return x, z + 0.5 * draw.normal(size=rows), group
    y = (draw.random(rows) < 1 / (1 + np.exp(-z))).astype(int)
    if labels == 3:
        y += (draw.random(rows) < 0.3).astype(int)
    return x, y, group


def scores(w, x):
    return x @ np.asarray(w, np.float64).T  # (rows, classes); of a number (rows, 1)


def losses_of(w, x, y):
    """Cross-entropy, or squared error where there is one score and y is a number."""
    z = scores(w, x)
    if z.shape[1] == 1:
        return np.square(z[:, 0] - y)
    z = z - z.max(axis=1, keepdims=True)
    return np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]


def descend(w, x, y, weights, rate):
    """One step of gradient descent on the weighted mean loss."""
    z = scores(w, x)
    if z.shape[1] == 1:
        slope = 2 * (z - y[:, None])
    else:
        e = np.exp(z - z.max(axis=1, keepdims=True))
        slope = e / e.sum(axis=1, keepdims=True)
        slope[np.arange(len(y)), y] -= 1
    return w - rate * (slope * weights[:, None]).T @ x / len(y)


def client(*, labels=2, record=True, evaluate=True):
    """An app; without `record` or `evaluate`, one that does not speak to us."""
    app = ClientApp()

    def opened(msg, context, split):
        w = np.asarray(msg.content["arrays"]["w"].numpy(), np.float64)
        k = context.node_config.get("partition-id", 0)
        return w, people(int(k), split, labels=labels)

    def told(msg, context, w, part):
        x, y, group = part
        sums = GroupSums(msg, context)
        for rows in np.array_split(np.arange(len(y)), 3):
            loss = losses_of(w, x[rows], y[rows])
            guess = scores(w, x[rows]).argmax(1) if labels == 3 else None
            sums.add(loss, group[rows], y[rows], guess)
        return {"pffl": sums.record()} if record else {}

    @app.train()
    def train(msg: Message, context: Context):
        w, part = opened(msg, context, "train")
        x, y, group = part
        config = msg.content["config"]
        weights = group_weights(msg, group, y)
        for _ in range(5):
            w = descend(w, x, y, weights, config["rate"])
        metrics = {"num-examples": len(y), "round": int(config["server-round"])}
        arrays = ArrayRecord([w.astype(np.float32)])
        arrays = ArrayRecord({"w": next(iter(arrays.values()))})
        content = {"arrays": arrays, "metrics": MetricRecord(metrics)}
        return Message(RecordDict(content), reply_to=msg)

    def measure(msg: Message, context: Context):
        split = GroupSums(msg, context).pick("train", "test")
        w, part = opened(msg, context, split)
        content = told(msg, context, w, part)
        loss = float(losses_of(w, part[0], part[1]).mean())
        metrics = MetricRecord({"num-examples": len(part[1]), "loss": loss})
        return Message(RecordDict({"metrics": metrics, **content}), reply_to=msg)

    if evaluate:
        app.evaluate()(measure)
    return app


class AppGrid(MemoryGrid):
    """Partitions as in a simulation, or sites by name; notes the configurations."""

    def __init__(self, app, many=3, names=None):
        config = [{"partition-id": k, "num-partitions": many} for k in range(many)]
        if names is not None:
            config = [{**c, "silo": n} for c, n in zip(config, names, strict=True)]
        super().__init__({20 + k: (app, config[k]) for k in range(many)})
        self.configs = []

    def deliver(self, message):
        if message.metadata.message_type == "train":
            self.configs.append(dict(message.content["config"]))
        return super().deliver(travelled(message))


def first(classes=2):
    """The model that an app starts from."""
    outputs = 1 if classes == 0 else classes
    arrays = ArrayRecord([np.zeros((outputs, 4), np.float32)])
    return ArrayRecord({"w": next(iter(arrays.values()))})


class Noisy(AppGrid):
    """Training that ends somewhere near, each time elsewhere."""

    def __init__(self, app, size):
        super().__init__(app)
        self.draw, self.size = np.random.default_rng(0), size

    def deliver(self, message):
        reply = super().deliver(message)
        if message.metadata.message_type == "train":
            w = reply.content["arrays"]["w"].numpy()
            w = w + self.size * self.draw.normal(size=w.shape).astype(np.float32)
            reply.content["arrays"]["w"] = type(reply.content["arrays"]["w"])(w)
        return reply


class FairFedProx(BoundedGroupLossMixin, FedProx):
    pass


class FairFedAdam(BoundedGroupLossMixin, FedAdam):
    pass
