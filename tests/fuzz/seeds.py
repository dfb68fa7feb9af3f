"""What the fuzzer begins with: small models as they come from exporters, fused ones, and files that are no models."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import onnx
from small_models import plain, stn

import rewriter

CORPUS = Path(__file__).parents[1] / "corpus"
LARGEST = 30_000  # bytes: mutations of short inputs go further


@functools.cache
def models() -> dict[str, bytes]:
    """Serialized models by name, the same ones every time."""
    found = {"plain": plain().SerializeToString()}
    names = sorted(case["name"] for case in json.loads((CORPUS / "manifest.json").read_text()))
    for name in names:
        data = (CORPUS / f"{name}.onnx").read_bytes()
        fused, report = rewriter.fuse(onnx.ModelProto.FromString(data))
        found[name] = data
        if report.changed:
            found[f"{name}.fused"] = fused.SerializeToString()
    found["stn"] = stn(extra_node=True).SerializeToString()
    return {name: data for name, data in found.items() if len(data) <= LARGEST}


def feeds(name: str) -> dict[str, np.ndarray]:
    """The recorded inputs of a model of the corpus, fused or not; empty for the others."""
    path = CORPUS / f"{name.removesuffix('.fused')}.npz"
    if not path.exists():
        return {}
    return {key.removeprefix("in_"): array for key, array in np.load(path).items() if key.startswith("in_")}


def strangers() -> dict[str, bytes]:
    """Files that look like something else."""
    return {"empty": b"", "zip": b"PK\x03\x04" + bytes(60), "pickle": b"\x80\x04\x95", "json": b'{"ir_version": 8}',
            "pointer": b"version https://git-lfs.github.com/spec/v1\n", "ort": bytes(4) + b"ORTM" + bytes(50),
            "zeros": bytes(100), "ones": b"\xff" * 100}
