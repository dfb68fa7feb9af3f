"""Nodes that already bear the name of an operator of ours, but that no runtime knows, get its function.

What it finds
    `custom.ops` nodes without a function: what torch's exporters write for a custom operator of that name, or what is
    left of a fused model when another tool has dropped its functions; and such whose functions another tool has left as
    they were while it changed dtypes or the opset. CustomRotScale in the default domain, with its
    three attributes. PyTorch's own affine_grid_generator, as the TorchScript exporter's ATen fallback writes it
    (org.pytorch.aten::ATen, or an operator of that name).
Why
    ONNX Runtime does not load such a model unless a library registers the operator. With the function it runs
    everywhere, and the kernels still win over it.
Before -> after
    custom.ops::AffineGrid(theta, size)                     ->  the same, all attributes written, and the function
    CustomRotScale(x, rotations, scale_factor, dims)        ->  custom.ops::CustomRotScale(x, ..)
    ATen<operator = "affine_grid_generator">(theta, size, a)  ->  AffineGrid(theta, size), align_corners = a
When it declines
    Operands or attributes that do not fit the operator's contract: then the name means something else here. As a name
    has one function in a model, one such node keeps all of that name as they are. A function of somebody else's under
    that name. Attributes that a function's callers choose.
Opsets and runtimes
    Opset 11 and newer, AffineGridSample 16; any runtime with model-local functions, or the kernels.
"""

from __future__ import annotations

import onnx_ir as ir

from patterns import contracts
from patterns.contracts import Call, UnfitError
from patterns.operators.affine_grid import AFFINE_GRID
from patterns.operators.affine_grid_sample import AFFINE_GRID_SAMPLE
from patterns.operators.rot90 import CUSTOM_ROT_SCALE, ROT90
from rewriter.builder import Builder
from rewriter.functions import is_ours
from rewriter.graphs import onnx_opset
from rewriter.scopes import Scope, scopes
from rewriter.vocabulary import DOMAIN, Match, Miss

ATEN, GENERATOR = "org.pytorch.aten", "affine_grid_generator"
ROT_SCALE_ATTRIBUTES = {"rotations": ir.AttributeType.INT, "scale_factor": ir.AttributeType.FLOAT,
                        "dims": ir.AttributeType.STRING}
OWN = {AFFINE_GRID.name: contracts.affine_grid, AFFINE_GRID_SAMPLE.name: contracts.affine_grid_sample,
       ROT90.name: contracts.rot90, CUSTOM_ROT_SCALE.name: contracts.rot_scale}


class AdoptPattern:
    name = "adopt"
    anchors = frozenset({*(f"{DOMAIN}::{name}" for name in OWN), CUSTOM_ROT_SCALE.name, f"{ATEN}::ATen",
                         f"{ATEN}::{GENERATOR}"})
    operators = (AFFINE_GRID, AFFINE_GRID_SAMPLE, ROT90, CUSTOM_ROT_SCALE)
    needs = ()

    def match(self, node: ir.Node, scope: Scope) -> Match | Miss | None:
        if node.domain != DOMAIN and not _is_meant(node):
            return None
        function = scope.facts.model.functions.get(node.op_identifier())
        if function is not None and is_ours(function):
            return self._renewed(node, function, scope)
        if function is not None:
            return Miss(f"the model defines {node.domain or 'ai.onnx'}::{node.op_type} itself",
                        node.outputs[0].name or "")
        try:
            call = _read(node, scope)
        except UnfitError as unfit:
            return Miss(f"it is no {_operator(node)} of {DOMAIN}: {unfit}", unfit.tensor or node.outputs[0].name or "")
        if node.domain == DOMAIN and (reason := _misfit(node, scope)) is not None:
            return Miss(reason, node.outputs[0].name or "")
        what = {DOMAIN: "a node without a function", ATEN: "PyTorch's affine_grid_generator"}
        return _match(node, call, what.get(node.domain, "a node of the default domain"))

    def _renewed(self, node: ir.Node, function: ir.Function, scope: Scope) -> Match | Miss | None:
        """A node whose function was made for something else than the model has become."""
        opset = onnx_opset(function.opset_imports)
        if not _is_stale(node, scope) and opset == onnx_opset(scope.facts.model.opset_imports):
            return None
        try:
            return _match(node, _read(node, scope), "a node whose function was made for another dtype or opset")
        except UnfitError as unfit:
            return Miss(f"its function was made for something else, and it is no {node.op_type} of {DOMAIN}: {unfit}",
                        unfit.tensor or node.outputs[0].name or "")


