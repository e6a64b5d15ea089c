"""Checkpoints: a run that is stopped goes on where it was, bit for bit.

checkpoint.safetensors            where the run stands after its last saved round
checkpoint.previous.safetensors   the one before, should the last one be damaged
checkpoint.toml                   the run file (written by `pffl run` only)
"""

from pffl.checkpoint.checkpoint import CURRENT as CURRENT
from pffl.checkpoint.checkpoint import PREVIOUS as PREVIOUS
from pffl.checkpoint.checkpoint import SPEC as SPEC
from pffl.checkpoint.checkpoint import Checkpoint as Checkpoint
from pffl.checkpoint.identity import identity as identity
from pffl.checkpoint.standing import Standing as Standing
