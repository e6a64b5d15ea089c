"""Networks as a run file names them: what the data decide is left to the data.

    [model]
    kind = "mlp"
    hidden = [64, 32]

The number of inputs and outputs, or the size of the pictures, comes from the schema.
Nothing here needs torch before `build`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, ClassVar, Literal

from pffl.data.schema import Schema
from pffl.errors import UsageError
from pffl.models.base import Model


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What all networks of a run file share; see `pffl.Network`.

    Parameters
    ----------
    l2, standardize, device
        As for `pffl.Network`.
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
        size = math.isqrt(schema.n_features // 3)
        if size * size * 3 != schema.n_features:
            raise UsageError(
                "[wrong-shape] celeba_cnn takes rows of size × size × 3 colours; "
                f"these data have {schema.n_features} inputs: use mlp"
            )
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
            f"[own-module] a run file cannot name '{architecture.get('class')}', a "
            f"module of your own: there are {', '.join(RECIPES)}"
        )
    known = {**described, **architecture}
    names = [field.name for field in fields(kind) if field.name in known]
    return {"kind": kind.name, **{name: known[name] for name in names}}
