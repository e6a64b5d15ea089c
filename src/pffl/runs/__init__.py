"""Runs on disk: what a run leaves behind, and where a stopped one goes on.

result.json         the verdict and its numbers
evidence.json       what was declared and measured, from which the rest follows
model.safetensors   parameters, multipliers, scaling, schema
history.csv         one line per round
run.toml           the run file that repeats the run
manifest.json       SHA-256 of each of these, and of what was added (certificate, …)
"""

from pffl.runs.directory import CARD as CARD
from pffl.runs.directory import MODEL as MODEL
from pffl.runs.directory import REPORT as REPORT
from pffl.runs.directory import SPEC as SPEC
from pffl.runs.directory import RunDirectory as RunDirectory
from pffl.runs.directory import RunRecord as RunRecord
from pffl.runs.directory import load as load
from pffl.runs.directory import lock as lock
from pffl.runs.directory import lock_next as lock_next
from pffl.runs.directory import save as save
