"""Deep, long and self-calling models end: refused with a code and a line, or done as any other model."""

from __future__ import annotations

import onnx
import pytest
from hostile import mazes
from hostile.limits import run

PEAK = 1 << 30  # bytes; none of these files has 2 MB
WORK = 1 << 30  # a small part of what a run has: the same happens sooner
# What onnx.checker of this version does not refuse passes through.
SELF_CALLING = {mazes.function_calls_itself, mazes.functions_call_each_other, mazes.function_calls_itself_in_a_body,
                mazes.function_bears_the_name_of_ours_and_calls_itself, mazes.long_chain_of_functions}
FUSED = {mazes.nested_ifs, mazes.turns, mazes.turns_that_all_are_outputs, mazes.turns_that_all_are_read,
         mazes.turns_and_maps, mazes.maps_behind_a_turn, mazes.factors_behind_turns, mazes.bare_nodes_of_ours,
         mazes.concat_of_everything}


@pytest.mark.parametrize("kind", mazes.KINDS, ids=lambda kind: kind.__name__)
def test_ends(tmp_path, scratch, kind):
    data = kind().SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    ended = run("m.onnx", "out.onnx", folder=tmp_path, scratch=scratch, work=WORK)
    assert ended.peak < PEAK
    if kind in SELF_CALLING and ended.code:
        assert (ended.code, len(ended.err.splitlines())) == (6, 1) and ended.err.startswith("error: m.onnx: ")
        assert not (tmp_path / "out.onnx").exists()
        return
    assert (ended.code, ended.err) == (0, "")
    made = (tmp_path / "out.onnx").read_bytes()
    assert (made != data) == (kind in FUSED)
    onnx.checker.check_model(made)
