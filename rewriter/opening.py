"""Taking in a model, whatever it comes as: checked, unchanged, its weights left where they are.

Five kinds come in and the same kind goes out: a path, `onnx.ModelProto`, `onnx_ir.Model`, the `ONNXProgram` of
`torch.onnx.export(..., dynamo=True)` and `onnx_graphsurgeon.Graph`. torch and graphsurgeon are never imported for it
unless such an object is handed in (and then they have been already).
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
import stat
from collections.abc import Callable, Collection
from typing import Any

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from rewriter import checking, external, lossless
from rewriter.errors import DirectoryError, InvalidModelError, MissingFileError, NotOnnxError

LARGEST_FILE = (1 << 31) - 1  # bytes; where protobuf ends
_FOREIGN = (  # how files begin that are often taken for models
    (b"version https://git-lfs", "a Git LFS pointer: run `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive, perhaps a PyTorch checkpoint: export it to ONNX first"),
    (b"\x80", "a Python pickle, perhaps a PyTorch checkpoint: export it to ONNX first"),
    (b"\x89HDF", "an HDF5 file: export the model to ONNX first"),
    (b"{", "JSON: only the binary form of ONNX is read"),
)


@dataclasses.dataclass
class Opened:
    """A model on its way through.

    Attributes:
        model: to be rewritten; the caller's own object only where asked for.
        kept: what onnx_ir does not carry.
        result: called after the rewriting with whether anything changed, gives back the kind of object that came in
            (None for a path).
        data: the bytes of the file, for a path.
        folder: where external data lies, for a path, and `locations` its files, relative to it.
        refusal: what onnx.checker has against nodes whose operators it does not know: the model is invalid unless
            they are replaced.
    """

    model: ir.Model
    kept: lossless.Kept
    result: Callable[[bool], object]
    data: bytes | None = None
    folder: str = ""
    locations: list[str] = dataclasses.field(default_factory=list)
    refusal: str | None = None
    _proto: onnx.ModelProto | None = dataclasses.field(default=None, init=False)

    def still_located(self, changed: bool) -> list[str]:
        """The data files that the model refers to now: a base grid that was fused away needs none."""
        return external.locations(external.external_tensors(self.model)) if changed else self.locations

    def to_proto(self) -> onnx.ModelProto:
        """The model as it stands now, or stood when the checker was asked."""
        return lossless.write(self.model, self.kept) if self._proto is None else self._proto

    def complaint(self) -> str | None:
        """What onnx.checker has against the rewritten model."""
        if self.kept.source is None:
            return checking.complaint_ir(self.model)
        self._proto = self.to_proto()
        return checking.complaint(self._proto)


def open_model(model: Any, *, in_place: bool = False, data_dir: str | os.PathLike[str] | None = None,
               anchors: Collection[str] = ()) -> Opened:
    """Take in a model of any of the five kinds.

    Args:
        model: the model.
        in_place: rewrite the caller's object instead of a copy.
        data_dir: where the external data of a ModelProto or graphsurgeon Graph lies; default: the working directory.
        anchors: operators, as patterns name them, that may be unknown to onnx.checker: see `Opened.refusal`.

    Raises:
        MissingFileError, DirectoryError, NotOnnxError: the path leads to no model.
        InvalidModelError: the plain onnx.checker refuses it, and not only because its nodes are unsorted or of
            those operators.
        ExternalDataError: external data is not what the model says.
        TypeError: another kind of object.
    """
    if isinstance(model, (str, os.PathLike)):
        return _open_path(os.fsdecode(model), anchors)
    if isinstance(model, onnx.ModelProto):
        return _open_proto(model, in_place, data_dir, anchors)
    if isinstance(model, ir.Model):
        return _open_ir(model, in_place, anchors)
    if is_surgeon(model):  # before it is asked for attributes: it prints an error for those that it lacks
        return _open_surgeon(model, in_place, data_dir, anchors)
    if isinstance(getattr(model, "model", None), ir.Model) and hasattr(model, "exported_program"):
        return _open_program(model, in_place, anchors)
    raise TypeError(
        f"cannot take in a {type(model).__name__}: a path, onnx.ModelProto, onnx_ir.Model, torch's ONNXProgram or "
        "onnx_graphsurgeon.Graph is needed")


def is_surgeon(model: Any) -> bool:
    """Whether it is an `onnx_graphsurgeon.Graph`."""
    return any(kind.__module__.partition(".")[0] == "onnx_graphsurgeon" for kind in type(model).__mro__)


def _open_path(path: str, anchors: Collection[str]) -> Opened:
    data = _read(path)
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise NotOnnxError(f"{path}: {_guess(data) or 'not an ONNX model, or one cut short'}") from None
    if not (proto.ir_version and proto.HasField("graph")):  # stray bytes may parse as a message of unknown fields
        raise NotOnnxError(f"{path}: {_guess(data) or 'not an ONNX model: it has no graph'}")
    folder = os.path.dirname(path) or "."
    return _checked(proto, functools.partial(onnx.ModelProto.FromString, data), folder, path, data,
                    lambda opened: lambda changed: None, anchors)


def _read(path: str) -> bytes:
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise DirectoryError(f"{path}: a directory; name the .onnx file in it")
        if not stat.S_ISREG(status.st_mode):  # reading a FIFO would wait for ever
            raise NotOnnxError(f"{path}: not a regular file")
        if status.st_size > LARGEST_FILE:
            raise NotOnnxError(f"{path}: {status.st_size:,} bytes; a protobuf ends at 2 GiB, so this is no ONNX model")
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise MissingFileError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise MissingFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _guess(data: bytes) -> str | None:
    if not data:
        return "empty"
    if data[4:8] == b"ORTM":
        return "in ONNX Runtime's own format: fuse the .onnx file it was made from"
    return next((f"not an ONNX model but {kind}" for start, kind in _FOREIGN if data.startswith(start)), None)


def _open_proto(proto: onnx.ModelProto, in_place: bool, data_dir, anchors: Collection[str]) -> Opened:
    own = lossless.copy_of(proto)  # onnx_ir's tensors write their names into the message that they were read from

    def result_for(opened: Opened) -> Callable[[bool], onnx.ModelProto]:
        def result(changed: bool) -> onnx.ModelProto:
            if changed and not in_place:
                return opened.to_proto()
            target = proto if in_place else onnx.ModelProto()
            target.CopyFrom(opened.to_proto() if changed else proto)
            return target
        return result

    return _checked(own, functools.partial(lossless.copy_of, proto), os.fspath(data_dir or "."), "model", None,
                    result_for, anchors)


def _checked(proto: onnx.ModelProto, source: Callable[[], onnx.ModelProto], folder: str, label: str,
             data: bytes | None, result_for, anchors: Collection[str]) -> Opened:
    """Check a proto, which is written to, and read it; `source` makes a copy of it as it came in."""
    if (data is not None or checking.byte_size(proto) <= checking.LARGEST) and not checking.is_text(
            proto.SerializeToString() if data is None else data):
        raise InvalidModelError(f"{label}: a name or other text in it is not UTF-8, which protobuf demands")
    complaint, refusal = checking.complaint(proto, data), None
    if complaint is not None and checking.is_of_strangers(complaint):
        refusal = f"{label}: onnx.checker refuses it: {complaint}"
        complaint = checking.complaint_beyond_strangers(proto, anchors)
    unsorted = complaint is not None and "topolog" in complaint
    if complaint and not unsorted:
        raise InvalidModelError(f"{label}: onnx.checker refuses it: {complaint}")
    try:
        model, kept = lossless.read(proto, source)
    except Exception as error:
        reason = complaint or f"onnx_ir cannot represent it: {' '.join(str(error.__cause__ or error).split())}"
        raise InvalidModelError(f"{label}: {reason}") from error
    if unsorted:
        strangers = _sort(model, kept, f"{label}: onnx.checker refuses it: {complaint}", anchors)
        refusal = None if strangers is None else f"{label}: onnx.checker refuses it: {strangers}"
    outside = external.external_tensors(model)
    for tensor in outside:
        tensor.base_dir = folder
    external.check(outside)
    opened = Opened(model, kept, lambda changed: None, data, folder if data is not None else "",
                    external.locations(outside), refusal)
    opened.result = result_for(opened)
    return opened


def _sort(model: ir.Model, kept: lossless.Kept, refusal: str, anchors: Collection[str]) -> str | None:
    """Put nodes in topological order, as several tools do not; refuse what the checker then still refuses.

    Returns what it has against unknown operators among `anchors`.
    """
    try:
        model.graph.sort()
        for function in model.functions.values():
            function.sort()
    except ValueError:  # a cycle
        raise InvalidModelError(refusal) from None
    complaint, strangers = _complaints(model, kept, anchors)
    if complaint is not None:
        raise InvalidModelError(refusal)
    return strangers


def _complaints(model: ir.Model, kept: lossless.Kept, anchors: Collection[str]) -> tuple[str | None, str | None]:
    """What the checker has against the model, and against unknown operators among `anchors`."""
    proto = None if kept.source is None else lossless.write(model, kept)
    complaint = checking.complaint_ir(model) if proto is None else checking.complaint(proto)
    if complaint is None or not checking.is_of_strangers(complaint):
        return complaint, None
    return checking.complaint_beyond_strangers(proto or checking.lean_proto(model), anchors), complaint


def _open_ir(model: ir.Model, in_place: bool, anchors: Collection[str]) -> Opened:
    external.check(external.external_tensors(model))
    complaint, strangers = _complaints(model, lossless.Kept(), anchors)
    if complaint is not None:
        refusal = f"model: onnx.checker refuses it: {complaint}"
        if "topolog" not in complaint:
            raise InvalidModelError(refusal)
        if not in_place:  # onnx_ir cannot clone it as it is
            raise InvalidModelError(f"{refusal}; if its nodes are only unsorted, call model.graph.sort() first")
        strangers = _sort(model, lossless.Kept(), refusal, anchors)
    target = model if in_place else model.clone()
    refusal = None if strangers is None else f"model: onnx.checker refuses it: {strangers}"
    return Opened(target, lossless.Kept(), lambda changed: target, refusal=refusal)


def _open_program(program, in_place: bool, anchors: Collection[str]) -> Opened:
    opened = _open_ir(program.model, in_place, anchors)

    def result(changed: bool):
        made = program if in_place else copy.copy(program)  # a deep copy raises, and would copy the weights
        if not in_place:  # what belongs to the running original stays with it
            made._inference_session = made._tempdir = None
        elif changed:
            made.release()
        made.model = opened.model
        return made

    opened.result = result
    return opened


def _open_surgeon(graph, in_place: bool, data_dir, anchors: Collection[str]) -> Opened:
    import onnx_graphsurgeon as gs

    opened = _open_proto(gs.export_onnx(graph), False, data_dir, anchors)

    def result(changed: bool):
        if not changed:
            return graph if in_place else graph.copy()
        made = gs.import_onnx(opened.to_proto())
        if in_place:
            graph.__dict__.update(made.__dict__)
            return graph
        return made

    opened.result = result
    return opened
