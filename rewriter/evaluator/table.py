"""The operator table: how each operator computes, and through which operands it is linear.

An entry's `linear` answers: given that exactly these operands carry parameters, is the result an affine function of
them (all others held fixed)? One table serves evaluation and recognition, so the two cannot disagree.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

LARGEST = 100_000_000  # elements an evaluated tensor may have: a 5000 x 5000 grid and its homogeneous base
MOST_WORK = 1 << 32  # multiplications a product may take: seconds
MOST_AXES = 64  # of a tensor, in numpy


class EvaluationError(Exception):
    """A value that cannot be computed at rewrite time, with the reason. Patterns turn it into a decline."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One evaluation: operand arrays (None where absent), the node for its attributes."""

    node: ir.Node
    inputs: list
    like: np.dtype | None = None  # dtype of an operand of which only the type is used
    spend: Callable[[int], None] = lambda work: None  # told of work beyond the bytes of what comes out

    def get(self, index: int):
        return self.inputs[index] if index < len(self.inputs) else None

    def has(self, name: str) -> bool:
        return name in self.node.attributes

    def attr(self, name: str, default=None):
        found = self.node.attributes.get(name)
        if found is not None and found.is_ref():
            raise EvaluationError(f"attribute {name} of {self.node.op_type} is set by the caller of its function")
        return default if found is None else found.value

    def axes(self, index: int) -> tuple[int, ...] | None:
        """Axes as an attribute (older opsets) or as operand `index`."""
        given = self.attr("axes") if self.has("axes") else self.get(index)
        return None if given is None else tuple(few(given))


def each(carriers: frozenset[int]) -> bool:
    return True


def one(carriers: frozenset[int]) -> bool:
    return len(carriers) == 1


def never(carriers: frozenset[int]) -> bool:
    return False


def within(*operands: int) -> Callable[[frozenset[int]], bool]:
    allowed = frozenset(operands)
    return lambda carriers: carriers <= allowed


@dataclasses.dataclass(frozen=True)
class Entry:
    run: Callable
    linear: Callable[[frozenset[int]], bool]


TABLE: dict[tuple[str, str], Entry] = {}


def operator(*names: str, linear: Callable = never, domain: str = ""):
    """Register an implementation: a function of a Call that returns an array, or a tuple of arrays."""

    def register(function):
        for name in names:
            TABLE[domain, name] = Entry(function, linear)
        return function

    return register


def few(numbers, most: int = MOST_AXES) -> list[int]:
    """Numbers that there is one of for each axis, as a list: an array of millions is refused before it becomes one."""
    if isinstance(numbers, np.ndarray):
        numbers = np.atleast_1d(numbers)
    if np.ndim(numbers) > 1 or len(numbers) > most:
        raise EvaluationError(f"{len(numbers)} numbers where one for each axis belongs")
    return [int(n) for n in numbers]


def guard(shape) -> tuple[int, ...]:
    """The shape as a tuple, refused before anything of it is allocated when it is absurd."""
    shape = tuple(few(shape if isinstance(shape, np.ndarray) else list(shape)))
    if any(dim < 0 for dim in shape):
        raise EvaluationError(f"negative dimension in {shape}")
    if (count := math.prod(shape)) > LARGEST:
        raise EvaluationError(f"a tensor of {count} elements is too large to evaluate")
    return shape


def guard_work(call: Call, extents) -> None:
    """Refuse a product over so many index values that it would take minutes."""
    if (count := math.prod(int(n) for n in extents)) > MOST_WORK:
        raise EvaluationError(f"a product of {count} multiplications takes too long to evaluate")
    call.spend(count)


def numpy_dtype(code: int) -> np.dtype:
    return numeric(ir.DataType(int(code)).numpy())


def numeric(dtype: np.dtype) -> np.dtype:
    """A dtype, unless it is that of Python's own objects: sums of text or of their integers grow without end."""
    if dtype.kind not in "biufcV":
        raise EvaluationError("text is not evaluated")
    return dtype


def dense(tensor: ir.TensorProtocol) -> np.ndarray:
    """The elements of a tensor that the model holds.

    Raises:
        EvaluationError: it has none to compute with: text, or not as many as its shape says.
    """
    numeric(tensor.dtype.numpy())
    try:
        return tensor.numpy()
    except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError, OSError) as error:
        raise EvaluationError(f"the data of {tensor.name} cannot be read: {error}") from error


_UNITS = {np.dtype(np.float64): 2.0**-53, np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11,
          ir.DataType.BFLOAT16.numpy(): 2.0**-8}


def rounding_unit(dtype: np.dtype) -> float:
    """Half the distance of 1 to the next number; 0 for types that do not round."""
    return _UNITS.get(dtype, 0.0)
