"""A comparison as text for people, in at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter.comparing.report import Comparison, Profile, Sweep, Variant
from rewriter.comparing.variants import CONTROL
from rewriter.comparing.verdict import pace, verdict
from rewriter.terminal import Terminal
from rewriter.units import error, plural, seconds, size, times

MOST_OPERATORS = 5
MOST_OUTPUTS = 8
_COLOURS = {"faster": "bold green", "slower": "bold red", "noise": "bold yellow", "": "bold"}


def show(terminal: Terminal, comparison: Comparison) -> None:
    """The verdict, the table, and under which conditions it was measured."""
    terminal.line((verdict(comparison), _colour(comparison)))
    terminal.table(("variant", "median (quartiles)", "faster (95 %)", "create", "memory", "error"),
                   _rows(comparison), numbers=(3, 4, 5))
    for variant in comparison.variants:
        if variant.missing or variant.failed:
            what = ("failed: ", "red") if variant.failed else ("absent: ", "dim")
            terminal.line(what, f"{variant.label} {variant.failed}" if variant.failed
                          else f"{variant.label}: {variant.missing}")
    control = comparison.variant(CONTROL)
    if control is not None and control.faster is not None:
        terminal.line(("control ", "bold"), f"the unfused model against itself: {pace(control)}")
    _values(terminal, comparison)
    _operators(terminal, comparison)
    before, after = comparison.unfused, comparison.fused
    terminal.line(("size ", "bold"), f"{before.bytes:,} -> {after.bytes:,} bytes, nodes {before.nodes:,} -> "
                                     f"{after.nodes:,}")
    if comparison.sweep is not None:
        _sweep(terminal, comparison.sweep, comparison)
    for note in comparison.notes:
        terminal.line(("note ", "bold"), note)
    _conditions(terminal, comparison)


def _colour(comparison: Comparison) -> str:
    from rewriter.comparing.verdict import headline

    if not comparison.agrees:
        return "bold red"
    best = headline(comparison)
    return _COLOURS[comparison.outcome(best) if best else ""]


def _rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    for variant in comparison.variants:
        if not variant.ran or variant.key == CONTROL:
            continue
        yield (variant.label, _times(variant), _faster(comparison, variant),
               "" if variant.creation is None else seconds(variant.creation),
               "" if variant.memory is None else size(variant.memory), _error(comparison, variant))


def _times(variant: Variant) -> str:
    if variant.times is None:
        return ""
    spread = variant.times
    low, high = (seconds(value) for value in (spread.first, spread.third))
    unit = high.rpartition(" ")[2]
    if low.endswith(f" {unit}"):
        low = low.rpartition(" ")[0]
    return f"{seconds(spread.median)} ({low} to {high})"


def _faster(comparison: Comparison, variant: Variant) -> str:
    if variant.faster is None:
        return ""
    return pace(variant) + (" noise" if comparison.outcome(variant) == "noise" else "")


def _error(comparison: Comparison, variant: Variant) -> str:
    if variant.key == comparison.reference:
        return "(reference)"
    if variant.error is None:
        return ""
    if not comparison.stable:
        return error(variant.error.absolute)
    return error(variant.error.absolute) + ("" if variant.good else " BAD")


def _values(terminal: Terminal, comparison: Comparison) -> None:
    terminal.line(("float64 run ", "bold"), comparison.float64)
    for tolerance in comparison.tolerances[:MOST_OUTPUTS]:
        terminal.line(("tolerance ", "bold"), f"{tolerance.output}: {error(tolerance.allowed)} {tolerance.why}")
        for variant in comparison.variants:
            for found in variant.errors:
                if found.output == tolerance.output and variant.model == "fused":
                    good = found.good or not comparison.stable
                    exact = "" if found.exact is None else f", {error(found.exact)} from the float64 run"
                    terminal.line(f"    {variant.label}: {error(found.absolute)} absolute, {error(found.relative)} "
                                  f"relative{exact}", "" if good else (" BEYOND", "bold red"))
    if len(comparison.tolerances) > MOST_OUTPUTS:
        terminal.line(f"    and {len(comparison.tolerances) - MOST_OUTPUTS:,} more outputs (--json has them)")


def _operators(terminal: Terminal, comparison: Comparison) -> None:
    if comparison.unprofiled:
        terminal.line(("operators ", "bold"), f"no profile: {comparison.unprofiled}")
    if comparison.before is not None:
        terminal.line(("operators ", "bold"), f"before: {_profile(comparison.before)}")
    if comparison.after is not None:
        terminal.line(f"          after:  {_profile(comparison.after)}")


def _profile(profile: Profile) -> str:
    shown = ", ".join(f"{operator.name} {seconds(operator.seconds)}" for operator in profile.operators[:MOST_OPERATORS])
    return f"{seconds(profile.total)}: {shown}" + (" ..." if len(profile.operators) > MOST_OPERATORS else "")


def _sweep(terminal: Terminal, sweep: Sweep, comparison: Comparison) -> None:
    terminal.line(("sweep ", "bold"), f"over {', '.join(sweep.dims)}")
    keys = list(dict.fromkeys(key for point in sweep.points for key in point.faster))
    labels = {variant.key: variant.label for variant in comparison.variants}
    rows = [(point.size, seconds(point.times[comparison.reference].median) if comparison.reference in point.times
             else "; ".join(point.failed.values()),
             *(_point(point.faster.get(key), point.failed.get(key)) for key in keys),
             error(point.absolute) + ("" if point.good else " BAD")) for point in sweep.points]
    header = (terminal.printable(" x ".join(sweep.dims)), "unfused", *(labels.get(key, key) for key in keys), "error")
    terminal.table(header, rows, numbers=(0,))


def _point(ratio, failure: str | None) -> str:
    return failure or "" if ratio is None else f"{times(ratio.value)}x ({times(ratio.low)} to {times(ratio.high)})"


def _conditions(terminal: Terminal, comparison: Comparison) -> None:
    inputs = ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in comparison.inputs)
    runtimes = ", ".join(dict.fromkeys(variant.runtime for variant in comparison.variants if variant.runtime))
    terminal.line(("measured ", "bold"), f"{comparison.date} on {comparison.cpu}, "
                                         f"{plural(comparison.threads, 'thread', 'threads')}: {runtimes}")
    terminal.line(f"    inputs: {inputs} (seed {comparison.seed})")
    if comparison.assumed:
        dims = " ".join(f"--dim {name}={taken}" for name, taken in comparison.assumed.items())
        terminal.line(f"    sizes the model leaves open were taken as: {dims}")
