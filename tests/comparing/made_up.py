"""A comparison that never was, for what is shown of one."""

from __future__ import annotations

from rewriter.comparing.inputs import Spec
from rewriter.comparing.report import (
    Comparison,
    Fragment,
    ModelFacts,
    Operator,
    OutputError,
    Piece,
    Profile,
    Sweep,
    SweepPoint,
    Tolerance,
    Variant,
)
from rewriter.comparing.statistics import Ratio, Spread


def spread(median: float) -> Spread:
    return Spread(median, 0.98 * median, 1.02 * median, 0.97 * median, 1.05 * median, 40)


def comparison(*, ratio: float = 2.5, good: bool = True, label: str = "model.onnx") -> Comparison:
    """Unfused in 20 ms, fused `ratio` times as fast; `label` is in every place where a name of the user's can be."""
    faster = Ratio(ratio, 0.97 * ratio, 1.03 * ratio)
    found = OutputError(label, 3e-5 if good else 0.5, 1e-4, 2e-5, 0.0 if good else 0.3, good)
    variants = [
        Variant("onnxruntime-unfused", "ORT unfused", "unfused", "ONNX Runtime 1.32.0", creation=0.02, memory=50 << 20,
                times=spread(0.02)),
        Variant("control", "ORT unfused again", "unfused", "ONNX Runtime 1.32.0", creation=0.02, memory=50 << 20,
                times=spread(0.02), faster=Ratio(1.0, 0.98, 1.02), against="onnxruntime-unfused",
                errors=[OutputError(label, 0.0, 0.0, 2e-5, 0.0, True)]),
        Variant("onnxruntime-fused", "ORT fused, functions", "fused", "ONNX Runtime 1.32.0", creation=0.01,
                memory=30 << 20, times=spread(0.02 / ratio), faster=faster, against="onnxruntime-unfused",
                errors=[found]),
        Variant("onnxruntime-kernels", "ORT fused, kernels", "fused", missing=f"no library at {label}"),
        Variant("openvino-unfused", "OpenVINO unfused", "unfused", "OpenVINO 2026.4.1",
                failed=f"does not load: {label}"),
    ]
    pieces = tuple(Piece(operator, False, (index - 1,) if index else (), 4096 * index)
                   for index, operator in enumerate(["Transpose", "Mul", label]))
    point = {"times": {"onnxruntime-unfused": spread(0.02)}, "failed": {}, "good": good, "absolute": 1e-5}
    return Comparison(
        ModelFacts(label, 49149, 17), ModelFacts(f"{label} fused", 35055, 9), "0.1.0", "2026-12-01 12:00",
        "A Processor", 2, (Spec(label, "float", (1, 3, 8, 8)),), {label: 1}, 0, variants, "onnxruntime-unfused", True,
        [Tolerance(label, 2e-4, 0.0, "from the float64 run")], f"all of it in {label}", [(None, 70), (-6, 25), (-5, 5)],
        Ratio(1.0, 0.98, 1.02), Profile(0.02, 0.018, 0.0, [Operator(label, 0.018, 2), Operator("Conv", 0.002, 1)]),
        Profile(0.008, 0.006, 0.0, [Operator("GridSample", 0.006, 1)]),
        fragments=[Fragment(pieces, (Piece("AffineGrid", True, (), 0),), label, 2),
                   Fragment(pieces * 20, (Piece("Rot90", True, (), 0),), label)],
        sweep=Sweep((label,), [SweepPoint(64, faster={"onnxruntime-fused": faster}, **point),
                               SweepPoint(128, faster={"onnxruntime-fused": faster}, **point)]),
        notes=[f"a note on {label}"])
