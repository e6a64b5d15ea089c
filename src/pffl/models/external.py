"""Models whose code is elsewhere, and networks as a run file names them.

Models from elsewhere are known by their probabilities, or by their arrays. Of a network
that a run file names, the data decide the number of inputs and outputs, or the size of
the pictures:

    [model]
    kind = "mlp"
    hidden = [64, 32]

Nothing here needs torch before `Recipe.build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from math import isqrt, prod
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pffl.data.schema import Schema
from pffl.errors import UsageError
from pffl.models.base import Inputs, Model
from pffl.models.scaled import Design, dense
from pffl.typing import FloatArray

SMALLEST = 5e-324  # a probability of 0 counts as this, the least number above 0
CLASSES: Final = "cross_entropy"
NUMBERS: Final = "squared"
NUMERIC_KINDS = "biuf"  # of NumPy types: numbers that a vector can hold


@dataclass(frozen=True, eq=False)
class Probabilities(Model):
    """A model whose inputs are its outputs: ``ℓ = −log(probability of the label)``.

    One input is the probability of the positive class; several are the probabilities
    of all classes, in the order of their codes. It has no parameters.
    """

    inputs: Inputs = field(default_factory=lambda: Inputs.identity(1))
    l2: float = 0.0
    threshold: float = 0.5
    name: ClassVar[str] = "probabilities"
    n_parameters: ClassVar[int] = 0

    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these probabilities, unscaled."""
        return replace(self, inputs=Inputs.identity(schema.n_features))

    @property
    def n_classes(self) -> int:
        """Number of classes: two for one probability."""
        return max(2, len(self.inputs.mean))

    def start(self, seed: int) -> FloatArray:
        """Return no parameters."""
        return np.zeros(0)

    def scores(self, w: FloatArray, X: Design) -> FloatArray:
        """Return the inputs: probabilities are their own scores."""
        return dense(X)

    def score_losses(self, z: FloatArray, y: FloatArray) -> FloatArray:
        """Return minus the logarithm of each label's probability."""
        chosen = self.score_proba(z)[np.arange(len(y)), y.astype(np.int64)]
        return -np.log(np.clip(chosen, SMALLEST, 1.0))

    def score_classes(self, z: FloatArray) -> FloatArray | None:
        """Return the class with the largest probability."""
        one = z.shape[1] == 1
        codes = z[:, 0] > self.threshold if one else z.argmax(axis=1)
        return np.asarray(codes, dtype=np.float64)

    def score_proba(self, z: FloatArray) -> FloatArray:
        """Return the probabilities, shape (n, classes)."""
        return np.stack([1 - z[:, 0], z[:, 0]], axis=1) if z.shape[1] == 1 else z

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        own = {} if self.threshold == 0.5 else {"threshold": self.threshold}
        return {"kind": self.name, **own}


@dataclass(frozen=True, eq=False)
class Reported(Model):
    """A model of a user's own app: here it is names, shapes and numbers.

    Its losses are what clients report; its code predicts, and only there.

    Parameters
    ----------
    shapes
        Name, type and shape of its arrays, in order; w is all their numbers.
    loss
        "cross_entropy", or "squared" for a numeric target: what clients report.
    """

    shapes: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    loss: str = CLASSES
    inputs: Inputs = field(default_factory=lambda: Inputs.identity(0))
    l2: float = 0.0
    n_outputs: int = 1
    name: ClassVar[str] = "reported"

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], loss: str) -> Reported:
        """Return the model of some arrays, which must hold numbers."""
        named = arrays.items()
        odd = [name for name, a in named if a.dtype.kind not in NUMERIC_KINDS]
        if odd:
            raise UsageError("not-numbers:of", odd=", ".join(odd))
        return cls(tuple((n, a.dtype.str, a.shape) for n, a in named), loss)

    @classmethod
    def rebuilt(cls, described: Mapping[str, Any]) -> Reported:
        """Return the model that a `describe` stands for; refuse anything else."""
        try:
            arrays = [
                (str(n), np.dtype(t), tuple(s)) for n, t, s in described["arrays"]
            ]
            found = cls(tuple((n, t.str, s) for n, t, s in arrays), described["loss"])
            sizes = [size for *_, shape in arrays for size in shape]
            good = all(type(size) is int and size >= 0 for size in sizes)
            good = good and all(t.kind in NUMERIC_KINDS for _, t, _ in arrays)
        except (KeyError, TypeError, ValueError):
            good = False
        if not good or dict(found.describe()) != dict(described):
            raise UsageError("unknown-model:rebuilt", described=described)
        return found

    @property
    def n_parameters(self) -> int:
        """Numbers in all arrays."""
        return sum(prod(shape) for *_, shape in self.shapes)

    def bind(self, schema: Schema, inputs: Inputs) -> Self:
        """Return this model for these groups and labels."""
        identity = Inputs.identity(schema.n_features)
        return replace(self, inputs=identity, n_outputs=schema.n_labels)

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a numeric target."""
        return self.n_outputs if self.loss == CLASSES else 0

    def vector(self, arrays: Mapping[str, NDArray[Any]]) -> FloatArray:
        """Return arrays as w."""
        flat = [np.asarray(arrays[n], np.float64).reshape(-1) for n, *_ in self.shapes]
        return np.concatenate([np.zeros(0), *flat])

    def arrays(self, w: FloatArray) -> dict[str, NDArray[Any]]:
        """Return w as the app's own arrays, in their types and shapes."""
        parts = np.split(w, np.cumsum([prod(shape) for *_, shape in self.shapes])[:-1])
        return {
            name: part.astype(kind).reshape(shape)
            for (name, kind, shape), part in zip(self.shapes, parts, strict=True)
        }

    def describe(self) -> Mapping[str, object]:
        """Plain form, for files and messages."""
        arrays = [[name, kind, list(shape)] for name, kind, shape in self.shapes]
        return {"kind": self.name, "loss": self.loss, "arrays": arrays}


