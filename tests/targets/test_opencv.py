"""OpenCV's dnn module does not run functions of a model; a file of --target stock runs, within what OpenCV can.

OpenCV looks operators up by op_type alone, so custom.ops::AffineGrid runs as its own AffineGrid where that is meant.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import rewriter
from patterns.operators import OPERATORS

cv2 = pytest.importorskip("cv2", minversion="5.0")
CORPUS = Path(__file__).parents[1] / "corpus"
WRONG = {"pair_cubic_mixed": "OpenCV's cubic is another, unfused too",
         "pair_hand_dynamic": "OpenCV does not multiply by an int32 tensor that sizes are computed with",
         "perspective": "nothing of ours in it", "flip": "nothing of ours in it"}


def run(model: onnx.ModelProto, feeds: dict) -> list[np.ndarray]:
    data = np.frombuffer(model.SerializeToString(), np.uint8)
    net = cv2.dnn.readNetFromONNX(data)
    for name, array in feeds.items():
        net.setInput(array, name)
    return [np.asarray(y) for y in net.forward([value.name for value in model.graph.output])]


@pytest.mark.parametrize("path", [path for path in sorted(CORPUS.glob("*.onnx")) if path.stem not in WRONG],
                         ids=lambda path: path.stem)
def test_stock_files(path):
    fused, _ = rewriter.fuse(onnx.load(path))
    plain, _ = rewriter.inline(fused)
    with np.load(path.with_suffix(".npz")) as stored:
        feeds = {name[3:]: stored[name] for name in stored.files if name.startswith("in_")}
        wanted = [stored[f"out_{value.name}"] for value in plain.graph.output]
    for got, want in zip(run(plain, feeds), wanted, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-3 if want.dtype == np.float16 else 1e-5)


def test_functions_do_not_run(assemble, calls):
    """Why a stock file is needed; once this fails it is not."""
    model, feeds = assemble([calls.sampler()])
    with pytest.raises(cv2.error, match="AffineGridSample"):
        run(model, feeds)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_samplers(assemble, calls, mode, padding_mode, align_corners):
    use = calls.sampler(mode, padding_mode, align_corners, 1)
    model, feeds = assemble([use])
    (got,) = run(rewriter.inline(model)[0], feeds)
    np.testing.assert_allclose(got, calls.by_torch(use), rtol=0, atol=1e-5)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("axes", [(2, 3), (1, 3)])
def test_turns(assemble, k, axes):
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    for call in (("Rot90", {"x": x}, {"k": k, "axes": axes}),
                 ("CustomRotScale", {"x": x}, {"rotations": k, "scale_factor": 0.5, "dims": f"{axes[0]},{axes[1]}"})):
        model, feeds = assemble([call])
        (got,) = run(rewriter.inline(model)[0], feeds)
        np.testing.assert_array_equal(got, OPERATORS[call[0]].reference(x, **call[2]))
