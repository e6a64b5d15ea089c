"""The names of `pffl.data.columns` by their former place."""

from pffl.data.columns import OTHER as OTHER
from pffl.data.columns import Column as Column
from pffl.data.columns import Found as Found
from pffl.data.columns import TableEncoding as TableEncoding
from pffl.data.columns import Unseen as Unseen
from pffl.data.columns import as_column as as_column
from pffl.data.columns import category_codes as category_codes
from pffl.data.columns import encode_values as encode_values
from pffl.data.columns import read_name as read_name
from pffl.data.columns import read_names as read_names
from pffl.data.columns import typed_labels as typed_labels
from pffl.data.columns import unknown_remarks as unknown_remarks
