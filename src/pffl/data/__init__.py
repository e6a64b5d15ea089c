"""Rows → silos → a federation, validated once."""

from pffl.data.checks import DataWarning as DataWarning
from pffl.data.columns import Column as Column
from pffl.data.columns import TableEncoder as TableEncoder
from pffl.data.federation import Federation as Federation
from pffl.data.federation import PooledRows as PooledRows
from pffl.data.rows import Rows as Rows
from pffl.data.rows import Silo as Silo
from pffl.data.schema import Attribute as Attribute
from pffl.data.schema import Schema as Schema
