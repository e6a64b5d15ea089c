"""The boundary: the queries that a silo answers, and nothing else."""

from pffl.queries.base import ModelQuery as ModelQuery
from pffl.queries.base import Place as Place
from pffl.queries.base import Pool as Pool
from pffl.queries.base import Query as Query
from pffl.queries.base import Task as Task
from pffl.queries.base import Total as Total
from pffl.queries.base import View as View
from pffl.queries.base import add_all as add_all
from pffl.queries.base import read_query as read_query
from pffl.queries.census import Census as Census
from pffl.queries.census import CensusTotal as CensusTotal
from pffl.queries.evaluate import Evaluate as Evaluate
from pffl.queries.evaluate import EvaluateTotal as EvaluateTotal
from pffl.queries.expand import Expand as Expand
from pffl.queries.expand import ExpandTotal as ExpandTotal
from pffl.queries.expand import Witness as Witness
from pffl.queries.expand import WitnessTotal as WitnessTotal
from pffl.queries.release import Adding as Adding
from pffl.queries.release import ReleasedSums as ReleasedSums
from pffl.queries.train import Train as Train
from pffl.queries.train import TrainTotal as TrainTotal
from pffl.queries.validation import Gate as Gate
from pffl.queries.validation import Policy as Policy
