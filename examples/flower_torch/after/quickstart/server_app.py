"""What the server does."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from pffl import BoundedGroupLoss
from pffl.deploy import FairFedAvg
from quickstart.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, and save the model."""
    config = context.run_config
    torch.manual_seed(config["seed"])
    arrays = ArrayRecord(Net().state_dict())
    strategy = FairFedAvg(BoundedGroupLoss(0.68), groups=["a", "b"], labels=["0", "1"])
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        num_rounds=config["num-server-rounds"],
    )
    strategy.solution.save(config["out"])
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
