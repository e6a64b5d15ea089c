"""Rows → silos → a federation, validated once."""

from pffl.data.checks import DataWarning as DataWarning
from pffl.data.encoding import Column as Column
from pffl.data.encoding import TableEncoder as TableEncoder
from pffl.data.encoding import TableEncoding as TableEncoding
from pffl.data.federation import Federation as Federation
from pffl.data.federation import Pooled as Pooled
from pffl.data.schema import Attribute as Attribute
from pffl.data.schema import Schema as Schema
from pffl.data.silo import Rows as Rows
from pffl.data.silo import Silo as Silo