def _match(node: ir.Node, call: Call, note: str) -> Match | Miss:
    output = node.outputs[0]
    if output.dtype not in (None, call.dtype):
        return Miss(f"its output is declared as {output.dtype}, and it makes {call.dtype}", output.name or "")
    return Match(node.outputs[0], lambda builder: _build(builder, call, node), [node], call.operator.name, note)


def _is_stale(node: ir.Node, scope: Scope) -> bool:
    """Whether the function was made for another dtype: where none is written on the node it was float32."""
    dtype = scope.dtype(node.inputs[0]) if node.inputs else None
    if dtype is None or node.op_type == ROT90.name:
        return False
    written = node.attributes.get("dtype")
    return dtype != (ir.DataType.FLOAT if written is None else ir.DataType(written.as_int()))


def _is_meant(node: ir.Node) -> bool:
    """Whether a node of another domain means an operator of ours: its name alone tells little."""
    if (node.domain, node.op_type) == (ATEN, "ATen"):
        names = [node.attributes.get(name) for name in ("operator", "overload_name")]
        operator, overload = (given.as_string() if given is not None and given.type == ir.AttributeType.STRING
                              and not given.is_ref() else "" for given in names)
        return operator == GENERATOR and overload in ("", "default")
    given = {name: attribute.type for name, attribute in node.attributes.items()}
    return node.domain == ATEN or given == ROT_SCALE_ATTRIBUTES


def _operator(node: ir.Node) -> str:
    return AFFINE_GRID.name if node.domain == ATEN else node.op_type


def _read(node: ir.Node, scope: Scope) -> Call:
    """The call that a node stands for.

    Raises:
        UnfitError: it fits no contract.
    """
    return _aten(node, scope) if node.domain == ATEN else OWN[node.op_type](node, scope)


def _aten(node: ir.Node, scope: Scope) -> Call:
    """affine_grid_generator(theta, size, align_corners), the last as an operand or an attribute."""
    if "align_corners" in node.attributes:
        theta, size = contracts.operands(node, 2)
        return contracts.grid_call(theta, size, contracts.flag(node, "align_corners"), scope)
    theta, size, corners = contracts.operands(node, 3)
    known = scope.constant(corners)
    if known is None or known.size != 1:
        raise UnfitError("align_corners is not constant", corners)
    return contracts.grid_call(theta, size, int(bool(known.item())), scope)


def _misfit(node: ir.Node, scope: Scope) -> str | None:
    """Why another node of that name, anywhere in the model, stays what it is."""
    found = scope.memo("misfits", dict)
    if node.op_type not in found:
        found[node.op_type] = _find_misfit(node, scope)
    return found[node.op_type]


def _find_misfit(node: ir.Node, scope: Scope) -> str | None:
    for place in scopes(scope.facts):
        for other in place.graph:
            if (other.domain, other.op_type) != (DOMAIN, node.op_type):
                continue
            try:
                call = _read(other, place)
            except UnfitError as unfit:
                return (f"another node of that name, {other.name or other.outputs[0].name}, is no {node.op_type} of "
                        f"{DOMAIN}: {unfit}")
            if (reason := place.refusal(call.operator)) is not None:
                return reason
    return None


def _build(builder: Builder, call: Call, node: ir.Node) -> ir.Value:
    if call.operator is ROT90 and call.attributes["k"] == 0:
        return call.inputs[0]
    value = call.build(builder)
    value.producer().name = node.name or value.producer().name  # it goes, and the name is free
    return value
