"""The library as a file: one exported symbol, nothing but the C library needed."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def lines_of(*command) -> list[str]:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_one_symbol_is_exported(library):
    assert [line.split()[-1] for line in lines_of("nm", "-D", "--defined-only", library)] == ["RegisterCustomOps"]


def test_only_the_c_library_is_needed(library):
    needed = [line.split("[")[1].rstrip("]") for line in lines_of("readelf", "-d", library) if "(NEEDED)" in line]
    assert needed
    assert all(name.startswith(("libc.", "libm.", "ld-linux")) for name in needed), needed
