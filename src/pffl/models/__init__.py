"""Models: linear ones in NumPy, networks in torch (extra)."""

from pffl.models.base import Inputs as Inputs
from pffl.models.base import Model as Model
from pffl.models.linear import LeastSquares as LeastSquares
from pffl.models.linear import LinearModel as LinearModel
from pffl.models.linear import LogisticRegression as LogisticRegression
from pffl.models.linear import SoftmaxRegression as SoftmaxRegression

LINEAR_MODELS: dict[str, type[LinearModel]] = {
    model.name: model for model in (LogisticRegression, SoftmaxRegression, LeastSquares)
}
