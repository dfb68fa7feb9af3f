"""Every cell of the table of matrix.py: what it says runs gives PyTorch's values, what it says is declined is."""

from __future__ import annotations

import functools
import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from targets import matrix, running

RUNNERS = {
    "ONNX Runtime, functions": running.functions,
    "ONNX Runtime, kernels": running.kernels,
    "ONNX Runtime, `--target stock`": running.stock,
    "onnxruntime-web": running.web,
    "ReferenceEvaluator": running.reference,
    "OpenVINO, `register(core)`": running.openvino_register,
    "OpenVINO, `--target openvino`": running.openvino_target,
    "OpenVINO, C++ extension": running.openvino_extension,
    "OpenCV dnn, `--target stock`": running.opencv,
}
DTYPES = {"float16": (np.float16,), "bfloat16": (ml_dtypes.bfloat16,), "float32": (np.float32,),
          "float64": (np.float64,), "integers, bool": (np.uint8, np.int32, np.int64, np.bool_)}
EXACT = {np.float16: 2**-9, ml_dtypes.bfloat16: 2**-7, np.float32: 5e-6, np.float64: 1e-12}  # relative and absolute
CELLS = [(runtime, operator, dtype, sizes) for runtime, rows in matrix.TABLE.items()
         for operator, marks in rows.items() for dtype, mark in zip(matrix.DTYPES, marks, strict=True) if mark
         for sizes in ("static", "dynamic")]
VOLUME = {"spatial": (3, 4, 5), "source": (2, 3, 4)}


def uses(operator: str, dtype, calls) -> list[tuple]:
    """Calls of an operator: every attribute, every way that batches broadcast, axes of length 1."""
    name, _, volume = operator.partition(" ")
    if name == "AffineGridSample":
        more = VOLUME if volume == "3-D" else {}
        made = [calls.sampler(*use, dtype=dtype, **more) for use in calls.SAMPLERS if not (more and use[0] == "cubic")]
        return [*made, calls.sampler(dtype=dtype, theta_batch=1, size0=2, **more),
                calls.sampler(dtype=dtype, size0=2, **more)]
    if name == "AffineGrid":
        shapes = ((3, 4, 5), (1, 4, 5), (12, 40, 30)) if volume == "3-D" else ((7, 9), (1, 4), (70, 80))
        return [calls.grid(corners, spatial=spatial, dtype=dtype, batch=batch, size0=size0) for corners in (0, 1)
                for spatial in shapes for batch, size0 in ((2, 2), (1, 3), (3, 1))]
    x = (np.random.default_rng(0).standard_normal((2, 3, 4, 5)) * 100).astype(dtype)
    turns = itertools.product((1, 2, 3), ((2, 3), (0, 2), (1, 3)))
    if name == "Rot90":
        return [(name, {"x": x}, {"k": k, "axes": axes}) for k, axes in turns]
    return [(name, {"x": x}, {"rotations": k, "scale_factor": 0.1, "dims": f"{a},{b}"}) for k, (a, b) in turns]


def wanted(call, calls) -> np.ndarray:
    """What PyTorch makes of a call: in float64 where anything is computed, the very elements where they are moved."""
    torch = pytest.importorskip("torch")
    name, operands, attributes = call
    if name.startswith("AffineGrid"):
        return calls.by_torch(call)
    x = operands["x"]
    wide = x.astype(np.float64) if x.dtype.kind in "fV" else x
    if name == "Rot90":
        return torch.rot90(torch.from_numpy(wide), attributes["k"], attributes["axes"]).numpy()
    axes = [int(axis) for axis in attributes["dims"].split(",")]
    factor = float(np.float32(attributes["scale_factor"]).astype(x.dtype))
    return torch.rot90(torch.from_numpy(wide), attributes["rotations"], axes).numpy() * factor


@pytest.fixture
def runner(request):
    """The function that runs a fused model in a runtime of the table."""
    def choose(runtime):
        run = RUNNERS[runtime]
        if run is not running.openvino_extension:
            return run
        return functools.partial(run, library=request.getfixturevalue("extension"))
    return choose


def error_of(got: np.ndarray, want: np.ndarray) -> float:
    """The greatest error, relative where values are greater than 1; infinite where shape or infinities differ."""
    if got.shape != want.shape:
        return math.inf
    got, want = got.astype(np.float64), want.astype(np.float64)
    error = np.abs(got - want) / np.maximum(np.abs(want), 1)
    return float(np.max(np.where(np.isnan(error), math.inf, error), initial=0.0))


@pytest.mark.parametrize(("runtime", "operator", "dtype", "sizes"), CELLS, ids=lambda part: part.replace("`", ""))
def test_cell(assemble, calls, runner, runtime, operator, dtype, sizes):
    run, dynamic = runner(runtime), sizes == "dynamic"
    runs, reasons = matrix.read(matrix.TABLE[runtime][operator][matrix.DTYPES.index(dtype)], sizes)
    for kind in DTYPES[dtype]:
        made = uses(operator, kind, calls)
        refused = {index: [reason.error for reason in reasons if reason.error and reason.concerns(call[2])]
                   for index, call in enumerate(made)}
        wrong = {index for index, call in enumerate(made) if any(r.wrong and r.concerns(call[2]) for r in reasons)}
        left = [call for index, call in enumerate(made) if index not in wrong and not refused[index]]
        assert any(refused.values()) == any(reason.error for reason in reasons), "a reason that concerns nothing"
        assert runs == bool(left), "a mark that its reasons contradict"
        for index, errors in refused.items():
            if errors:
                model, feeds = assemble([made[index]], dynamic=dynamic)
                with pytest.raises(Exception, match="|".join(errors)):  # each runtime has classes of its own
                    run(model, feeds)
        for index in wrong:
            model, feeds = assemble([made[index]], dynamic=dynamic)
            assert error_of(*run(model, feeds), wanted(made[index], calls)) > 0.01, "it is right: the note may go"
        # the evaluator mixes up samplers of one model: see test_reference_evaluator.py
        models = [[call] for call in left] if run is running.reference else [left] if left else []
        coarse = kind is np.float64 and any(not reason.error and not reason.wrong for reason in reasons)
        worst = max((hold(run(*assemble(some, dynamic=dynamic)), some, kind, calls, coarse=coarse) for some in models),
                    default=1.0)
        assert not coarse or worst > EXACT[np.float64], "it is exact: the note may go"


def hold(outputs, made, kind, calls, *, coarse: bool) -> float:
    """Outputs are PyTorch's, of the dtype that went in. The greatest error."""
    errors = [error_of(y, wanted(call, calls)) for y, call in zip(outputs, made, strict=True)]
    assert {str(y.dtype) for y in outputs} == {np.dtype(np.float32 if kind is ml_dtypes.bfloat16 else kind).name}
    tolerance = EXACT[np.float32] if coarse else EXACT.get(kind, 0)
    worst = max(range(len(made)), key=errors.__getitem__)
    assert errors[worst] <= tolerance, f"off by {errors[worst]:.3g}: {made[worst][0]} {made[worst][2]}"
    return errors[worst]


def test_every_runtime_and_reason_is_used():
    assert list(RUNNERS) == list(matrix.TABLE)
    marks = " ".join(mark for rows in matrix.TABLE.values() for marks in rows.values() for mark in marks)
    assert {letter for letter in marks.split() if len(letter) == 1} == set(matrix.REASONS)


def test_the_page_holds_the_table():
    """To mend it: python tests/targets/matrix.py."""
    page = matrix.PAGE.read_text(encoding="utf-8")
    assert matrix.placed(page) == page
