"""What a model is fed: seeded random data that is sensible by type and shape, or what the user gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import onnx

from rewriter.errors import RunError, UsageError

_FLOATS = ("float", "double", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Spec:
    """An input or output of a model.

    Attributes:
        name: its name.
        dtype: element type in ONNX's words ("float", "int64"), or "sequence" and the like for what is no tensor.
        shape: sizes; an open dim is its symbol, or "name:axis" where it has none; None where the rank is open.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None


@dataclasses.dataclass(frozen=True)
class Feeds:
    """Arrays for every input.

    Attributes:
        arrays: by name, in the model's order; C-contiguous, of the model's dtypes (bfloat16 is ml_dtypes').
        specs: the inputs with their actual shapes.
        assumed: sizes taken for dims that the model leaves open and nobody set, by symbol or "name:axis".
    """

    arrays: dict[str, np.ndarray]
    specs: tuple[Spec, ...]
    assumed: dict[str, int]


def specs(values: Iterable[onnx.ValueInfoProto]) -> list[Spec]:
    """The specs of a graph's inputs or outputs."""
    return [_spec(value) for value in values]


def input_specs(graph: onnx.GraphProto) -> list[Spec]:
    """The inputs that must be fed: those with an initializer need not be."""
    given = {tensor.name for tensor in graph.initializer}
    return specs(value for value in graph.input if value.name not in given)


def open_dims(inputs: Iterable[Spec]) -> list[str]:
    """Every open dim once, in order."""
    return list(dict.fromkeys(dim for spec in inputs for dim in spec.shape or () if isinstance(dim, str)))


def check_dims(inputs: Iterable[Spec], names: Iterable[str], option: str = "--dim") -> None:
    """Refuse sizes for dims that no input leaves open.

    Raises:
        UsageError: names the open dims there are.
    """
    there = open_dims(inputs)
    for name in names:
        if name not in there:
            known = f"there are {', '.join(there)}" if there else "all are fixed"
            raise UsageError(f"{option}: no input has an open dim {name!r}; {known}")


def make_feeds(inputs: Iterable[Spec], *, dims: Mapping[str, int] | None = None,
               given: Mapping[str, np.ndarray | tuple[int, ...]] | None = None, seed: int = 0) -> Feeds:
    """Data for every input.

    Floats lie in [0, 1) like an image's; where a shape is [N, 2, 3] or [N, 3, 4] they lie near the identity, as an
    affine matrix would. uint8 is an image too; other integers are 0 or 1, indices that are in range nearly everywhere.

    Args:
        inputs: the inputs.
        dims: sizes of open dims.
        given: by name an array, or a shape to be filled with random data.
        seed: of the random data.

    Raises:
        UsageError: `given` does not fit the model, or itself.
        RunError: no data can be made for an input that is not given.
    """
    inputs, dims, given = list(inputs), dict(dims or {}), dict(given or {})
    for name in given:
        if name not in [spec.name for spec in inputs]:
            raise UsageError(f"--input: the model has no input {name!r}; there are "
                             f"{', '.join(spec.name for spec in inputs) or 'none'}")
        if not isinstance(given[name], (np.ndarray, tuple)):
            raise UsageError(f"input {name}: an array is needed, or its shape as a tuple, not a "
                             f"{type(given[name]).__name__}")
    for spec in inputs:
        if spec.name in given:
            _bind(spec, given[spec.name], dims)
    assumed: dict[str, int] = {}
    arrays, actual = {}, []
    for spec in inputs:
        value = given.get(spec.name)
        shape = value if isinstance(value, tuple) else _shape(spec, dims, assumed) if value is None else value.shape
        arrays[spec.name] = np.ascontiguousarray(value if isinstance(value, np.ndarray) else _random(spec, shape, seed))
        actual.append(dataclasses.replace(spec, shape=tuple(shape)))
    return Feeds(arrays, tuple(actual), assumed)


def _spec(value: onnx.ValueInfoProto) -> Spec:
    kind = value.type.WhichOneof("value") or "unknown"
    if kind != "tensor_type":
        return Spec(value.name, kind.removesuffix("_type"), None)
    tensor = value.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return Spec(value.name, dtype, None)
    return Spec(value.name, dtype, tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}:{axis}"
        for axis, dim in enumerate(tensor.shape.dim)))


def _bind(spec: Spec, value: np.ndarray | tuple[int, ...], dims: dict[str, int]) -> None:
    """Let a given input fix the open dims it shows."""
    shape = value if isinstance(value, tuple) else value.shape
    if isinstance(value, np.ndarray) and value.dtype != _dtype(spec):
        raise UsageError(f"--input {spec.name}: the array is {value.dtype}, the model wants {_dtype(spec)}")
    if spec.shape is None:
        return
    wanted = "x".join(str(dim) for dim in spec.shape)
    if len(shape) != len(spec.shape):
        raise UsageError(f"--input {spec.name}: {_times(shape)} does not fit the model's {wanted}")
    for size, dim in zip(shape, spec.shape):
        if dims.setdefault(dim, size) != size if isinstance(dim, str) else dim != size:
            clash = f", where {dim} is {dims[dim]} already" if isinstance(dim, str) else ""
            raise UsageError(f"--input {spec.name}: {_times(shape)} does not fit the model's {wanted}{clash}")


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


def _shape(spec: Spec, dims: dict[str, int], assumed: dict[str, int]) -> tuple[int, ...]:
    if spec.shape is None:
        raise RunError(f"input {spec.name!r} is a {spec.dtype} without a shape: give it by --input {spec.name}=...")
    sizes = []
    for axis, dim in enumerate(spec.shape):
        if isinstance(dim, str) and dim not in dims:
            dims[dim] = assumed[dim] = _likely(axis, len(spec.shape))
        sizes.append(dims[dim] if isinstance(dim, str) else dim)
    return tuple(sizes)


def _likely(axis: int, rank: int) -> int:
    """A size for an open dim: one sample, three channels, and an image big enough to time."""
    if axis == 0:
        return 1
    return 256 if rank >= 4 and axis >= 2 else 3 if rank >= 4 else 16


def _dtype(spec: Spec) -> np.dtype:
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(spec.dtype.upper()))
    except (ValueError, KeyError):
        dtype = np.dtype(object)
    if spec.dtype not in _FLOATS and dtype.kind not in "biu":
        raise RunError(f"no input can be made for {spec.name!r}, which is a {spec.dtype}")
    return dtype


def _random(spec: Spec, shape: tuple[int, ...], seed: int) -> np.ndarray:
    dtype, generator = _dtype(spec), np.random.default_rng(seed)
    if spec.dtype in _FLOATS:
        array = generator.random(shape)
        if len(shape) == 3 and shape[1:] in ((2, 3), (3, 4)):
            array = np.eye(*shape[1:]) + 0.1 * (array - 0.5)
    else:
        array = generator.integers(0, 256 if dtype == np.uint8 else 2, shape)
    return array.astype(dtype)
