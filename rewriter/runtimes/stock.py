"""Fused models back in stock operators: every node of ours gives way to the best stock form of it alone.

`rewriter.inline` and `--target stock` write each node's function out as it would be generated for this one use, and
fold what is constant; the other targets bring a form of their own. Only functions of ours are touched: what else a
model has in `custom.ops`, or as a function, stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import onnx_ir as ir

from rewriter.builder import Builder, Names
from rewriter.engine import all_names
from rewriter.functions import is_ours, own_graphs
from rewriter.graphs import bodies, nested_nodes
from rewriter.scopes import Facts, Scope, scopes
from rewriter.vocabulary import DOMAIN

LARGEST_CONSTANT = 1 << 20  # bytes; what folds to more is left to the runtime
DEFAULTS: dict[str, dict[str, object]] = {
    "AffineGrid": {"align_corners": 0},
    "AffineGridSample": {"mode": "linear", "padding_mode": "zeros", "align_corners": 0, "grid_align_corners": 0},
    "Rot90": {"k": 1, "axes": (0, 1)},
    "CustomRotScale": {"rotations": 1, "scale_factor": 1.0, "dims": "height,width"},
}
SINCE_20 = {"bilinear": "linear", "bicubic": "cubic"}
UNTIL_19 = {new: old for old, new in SINCE_20.items()}

Form = Callable[[ir.Node, Builder, Scope], "ir.Value | None"]


def inline_nodes(model: ir.Model, form: Form | None = None) -> int:
    """Replace every node that calls a function of ours, in all scopes of `model`, and drop those functions.

    Args:
        form: makes the nodes that take one node's place with the Builder it is given, and returns their result; None,
            or where it returns None, is the function written out. Every attribute is on the node it gets, the mode
            spelled as the opset around it has it.

    Returns:
        How many nodes were replaced.
    """
    facts, names, made, operands, count = Facts(model), Names(all_names(model)), set(), [], 0
    for scope in scopes(facts):
        for node in tuple(scope.graph):
            if calls_ours(node, model):
                complete(node, scope.opset)
                operands += node.inputs
                made.update(replace(node, scope, names, form))
                count += 1
    if count:
        _fold(model, made, names)
        _remove_unread(operands)
        drop_unused(model)
    return count


def calls_ours(node: ir.Node, model: ir.Model) -> bool:
    function = model.functions.get(node.op_identifier()) if node.domain == DOMAIN else None
    return function is not None and is_ours(function)


def complete(node: ir.Node, opset: int) -> None:
    """Write the defaults of what is left out on a node of ours, and its mode as `ai.onnx` `opset` spells it."""
    for name, value in DEFAULTS.get(node.op_type, {}).items():
        if name not in node.attributes:
            node.attributes[name] = ir.convenience.convert_attribute(name, value)
    if "mode" in node.attributes:
        mode = node.attributes["mode"].as_string()
        node.attributes["mode"] = ir.AttrString("mode", (SINCE_20 if opset >= 20 else UNTIL_19).get(mode, mode))


def replace(node: ir.Node, scope: Scope, names: Names, form: Form | None) -> list[ir.Node]:
    """Put stock nodes in the place of one of ours; they inherit its metadata, its result keeps name, type and shape."""
    builder = Builder(names, node.name or node.op_type, scope)
    value = form(node, builder, scope) if form is not None else None
    if value is None:
        value = written_out(node, builder, scope)
    if value.producer() not in builder.nodes:  # nothing was left to compute
        value = builder.op("Identity", [value])
    old = node.outputs[0]
    for new in builder.nodes:
        new.metadata_props.update(node.metadata_props)
        new.doc_string = new.doc_string or node.doc_string
    scope.graph.insert_after(node, builder.nodes)
    value.type, value.shape, value.doc_string = old.type, old.shape, old.doc_string
    value.metadata_props.update(old.metadata_props)
    old.replace_all_uses_with(value, replace_graph_outputs=True)
    name, old.name = old.name, builder.name("replaced")
    value.name = name
    scope.facts.shapes.adopt(value, like=old)
    scope.graph.remove(node, safe=True)
    return builder.nodes


def written_out(node: ir.Node, builder: Builder, scope: Scope) -> ir.Value:
    """The body of the node's function, generated for this node alone where its operator is known."""
    from patterns.operators import OPERATORS

    function = scope.facts.model.functions[node.op_identifier()]
    if node.op_type in OPERATORS:
        _declare(node, scope)
        try:
            proto = OPERATORS[node.op_type].define([node], scope.opset)
            function = ir.serde.deserialize_function(proto)
        except ValueError:  # a rank was lost on the way; the model's own function needs none
            pass
    values: dict[ir.Value | None, ir.Value | None] = {None: None, **dict(zip(function.inputs, node.inputs))}
    for inner in function:
        outputs = [ir.Value(name=builder.name(value.name)) for value in inner.outputs]
        builder.nodes.append(ir.Node(
            inner.domain, inner.op_type, [values[value] for value in inner.inputs],
            attributes=[a for a in (_resolved(a, node, function) for a in inner.attributes.values()) if a is not None],
            outputs=outputs, name=builder.name(inner.op_type)))
        values.update(zip(inner.outputs, outputs))
    return values[function.outputs[0]]


