"""What other tools do to a fused model, as rewriter/docs/neighbours.md says; running the rewriter again mends it.

Tools that are no test dependencies are skipped where they are not installed.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import rewriter

KEPT, INLINED, DROPPED, STALE = "kept", "inlined", "functions dropped", "functions out of date"
OURS = {"AffineGrid": 1, "AffineGridSample": 1, "CustomRotScale": 1, "Rot90": 1}
EXACT, HALF, EIGHT_BITS = 1e-5, 2e-2, 0.3
RNG = np.random.default_rng(0)
X = RNG.random((1, 3, 24, 20), np.float32)
WEIGHTS = {"w": RNG.normal(size=(4, 3, 3, 3)) * 0.3, "g": RNG.normal(size=(4, 6)) * 0.1,
           "o": np.array([0.9, 0.1, 0, 0.1, 0.8, 0])}
TEXT = """<ir_version: 8, opset_import: ["" : %d, "custom.ops" : 1]>
g (float[1,3,24,20] x) => (float[1,4,20,24] a, float[1,4,24,20] b, float[1,6,8,2] c)
<int64[3] shape = {1, 2, 3}, int64[4] size = {1, 4, 24, 20}, int64[4] other = {1, 1, 6, 8}> {
    f = Conv<pads = [1, 1, 1, 1]>(x, w)
    pooled = GlobalAveragePool(f)
    flat = Flatten(pooled)
    six = Gemm(flat, g, o)
    theta = Reshape(six, shape)
    y = custom.ops.AffineGridSample<align_corners = 1, grid_align_corners = 1>(f, theta, size)
    a = custom.ops.Rot90<k = 1, axes = [2, 3]>(y)
    b = custom.ops.CustomRotScale<rotations = 2, scale_factor = 0.5>(y)
    twice = Add(theta, theta)
    c = custom.ops.AffineGrid(twice, other)
}"""


@functools.cache
def fused_bytes(opset):
    model = onnx.parser.parse_model(TEXT % opset)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in WEIGHTS.items())
    fused, report = rewriter.fuse(model)
    assert len(report.fused) == 4
    return fused.SerializeToString()


def fused_model(opset=18):
    return onnx.ModelProto.FromString(fused_bytes(opset))


def outputs(model, run):
    half = model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    return run(model, {model.graph.input[0].name: X.astype(np.float16) if half else X})


def difference(model, wanted, run):
    got = outputs(model, run)
    return max(np.abs(g.astype(np.float64) - w).max() for g, w in zip(got.values(), wanted.values()))


def through_files(tool):
    """A tool that takes and makes files."""
    def call(model, folder):
        onnx.save(model, folder / "in.onnx")
        tool(folder / "in.onnx", folder / "out.onnx")
        return onnx.load(folder / "out.onnx")
    return call


def onnxsim(model, folder):
    simplified, good = pytest.importorskip("onnxsim").simplify(model)
    assert good
    return simplified


def onnxslim(model, folder):
    return pytest.importorskip("onnxslim").slim(model)


def onnxoptimizer(model, folder):
    return pytest.importorskip("onnxoptimizer").optimize(model)


def onnxscript_optimizer(model, folder, **options):
    from onnxscript import optimizer

    return optimizer.optimize(model, **options)


def version_converter(model, folder):
    import onnx.version_converter

    return onnx.version_converter.convert_version(model, 21)


def inliner(model, folder):
    import onnx.inliner

    return onnx.inliner.inline_local_functions(model)


def extractor(model, folder):
    return onnx.utils.Extractor(model).extract_model(["x"], ["a", "b", "c"])


def add_prefix(model, folder):
    import onnx.compose

    return onnx.compose.add_prefix(model, "p_", rename_functions=False)


def graphsurgeon(model, folder):
    import onnx_graphsurgeon as gs

    return gs.export_onnx(gs.import_onnx(model).fold_constants().cleanup().toposort())


def offline(level):
    @through_files
    def optimize(source, target):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(target)
        ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return optimize


@through_files
def quantize_dynamic(source, target):
    pytest.importorskip("onnxruntime.quantization").quantize_dynamic(source, target)


def quantize_static(kind):
    @through_files
    def quantize(source, target):
        q = pytest.importorskip("onnxruntime.quantization")

        class Reader(q.CalibrationDataReader):
            def __init__(self):
                self.left = [{"x": X}] * 4

            def get_next(self):
                return self.left.pop() if self.left else None

        q.quantize_static(source, target, Reader(), quant_format=q.QuantFormat[kind])
    return quantize


@through_files
def quant_pre_process(source, target):
    pytest.importorskip("sympy")
    pytest.importorskip("onnxruntime.quantization.shape_inference").quant_pre_process(str(source), str(target))


def float16(**options):
    def convert(model, folder):
        return pytest.importorskip("onnxruntime.transformers.float16").convert_float_to_float16(model, **options)
    return convert


def float16_of_common(model, folder):
    return pytest.importorskip("onnxconverter_common").float16.convert_float_to_float16(model)


LEVEL = ort.GraphOptimizationLevel
TOOLS = {  # name: (tool, what it does, how far values may then be off)
    "onnxsim": (onnxsim, KEPT, EXACT),
    "onnxslim": (onnxslim, KEPT, EXACT),
    "onnxoptimizer": (onnxoptimizer, KEPT, EXACT),
    "onnxscript.optimizer": (onnxscript_optimizer, INLINED, EXACT),
    "onnxscript.optimizer(inline=False)": (functools.partial(onnxscript_optimizer, inline=False), KEPT, EXACT),
    "onnx.version_converter": (version_converter, DROPPED, EXACT),
    "onnx.inliner": (inliner, INLINED, EXACT),
    "onnx.utils.Extractor": (extractor, KEPT, EXACT),
    "onnx.compose.add_prefix(rename_functions=False)": (add_prefix, KEPT, EXACT),
    "graphsurgeon": (graphsurgeon, KEPT, EXACT),
    "ORT offline, basic": (offline(LEVEL.ORT_ENABLE_BASIC), INLINED, EXACT),
    "ORT offline, extended": (offline(LEVEL.ORT_ENABLE_EXTENDED), INLINED, EXACT),
    "ORT quantize_dynamic": (quantize_dynamic, KEPT, EIGHT_BITS),
    "ORT quantize_static, QDQ": (quantize_static("QDQ"), KEPT, EIGHT_BITS),
    "ORT quantize_static, QOperator": (quantize_static("QOperator"), KEPT, EIGHT_BITS),
    "ORT quant_pre_process": (quant_pre_process, INLINED, EXACT),
    "ORT float16": (float16(), STALE, HALF),
    "ORT float16(keep_io_types=True)": (float16(keep_io_types=True), STALE, HALF),
    "ORT float16(op_block_list=ours)": (float16(keep_io_types=True, op_block_list=list(OURS)), KEPT, HALF),
    "onnxconverter_common.float16": (float16_of_common, STALE, HALF),
}


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("name", TOOLS)
def test_what_it_does_and_how_it_is_mended(name, opset, tmp_path, run, custom):
    tool, outcome, tolerance = TOOLS[name]
    wanted = outputs(fused_model(opset), run)
    model = tool(fused_model(opset), tmp_path)
    functions = {f.name for f in model.functions if f.domain == "custom.ops"}
    assert custom(model) == ({} if outcome == INLINED else OURS)
    assert functions == (set() if outcome in (INLINED, DROPPED) else set(OURS))
    if outcome in (DROPPED, STALE):
        with pytest.raises(Exception, match=r"not a registered function|inconsistent type"):  # the runtime's own class
            outputs(model, run)
    else:
        assert difference(model, wanted, run) <= tolerance

    mended, report = rewriter.fuse(model)
    assert custom(mended) == OURS and {f.name for f in mended.functions if f.domain == "custom.ops"} == set(OURS)
    assert report.changed == (outcome != KEPT)
    assert difference(mended, wanted, run) <= tolerance
    again, second = rewriter.fuse(mended)
    assert not second.changed and again == mended
    if outcome in (DROPPED, STALE):  # --restore is enough
        restored, _ = rewriter.fuse(model, patterns=["adopt"])
        assert custom(restored) == OURS and difference(restored, wanted, run) <= tolerance


def test_the_page_names_every_tool():
    page = (Path(rewriter.__file__).parent / "docs" / "neighbours.md").read_text(encoding="utf-8")
    rows = {cells[1].strip(" `"): cells[2].strip() for line in page.splitlines()
            if (cells := line.split("|"))[0] == "" and len(cells) == 5}
    rows = {name: outcome for name, outcome in rows.items() if name not in ("tool", "---")}
    assert rows == {name: outcome for name, (_, outcome, _) in TOOLS.items()}


@pytest.mark.parametrize("opset", [18, 20])
def test_where_it_ends(opset, tmp_path, run, custom):
    """What the page says of tools behind which little is found again: values stay, and what is lost is said there."""
    wanted = outputs(fused_model(opset), run)
    everything = offline(LEVEL.ORT_ENABLE_ALL)(fused_model(opset), tmp_path)
    same, report = rewriter.fuse(everything)
    assert same == everything and not report.changed and difference(same, wanted, run) <= EXACT

    written_out = offline(LEVEL.ORT_DISABLE_ALL)(fused_model(opset), tmp_path)
    assert difference(written_out, wanted, run) <= EXACT
    fused, _ = rewriter.fuse(written_out)
    assert custom(fused) == OURS
    with pytest.raises(Exception, match="AddInitializedTensor already has tensor"):
        outputs(fused, run)
    stock, _ = rewriter.inline(fused)
    assert difference(stock, wanted, run) <= EXACT


def test_preprocessed_fused_and_then_quantized(tmp_path, run, custom):
    prepared = quant_pre_process(fused_model(), tmp_path)
    quantized = quantize_static("QDQ")(prepared, tmp_path)
    wanted = outputs(fused_model(), run)
    fused, _ = rewriter.fuse(quantized)
    assert custom(fused) == {"Rot90": 2} and difference(fused, wanted, run) <= EIGHT_BITS
    between, _ = rewriter.fuse(prepared)  # the order of the page
    rightly = quantize_static("QDQ")(between, tmp_path)
    assert custom(rightly) == OURS and difference(rightly, wanted, run) <= EIGHT_BITS


@pytest.mark.parametrize("opset", [18, 20])
def test_onnxscripts_version_converter(opset, run, custom):
    import onnx_ir as ir
    from onnxscript import version_converter as converter

    model = ir.serde.deserialize_model(fused_model(opset))
    converter.convert_version(model, opset + 1, fallback=False)
    made = ir.serde.serialize_model(model)
    assert custom(made) == {} and not made.functions and made.opset_import[0].version == opset + 1
    fused, _ = rewriter.fuse(made)
    assert custom(fused) == OURS and difference(fused, outputs(fused_model(opset), run), run) <= EXACT


def test_restore(tmp_path, capsys):
    from rewriter.cli import main

    bare = fused_model()
    del bare.functions[:]
    onnx.save(bare, tmp_path / "bare.onnx")
    assert main([str(tmp_path / "bare.onnx"), str(tmp_path / "mended.onnx"), "--restore"]) == 0
    assert capsys.readouterr().out.count("a node without a function") == 4
    assert {f.name for f in onnx.load(tmp_path / "mended.onnx").functions} == set(OURS)
    for more in (["--patterns", "rot90"], ["--follow-input-size"]):
        assert main([str(tmp_path / "bare.onnx"), str(tmp_path / "other.onnx"), "--restore", *more]) == 2
        assert "--restore" in capsys.readouterr().err
