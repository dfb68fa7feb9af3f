"""The command line's `--out-dir`: its options, the progress bar, the table and the JSON lines."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from rewriter import __version__, saving
from rewriter.comparing.machine import physical_cores
from rewriter.comparing.options import positive
from rewriter.errors import UsageError
from rewriter.many import Outcome, fuse_many, judge, tasks

SINGLE = ("dry_run", "explain", "time", "compare", "compare_only", "keep_going")  # not with --out-dir


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("many models")
    group.add_argument("--out-dir", metavar="FOLDER", help="fuse every input, a file or a folder of them, into this "
                       "folder; what an earlier run did is skipped; --json then writes a line a model")
    group.add_argument("--jobs", type=positive, metavar="N", help="models at a time (default: every physical core)")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse options that do not go together, through `parser.error`."""
    if options.out_dir is None:
        if options.more:
            parser.error(f"unrecognized arguments: {' '.join(options.more)} (several models need --out-dir)")
        if options.jobs is not None:
            parser.error("--jobs is for --out-dir")
        return
    for name in SINGLE:
        if getattr(options, name):
            parser.error(f"--{name.replace('_', '-')} is for one model, not for --out-dir")


def run(options: argparse.Namespace, patterns: Sequence[str] | None) -> None:
    """Fuse them all, show and write what became of them.

    Raises:
        RewriterError: as `rewriter.many.tasks`, `fuse_many` and `judge`.
    """
    from rewriter.terminal import Terminal

    todo = tasks(filter(None, [options.input, options.output, *options.more]), options.out_dir)
    if options.json not in (None, "-"):
        if os.path.realpath(options.json) in {os.path.realpath(path) for task in todo
                                              for path in (task.source, task.target)}:
            raise UsageError(f"--json: {options.json} would overwrite a model")
        saving.check_output(options.json)
    with _bar(options, len(todo)) as done:
        jobs = min(options.jobs or physical_cores(), len(todo))
        outcomes = fuse_many(todo, options.out_dir, patterns=patterns, target=options.target, policy=options.data,
                             overwrite_data=options.overwrite_data, jobs=jobs, done=done)
    if not options.quiet:
        show(Terminal(sys.stderr if options.json == "-" else sys.stdout), outcomes)
    if options.json is not None:
        text = "".join(json.dumps(line(outcome)) + "\n" for outcome in outcomes)
        if options.json == "-":
            sys.stdout.write(text)
        else:
            saving.write_text(text, options.json)
    judge(outcomes)


def line(outcome: Outcome) -> dict:
    """What `--json` has of one model."""
    return {"rewriter": __version__, "input": outcome.input, "output": outcome.output, "status": outcome.status,
            "error": outcome.error, "exit_code": outcome.exit_code, **outcome.report}


def show(terminal, outcomes: Sequence[Outcome]) -> None:
    """A table, a line for every failure, and the sum."""
    terminal.table(("model", "", "nodes", "bytes", "fused"), [
        (outcome.name, outcome.status, *_change(outcome.report)) for outcome in outcomes])
    for outcome in outcomes:
        if outcome.error:
            terminal.line(("failed: ", "red"), f"{outcome.name}: {outcome.error}", wrap=False)
    needs = collections.Counter(need for outcome in outcomes for need in outcome.report.get("needs", ()))
    for need, count in needs.items():
        terminal.line((f"{count:,} model{'s need' if count > 1 else ' needs'}: ", "bold"), need)
    counts = collections.Counter(outcome.status for outcome in outcomes)
    terminal.line((", ".join(f"{count:,} {status}" for status, count in sorted(counts.items())), "bold"))


def _change(report: dict) -> tuple[str, str, str]:
    if not report:
        return "", "", ""
    made = collections.Counter(fused["operator"] or "(changed)" for fused in report["fused"])
    made["AffineGrid"] -= made["AffineGridSample"]  # each absorbed one
    made[f"written for {report['target']}:"] = report["retargeted"]
    return (f"{report['nodes_before']:,} -> {report['nodes_after']:,}",
            f"{report['bytes_before']:,} -> {report['bytes_after']:,}",
            ", ".join(f"{name} {count}" for name, count in made.items() if count > 0))


@contextlib.contextmanager
def _bar(options: argparse.Namespace, total: int) -> Iterator[Callable[[Outcome], None]]:
    """A progress bar with the remaining time, on standard error if that is a terminal."""
    if options.quiet or not sys.stderr.isatty():
        yield lambda outcome: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda outcome: bar.update(task, advance=1, description=escape(ascii(outcome.name)[1:-1][-60:]))
