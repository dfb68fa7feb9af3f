"""Runs the tests on the lowest declared version of every dependency, on the newest, and on other versions of Python.

    python tests/environments.py [NAME ...] [--python 3.12=/path/of/python ...] [-- arguments of pytest]

Each environment is made anew from one wheel of the working tree. torch is installed in those of the running Python
alone: its CPU build is not to be had for all; elsewhere the tests that need it skip. A Python that is not found is
skipped too.

Not collected by pytest: it installs packages. The last line reads `N passed, N failed, N skipped`.
"""

from __future__ import annotations

import argparse
import dataclasses
import email
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
RUNNING = ".".join(map(str, sys.version_info[:2]))
TORCH = "torch==2.13.0"  # a CPU build
# What onnxruntime is needed for outside the tests: timing models.
ON_OLD_RUNTIMES = ["tests/test_opening.py", "tests/test_saving.py", "tests/test_many.py", "tests/test_cli.py"]


@dataclasses.dataclass(frozen=True)
class Environment:
    """What is installed, and what runs there.

    Attributes:
        python: the version.
        lowest: the extras of which every package has its lowest version, "" for the package itself; others the newest.
        runtime: the version of onnxruntime, instead of what the test extra says.
        tests: paths of tests, all by default.
    """

    python: str = RUNNING
    lowest: tuple[str, ...] = ()
    runtime: str = ""
    tests: Sequence[str] = ()


ENVIRONMENTS = {
    "lowest": Environment(lowest=("", "test")),
    "lowest-onnxruntime": Environment(lowest=("",), tests=ON_OLD_RUNTIMES, runtime="lowest"),
    "newest": Environment(),
    **{f"python{version}": Environment(python=version) for version in ("3.10", "3.11", "3.12", "3.13")
       if version != RUNNING},
}


def requirements(wheel: Path, extra: str, python: str) -> list[Requirement]:
    """What the package itself ("") or an extra of it asks for, on a Python."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    versions = {"python_version": python, "python_full_version": f"{python}.0"}

    def applies(requirement: Requirement, of: str) -> bool:
        return requirement.marker is None or requirement.marker.evaluate({"extra": of, **versions})

    parsed = [Requirement(line) for line in lines]
    return [r for r in parsed if applies(r, extra) and (not extra or not applies(r, ""))]


def lowest(requirement: Requirement) -> str:
    """`name==version` of its lower bound."""
    (bound,) = (specifier.version for specifier in requirement.specifier if specifier.operator == ">=")
    return f"{requirement.name}=={bound}"


def wanted(wheel: Path, environment: Environment) -> list[str]:
    """Arguments of pip install, in order of precedence the later ones."""
    chosen = {}
    for extra in ("", "test"):
        for requirement in requirements(wheel, extra, environment.python):
            text = lowest(requirement) if extra in environment.lowest else f"{requirement.name}{requirement.specifier}"
            chosen[requirement.name] = text
    if environment.runtime:
        (runtime,) = (r for r in requirements(wheel, "", environment.python) if r.name == "onnxruntime")
        chosen["onnxruntime"] = lowest(runtime) if environment.runtime == "lowest" else environment.runtime
    chosen.pop("torch")
    if environment.python == RUNNING:
        chosen["torch"] = TORCH
    return [str(wheel), *chosen.values()]


def interpreter(version: str, given: dict[str, str]) -> str | None:
    """One that runs and is of that version."""
    if version == RUNNING:
        return sys.executable
    program = given.get(version) or shutil.which(f"python{version}")
    if program is None:
        return None
    tell = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([program, "-c", tell], capture_output=True, text=True, check=False)
    return program if done.stdout.strip() == version else None


def attempt(wheel: Path, environment: Environment, program: str, arguments: Sequence[str]) -> tuple[bool, str]:
    """Whether its tests pass, and what it was, in a line or more."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([program, "-m", "venv", scratch], check=True)
        run = Path(scratch) / "bin"
        pip = [run / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--upgrade", "pip"], check=True)
        done = subprocess.run([*pip, "install", *wanted(wheel, environment)], stderr=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode:
            return False, f"cannot be installed: {done.stderr.strip()}"
        subprocess.run([*pip, "check"], check=True)
        frozen = subprocess.run([*pip, "freeze"], capture_output=True, text=True, check=True).stdout
        names = "|".join(["numpy", "onnx[a-z_-]*", "rich", "torch"])
        versions = ", ".join(re.findall(rf"^(?:{names})==\S+", frozen, re.MULTILINE))
        print(versions, flush=True)
        # without PYTHONPATH: the packages are tested as installed
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        tested = subprocess.run([run / "pytest", "-q", *environment.tests, *arguments], cwd=ROOT, check=False,
                                env={**clean, "PATH": f"{run}{os.pathsep}{os.environ['PATH']}"})
        return tested.returncode == 0, versions


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests in environments of their own.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ENVIRONMENTS)} (default: all)")
    parser.add_argument("--python", action="append", default=[], metavar="VERSION=PROGRAM", help="where a Python is")
    own, arguments = sys.argv[1:], []
    if "--" in own:
        own, arguments = own[:own.index("--")], own[own.index("--") + 1:]
    options = parser.parse_args(own)
    if unknown := set(options.names) - set(ENVIRONMENTS):
        parser.error(f"no such environment: {', '.join(sorted(unknown))}")
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", scratch, ROOT], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        for name in options.names or ENVIRONMENTS:
            environment = ENVIRONMENTS[name]
            program = interpreter(environment.python, dict(text.split("=", 1) for text in options.python))
            print(f"{name}: {program or 'no such Python here'}", flush=True)
            if program is None:
                outcomes.append((name, "skipped", ""))
                continue
            passed, what = attempt(wheel, environment, program, arguments)
            outcomes.append((name, "passed" if passed else "failed", what))
    for name, outcome, what in outcomes:
        print(f"{name}: {outcome}: {what}" if what else f"{name}: {outcome}")
    counts = [sum(o == kind for _, o, _ in outcomes) for kind in ("passed", "failed", "skipped")]
    print("{} passed, {} failed, {} skipped".format(*counts))
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
