"""Builds sdist and wheel twice, from two folders: the same bytes, and in them what belongs there and nothing else.

    python tests/supply.py

The first wheel is made from the sdist, the second straight from the tree. Not collected by pytest: it installs packages
and compiles. The last line reads `N passed, N failed`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EPOCH = "1700000000"  # seconds, of every file in the archives
SKIPPED = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "*.egg-info")
WHEEL = (r"patterns/(\w+/)*\w+\.py", r"rewriter/(\w+/)*\w+\.py", r"rewriter/docs/\w+\.md", r"rewriter/py\.typed",
         r"rewriter/kernels/libwarpfuse_kernels\.so",
         r"onnx_warpfuse-[\d.]+\.dist-info/(METADATA|RECORD|WHEEL|entry_points\.txt|licenses/LICENSE)")
IN_SDIST = ("LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "rewriter/kernels/CMakeLists.txt",
            "tests/conftest.py", "examples/stn.onnx")


def copied(folder: Path) -> Path:
    """The tree, elsewhere."""
    return shutil.copytree(ROOT, folder, ignore=SKIPPED)


def sources(ending: str = "") -> set[str]:
    """What the tree has in the two packages, as in an archive."""
    return {str(path.relative_to(ROOT)) for package in ("rewriter", "patterns") for path in (ROOT / package).rglob("*")
            if path.is_file() and path.name.endswith(ending) and "__pycache__" not in path.parts}


def check_wheel(wheel: Path) -> Iterable[str]:
    """What is wrong with it."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        library = archive.read("rewriter/kernels/libwarpfuse_kernels.so")
    for name in sorted(names):
        if not any(re.fullmatch(pattern, name) for pattern in WHEEL):
            yield f"{name} is in it"
    for name in sorted({*sources(".py"), *sources(".md"), "rewriter/py.typed"} - names):
        yield f"{name} is not in it"
    if sum(name.endswith("/licenses/LICENSE") for name in names) != 1:
        yield "it has no licence"
    for path in sorted(set(re.findall(rb"/(?:tmp|home|root|work|build)/[\w./-]+", library))):
        yield f"the library tells where it was compiled: {path.decode()}"


def check_sdist(sdist: Path) -> Iterable[str]:
    """What is wrong with it."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    for name in sorted({*IN_SDIST, *sources()} - names):
        yield f"{name} is not in it"
    for name in sorted(names):
        if re.search(r"(^|/)(\.ci|\.git|__pycache__|\.\w+_cache)/|\.(so|pyc|tmp)$", name):
            yield f"{name} is in it"


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def main() -> int:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        python = folder / "venv/bin/python"
        subprocess.run([python, "-m", "pip", "--quiet", "install", "build"], check=True)
        build = [python, "-m", "build", "--outdir"]
        subprocess.run([*build, folder / "one", copied(folder / "a")], check=True, env=environment, stdout=2)
        subprocess.run([*build, folder / "two", "--sdist", "--wheel", copied(folder / "another folder")], check=True,
                       env=environment, stdout=2)
        first, second = digests(folder / "one"), digests(folder / "two")
        (wheel,), (sdist,) = (folder / "one").glob("*.whl"), (folder / "one").glob("*.tar.gz")
        checks: dict[str, Callable[[], Iterable[str]]] = {
            "the same bytes": lambda: [f"{name}: {first[name]} and {second.get(name)}" for name in first
                                       if first[name] != second.get(name)],
            wheel.name: lambda: check_wheel(wheel),
            sdist.name: lambda: check_sdist(sdist),
        }
        wrong = {name: list(check()) for name, check in checks.items()}
        for name, digest in first.items():
            print(f"{name}: sha256 {digest}")
    for name, faults in wrong.items():
        print(f"{name}: {'wrong' if faults else 'right'}", *faults, sep="\n  ")
    failed = sum(map(bool, wrong.values()))
    print(f"{len(wrong) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
