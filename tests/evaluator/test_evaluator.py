"""The Evaluator: what counts as known, sizes, branches, dtypes, and what it refuses."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.evaluator import EvaluationError, Evaluator, Kind, kind
from rewriter.scopes import Facts, scopes

HEAD = '<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1, "other" : 1]>\n'


def parsed(text):
    """(scope, value by name) of a model in ONNX's textual form."""
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text))
    every = list(scopes(Facts(model)))
    values = {v.name: v for graph in (s.graph for s in every)
              for v in (*graph.inputs, *getattr(graph, "initializers", {}).values(),
                        *(o for node in graph for o in node.outputs))}
    return every[-1] if model.functions else every[0], values


SIZES = """g (float[N, 3, H, W] x, int64[2] size, int64[1000] long, float[2] point) => (float[a] y)
    <int64[1] one = {1}, float[2] half = {0.5, 0.5}, float overridden = {2.0}> {
    shape = Shape(x)
    last = Shape<start = -1>(x)
    count = Size(x)
    channels = Shape<start = 1, end = 2>(x)
    twice = Add(shape, shape)
    wide = Cast<to = 1>(last)
    first = Gather(size, one)
    ends = Add(half, half)
    data = Mul(point, half)
    sum = ReduceSum<keepdims = 0>(long)
    odd = other.Thing(half)
    y = Identity(data)
}"""


@pytest.mark.parametrize(('name', 'expected'), [
    ("half", Kind.CONSTANT), ("ends", Kind.CONSTANT), ("shape", Kind.STRUCTURAL), ("count", Kind.STRUCTURAL),
    ("twice", Kind.STRUCTURAL), ("wide", Kind.STRUCTURAL), ("size", Kind.STRUCTURAL), ("first", Kind.STRUCTURAL),
    ("x", Kind.DATA), ("data", Kind.DATA), ("long", Kind.DATA), ("sum", Kind.DATA), ("odd", Kind.DATA)])
def test_kinds(name, expected):
    scope, values = parsed(SIZES)
    assert kind(values[name], scope) is expected
    assert scope.structural(values[name]) == (expected is not Kind.DATA)


def test_values_under_sizes():
    scope, values = parsed(SIZES)
    evaluator = Evaluator(scope, {"N": 2, "H": 5, "W": 7, "size[0]": 11, "size[1]": 13})
    wanted = ("shape", "count", "twice", "wide", "first", "size", "ends")
    found = {name: evaluator.value(values[name]) for name in wanted}
    assert {name: array.tolist() for name, array in found.items()} == {
        "shape": [2, 3, 5, 7], "count": 210, "twice": [4, 6, 10, 14], "wide": [7.0], "first": [13], "size": [11, 13],
        "ends": [1.0, 1.0]}
    assert found["wide"].dtype == np.float32 and found["count"].dtype == found["size"].dtype == np.int64
    assert evaluator.shape(values["data"]) == (2,)
    assert scope.constant(values["ends"]).tolist() == [1, 1] and scope.constant(values["shape"]) is None
    with pytest.raises(EvaluationError, match="depends on data"):
        evaluator.value(values["data"])
    with pytest.raises(EvaluationError, match="dimension N of x"):
        Evaluator(scope, {"H": 5, "W": 7}).value(values["shape"])
    with pytest.raises(EvaluationError, match="size is not known"):
        Evaluator(scope, {}).value(values["size"])


def test_an_initializer_that_callers_may_override_is_no_constant():
    scope, values = parsed("""g (float[2] x, float[2] k = {1, 2}) => (float[2] y) { y = Mul(x, k) }""")
    assert values["k"].const_value is not None
    assert kind(values["k"], scope) is Kind.DATA and scope.constant(values["k"]) is None


def test_given_values_are_carried_in_float64():
    scope, values = parsed("""g (float[2] x) => (float16[2] y) <float[2] half = {0.1, 0.5}, float[1] third = {0.3}> {
        k = Cast<to = 10>(half)
        h = Cast<to = 10>(x)
        y = Mul(h, k)
        z = Cast<to = 1>(third)
    }""")
    evaluator = Evaluator(scope, {})
    x = np.array([1 / 3, 2 / 3])
    result = evaluator.run(values["y"], {values["x"]: x})
    np.testing.assert_array_equal(result, x * np.array([0.1, 0.5], np.float16).astype(np.float64))
    assert evaluator.unit == 2.0**-11  # of what the parameters met on their way
    assert evaluator.value(values["z"]).dtype == np.float32
    assert (evaluator.rounding_unit(values["z"]), evaluator.rounding_unit(values["k"])) == (2.0**-24, 2.0**-11)
    with pytest.raises(EvaluationError, match="x is not known"):
        evaluator.run(values["y"], {})


BRANCH = """g (float[2] x, bool flag) => (float[2] y) <float[2] k = {{3, 4}}, bool yes = {{1}}> {{
    y = If({condition}) <
        then_branch = a () => (float[2] t) {{ t = Mul(x, k) }},
        else_branch = b () => (float[2] e) {{ e = other.Thing(x) }}>
}}"""


def test_only_the_branch_taken_is_evaluated():
    scope, values = parsed(BRANCH.format(condition="yes"))
    assert Evaluator(scope, {}).run(values["y"], {values["x"]: np.array([1.0, 2.0])}).tolist() == [3, 8]


