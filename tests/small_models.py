"""Models that several tests share."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEIGHT, WIDTH = 24, 40


def base_grid(height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Homogeneous pixel centres (x, y, 1) as align_corners=False has them, [1, H * W, 3], float32."""
    x, y = (2 * np.arange(n) + 1 - n for n in (width, height))
    columns = np.meshgrid(x / width, y / height, indexing="xy")
    return np.stack([*columns, np.ones((height, width))], axis=-1).reshape(1, -1, 3).astype(np.float32)


def stn(*, extra_node: bool = False, name: str = "stn") -> onnx.ModelProto:
    """affine_grid written out (base @ theta^T) and grid_sample: theta [1, 2, 3], x [1, 3, H, W] -> y.

    It fuses to one AffineGridSample. With `extra_node`, an Add of an initializer "bias" stays beside it.
    """
    nodes = [
        helper.make_node("Transpose", ["theta"], ["theta_t"], perm=[0, 2, 1], name="transpose"),
        helper.make_node("MatMul", ["base", "theta_t"], ["flat"], name="matmul"),
        helper.make_node("Reshape", ["flat", "shape"], ["grid"], name="reshape"),
        helper.make_node("GridSample", ["x", "grid"], ["sampled" if extra_node else "y"], mode="linear",
                         padding_mode="zeros", align_corners=0, name="sampler"),
    ]
    weights = [numpy_helper.from_array(base_grid(), "base"),
               numpy_helper.from_array(np.array([1, HEIGHT, WIDTH, 2], np.int64), "shape")]
    if extra_node:
        nodes.append(helper.make_node("Add", ["sampled", "bias"], ["y"], name="add"))
        weights.append(numpy_helper.from_array(np.linspace(0, 1, 3 * HEIGHT * WIDTH, dtype=np.float32).reshape(
            1, 3, HEIGHT, WIDTH), "bias"))
    image = [1, 3, HEIGHT, WIDTH]
    graph = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, image),
                      helper.make_tensor_value_info("theta", TensorProto.FLOAT, [1, 2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, image)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def plain(operators: tuple[str, ...] = ("Relu", "Sin")) -> onnx.ModelProto:
    """A chain of unary operators on x [2, 3], in which nothing is fused."""
    names = ["x", *(f"v{i}" for i in range(len(operators) - 1)), "y"]
    nodes = [helper.make_node(op, [a], [b], name=f"{op}_{b}")
             for op, a, b in zip(operators, names[:-1], names[1:], strict=True)]
    graph = helper.make_graph(nodes, "plain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def externalize(model: onnx.ModelProto, tensor: str, **entries) -> onnx.ModelProto:
    """A copy whose initializer `tensor` refers to external data by the given entries."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for initializer in copy.graph.initializer:
        if initializer.name == tensor:
            initializer.ClearField("raw_data")
            initializer.data_location = TensorProto.EXTERNAL
            for key, value in entries.items():
                initializer.external_data.add(key=key, value=str(value))
    return copy


def feeds(seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of `stn`."""
    generator = np.random.default_rng(seed)
    theta = np.eye(2, 3, dtype=np.float32)[None] + 0.2 * generator.standard_normal((1, 2, 3)).astype(np.float32)
    return {"x": generator.random((1, 3, HEIGHT, WIDTH), dtype=np.float32), "theta": theta}
