"""The figures of the paper, run again."""

from pffl.reproduce.spec import FIGURES as FIGURES
from pffl.reproduce.spec import Figure as Figure
from pffl.reproduce.spec import load as load
from pffl.reproduce.study import PanelResult as PanelResult
from pffl.reproduce.study import run_figure as run_figure