# Networks by name


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What all networks of a run file share; see `pffl.models.Network`.

    Parameters
    ----------
    l2, standardize, device
        As for `pffl.models.Network`.
    loss
        As there; None takes "cross_entropy" for classes and "squared" for numbers.
    dtype
        Of the weights and of all sums inside the network.
    """

    l2: float = 0.0
    loss: Literal["cross_entropy", "binary", "squared"] | None = None
    standardize: bool | None = None
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "cpu"

    name: ClassVar[str] = ""

    def build(self, schema: Schema) -> Model:
        """Return the network for these data, not yet bound to them."""
        network = import_module("pffl.models.network")
        loss = self.loss or ("cross_entropy" if schema.labels else "squared")
        outputs = max(1, len(schema.labels)) if loss == "cross_entropy" else 1
        described = {"name": self.name, **self.architecture(schema, outputs)}
        given = {n: getattr(self, n) for n in ("standardize", "device")}
        module = network.build(described, self.dtype)
        made: Model = network.Network(module, loss, self.l2, **given)
        return made

    def architecture(self, schema: Schema, outputs: int) -> dict[str, object]:
        """Return what the builder of the architecture takes."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MLPRecipe(Recipe):
    """A perceptron; see `pffl.models.mlp`.

    Parameters
    ----------
    hidden
        Widths of the hidden layers.
    batch_norm
        Whether each is normalised over its batch.
    """

    hidden: tuple[int, ...] = (64,)
    batch_norm: bool = False
    name: ClassVar[str] = "mlp"

    def architecture(self, schema: Schema, outputs: int) -> dict[str, object]:
        """Inputs and outputs are the data's."""
        widths = {"inputs": schema.n_features, "hidden": list(self.hidden)}
        return {**widths, "outputs": outputs, "batch_norm": self.batch_norm}


@dataclass(frozen=True, kw_only=True)
class CelebARecipe(Recipe):
    """LEAF's network for CelebA; see `pffl.models.celeba_cnn`.

    Parameters
    ----------
    width
        Channels of its layers.
    """

    width: int = 32
    name: ClassVar[str] = "celeba_cnn"

    def architecture(self, schema: Schema, outputs: int) -> dict[str, object]:
        """The size of the pictures is the data's."""
        size = isqrt(schema.n_features // 3)
        if size * size * 3 != schema.n_features:
            raise UsageError("wrong-shape:architecture", n_features=schema.n_features)
        return {"size": size, "classes": outputs, "width": self.width}


RECIPES: dict[str, type[Recipe]] = {
    kind.name: kind for kind in (MLPRecipe, CelebARecipe)
}


def section_of(model: Model) -> Mapping[str, object]:
    """Return [model] of a run file that asks for this model again.

    The file does not name the `device`: it may run elsewhere.
    """
    described = model.describe()
    if described.get("kind") != "network":
        return described
    architecture: Any = described["architecture"]
    kind = RECIPES.get(architecture["name"])
    if kind is None:
        raise UsageError(
            "own-module:section-of",
            class_=architecture.get("class"),
            recipes=", ".join(RECIPES),
        )
    known = {**described, **architecture}
    names = [field.name for field in fields(kind) if field.name in known]
    return {"kind": kind.name, **{name: known[name] for name in names}}
