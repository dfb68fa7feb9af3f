"""TensorRT: files that its ONNX parser takes, and reads as they are meant. Never run by us: no machine here has a GPU.

What its parser does is taken from its published source (onnx-tensorrt 10.1 and what is quoted of 10.15):

- built-in importers, functions of the model and plugins are all looked up by op_type alone, whatever the domain. Which
  of function and plugin wins changed twice, so neither target leaves a function of ours: `tensorrt` writes stock
  operators, `tensorrt-plugin` writes nodes whose names nothing else has.
- GridSample's mode is read as "bilinear", "nearest" or "bicubic"; everything else, "linear" and "cubic" of opset 20
  included, is nearest, without a word. Left out it is bilinear, which ONNX means too; cubic has to be spelled
  "bicubic", which ONNX Runtime then refuses.
- GridSample takes four axes. AffineGrid has no importer. float64 is taken down to float32.

The form has no matrix product, see `elementwise`: TensorRT computes those in TF32 unless told otherwise. [Documented
default; its effect on a grid was not measured by us.]
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import onnx_ir as ir

from rewriter.builder import Builder
from rewriter.errors import TargetError
from rewriter.functions import is_ours, own_graphs
from rewriter.graphs import nested_nodes, onnx_opset
from rewriter.runtimes import elementwise
from rewriter.runtimes.stock import SINCE_20, UNTIL_19, calls_ours, inline_nodes
from rewriter.scopes import Scope
from rewriter.vocabulary import DOMAIN

NAMESPACE = "warpfuse"  # of the plugins, and the domain of their nodes
VERSION = "1"
PLUGINS = {"AffineGrid": "WarpfuseAffineGrid", "AffineGridSample": "WarpfuseAffineGridSample"}
NO_VOLUMES = "TensorRT's GridSample takes images only, not volumes; tensorrt-plugin has a plugin for constant sizes"


def write_model(model: ir.Model, *, plugins: bool) -> tuple[int, list[str]]:
    """Write a model for TensorRT, in place: our nodes, and how every GridSample spells its mode.

    Args:
        plugins: grids and samplers of constant size become plugin nodes.

    Returns:
        How many nodes were written otherwise, and what the engine build needs, one sentence each.

    Raises:
        TargetError: an AffineGridSample of a volume without a plugin.
    """
    needs: list[str] = []
    respelled, _ = _respell(model)
    written = inline_nodes(model, functools.partial(_form, plugins=plugins))
    _, refused = _respell(model)  # what was made just now is counted already
    used = sorted({node.op_type for node in _nodes(model) if node.domain == NAMESPACE})
    if used:
        model.opset_imports[NAMESPACE] = int(VERSION)
        for function in model.functions.values():
            if any(node.domain == NAMESPACE for node in nested_nodes(function.graph)):
                function.opset_imports[NAMESPACE] = int(VERSION)
        names = ", ".join(f"{NAMESPACE}::{name}" for name in used)
        needs.append(f"plugins registered before parsing: {names}, version {VERSION}; examples/tensorrt_plugin has "
                     "them in Python for TensorRT 10.7 and newer (not run)")
    if refused:
        needs.append(f"TensorRT itself: GridSample {', '.join(refused)} spells its mode \"bicubic\", which only its "
                     "parser reads at this opset")
    return written + respelled, needs + _build_needs(model)


def _nodes(model: ir.Model):
    for graph in own_graphs(model):
        yield from nested_nodes(graph)


def _form(node: ir.Node, builder: Builder, scope: Scope, *, plugins: bool) -> ir.Value:
    size = scope.constant(node.inputs[-1]) if node.op_type in PLUGINS else None
    if plugins and size is not None:
        return _plugin(node, builder, [int(n) for n in size])
    if node.op_type == "AffineGridSample" and elementwise.dims_of(node, scope) == 3:
        raise TargetError(f"AffineGridSample {node.name!r} in {scope.path}: {NO_VOLUMES}")
    return elementwise.form(node, builder, scope, wide_image=True)


def _plugin(node: ir.Node, builder: Builder, size: list[int]) -> ir.Value:
    """The plugin node: the size is an attribute, since Python plugins take no shape tensors; mode as TensorRT says."""
    kept = {name: node.attributes[name] for name in ("padding_mode", "align_corners", "grid_align_corners")
            if name in node.attributes}
    if "mode" in node.attributes:
        mode = node.attributes["mode"].as_string()
        kept["mode"] = ir.AttrString("mode", UNTIL_19.get(mode, mode))
    attributes = [*kept.values(), ir.AttrInt64s("size", size), ir.AttrString("plugin_version", VERSION),
                  ir.AttrString("plugin_namespace", NAMESPACE)]
    output = ir.Value(name=builder.name("y"))
    builder.nodes.append(ir.Node(NAMESPACE, PLUGINS[node.op_type], node.inputs[:-1], attributes, outputs=[output],
                                 name=builder.name(PLUGINS[node.op_type])))
    return output


def _respell(model: ir.Model) -> tuple[int, list[str]]:
    """Make every GridSample mean the same to TensorRT.

    Returns:
        How many changed, and the names of those that only TensorRT reads so.
    """
    changed, refused = 0, []
    for node, mode in _modes_since_20(model):
        if mode == "linear":
            del node.attributes["mode"]
            changed += 1
        elif mode == "cubic":
            node.attributes["mode"] = ir.AttrString("mode", "bicubic")
            changed += 1
        if mode in ("cubic", "bicubic"):
            refused.append(node.name or "")
    return changed, refused


def respell_for_onnx(model: ir.Model) -> int:
    """Undo "bicubic" at opset 20 and newer, in place: to ONNX it is no mode. Returns how many nodes changed."""
    found = [node for node, mode in _modes_since_20(model) if mode == "bicubic"]
    for node in found:
        node.attributes["mode"] = ir.AttrString("mode", SINCE_20["bicubic"])
    return len(found)


def plugin_nodes(model: ir.Model) -> list[ir.Node]:
    """The nodes that nothing but TensorRT with our plugins runs."""
    return [node for node in _nodes(model) if node.domain == NAMESPACE and node.op_type in PLUGINS.values()]


def _modes_since_20(model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
    """Every GridSample of opset 20 or newer that has a mode of its own, and the mode."""
    for graph in own_graphs(model):
        opset = onnx_opset(graph.opset_imports) or onnx_opset(model.opset_imports)
        for node in nested_nodes(graph):
            attribute = node.attributes.get("mode")
            if (node.domain, node.op_type) == ("", "GridSample") and opset >= 20 and not (
                    attribute is None or attribute.is_ref()):
                yield node, attribute.as_string()


def _build_needs(model: ir.Model) -> list[str]:
    """What the model itself asks of a build."""
    needs = []
    open_inputs = [value.name for value in model.graph.inputs
                   if value.shape is None or not all(isinstance(d, int) for d in value.shape)]
    if open_inputs:
        names = ", ".join(open_inputs)
        needs.append(f"an optimization profile (trtexec --minShapes --optShapes --maxShapes) for {names}")
    sizes = [value.name for value in model.graph.inputs if value.dtype in (ir.DataType.INT64, ir.DataType.INT32)
             and any(use.node.op_type in ("Gather", "Slice", "Concat", "Cast") for use in value.uses())]
    if sizes:
        needs.append(f"where {', '.join(sizes)} is a size: shape tensor values in that profile")
    volumes = [node.name or "" for node in _nodes(model) if node.op_type == "GridSample" and not node.domain
               and _rank(node) == 5]
    if volumes:
        needs.append(f"a plugin of your own for GridSample {', '.join(volumes)}: TensorRT's takes images only")
    strangers = sorted({f"{node.domain}::{node.op_type}" for node in _nodes(model)
                        if node.domain == DOMAIN and not calls_ours(node, model)
                        and node.op_identifier() not in model.functions})
    if strangers:
        needs.append(f"plugins for {', '.join(strangers)}, which are nodes of this model's own")
    if any(value.dtype == ir.DataType.DOUBLE for value in (*model.graph.inputs, *model.graph.outputs)):
        needs.append("a check of the values: TensorRT takes float64 down to float32")
    functions = [f.name for f in model.functions.values() if not is_ours(f)]
    if functions:
        needs.append(f"a look at the functions {', '.join(functions)}: TensorRT finds them by name alone, behind its "
                     "own operators")
    return needs


def _rank(node: ir.Node) -> int | None:
    shape = next((v.shape for v in (*node.inputs, *node.outputs) if v is not None and v.shape is not None), None)
    return None if shape is None else len(shape)
