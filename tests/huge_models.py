"""Models that are large in one way or another, on a disk that need not be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from small_models import stn

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9  # numbers of these fields in onnx.proto


def external(folder: Path, size: int, *, location: str = "weights.bin") -> onnx.ModelProto:
    """stn, saved as in.onnx, whose bias lies at the end of a data file of `size` bytes that is otherwise one hole.

    The model has another initializer, "table", of all the bytes before it: uint8 [size - bias].
    """
    model = stn(extra_node=True)
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "bias")
    data, whole = bias.raw_data, size - len(bias.raw_data)
    file = folder / location
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "wb") as opened:
        opened.seek(whole)
        opened.write(data)
    bias.ClearField("raw_data")
    table = model.graph.initializer.add(name="table", data_type=TensorProto.UINT8, dims=[whole])
    for tensor, offset, length in ((bias, whole, len(data)), (table, 0, whole)):
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
    onnx.save(model, folder / "in.onnx")
    return model


def inline(path: Path, size: int) -> None:
    """stn with one more initializer, "table", uint8 zeros inside of the file, which has `size` bytes and a hole.

    Protobuf merges what occurs twice: the graph's second part, which holds the table, is written by hand.
    """
    model = stn().SerializeToString()

    def headers(length: int) -> bytes:
        tensor = TensorProto(name="table", data_type=TensorProto.UINT8, dims=[length]).SerializeToString()
        tensor += _header(RAW_DATA, length)
        inner = _header(INITIALIZER, len(tensor) + length) + tensor
        return _header(GRAPH, len(inner) + length) + inner

    length = size - len(model) - len(headers(size))
    start = model + headers(length)
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(len(start) + length)


def _header(number: int, length: int) -> bytes:
    """Of a field with a length: its tag and the length, as varints."""
    made = bytearray([number << 3 | 2])
    while length >= 128:
        made.append(length & 127 | 128)
        length >>= 7
    return bytes([*made, length])


def chain(count: int, *, weights: bool = False) -> onnx.ModelProto:
    """stn with `count` more nodes behind it; every fifth has a second input from some nodes back, or a weight.

    With `weights` that weight is an initializer of its own, float32 [1, 3, 1, 1].
    """
    model = stn(extra_node=True)
    graph = model.graph
    graph.node[-1].output[0] = "v0"
    names = ["one"]
    for k in range(count):
        kind = ("Relu", "Sin", "Add", "Mul", "Abs")[k % 5]
        operands = [f"v{k}"]
        if kind == "Add":
            operands.append(f"v{max(k - 3, 0)}")
        if kind == "Mul":
            operands.append(f"w{k}" if weights else "one")
            names += [operands[1]] if weights else []
        graph.node.append(helper.make_node(kind, operands, ["y" if k == count - 1 else f"v{k + 1}"], name=f"n{k}"))
    graph.initializer.extend(numpy_helper.from_array(np.ones((1, 3, 1, 1), np.float32), name) for name in names)
    return model
