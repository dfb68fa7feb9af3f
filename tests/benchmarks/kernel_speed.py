"""How fast is the kernel of AffineGridSample beside everything else that warps an image? By hand:

    python tests/benchmarks/kernel_speed.py [--seconds 6] [--threads 2] [-k 512] [--modes]

One process, one input, each library with the same number of threads, in random order; a timed run follows one of the
same kind, so that all find the caches as they leave them. Times include the allocation of the output, except OpenCV's
and OpenVINO's, which write to one that exists. Medians; ratios peer / kernel with 95 % bootstrap intervals.

    kernel      the fused file in ONNX Runtime with the kernels      functions   the same file without them
    exported    what torch's dynamo exporter makes of it, unfused    stock       ai.onnx AffineGrid and GridSample
    torch       eager, inference mode                                openvino    ai.onnx AffineGrid and GridSample
    opencv      warpAffine of the same pixel transform, channels last (C = 1 and 3)

--modes compares the kernel's own modes instead, each with linear and zeros.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import time
import warnings

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper

import rewriter

SHAPES = ((1, 1, 28, 28), (1, 3, 28, 28), (1, 1, 512, 512), (1, 3, 512, 512), (1, 3, 1080, 1920), (1, 64, 256, 256),
          (8, 32, 64, 64))
MODES = [("linear", "zeros", 0), ("linear", "zeros", 1), ("linear", "border", 0), ("linear", "reflection", 0),
         ("nearest", "zeros", 0), ("cubic", "zeros", 0)]
ANGLE, SCALE = 25, 0.95
LEAST = 15  # rounds


class Warp(torch.nn.Module):
    def __init__(self, align_corners):
        super().__init__()
        self.align_corners = bool(align_corners)

    def forward(self, x, theta):
        grid = torch.nn.functional.affine_grid(theta, x.shape, align_corners=self.align_corners)
        return torch.nn.functional.grid_sample(x, grid, align_corners=self.align_corners)


def rotation(shape, align_corners: int) -> np.ndarray:
    """theta [N, 2, 3] that turns about the middle, in pixels."""
    angle, (h, w) = np.deg2rad(ANGLE), np.array(shape[2:]) - align_corners
    c, s = np.cos(angle) * SCALE, np.sin(angle) * SCALE
    return np.tile(np.array([[c, -s * h / w, 0], [s * w / h, c, 0]], np.float32), (shape[0], 1, 1))


def exported(shape, align_corners) -> onnx.ModelProto:
    args = torch.zeros(shape), torch.zeros(shape[0], 2, 3)
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(Warp(align_corners).eval(), args, dynamo=True, opset_version=20, verbose=False,
                                    input_names=["x", "theta"], output_names=["y"])
    return program.model_proto


def stock(shape, align_corners) -> onnx.ModelProto:
    nodes = [helper.make_node("AffineGrid", ["theta", "size"], ["grid"], align_corners=align_corners),
             helper.make_node("GridSample", ["x", "grid"], ["y"], align_corners=align_corners)]
    image = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    theta = helper.make_tensor_value_info("theta", TensorProto.FLOAT, [shape[0], 2, 3])
    size = helper.make_tensor("size", TensorProto.INT64, [4], shape)
    graph = helper.make_graph(nodes, "warp", [image[0], theta], [image[1]], [size])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def sampler(shape, mode, padding, align_corners) -> onnx.ModelProto:
    """A lone AffineGridSample, for kernels."""
    node = helper.make_node("AffineGridSample", ["x", "theta", "size"], ["y"], domain="custom.ops", mode=mode,
                            padding_mode=padding, align_corners=align_corners, grid_align_corners=align_corners)
    model = stock(shape, align_corners)
    del model.graph.node[:]
    model.graph.node.append(node)
    model.opset_import.append(helper.make_opsetid("custom.ops", 1))
    return model


def session_run(model: onnx.ModelProto, options: ort.SessionOptions, threads: int, x, theta):
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # sessions would disturb each other
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": x, "theta": theta}
    return lambda: session.run(None, feeds)[0]


def openvino_run(model: onnx.ModelProto, threads: int, x, theta):
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(model.SerializeToString(), b""), "CPU", options).create_infer_request()
    request.set_input_tensor(0, openvino.Tensor(x))
    request.set_input_tensor(1, openvino.Tensor(theta))

    def run():
        request.infer()
        return request.get_output_tensor(0).data
    return run


def opencv_run(threads: int, x):
    import cv2

    cv2.setNumThreads(threads)
    _, channels, height, width = x.shape
    image = np.ascontiguousarray(x[0].transpose(1, 2, 0)) if channels > 1 else x[0, 0]
    warped = np.empty_like(image)
    angle = np.deg2rad(ANGLE)
    linear = SCALE * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    middle = np.array([width - 1, height - 1]) / 2
    matrix = np.column_stack([linear, middle - linear @ middle])

    def run():
        cv2.warpAffine(image, matrix, (width, height), dst=warped, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
        return np.moveaxis(warped[..., None] if channels == 1 else warped, -1, 0)[None]
    return run


def peers(shape, align_corners, threads) -> dict:
    x, theta = np.random.default_rng(0).random(shape, np.float32), rotation(shape, align_corners)
    unfused, plain = exported(shape, align_corners), stock(shape, align_corners)
    fused, _ = rewriter.fuse(unfused)
    module, image, matrix = Warp(align_corners), torch.from_numpy(x), torch.from_numpy(theta)

    def eager():
        with torch.inference_mode():
            return module(image, matrix).numpy()

    runs = {
        "kernel": session_run(fused, rewriter.session_options(), threads, x, theta),
        "functions": session_run(fused, ort.SessionOptions(), threads, x, theta),
        "exported": session_run(unfused, ort.SessionOptions(), threads, x, theta),
        "stock": session_run(plain, ort.SessionOptions(), threads, x, theta),
        "torch": eager,
        "openvino": openvino_run(plain, threads, x, theta),
    }
    if shape[0] == 1 and shape[1] in (1, 3):
        runs["opencv"] = opencv_run(threads, x)
    want = runs["torch"]()
    for name, run in runs.items():
        tolerance = 0.05 if name == "opencv" else 1e-3  # OpenCV rounds coordinates to a 32nd of a pixel
        assert np.quantile(np.abs(run() - want), 0.999) < tolerance, name
    return runs


def race(runs: dict, seconds: float) -> np.ndarray:
    """Seconds [rounds, runs]."""
    generator, rows = np.random.default_rng(0), []
    calls, end = list(runs.values()), time.perf_counter() + seconds
    while time.perf_counter() < end or len(rows) < LEAST:
        row = np.zeros(len(calls))
        for i in generator.permutation(len(calls)):
            calls[i]()
            start = time.perf_counter()
            calls[i]()
            row[i] = time.perf_counter() - start
        rows.append(row)
    return np.array(rows)


def line(names, times: np.ndarray, base: str) -> str:
    generator, at = np.random.default_rng(0), list(names).index(base)
    medians = np.median(times, axis=0)
    picks = np.median(times[generator.integers(0, len(times), (500, len(times)))], axis=1)
    parts = [f"{base} {medians[at] * 1e3:.4g} ms"]
    for i, name in enumerate(names):
        if i != at:
            low, high = np.quantile(picks[:, i] / picks[:, at], (0.025, 0.975))
            parts.append(f"{name} {medians[i] / medians[at]:.2f} [{low:.2f}, {high:.2f}]")
    return " | ".join(parts) + f" | {len(times)} rounds"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6, help="for each line")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--modes", action="store_true")
    parser.add_argument("-k", default="", help="only shapes that contain this text")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"onnxruntime {ort.__version__}, torch {torch.__version__}, {args.threads} threads")
    for shape in SHAPES:
        label = "x".join(map(str, shape))
        if args.k not in label:
            continue
        if args.modes:
            x = np.random.default_rng(0).random(shape, np.float32)
            runs = {" ".join(map(str, mode)): session_run(sampler(shape, *mode), rewriter.session_options(),
                                                          args.threads, x, rotation(shape, mode[-1])) for mode in MODES}
            print(f"{label}: {line(runs, race(runs, args.seconds), 'linear zeros 0')}", flush=True)
            continue
        for align_corners in (0, 1):
            runs = peers(shape, align_corners, args.threads)
            print(f"{label} ac {align_corners}: {line(runs, race(runs, args.seconds), 'kernel')}", flush=True)


if __name__ == "__main__":
    main()
