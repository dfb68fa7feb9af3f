"""The library call: open, rewrite, check, give back the same kind."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

import onnx

from rewriter import checking, placing, saving
from rewriter.errors import InternalError, InvalidModelError, RewriterError, UsageError
from rewriter.opening import Opened, open_model
from rewriter.report import Report
from rewriter.runtimes import targets
from rewriter.vocabulary import Pattern

Kind = TypeVar("Kind")  # of model: the one that comes in goes out


@overload
def fuse(model: str | os.PathLike[str], output: str | os.PathLike[str] | None = ..., *,  # type: ignore[overload-overlap]
         patterns: Iterable[Pattern | str] | None = ..., target: str = ..., dry_run: bool = ..., in_place: bool = ...,
         data_dir: str | os.PathLike[str] | None = ..., data: str = ..., overwrite_data: bool = ...,
         follow_input_size: bool = ...) -> Report: ...  # ignored: a path is a Kind too, and this one comes first
@overload
def fuse(model: Kind, output: None = ..., *, patterns: Iterable[Pattern | str] | None = ..., target: str = ...,
         dry_run: bool = ..., in_place: bool = ..., data_dir: str | os.PathLike[str] | None = ..., data: str = ...,
         overwrite_data: bool = ..., follow_input_size: bool = ...) -> tuple[Kind, Report]: ...
def fuse(model: Any, output: str | os.PathLike[str] | None = None, *,
         patterns: Iterable[Pattern | str] | None = None, target: str = targets.PORTABLE, dry_run: bool = False,
         in_place: bool = False, data_dir: str | os.PathLike[str] | None = None, data: str = placing.AUTO,
         overwrite_data: bool = False, follow_input_size: bool = False) -> Report | tuple[Any, Report]:
    """Find subgraphs by what they compute and give each its name back, as one node of `custom.ops`.

    Args:
        model: a path (str or PathLike), `onnx.ModelProto`, `onnx_ir.Model`, the `ONNXProgram` that
            `torch.onnx.export(..., dynamo=True)` returns, or `onnx_graphsurgeon.Graph`.
        output: where to write, for a path; may be the input.
        patterns: `Pattern` objects, in the order they run, or names of default ones, which bring what they need along.
            Default: `patterns.ALL`.
        target: what the model is written for: "portable" (functions in the model), "kernels" (the same, and fused is
            also what pays only where our kernels run it), "stock" (nothing of `custom.ops` is left), "openvino",
            "tensorrt" or "tensorrt-plugin". What an earlier run fused is written for it too.
        dry_run: find, and change and write nothing.
        in_place: change the object handed in (for a path: write over it). After an `InternalError` or a `TargetError`
            an `onnx_ir.Model` or ONNXProgram that was changed in place must be thrown away.
        data_dir: where the external data of a ModelProto or Graph lies; default: the working directory. The other
            kinds know it themselves.
        data: what becomes of the external data of a path: "auto" shares the files with an output in the same folder
            and copies them beside any other, "share" never copies (the files must be in the output's folder or
            below), "copy" gives the output files of its own, in the same folder under names that begin with its own.
        overwrite_data: let data files copied beside the output replace others of the same name.
        follow_input_size: where a fused node's constant size is that of its image, let it follow the image, and open
            the declared height and width of the inputs, if the rest of the model allows it. Not known from the model
            is whether its size was meant to be fixed: hence only where asked for.

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
    chosen = choose_patterns(patterns, follow_input_size=follow_input_size, target=target)
    targets.check(target)
    placing.check(data)
    if isinstance(model, (str, os.PathLike)):
        if output is None and in_place:
            output = model
        if output is None and not dry_run:
            raise UsageError("a path needs an output path too (or dry_run=True, or in_place=True to write over it)")
        return fuse_file(model, None if dry_run else output, chosen, target=target, policy=data,
                         overwrite_data=overwrite_data)
    if output is not None:
        raise UsageError("an output path goes with an input path; other kinds of model are given back")
    opened = open_model(model, in_place=in_place and not dry_run, data_dir=data_dir, anchors=anchors_of(chosen))
    report = rewrite(opened, chosen, target)
    if dry_run:
        return model, report
    if isinstance(model, onnx.ModelProto):
        report.bytes_before = _size(model)
    result = opened.result(report.changed)
    if isinstance(result, onnx.ModelProto):
        report.bytes_after = _size(result)
    return result, report


