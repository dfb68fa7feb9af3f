"""Many models into one folder: one bad model does not stop the rest, and a run that was interrupted can be continued.

The folder keeps a manifest, `.warpfuse.jsonl`, with a line for every model that was done: the digests of the input, of
what was asked for, and of the output. A model is skipped if all three still hold: it is the content that counts. (Of
external data, which is not read, size and time stand for it, and for its copy beside the output.) A line is written
once its model is: whatever interrupts a run, at worst a model is done twice.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rewriter import __version__
from rewriter.errors import (
    AllFailedError,
    InternalError,
    MissingFileError,
    OutputError,
    RewriterError,
    SomeFailedError,
    UsageError,
)
from rewriter.runtimes import targets
from rewriter.workers import Worker, WorkerError

MANIFEST = ".warpfuse.jsonl"
CHILD = "rewriter.many:Fuser"


@dataclasses.dataclass(frozen=True)
class Task:
    """A model to fuse: its file, the file to make, and its name below the output folder."""

    name: str
    source: str
    target: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one model.

    Attributes:
        name, input, output: its name below the output folder, and the files.
        status: "fused", "unchanged" (nothing to fuse; it was copied), "skipped" (done before) or "failed".
        report: `rewriter.Report.to_dict()`, of the run that did it; {} where it failed.
        error, exit_code: the line, and the code the same model would have by itself.
    """

    name: str
    input: str
    output: str
    status: str
    report: dict = dataclasses.field(default_factory=dict)
    error: str = ""
    exit_code: int = 0


def tasks(inputs: Iterable[str | os.PathLike], folder: str | os.PathLike) -> list[Task]:
    """A task for every model among files and folders; of a folder, every .onnx file at any depth keeps its place.

    Raises:
        UsageError: two would be written to one place, or one over itself, or there is none.
        MissingFileError: an input does not exist.
    """
    folder, found = Path(folder), []
    for item in map(Path, inputs):
        if item.is_dir():
            found += [(path, path.relative_to(item)) for path in sorted(item.rglob("*.onnx"))
                      if not path.is_dir() and (_same(item, folder) or not _inside(path, folder))]
        elif item.exists():
            found.append((item, Path(item.name)))
        else:
            raise MissingFileError(f"{item}: no such file")
    if not found:
        raise UsageError("there is no .onnx file among the inputs")
    made: dict[Path, Path] = {}
    for path, name in found:
        target = folder / name
        if target in made and made[target].resolve() != path.resolve():
            raise UsageError(f"{made[target]} and {path} would both become {target}; name their folder instead")
        if target.resolve() == path.resolve():
            raise UsageError(f"--out-dir: {target} is an input; name another folder")
        made[target] = path
    return [Task(target.relative_to(folder).as_posix(), str(path), str(target)) for target, path in made.items()]


def fuse_many(todo: Sequence[Task], folder: str | os.PathLike, *, patterns: Sequence[str] | None = None,
              target: str = "portable", policy: str = "auto", overwrite_data: bool = False, jobs: int = 1,
              done: Callable[[Outcome], None] = lambda outcome: None) -> list[Outcome]:
    """Fuse models, each in a child process that outlives a failure, and is replaced if it does not.

    Args:
        todo: by `tasks`, for the same `folder`, which is made if need be.
        patterns, target, overwrite_data: as for `rewriter.fuse`; patterns by name.
        policy: `data` of `rewriter.fuse`.
        jobs: child processes at a time.
        done: called with each outcome as it comes, in this thread.

    Returns:
        The outcomes in the order of the tasks.

    Raises:
        OutputError: the folder cannot be made or written.
        UsageError: there is no such target.
    """
    targets.check(target)
    options = {"patterns": None if patterns is None else list(patterns), "target": target, "policy": policy}
    manifest = Manifest(folder, json.dumps([__version__, options]))
    crew = _Crew(jobs)

    def work(task: Task) -> Outcome:
        record = manifest.still_holds(task)
        if record is not None:
            return Outcome(task.name, task.source, task.target, "skipped", record)
        try:
            made = crew.call("fuse", task.source, task.target, overwrite_data=overwrite_data, **options)
        except WorkerError as error:
            old = f"; {task.target} is of an earlier run" if os.path.exists(task.target) else ""
            return Outcome(task.name, task.source, task.target, "failed", {}, f"{error}{old}", _exit_code(error))
        manifest.add(task, made)
        return Outcome(task.name, task.source, task.target, _status(made["report"]), made["report"])

    outcomes: dict[str, Outcome] = {}
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        for future in concurrent.futures.as_completed([pool.submit(work, task) for task in todo]):
            outcome = future.result()
            outcomes[outcome.name] = outcome
            done(outcome)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        crew.close()
    return [outcomes[task.name] for task in todo]


