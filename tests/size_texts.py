"""Arithmetic on the sizes of an image, written as text."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from rewriter.scopes import Facts, scopes

HEAD = '<ir_version: 9, opset_import: ["" : 18, "other" : 1]>\n'
CONSTANTS = "<int64[1] zero = {0}, int64[1] two = {2}, int64[1] last = {3}, int64[1] eight = {8}, int64[1] edge = {%d}>"


def parsed(text):
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text))
    scope = next(scopes(Facts(model)))
    return scope, {v.name: v for v in (*model.graph.inputs, *(o for n in model.graph for o in n.outputs))}


def size_arithmetic(lines, edge=20, inputs="float[N, C, H, W] x"):
    return parsed(f"""g ({inputs}) => (float[a] y) {CONSTANTS % edge} {{
        shape = Shape(x)
        n = Gather(shape, zero)
        h = Gather(shape, two)
        w = Gather(shape, last)
        {lines}
        y = Identity(x)
    }}""")
POSITIONS = "s = Squeeze(w)\n o = Constant<value_int = 0>()\n i = Constant<value_int = 1>()\n line = Range(o, s, i)\n"
