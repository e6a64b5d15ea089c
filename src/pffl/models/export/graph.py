"""An ONNX graph as it is written: operators and constants, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

OPSETS = {"": 15, "ai.onnx.ml": 2}  # of 2021 and before: every runtime in use has them


class Graph:
    """Operators and constants; each has a name of its own that no column has."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, values: object) -> str:
        """Add numbers or texts, and return their name."""
        array, name = np.asarray(values), f"pffl/constant_{len(self.constants)}"
        if array.dtype.kind == "U":
            texts = [text.encode() for text in array.tolist()]
            made = helper.make_tensor(name, TensorProto.STRING, array.shape, texts)
        else:
            made = numpy_helper.from_array(np.ascontiguousarray(array), name)
        self.constants.append(made)
        return name

    def add(
        self, kind: str, *inputs: str | float, called: str = "", **given: Any
    ) -> str:
        """Add an operator, and return the name of what it yields.

        A number among the inputs becomes a constant.
        """
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        name = called or f"pffl/{kind.lower()}_{len(self.nodes)}"
        domain = "ai.onnx.ml" if kind == "LabelEncoder" else ""
        self.nodes.append(helper.make_node(kind, names, [name], domain=domain, **given))
        return name

    def cast(self, values: str, kind: int) -> str:
        """Add the same values in another type."""
        return self.add("Cast", values, to=kind)

    def vector(self, column: str, called: str = "") -> str:
        """Add the step from shape (rows, 1) to (rows,)."""
        return self.add("Squeeze", column, self.constant([1]), called=called)
