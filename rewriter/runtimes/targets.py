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

from rewriter.errors import UsageError
from rewriter.report import Report

PORTABLE, KERNELS = "portable", "kernels"
NAMES = (PORTABLE, KERNELS, "stock", "openvino", "tensorrt", "tensorrt-plugin")


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
        TargetError: the target cannot be given some node.
    """
    report.target = target
    if target in (PORTABLE, KERNELS):
        return
    from rewriter.engine import count_nodes
    from rewriter.functions import is_ours

    report.retargeted, report.needs = _writer(target)(model)
    if report.retargeted:
        report.functions = sorted(f.name for f in model.functions.values() if is_ours(f))
        report.nodes_after = count_nodes(model)


def _writer(target: str):
    """The function that writes `target`: takes a model, returns (nodes written, what else it needs)."""
    if target == "stock":
        from rewriter.runtimes.stock import inline_nodes

        return lambda model: (inline_nodes(model), [])
    if target == "openvino":
        from rewriter.runtimes.openvino import write_model

        return write_model
    from rewriter.runtimes.tensorrt import write_model

    return lambda model: write_model(model, plugins=target == "tensorrt-plugin")
