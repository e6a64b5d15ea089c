"""Any table → a federation: types inferred and shown, all flaws reported together."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pffl.data import partition
from pffl.data.checks import DataWarning, listing
from pffl.data.columns import MISSING, Column, Missing, category_codes, infer_columns
from pffl.data.encode import match_values
from pffl.data.reading import read_table
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import Rows
from pffl.errors import DataError, Problems, UsageError
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
