"""Numbers as people read them."""

from __future__ import annotations


def seconds(value: float) -> str:
    """Three digits in the unit that suits: "8.53 ms"."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1:
            return f"{_digits(value * factor)} {unit}"
    return f"{_digits(value * 1e6)} us"


def duration(value: float) -> str:
    """Minutes and seconds: "1:05"."""
    return f"{int(value) // 60}:{int(value) % 60:02}"


def size(value: float) -> str:
    """Bytes in the decimal unit that suits: "3.15 MB"."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{_digits(value / factor)} {unit}"
    return f"{value:,.0f} bytes"


def plural(count: int, one: str, many: str) -> str:
    """A number and its noun."""
    return f"{count:,} {one if count == 1 else many}"


def error(value: float) -> str:
    """An error or tolerance: "3.1e-05", "0"."""
    return f"{value:.1e}" if value else "0"


def times(value: float) -> str:
    """A ratio: "2.85", "45.2", "0.971"."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _digits(value: float) -> str:
    """Three of them, and no exponent."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"
