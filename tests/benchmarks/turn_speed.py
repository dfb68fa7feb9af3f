"""How far are the kernels of Rot90 and CustomRotScale from a plain copy, and from ONNX Runtime's own nodes? By hand:

    python tests/benchmarks/turn_speed.py [--rounds 100] [--threads 1] [-k 512]

Three ways to the same bytes in one process, interleaved in random order: numpy.copyto (the C library's memcpy), the
kernel in an ONNX Runtime session, and the nodes of torch's dynamo exporter (Slice, then Transpose) in another. Sessions
write to bound outputs, so that nobody allocates. Every timed run follows one of the same kind, so that all find the
caches as they leave them. Medians; ratios with 95 % bootstrap intervals.
"""

from __future__ import annotations

import argparse
import platform
import time

import numpy as np
import onnx
import onnxruntime as ort
import rot90_bodies

import rewriter

PLANES = ((3, 512, 512), (3, 1024, 1024), (64, 256, 256), (3, 2048, 2048), (3, 1984, 1984), (3, 1080, 1920))
CASES = [  # shape, plane, dtype, factor
    *(((1, *shape), (2, 3), dtype, None) for dtype in ("float32", "uint8") for shape in PLANES),
    *(((1, 3, size, size), (2, 3), dtype, None) for dtype in ("float16", "float64") for size in (512, 1024)),
    *(((1, 512, 512, 3), (1, 2), dtype, None) for dtype in ("uint8", "float32")),
    ((8, 32, 96, 128), (1, 3), "float32", None),
    *(((1, 3, 512, 512), (2, 3), dtype, 0.25) for dtype in ("float32", "float16", "float64")),
    *(((1, 3, 28, 28), (2, 3), dtype, None) for dtype in ("float32", "uint8")),
]


def bound_run(model: onnx.ModelProto, options: ort.SessionOptions, threads: int, x: np.ndarray, y: np.ndarray):
    """A call without arguments that fills y."""
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the sessions would disturb each other
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    name = session.get_outputs()[0].name
    binding.bind_output(name, "cpu", 0, y.dtype, y.shape, y.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def aligned(shape, dtype) -> np.ndarray:
    """Zeros that start at a cache line, as ONNX Runtime's own tensors do."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start:start + size].view(dtype).reshape(shape)


def race(shape, plane, k, dtype, factor, rounds, threads, rng) -> np.ndarray:
    """Times [rounds, (copy, kernel, nodes)] in seconds."""
    x = aligned(shape, dtype)
    x[...] = rng.random(shape) * 100
    with np.errstate(over="ignore"):
        want = np.rot90(x * np.dtype(dtype).type(factor) if factor else x, k, plane)
    copied, turned, stock = aligned(shape, dtype), aligned(want.shape, dtype), aligned(want.shape, dtype)
    case = shape, plane, (k,), dtype, factor
    runs = [lambda: np.copyto(copied, x),
            bound_run(rot90_bodies.fused(*case), rewriter.session_options(), threads, x, turned),
            bound_run(rot90_bodies.unfused(*case), ort.SessionOptions(), threads, x, stock)]
    times = np.zeros((rounds, len(runs)))
    for row in times:
        for i in rng.permutation(len(runs)):
            runs[i]()
            start = time.perf_counter()
            runs[i]()
            row[i] = time.perf_counter() - start
    np.testing.assert_array_equal(turned, want)
    np.testing.assert_array_equal(stock, want)
    return times


def ratio(times: np.ndarray, over: int, under: int, rng) -> str:
    medians = np.median(times, axis=0)
    picks = np.median(times[rng.integers(0, len(times), (500, len(times)))], axis=1)
    low, high = np.quantile(picks[:, over] / picks[:, under], (0.025, 0.975))
    return f"{medians[over] / medians[under]:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-k", default="", help="only lines that contain this text")
    args = parser.parse_args()
    rot90_bodies.TYPES["float64"] = onnx.TensorProto.DOUBLE
    rng = np.random.default_rng(0)
    libc = " ".join(platform.libc_ver())
    print(f"onnxruntime {ort.__version__}, {libc}, numpy {np.__version__}, {args.threads} threads")
    print("case: copy | kernel / copy | nodes / kernel")
    for shape, plane, dtype, factor in CASES:
        for k in (1, 2, 3):
            label = f"{'x'.join(map(str, shape))} {dtype} plane {plane} k {k}" + (f" * {factor}" if factor else "")
            if args.k not in label:
                continue
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            rounds = args.rounds if size > 100_000 else 10 * args.rounds
            times = race(shape, plane, k, dtype, factor, rounds, args.threads, rng)
            copy = np.median(times[:, 0])
            print(f"{label}: {copy * 1e3:.4f} ms, {size / copy / 1e9:.1f} GB/s | {ratio(times, 1, 0, rng)} | "
                  f"{ratio(times, 2, 1, rng)}", flush=True)


if __name__ == "__main__":
    main()
