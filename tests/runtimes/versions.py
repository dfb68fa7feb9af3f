"""Runs every operator through the library in old and new versions of ONNX Runtime, each in an environment of its own.

    python tests/runtimes/versions.py [VERSION ...]

The default is the oldest that the kernels support, one of the middle, the newest, and one that is too old, which must
say so. Not collected by pytest: it installs packages. The last line reads `N passed, N failed`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np
from onnx import TensorProto

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernel_models import node_model

import rewriter
from patterns.operators.affine_grid_sample import affine_grid, affine_grid_sample
from patterns.operators.rot90 import CUSTOM_ROT_SCALE, ROT90

VERSIONS = ("1.16.3", "1.17.3", "1.22.1", "")  # "": the newest
OLDEST = (1, 17)
REFUSAL = "onnx-warpfuse kernels need ONNX Runtime 1.17 or newer, this is "

# What runs in each environment, on numpy and onnxruntime alone: {"version", "refused" or "errors": {case: text}}.
RUNNER = """
import json, sys
from pathlib import Path
import numpy as np
import onnxruntime as ort

library, folder = sys.argv[1], Path(sys.argv[2])
ort.set_default_logger_severity(4)
outcome = {"version": ort.__version__, "errors": {}}
options = ort.SessionOptions()
options.log_severity_level = 4
try:
    options.register_custom_ops_library(library)
except Exception as error:
    outcome["refused"] = str(error)
else:
    for path in sorted(folder.glob("*.onnx")):
        arrays = dict(np.load(path.with_suffix(".npz")))
        want, atol = arrays.pop("want"), float(arrays.pop("atol"))
        try:
            session = ort.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
            (got,) = session.run(None, arrays)
            assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape)
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=atol)
        except Exception as error:
            outcome["errors"][path.stem] = str(error)
print(json.dumps(outcome))
"""


def cases():
    """(name, op_type, operands, attributes, want, tolerance, options of node_model) of every operator and dtype."""
    rng = np.random.default_rng(13)
    x = rng.standard_normal((2, 3, 6, 35))
    theta = 1.2 * np.eye(2, 3) + rng.uniform(-0.5, 0.5, (2, 2, 3))
    narrow = {"narrow": TensorProto.BFLOAT16}
    coarse = np.round(x * 8) / 8, np.round(theta * 16) / 16  # exact in every dtype, bfloat16 too
    for name, kind, atol, options in (("float32", np.float32, 1e-5, {}), ("float64", np.float64, 1e-12, {}),
                                      ("float16", np.float16, 1e-2, {}), ("bfloat16", np.float32, 5e-2, narrow)):
        operands = {"theta": coarse[1].astype(kind), "size": np.array((1, 1, 7, 37))}
        yield (f"AffineGrid {name}", "AffineGrid", operands, {"align_corners": 1},
               affine_grid(coarse[1], operands["size"], align_corners=1).astype(kind), atol, options)
        for mode, padding in itertools.product(("linear", "cubic"), ("zeros", "border", "reflection")):
            attributes = {"mode": mode, "padding_mode": padding, "align_corners": 0, "grid_align_corners": 1}
            want = affine_grid_sample(*coarse, operands["size"], **attributes).astype(kind)
            yield (f"AffineGridSample {name} {mode} {padding}", "AffineGridSample",
                   {"x": coarse[0].astype(kind), **operands}, attributes, want, atol, options)
        attributes = {"rotations": 3, "scale_factor": 0.5, "dims": "height,width"}
        want = CUSTOM_ROT_SCALE.reference(coarse[0].astype(kind), **attributes)
        yield f"CustomRotScale {name}", "CustomRotScale", {"x": coarse[0].astype(kind)}, attributes, want, 0, options
    for kind in ("float32", "float64", "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16",
                 "uint32", "uint64"):
        turned = (x * 100).astype(np.int64).astype(kind)
        yield (f"Rot90 {kind}", "Rot90", {"x": turned}, {"k": 3, "axes": (1, 3)},
               ROT90.reference(turned, k=3, axes=(1, 3)), 0, {})
    for kind in ("BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"):
        turned = np.sign(x).astype(np.float32)
        yield (f"Rot90 {kind}", "Rot90", {"x": turned}, {"k": 1, "axes": (2, 3)}, np.rot90(turned, 1, (2, 3)), 0,
               {"narrow": getattr(TensorProto, kind), "opset": 19, "ir_version": 9})


def write(folder: Path) -> int:
    """Every case as a model and its arrays; how many."""
    every = list(cases())
    for name, op_type, operands, attributes, want, atol, options in every:
        (folder / f"{name}.onnx").write_bytes(node_model(op_type, operands, attributes, **options))
        np.savez(folder / f"{name}.npz", want=want, atol=atol, **operands)
    return len(every)


def outcome_in(version: str, folder: Path, environment: Path) -> dict:
    """What RUNNER prints in a new environment with that version."""
    venv.create(environment, with_pip=True)
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    packages = [f"onnxruntime=={version}" if version else "onnxruntime"]
    if version and tuple(map(int, version.split(".")[:2])) < (1, 19):
        packages.append("numpy<2")  # what those were built for
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    command = [python, "-c", RUNNER, rewriter.library_path(), folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    with contextlib.suppress(json.JSONDecodeError, IndexError):
        return json.loads(done.stdout.splitlines()[-1]) | {"said": done.stderr}
    return {"version": version, "errors": {"process": f"exit code {done.returncode}: {done.stderr[-500:]}"}, "said": ""}


def main(versions) -> int:
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "cases")
        folder.mkdir()
        count = write(folder)
        for version in versions:
            outcome = outcome_in(version, folder, Path(scratch, f"environment {version}"))
            errors, refused = outcome["errors"], outcome.get("refused")
            if tuple(map(int, outcome["version"].split(".")[:2])) < OLDEST:
                right = REFUSAL + outcome["version"] in (refused or "") and not outcome["said"]
                errors, cases_run = {} if right else {"refusal": f"{refused} {outcome['said']}"}, 1
            else:
                errors, cases_run = errors | ({"registration": refused} if refused else {}), count
            print(f"{outcome['version']}: {cases_run - len(errors)} of {cases_run}")
            for name, error in errors.items():
                print(f"  {name}: {error}")
            passed, failed = passed + cases_run - len(errors), failed + len(errors)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or VERSIONS))
