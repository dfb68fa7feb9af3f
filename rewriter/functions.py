"""The functions a fused model carries, so that runtimes without our kernels execute it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from rewriter.graphs import nested_nodes, onnx_opset
from rewriter.vocabulary import DOMAIN, DOMAIN_VERSION, Operator

MARK = "onnx-warpfuse"  # in the doc string of every function of ours
FIRST_IR_WITH_FUNCTIONS = 8


def is_ours(function: ir.Function) -> bool:
    return function.domain == DOMAIN and MARK in (function.doc_string or "")


def own_graphs(model: ir.Model) -> list[ir.Graph]:
    """The main graph and the bodies of the model's functions, those of ours left out."""
    return [model.graph, *(f.graph for f in model.functions.values() if not is_ours(f))]


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node in the order of the file, those of subgraphs and of the model's own functions included."""
    for graph in own_graphs(model):
        yield from nested_nodes(graph)


def attach(model: ir.Model, operators: Mapping[str, Operator]) -> list[str]:
    """Give the model one function for each operator of ours that it uses, generated for all its uses.

    Adds the opset import, and raises ir_version to 8 where it is lower (functions begin there). Returns their names.
    """
    uses: dict[str, list[ir.Node]] = {}
    for node in all_nodes(model):
        if node.domain == DOMAIN:
            uses.setdefault(node.op_type, []).append(node)
    for function in list(model.functions.values()):
        if is_ours(function) and function.name not in uses:
            del model.functions[function.identifier()]
    opset = onnx_opset(model.opset_imports)
    for name in sorted(uses.keys() & operators.keys()):
        function = ir.serde.deserialize_function(operators[name].define(uses[name], opset))
        model.functions[function.identifier()] = function
    if uses:
        model.opset_imports.setdefault(DOMAIN, DOMAIN_VERSION)
        for function in model.functions.values():
            if not is_ours(function) and any(node.domain == DOMAIN for node in function.all_nodes()):
                function.opset_imports.setdefault(DOMAIN, DOMAIN_VERSION)
        model.ir_version = max(model.ir_version, FIRST_IR_WITH_FUNCTIONS)
    return sorted(f.name for f in model.functions.values() if is_ours(f))
