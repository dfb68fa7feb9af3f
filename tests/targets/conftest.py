"""Models of nodes of custom.ops with the functions generated for them, and what PyTorch makes of the same call."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import types
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from patterns.operators import OPERATORS
from rewriter.functions import attach

EXTENSION = Path(__file__).parents[2] / "examples" / "openvino_extension"
MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
SAMPLERS = list(itertools.product(MODES, PADDINGS, (0, 1), (0, 1)))
TORCH = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


def make_model(calls, opset=20, *, dynamic=False):
    """A model with one node for each call (op_type, {operand: array}, attributes), and its feeds; outputs y0, y1, ...

    Sizes are constants, and every dim is fixed; with `dynamic` sizes are inputs and every dim is open. bfloat16 is
    float32 at the model's border, with Casts inside.
    """
    nodes, inputs, outputs, constants, between, feeds = [], [], [], [], [], {}
    for index, (op_type, operands, attributes) in enumerate(calls):
        names = []
        for name, array in operands.items():
            names.append(f"{name}{index}")
            if name == "size" and not dynamic:
                constants.append(onnx.numpy_helper.from_array(array, names[-1]))
                continue
            open_dims = dynamic and name != "size"
            shape = [f"{names[-1]}_{axis}" for axis in range(array.ndim)] if open_dims else array.shape
            narrow = array.dtype == ml_dtypes.bfloat16
            feeds[names[-1]] = array.astype(np.float32) if narrow else array
            inputs.append(helper.make_tensor_value_info(names[-1], _kind(feeds[names[-1]]), shape))
            if narrow:
                nodes.append(helper.make_node("Cast", [names[-1]], [f"{names[-1]}_narrow"], to=_kind(array)))
                names[-1] += "_narrow"
                between.append(helper.make_tensor_value_info(names[-1], _kind(array), shape))
        first = next(iter(operands.values()))
        narrow = first.dtype == ml_dtypes.bfloat16
        result = f"y{index}_narrow" if narrow else f"y{index}"
        nodes.append(helper.make_node(op_type, names, [result], f"node{index}", domain="custom.ops", **attributes))
        rank = len(operands["size"]) if "size" in operands else first.ndim
        dims = [f"y{index}_{axis}" for axis in range(rank)]
        if narrow:
            nodes.append(helper.make_node("Cast", [result], [f"y{index}"], to=onnx.TensorProto.FLOAT))
            between.append(helper.make_tensor_value_info(result, _kind(first), dims))
        outputs.append(helper.make_tensor_value_info(
            f"y{index}", onnx.TensorProto.FLOAT if narrow else _kind(first), dims))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("custom.ops", 1)]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants, value_info=between)
    model = ir.serde.deserialize_model(helper.make_model(graph, opset_imports=imports, ir_version=8))
    attach(model, OPERATORS)
    made = ir.serde.serialize_model(model)
    onnx.checker.check_model(made)
    return made, feeds


def _kind(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def sampler(mode="linear", padding_mode="zeros", align_corners=0, grid_align_corners=0, *, spatial=(7, 9),
            source=(6, 5), dtype=np.float32, batch=2, theta_batch=None, size0=1, seed=0):
    """A call of AffineGridSample whose coordinates avoid ties and leave the image."""
    rng, d = np.random.default_rng(seed), len(spatial)
    theta = 1.2 * np.eye(d, d + 1) + rng.uniform(-0.5, 0.5, (batch if theta_batch is None else theta_batch, d, d + 1))
    operands = {"x": rng.standard_normal((batch, 3, *source)).astype(dtype), "theta": theta.astype(dtype),
                "size": np.array([size0, 1, *spatial])}
    return "AffineGridSample", operands, {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners,
                                          "grid_align_corners": grid_align_corners}


def grid(align_corners=0, *, spatial=(7, 9), dtype=np.float32, batch=2, size0=1, seed=0):
    """A call of AffineGrid."""
    rng, d = np.random.default_rng(seed), len(spatial)
    theta = rng.uniform(-1.5, 1.5, (batch, d, d + 1)).astype(dtype)
    return "AffineGrid", {"theta": theta, "size": np.array([size0, 1, *spatial])}, {"align_corners": align_corners}


def by_torch(call) -> np.ndarray:
    """What PyTorch makes of a call of AffineGrid or AffineGridSample, in float64."""
    torch = pytest.importorskip("torch")
    op_type, operands, attributes = call
    theta = torch.from_numpy(operands["theta"].astype(np.float64))
    batch, spatial = max(len(theta), int(operands["size"][0])), [int(n) for n in operands["size"][2:]]
    corners = bool(attributes["align_corners" if op_type == "AffineGrid" else "grid_align_corners"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of axes of length 1, which are what is asked for
        grids = torch.nn.functional.affine_grid(theta.expand(batch, -1, -1), (batch, 1, *spatial), corners)
    if op_type == "AffineGrid":
        return grids.numpy()
    x = torch.from_numpy(operands["x"].astype(np.float64))
    return torch.nn.functional.grid_sample(x, grids, TORCH[attributes["mode"]], attributes["padding_mode"],
                                           bool(attributes["align_corners"])).numpy()


def domains_in(model: onnx.ModelProto) -> set[str]:
    """Domains of all nodes, of bodies and functions too."""
    found, pending = set(), [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while pending:
        node = pending.pop()
        found.add(node.domain)
        for attribute in node.attribute:
            pending.extend(attribute.g.node)
    return found


@pytest.fixture
def assemble():
    return make_model


@pytest.fixture
def calls():
    """The makers of calls: `calls.sampler`, `calls.grid`, `calls.by_torch`, `calls.SAMPLERS`."""
    return types.SimpleNamespace(sampler=sampler, grid=grid, by_torch=by_torch, SAMPLERS=SAMPLERS)


@pytest.fixture
def domains():
    return domains_in


@pytest.fixture(scope="session")
def extension(tmp_path_factory) -> Path:
    """Path of the library of examples/openvino_extension, built with OpenVINO's own CMake files."""
    openvino = pytest.importorskip("openvino")
    if not (shutil.which("cmake") and (os.environ.get("CXX") or shutil.which("c++"))):
        pytest.skip("no CMake or no C++ compiler")
    config = Path(openvino.__file__).parent / "cmake"
    if not config.is_dir():
        pytest.skip("this openvino has no CMake files")
    build = tmp_path_factory.mktemp("build")
    for command in (["cmake", "-S", EXTENSION, "-B", build, f"-DOpenVINO_DIR={config}", "-DCMAKE_BUILD_TYPE=Release"],
                    ["cmake", "--build", build]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning:" not in done.stderr
    return next(path for path in build.iterdir() if path.suffix in (".so", ".dylib", ".dll"))
