"""Feeds: seeded, sensible, and what does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from rewriter.comparing.inputs import Spec, check_dims, input_specs, make_feeds, open_dims, specs
from rewriter.errors import RunError, UsageError

IMAGE = Spec("x", "float", ("N", 3, "H", "x:3"))
THETA = Spec("theta", "float", ("N", 2, 3))


def test_specs_of_a_graph():
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, None]),
              helper.make_tensor_value_info("w", TensorProto.INT64, [2]),
              helper.make_tensor_value_info("r", TensorProto.FLOAT, None),
              helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)]
    graph = helper.make_graph([], "g", values, [], [helper.make_tensor("w", TensorProto.INT64, [2], [1, 2])])
    assert input_specs(graph) == [Spec("x", "float", ("N", 3, "x:2")), Spec("r", "float", None),
                                  Spec("s", "sequence", None)]
    assert len(specs(graph.input)) == 4
    assert open_dims(input_specs(graph)) == ["N", "x:2"]


def test_images_and_thetas():
    feeds = make_feeds([IMAGE, THETA], dims={"H": 8, "x:3": 9})
    x, theta = feeds.arrays["x"], feeds.arrays["theta"]
    assert x.shape == (1, 3, 8, 9) and x.dtype == np.float32
    assert 0 <= x.min() < x.max() < 1
    assert np.abs(theta - np.eye(2, 3)).max() <= 0.05 and np.abs(theta - np.eye(2, 3)).max() > 0
    assert feeds.assumed == {"N": 1}
    assert [spec.shape for spec in feeds.specs] == [(1, 3, 8, 9), (1, 2, 3)]
    volume = make_feeds([Spec("t", "float", (2, 3, 4))]).arrays["t"]
    assert np.abs(volume - np.eye(3, 4)).max() <= 0.05


def test_seeds():
    one, same, other = (make_feeds([THETA], seed=seed).arrays["theta"] for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


@pytest.mark.parametrize(("dtype", "numpy", "most"), [
    ("uint8", np.uint8, 255), ("int8", np.int8, 1), ("int64", np.int64, 1), ("bool", np.bool_, 1),
    ("double", np.float64, 1), ("float16", np.float16, 1)])
def test_dtypes(dtype, numpy, most):
    array = make_feeds([Spec("x", dtype, (50, 50))]).arrays["x"]
    assert array.dtype == numpy and array.min() >= 0 and array.max() <= most
    assert len(np.unique(array)) > (100 if most == 255 or numpy in (np.float64, np.float16) else 1)


def test_bfloat16():
    assert make_feeds([Spec("x", "bfloat16", (2,))]).arrays["x"].dtype.name == "bfloat16"


def test_what_is_given_fixes_dims():
    array = np.zeros((2, 3, 5, 6), np.float32)
    feeds = make_feeds([IMAGE, THETA], given={"x": array})
    assert feeds.arrays["x"] is array
    assert feeds.arrays["theta"].shape == (2, 2, 3)
    assert make_feeds([IMAGE], given={"x": (4, 3, 5, 6)}).arrays["x"].shape == (4, 3, 5, 6)
    assert make_feeds([Spec("r", "float", None)], given={"r": (4, 3)}).arrays["r"].shape == (4, 3)


@pytest.mark.parametrize(("given", "dims", "message"), [
    ({"y": (1,)}, {}, "no input 'y'; there are x, theta"),
    ({"x": np.zeros((1, 3, 4, 4))}, {}, "is float64, the model wants float32"),
    ({"x": (1, 4, 4, 4)}, {}, "1x4x4x4 does not fit the model's Nx3xHxx:3"),
    ({"x": (1, 3, 4)}, {}, "does not fit"),
    ({"x": (1, 3, 4, 4)}, {"H": 5}, "where H is 5 already"),
    ({"x": (1, 3, 4, 4), "theta": (2, 2, 3)}, {}, "where N is 1 already"),
])
def test_what_does_not_fit(given, dims, message):
    with pytest.raises(UsageError) as caught:
        make_feeds([IMAGE, THETA], given=given, dims=dims)
    assert message in str(caught.value)


def test_what_cannot_be_made():
    with pytest.raises(RunError, match="complex64"):
        make_feeds([Spec("x", "complex64", (1,))])
    with pytest.raises(RunError, match="--input r="):
        make_feeds([Spec("r", "float", None)])
    with pytest.raises(RunError, match="string"):
        make_feeds([Spec("s", "string", (1,))])


def test_check_dims():
    check_dims([IMAGE], ["H", "N"])
    with pytest.raises(UsageError, match="no input has an open dim 'W'; there are N, H, x:3"):
        check_dims([IMAGE], ["W"])
