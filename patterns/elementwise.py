"""Nodes that treat every element alike: a flip or a Transpose may be done before or behind them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.evaluator import Kind, kind
from rewriter.scopes import Scope
from rewriter.slices import FLOATS

# One operand, and results that IEEE 754 or the integers fix to the bit. Others (Exp, Log, Sin, Softplus, ...) commute
# with a movement too, but runtimes compute an element in the vector body and in the tail of a loop differently.
UNARY = frozenset({"Abs", "BitwiseNot", "Cast", "Ceil", "Floor", "IsInf", "IsNaN", "LeakyRelu", "Neg", "Not",
                   "Reciprocal", "Relu", "Round", "Sign", "Sqrt", "ThresholdedRelu"})
# As exact, where all operands but one are constant scalars.
WITH_SCALARS = frozenset({"Add", "And", "Clip", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
                          "Max", "Min", "Mul", "Or", "PRelu", "Sub", "Xor"})
QUANTIZING = frozenset({"QuantizeLinear", "DequantizeLinear"})  # scalars only: one of one element belongs to an axis
ELEMENTWISE = UNARY | WITH_SCALARS | QUANTIZING
UNSIGNED = frozenset({ir.DataType.UINT32, ir.DataType.UINT64})


def element_source(node: ir.Node, scope: Scope) -> ir.Value | None:
    """The operand whose elements a node maps one by one, if it does so whatever their place."""
    if node.op_type not in ELEMENTWISE or len(node.outputs) != 1:
        return None
    operands = [value for value in node.inputs if value is not None]
    if node.op_type == "Cast" and scope.dtype(node.outputs[0]) in UNSIGNED and scope.dtype(operands[0]) in FLOATS:
        return None  # out of range, runtimes give what the lane of the vector happens to give
    if node.op_type in UNARY:
        return operands[0]
    if node.op_type == "Clip" and len(operands) == 1:
        return operands[0]  # until opset 10 its bounds are attributes
    sources = [value for value in operands if kind(value, scope) is not Kind.CONSTANT]
    if len(sources) != 1 or (node.op_type in QUANTIZING | {"Clip", "PRelu"} and sources[0] is not operands[0]):
        return None
    scalars = [value for value in operands if value is not sources[0]]
    if any(scope.shape(value) != () for value in scalars):
        return None
    if node.op_type in ("Max", "Min") and not all(np.all(scope.constant(value)) for value in scalars):
        return None  # which of two zeros it is depends on the place
    return sources[0]
