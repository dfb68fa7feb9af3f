"""Small charts as inline SVG, drawn with the page's own classes, so that they follow its theme."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from rewriter.units import times

WIDTH = 760
LABEL = 190  # room for the names at the left
VALUE = 120  # and for the numbers at the right
ROW = 30


def escape(content: object) -> str:
    """Safe as text and in an attribute; what is not printable is spelled out."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(content))
    return html.escape(text, quote=True)


def text(x: float, y: float, content: object, classes: str = "", anchor: str = "start") -> str:
    """A line of text; `content` is escaped."""
    return (f'<text x="{x:.1f}" y="{y:.1f}" class="{classes}" text-anchor="{anchor}">'
            f"{escape(content)}</text>")


def figure(width: float, height: float, parts: Iterable[str], title: str) -> str:
    """A chart of this size that shrinks with the page, with a title for those who cannot see it."""
    return (f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" '
            f'aria-label="{escape(title)}">{"".join(parts)}</svg>')


def bars(rows: Sequence[tuple[str, float, float | None, float | None, str, str]], title: str,
         full: float = 0.0) -> str:
    """Horizontal bars from zero.

    Args:
        rows: (name, value, low, high, class, what stands behind it); low and high, if any, make a whisker.
        title: of the chart.
        full: value that fills the width, if no row has a larger one: charts below each other share it.
    """
    most = max([full, *(max(value, high or 0.0) for _, value, _, high, _, _ in rows)]) or 1.0
    scale, parts = (WIDTH - LABEL - VALUE) / most, []
    for index, (name, value, low, high, kind, shown) in enumerate(rows):
        top, middle = index * ROW + 5, index * ROW + ROW / 2
        parts.append(text(LABEL - 10, middle + 4, name, anchor="end"))
        parts.append(f'<rect x="{LABEL}" y="{top}" width="{max(1.0, value * scale):.1f}" height="{ROW - 10}" '
                     f'rx="3" class="bar {kind}"/>')
        end = value
        if low is not None and high is not None:
            parts.append(_whisker(LABEL + low * scale, LABEL + high * scale, middle))
            end = max(value, high)
        parts.append(text(LABEL + end * scale + 10, middle + 4, shown, "number"))
    return figure(WIDTH, len(rows) * ROW, parts, title)


def ratios(rows: Sequence[tuple[str, float, float, float, str]], band: tuple[float, float] | None, title: str) -> str:
    """Dots with intervals on a logarithmic axis, 1x marked.

    Args:
        rows: (name, value, low, high, class).
        band: interval of a control, shaded.
        title: of the chart.
    """
    values = [value for _, *three, _ in rows for value in three] + [1.0, *(band or ())]
    low, high = min(values) / 1.15, max(values) * 1.15
    room = WIDTH - LABEL - VALUE

    def x(value: float) -> float:
        return LABEL + room * math.log(value / low) / math.log(high / low)

    height = len(rows) * ROW
    parts = []
    if band:
        parts.append(f'<rect x="{x(band[0]):.1f}" y="0" width="{max(1.0, x(band[1]) - x(band[0])):.1f}" '
                     f'height="{height}" class="band"/>')
    for tick in _ticks(low, high):
        parts.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="0" y2="{height}" '
                     f'class="{"one" if tick == 1 else "tick"}"/>')
        parts.append(text(x(tick), height + 18, f"{tick:g}x", "axis", "middle"))
    for index, (name, value, start, end, kind) in enumerate(rows):
        middle = index * ROW + ROW / 2
        parts += [text(LABEL - 10, middle + 4, name, anchor="end"), _whisker(x(start), x(end), middle),
                  f'<circle cx="{x(value):.1f}" cy="{middle}" r="5" class="dot {kind}"/>',
                  text(x(end) + 10, middle + 4, f"{times(value)}x", "number")]
    return figure(WIDTH, height + 26, parts, title)


