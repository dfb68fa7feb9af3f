"""Theta of the parameters a grid was made of: how it is written into the graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from patterns.affine_probe import Theta
from patterns.size_ratios import Factors
from rewriter.builder import Builder


def emit_theta(builder: Builder, theta: Theta, size: ir.Value) -> ir.Value:
    """theta = offset + parameters @ matrix in float32 or float64, [N, d, d+1], in few small nodes.

    A coordinate is made of its own parameters alone, so that a NaN in one of them reaches no other coordinate.

    Args:
        size: the grid's size operand, used where the matrix depends on it.
    """
    double = any(builder.dtype(v) == ir.DataType.DOUBLE for v in theta.values)
    dtype = ir.DataType.DOUBLE if double else ir.DataType.FLOAT
    parts = [cast(builder, value, dtype) for value in theta.values]
    count, batch, target = len(theta.matrix), -1 if theta.batched else 1, theta.matrix.shape[1:]
    factors, ratios = Factors(builder, size, dtype), theta.ratios
    flat = [builder.reshape(part, [batch, n]) for part, n in zip(parts, theta.counts)]
    flat = flat[0] if len(flat) == 1 else builder.op("Concat", flat, axis=1)
    if np.any(np.count_nonzero(theta.matrix, axis=0) > 1):
        places, matrices = _by_coordinate(theta.matrix)
        own = builder.op("Gather", [flat, builder.constant(places[:, None], "places")], axis=1)  # [N, d, 1, most]
        among = ratios and ratios[1 + places, np.arange(len(places))[:, None]]
        result = builder.op("MatMul", [own, factors.emit(matrices, among, "matrices")])
        result = builder.reshape(result, [batch, *target])
    else:
        places, single = _one_each(theta.matrix)
        if np.array_equal(places.ravel(), np.arange(count)):
            result = builder.reshape(parts[0] if len(parts) == 1 else flat, [batch, *target])
        else:
            result = builder.op("Gather", [flat, builder.constant(places, "places")], axis=1)
        among = ratios and ratios[(1 + places, *np.indices(places.shape))]
        if not np.all(single == 1) or (among and among.count()):
            result = builder.op("Mul", [result, factors.emit(single, among, "factors")])
    if theta.offset is not None:
        result = builder.op("Add", [result, factors.emit(theta.offset, ratios and ratios[0], "offset")])
    return result


def cast(builder: Builder, value: ir.Value, wanted: ir.DataType) -> ir.Value:
    return value if builder.dtype(value) == wanted else builder.op("Cast", [value], dtype=wanted, to=int(wanted))


def _own(matrix: np.ndarray) -> list[np.ndarray]:
    """For each coordinate the parameters it is made of; the first of all where it is made of none."""
    return [found if len(found := np.flatnonzero(matrix[:, i].any(axis=-1))) else np.array([0])
            for i in range(matrix.shape[1])]


def _one_each(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(places, factors), both [d, d+1]: the parameter that each element of theta is made of, and its factor."""
    unused = np.array([own[0] for own in _own(matrix)])[:, None]
    places = np.where(matrix.any(axis=0), np.argmax(matrix != 0, axis=0), unused)
    return places, np.take_along_axis(matrix, places[None], axis=0)[0]


def _by_coordinate(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(places [d, most], matrices [d, most, d+1]): the parameters of each coordinate, padded with its last, and what
    they are multiplied with."""
    own = _own(matrix)
    most = max(map(len, own))
    places = np.stack([np.pad(o, (0, most - len(o)), mode="edge") for o in own])
    matrices = np.stack([matrix[p, i] * (np.arange(most) < len(o))[:, None]
                         for i, (p, o) in enumerate(zip(places, own))])
    return places, matrices
