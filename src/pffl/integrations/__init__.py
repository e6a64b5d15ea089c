"""Trackers of experiments, as callbacks: `pffl.solve(…, callbacks=[MLflow()])`."""

from pffl.integrations.mlflow import MLflow as MLflow
from pffl.integrations.tensorboard import TensorBoard as TensorBoard
from pffl.integrations.tracker import Tracker as Tracker
from pffl.integrations.wandb import WandB as WandB
