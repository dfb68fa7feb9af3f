"""Nodes that `--target tensorrt-plugin` wrote become operators of ours again, for other runtimes than that.

What it finds
    warpfuse::WarpfuseAffineGrid and WarpfuseAffineGridSample, with the size as an attribute.
Why
    Nothing but TensorRT with those plugins runs them.
Before -> after
    WarpfuseAffineGrid(theta), size = [N, C, H, W]  ->  AffineGrid(theta, [N, C, H, W])
When it declines
    Another version of the plugin, further attributes; operands or attributes that do not fit the operator's contract.
Opsets and runtimes
    As what they become. The target tensorrt-plugin leaves them as they are.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from patterns import contracts
from patterns.contracts import Call, UnfitError
from patterns.operators.affine_grid import AFFINE_GRID
from patterns.operators.affine_grid_sample import AFFINE_GRID_SAMPLE
from rewriter.builder import Builder
from rewriter.runtimes.tensorrt import NAMESPACE, PLUGINS, VERSION
from rewriter.scopes import Scope
from rewriter.vocabulary import Match, Miss

WRITTEN = frozenset({"align_corners", "grid_align_corners", "mode", "padding_mode", "size", "plugin_namespace",
                     "plugin_version"})
OPERATORS = {PLUGINS[operator.name]: operator for operator in (AFFINE_GRID, AFFINE_GRID_SAMPLE)}


class PluginNodesPattern:
    name = "plugin_nodes"
    anchors = frozenset(f"{NAMESPACE}::{name}" for name in OPERATORS)
    operators = (AFFINE_GRID, AFFINE_GRID_SAMPLE)
    needs = ()

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None:
        try:
            call = _read(node, scope)
        except UnfitError as unfit:
            return Miss(f"it is no {node.op_type} as tensorrt-plugin writes it: {unfit}",
                        unfit.tensor or node.outputs[0].name or "")

        def build(builder: Builder) -> ir.Value:
            size = builder.constant(call.inputs[-1].const_value.numpy(), "size")
            value = builder.custom(call.operator.name, [*call.inputs[:-1], size], dtype=call.dtype, shape=call.shape,
                                   **call.attributes)
            value.producer().name = node.name or value.producer().name  # it goes, and the name is free
            return value

        return Match(node.outputs[0], build, [node], call.operator.name, "a node of TensorRT's plugin")


def _read(node: ir.Node, scope: Scope) -> Call:
    """The call that a node stands for, its size a value that is in no graph yet.

    Raises:
        UnfitError: it is not what tensorrt-plugin writes.
    """
    for name, wanted in (("plugin_version", VERSION), ("plugin_namespace", NAMESPACE)):
        if (given := contracts.attribute(node, name, "")) != wanted:
            raise UnfitError(f"{name} is {given!r}, not {wanted!r}")
    if strange := sorted(node.attributes.keys() - WRITTEN):
        raise UnfitError(f"it has an attribute {strange[0]}")
    tensor = ir.Tensor(np.array(contracts.attribute(node, "size", [0]), np.int64))
    size = ir.Value(name="size", type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor)
    scope.facts.shapes.adopt(size)
    if OPERATORS[node.op_type] is AFFINE_GRID:
        (theta,) = contracts.operands(node, 1)
        return contracts.grid_call(theta, size, contracts.flag(node, "align_corners"), scope)
    image, theta = contracts.operands(node, 2)
    return contracts.sample_call(image, theta, size, node, scope)
