"""The page is one file, needs no network, and escapes whatever comes from a model."""

from __future__ import annotations

import html.parser
import re
import xml.etree.ElementTree as ET

import pytest
from made_up import comparison

from rewriter.comparing.page import html as page

EVIL = "</title></svg><script>alert(1)</script><img src=x onerror='1'>\"&\x1b"
VOID = {"meta", "br", "img", "link", "input"}


class Reader(html.parser.HTMLParser):
    """Every tag, every attribute and all text of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.text.append(data)


def test_it_says_what_was_found():
    text = "".join(Reader(page(comparison())).text)
    for part in ("Fused, the model runs 2.50 times as fast", "2.42 to 2.58", "ORT fused, functions", "31.5 MB",
                 "no library at model.onnx", "does not load", "49,149 → 35,055 bytes", "What was fused", "2 times",
                 "As the work grows", "tolerance 2.0e-04", "Where the time goes", "A Processor"):
        assert part in text


def test_it_needs_nothing_else():
    text = page(comparison())
    reader = Reader(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(reader.tags)
    names = {name for name, _ in reader.attributes}
    assert not {"src", "href", "xlink:href", "srcset", "action"} & names
    assert not [name for name in names if name.startswith("on")]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert "url(" not in style and "@import" not in style
    assert "http://" not in text and "https://" not in text
    assert "prefers-color-scheme: dark" in style


def test_what_comes_from_a_model_is_escaped():
    harmless, evil = Reader(page(comparison())), Reader(page(comparison(label=EVIL)))
    assert sorted(evil.tags) == sorted(harmless.tags)
    assert len(evil.attributes) == len(harmless.attributes)
    assert "<script>alert(1)</script>" in "".join(evil.text)
    assert "\x1b" not in page(comparison(label=EVIL))


@pytest.mark.parametrize("label", ["model.onnx", EVIL])
def test_the_drawings_are_well_formed(label):
    drawings = re.findall(r"<svg.*?</svg>", page(comparison(label=label)), re.DOTALL)
    assert len(drawings) == 8
    for drawing in drawings:
        root = ET.fromstring(drawing)
        assert float(root.get("viewBox").split()[2]) > 0
        assert "nan" not in drawing.replace("onnx", "").lower()


@pytest.mark.parametrize("change", ["variants", "sweep", "before", "fragments", "histogram"])
def test_parts_may_be_absent(change):
    made = comparison()
    setattr(made, change, None if change in ("sweep", "before") else [])
    assert page(made).endswith("</html>\n")


def test_a_mismatch_is_marked():
    assert 'class="verdict bad"' in page(comparison(good=False))
    assert 'class="verdict faster"' in page(comparison())
    assert 'class="verdict noise"' in page(comparison(ratio=1.0))
