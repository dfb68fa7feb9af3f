"""External data: which tensors live in files of their own, and whether those files are what the model says.

onnx_ir maps such files lazily and believes the model; here every reference is checked before anything is read.
"""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from rewriter.errors import ExternalDataError
from rewriter.graphs import bodies


def tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Every tensor of a model: initializers and attributes, in subgraphs and functions too."""
    pending = [model.graph, *(function.graph for function in model.functions.values())]
    while pending:
        graph = pending.pop()
        yield from (value.const_value for value in graph.initializers.values() if value.const_value is not None)
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.value is None:  # a reference to a function's attribute
                    continue
                if attribute.type == ir.AttributeType.TENSOR:
                    yield attribute.value
                elif attribute.type == ir.AttributeType.TENSORS:
                    yield from attribute.value
                elif attribute.type == ir.AttributeType.GRAPH:
                    pending.append(attribute.value)
                elif attribute.type == ir.AttributeType.GRAPHS:
                    pending.extend(attribute.value)


def initializers(model: ir.Model) -> Iterator[ir.Value]:
    """The initializers of every graph of a model."""
    yield from model.graph.initializers.values()
    for graph in (model.graph, *model.functions.values()):
        for node in graph.all_nodes():
            for body in bodies(node):
                yield from body.initializers.values()


def external_tensors(model: ir.Model) -> list[ir.ExternalTensor]:
    """Every tensor whose data is in a file of its own."""
    return [tensor for tensor in tensors(model) if isinstance(tensor, ir.ExternalTensor)]


def locations(tensors: Iterable[ir.ExternalTensor]) -> list[str]:
    """The data files that tensors refer to, relative to the model's folder, each once, sorted."""
    return sorted({os.fspath(tensor.location) for tensor in tensors})


def check(tensors: Iterable[ir.ExternalTensor]) -> None:
    """Hold external tensors against their files, without reading them.

    Raises:
        ExternalDataError: the location is absolute, contains "..", leaves the tensor's `base_dir` through a symbolic
            link, is missing, no regular file, or has several hard links (onnx refuses those too); or the tensor's
            range does not fit its dtype and shape, or lies beyond the end of the file.
    """
    sizes: dict[tuple[str, str], int] = {}
    for tensor in tensors:
        key = (os.fspath(tensor.base_dir) or ".", os.fspath(tensor.location))
        try:
            if key not in sizes:
                sizes[key] = _file_size(*key)
            _check_range(tensor, sizes[key])
        except _RefusedError as refused:
            raise ExternalDataError(f"external data of tensor {tensor.name!r}: {key[1]!r} {refused}") from None


class _RefusedError(Exception):
    """Why a reference is refused: the rest of a sentence that begins with the file's name."""


def _file_size(folder: str, location: str) -> int:
    windows = pathlib.PureWindowsPath(location)  # knows both separators, and drives
    if not location or os.path.isabs(location) or windows.drive or windows.root:
        raise _RefusedError("is not a path relative to the model's folder")
    if ".." in windows.parts:
        raise _RefusedError("leaves the model's folder ('..')")
    try:
        inside, real = os.path.realpath(folder), os.path.realpath(os.path.join(folder, location))
        if os.path.commonpath([inside, real]) != inside:
            raise _RefusedError("leaves the model's folder through a symbolic link; copy the file beside the model")
        status = os.stat(real)
    except FileNotFoundError:
        raise _RefusedError(f"does not exist in {folder!r}; put the file beside the model") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _RefusedError(f"cannot be read: {error}") from None
    if not stat.S_ISREG(status.st_mode):
        raise _RefusedError("is not a regular file")
    if status.st_nlink > 1:
        raise _RefusedError(f"has {status.st_nlink} hard links, which onnx refuses; make it a copy of its own")
    if not os.access(real, os.R_OK):
        raise _RefusedError("cannot be read: permission denied")
    return status.st_size


def _check_range(tensor: ir.ExternalTensor, size: int) -> None:
    dims = tensor.shape.numpy()
    if tensor.dtype in (ir.DataType.STRING, ir.DataType.UNDEFINED) or any(dim < 0 for dim in dims):
        raise _RefusedError(f"cannot hold a tensor of type {tensor.dtype.name} and shape {list(dims)}")
    offset, needed = tensor.offset or 0, tensor.nbytes
    if offset < 0 or offset + needed > size:
        raise _RefusedError(f"ends at byte {size:,}, the tensor at {offset + needed:,}; it is cut short, or another")
    if tensor.length is not None and tensor.length != needed:
        raise _RefusedError(f"holds {tensor.length:,} bytes of it, its dtype and shape need {needed:,}")
