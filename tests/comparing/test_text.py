"""What the terminal gets: the numbers, in 100 columns, without a control character."""

from __future__ import annotations

import io

import pytest
from made_up import comparison

from rewriter.comparing.text import show
from rewriter.terminal import Terminal


def shown(made) -> str:
    stream = io.StringIO()
    show(Terminal(stream), made)
    return stream.getvalue()


def test_the_table():
    text = shown(comparison())
    assert text.startswith("Fused, the model runs 2.50 times as fast in ONNX Runtime (95 % interval 2.42 to 2.58).")
    lines = text.splitlines()
    (row,) = [line for line in lines if line.startswith("ORT fused, functions")]
    for part in ("8 ms (7.76 to 8.4 ms)", "2.50x (2.42 to 2.58)", "10 ms", "31.5 MB", "3.0e-05"):
        assert part in row
    for part in ("absent: ORT fused, kernels: no library", "failed: OpenVINO unfused does not load",
                 "control the unfused model against itself: 1.00x (0.98 to 1.02)", "--dim model.onnx=1",
                 "17 -> 9", "A Processor, 2 threads"):
        assert part in text
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", ["a\x1b[31m\nb", "x" * 300, "[red]bold[/red]"])
def test_names_are_escaped_and_fit(name):
    text = shown(comparison(label=name))
    assert all(c.isprintable() for c in text.replace("\n", ""))
    assert max(map(len, text.splitlines())) <= 100


def test_a_mismatch_is_loud():
    text = shown(comparison(good=False))
    assert "MISMATCH" in text and "BEYOND" in text and "5.0e-01 BAD" in text
