"""Each runtime as a function from a fused model and its feeds to its outputs, in the model's order."""

from __future__ import annotations

import base64
import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import rewriter
import rewriter.runtimes.openvino
from rewriter.errors import KernelsError

FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 2}  # OpenVINO's choice may be bfloat16
MODULES = (Path(os.environ.get("WARPFUSE_NODE_MODULES", "node_modules")), Path(__file__).parent / "node_modules")
SCRIPT = """
import * as ort from 'onnxruntime-web';
import readline from 'readline';
ort.env.wasm.numThreads = 1;
const types = {float16: Uint16Array, float32: Float32Array, float64: Float64Array, bool: Uint8Array,
               uint8: Uint8Array, int32: Int32Array, int64: BigInt64Array};
const bytes = text => { const b = Buffer.from(text, 'base64'); return new Uint8Array(b).buffer; };
const text = data => Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('base64');
async function answer({model, feeds}) {
    const session = await ort.InferenceSession.create(new Uint8Array(bytes(model)), {executionProviders: ['wasm']});
    try {
        const given = {};
        for (const [name, {type, data, dims}] of Object.entries(feeds))
            given[name] = new ort.Tensor(type, new types[type](bytes(data)), dims);
        const results = await session.run(given);
        return session.outputNames.map(name => results[name]).map(
            ({type, data, dims}) => ({type, data: text(data), dims}));
    } finally { await session.release(); }
}
for await (const line of readline.createInterface({input: process.stdin})) {
    let said;
    try { said = {outputs: await answer(JSON.parse(line))}; } catch (error) { said = {error: String(error)}; }
    console.log('=' + JSON.stringify(said));
}
"""


def functions(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    """ONNX Runtime without the kernels."""
    return _session(model, ort.SessionOptions(), feeds)


def kernels(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    """ONNX Runtime with the kernels, on a file that has no functions: nothing else can run it."""
    try:
        options = rewriter.session_options()
    except KernelsError as error:
        if any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++")):
            pytest.fail(f"there is a C++ compiler, but {error}")
        pytest.skip(str(error))
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.functions[:]
    return _session(bare, options, feeds)


def stock(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    """A file of --target stock in ONNX Runtime."""
    return functions(rewriter.inline(model)[0], feeds)


def _session(model, options, feeds):
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def reference(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    """onnx's ReferenceEvaluator."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, feeds)


def web(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    """onnxruntime-web under Node, on wasm. Skips where there is no Node, or no onnxruntime-web for it:

        npm install onnxruntime-web   # in this folder, or in one whose node_modules WARPFUSE_NODE_MODULES names

    Raises:
        RuntimeError: what onnxruntime-web throws.
    """
    node = _node()
    sent = {"model": base64.b64encode(model.SerializeToString()).decode(), "feeds": {
        name: {"type": str(a.dtype), "data": base64.b64encode(a.tobytes()).decode(), "dims": list(a.shape)}
        for name, a in feeds.items()}}
    node.stdin.write(json.dumps(sent) + "\n")
    node.stdin.flush()
    said = next((json.loads(line[1:]) for line in node.stdout if line.startswith("=")), {"error": "Node has ended"})
    if "error" in said:
        raise RuntimeError(said["error"])
    return [np.frombuffer(base64.b64decode(y["data"]), y["type"]).reshape(y["dims"]) for y in said["outputs"]]


@functools.cache
def _node() -> subprocess.Popen:
    """One process for all models of this one; it ends with its standard input."""
    modules = next((path for path in MODULES if (path / "onnxruntime-web").is_dir()), None)
    if shutil.which("node") is None or modules is None:
        pytest.skip("no Node, or no onnxruntime-web for it")
    return subprocess.Popen(["node", "--input-type=module", "-e", SCRIPT], cwd=modules.parent, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def openvino_register(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    """OpenVINO after `register(core)`."""
    core = pytest.importorskip("openvino").Core()
    rewriter.runtimes.openvino.register(core)
    return openvino(model, feeds, core)


def openvino_target(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    """A file of --target openvino in OpenVINO."""
    core = pytest.importorskip("openvino").Core()
    return openvino(rewriter.fuse(model, patterns=(), target="openvino")[0], feeds, core)


def openvino_extension(model: onnx.ModelProto, feeds: dict, *, library: Path) -> list[np.ndarray]:
    """OpenVINO with the C++ extension."""
    core = pytest.importorskip("openvino").Core()
    core.add_extension(str(library))
    return openvino(model, feeds, core)


def openvino(model: onnx.ModelProto, feeds: dict, core) -> list[np.ndarray]:
    """A model on a core, in float32."""
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", FLOAT32)
    result = compiled(feeds)
    # it merges equal outputs, which then have several names
    named = {name: np.array(result[output]) for output in compiled.outputs for name in output.names}
    return [named[value.name] for value in model.graph.output]


def opencv(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    """A file of --target stock in OpenCV's dnn."""
    return opencv_net(rewriter.inline(model)[0], feeds)


def opencv_net(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    """A model as it is in OpenCV's dnn."""
    cv2 = pytest.importorskip("cv2", minversion="5.1")
    net = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))
    for name, array in feeds.items():
        net.setInput(array, name)
    return [np.asarray(y) for y in net.forward([value.name for value in model.graph.output])]
