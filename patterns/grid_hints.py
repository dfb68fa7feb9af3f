"""A cheap look at which values could be grids, so that shapes are inferred only for models that may hold one.

It reads what the model declares, and where it declares nothing the constants beside an operator. It never decides that
something is a grid; what it rules out is not looked at.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.evaluator import entry

KEEPS_SHAPE = frozenset({"Add", "Cast", "CastLike", "Div", "Identity", "Mul", "Neg", "Sub", "Sum"})


def plausible(graph: ir.Graph) -> set[ir.Value]:
    """The values of a graph that may be [N, H, W, 2] or [N, D, H, W, 3]."""
    found = {v for v in graph.inputs if _declared(v.shape, True)}
    for node in graph:
        if node.domain == "" and node.op_type != "If" and entry(node) is None:
            continue
        found.update(v for v in node.outputs if _declared(v.shape, _by_operands(node, found)))
    return found


def _declared(shape: ir.Shape | None, otherwise: bool) -> bool:
    if not shape:  # some tools declare every tensor they do not know as a scalar
        return otherwise
    rank = len(shape) - 2
    return rank in (2, 3) and (shape[-1] == rank or not isinstance(shape[-1], int))


def _by_operands(node: ir.Node, found: set[ir.Value]) -> bool:
    if node.op_type in KEEPS_SHAPE:
        return any(v in found for v in node.inputs)
    if node.op_type == "Reshape" and len(node.inputs) > 1:
        target = ir.convenience.get_const_tensor(node.inputs[1])
        return target is None or _declared(ir.Shape([d if d > 0 else None for d in target.numpy().tolist()]), True)
    if node.op_type == "MatMul":
        right = node.inputs[1].shape
        return not right or not isinstance(right[-1], int) or right[-1] in (2, 3)
    if node.op_type == "Transpose" and (perm := node.attributes.get("perm")) is not None:
        return len(perm.value) in (4, 5)
    return node.op_type not in ("Transpose", "Flatten", "Gemm")
