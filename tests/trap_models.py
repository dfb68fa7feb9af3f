"""Small warps by hand: a theta, a base grid, a sampler, and what people put in between."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIZE = (7, 9)


def base_grid(size=SIZE, corners=False) -> np.ndarray:
    """[*size, rank + 1] float64: x fastest, then 1."""
    axes = [(2 * np.arange(n) + 1 - n) / max(n - corners, 1) for n in size]
    return np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(size)], axis=-1)


class Warp:
    """A model under construction; `theta` [N, rank, rank + 1] and the image `x` [N, 1, 8 ...] are inputs."""

    def __init__(self, rank: int = 2, *, batch=2, dtype=np.float32, opset: int = 20, theta=None, image=True):
        self.rank, self.dtype, self.opset = rank, np.dtype(dtype), opset
        self.nodes, self.initializers, self.inputs, self.feeds, self.outputs = [], [], [], {}, []
        random = np.random.default_rng(3)
        count = batch if isinstance(batch, int) else 2
        shape = (count, rank, rank + 1) if theta is None else theta
        eye = np.eye(*shape[-2:])
        self.input("theta", eye + 0.3 * random.normal(size=shape), [batch, *shape[1:]] if shape[0] == count else shape)
        if image:
            waves = np.sin(sum(np.meshgrid(*(np.arange(8) / (3 + k) for k in range(rank)), indexing="ij")))
            self.input("x", np.broadcast_to(waves, (count, 1, *waves.shape)), [batch, 1, *waves.shape])

    def input(self, name, array, dims=None) -> str:
        array = np.array(array)
        array = array.astype(self.dtype) if array.dtype.kind == "f" else array
        elem = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, elem, list(dims or array.shape)))
        self.feeds[name] = array
        return name

    def const(self, array, name=None, dtype=None) -> str:
        array = np.asarray(array)
        dtype = dtype or (self.dtype if array.dtype.kind == "f" else np.int64)
        self.initializers.append(numpy_helper.from_array(array.astype(dtype), name or f"c{len(self.initializers)}"))
        return self.initializers[-1].name

    def op(self, op_type, *inputs, out=None, **attributes) -> str:
        name = out or f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=f"n_{name}", **attributes))
        return name

    def grid(self, base=None, theta="theta", size=SIZE, batch=-1) -> str:
        """[N, *size, rank] = base @ theta^T; the base is [*size, rank + 1], or a value [1, pixels, rank + 1]."""
        base = base_grid(size) if base is None else base
        if not isinstance(base, str):
            base = self.const(base.reshape(1, -1, base.shape[-1]), "base")
        flat = self.op("MatMul", base, self.op("Transpose", theta, perm=[0, 2, 1]))
        return self.op("Reshape", flat, self.const([batch, *size, self.rank]), out="grid")

    def sample(self, grid, **attributes) -> Warp:
        self.outputs.append(self.op("GridSample", "x", grid, out="y", **attributes))
        return self

    def give(self, *values) -> Warp:
        self.outputs += values
        return self

    def model(self) -> onnx.ModelProto:
        empty = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "warp", self.inputs, empty, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        known = {v.name: v for v in onnx.shape_inference.infer_shapes(model, data_prop=True).graph.value_info}
        elem = helper.np_dtype_to_tensor_dtype(self.dtype)
        del model.graph.output[:]
        model.graph.output.extend(known.get(name) or helper.make_tensor_value_info(name, elem, None)
                                  for name in self.outputs)
        onnx.checker.check_model(model)
        return model

