"""A comparison as one page that needs nothing else: no network, no script, no file beside it.

Whatever comes from a model, a path or an error is escaped.
"""

from __future__ import annotations

import math

from rewriter.comparing import svg
from rewriter.comparing.drawing import LABELLED, census, draw, summary
from rewriter.comparing.report import Comparison, Profile, Sweep, SweepPoint, Variant
from rewriter.comparing.style import CSS
from rewriter.comparing.svg import escape
from rewriter.comparing.variants import CONTROL, KERNELS
from rewriter.comparing.verdict import headline, pace, verdict
from rewriter.units import error, plural, seconds, size, times

MOST_FRAGMENTS = 8
MOST_OPERATORS = 8


def html(comparison: Comparison) -> str:
    """The page."""
    sections = [_head(comparison), _table(comparison), _speed(comparison), _values(comparison),
                _operators(comparison), _fragments(comparison)]
    if comparison.sweep is not None:
        sections.insert(3, _sweep(comparison, comparison.sweep))
    title = escape(f"{comparison.unfused.name}, fused and unfused")
    return ("<!doctype html>\n"
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
            f"<title>{title}</title><style>{CSS}</style></head><body><main>\n"
            + "\n".join(filter(None, sections)) + f"\n{_conditions(comparison)}\n</main></body></html>\n")


def _head(comparison: Comparison) -> str:
    best = headline(comparison)
    kind = comparison.outcome(best) if best and comparison.agrees else "bad"
    return (f"<h1>{escape(comparison.unfused.name)} → {escape(comparison.fused.name)}</h1>"
            f'<p class="verdict {kind}">{escape(verdict(comparison))}</p>')


def _table(comparison: Comparison) -> str:
    before, after = comparison.unfused, comparison.fused
    rows = "".join(_row(comparison, variant) for variant in comparison.variants
                   if variant.ran and variant.key != CONTROL)
    absent = "".join(
        f'<tr><td>{escape(variant.label)}</td><td class="path">'
        f'{"<span class=bad>failed</span>: " if variant.failed else ""}{escape(variant.failed or variant.missing)}'
        "</td></tr>" for variant in comparison.variants if not variant.ran)
    return (f'<div class="wide"><table><tr><th>variant<th class="n">median<br>quartiles<th class="n">faster<br>95 % '
            f'interval<th class="n">session<br>creation<th class="n">peak<br>memory<th class="n">largest error<br>'
            f"absolute, relative</tr>{rows}</table></div>"
            f'<p class="soft">On disk {before.bytes:,} → {after.bytes:,} bytes, {before.nodes:,} → '
            f"{plural(after.nodes, 'node', 'nodes')}. Faster: than the unfused model in the same runtime. Peak memory: "
            "of a process of its own, beyond what it used before the model was loaded.</p>"
            + (f"<h3>Not run</h3><table>{absent}</table>" if absent else ""))


def _row(comparison: Comparison, variant: Variant) -> str:
    outcome = comparison.outcome(variant)
    colour = {"faster": "good", "slower": "bad", "noise": "noisy"}.get(outcome, "")
    ratio = variant.faster
    faster = (f'<span class="{colour}">{times(ratio.value)}x</span><br><small>{times(ratio.low)} to {times(ratio.high)}'
              f"{', noise' if outcome == 'noise' else ''}</small>" if ratio else "")
    median = (f"{seconds(variant.times.median)}<br><small>{seconds(variant.times.first)} to "
              f"{seconds(variant.times.third)}</small>" if variant.times else "")
    cells = (median, faster, "" if variant.creation is None else seconds(variant.creation),
             "" if variant.memory is None else size(variant.memory), _error(comparison, variant))
    return (f"<tr><td>{escape(variant.label)}<br><small>{escape(variant.runtime)}</small></td>"
            + "".join(f'<td class="n">{cell}</td>' for cell in cells) + "</tr>")


def _error(comparison: Comparison, variant: Variant) -> str:
    worst = variant.error
    if variant.key == comparison.reference or worst is None:
        return "<small>the reference</small>" if variant.key == comparison.reference else ""
    kind = "good" if variant.good else "bad"
    return (f'<span class="{kind}">{error(worst.absolute)}{"" if variant.good else " beyond"}</span><br>'
            f"<small>{error(worst.relative)}</small>")


