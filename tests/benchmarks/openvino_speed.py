"""Fused against unfused in OpenVINO: folders of exported models, in turns, medians, 95 % intervals.

    python tests/benchmarks/openvino_speed.py FOLDER [FOLDER ...] [--seconds 2] [--threads 2] [-k NAME] [--default]

FOLDER holds NAME.onnx with the inputs in NAME.npz (as tests/corpus does). Every model that fuses is run three ways:
as it came, fused and read with `register`, and written by `--target openvino`. With --default OpenVINO chooses its own
precision, which on some CPUs is bfloat16; otherwise it is float32.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import onnx
import openvino

import rewriter
from rewriter.comparing.statistics import interleave, ratio_of_medians
from rewriter.runtimes.openvino import register


def runner(core: openvino.Core, model: onnx.ModelProto, feeds: dict, config: dict):
    """A call that runs the model once."""
    request = core.compile_model(core.read_model(model.SerializeToString()), "CPU", config).create_infer_request()
    return lambda: request.infer(feeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-k", default="", help="only names that contain this")
    parser.add_argument("--default", action="store_true", help="OpenVINO's own precision")
    options = parser.parse_args()
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": options.threads}
    if not options.default:
        config["INFERENCE_PRECISION_HINT"] = "f32"
    plain, taught = openvino.Core(), openvino.Core()
    register(taught)
    print(f"{'model':36} {'unfused':>10} {'taught':>10}  ratio (95 %)              target openvino, ratio (95 %)")
    ratios = []
    for path in sorted(path for folder in options.folders for path in folder.glob("*.onnx")):
        if options.k not in path.stem:
            continue
        model = onnx.load(path)
        with np.load(path.with_suffix(".npz")) as stored:
            feeds = {name[3:]: stored[name] for name in stored.files if name.startswith("in_")}
        try:
            fused, report = rewriter.fuse(model)
            written, _ = rewriter.fuse(fused, patterns=(), target="openvino")
            if not report.fused:
                continue
            pairs = ((plain, model), (taught, fused), (plain, written))
            runs = [runner(core, made, feeds, config) for core, made in pairs]
        except Exception as error:
            warnings.warn(f"{path.stem}: {' '.join(str(error).split())[-120:]}", stacklevel=1)
            continue
        line, times = [], None
        for after in runs[1:]:
            times = interleave(runs[0], after, seconds=options.seconds, least=60)
            line.append(ratio_of_medians(times))
            if len(line) == 1:
                before, taught_time = np.median(times, axis=0) * 1e3
        ratios.append((line[0][0], path.stem))
        (a, b, c), (d, e, f) = line
        slower = "  SLOWER" if b > 1.03 or e > 1.03 else ""
        print(f"{path.stem:36} {before:7.3f} ms {taught_time:7.3f} ms  {a:.3f} ({b:.3f} to {c:.3f})    "
              f"{d:.3f} ({e:.3f} to {f:.3f}){slower}", flush=True)
    print(f"{len(ratios)} models, median ratio {np.median([r for r, _ in ratios]):.3f}, "
          f"worst {max(ratios)}, OpenVINO {openvino.__version__}, {options.threads} threads")


if __name__ == "__main__":
    main()
