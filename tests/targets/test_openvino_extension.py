"""The C++ extension of examples/openvino_extension: built where a compiler is, loaded, held against PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from patterns.operators import OPERATORS

openvino = pytest.importorskip("openvino")
SOURCE = Path(__file__).parents[2] / "examples" / "openvino_extension"


def run(extension: Path, model: onnx.ModelProto, feeds: dict) -> dict[str, np.ndarray]:
    core = openvino.Core()
    core.add_extension(str(extension))
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU",
                                  {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 2})
    result = compiled(feeds)
    return {name: np.array(result[output]) for output in compiled.outputs for name in output.names}


@pytest.mark.parametrize("dynamic", [False, True])
def test_every_operator(extension, assemble, calls, dynamic):
    uses = [calls.sampler(*use) for use in calls.SAMPLERS]
    uses += [calls.sampler(theta_batch=1, size0=2), calls.grid(), calls.grid(1, spatial=(1, 4)),
             calls.grid(1, spatial=(3, 4, 5)), calls.grid(spatial=(3, 4, 5), batch=1, size0=2)]
    model, feeds = assemble(uses, dynamic=dynamic)
    got = run(extension, model, feeds)
    for index, use in enumerate(uses):
        np.testing.assert_allclose(got[f"y{index}"], calls.by_torch(use), rtol=0, atol=1e-5, err_msg=str(use[2]))


@pytest.mark.parametrize("dynamic", [False, True])
def test_turns_and_halves(extension, assemble, calls, dynamic):
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float16)
    uses = [("Rot90", {"x": x}, {"k": k, "axes": axes}) for k in (-1, 0, 1, 2, 3) for axes in ((2, 3), (3, 1))]
    uses += [("CustomRotScale", {"x": x}, {"rotations": k, "scale_factor": 0.1, "dims": dims})
             for k in (1, 2, 3) for dims in ("height,width", "width, depth", "1,3")]
    model, feeds = assemble(uses, dynamic=dynamic)
    got = run(extension, model, feeds)
    for index, (op_type, operands, attributes) in enumerate(uses):
        np.testing.assert_array_equal(got[f"y{index}"], OPERATORS[op_type].reference(**operands, **attributes))
    use = calls.grid(dtype=np.float16)
    model, feeds = assemble([use], dynamic=dynamic)
    np.testing.assert_allclose(run(extension, model, feeds)["y0"], calls.by_torch(use), atol=8e-3)


def test_volumes_are_declined(extension, assemble, calls):
    model, feeds = assemble([calls.sampler(spatial=(3, 4, 5), source=(2, 3, 4))])
    with pytest.raises(RuntimeError, match="images only, not volumes"):
        run(extension, model, feeds)


def test_attributes_left_out(extension, assemble, calls):
    model, feeds = assemble([calls.sampler()])
    del model.graph.node[0].attribute[:]
    np.testing.assert_allclose(run(extension, model, feeds)["y0"], calls.by_torch(calls.sampler()), atol=1e-5)


def test_benchmark_app(extension, assemble, calls, tmp_path):
    app = Path(sys.executable).with_name("benchmark_app")
    if not app.exists():
        pytest.skip("this openvino has no benchmark_app")
    onnx.save(assemble([calls.sampler(), calls.grid()])[0], tmp_path / "fused.onnx")
    command = [app, "-m", tmp_path / "fused.onnx", "-extensions", extension, "-niter", "2", "-hint", "latency"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0 and "Throughput" in done.stdout, done.stdout[-2000:] + done.stderr
