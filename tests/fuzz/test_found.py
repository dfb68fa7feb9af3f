"""What the fuzzer found, by kind: models that pass onnx.checker and contradict what their operators take."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from fuzz.mutating import other_ranks, tensors
from fuzz.seeds import models
from fuzz.targets import read_and_fuse
from onnx import TensorProto, helper, numpy_helper
from small_models import stn

import rewriter

HEADER = '<ir_version: 9, opset_import: ["" : 20, "custom.ops" : 1]>'
FLIP = """s = Constant<value_ints = [{starts}]> () e = Constant<value_ints = [{ends}]> ()
          a = Constant<value_ints = [2]> () n = Constant<value_ints = [{steps}]> ()"""


def turn(*, starts="-1", ends="-9223372036854775807", steps="-1", perm="0, 1, 3, 2") -> onnx.ModelProto:
    """rot90 as flip and Transpose, of x [2, 3, 7, 9]."""
    constants = FLIP.format(starts=starts, ends=ends, steps=steps)
    return onnx.parser.parse_model(
        f"{HEADER} g (float[2, 3, 7, 9] x) => (float[2, 3, 9, 7] y) {{ {constants} "
        f"flip = Slice (x, s, e, a, n) y = Transpose<perm = [{perm}]> (flip) }}")


def judged(model: onnx.ModelProto) -> tuple[str, rewriter.Report]:
    """What becomes of it, once as any bytes and once with the reasons."""
    data = model.SerializeToString()
    return read_and_fuse(data), rewriter.fuse(onnx.ModelProto.FromString(data))[1]


def test_what_these_are_mutated_from_is_fused():
    assert judged(turn())[1].count("Rot90") == 1
    assert judged(stn())[1].count("AffineGridSample") == 1


@pytest.mark.parametrize("changes", [
    {"starts": "-1, -1"}, {"starts": "-1, -1", "ends": "-9, -9"}, {"steps": "-1, 1"}, {"perm": "0, 1, 3"},
    {"perm": "0, 1, 3, 2, 4"}, {"perm": "0, 1, 3, 3"}, {"perm": "0, 1, 3, 7"}, {"perm": "1, 0"}], ids=str)
def test_turns_of_a_rank_that_the_image_does_not_have(changes):
    outcome, report = judged(turn(**changes))
    assert outcome == "nothing"
    assert not report.fused


@pytest.mark.parametrize("value", [0.0, -1])
def test_operands_that_are_no_lists(value):
    """A scalar, and of float, where Slice wants int64 [n]."""
    for name in ("s", "e", "a", "n"):
        model = turn()
        node = next(node for node in model.graph.node if node.output[0] == name)
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("value_float" if isinstance(value, float) else "value_int", value))
        assert judged(model)[0] in ("nothing", "fused")
        assert not judged(model)[1].fused


@pytest.mark.parametrize("name", models())
def test_constants_of_other_ranks_and_types(name):
    """Each constant of a model in turn, as a scalar, with one more axis, empty, ..."""
    model = onnx.ModelProto.FromString(models()[name])
    for index, tensor in enumerate(tensors(model.graph)):
        before, array = tensor.SerializeToString(), numpy_helper.to_array(tensor)
        for changed in other_ranks(array)[index % 3::3]:
            tensor.CopyFrom(numpy_helper.from_array(np.array(changed), tensor.name))
            assert read_and_fuse(model.SerializeToString()) in ("refused", "nothing", "fused")
        tensor.ParseFromString(before)


@pytest.mark.parametrize("value", [2, 4, -1, 2 ** 62])
def test_align_corners_is_0_or_1(value):
    """Other numbers than 0 are true here and false there."""
    model = stn()
    attribute = next(a for a in model.graph.node[-1].attribute if a.name == "align_corners")
    attribute.i = value
    outcome, report = judged(model)
    assert "AffineGridSample" not in {fusion.operator for fusion in report.fused}
    assert any("align_corners is neither 0 nor 1" in miss.reason for miss in report.missed)
    assert outcome in ("nothing", "fused")


@pytest.mark.parametrize("dims", [[2 ** 62, 2, 2], [2 ** 31, 2 ** 31, 2 ** 31], [1, 2 ** 62, 3], [2 ** 32, 2 ** 32, 3]])
def test_numbers_of_elements_that_no_integer_holds(dims):
    """Of theta, and of the image."""
    for index in (0, 1):
        model = stn()
        shape = model.graph.input[index].type.tensor_type.shape
        del shape.dim[:]
        for dim in dims if index else [1, *dims]:
            shape.dim.add(dim_value=dim)
        outcome, report = judged(model)
        assert outcome in ("nothing", "fused", "refused")
        assert not (index and report.fused)


def test_a_declared_dtype_that_the_node_cannot_make():
    """What would be written for it would be read as another type the next time."""
    model = onnx.parser.parse_model(
        f'{HEADER} g (float[2, 3, 7, 9] x) => (string[2, 3, 9, 7] y) {{ '
        'y = custom.ops.CustomRotScale<rotations = 1, scale_factor = 2.0, dims = "height,width"> (x) }')
    outcome, report = judged(model)
    assert (outcome, report.fused) == ("nothing", [])
    assert any("its output is declared as STRING, and it makes FLOAT" in miss.reason for miss in report.missed)


def test_a_base_grid_of_another_size_than_the_reshape():
    model = stn()
    shape = next(tensor for tensor in model.graph.initializer if tensor.name == "shape")
    for sizes in ([1, 24, 41, 2], [0, 0, 0, 0], [-1, -1, -1, 2], [1, 24, 40, -2], [2 ** 62] * 4):
        shape.CopyFrom(numpy_helper.from_array(np.array(sizes, np.int64), "shape"))
        outcome, report = judged(model)
        assert outcome in ("nothing", "refused") and not report.fused
    shape.CopyFrom(helper.make_tensor("shape", TensorProto.INT64, [2, 2], [1, 24, 40, 2]))
    assert judged(model)[0] == "nothing"
