"""The report as text for people: fits 100 columns, plain when it does not go to a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewriter.report import Fused, Report
from rewriter.timing import Timing
from rewriter.units import plural, seconds

WIDTH = 100
MOST_PLACES = 20  # lines an operator gets; --json has them all


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich is handling: the command line answers it


class Terminal:
    """Writes to one stream. Whatever comes from a model is escaped: no control character of it reaches the stream."""

    def __init__(self, file: IO[str]):
        console = _Console(file=file, highlight=False, soft_wrap=False, emoji=False, markup=False)
        console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
        self._console = console
        self._encoding = getattr(file, "encoding", None) or "utf-8"

    def line(self, *parts: str | tuple[str, str], wrap: bool = True) -> None:
        """A line of strings and (string, style) pairs; longer ones are wrapped, unless they must stay one line."""
        text = Text()
        for part in parts:
            content, style = part if isinstance(part, tuple) else (part, "")
            text.append(self.printable(content), style)
        self._console.print(text, soft_wrap=not wrap)

    def table(self, header: Iterable[str], rows: Iterable[Iterable[object]], numbers: Iterable[int] = ()) -> None:
        """Columns without lines; those in `numbers` are flush right, the last takes what room is left."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
        for index, title in enumerate(header):
            table.add_column(title, justify="right" if index in numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(self.printable(str(cell))) for cell in row))
        with self._console.capture() as lines:
            self._console.print(table)
        self._console.file.write("".join(line.rstrip() + "\n" for line in lines.get().splitlines()))

    def printable(self, text: str) -> str:
        """`text` with everything escaped that is not a visible character, or not in the stream's encoding."""
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        return text.encode(self._encoding, "backslashreplace").decode(self._encoding)


def summary(terminal: Terminal, report: Report, source: str, target: str | None) -> None:
    """What was fused, where, and what became of the model's size."""
    wrote = f" -> {target}" if target else " (dry run: nothing is written)"
    terminal.line((source + wrote, "bold"))
    rows = list(_fused_rows(report))
    if rows:
        terminal.table(("operator", "count", "where", "what it was"), rows, numbers=(1,))
    else:
        terminal.line("nothing to fuse", "; the output is the input, byte for byte"
                      if target and not report.changed else "")
    if report.changed:
        terminal.line(f"nodes {report.nodes_before:,} -> {report.nodes_after:,}, "
                      f"size {report.bytes_before:,} -> {report.bytes_after:,} bytes")
    if report.ir_version_after != report.ir_version_before:
        terminal.line(f"ir_version {report.ir_version_before} -> {report.ir_version_after}, where functions begin")
    if report.retargeted:
        terminal.line(f"target {report.target}: {plural(report.retargeted, 'node', 'nodes')} written for it")
    for need in report.needs:
        terminal.line(("it needs: ", "bold"), need)
    for warning in report.warnings:
        terminal.line(("warning: ", "yellow"), warning)


def explanation(terminal: Terminal, report: Report) -> None:
    """Every near miss: where it is, why it was left alone, and the tensor at fault."""
    for miss in report.missed:
        where = f"{miss.node or 'a node without a name'} ({miss.op_type})" + _scope(miss.scope)
        terminal.line((f"no {miss.pattern}", "yellow"), f" at {where}")
        terminal.line(f"    {miss.reason}", f"; tensor {miss.tensor}" if miss.tensor else "")


def timing(terminal: Terminal, result: Timing) -> None:
    """The ratio with its interval, and under which conditions it was measured."""
    pace = f"{1 / result.ratio:.2f} times as fast" if result.ratio < 1 else f"{result.ratio:.2f} times as long"
    if result.low <= 1 <= result.high:
        pace = "no difference beyond noise"
    interval = f"{result.low:.3f} to {result.high:.3f}"
    terminal.line(("time ", "bold"), f"fused / unfused {result.ratio:.3f} (95% {interval}): ", (pace, "bold"))
    terminal.line(f"    median {seconds(result.unfused)} -> {seconds(result.fused)}, {result.rounds} interleaved "
                  f"rounds, {plural(result.threads, 'thread', 'threads')}, stock ONNX Runtime {result.runtime}")
    terminal.line("    inputs: " + ", ".join(f"{name} {kind}{list(shape)}" for name, kind, shape in result.inputs))
    if result.assumed:
        dims = " ".join(f"--dim {name}={size}" for name, size in result.assumed.items())
        terminal.line(f"    sizes the model leaves open were taken as: {dims}")


def _fused_rows(report: Report):
    by_operator: dict[str | None, list[Fused]] = {}
    for fused in report.fused:
        by_operator.setdefault(fused.operator, []).append(fused)
    for operator, places in by_operator.items():
        count = report.count(operator) if operator else len(places)
        if not count:  # all became part of a larger one
            continue
        for index, fused in enumerate(places[:MOST_PLACES]):
            first = index == 0
            yield (operator or "(changed)") if first else "", count if first else "", \
                (fused.node or fused.tensor) + _scope(fused.scope), fused.note
        if len(places) > MOST_PLACES:
            yield "", "", f"and {len(places) - MOST_PLACES:,} more", ""


def _scope(path: str) -> str:
    return "" if path == "graph" else f" in {path.removeprefix('graph/')}"
