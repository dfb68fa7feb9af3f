"""onnxruntime-web under Node runs fused files as they are. Skipped where it is not installed:

    npm install onnxruntime-web     # in this folder, or in one that WARPFUSE_NODE_MODULES names (its node_modules)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import rewriter
from patterns.operators import OPERATORS

NODE = shutil.which("node")
MODULES = next((p for p in (Path(os.environ.get("WARPFUSE_NODE_MODULES", "node_modules")),
                            Path(__file__).parent / "node_modules") if (p / "onnxruntime-web").is_dir()), None)
pytestmark = pytest.mark.skipif(NODE is None or MODULES is None, reason="no Node, or no onnxruntime-web for it")
SCRIPT = """
import * as ort from 'onnxruntime-web';
import fs from 'fs';
ort.env.wasm.numThreads = 1;
const types = {float32: Float32Array, int64: BigInt64Array};
const done = [];
for (const {model, feeds} of JSON.parse(fs.readFileSync(0, 'utf8'))) {
    const session = await ort.InferenceSession.create(
        Uint8Array.from(Buffer.from(model, 'base64')), {executionProviders: ['wasm']});
    const given = {};
    for (const [name, {type, data, dims}] of Object.entries(feeds))
        given[name] = new ort.Tensor(type, types[type].from(type == 'int64' ? data.map(BigInt) : data), dims);
    const results = await session.run(given);
    done.push(session.outputNames.map(name => ({dims: results[name].dims, data: Array.from(results[name].data)})));
}
console.log(JSON.stringify(done));
"""


def run(models, tmp_path) -> list[list[np.ndarray]]:
    """The outputs of (model, feeds) pairs."""
    import base64

    (tmp_path / "node_modules").symlink_to(MODULES.resolve())
    (tmp_path / "run.mjs").write_text(SCRIPT)
    sent = [{"model": base64.b64encode(model.SerializeToString()).decode(), "feeds": {
        name: {"type": str(a.dtype), "data": a.ravel().tolist(), "dims": list(a.shape)} for name, a in feeds.items()}}
        for model, feeds in models]
    done = subprocess.run([NODE, "run.mjs"], cwd=tmp_path, input=json.dumps(sent), capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [[np.array(y["data"]).reshape(y["dims"]) for y in outputs]
            for outputs in json.loads(done.stdout.splitlines()[-1])]


def test_fused_and_stock_files(assemble, calls, tmp_path):
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    grids = [calls.sampler(*use) for use in calls.SAMPLERS]
    grids += [calls.grid(1, spatial=(3, 4, 5)), calls.grid()]
    turns = [("Rot90", {"x": x}, {"k": k, "axes": (2, 3)}) for k in (1, 2, 3)]
    turns += [("CustomRotScale", {"x": x}, {"rotations": 1, "scale_factor": 0.1, "dims": "height,width"})]
    fused = [assemble([*grids, *turns], dynamic=dynamic) for dynamic in (False, True)]
    stock = [(rewriter.inline(model)[0], feeds) for model, feeds in fused]
    wanted = [calls.by_torch(use) for use in grids]
    wanted += [OPERATORS[op_type].reference(**operands, **attributes) for op_type, operands, attributes in turns]
    for outputs in run([*fused, *stock], tmp_path):
        for got, want in zip(outputs, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
