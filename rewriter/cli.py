"""The command line. `main` returns the exit code and keeps no state: a process may call it as often as it likes."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence

from rewriter import __version__, many_options, placing, saving
from rewriter.comparing import options as comparing
from rewriter.comparing.machine import physical_cores
from rewriter.errors import CLOSED_PIPE, KEPT_GOING, InternalError, RewriterError, UsageError, exit_codes
from rewriter.fusing import anchors_of, choose_patterns, rewrite_file
from rewriter.opening import Opened, open_model
from rewriter.report import Report
from rewriter.runtimes import targets

DESCRIPTION = """\
Find affine grids, samplers and rotations in an exported ONNX model by what they compute, and
replace each by one node that runs faster. What cannot be proven to be one is left alone.
"""
EXAMPLES = """\
examples:
  python -m rewriter model.onnx fused.onnx             fuse, and say what was fused
  python -m rewriter model.onnx model.onnx             the same, in place
  python -m rewriter model.onnx --dry-run --explain    only look; tell why near misses stay
  python -m rewriter model.onnx fused.onnx --time --dim H=512 --dim W=512
                                                       how much faster it is in ONNX Runtime
  python -m rewriter model.onnx fused.onnx --compare --html page.html
                                                       values, speed and memory in every runtime
  python -m rewriter model.onnx fused.onnx --compare-only --sweep H,W=64..1080
                                                       the same for two files, at several sizes
  python -m rewriter models/ --out-dir fused/          many models at once
  python -m rewriter fused.onnx plain.onnx --target stock
                                                       for runtimes without functions
  python -m rewriter model.onnx fused.onnx --quiet --json report.json
                                                       for scripts

The fused model runs wherever ONNX functions do; ONNX Runtime needs nothing installed for it.
Weights in external data files are not read; the files are shared or, into another folder, copied,
unless --data says otherwise.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a usage error and --help leave by SystemExit, as argparse does."""
    from rewriter.terminal import Terminal

    parser = _parser()
    options = parser.parse_intermixed_args(arguments)
    many_options.check(options, parser)
    comparing.check(options, parser)
    if options.output is None and not options.dry_run and not options.out_dir:
        parser.error("an output file is needed (or --dry-run, to only look)")
    errors = Terminal(sys.stderr)
    try:
        with _termination_raised(), _libraries_quiet():
            return _run(options, errors)
    except RewriterError as error:
        failure = error
    except KeyboardInterrupt as interruption:
        terminated = isinstance(interruption, _Terminated)
        errors.line(f"{'terminated' if terminated else 'interrupted'}; no file was left half written")
        return 128 + (signal.SIGTERM if terminated else signal.SIGINT)
    except BrokenPipeError:  # whoever read what we print has left; the model is written before
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor may the interpreter complain at its end
        return CLOSED_PIPE
    except Exception as error:  # not foreseen, hence a bug, and no reason for a page of traceback
        failure = InternalError(f"{type(error).__name__}: {error}")
        failure.__cause__ = error
    _say(errors, failure, options)
    return failure.exit_code


def _run(options: argparse.Namespace, errors) -> int:
    if options.compare_only:
        _keep_reports_apart(options, [options.input, options.output])
        comparing.compare_only(options)
        return 0
    names = _names_in(options)
    chosen = choose_patterns(names, target=options.target)
    if options.out_dir:
        many_options.run(options, names)
        return 0
    _keep_reports_apart(options, [options.input, options.output])
    opened = open_model(options.input, anchors=anchors_of(chosen))
    output = None if options.dry_run else options.output
    _keep_reports_apart(options, [os.path.join(opened.folder, location) for location in opened.locations])
    comparing.check_model(options, opened.data)
    if output is not None:
        saving.check_output(output, folder=opened.folder, locations=opened.locations, policy=options.data)
        _keep_reports_apart(options, placing.place(output, opened.folder, opened.locations, options.data,
                                                   options.input).files)
    for file in (options.json, options.html):
        if file not in (None, "-"):
            saving.check_output(file)
    try:
        report, data = rewrite_file(opened, chosen, options.target)
    except InternalError as error:
        if not options.keep_going or output is None:
            raise
        saving.save(opened.data, output, folder=opened.folder, locations=opened.locations, policy=options.data,
                    model=options.input, overwrite_data=options.overwrite_data)
        _say(errors, error, options)
        errors.line(f"--keep-going: {output} is the input, unchanged", wrap=False)
        return KEPT_GOING
    timing = _time(opened, data, options) if options.time else None  # first: the output may be the input
    if output is not None:
        saved = saving.save(data, output, folder=opened.folder, locations=opened.still_located(report.changed),
                            policy=options.data, model=options.input, overwrite_data=options.overwrite_data)
        report.bytes_after = len(saved.data)
    _show(options, report, timing)
    comparison = None
    if options.compare:
        comparison = comparing.compare_fused(options, (opened.data, opened.locations),
                                             (data, opened.still_located(report.changed)), opened.folder)
        comparing.show(options, comparison)
    if options.json is not None:
        comparing.write_json(_document(options, report, timing, comparison), options.json)
    if comparison is not None:
        comparing.judge(comparison)
    return 0


def _names_in(options: argparse.Namespace) -> list[str] | None:
    """The patterns that the options ask for; None: the default ones."""
    if options.restore:
        if options.patterns is not None or options.follow_input_size:
            raise UsageError("--restore runs one pattern, and goes neither with --patterns nor --follow-input-size")
        return ["adopt"]
    names = _names() if options.follow_input_size else None
    if options.patterns is not None:
        names = [name.strip() for name in options.patterns.split(",") if name.strip()]
        if not names:
            raise UsageError("--patterns: no name is given")
    return [*names, "follow_input_size"] if options.follow_input_size else names


def _keep_reports_apart(options: argparse.Namespace, files: Sequence[str | None]) -> None:
    """Refuse reports that would take the place of a model, its data, or each other."""
    files = list(files)
    for name, report in (("--json", options.json), ("--html", options.html)):
        if report is None or (report == "-" and name == "--json"):
            continue
        for file in files:
            if file is not None and _real(file) == _real(report):
                raise UsageError(f"{name}: {report} would overwrite {file}")
        files.append(report)


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a NUL; refused where it is opened
        return path


@contextlib.contextmanager
def _libraries_quiet() -> Iterator[None]:
    """What libraries log and warn of is not for users of the command line, and quotes a model's names as they are."""
    silent, root = logging.NullHandler(), logging.getLogger()
    root.addHandler(silent)  # without any, Python prints to standard error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.removeHandler(silent)


