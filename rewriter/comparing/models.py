"""The two models that are compared, as files that every process can read."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable

import onnx
import onnx_ir as ir

from rewriter.comparing.fragments import DOMAIN, walk
from rewriter.comparing.inputs import Spec, input_specs, specs
from rewriter.comparing.report import ModelFacts
from rewriter.comparing.variants import Source
from rewriter.errors import InterfaceError
from rewriter.fusing import rewrite_file
from rewriter.opening import Opened, is_surgeon, open_model
from rewriter.vocabulary import Pattern


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two: its file, its message without external data, and what is told of it."""

    source: Source
    proto: onnx.ModelProto
    facts: ModelFacts


def from_path(path: str | os.PathLike) -> Side:
    """A file, where it is.

    Raises:
        RewriterError: as `rewriter.opening.open_model`.
    """
    path = os.fsdecode(path)
    opened = open_model(path)
    return _side(opened.data, Source(path, _folder(opened)), os.path.basename(path), opened.locations)


def from_bytes(data: bytes, name: str, folder: str, locations: Iterable[str], scratch: str) -> Side:
    """A serialized model whose external data lies in `folder`; it gets a file in `scratch`, the data stays."""
    locations = list(locations)
    path = os.path.join(scratch, f"{len(os.listdir(scratch))}.onnx")
    with open(path, "xb") as file:
        file.write(data)
    return _side(data, Source(path, os.path.abspath(folder or ".") if locations else ""), name, locations)


def from_object(model, name: str, scratch: str) -> Side:
    """A model of any kind that `rewriter.fuse` takes, paths included; an object is written to `scratch`."""
    if isinstance(model, (str, os.PathLike)):
        return from_path(model)
    path = os.path.join(scratch, f"{name}.onnx")
    held = model if isinstance(model, ir.Model) or is_surgeon(model) else getattr(model, "model", None)
    if isinstance(held, ir.Model):  # its weights may lie anywhere
        ir.save(held.clone(), path, external_data=f"{name}.data")
    else:
        onnx.save(open_model(model).to_proto(), path)
    side = from_path(path)
    return dataclasses.replace(side, facts=dataclasses.replace(side.facts, name=f"{name} model"))


def fused_from(side: Side, patterns: Iterable[Pattern], scratch: str) -> Side:
    """What fusing makes of a model."""
    opened = open_model(side.source.path)
    report, data = rewrite_file(opened, list(patterns))
    return from_bytes(data, f"{side.facts.name}, fused", opened.folder, opened.still_located(report.changed), scratch)


def check_interfaces(unfused: Side, fused: Side) -> None:
    """Refuse to compare models that are not called alike.

    Raises:
        InterfaceError: names the first input or output that differs.
    """
    for kind, of in (("input", input_specs), ("output", lambda graph: specs(graph.output))):
        before, after = ({spec.name: spec for spec in of(side.proto.graph)} for side in (unfused, fused))
        for name in before.keys() ^ after.keys():
            has, lacks = (unfused, fused) if name in before else (fused, unfused)
            raise InterfaceError(f"{has.facts.name} has an {kind} {name!r} and {lacks.facts.name} has not: these are "
                                 "not one model before and after fusing")
        for name, spec in before.items():
            if not _alike(spec, after[name]):
                raise InterfaceError(f"{kind} {name!r} is {_told(spec)} in {unfused.facts.name} and "
                                     f"{_told(after[name])} in {fused.facts.name}")


def _side(data: bytes, source: Source, name: str, locations: Iterable[str]) -> Side:
    proto = onnx.ModelProto.FromString(data)
    nodes = sum(place.node.op_type != "Constant" for place in walk(proto))
    nodes += sum(node.op_type != "Constant" for function in proto.functions if function.domain != DOMAIN
                 for node in function.node)
    outside = sum(os.path.getsize(os.path.join(source.folder, location)) for location in locations)
    return Side(source, proto, ModelFacts(name, len(data) + outside, nodes))


def _folder(opened: Opened) -> str:
    return os.path.abspath(opened.folder or ".") if opened.locations else ""


def _alike(one: Spec, other: Spec) -> bool:
    if one.dtype != other.dtype or one.shape is None or other.shape is None:
        return one.dtype == other.dtype
    return len(one.shape) == len(other.shape) and all(
        a == b or isinstance(a, str) or isinstance(b, str) for a, b in zip(one.shape, other.shape))


def _told(spec: Spec) -> str:
    return spec.dtype + ("" if spec.shape is None else f"[{', '.join(map(str, spec.shape))}]")
