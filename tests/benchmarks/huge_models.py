"""Time and memory for models of very many nodes, beside other tools on the same file.

    python tests/benchmarks/huge_models.py [100000 1000000] [--tools ours onnx_ir onnxscript onnxslim onnxsim]
                                           [--patience 1800]

Each tool reads the file and writes another, in a process of its own, which is given up after `--patience` seconds:
`onnx_ir` only loads and saves, `onnx` too; the others optimize as they do by default. A tool that is not installed is
left out. The model is a sampler that fuses, and a chain of elementwise nodes behind it (`tests/huge_models.py`). The
last line is of a model with 4 GiB of external data.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))
from huge_models import chain, external

# What each runs; the peak is the process's own, since getrusage may tell that of the process it was forked from.
TOOLS = {
    "ours": ("rewriter", "from rewriter.cli import main; assert main([source, target, '--quiet']) == 0"),
    "onnx": ("onnx", "import onnx; onnx.save(onnx.load(source), target)"),
    "onnx_ir": ("onnx_ir", "import onnx_ir; onnx_ir.save(onnx_ir.load(source), target)"),
    "onnxscript": ("onnxscript", "import onnx_ir, onnxscript.optimizer as o, onnxscript.rewriter as r; "
                   "m = onnx_ir.load(source); o.optimize(m); r.rewrite(m); onnx_ir.save(m, target)"),
    "onnxslim": ("onnxslim", "import onnxslim; onnxslim.slim(source, target)"),
    "onnxsim": ("onnxsim", "import onnx, onnxsim; onnx.save(onnxsim.simplify(onnx.load(source))[0], target)"),
}
CHILD = r"""
import re, sys
source, target = sys.argv[1:]
{code}
print("peak", int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1]) << 10)
"""


def measure(code: str, source: Path, target: Path, patience: float) -> str:
    """Seconds and peak of resident memory, or what went wrong, as text."""
    start = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, "-c", CHILD.replace("{code}", code), source, target], text=True,
                              capture_output=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {patience:.0f} s"
    seconds = time.perf_counter() - start
    peak = re.search(r"^peak (\d+)$", done.stdout, re.MULTILINE)
    if peak is None:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return f"failed after {seconds:.1f} s: {last[:100]}"
    return f"{seconds:9.1f} s {int(peak[1]) / 2**20:9,.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure tools on huge models.")
    parser.add_argument("counts", nargs="*", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--tools", nargs="*", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--patience", type=float, default=1800)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for count in options.counts:
            source = folder / "in.onnx"
            onnx.save(chain(count), source)
            print(f"{count:,} nodes, {source.stat().st_size / 1e6:.0f} MB", flush=True)
            for name in options.tools:
                package, code = TOOLS[name]
                if importlib.util.find_spec(package) is not None:
                    print(f"  {name:10} {measure(code, source, folder / f'{name}.onnx', options.patience)}", flush=True)
        external(folder, 1 << 32)
        print("4 GiB of external data")
        print(f"  {'ours':10} {measure(TOOLS['ours'][1], folder / 'in.onnx', folder / 'out.onnx', options.patience)}")


if __name__ == "__main__":
    main()