class _Terminated(KeyboardInterrupt):
    """SIGTERM."""


@contextlib.contextmanager
def _termination_raised() -> Iterator[None]:
    """Make SIGTERM clean up as Ctrl-C does, unless the process has a handler of its own."""
    def terminate(number, frame):
        raise _Terminated

    if (threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL):
        yield
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _time(opened: Opened, data: bytes, options: argparse.Namespace):
    from rewriter.timing import measure

    return measure(opened.data, data, folder=os.path.abspath(opened.folder) if opened.locations else "",
                   dims=dict(options.dim), given=dict(options.inputs), threads=options.threads or physical_cores())


def _show(options: argparse.Namespace, report: Report, timing) -> None:
    from rewriter import terminal

    if not options.quiet:
        out = terminal.Terminal(sys.stderr if options.json == "-" else sys.stdout)
        terminal.summary(out, report, options.input, None if options.dry_run else options.output)
        if options.explain:
            terminal.explanation(out, report)
        elif report.missed:
            out.line(f"near misses left alone: {len(report.missed)} (--explain says why)")
        if timing is not None:
            terminal.timing(out, timing)


def _document(options: argparse.Namespace, report: Report, timing, comparison) -> dict:
    document = {"input": options.input,
                "output": None if options.dry_run else options.output, "dry_run": options.dry_run,
                "changed": report.changed, **report.to_dict()}
    if timing is not None:
        document["time"] = vars(timing)
    if comparison is not None:
        document["compare"] = comparison.to_dict()
    return document


def _say(errors, failure: RewriterError, options: argparse.Namespace) -> None:
    bug = isinstance(failure, InternalError)
    if bug and options.debug:
        for line in "".join(traceback.format_exception(failure)).splitlines():
            errors.line(line, wrap=False)
    report = " (a bug of onnx-warpfuse: please report it, with the model and what --debug prints)" if bug else ""
    errors.line(("internal error: " if bug else "error: ", "bold red"), f"{failure}{report}", wrap=False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        from rewriter.terminal import Terminal

        errors = Terminal(sys.stderr)
        errors.line(("error: ", "bold red"), f"{message}; python -m rewriter --help tells how it is used", wrap=False)
        sys.exit(UsageError.exit_code)


def _parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code:2}  {meaning}" for code, meaning in exit_codes().items())
    parser = _Parser(
        prog="python -m rewriter", allow_abbrev=False, formatter_class=_help_format, description=DESCRIPTION,
        epilog=f"{EXAMPLES}\nexit codes:\n{codes}")
    parser.add_argument("input", help="the model, a .onnx file")
    parser.add_argument("output", nargs="?", help="where to write the fused model; may be the input")
    parser.add_argument("more", nargs="*", help=argparse.SUPPRESS)  # inputs of --out-dir
    parser.add_argument("--dry-run", action="store_true", help="find and report, write no model")
    parser.add_argument("--explain", action="store_true",
                        help="tell every near miss: why it was left alone, and the tensor at fault")
    parser.add_argument("--patterns", metavar="A,B",
                        help=f"run only these (and what they need); there are {', '.join(_names())}")
    parser.add_argument("--restore", action="store_true",
                        help="only give nodes of custom.ops the functions that another tool dropped; the same as "
                             "--patterns adopt")
    parser.add_argument("--follow-input-size", action="store_true",
                        help="also open fixed height and width, as torch had to export them: where a fused node's size "
                             "is its image's it follows the image, if the rest of the model allows it. A size that "
                             "was meant to be fixed looks the same, so compare with the original at another size")
    parser.add_argument("--target", choices=targets.NAMES, default=targets.PORTABLE,
                        help="what the model is written for (default: portable, functions in the model); kernels fuses "
                             "also what pays only with our ONNX Runtime kernels; stock leaves no custom domain; "
                             "openvino and tensorrt[-plugin] write what these take")
    parser.add_argument("--json", metavar="REPORT", help="write the report as JSON; '-' is standard output, and what "
                                                         "is for people then goes to standard error")
    parser.add_argument("--data", choices=placing.POLICIES, default=placing.AUTO,
                        help="external data files: auto (default) shares them with an output in the same folder and "
                             "copies them into another; share never copies, and refuses an output that is not in a "
                             "folder above them; copy gives the output files of its own, in the same folder named "
                             "after it")
    parser.add_argument("--overwrite-data", action="store_true",
                        help="let copied external data replace files of the same name beside the output")
    parser.add_argument("--keep-going", action="store_true",
                        help=f"should this program fail, write the input through unchanged and exit with {KEPT_GOING}")
    parser.add_argument("--debug", action="store_true", help="print the traceback of an internal error")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--version", action="version", version=f"onnx-warpfuse {__version__}")
    comparing.add(parser)
    many_options.add(parser)
    return parser


def _names() -> list[str]:
    from patterns import ALL

    return [pattern.name for pattern in ALL]


def _help_format(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=98)
