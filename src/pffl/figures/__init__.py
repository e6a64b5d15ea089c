"""Figures: from a table to a chart, for page, notebook, documents and papers.

chart = pffl.figures.group_losses(solution.cells)
chart                     # in a notebook
chart.save("losses.svg")  # or .png, .pdf; needs the extra ``report``
chart.axes()              # matplotlib's Axes
"""

from pffl.figures.chart import Chart, Plot, Rows
from pffl.figures.studies import differences, fronts, path
from pffl.figures.tables import (
    budget,
    by_round,
    convergence,
    e_values,
    group_losses,
    group_rates,
    inputs,
    rows_of,
    side_by_side,
    site_losses,
)

__all__ = [
    "Chart",
    "Plot",
    "Rows",
    "budget",
    "by_round",
    "convergence",
    "differences",
    "e_values",
    "fronts",
    "group_losses",
    "group_rates",
    "inputs",
    "path",
    "rows_of",
    "side_by_side",
    "site_losses",
]
