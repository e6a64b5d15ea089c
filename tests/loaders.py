"""A torch module and data set of somebody else's, for the tests of `solve_loaders`."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset


def people(k, rows=150, *, test=False):
    draw = np.random.default_rng([k, test])
    group = (draw.random(rows) < 0.25).astype(np.int64)
    x = draw.normal(size=(rows, 4))
    x[:, 1] = group + 0.5 * draw.normal(size=rows)
    z = np.where(group == 1, -1.5, 2.0) * x[:, 0]
    y = (draw.random(rows) < 1 / (1 + np.exp(-z))).astype(np.int64)
    return x.astype(np.float32), y, group


class Words(Dataset):
    """Inputs as a tokenizer gives them: a dictionary."""

    def __init__(self, k, test=False):
        self.x, self.y, self.group = people(k, test=test)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        row = {"input_ids": self.x[i, :2], "more": self.x[i, 2:]}
        return {**row, "labels": self.y[i], "group": self.group[i]}


class Answer:
    def __init__(self, logits):
        self.logits = logits


class Net(nn.Module):
    """Takes keywords, and answers as a model of Hugging Face does."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.frozen = nn.Linear(4, 32)
        self.norm = nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 2)
        for p in self.frozen.parameters():
            p.requires_grad = False

    def forward(self, input_ids, more):
        x = torch.cat([input_ids, more], dim=1)
        return Answer(self.head(torch.tanh(self.norm(self.frozen(x)))))
