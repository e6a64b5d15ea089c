"""The boundary: the questions that a silo answers, and nothing else."""

from pffl.questions.base import ModelQuestion as ModelQuestion
from pffl.questions.base import Question as Question
from pffl.questions.base import Task as Task
from pffl.questions.base import View as View
from pffl.questions.base import read_question as read_question
from pffl.questions.census import Census as Census
from pffl.questions.census import CensusTotal as CensusTotal
from pffl.questions.curvature import Curvature as Curvature
from pffl.questions.curvature import CurvatureTotal as CurvatureTotal
from pffl.questions.declared import Total as Total
from pffl.questions.declared import add_all as add_all
from pffl.questions.evaluate import Evaluate as Evaluate
from pffl.questions.evaluate import EvaluateTotal as EvaluateTotal
from pffl.questions.moments import Moments as Moments
from pffl.questions.moments import MomentsTotal as MomentsTotal
from pffl.questions.slopes import Slopes as Slopes
from pffl.questions.slopes import SlopesTotal as SlopesTotal
from pffl.questions.smoothness import Smoothness as Smoothness
from pffl.questions.smoothness import SmoothnessTotal as SmoothnessTotal
from pffl.questions.train import Train as Train
from pffl.questions.train import TrainTotal as TrainTotal
from pffl.questions.witness import Witness as Witness
from pffl.questions.witness import WitnessTotal as WitnessTotal
