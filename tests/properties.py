"""Run all property tests with many examples and print how many were executed, fused and declined.

    python tests/properties.py [--examples 20000] [--jobs 1] [-k NAME] [--seed N]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
EXAMPLES = int(os.environ.get("WARPFUSE_EXAMPLES", "100"))  # of each property


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=20_000, help="of each property")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="makes a run repeatable")
    parser.add_argument("-k", default="", help="only properties whose name matches this pytest expression")
    options = parser.parse_args()
    files = sorted(str(path) for path in TESTS.glob("test_*_properties.py"))
    command = [sys.executable, "-m", "pytest", "-n", str(options.jobs), "--durations=0", "-k", options.k, *files]
    if options.seed is not None:
        command.append(f"--hypothesis-seed={options.seed}")
    return subprocess.run(command, cwd=TESTS.parent, check=False,
                          env=os.environ | {"WARPFUSE_EXAMPLES": str(options.examples)}).returncode


if __name__ == "__main__":
    sys.exit(main())