def columns(rows: Sequence[tuple[str, float, str]], mark: float | None, mark_label: str, title: str) -> str:
    """Upright bars of shares.

    Args:
        rows: (name, share from 0 to 1, what stands above it).
        mark: position of a dashed line, in bars from the left, or None.
        mark_label: what stands beside that line.
        title: of the chart.
    """
    height, top, step = 150, 24, min(80.0, WIDTH / max(1, len(rows)))
    most = max((share for _, share, _ in rows), default=1.0) or 1.0
    parts = []
    for index, (name, share, shown) in enumerate(rows):
        tall = max(1.5, share / most * height) if share else 0.0
        x = index * step
        parts += [f'<rect x="{x + 6:.1f}" y="{top + height - tall:.1f}" width="{step - 12:.1f}" '
                  f'height="{tall:.1f}" rx="3" class="bar {"neutral" if index == 0 else "fused"}"/>',
                  text(x + step / 2, top + height - tall - 6, shown, "number", "middle"),
                  text(x + step / 2, top + height + 18, name, "axis", "middle")]
    width = len(rows) * step
    if mark is not None:
        x = mark * step
        parts += [f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 8}" y2="{top + height}" class="limit"/>',
                  text(x + 6, top + 2, mark_label, "axis")]
        width = max(width, x + 130)
    return figure(max(width, 300), height + top + 26, parts, title)


def curves(sizes: Sequence[int], series: Sequence[tuple[str, Sequence[tuple[float, float, float] | None], str]],
           title: str, axis: str) -> str:
    """Ratios over sizes, both logarithmic, with intervals.

    Args:
        sizes: the axis below.
        series: (name, (value, low, high) or None for each size, class).
        title, axis: of the chart, and what the sizes are.
    """
    values = [value for _, points, _ in series for point in points if point for value in point] + [1.0]
    low, high = min(values) / 1.2, max(values) * 1.2
    left, right, top, height = 60, 190, 10, 220

    def x(index: int) -> float:
        return left + (WIDTH - left - right) * (index + 0.5) / len(sizes)

    def y(value: float) -> float:
        return top + height * (1 - math.log(value / low) / math.log(high / low))

    parts = []
    for tick in _ticks(low, high):
        parts += [f'<line x1="{left}" x2="{WIDTH - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
                  f'class="{"one" if tick == 1 else "tick"}"/>',
                  text(left - 8, y(tick) + 4, f"{tick:g}x", "axis", "end")]
    parts += [text(x(index), top + height + 18, size, "axis", "middle") for index, size in enumerate(sizes)]
    parts.append(text((left + WIDTH - right) / 2, top + height + 38, axis, "axis", "middle"))
    for row, (name, points, kind) in enumerate(series):
        known = [(x(index), *map(y, point)) for index, point in enumerate(points) if point]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b, _, _ in known)
        parts.append(f'<polyline points="{line}" class="curve {kind}"/>')
        for a, middle, start, end in known:
            parts += [f'<line x1="{a:.1f}" x2="{a:.1f}" y1="{start:.1f}" y2="{end:.1f}" class="whisker"/>',
                      f'<circle cx="{a:.1f}" cy="{middle:.1f}" r="4.5" class="dot {kind}"/>']
        parts += [f'<circle cx="{WIDTH - right + 16}" cy="{top + 10 + row * 22}" r="5" class="dot {kind}"/>',
                  text(WIDTH - right + 27, top + 14 + row * 22, name)]
    return figure(WIDTH, top + height + 46, parts, title)


def _whisker(start: float, end: float, middle: float) -> str:
    return (f'<path d="M{start:.1f} {middle}H{end:.1f}M{start:.1f} {middle - 4}v8M{end:.1f} {middle - 4}v8" '
            'class="whisker"/>')


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis, far enough apart to be read; 1 is always among them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    apart = math.log(high / low) / 10
    chosen = [1.0]
    for steps in ((1.0,), (3.0,), (2.0, 5.0), (1.5, 7.0), (1.2, 1.1, 1.05, 9.0, 9.5)):  # the roundest first
        for tick in (float(f"{step * 10.0 ** power:.3g}") for power in powers for step in steps):
            if low <= tick <= high and all(abs(math.log(tick / other)) >= apart for other in chosen):
                chosen.append(tick)
    return sorted(chosen)
