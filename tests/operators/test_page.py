"""rewriter/docs/custom_ops.md is what the operators say."""

from __future__ import annotations

import pathlib

import pytest

from patterns.operators import OPERATORS
from patterns.operators.page import main, render

PAGE = pathlib.Path(__file__).parents[2] / "rewriter" / "docs" / "custom_ops.md"


def test_page_is_the_rendering():
    assert PAGE.read_text(encoding="utf-8") == render(), "run python -m patterns.operators.page " + str(PAGE)


def test_main_writes_it(tmp_path, capsys):
    assert main([str(tmp_path / "page.md")]) == 0
    assert main([]) == 0
    assert capsys.readouterr().out == (tmp_path / "page.md").read_text(encoding="utf-8") == render()


@pytest.mark.parametrize("name", OPERATORS)
def test_every_input_attribute_and_edge_case_is_on_it(name):
    operator, page = OPERATORS[name], render()
    section = page.split(f"## {name}\n")[1].split("\n## ")[0]
    for word, text in (*operator.inputs, *operator.attributes, *operator.outputs):
        assert f"| `{word}` | {text} |" in section
    assert all(f"- {sentence}" in section for sentence in operator.edge_cases)
