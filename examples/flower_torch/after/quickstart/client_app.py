"""What a client does with a message."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from pffl.deploy import GroupSums
from quickstart.task import Net, load_data
from quickstart.task import test as test_fn
from quickstart.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    torch.manual_seed(context.run_config["seed"])
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    partition = context.node_config["partition-id"]
    trainloader, _ = load_data(partition, context.run_config["seed"])
    epochs, config = context.run_config["local-epochs"], msg.content["config"]
    loss = train_fn(model, trainloader, epochs, config)
    metrics = {"train_loss": loss, "num-examples": len(trainloader.dataset)}
    arrays = ArrayRecord(model.state_dict())
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    partition = context.node_config["partition-id"]
    sums = GroupSums(msg, context)
    valloader = sums.pick(*load_data(partition, context.run_config["seed"]))
    loss, accuracy = test_fn(model, valloader, sums)
    metrics = {
        "eval_loss": loss,
        "eval_acc": accuracy,
        "num-examples": len(valloader.dataset),
    }
    content = RecordDict({"metrics": MetricRecord(metrics), "pffl": sums.record()})
    return Message(content=content, reply_to=msg)
