"""The names of `pffl.data.rows` by their former place."""

from pffl.data.rows import INPUT_TYPES as INPUT_TYPES
from pffl.data.rows import Rows as Rows
from pffl.data.rows import Silo as Silo
from pffl.data.rows import as_inputs as as_inputs
