"""Run files: TOML → typed objects, all problems at once; and back to TOML."""

from pffl.spec.data import DataSource as DataSource
from pffl.spec.data import named as named
from pffl.spec.run_file import Job as Job
from pffl.spec.run_file import RunSpec as RunSpec
from pffl.spec.run_file import about_section as about_section
from pffl.spec.run_file import constraint_sections as constraint_sections
from pffl.spec.run_file import dumps as dumps
from pffl.spec.run_file import load as load
from pffl.spec.run_file import merge as merge
from pffl.spec.run_file import of_run as of_run
from pffl.spec.run_file import parse as parse
from pffl.spec.run_file import parse_setting as parse_setting
