"""The outcome in a sentence or two, for somebody who reads nothing else."""

from __future__ import annotations

from rewriter.comparing.report import Comparison, Variant
from rewriter.comparing.variants import FUSED, KERNELS
from rewriter.units import times

LITTLE = 0.01  # a share of the time that is not worth talking about


def headline(comparison: Comparison) -> Variant | None:
    """The fused variant that the verdict is about: the fastest of ours in ONNX Runtime, else of any runtime."""
    fused = [v for v in comparison.variants if v.model == "fused" and v.ran]
    own = [v for v in fused if v.key in (FUSED, KERNELS)] or fused
    return max(own, key=lambda v: v.faster.value if v.faster else 0.0, default=None)


def verdict(comparison: Comparison) -> str:
    """What fusing bought, whether the values hold, and whether it matters for this model."""
    best = headline(comparison)
    if best is None:
        return "No fused variant could be run."
    sentences = []
    if comparison.mismatched:
        labels = " and ".join(variant.label for variant in comparison.mismatched)
        sentences.append(f"MISMATCH: {labels} does not give the unfused model's values.")
    elif not comparison.agrees and comparison.sweep and not all(point.good for point in comparison.sweep.points):
        sizes = ", ".join(str(point.size) for point in comparison.sweep.points if not point.good)
        sentences.append(f"MISMATCH: fused, the values differ at the sizes {sizes}.")
    sentences.append(_speed(comparison, best))
    if not comparison.stable:
        sentences.append("Its values cannot be judged, for the unfused model gives others every time.")
    elif not comparison.mismatched:
        sentences.append(_values(best))
    sentences.append(_share(comparison))
    if comparison.busy:
        sentences.append("The machine was busy, so do not take these times for more than a hint.")
    return " ".join(filter(None, sentences))


def pace(variant: Variant) -> str:
    """The ratio with its interval: "2.90x (2.81 to 3.02)"."""
    ratio = variant.faster
    return f"{times(ratio.value)}x ({times(ratio.low)} to {times(ratio.high)})" if ratio else ""


def _speed(comparison: Comparison, best: Variant) -> str:
    ratio, outcome = best.faster, comparison.outcome(best)
    runtime = best.runtime.rpartition(" ")[0]
    how = f"in {runtime} with the kernels" if best.key == KERNELS else f"in {runtime}"
    if ratio is None:
        return f"Fused, the model runs {how}; there was nothing to hold its speed against."
    interval = f"95 % interval {times(ratio.low)} to {times(ratio.high)}"
    if outcome == "noise":
        return f"Fused, the model is as fast as before {how}: no difference beyond noise ({interval})."
    if outcome == "slower":
        return f"Fused, the model is SLOWER {how}: {times(ratio.value)} times as fast ({interval})."
    return f"Fused, the model runs {times(ratio.value)} times as fast {how} ({interval})."


def _values(best: Variant) -> str:
    worst = best.error
    if worst is None:
        return ""
    if worst.absolute == 0:
        return "Its values are the same, bit for bit."
    return f"Its values agree: at most {worst.absolute:.1e} apart."


def _share(comparison: Comparison) -> str:
    before = comparison.before
    if before is None:
        return ""
    if not comparison.fragments:
        return "The two models have the same nodes."
    if before.share < LITTLE:
        return "What was fused took less than 1 % of the unfused model's time, so it hardly matters here."
    return f"What was fused took {100 * before.share:.0f} % of the unfused model's time."


