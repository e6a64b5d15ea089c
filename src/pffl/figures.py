"""Charts of runs, comparisons and monitors, for notebooks and papers.

chart = pffl.figures.group_losses(solution)
chart                     # in a notebook
chart.save("losses.svg")  # or .png, .pdf; needs the extra ``report``
chart.axes()              # matplotlib's Axes
"""

from pffl._report.chart import Chart, DotPlot, Plot
from pffl._report.charts import (
    convergence,
    differences,
    e_values,
    fronts,
    group_losses,
    group_rates,
    trade_off,
)

__all__ = [
    "Chart",
    "DotPlot",
    "Plot",
    "convergence",
    "differences",
    "e_values",
    "fronts",
    "group_losses",
    "group_rates",
    "trade_off",
]
