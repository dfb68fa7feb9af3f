"""The linear column of the table: what it calls affine is, by evaluation, and what it does not is not."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from rewriter.evaluator import EvaluationError, Evaluator
from rewriter.evaluator.table import TABLE
from rewriter.scopes import Facts, scopes

CONTRIB = "com.microsoft"


def ints(*values):
    return np.array(values, np.int64)


# op_type -> operands, attributes. A tuple is the shape of a float operand, which may carry parameters or stay fixed;
# an array is an operand that never can.
CASES: dict[str, list[tuple[list, dict]]] = {
    "Add": [([(2, 3), (3,)], {})],
    "Sub": [([(2, 3), (3,)], {})],
    "Mul": [([(2, 3), (2, 1)], {})],
    "Div": [([(2, 3), (3,)], {})],
    "Neg": [([(2, 3)], {})],
    "Identity": [([(2, 3)], {})],
    "Sum": [([(2, 3), (3,), (1, 1)], {})],
    "Mean": [([(2, 3), (3,), (1, 1)], {})],
    "Where": [([np.array([[True], [False]]), (2, 3), (3,)], {})],
    "Cast": [([(2, 3)], {"to": onnx.TensorProto.FLOAT16})],
    "CastLike": [([(2, 3), np.zeros(1, np.float16)], {})],
    "CumSum": [([(2, 3), ints(1)], flags) for flags in ({}, {"exclusive": 1}, {"reverse": 1, "exclusive": 1})],
    "ReduceSum": [([(2, 3), ints(1)], {})],
    "ReduceMean": [([(2, 3), ints(0)], {"keepdims": 0})],
    "Transpose": [([(2, 3)], {})],
    "Reshape": [([(2, 3), ints(3, -1)], {})],
    "Flatten": [([(2, 3, 2)], {})],
    "Squeeze": [([(2, 1, 3), ints(1)], {})],
    "Unsqueeze": [([(2, 3), ints(0)], {})],
    "Expand": [([(2, 1), ints(2, 3)], {})],
    "Tile": [([(2, 3), ints(2, 1)], {})],
    "Concat": [([(2, 3), (2, 1), (2, 2)], {"axis": 1})],
    "Split": [([(5, 2)], {"num_outputs": 2})],
    "Slice": [([(5, 2), ints(-1), ints(-9), ints(0), ints(-2)], {})],
    "Gather": [([(3, 2), ints(2, -1, 0)], {})],
    "GatherElements": [([(3, 2), ints([2, 0], [-1, 1])], {})],
    "GatherND": [([(3, 2), ints([2, 0], [-1, 1])], {})],
    "Pad": [([(3, 2), ints(1, 0, -1, 2), ()], {})],
    "ScatterND": [([(3, 2), ints([2], [2]), (2, 2)], {"reduction": r}) for r in ("none", "add")],
    "ScatterElements": [([(3, 2), ints([2, 0]), (1, 2)], {"reduction": r}) for r in ("none", "add")],
    "Scatter": [([(3, 2), ints([2, 0]), (1, 2)], {})],
    "ReverseSequence": [([(3, 2), ints(2, 3)], {})],
    "MatMul": [([(2, 3, 4), (4, 2)], {})],
    "FusedMatMul": [([(3, 2), (3, 4)], {"transA": 1, "alpha": 0.3})],
    "Gemm": [([(2, 3), (3, 4), (4,)], {"alpha": 0.3, "beta": 0.7})],
    "Einsum": [([(2, 3), (3, 4)], {"equation": "ij,jk->ik"}), ([(3,), (3,), (3,)], {"equation": "i,i,i->i"})],
    "AffineGrid": [([(1, 2, 3), ints(1, 1, 3, 4)], {"align_corners": 0})],
    # never linear
    "Pow": [([(2, 3), (3,)], {})],
    "Mod": [([(2, 3), (3,)], {"fmod": 1})],
    "Min": [([(2, 3), (3,)], {})],
    "Max": [([(2, 3), (3,)], {})],
    "Clip": [([(2, 3), (), None], {})],
    "ReduceProd": [([(2, 3)], {})],
    "ReduceMin": [([(2, 3)], {})],
    "ReduceMax": [([(2, 3)], {})],
} | {op: [([(2, 3)], {})] for op in ("Reciprocal", "Abs", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Exp", "Log", "Sin",
                                     "Cos", "Tan", "Tanh")}
# Their results are no numbers, or of shape and type alone, or (Trilu) nobody needs them to be linear.
NO_FUNCTION_OF_FLOATS = {
    "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf",
    "Constant", "ConstantOfShape", "Range", "EyeLike", "NonZero", "OneHot", "Trilu"}

EVERY = [pytest.param(op, *case, id=f"{op}-{k}") for op, cases in CASES.items() for k, case in enumerate(cases)]


def subsets(operands):
    places = [i for i, operand in enumerate(operands) if isinstance(operand, tuple)]
    return [c for n in range(1, len(places) + 1) for c in itertools.combinations(places, n)]


def function_of(op, operands, attributes, carriers):
    """Arrays at the carriers -> all outputs, by the evaluator; the operands beside them are float32 constants."""
    rng = np.random.default_rng(1)
    domain = CONTRIB if op == "FusedMatMul" else ""
    outputs = [f"y{k}" for k in range(attributes.get("num_outputs", 1))]
    names = ["" if operand is None else f"x{i}" for i, operand in enumerate(operands)]
    node = onnx.helper.make_node(op, names, outputs, domain=domain, **attributes)
    inputs, held = [], []
    for i, operand in enumerate(operands):
        if i in carriers:
            inputs.append(onnx.helper.make_tensor_value_info(f"x{i}", onnx.TensorProto.DOUBLE, operand))
        elif operand is not None:
            array = rng.uniform(0.5, 2, operand).astype(np.float32) if isinstance(operand, tuple) else operand
            held.append(onnx.numpy_helper.from_array(array, f"x{i}"))
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs], held)
    imports = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid(CONTRIB, 1)]
    model = ir.from_proto(onnx.helper.make_model(graph, opset_imports=imports))
    scope = next(scopes(Facts(model)))

    def run(arrays):
        given = dict(zip(model.graph.inputs, arrays))
        return np.concatenate([np.ravel(Evaluator(scope, {}).run(value, given)) for value in model.graph.outputs])

    return run


def departure(op, operands, attributes, carriers) -> float:
    """How far f(a) + f(b) - f(0) is from f(a + b), relative to f(a) and f(b)."""
    f = function_of(op, operands, attributes, carriers)
    rng = np.random.default_rng(2)
    a, b = ([rng.uniform(low, 3, operands[i]) for i in carriers] for low in (0.3, -3))
    with np.errstate(all="ignore"):
        left, right = f(a), f(b)
        gap = left + right - f([np.zeros_like(x) for x in a]) - f([x + y for x, y in zip(a, b)])
    assert np.all(np.isfinite(left)) and np.any(left != 0)
    return float(np.max(np.abs(np.where(np.isfinite(gap), gap, np.inf))) / np.max(np.abs(left)))


def test_every_operator_has_a_case():
    assert {name for _, name in TABLE} == CASES.keys() | NO_FUNCTION_OF_FLOATS


@pytest.mark.parametrize(("op", "operands", "attributes"), EVERY)
def test_affine_exactly_in_the_carriers_the_table_allows(op, operands, attributes):
    linear = TABLE[CONTRIB if op == "FusedMatMul" else "", op].linear
    for carriers in subsets(operands):
        gap = departure(op, operands, attributes, carriers)
        if linear(frozenset(carriers)):
            assert gap < 1e-14, carriers  # in float64 throughout, whatever the types of the operands beside them
        else:
            assert gap > 1e-3, carriers


@pytest.mark.parametrize("op", sorted(NO_FUNCTION_OF_FLOATS))
def test_no_carrier_is_allowed_elsewhere(op):
    linear = TABLE["", op].linear
    assert not any(linear(frozenset(c)) for n in (1, 2, 3) for c in itertools.combinations(range(3), n))


@pytest.mark.parametrize("op", ["Reshape", "Expand", "Tile", "Slice", "Gather", "GatherElements", "GatherND", "Pad",
                                "ScatterND", "ScatterElements", "ReverseSequence", "CumSum", "ReduceSum", "AffineGrid"])
def test_no_index_size_or_axis_may_carry(op):
    linear = TABLE["", op].linear
    assert not linear(frozenset({1})) and not linear(frozenset({0, 1}))


def test_condition_of_a_where_may_not_carry():
    linear = TABLE["", "Where"].linear
    assert not linear(frozenset({0})) and not linear(frozenset({0, 1, 2})) and linear(frozenset({1, 2}))


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("reduction", ["mul", "min", "max"])
def test_other_scatters_are_not_evaluated(op, reduction):
    operands, _ = CASES[op][0]
    with pytest.raises(EvaluationError, match=reduction):
        departure(op, operands, {"reduction": reduction}, (0,))
