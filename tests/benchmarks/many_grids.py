"""How the CPU time to fuse grows with the number of grids in a model, and what it evaluates: static and dynamic sizes.

    python tests/benchmarks/many_grids.py [250 1000 ...]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from cost_models import evaluations, many_grids


def main() -> None:
    counts = [int(n) for n in sys.argv[1:]] or [250, 1000]
    print("model       grids    nodes    CPU s  ms a grid  evaluated nodes   a grid")
    for dynamic in (False, True):
        for count in counts:
            model = many_grids(count, dynamic=dynamic)
            start = time.process_time()
            report, evaluated = evaluations(model)
            seconds = time.process_time() - start
            assert report.count("AffineGridSample") == count
            print(f"{'dynamic' if dynamic else 'static':10} {count:6} {len(model.graph.node):8,} {seconds:8.2f} "
                  f"{seconds / count * 1e3:10.2f} {evaluated:16,} {evaluated / count:8.1f}", flush=True)


if __name__ == "__main__":
    main()
