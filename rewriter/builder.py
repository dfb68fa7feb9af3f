"""Making new nodes beside the ones they replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from rewriter.vocabulary import DOMAIN, DOMAIN_VERSION

if TYPE_CHECKING:
    from rewriter.scopes import Scope


class Names:
    """Fresh value and node names, unique over a whole model, the same on every run."""

    def __init__(self, taken: set[str]):
        self._taken = taken

    def fresh(self, wish: str) -> str:
        name, number = wish, 0
        while name in self._taken:
            number += 1
            name = f"{wish}_{number}"
        self._taken.add(name)
        return name


class Builder:
    """Collects the nodes of one replacement; the engine inserts them.

    Every method returns an `onnx_ir.Value`. An `ai.onnx` result has its first operand's dtype unless another is
    given; the dtype and shape of a `custom.ops` result are always given, since tools cannot infer them.
    """

    def __init__(self, names: Names, stem: str, scope: Scope):
        self.nodes: list[ir.Node] = []
        self._scope = scope
        self._names = names
        self._stem = stem

    def op(self, op_type: str, inputs: Sequence[ir.Value | None], *, dtype: ir.DataType | None = None,
           shape: ir.Shape | Sequence[int | str | None] | None = None, **attributes) -> ir.Value:
        """A node of `ai.onnx` with one output."""
        return self._node("", op_type, inputs, attributes, dtype or self.dtype(inputs[0]), shape)

    def custom(self, op_type: str, inputs: Sequence[ir.Value], *, dtype: ir.DataType,
               shape: ir.Shape | Sequence[int | str | None] | None, **attributes) -> ir.Value:
        """A node of `custom.ops`; write every attribute."""
        return self._node(DOMAIN, op_type, inputs, attributes, dtype, shape)

    def constant(self, array: np.ndarray, hint: str = "const") -> ir.Value:
        """A Constant node holding `array`."""
        tensor = ir.Tensor(array, name="")
        dtype = ir.DataType.from_numpy(array.dtype)
        value = self._node("", "Constant", [], {"value": tensor}, dtype, array.shape, hint)
        value.const_value = tensor
        return value

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        return self.op("Reshape", [value, self.constant(np.array(shape, np.int64), "shape")])

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        return self._scope.dtype(value) or value.dtype

    def name(self, hint: str) -> str:
        """A fresh name beside the replaced value's."""
        return self._names.fresh(f"{self._stem}/{hint}")

    def _node(self, domain, op_type, inputs, attributes, dtype, shape, hint=None) -> ir.Value:
        name = self.name(hint or op_type)
        if shape is not None and not isinstance(shape, ir.Shape):
            shape = ir.Shape(shape)
        output = ir.Value(name=name, type=ir.TensorType(dtype) if dtype is not None else None, shape=shape)
        node = ir.Node(
            domain, op_type, inputs,
            attributes=[_attribute(key, value) for key, value in attributes.items()],
            outputs=[output], name=name, version=DOMAIN_VERSION if domain else None,
        )
        self.nodes.append(node)
        return output


def _attribute(name: str, value) -> ir.Attr:
    """An attribute of the type its Python value suggests; an empty list is a list of ints."""
    if isinstance(value, ir.Attr):
        return value  # another node's: attributes do not change
    if isinstance(value, (list, tuple)) and not value:
        return ir.AttrInt64s(name, ())
    if isinstance(value, ir.TensorProtocol):
        return ir.AttrTensor(name, value)
    if isinstance(value, bool):
        return ir.AttrInt64(name, int(value))
    return ir.convenience.convert_attribute(name, value)