def judge(outcomes: Sequence[Outcome]) -> None:
    """Raise if models failed.

    Raises:
        SomeFailedError, AllFailedError: some of them, all of them.
    """
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    if failed and failed == len(outcomes):
        raise AllFailedError(f"all models failed ({failed:,})")
    if failed:
        raise SomeFailedError(f"{failed:,} of {len(outcomes):,} models failed; what is done is skipped next time")


class Manifest:
    """What a folder knows of the models in it.

    Args:
        folder: made if need be.
        asked: the options, as text.

    Raises:
        OutputError: the folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike, asked: str):
        self._path, self._asked = Path(folder) / MANIFEST, hashlib.sha256(asked.encode()).hexdigest()
        self._lock = threading.Lock()
        self._records: dict[str, dict] = {}
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            text = self._path.read_text(errors="replace") if self._path.exists() else ""
        except OSError as error:
            raise OutputError(f"{folder}: cannot be used: {error.strerror or error}") from None
        self._begin = "" if text[-1:] in ("", "\n") else "\n"  # after a line that was cut short
        for line in text.splitlines():
            try:
                record = json.loads(line)
                self._records[record["name"]] = record
            except (ValueError, KeyError, TypeError):  # cut short by what interrupted it
                continue

    def still_holds(self, task: Task) -> dict | None:
        """The report of an earlier run, if its output is what a run now would make."""
        record = self._records.get(task.name)
        if record is None or record.get("asked") != self._asked:
            return None
        try:
            holds = (record["input"] == _digest(task.source) and record["output"] == _digest(task.target)
                     and all(_stamp(path) == stamp for path, stamp in record["data"]))
            return record["report"] if holds else None
        except (OSError, KeyError, TypeError, ValueError):
            return None

    def add(self, task: Task, made: dict) -> None:
        """Note that a model was done, and what `Fuser.fuse` said of it.

        Raises:
            OutputError: the manifest cannot be written.
        """
        line = json.dumps({"name": task.name, "asked": self._asked, **made}) + "\n"
        try:
            with self._lock, open(self._path, "ab", buffering=0) as file:  # in one piece, should another run append too
                file.write((self._begin + line).encode())
                self._begin = ""
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written: {error.strerror or error}") from error


class Fuser:
    """What a child does."""

    def fuse(self, source: str, output: str, *, patterns: list[str] | None, target: str,
             policy: str, overwrite_data: bool) -> dict:
        """Fuse one file into another.

        Returns:
            What the manifest notes: "report"; the digests of "input" and "output", of the very bytes that were read and
            written, since either file may have changed by now; "data", the files of the external data and their copies,
            as [path, size and time].

        Raises:
            RewriterError: as `rewriter.fuse`.
        """
        from rewriter import saving
        from rewriter.fusing import anchors_of, choose_patterns, rewrite_file
        from rewriter.opening import open_model

        folder = os.path.dirname(os.path.abspath(output))
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be made: {error.strerror or error}") from error
        chosen = choose_patterns(patterns, target=target)
        opened = open_model(source, anchors=anchors_of(chosen))
        before = os.path.dirname(os.path.abspath(source))
        stamps = {location: _stamp(os.path.join(before, location)) for location in opened.locations}
        saving.check_output(output, folder=opened.folder, locations=opened.locations, policy=policy)
        report, data = rewrite_file(opened, chosen, target)
        kept = opened.still_located(report.changed)
        saved = saving.save(data, output, folder=opened.folder, locations=kept, policy=policy, model=source,
                            overwrite_data=overwrite_data)
        report.bytes_after = len(saved.data)
        copies = [os.path.abspath(path) for path in saved.files]
        return {"report": report.to_dict(), "input": hashlib.sha256(opened.data).hexdigest(),
                "output": hashlib.sha256(saved.data).hexdigest(),
                "data": [[os.path.join(before, location), stamps[location]] for location in kept]
                + [[path, _stamp(path)] for path in copies]}


class _Crew:
    """Child processes, one for each thread that calls."""

    def __init__(self, size: int):
        self._free: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        self._all: list[Worker] = []
        for _ in range(size):
            self._free.put(None)

    def call(self, method: str, *args, **keywords):
        """As `Worker.call`."""
        worker = self._free.get()
        try:
            if worker is None or not worker.alive:
                worker = Worker(CHILD)
                self._all.append(worker)
            return worker.call(method, *args, **keywords)
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """End them all."""
        for worker in self._all:
            worker.close()


def _status(report: dict) -> str:
    return "fused" if report["fused"] or report.get("retargeted") else "unchanged"


def _exit_code(error: WorkerError) -> int:
    """The exit code that the model would have had by itself."""
    codes = {kind.__name__: kind.exit_code for kind in RewriterError.__subclasses__()}
    return codes.get(error.kind, InternalError.exit_code)


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(
            file.read()).hexdigest()


def _stamp(path: str) -> list[int]:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _inside(path: Path, folder: Path) -> bool:
    return folder.resolve() in path.resolve().parents
