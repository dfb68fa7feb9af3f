"""How far values are from the reference, and how far they may be.

Two ways to judge. Where a float64 run of the unfused model is possible, a fused model may be twice as far from it as
the unfused one is. Where it is not, the two may differ by what rounding explains: a sampler's coordinate is only
known to a rounding error times the length of its axis, and one pixel on can be another colour altogether.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx

from rewriter.comparing.report import OutputError, Tolerance

STEPS = 4  # rounding errors of a coordinate: the base grid, two products, their sum
LEAST = 64  # rounding errors allowed where no axis is long
OWN = 2  # how much further from float64 a fused model may be than the unfused one
JUMPING_SHARE = 1e-3  # of elements that may differ where a rounding error can make a value jump
_JUMPS = {"Round", "Floor", "Ceil", "ArgMax", "ArgMin", "TopK", "NonMaxSuppression", "Less", "LessOrEqual", "Greater",
          "GreaterOrEqual", "Sign", "Unique", "QuantizeLinear", "DynamicQuantizeLinear"}
_SAMPLERS = {"GridSample", "AffineGridSample"}
_EXACT = "exactly, for it is no floating point"


def difference(values: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """|values - reference| as float64: 0 where both are the same infinity or no number, infinite where only one is."""
    a, b = (_wide(array) for array in (values, reference))
    with np.errstate(invalid="ignore"):
        off = np.abs(a - b)
    off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, off)
    return np.where(np.isnan(off), np.inf, off)


def jumps(model: onnx.ModelProto) -> bool:
    """Whether rounding errors can make a value jump: nearest samplers, roundings, choices."""
    def walk(nodes: Iterable[onnx.NodeProto]) -> bool:
        for node in nodes:
            modes = [attribute.s for attribute in node.attribute if attribute.name == "mode"]
            if node.op_type in _JUMPS or (node.op_type in _SAMPLERS and b"nearest" in modes):
                return True
            if any(walk(attribute.g.node) for attribute in node.attribute if attribute.HasField("g")):
                return True
        return False

    return walk(model.graph.node) or any(walk(function.node) for function in model.functions)


def tolerances(reference: Mapping[str, np.ndarray], shapes: Iterable[tuple[int, ...]], *, jumping: bool,
               exact: Mapping[str, np.ndarray] | None) -> list[Tolerance]:
    """What is allowed for each output.

    Args:
        reference: outputs of the unfused model.
        shapes: of its inputs; where the longest axis of an image is looked up.
        jumping: of `jumps`.
        exact: outputs of a float64 run, if there was one; what is allowed is then a distance to those.
    """
    shapes = [*shapes, *(array.shape for array in reference.values())]
    longest = max((size for shape in shapes if len(shape) >= 4 for size in shape[1:]), default=1)
    return [_tolerance(name, array, longest, jumping, None if exact is None else exact.get(name))
            for name, array in reference.items()]


def compare_outputs(values: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray],
                    allowed: Iterable[Tolerance], exact: Mapping[str, np.ndarray] | None,
                    own: Mapping[str, float] | None = None) -> list[OutputError]:
    """One error an output.

    Args:
        values: of the variant, by output.
        reference: of the unfused model.
        allowed: by `tolerances`, from the same `exact`.
        exact: outputs of a float64 run.
        own: how far the unfused model is in the variant's own runtime, by output: twice that is forgiven too.
    """
    return [_error(tolerance, values.get(tolerance.output), reference[tolerance.output],
                   None if exact is None else exact.get(tolerance.output), (own or {}).get(tolerance.output, 0.0))
            for tolerance in allowed]


def histogram(values: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> list[tuple[int | None, int]]:
    """(decade, elements) over all outputs, every decade between the smallest and the largest; None is exact equality.

    Decade -5 holds 1e-5 <= |a - b| < 1e-4; what is not finite on one side only is left out.
    """
    off = [difference(values[name], array).ravel() for name, array in reference.items()
           if name in values and values[name].shape == array.shape]
    off = np.concatenate(off) if off else np.zeros(0)
    some = off[(off > 0) & np.isfinite(off)]
    decades = np.floor(np.log10(some)).astype(int)
    bars: list[tuple[int | None, int]] = [(None, int((off == 0).sum()))]
    if len(decades):
        bars += [(decade, int((decades == decade).sum())) for decade in range(decades.min(), decades.max() + 1)]
    return bars


def _tolerance(name: str, array: np.ndarray, longest: int, jumping: bool, exact: np.ndarray | None) -> Tolerance:
    share = JUMPING_SHARE if jumping else 0.0
    jump = f"; {share:.1%} of the elements may jump, for the model rounds or chooses" if jumping else ""
    epsilon = _epsilon(array)
    if epsilon is None:
        return Tolerance(name, 0.0, share, _EXACT + jump)
    span = _span(array)
    if exact is None or exact.shape != array.shape:
        steps = max(LEAST, STEPS * longest)
        reason = f"{STEPS} for each of the {longest} pixels of an axis" if steps > LEAST else "the least"
        return Tolerance(name, steps * epsilon * span, share,
                         f"{steps} roundings ({reason}) of {array.dtype}, times the values' range {span:.3g}{jump}")
    fine = min(epsilon, float(np.finfo(np.float32).eps))
    floor = (max(LEAST, STEPS * longest) * fine + OWN * epsilon) * span
    off = difference(array, exact)
    own = float(off.max(initial=0.0))
    if jumping:  # the largest error is a jump: count instead
        return Tolerance(name, floor, max(share, OWN * float((off > floor).mean())),
                         f"from the float64 run, what rounding explains{jump}")
    if OWN * own > floor:
        return Tolerance(name, OWN * own, 0.0, f"from the float64 run, {OWN} times what the unfused model is off")
    return Tolerance(name, floor, 0.0, f"from the float64 run, what rounding explains (the unfused model is "
                                       f"{own:.1e} off)")


def _error(tolerance: Tolerance, values: np.ndarray | None, reference: np.ndarray, exact: np.ndarray | None,
           own: float) -> OutputError:
    name = tolerance.output
    if values is None or values.shape != reference.shape:
        return OutputError(name, float("inf"), float("inf"), None, 1.0, False)
    off = difference(values, reference)
    absolute = float(off.max(initial=0.0))
    judged, to_exact = off, None
    if exact is not None and exact.shape == values.shape and _epsilon(reference) is not None:
        judged = difference(values, exact)
        to_exact = float(judged.max(initial=0.0))
    outliers = float((judged > tolerance.allowed).mean()) if judged.size else 0.0
    good = outliers <= tolerance.outliers or absolute <= OWN * own
    return OutputError(name, absolute, _relative(off, reference), to_exact, outliers, good)


def _relative(off: np.ndarray, reference: np.ndarray) -> float:
    size = np.abs(_wide(reference))
    scale = size[np.isfinite(size)].max(initial=0.0)
    big = (size >= scale * 1e-3) & (size > 0) & np.isfinite(size)
    return float((off[big] / size[big]).max(initial=0.0)) if big.any() else float(off.max(initial=0.0) > 0)


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind != "c" else array


def _epsilon(array: np.ndarray) -> float | None:
    """The rounding error of its type, or None where there is none."""
    if array.dtype.name == "bfloat16":
        return 2.0 ** -7
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else None


def _span(array: np.ndarray) -> float:
    """Range of the finite values, at least the largest magnitude."""
    wide = _wide(array)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return 1.0
    return float(max(finite.max() - finite.min(), np.abs(finite).max())) or 1.0