def _declare(node: ir.Node, scope: Scope) -> None:
    """Write the dtypes and shapes that are known of a node's operands on them, where a generator looks for them."""
    for value in (*node.inputs, *node.outputs):
        if value is None:
            continue
        if value.dtype is None and (dtype := scope.dtype(value)) is not None:
            value.dtype = dtype
        if value.shape is None and (shape := scope.shape(value)) is not None and not scope.path.startswith("function"):
            value.shape = ir.Shape([d if isinstance(d, int) else None for d in shape])


def _resolved(attribute: ir.Attr, node: ir.Node, function: ir.Function) -> ir.Attr | None:
    """The attribute, a reference replaced by what the node gives, or else the function's default; None without one."""
    if not attribute.is_ref():
        return attribute
    name = attribute.ref_attr_name
    given = node.attributes.get(name) or function.attributes.get(name)
    return None if given is None or given.value is None else ir.Attr(attribute.name, given.type, given.value)


def _fold(model: ir.Model, made: set[ir.Node], names: Names) -> None:
    """Replace what is constant among the nodes that were made by Constants; remove what nothing reads then."""
    facts = Facts(model)
    for scope in scopes(facts):
        nodes = [node for node in scope.graph if node in made]
        folded: dict[ir.Value, np.ndarray] = {}
        for node in nodes:
            if node.op_type == "Constant":
                continue
            arrays = [scope.constant(value) for value in node.outputs]
            if all(array is not None and array.nbytes <= LARGEST_CONSTANT for array in arrays):
                folded.update(zip(node.outputs, arrays))
        for value, array in folded.items():
            if value.is_graph_output() or any(not _gone(use.node, folded) for use in value.uses()):
                _put_constant(value, array, scope, names)
        _sweep(nodes)


def _gone(node: ir.Node, folded: Collection[ir.Value]) -> bool:
    return all(value in folded for value in node.outputs)


def _put_constant(value: ir.Value, array: np.ndarray, scope: Scope, names: Names) -> None:
    producer = value.producer()
    tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape))
    output = ir.Value(name=value.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape),
                      const_value=tensor)
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[output],
                   name=names.fresh(f"{producer.name}/Constant"), metadata_props=dict(producer.metadata_props))
    output.metadata_props.update(value.metadata_props)
    scope.graph.insert_after(producer, [node])
    value.replace_all_uses_with(output, replace_graph_outputs=True)
    value.name = names.fresh(f"{value.name}/folded")


def _sweep(nodes: list[ir.Node]) -> None:
    for node in reversed(nodes):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            node.graph.remove(node, safe=True)


def _remove_unread(values: list[ir.Value | None]) -> None:
    """Remove what only made operands that nothing reads now: a size that went into constants, and its initializer."""
    while values:
        value = values.pop()
        if value is None or value.uses() or value.is_graph_output() or value.is_graph_input():
            continue
        node, home = value.producer(), value.graph
        if node is None and home is not None:
            home.initializers.pop(value.name, None)
        elif node is not None and node.graph is not None and not bodies(node) and not any(
                output.uses() or output.is_graph_output() for output in node.outputs):
            values += node.inputs
            node.graph.remove(node, safe=True)


def drop_unused(model: ir.Model) -> None:
    """Remove functions of ours that nothing calls, and imports of `custom.ops` where nothing of it is left."""
    used = {node.op_identifier() for graph in own_graphs(model) for node in nested_nodes(graph)}
    for function in list(model.functions.values()):
        if is_ours(function) and function.identifier() not in used:
            del model.functions[function.identifier()]
    owners = [(model.graph, model.opset_imports), *((f.graph, f.opset_imports) for f in model.functions.values())]
    still = any(function.domain == DOMAIN for function in model.functions.values())
    for graph, imports in reversed(owners):
        here = any(node.domain == DOMAIN for node in nested_nodes(graph))
        still = still or here
        if DOMAIN in imports and not (here or (graph is model.graph and still)):
            del imports[DOMAIN]
