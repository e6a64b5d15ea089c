"""Many configurations at once, and the trade-off between them."""

from pffl.sweep.grid import GridPoint as GridPoint
from pffl.sweep.grid import full_grid as full_grid
from pffl.sweep.grid import paper_grid as paper_grid
from pffl.sweep.grid import random_grid as random_grid
from pffl.sweep.sweep import sweep as sweep
from pffl.sweep.table import Sweep as Sweep
