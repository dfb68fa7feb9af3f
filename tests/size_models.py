"""Building grids whose size follows from arithmetic at run time, with what that arithmetic computes beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Sizes = tuple[int, int, int]  # the batch, height and width that a run is given
FUNCTIONS: dict[str, Callable] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Min": min, "Max": max,
    "Mod": lambda a, b: a % b, "Less": lambda a, b: a < b, "Greater": lambda a, b: a > b, "Equal": lambda a, b: a == b,
    "And": lambda a, b: a and b, "Or": lambda a, b: a or b, "Xor": lambda a, b: a != b}
SOURCES = ("image", "sliced", "pair", "narrow", "four", "scalars")
AXES = ("range", "float range", "late cast", "steps", "two-sided", "nonzero", "cumsum")
PLANES = ("expand", "broadcast", "tile", "pad", "constant of shape")
PRODUCTS = ("last", "first", "reduce", "einsum", "separable")


@dataclasses.dataclass(frozen=True)
class Scalar:
    """A value of the graph without dims, and what it is for given sizes."""

    name: str
    of: Callable[[Sizes], float]


class SizeSketch:
    """A graph under construction: a grid [N, H, W, 2] of theta [N, 2, 3]."""

    def __init__(self, opset: int, source: str):
        self.opset, self.source = opset, source
        self.nodes, self.initializers, self.constants = [], [], []
        self.inputs = [helper.make_tensor_value_info("theta", TensorProto.FLOAT, ["N", 2, 3])]

    def op(self, op_type, inputs, **attributes) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=f"n_{name}", **attributes))
        return name

    def const(self, array, dtype=np.int64) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(array, dtype), f"c_{len(self.initializers)}"))
        return self.initializers[-1].name

    # scalars

    def number(self, k: int) -> Scalar:
        self.constants.append(k)
        return Scalar(self.const(k), lambda _: k)

    def binary(self, op_type: str, a: Scalar, b: Scalar | int) -> Scalar:
        b = self.number(b) if isinstance(b, int) else b
        function = FUNCTIONS.get(op_type) or (lambda a, b: math.trunc(a / b))
        return Scalar(self.op(op_type, [a.name, b.name]), lambda s: function(a.of(s), b.of(s)))

    def rounded(self, op_type: str, a: Scalar, factor: float) -> Scalar:
        """An integer through floats: Floor, Ceil, or the Cast alone."""
        x = self.op("Mul", [self.floated(a), self.real(factor)])
        x = x if op_type == "Cast" else self.op(op_type, [x])
        function = math.ceil if op_type == "Ceil" else math.floor
        return Scalar(self.op("Cast", [x], to=TensorProto.INT64), lambda s: function(a.of(s) * factor))

    def clip(self, a: Scalar, low: int, high: int) -> Scalar:
        low, high = self.number(low), self.number(high)
        return Scalar(self.op("Clip", [a.name, low.name, high.name]),
                      lambda s: min(max(a.of(s), low.of(s)), high.of(s)))

    def where(self, condition: Scalar, a: Scalar, b: Scalar) -> Scalar:
        return Scalar(self.op("Where", [condition.name, a.name, b.name]),
                      lambda s: a.of(s) if condition.of(s) else b.of(s))

    def branch(self, condition: Scalar, a: Scalar, b: Scalar) -> Scalar:
        """As `where`, by an If whose branches take the values from outside."""
        bodies = {}
        for which, value in (("then_branch", a), ("else_branch", b)):
            out = f"{which}_{len(self.nodes)}"
            info = helper.make_tensor_value_info(out, TensorProto.INT64, [])
            bodies[which] = helper.make_graph([helper.make_node("Identity", [value.name], [out])], out, [], [info])
        return Scalar(self.op("If", [condition.name], **bodies), lambda s: a.of(s) if condition.of(s) else b.of(s))

    def floated(self, a: Scalar) -> str:
        return self.op("Cast", [a.name], to=TensorProto.FLOAT)

    def real(self, x: float) -> str:
        return self.const(x, np.float32)

    def raw_sizes(self) -> tuple[Scalar, Scalar, Scalar]:
        """Batch, height and width as the source gives them."""
        if self.source in ("image", "sliced"):
            self.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"]))
            shape, first = self.op("Shape", ["x"]), 2
        elif self.source == "scalars":
            names = "height", "width"
            self.inputs += [helper.make_tensor_value_info(name, TensorProto.INT64, []) for name in names]
        else:
            dtype = TensorProto.INT32 if self.source == "narrow" else TensorProto.INT64
            first = 2 if self.source == "four" else 0
            self.inputs.append(helper.make_tensor_value_info("size", dtype, [first + 2]))
            shape = "size" if self.source != "narrow" else self.op("Cast", ["size"], to=TensorProto.INT64)
        if self.source == "sliced":
            shape, first = self.op("Slice", [shape, self.const([2]), self.const([4]), self.const([0])]), 0
        batch = self.op("Gather", [self.op("Shape", ["theta"]), self.const(0)])
        if self.source != "scalars":
            names = [self.op("Gather", [shape, self.const(first + k)]) for k in (0, 1)]
        return (Scalar(batch, lambda s: s[0]), Scalar(names[0], lambda s: s[1]), Scalar(names[1], lambda s: s[2]))

    # grids

    def extents(self, *parts: Scalar | int) -> str:
        """A shape: scalars and integers."""
        one = self.const([1])
        pieces = [self.const([p]) if isinstance(p, int) else self.op("Reshape", [p.name, one]) for p in parts]
        return self.op("Concat", pieces, axis=0)

    def reshape(self, x: str, *parts: Scalar | int) -> str:
        return self.op("Reshape", [x, self.extents(*parts)])

    def indices(self, form: str, n: Scalar) -> str:
        """0, 1 ... n - 1 in float32."""
        if form == "float range":
            return self.op("Range", [self.real(0), self.floated(n), self.real(1)])
        if form in ("nonzero", "cumsum"):
            value = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
            ones = self.op("ConstantOfShape", [self.extents(n)], value=value)
            if form == "cumsum":
                return self.op("Sub", [self.op("CumSum", [ones, self.const(0)]), self.real(1)])
            line = self.op("Reshape", [self.op("Transpose", [self.op("NonZero", [ones])]), self.const([-1])])
        else:
            line = self.op("Range", [self.const(0), n.name, self.const(1)])
        return self.op("Cast", [line], to=TensorProto.FLOAT)

    def axis(self, form: str, n: Scalar, length: Scalar, corners: bool) -> str:
        """[n] coordinates as an axis of `length` has them."""
        i, two, one = self.indices(form, n), self.real(2), self.real(1)
        if form == "late cast":  # all in integers but the division
            line = self.op("Range", [self.const(0), n.name, self.const(1)])
            odd = self.op("Add", [self.op("Mul", [line, self.const(2)]), self.const(1)])
            top = self.op("Sub", [odd, length.name])
            bottom = self.binary("Sub", length, 1) if corners else length
            return self.op("Div", [self.op("Cast", [top], to=TensorProto.FLOAT), self.floated(bottom)])
        pixels = self.floated(length)
        span = self.op("Sub", [pixels, one]) if corners else pixels
        step = self.op("Div", [two, span])
        start = self.real(-1) if corners else self.op("Sub", [self.op("Div", [one, pixels]), one])
        if form == "steps":
            return self.op("Add", [start, self.op("Mul", [i, step])])
        if form == "two-sided":
            up = self.op("Add", [start, self.op("Mul", [i, step])])
            rest = self.op("Sub", [self.op("Sub", [self.floated(n), one]), i])
            down = self.op("Sub", [self.op("Neg", [start]), self.op("Mul", [rest, step])])
            half = self.op("Mul", [self.floated(n), self.real(0.5)])
            return self.op("Where", [self.op("Less", [i, half]), up, down])
        top = self.op("Mul", [i, two]) if corners else self.op("Add", [self.op("Mul", [i, two]), one])
        return self.op("Sub", [self.op("Div", [top, span]), one])

    def plane(self, form: str, x: str, y: str, h: Scalar, w: Scalar, unit: str) -> str:
        """[H, W, 3]: x, y and the unit."""
        row, column = self.reshape(x, 1, w, 1), self.reshape(y, h, 1, 1)
        if form == "pad":
            def widened(part, at):
                return self.op("Pad", [part, self.const([0, 0, at, 0, 0, 2 - at])])
            both = self.op("Add", [widened(row, 0), widened(column, 1)])
            return self.op("Add", [both, widened(self.op("Reshape", [unit, self.const([1, 1, 1])]), 2)])
        if form == "broadcast":
            zero = self.real(0)
            flat_x, flat_y = self.op("Mul", [row, zero]), self.op("Mul", [column, zero])
            grids = [self.op("Add", [row, flat_y]), self.op("Add", [flat_x, column])]
            ones = self.op("Add", [self.op("Mul", [grids[0], zero]), unit])
        elif form == "tile":
            grids = [self.op("Tile", [row, self.extents(h, 1, 1)]), self.op("Tile", [column, self.extents(1, w, 1)])]
            ones = self.op("Expand", [unit, self.extents(h, w, 1)])
        else:
            shape = self.extents(h, w, 1)
            grids = [self.op("Expand", [part, shape]) for part in (row, column)]
            ones = self.op("Expand", [unit, shape])
            if form == "constant of shape":
                value = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
                ones = self.op("Mul", [self.op("ConstantOfShape", [shape], value=value), unit])
        return self.op("Concat", [*grids, ones], axis=2)

    def product(self, form: str, plane: str, x: str, y: str, unit: str, n: Scalar | int, h: Scalar, w: Scalar) -> str:
        """The grid from the plane, or from its axes ("separable"); n, h, w are what it is reshaped to."""
        if form == "separable":
            grid = ""
            for k, part in enumerate((self.reshape(x, 1, 1, -1, 1), self.reshape(y, 1, -1, 1, 1), unit)):
                column = self.op("Gather", ["theta", self.const([k])], axis=2)
                term = self.op("Mul", [part, self.reshape(column, -1, 1, 1, 2)])
                grid = self.op("Add", [grid, term]) if grid else term
            return grid
        if form == "einsum":
            return self.op("Einsum", [plane, "theta"], equation="hwk,nok->nhwo")
        pixels = self.op("Reshape", [plane, self.const([1, -1, 3])])
        if form == "first":
            flat = self.op("MatMul", ["theta", self.op("Transpose", [pixels], perm=[0, 2, 1])])
            return self.op("Transpose", [self.reshape(flat, n, 2, h, w)], perm=[0, 2, 3, 1])
        turned = self.op("Transpose", ["theta"], perm=[0, 2, 1])
        if form == "reduce":
            terms = self.op("Mul", [self.reshape(pixels, 1, -1, 3, 1), self.reshape(turned, -1, 1, 3, 2)])
            if self.opset < 13:
                flat = self.op("ReduceSum", [terms], axes=[2], keepdims=0)
            else:
                flat = self.op("ReduceSum", [terms, self.const([2])], keepdims=0)
        else:
            flat = self.op("MatMul", [pixels, turned])
        return self.reshape(flat, n, h, w, 2)

    def model(self, grid: str, sampler: bool) -> onnx.ModelProto:
        dims = ["n", 3, "h", "w"] if sampler else ["n", "h", "w", 2]
        if sampler and self.source not in ("image", "sliced"):
            self.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"]))
        self.nodes.append(helper.make_node("GridSample", ["x", grid], ["y"]) if sampler else
                          helper.make_node("Identity", [grid], ["y"]))
        graph = helper.make_graph(self.nodes, "sizes", self.inputs,
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        onnx.checker.check_model(model)
        return model

    def feeds(self, sizes: Sizes) -> dict[str, np.ndarray]:
        n, h, w = sizes
        theta = np.random.default_rng(sum(sizes)).normal(size=(n, 2, 3)).astype(np.float32)
        waves = np.sin(np.arange(h)[:, None] / 9 + np.arange(w) / 7 + np.arange(3 * n).reshape(n, 3, 1, 1))
        given = {"theta": theta, "x": waves.astype(np.float32), "height": np.array(h), "width": np.array(w),
                 "size": np.array([n, 3, h, w] if self.source == "four" else [h, w],
                                  np.int32 if self.source == "narrow" else np.int64)}
        return {value.name: given[value.name] for value in self.inputs}