def _speed(comparison: Comparison) -> str:
    timed = [v for v in comparison.variants if v.times and v.key != CONTROL]
    if not timed:
        return ""
    bars = svg.bars([(v.label, v.times.median, v.times.low, v.times.high, _kind(v), seconds(v.times.median))
                     for v in timed], "median time of one run")
    rated = [v for v in timed if v.faster]
    rounds = min(v.times.rounds for v in timed)
    parts = ["<h2>Speed</h2>", _figure(bars, f"Median time of one run with its 95 % interval, {rounds} interleaved "
                                             "rounds. Shorter is better.")]
    if rated:
        control = comparison.control
        told = (f" The grey band is the control: the unfused model against itself in a second process, "
                f"{pace(comparison.variant(CONTROL))}." if control else "")
        dots = svg.ratios([(v.label, v.faster.value, v.faster.low, v.faster.high, _kind(v)) for v in rated],
                          (control.low, control.high) if control else None, "times as fast as unfused")
        parts.append(_figure(dots, "How many times as fast as the unfused model in the same runtime, with 95 % "
                                   f"intervals from resampled rounds.{told}"))
    return "".join(parts)


def _sweep(comparison: Comparison, sweep: Sweep) -> str:
    labels = {v.key: v.label for v in comparison.variants}
    keys = list(dict.fromkeys(key for point in sweep.points for key in point.faster))
    series = [(labels.get(key, key), [(r.value, r.low, r.high) if (r := point.faster.get(key)) else None
                             for point in sweep.points], "kernels" if key == KERNELS else "fused") for key in keys]
    head = "".join(f'<th class="n">{escape(labels.get(key, key))}' for key in keys)
    rows = "".join(
        f'<tr><td class="n">{point.size}</td><td class="n">{_median(point, comparison.reference)}</td>'
        + "".join(_point(point.faster.get(key), point.failed.get(key, "")) for key in keys)
        + f'<td class="n {"" if point.good else "bad"}">{error(point.absolute)}</td></tr>' for point in sweep.points)
    name = ", ".join(sweep.dims)
    chart = svg.curves([point.size for point in sweep.points], series, "ratios by size", name)
    return (f"<h2>As the work grows</h2>{_figure(chart, 'How many times as fast as unfused, with 95 % intervals.')}"
            f'<div class="wide"><table><tr><th class="n">{escape(name)}<th class="n">unfused{head}'
            f'<th class="n">largest error</tr>{rows}</table></div>')


def _median(point: SweepPoint, key: str) -> str:
    spread = point.times.get(key)
    return seconds(spread.median) if spread else escape("; ".join(point.failed.values()))


def _point(ratio, failure: str) -> str:
    shown = escape(failure) if ratio is None else (
        f"{times(ratio.value)}x <small>{times(ratio.low)} to {times(ratio.high)}</small>")
    return f'<td class="n">{shown}</td>'


def _values(comparison: Comparison) -> str:
    bars, total = comparison.histogram, sum(count for _, count in comparison.histogram)
    rows = [("equal" if decade is None else f"1e{decade:+03d}", count / max(total, 1), _share(count / max(total, 1)))
            for decade, count in bars]
    allowed = max((t.allowed for t in comparison.tolerances), default=0.0)
    decades = [decade for decade, _ in bars if decade is not None]
    mark = None
    if allowed > 0 and decades:
        mark = 1 + min(max(math.log10(allowed) - decades[0], 0.0), len(decades) + 0.7)
    chart = svg.columns(rows, mark, f"tolerance {error(allowed)}", "errors by decade") if total else ""
    told = "".join(
        f"<tr><td>{escape(t.output)}</td><td class='n'>{error(t.allowed)}</td><td>{escape(t.why)}</td></tr>"
        for t in comparison.tolerances)
    caption = (f"How far {plural(total, 'output element', 'output elements')} of the fused model in ONNX Runtime "
               "are from the unfused model's, by decade (1e-05: from 1e-05 to 1e-04).")
    return (f"<h2>Values</h2>{_figure(chart, caption) if chart else ''}"
            f'<table><tr><th>output<th class="n">tolerance<th>why</tr>{told}</table>'
            f'<p class="soft">float64 run: {escape(comparison.float64)}. Relative errors are over elements of at '
            "least a thousandth of the output's largest magnitude.</p>")