def test_a_branch_that_depends_on_data_is_refused():
    scope, values = parsed(BRANCH.format(condition="flag"))
    with pytest.raises(EvaluationError, match="depends on data"):
        Evaluator(scope, {}).run(values["y"], {values["x"]: np.ones(2), values["flag"]: np.array(True)})


FUNCTION = """g (float[2, 3] x) => (float[a, b] y) { y = other.F<k = 1>(x) }
<domain: "other", opset_import: ["" : 20]> F <k> (x) => (y) {
    two = Constant<value_int: int = @k>()
    part = ReduceMax<keepdims: int = @k>(x)
    shape = Shape<start: int = @k>(x)
    y = Concat<axis: int = @k>(part, x)
}"""


@pytest.mark.parametrize("name", ["two", "part", "shape", "y"])
def test_attributes_that_callers_set_are_unknown(name):
    scope, _ = parsed(FUNCTION)
    assert scope.path == "function other::F"
    given = {scope.graph.inputs[0]: np.ones((2, 3))}
    inner = {o.name: o for node in scope.graph for o in node.outputs}
    with pytest.raises(EvaluationError, match=r"attribute .* caller"):
        Evaluator(scope, {}).run(inner[name], given)


@pytest.mark.parametrize("maker", [
    "z = NonZero(x)", "n = Cast<to = 7>(x)\n z = ConstantOfShape(n)", "n = Cast<to = 7>(x)\n z = Expand(one, n)",
    "n = Cast<to = 7>(x)\n z = Reshape(one, n)", "n = Cast<to = 7>(x)\n z = Slice(k, one, n)",
    "n = Cast<to = 7>(x)\n z = Tile(k, n)", "n = Cast<to = 7>(x)\n z = Pad(k, n)",
    "s = ReduceSum<keepdims = 0>(x)\n n = Cast<to = 7>(s)\n z = Range(zero, n, step)"])
def test_a_shape_that_depends_on_data_is_not_guessed(maker):
    scope, values = parsed(f"""g (float[2] x) => (float[a, b] y)
        <int64[1] one = {{1}}, int64 zero = {{0}}, int64 step = {{1}}, int64[4] k = {{5, 6, 7, 8}}> {{
        {maker}
        y = other.Thing(z)
    }}""")
    with pytest.raises(EvaluationError):
        Evaluator(scope, {}).shape(values["z"])
    measured = scope.measured_shape(values["z"])
    assert measured is None or not all(isinstance(d, int) for d in measured)


def test_a_shape_that_inference_does_not_tell_is_measured():
    scope, values = parsed("""g (float[N, C] x) => (float[a, b] y) <int64[1] one = {1}, int64[1] zero = {0}> {
        s = Shape(x)
        n = Gather(s, zero)
        m = Mul(n, n)
        size = Concat<axis = 0>(m, one)
        base = Expand(one, size)
        real = Cast<to = 1>(base)
        y = Mul(real, x)
    }""")
    evaluator = Evaluator(scope, {"N": 1, "C": 5})
    assert evaluator.shape(values["real"]) == (1, 1)
    assert Evaluator(scope, {"N": 4, "C": 5}).shape(values["real"]) == (16, 1)
    with pytest.raises(EvaluationError):
        Evaluator(scope, {}).shape(values["real"])


@pytest.mark.parametrize("call", ["other.Thing(x)", "Conv(x, x)", "LSTM(x, x, x)", "RandomUniformLike(x)"])
def test_operators_without_an_entry_are_data(call):
    scope, values = parsed(f"g (float[1, 1, 2] x) => (float[a] y) {{ y = {call} }}")
    assert kind(values["y"], scope) is Kind.DATA
    with pytest.raises(EvaluationError, match="is not evaluated"):
        Evaluator(scope, {}).run(values["y"], {values["x"]: np.zeros((1, 1, 2))})


LISTS = ("axes", "perm", "split")
THERE = st.one_of(
    st.lists(st.integers(-3, 3), max_size=3).map(lambda a: np.array(a, np.int64)),
    st.integers(-3, 3).map(np.array),
    st.sampled_from([(), (1,), (2, 3), (0, 2), (3, 2, 2)]).map(lambda shape: np.ones(shape, np.float32)),
    st.just(np.array([True, False])), st.just(np.array([np.nan, np.inf])))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data())
def test_nothing_but_evaluation_errors_comes_out(evaluated, data):
    from rewriter.evaluator.table import TABLE

    domain, op = data.draw(st.sampled_from(sorted(TABLE)))
    fewest = onnx.defs.get_schema(op, 20, domain).min_input if not domain else 2
    arrays = [data.draw(THERE) for _ in range(fewest)] + data.draw(st.lists(st.none() | THERE, max_size=2))
    attributes = data.draw(st.dictionaries(
        st.sampled_from(["axis", "keepdims", "k", "num_outputs", "to", "batch_axis", "time_axis", *LISTS]),
        st.integers(-2, 9), max_size=2))
    attributes = {k: [v] if k in LISTS else v for k, v in attributes.items()}
    try:
        results = evaluated(op, arrays, domain=domain, **attributes)
    except EvaluationError:
        return
    assert all(isinstance(array, np.ndarray) for array in results)
