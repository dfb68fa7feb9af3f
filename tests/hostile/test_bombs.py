"""What would be enormous once computed is not computed: the model passes through, in bounded memory and work."""

from __future__ import annotations

import onnx
import pytest
from hostile import bombs
from hostile.limits import PEAK, run

WORK = 1 << 28  # a small part of what a run has: the same happens sooner


@pytest.mark.parametrize("sink", bombs.SINKS, ids=lambda sink: sink.__name__)
@pytest.mark.parametrize("kind", bombs.KINDS, ids=lambda kind: kind.__name__)
def test_passes_through(tmp_path, scratch, kind, sink):
    onnx.save(bombs.model(kind(), sink), tmp_path / "m.onnx")
    ended = run("m.onnx", "out.onnx", "--explain", folder=tmp_path, scratch=scratch, work=WORK)
    assert (ended.code, ended.err) == (0, "")
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()
    assert ended.peak < PEAK
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "out.onnx"]


def test_the_whole_budget(tmp_path, scratch):
    """Tensors of nearly the largest size that is evaluated, more of them than memory holds."""
    onnx.save(bombs.model(bombs.filled_many(90_000_000), bombs.base), tmp_path / "m.onnx")
    ended = run("m.onnx", "out.onnx", "--explain", folder=tmp_path, scratch=scratch)
    assert (ended.code, ended.err) == (0, "")
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()
    assert ended.peak < PEAK
