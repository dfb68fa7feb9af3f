"""What fusing bought for the spatial transformer of the first example: values, speed, memory.

    python examples/02_compare.py [FOLDER]

compares examples/stn.onnx with what fusing makes of it in every runtime that is installed, prints the verdict and a
line a variant, and writes compare.html to FOLDER (default: a temporary one). `python -m rewriter stn.onnx fused.onnx
--compare --html compare.html` does the same and shows more. On one thread of a shared Intel Xeon, December 2026:

    Fused, the model runs 31.4 times as fast in ONNX Runtime with the kernels (95 % interval 25.0 to 51.3). Its
    values agree: at most 4.2e-05 apart. What was fused took 99 % of the unfused model's time. The machine was
    busy, so do not take these times for more than a hint.
    ORT unfused              96.41 ms                         the reference
    ORT unfused again        97.68 ms  0.99x (0.86 to 1.04)   largest error 0.0e+00
    ORT fused, functions     20.97 ms  4.60x (4.00 to 4.94)   largest error 5.5e-05
    ORT fused, kernels        3.07 ms 31.43x (24.97 to 51.34) largest error 4.2e-05
    OpenVINO unfused         32.42 ms                         largest error 6.0e-05
    OpenVINO fused            7.99 ms  4.06x (3.08 to 4.45)   largest error 5.4e-05
    torch eager            absent
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import rewriter
from rewriter.comparing.page import html

MODEL = Path(__file__).parent / "stn.onnx"


def main(folder: Path, seconds: float = 20.0) -> None:
    result = rewriter.compare(MODEL, seconds=seconds, threads=1)
    print(result.to_dict()["verdict"])
    for variant in result.variants:
        if not variant.ran:
            print(f"{variant.label:22} {'failed' if variant.failed else 'absent'}")
            continue
        ratio, error = variant.faster, variant.error
        faster = f"{ratio.value:5.2f}x ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else ""
        print(f"{variant.label:22} {1e3 * variant.times.median:7.2f} ms {faster:23} "
              f"{f'largest error {error.absolute:.1e}' if error else 'the reference'}")
    (folder / "compare.html").write_text(html(result), encoding="utf-8")


if __name__ == "__main__":
    limit = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), limit)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch), limit)
