"""Are the fallback bodies of Rot90 and CustomRotScale as good as what they replace? Run by hand:

    python tests/benchmarks/rot90_bodies.py [--rounds 200] [--threads 2] [-k 1024]

Each line is one model in stock ONNX Runtime against the nodes that torch's dynamo exporter writes (Slice, then
Transpose), runs interleaved in random order: median times, their ratio and its 95 % bootstrap interval.
"""



from __future__ import annotations

import argparse
import time

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper

from patterns.operators.rot90 import CUSTOM_ROT_SCALE, ROT90, dims_of

OPSET = 18
TYPES = {"float32": onnx.TensorProto.FLOAT, "float16": onnx.TensorProto.FLOAT16, "uint8": onnx.TensorProto.UINT8}
CASES = [  # shape, plane, turns in one model, dtype, factor
    *(((1, 3, 1024, 1024), (2, 3), turns, "float32", None) for turns in ((1,), (2,), (3,), (1, 2, 3))),
    ((1, 1024, 1024, 3), (1, 2), (1, 2, 3), "uint8", None),
    ((1, 64, 256, 256), (2, 3), (1, 2, 3), "float32", None),
    ((8, 32, 96, 128), (1, 3), (1, 2, 3), "float32", None),
    *(((1, 3, 512, 512), (2, 3), turns, "float32", 0.25) for turns in ((1,), (2,), (3,), (1, 2, 3))),
    ((1, 3, 512, 512), (2, 3), (1, 2, 3), "float16", 0.25),
    *(((1, 3, 8, 8), (2, 3), turns, "float32", None) for turns in ((1,), (2,), (3,), (1, 2, 3))),
    ((1, 3, 8, 8), (2, 3), (1, 2, 3), "float32", 0.25),
]


def unfused(shape, plane, turns, dtype, factor) -> onnx.ModelProto:
    nodes, initializers = [], []
    if factor is not None:
        initializers.append(helper.make_tensor("factor", TYPES[dtype], [], [factor]))
    for turn in turns:
        axes = {1: plane[1:], 2: plane, 3: plane[:1]}[turn]
        for name, value in (("starts", -1), ("ends", -(2**63)), ("steps", -1)):
            initializers.append(helper.make_tensor(f"{name}{turn}", 7, [len(axes)], [value] * len(axes)))
        initializers.append(helper.make_tensor(f"axes{turn}", 7, [len(axes)], axes))
        operands = [f"{name}{turn}" for name in ("starts", "ends", "axes", "steps")]
        names = [f"v{turn}_{i}" for i in range(3 - (turn == 2) - (factor is None))]
        nodes.append(helper.make_node("Slice", ["x", *operands], ["to be named"]))
        if turn != 2:
            perm = list(range(len(shape)))
            perm[plane[0]], perm[plane[1]] = plane[1], plane[0]
            nodes.append(helper.make_node("Transpose", ["to be named"], ["to be named"], perm=perm))
        if factor is not None:
            nodes.append(helper.make_node("Mul", ["to be named", "factor"], ["to be named"]))
        names[-1] = f"y{turn}"
        for node, name, source in zip(nodes[-len(names):], names, [None, *names]):
            node.output[0] = name
            if source:
                node.input[0] = source
    return _model(nodes, shape, plane, turns, dtype, initializers)


def fused(shape, plane, turns, dtype, factor) -> onnx.ModelProto:
    operator = ROT90 if factor is None else CUSTOM_ROT_SCALE
    nodes = []
    for turn in turns:
        attributes = {"k": turn, "axes": plane} if factor is None else {
            "rotations": turn, "scale_factor": factor, "dims": dims_of(plane, len(shape))}
        nodes.append(helper.make_node(operator.name, ["x"], [f"y{turn}"], domain="custom.ops", **attributes))
    model = ir.from_proto(_model(nodes, shape, plane, turns, dtype, []))
    function = ir.serde.deserialize_function(operator.define(list(model.graph), OPSET))
    model.functions[function.identifier()] = function
    return ir.to_proto(model)


def _model(nodes, shape, plane, turns, dtype, initializers) -> onnx.ModelProto:
    outputs = []
    for turn in turns:
        dims = list(shape)
        if turn != 2:
            dims[plane[0]], dims[plane[1]] = dims[plane[1]], dims[plane[0]]
        outputs.append(helper.make_tensor_value_info(f"y{turn}", TYPES[dtype], dims))
    graph = helper.make_graph(
        nodes, "turns", [helper.make_tensor_value_info("x", TYPES[dtype], shape)], outputs, initializers)
    return helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", OPSET), helper.make_opsetid("custom.ops", 1)])


def session(model: onnx.ModelProto, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the sessions would disturb each other
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def race(models, x, rounds, threads, rng) -> np.ndarray:
    """Times [rounds, models] in seconds."""
    sessions = [session(model, threads) for model in models]
    first, *rest = [s.run(None, {"x": x}) for s in sessions]
    for outputs in rest:
        for want, got in zip(first, outputs):
            np.testing.assert_array_equal(got, want)
    times = np.zeros((rounds, len(sessions)))
    for row in times:
        for i in rng.permutation(len(sessions)):
            start = time.perf_counter()
            sessions[i].run(None, {"x": x})
            row[i] = time.perf_counter() - start
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-k", default="", help="only lines that contain this text")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"onnxruntime {ort.__version__}, {args.threads} threads, {args.rounds} rounds")
    for shape, plane, turns, dtype, factor in CASES:
        label = f"{'x'.join(map(str, shape))} {dtype} plane {plane} turns {turns}" + (f" * {factor}" if factor else "")
        if args.k not in label:
            continue
        x = (rng.random(shape) * 100).astype(dtype)
        case = shape, plane, turns, dtype, factor
        rounds = args.rounds if x.size > 10000 else max(args.rounds, 1000)
        times = race([unfused(*case), fused(*case)], x, rounds, args.threads, rng)
        picks = np.median(times[rng.integers(0, len(times), (500, len(times)))], axis=1)
        low, high = np.quantile(picks[:, 1] / picks[:, 0], (0.025, 0.975))
        before, after = np.median(times, axis=0) * 1e3
        print(f"{label}: {before:.3f} -> {after:.3f} ms, x{after / before:.2f} [{low:.2f}, {high:.2f}]", flush=True)


if __name__ == "__main__":
    main()
