"""The model, its data, and how it is trained and tested."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from pffl.deploy import group_weights

criterion = nn.CrossEntropyLoss(reduction="none")


class Net(nn.Module):
    """A small network."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 16)
        self.fc2 = nn.Linear(16, 2)

    def forward(self, x):
        """Return scores of the two classes."""
        return self.fc2(functional.relu(self.fc1(x)))


class People(Dataset):
    """Drawn people; of each the features, the label, and a group, 0 or 1.

    One in five is of group 1, whose labels follow the features the other way round.
    """

    def __init__(self, rows, seed):
        draw = np.random.default_rng(seed)
        self.group = (draw.random(rows) < 0.2).astype(np.int64)
        x = draw.normal(size=(rows, 10))
        x[:, 0] += 0.8 * self.group
        score = np.where(self.group == 1, -1.6, 2.2) * (x[:, 1] + x[:, 2])
        self.label = (draw.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int64)
        self.x = x.astype(np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "label": self.label[i], "group": self.group[i]}


def load_data(partition_id, seed):
    """Return the loaders of a partition."""
    train, test = (People(rows, [seed, partition_id, rows]) for rows in (1500, 750))
    return DataLoader(train, batch_size=32, shuffle=True), DataLoader(test, 750)


def train(net, trainloader, epochs, config):
    """Train with Adam, with FedProx's term if the server asks for it."""
    optimizer = torch.optim.Adam(net.parameters(), lr=config["lr"])
    mu = config.get("proximal-mu")
    start = [p.detach().clone() for p in net.parameters()]
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for batch in trainloader:
            labels = batch["label"]
            optimizer.zero_grad()
            weights = group_weights(config, batch["group"], labels)
            loss = (criterion(net(batch["x"]), labels) * weights).mean()
            if mu:
                pairs = zip(net.parameters(), start, strict=True)
                loss = loss + mu / 2 * sum((p - q).square().sum() for p, q in pairs)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / len(trainloader)


def test(net, testloader, sums):
    """Return mean loss and accuracy."""
    net.eval()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for batch in testloader:
            labels = batch["label"]
            outputs = net(batch["x"])
            loss += sums.add(criterion(outputs, labels), batch["group"], labels)
            correct += (outputs.argmax(1) == labels).sum().item()
    return loss / len(testloader), correct / len(testloader.dataset)
