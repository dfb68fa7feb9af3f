"""Builds the package as pip does, with and without a C++ compiler, and asks each build for its library.

    python tests/runtimes/installs.py

Not collected by pytest: it installs packages. The last line reads `N passed, N failed`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ASK = """
import sys; sys.path.insert(0, sys.argv[1])
import rewriter
try:
    print(rewriter.library_path())
except rewriter.RewriterError as error:
    print(type(error).__name__, error)
"""
BUILDS = {  # environment, start and end of what library_path says, tag of the wheel
    "with a compiler": ({}, "/", "libwarpfuse_kernels.so", "py3-none-linux"),
    "without": ({"CXX": "/nonexistent"}, "KernelsError", "what the compiler says", "py3-none-any"),
}


def build(environment: dict[str, str], folder: Path) -> tuple[str, str]:
    """The wheel's name, and what its library_path says."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-cache-dir", "--wheel-dir", folder, ROOT], check=True,
                   env=os.environ | environment)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", folder / "packages", wheel], check=True)
    done = subprocess.run([sys.executable, "-c", ASK, folder / "packages"], check=True, capture_output=True, text=True,
                          cwd=folder)
    return wheel.name, done.stdout.strip()


def main() -> int:
    failed = 0
    for name, (environment, start, end, tag) in BUILDS.items():
        with tempfile.TemporaryDirectory() as scratch:
            wheel, said = build(environment, Path(scratch))
        right = said.startswith(start) and said.endswith(end) and tag in wheel
        failed += not right
        print(f"{name}: {wheel}\n  {said}")
    print(f"{len(BUILDS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
