"""A cheap look at which values could be grids, so that shapes are inferred only for models that may hold one.

It reads what the model declares, and where it declares nothing carries on what dims are plain to see. It never decides
that something is a grid; what it rules out is not looked at.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.evaluator import entry
from rewriter.graphs import constant_integers

KEEPS_SHAPE = frozenset({"Add", "Cast", "CastLike", "Div", "Identity", "Mul", "Neg", "Sub", "Sum"})
OPEN = object()  # nothing is known
OTHER = object()  # made by an operator that is not linear: whatever its shape, no grid by itself
Dims = object  # a tuple of int | None, or one of the two


def plausible(graph: ir.Graph) -> set[ir.Value]:
    """The values of a graph that may be [N, H, W, 2] or [N, D, H, W, 3]."""
    dims: dict[ir.Value, Dims] = {}
    found: set[ir.Value] = set()
    for node in graph:
        for value in node.outputs:
            known = _declared(value)
            dims[value] = known if known is not None and known[-1] is not None else _made(node, dims)
            if _fits(dims[value]):
                found.add(value)
    return found


def _declared(value: ir.Value) -> Dims | None:
    """What the model says; some tools declare every tensor they do not know as a scalar."""
    return tuple(d if isinstance(d, int) else None for d in value.shape) if value.shape else None


def _fits(dims: Dims) -> bool:
    if not isinstance(dims, tuple):
        return dims is OPEN
    rank = len(dims) - 2
    return rank in (2, 3) and dims[-1] in (rank, None)


def _made(node: ir.Node, dims: dict[ir.Value, Dims]) -> Dims:
    """What the operator tells of its first result."""
    if node.domain != "" or (node.op_type != "If" and entry(node) is None):
        return OPEN if node.op_type == "FusedMatMul" else OTHER
    given = [dims[v] if v in dims else _declared(v) or OPEN for v in node.inputs if v is not None]
    if node.op_type in KEEPS_SHAPE:
        return _broadcast(given)
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm")
        perm = None if perm is None or perm.is_ref() else perm.value
        if not perm or not isinstance(given[0], tuple):
            return given[0]
        return tuple(given[0][axis] for axis in perm) if len(perm) == len(given[0]) else OTHER
    if node.op_type == "Slice" and not isinstance(given[0], tuple):
        return given[0]
    if node.op_type == "Reshape" and len(node.inputs) > 1:
        target = constant_integers(node.inputs[1])
        return OPEN if target is None else tuple(d if d > 0 else None for d in target)
    if node.op_type == "MatMul" and isinstance(given[1], tuple) and given[1][-1:] not in ((2,), (3,), (None,)):
        return OTHER  # its last dim is another
    return OPEN


def _broadcast(given: list[Dims]) -> Dims:
    if OPEN in given:
        return OPEN
    if OTHER in given or not given:
        return OTHER
    rank = max(len(dims) for dims in given)
    columns = zip(*((1,) * (rank - len(dims)) + dims for dims in given))
    return tuple(next((d for d in column if d not in (1, None)), None if None in column else 1) for column in columns)