def _operators(comparison: Comparison) -> str:
    profiles = [("Before", comparison.before), ("After", comparison.after)]
    if comparison.before is None:
        return f"<h2>Operators</h2><p>{escape(comparison.unprofiled)}</p>" if comparison.unprofiled else ""
    most = max(profile.operators[0].seconds for _, profile in profiles if profile and profile.operators)
    parts = ["<h2>Where the time goes</h2>",
             f'<p class="soft">Operators of the optimized graph, by ONNX Runtime\'s profiler. What was fused: '
             f"{seconds(comparison.before.concerned)} of {seconds(comparison.before.total)} before"
             + (f", {seconds(comparison.after.concerned)} of {seconds(comparison.after.total)} after"
                if comparison.after else "") + ".</p>"]
    for name, profile in profiles:
        if profile is not None and profile.operators:
            parts.append(f"<h3>{name}</h3>" + _figure(svg.bars(_operator_rows(profile, name), name, most), ""))
    return "".join(parts)


def _operator_rows(profile: Profile, name: str) -> list[tuple]:
    kind = "unfused" if name == "Before" else "fused"
    shown = [(f"{o.name} x{o.count}" if o.count > 1 else o.name, o.seconds, None, None, kind,
              f"{seconds(o.seconds)}, {_share(o.seconds / profile.total if profile.total else 0)}")
             for o in profile.operators[:MOST_OPERATORS]]
    rest = profile.operators[MOST_OPERATORS:]
    if rest:
        took = sum(o.seconds for o in rest)
        shown.append((f"{len(rest)} others", took, None, None, kind, seconds(took)))
    return shown


def _fragments(comparison: Comparison) -> str:
    if not comparison.fragments:
        return ""
    parts = ["<h2>What was fused</h2>"]
    for fragment in comparison.fragments[:MOST_FRAGMENTS]:
        count = f", {fragment.count:,} times" if fragment.count > 1 else ""
        where = f" at {fragment.where}" if fragment.where else ""
        dots = f'<p class="soft">{escape(census(fragment.before))}</p>' if len(fragment.before) > LABELLED else ""
        parts.append(f'<h3>{escape(summary(fragment) + where + count)}</h3>{dots}'
                     f'<div class="card">{draw(fragment)}</div>')
    if len(comparison.fragments) > MOST_FRAGMENTS:
        parts.append(f'<p class="soft">and {len(comparison.fragments) - MOST_FRAGMENTS:,} more forms</p>')
    return "".join(parts)


def _conditions(comparison: Comparison) -> str:
    assumed = " ".join(f"--dim {name}={taken}" for name, taken in comparison.assumed.items())
    rows = [("measured", f"{comparison.date}, onnx-warpfuse {comparison.rewriter}"),
            ("machine", f"{comparison.cpu}, {plural(comparison.threads, 'thread', 'threads')}"),
            ("runtimes", ", ".join(dict.fromkeys(v.runtime for v in comparison.variants if v.runtime))),
            ("inputs", ", ".join(f"{s.name} {s.dtype}{list(s.shape)}" for s in comparison.inputs)
             + f"; random data of seed {comparison.seed}"),
            *([("sizes assumed", assumed)] if assumed else []), *(("note", note) for note in comparison.notes)]
    told = "".join(f"<dt>{key}</dt><dd>{escape(value)}</dd>" for key, value in rows)
    return f"<h2>Conditions</h2><dl>{told}</dl>"


def _figure(chart: str, caption: str) -> str:
    return f"<figure>{chart}{f'<figcaption>{escape(caption)}</figcaption>' if caption else ''}</figure>"


def _kind(variant: Variant) -> str:
    return "kernels" if variant.key == KERNELS else variant.model


def _share(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %" if share >= 0.0005 else (
        "<0.1 %" if share else "0 %")
