"""The library call: open, rewrite, check, give back the same kind."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import onnx

from rewriter import checking, saving
from rewriter.errors import InternalError, RewriterError, UsageError
from rewriter.opening import Opened, open_model
from rewriter.report import Report
from rewriter.vocabulary import Pattern


def fuse(model, output: str | os.PathLike | None = None, *, patterns: Iterable[Pattern | str] | None = None,
         dry_run: bool = False, in_place: bool = False, data_dir: str | os.PathLike | None = None,
         overwrite_data: bool = False):
    """Find subgraphs by what they compute and give each its name back, as one node of `custom.ops`.

    Args:
        model: a path (str or PathLike), `onnx.ModelProto`, `onnx_ir.Model`, the `ONNXProgram` that
            `torch.onnx.export(..., dynamo=True)` returns, or `onnx_graphsurgeon.Graph`.
        output: where to write, for a path; may be the input. External data stays where it is and is shared if the
            output lies in the same folder, and is copied beside it otherwise.
        patterns: `Pattern` objects, in the order they run, or names of default ones, which bring what they need along.
            Default: `patterns.ALL`.
        dry_run: find, and change and write nothing.
        in_place: change the object handed in (for a path: write over it). After an `InternalError` an
            `onnx_ir.Model` or ONNXProgram that was changed in place must be thrown away.
        data_dir: where the external data of a ModelProto or Graph lies; default: the working directory. The other
            kinds know it themselves.
        overwrite_data: let data files copied beside the output replace others of the same name.

    Returns:
        For a path the Report; else (model of the same kind, Report). With `dry_run` that model is the one handed in.

    Raises:
        RewriterError: one of its subclasses, see `rewriter.errors`; nothing was written.
        TypeError: `model` is none of the five kinds.

    Example:
        >>> from onnx import parser
        >>> import rewriter
        >>> model = parser.parse_model('''<ir_version: 8, opset_import: ["" : 18]>
        ...     agraph (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }''')
        >>> same, report = rewriter.fuse(model)
        >>> same == model, report.fused
        (True, [])
    """
    chosen = choose_patterns(patterns)
    if isinstance(model, (str, os.PathLike)):
        if output is None and in_place:
            output = model
        if output is None and not dry_run:
            raise UsageError("a path needs an output path too (or dry_run=True, or in_place=True to write over it)")
        return fuse_file(model, None if dry_run else output, chosen, overwrite_data=overwrite_data)
    if output is not None:
        raise UsageError("an output path goes with an input path; other kinds of model are given back")
    opened = open_model(model, in_place=in_place and not dry_run, data_dir=data_dir)
    report = rewrite(opened, chosen)
    if dry_run:
        return model, report
    if isinstance(model, onnx.ModelProto):
        report.bytes_before = _size(model)
    result = opened.result(report.changed)
    if isinstance(result, onnx.ModelProto):
        report.bytes_after = _size(result)
    return result, report


def fuse_file(path: str | os.PathLike, output: str | os.PathLike | None, patterns: Sequence[Pattern], *,
              overwrite_data: bool = False) -> Report:
    """Fuse one file into another, or with no output only look."""
    opened = open_model(path)
    if output is not None:
        saving.check_output(output, folder=opened.folder, locations=opened.locations)
    report, data = rewrite_file(opened, patterns)
    if output is not None:
        saving.save(data, output, folder=opened.folder, locations=opened.still_located(report.changed),
                    overwrite_data=overwrite_data)
    return report


def rewrite_file(opened: Opened, patterns: Sequence[Pattern]) -> tuple[Report, bytes]:
    """Rewrite a model that was opened from a path; its bytes afterwards are the input's if nothing was fused."""
    report = rewrite(opened, patterns)
    data = opened.data
    if report.changed:
        proto = opened.to_proto()
        data = saving.serialize(proto)
        _hold(checking.complaint(proto, data))
    report.bytes_before, report.bytes_after = len(opened.data), len(data)
    return report, data


def rewrite(opened: Opened, patterns: Sequence[Pattern]) -> Report:
    """Run the engine over `opened.model`, and the checker over what it made (a path's is checked when serialized).

    Raises:
        InternalError: the engine raised something else than what it documents, or made an invalid model.
    """
    from rewriter.engine import run

    try:
        report = run(opened.model, patterns)
    except RewriterError:
        raise
    except Exception as error:
        raise InternalError(f"the engine failed: {type(error).__name__}: {error}") from error
    if opened.data is None and report.changed:
        _hold(checking.complaint_ir(opened.model))
    return report


def choose_patterns(wanted: Iterable[Pattern | str] | None) -> tuple[Pattern, ...]:
    """The patterns to run: objects as they are given; names with all that they need, in the default order.

    Raises:
        UsageError: a name that no default pattern has.
    """
    from patterns import ALL  # patterns imports this package's vocabulary

    if wanted is None:
        return tuple(ALL)
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    known = {pattern.name: pattern for pattern in ALL}
    names: set[str] = set()
    pending = [item for item in wanted if isinstance(item, str)]
    while pending:
        name = pending.pop()
        if name not in known:
            raise UsageError(f"no pattern is named {name!r}; there are {', '.join(known)}")
        if name not in names:
            names.add(name)
            pending.extend(known[name].needs)
    return (*(p for p in ALL if p.name in names), *(item for item in wanted if not isinstance(item, str)))


def _hold(complaint: str | None) -> None:
    if complaint is not None:
        raise InternalError(f"the fused model is invalid, says onnx.checker: {complaint}")


def _size(proto: onnx.ModelProto) -> int | None:
    size = checking.byte_size(proto)
    return None if size == float("inf") else int(size)
