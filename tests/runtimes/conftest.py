"""These tests need the library of kernels: where it could have been compiled, its absence is a failure."""

from __future__ import annotations

import os
import shutil

import pytest

import rewriter
from rewriter.errors import KernelsError

COMPILERS = (os.environ.get("CXX", "c++"), "g++", "clang++")


@pytest.fixture(autouse=True, scope="session")
def library() -> str:
    """Path of the library."""
    try:
        return rewriter.library_path()
    except KernelsError as error:
        if any(shutil.which(name) for name in COMPILERS):
            pytest.fail(f"there is a C++ compiler, but {error}")
        pytest.skip(str(error))
