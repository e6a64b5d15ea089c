"""The names of `pffl.data.read` by their former place."""

from pffl.data.read import PARQUET as PARQUET
from pffl.data.read import Chunk as Chunk
from pffl.data.read import Table as Table
from pffl.data.read import is_number as is_number
from pffl.data.read import is_table as is_table
from pffl.data.read import read_chunks as read_chunks
from pffl.data.read import read_table as read_table
from pffl.data.read import require as require
