"""The names of `pffl.data.rows` by their former place."""

from pffl.data.rows import Matrix as Matrix
from pffl.data.rows import as_csr as as_csr
from pffl.data.rows import contents as contents
from pffl.data.rows import is_sparse as is_sparse
from pffl.data.rows import powers as powers
from pffl.data.rows import restored as restored
from pffl.data.rows import rows_not_finite as rows_not_finite
from pffl.data.rows import saved as saved
from pffl.data.rows import stacked as stacked
from pffl.data.rows import stored_width as stored_width
