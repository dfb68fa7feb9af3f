"""What the command line has for comparing: its options, their sense, and what is done with them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence

import numpy as np
import onnx

from rewriter import saving
from rewriter.comparing.comparison import Settings, compare_sides
from rewriter.comparing.inputs import check_dims, input_specs, make_feeds
from rewriter.comparing.models import from_bytes, from_path
from rewriter.comparing.progress import Report as Progress
from rewriter.comparing.report import Comparison
from rewriter.comparing.sweep import check as check_sweep
from rewriter.comparing.sweep import parse as parse_sweep
from rewriter.errors import MismatchError, RunError
from rewriter.units import duration, error

ALONE = ("dry_run", "explain", "patterns", "time", "compare", "keep_going", "overwrite_data")  # not with --compare-only


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options; those that `--time` has too are among them."""
    group = parser.add_argument_group("comparing")
    group.add_argument("--time", action="store_true",
                       help="time the model before and after in ONNX Runtime, in turns, for about five seconds")
    group.add_argument("--compare", action="store_true",
                       help="after fusing, compare both models in every runtime there is: values, speed, memory")
    group.add_argument("--compare-only", action="store_true",
                       help="compare two files that exist, unfused and fused; nothing is fused or written")
    group.add_argument("--html", metavar="FILE", help="write the comparison as a page that needs no network")
    group.add_argument("--seconds", type=_seconds, default=20.0, metavar="S",
                       help="the longest that --compare times (default: 20); it ends once the ratios are known")
    group.add_argument("--threads", type=positive, metavar="N",
                       help="threads of each runtime (default: every physical core)")
    group.add_argument("--dim", metavar="NAME=SIZE", action="append", type=dim, default=[],
                       help="the size of an open dim of an input; one without a name is INPUT:AXIS; repeatable")
    group.add_argument("--input", metavar="NAME=WHAT", action="append", type=_input, default=[], dest="inputs",
                       help="what an input is fed: file.npy, or a shape like 2x3x512x512 to be filled with random "
                            "data; repeatable")
    group.add_argument("--providers", metavar="A,B", default="",
                       help="execution providers of ONNX Runtime to compare in, besides the CPU")
    group.add_argument("--sweep", metavar="H,W=64..1080",
                       help="compare at several sizes of open dims too; batch=1,2,8 lists them")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse options that do not go together, through `parser.error`."""
    comparing = options.compare or options.compare_only
    for name in ("html", "sweep", "providers"):
        if getattr(options, name) and not comparing:
            parser.error(f"--{name} is for --compare and --compare-only")
    for name, given in (("--dim", options.dim), ("--input", options.inputs), ("--threads", options.threads)):
        if given and not (comparing or options.time):
            parser.error(f"{name} is for --time, --compare and --compare-only; what is fused holds for every size")
    if options.target == "tensorrt-plugin" and (options.time or options.compare):
        parser.error("--target tensorrt-plugin writes nodes for TensorRT's plugins, which no runtime here can run: "
                     "compare without it")
    if options.compare_only:
        if options.output is None:
            parser.error("--compare-only needs two files: the unfused model and the fused one")
        for name in ALONE:
            if getattr(options, name):
                parser.error(f"--compare-only fuses and writes nothing, so --{name.replace('_', '-')} has no meaning")


def check_model(options: argparse.Namespace, data: bytes) -> None:
    """Refuse dims and inputs that the model does not have, before any work is done.

    Raises:
        UsageError: they do not fit.
        RunError: an input cannot be made up.
    """
    if not (options.time or options.compare):
        return
    inputs = input_specs(onnx.ModelProto.FromString(data).graph)
    check_dims(inputs, [name for name, _ in options.dim])
    make_feeds(inputs, dims=dict(options.dim), given=dict(options.inputs))
    if options.sweep:
        check_sweep(inputs, parse_sweep(options.sweep)[0])


def compare_fused(options: argparse.Namespace, before: tuple[bytes, Sequence[str]], after: tuple[bytes, Sequence[str]],
                  folder: str) -> Comparison:
    """Compare what came in with what came out; the files may have been overwritten by now.

    Args:
        before, after: the serialized models and their data files.
        folder: where those lie.
    """
    with tempfile.TemporaryDirectory(prefix="warpfuse-") as scratch:
        name = os.path.basename(options.input)
        sides = (from_bytes(data, label, folder, locations, scratch)
                 for (data, locations), label in ((before, name), (after, f"{name}, fused")))
        return _compare(options, *sides)


def compare_only(options: argparse.Namespace) -> None:
    """All of `--compare-only`: compare, show, write the reports.

    Raises:
        RewriterError: as `compare_sides` and `judge`.
    """
    for report in (options.json, options.html):
        if report not in (None, "-"):
            saving.check_output(report)
    comparison = _compare(options, from_path(options.input), from_path(options.output))
    show(options, comparison)
    if options.json is not None:
        write_json({"unfused": options.input, "fused": options.output, "compare": comparison.to_dict()}, options.json)
    judge(comparison)


def show(options: argparse.Namespace, comparison: Comparison) -> None:
    """The text, and the page if one is asked for."""
    from rewriter.comparing.text import show as show_text
    from rewriter.terminal import Terminal

    if not options.quiet:
        show_text(Terminal(sys.stderr if options.json == "-" else sys.stdout), comparison)
    if options.html is not None:
        from rewriter.comparing.page import html

        saving.write_text(html(comparison), options.html)


def judge(comparison: Comparison) -> None:
    """Raise if the comparison did not go well.

    Raises:
        MismatchError: fused values are not the unfused ones.
        RunError: no fused variant could be run.
    """
    for variant in comparison.mismatched:
        worst = variant.error
        allowed = next(item for item in comparison.tolerances if item.output == worst.output)
        raise MismatchError(f"{variant.label}: output {worst.output!r} is off by {error(worst.absolute)}; "
                            f"{error(allowed.allowed)} is allowed ({allowed.why})")
    if not comparison.agrees:
        failed = [variant for variant in comparison.variants if variant.model == "fused" and variant.failed]
        if failed and not any(v.ran and v.model == "fused" for v in comparison.variants):
            raise RunError(f"no fused variant could be run; {failed[0].label} {failed[0].failed}")
        sizes = ", ".join(str(point.size) for point in comparison.sweep.points if not point.good)
        raise MismatchError(f"the fused model's values are off at {' = '.join(comparison.sweep.dims)} = {sizes}")


def write_json(document: dict, path: str) -> None:
    """To a file, or "-" to standard output."""
    from rewriter import __version__

    text = json.dumps({"rewriter": __version__, **document}, indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        saving.write_text(text, path)


def dim(text: str) -> tuple[str, int]:
    """NAME=SIZE."""
    name, equals, size = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE")
    return name, positive(size)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _compare(options: argparse.Namespace, unfused, fused) -> Comparison:
    providers = [name.strip() for name in options.providers.split(",") if name.strip()]
    with _bar(options) as progress:
        return compare_sides(unfused, fused, Settings(
            seconds=options.seconds, threads=options.threads, providers=providers, dims=dict(options.dim),
            given=dict(options.inputs), swept=parse_sweep(options.sweep) if options.sweep else None,
            progress=progress))


@contextlib.contextmanager
def _bar(options: argparse.Namespace) -> Iterator[Progress | None]:
    """A progress bar with the remaining time, on standard error if that is a terminal."""
    if options.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0, left="")
        yield lambda share, left, doing: bar.update(
            task, completed=share, description=doing, left=f"about {duration(left)} left")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def _input(text: str) -> tuple[str, np.ndarray | tuple[int, ...]]:
    name, equals, what = text.partition("=")
    if not equals or not name or not what:
        raise argparse.ArgumentTypeError(f"{text!r} is neither NAME=file.npy nor NAME=2x3x512")
    if all(size.isdecimal() for size in what.split("x")):
        return name, tuple(int(size) for size in what.split("x"))
    try:
        array = np.load(what, allow_pickle=False)
    except FileNotFoundError:
        raise argparse.ArgumentTypeError(f"{what}: no such file") from None
    except (OSError, ValueError, EOFError) as failure:
        raise argparse.ArgumentTypeError(f"{what}: not an array of numpy's: {failure}") from None
    if not isinstance(array, np.ndarray):
        raise argparse.ArgumentTypeError(f"{what}: an archive; one array a file (.npy) is wanted")
    return name, array


