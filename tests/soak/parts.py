"""What the soak composes models from: small exported cases with the inputs that were recorded for them."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

OWN = Path(__file__).parents[1] / "corpus"
LARGEST = 100_000  # bytes of a model; and of each of its inputs
MOST = 50_000  # elements of an output
MOST_NODES = 130  # larger ones take too long each
TYPES = {np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.int32),
         np.dtype(np.uint8), np.dtype(np.bool_)}


@dataclasses.dataclass(frozen=True)
class Part:
    """A model to compose with.

    Attributes:
        name: of the case.
        model: of tensors only, with every output's dtype known; never changed.
        feeds: inputs by name.
        shapes: of the outputs, by name, for those inputs.
        opset: of ai.onnx.
    """

    name: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    shapes: dict[str, tuple[int, ...]]
    opset: int


def folders() -> list[Path]:
    """The project's own corpus, and those that WARPFUSE_CASES names."""
    return [OWN, *(Path(name) for name in os.environ.get("WARPFUSE_CASES", "").split(os.pathsep) if name)]


@functools.cache
def load(where: tuple[Path, ...]) -> tuple[Part, ...]:
    """The parts in some folders, in a fixed order, but for large ones and those that ONNX Runtime does not run."""
    return tuple(part for folder in where for case in json.loads((folder / "manifest.json").read_text())
                 if case.get("ort", True) and case.get("ort_default_ok", True)
                 and (part := _part(folder, case["name"])))


def _part(folder: Path, name: str) -> Part | None:
    path = folder / f"{name}.onnx"
    if path.stat().st_size > LARGEST:
        return None
    model = onnx.load(path, load_external_data=False)
    if len(model.graph.node) > MOST_NODES:
        return None
    arrays = dict(np.load(folder / f"{name}.npz"))
    feeds = {value.name: arrays.get(f"in_{value.name}") for value in model.graph.input}
    if any(array is None or array.dtype not in TYPES or array.nbytes > LARGEST for array in feeds.values()):
        return None
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    if any(helper.np_dtype_to_tensor_dtype(array.dtype) != kinds[name] for name, array in feeds.items()):
        return None  # bfloat16, recorded as float32
    if kinds.keys() & {value.name for value in model.graph.output}:
        return None
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        return None
    # what initializes an input may be overridden, and functions of one name may differ from part to part
    if model.functions or {value.name for value in model.graph.input} & {t.name for t in model.graph.initializer}:
        return None
    shapes = {value.name: arrays[f"out_{value.name}"].shape for value in model.graph.output
              if f"out_{value.name}" in arrays and arrays[f"out_{value.name}"].dtype in TYPES}
    if len(shapes) < len(model.graph.output) or max(map(math.prod, shapes.values())) > MOST:
        return None
    imports = {entry.domain: entry.version for entry in model.opset_import}
    if set(imports) - {"", "ai.onnx"}:
        return None
    onnx.checker.check_model(model)
    return Part(name, model, feeds, shapes, max(imports.values()))


def opsets(parts: Iterable[Part]) -> list[int]:
    """The opset of each, sorted: drawing from it draws as often as there are parts."""
    return sorted(part.opset for part in parts)