@overload
def inline(model: str | os.PathLike[str], output: str | os.PathLike[str] | None = ..., **options: Any) -> Report: ...
@overload
def inline(model: Kind, output: None = ..., **options: Any) -> tuple[Kind, Report]: ...
def inline(model: Any, output: str | os.PathLike[str] | None = None, **options: Any) -> Report | tuple[Any, Report]:
    """Undo a fused model: every node of ours gives way to the best stock form for it, and no function of ours is left.

    Nothing else changes, in meaning or otherwise; nodes of `custom.ops` that call no function of ours stay. What was
    written for TensorRT alone (plugin nodes, the mode "bicubic" at opset 20 and newer) is undone as well.

    Args:
        model, output: as for `fuse`.
        options: `dry_run`, `in_place`, `data_dir`, `data`, `overwrite_data`, as for `fuse`.

    Returns:
        As `fuse`: for a path the Report, else (model of the same kind, Report). `report.retargeted` counts the nodes.

    Raises:
        RewriterError: as `fuse`.

    Example:
        >>> from onnx import parser
        >>> import rewriter
        >>> model = parser.parse_model('''<ir_version: 8, opset_import: ["" : 18]>
        ...     agraph (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }''')
        >>> rewriter.inline(model)[1].retargeted
        0
    """
    return fuse(model, output, patterns=["plugin_nodes"], target="stock", **options)


def fuse_file(path: str | os.PathLike[str], output: str | os.PathLike[str] | None, patterns: Sequence[Pattern], *,
              target: str = targets.PORTABLE, policy: str = placing.AUTO, overwrite_data: bool = False) -> Report:
    """Fuse one file into another, or with no output only look."""
    opened = open_model(path, anchors=anchors_of(patterns))
    if output is not None:
        saving.check_output(output, folder=opened.folder, locations=opened.locations, policy=policy)
    report, data = rewrite_file(opened, patterns, target)
    if output is not None:
        saved = saving.save(data, output, folder=opened.folder, locations=opened.still_located(report.changed),
                            policy=policy, model=path, overwrite_data=overwrite_data)
        report.bytes_after = len(saved.data)
    return report


def rewrite_file(opened: Opened, patterns: Sequence[Pattern],
                 target: str = targets.PORTABLE) -> tuple[Report, bytes]:
    """Rewrite a model that was opened from a path; its bytes afterwards are the input's if nothing was fused."""
    report = rewrite(opened, patterns, target)
    assert opened.data is not None  # since it was opened from a path
    data = opened.data
    if report.changed:
        proto = opened.to_proto()
        data = saving.serialize(proto)
        _hold(checking.complaint(proto, data, checked=True), opened)
    report.bytes_before, report.bytes_after = len(opened.data), len(data)
    return report, data


def rewrite(opened: Opened, patterns: Sequence[Pattern], target: str = targets.PORTABLE) -> Report:
    """Run the engine over `opened.model`, and the checker over what it made (a path's is checked when serialized).

    Raises:
        TargetError: the target cannot be given what was fused.
        InvalidModelError: onnx.checker refused nodes of the model, and they are still there.
        InternalError: the engine raised something else than what it documents, or made an invalid model.
    """
    from rewriter.engine import run

    try:
        report = run(opened.model, patterns)
        targets.write(opened.model, target, report)
    except RewriterError:
        raise
    except Exception as error:
        raise InternalError(f"the engine failed: {type(error).__name__}: {error}") from error
    if opened.refusal is not None and not report.changed:
        raise InvalidModelError(opened.refusal)
    if opened.data is None and report.changed:
        _hold(opened.complaint(), opened)
    return report


def choose_patterns(wanted: Iterable[Pattern | str] | None, *, follow_input_size: bool = False,
                    target: str = targets.PORTABLE) -> tuple[Pattern, ...]:
    """The patterns to run: objects as they are given; names with all that they need, in the default order.

    Args:
        follow_input_size: also run the pattern of that name, which is not among the default ones.
        target: as for `fuse`; some patterns find more for "kernels".

    Raises:
        UsageError: a name that no pattern has.
    """
    from patterns import ALL, FOR_KERNELS, OPT_IN  # patterns imports this package's vocabulary

    if wanted is None:
        wanted = [pattern.name for pattern in ALL]
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    if follow_input_size:
        wanted += [pattern.name for pattern in OPT_IN]
    known = {pattern.name: pattern for pattern in (*ALL, *OPT_IN)}
    if target == targets.KERNELS:
        known |= {pattern.name: pattern for pattern in FOR_KERNELS}
    names: set[str] = set()
    pending = [item for item in wanted if isinstance(item, str)]
    while pending:
        name = pending.pop()
        if name not in known:
            raise UsageError(f"no pattern is named {name!r}; there are {', '.join(known)}")
        if name not in names:
            names.add(name)
            pending.extend(known[name].needs)
    if target == targets.TENSORRT_PLUGIN:
        names.discard("plugin_nodes")  # which it has
    return (*(p for name, p in known.items() if name in names), *(item for item in wanted if not isinstance(item, str)))


def anchors_of(patterns: Iterable[Pattern]) -> frozenset[str]:
    """The operators that some pattern looks at."""
    return frozenset().union(*(pattern.anchors for pattern in patterns))


def _hold(complaint: str | None, opened: Opened) -> None:
    if complaint is not None and opened.refusal is not None:
        raise InvalidModelError(opened.refusal)
    if complaint is not None:
        raise InternalError(f"the fused model is invalid, says onnx.checker: {complaint}")


def _size(proto: onnx.ModelProto) -> int | None:
    size = checking.byte_size(proto)
    return None if size == float("inf") else int(size)
