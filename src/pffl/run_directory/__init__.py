"""Run directories: what a run leaves behind, written whole and read with suspicion.

result.json         the verdict and its numbers
model.safetensors   parameters, multipliers, scaling, schema
history.csv         one line per round
spec.toml           the run file that repeats the run
manifest.json       SHA-256 of each of these
"""

from pffl.run_directory.claim import AUDIT as AUDIT
from pffl.run_directory.claim import Claim as Claim
from pffl.run_directory.claim import claim as claim
from pffl.run_directory.claim import claim_next as claim_next
from pffl.run_directory.claim import refuse_recorded as refuse_recorded
from pffl.run_directory.claim import save as save
from pffl.run_directory.extras import write_extras as write_extras
from pffl.run_directory.model_file import ModelFile as ModelFile
from pffl.run_directory.model_file import read_model as read_model
from pffl.run_directory.record import RunRecord as RunRecord
from pffl.run_directory.record import load as load
