"""The targets of `--target`: what a fused model is written for.

portable          functions in the model, as the engine leaves it: a kernel or the function runs
kernels           as portable, and fused as well is what pays only where ONNX Runtime has our kernels registered
stock             no function of ours left: the best stock form in ONNX Runtime, for runtimes without local functions
openvino          the same in OpenVINO's best form; the file needs nothing
tensorrt          stock operators that TensorRT's parser takes and reads rightly; the engine build needs nothing
tensorrt-plugin   grids and samplers of constant size as plugin nodes, the rest as for tensorrt
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.errors import TargetError, UsageError
from rewriter.report import Report

PORTABLE, KERNELS, TENSORRT_PLUGIN = "portable", "kernels", "tensorrt-plugin"
NAMES = (PORTABLE, KERNELS, "stock", "openvino", "tensorrt", TENSORRT_PLUGIN)


def check(target: str) -> None:
    """Refuse a target that there is not.

    Raises:
        UsageError: naming those there are.
    """
    if target not in NAMES:
        raise UsageError(f"no target is named {target!r}; there are {', '.join(NAMES)}")


def write(model: ir.Model, target: str, report: Report) -> None:
    """Write a model that the engine has run over for a target, in place, and note in the report what that took.

    Raises:
        UsageError: there is no such target.
        TargetError: it cannot be given some node.
    """
    check(target)
    from rewriter.engine import count_nodes
    from rewriter.functions import is_ours
    from rewriter.runtimes.tensorrt import plugin_nodes, respell_for_onnx

    report.target = target
    if not target.startswith("tensorrt"):
        report.retargeted = respell_for_onnx(model)
    if target in (PORTABLE, KERNELS):
        return
    if target != TENSORRT_PLUGIN:
        _refuse(plugin_nodes(model), target, report)
    written, report.needs = _writer(target)(model)
    report.retargeted += written
    if report.retargeted:
        report.functions = sorted(f.name for f in model.functions.values() if is_ours(f))
        report.nodes_after = count_nodes(model)


def _refuse(nodes: list[ir.Node], target: str, report: Report) -> None:
    """Refuse plugin nodes that the patterns have left."""
    for node in nodes:
        why = next((miss.reason for miss in report.missed if (miss.op_type, miss.node) == (node.op_type, node.name)),
                   "the pattern plugin_nodes was not run")
        raise TargetError(f"{node.op_type} {node.name!r} is for a plugin of TensorRT, which {target} has not: {why}")


def _writer(target: str):
    """The function that writes `target`: takes a model, returns (nodes written, what else it needs)."""
    if target == "stock":
        from rewriter.runtimes.stock import inline_nodes

        return lambda model: (inline_nodes(model), [])
    if target == "openvino":
        from rewriter.runtimes.openvino import write_model

        return write_model
    from rewriter.runtimes.tensorrt import write_model

    return lambda model: write_model(model, plugins=target == TENSORRT_PLUGIN)
