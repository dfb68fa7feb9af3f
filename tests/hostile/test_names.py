"""Names made to command a terminal, a page or a program that reads the report: everything that is printed is inert."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata

import onnx
import pytest
from small_models import externalize, stn

from rewriter import cli

# Clears the screen, sets the title, links, hides, turns the direction of writing, breaks lines, carries HTML.
EVIL = ("\x1b[2J\x1b]0;owned\x07\x1b]8;;http://x\x07\r\nok: nothing wrong\b\x7f\x9b31m\u202e\u2066\u200b\u2028\ufeff"
        "<script>alert(1)</script>[bold]x[/bold]{0}%s")
FORBIDDEN = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"}


def inert(text: str) -> bool:
    return not any(unicodedata.category(c) in FORBIDDEN and c != "\n" for c in text)


def named(made: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, with that text in every name."""
    rename = {name: f"{name}{EVIL}" for node in made.graph.node for name in (*node.input, *node.output)}
    for node in made.graph.node:
        node.name += EVIL
        node.input[:] = [rename[name] for name in node.input]
        node.output[:] = [rename[name] for name in node.output]
    for value in (*made.graph.input, *made.graph.output, *made.graph.initializer):
        value.name = rename[value.name]
    made.graph.name, made.producer_name, made.graph.doc_string = EVIL, EVIL, EVIL
    return made


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(named(stn(extra_node=True)), "m.onnx")
    miss = named(stn())
    miss.graph.node[1].op_type = "Sub"  # no grid any more: a near miss, that --explain tells
    onnx.save(miss, "miss.onnx")
    return tmp_path


def printed(capfd, *arguments, code: int = 0) -> str:
    """What the command line prints, on both streams, once it is seen to be inert."""
    try:
        ended = cli.main(arguments)
    except SystemExit as usage:
        ended = usage.code
    out, err = capfd.readouterr()
    assert ended == code
    assert inert(out) and inert(err), (out, err)
    return out + err


def test_reports(folder, capfd):
    text = printed(capfd, "m.onnx", "out.onnx", "--explain")
    assert "\\x1b[2J" in text and "\\u202e" in text and "AffineGridSample" in text
    assert "ok: nothing wrong" not in text.splitlines()
    assert "\\x1b[2J" in printed(capfd, "miss.onnx", "--dry-run", "--explain")


def test_json(folder, capfd):
    assert cli.main(["m.onnx", "out.onnx", "--json", "-"]) == 0
    out, err = capfd.readouterr()
    assert inert(out) and inert(err)
    assert json.loads(out)["fused"][0]["node"].endswith(EVIL)  # the very name, for programs
    assert cli.main(["m.onnx", "out.onnx", "--quiet", "--json", "report.json"]) == 0
    assert inert((folder / "report.json").read_text())


def test_refusals(folder, capfd):
    onnx.save(externalize(stn(), "base", location=EVIL.replace("/", "")), "lies.onnx")
    unknown = named(stn())
    unknown.graph.node[0].input[0] = f"none{EVIL}"
    onnx.save(unknown, "unknown.onnx")
    for name, code in (("lies.onnx", 7), ("unknown.onnx", 6)):
        assert len(printed(capfd, name, "out.onnx", code=code).splitlines()) == 1


def test_what_libraries_log_is_not_shown(folder):
    """onnx_ir warns of names that it does not find; pytest would keep that from the streams."""
    unknown = named(stn())
    unknown.graph.node[0].input[0] = f"none{EVIL}"
    onnx.save(unknown, "unknown.onnx")
    for arguments, code in ((("unknown.onnx", "out.onnx"), 6), (("m.onnx", "out.onnx", "--time"), 0)):
        done = subprocess.run([sys.executable, "-m", "rewriter", *arguments], capture_output=True, check=False)
        assert done.returncode == code and inert(done.stdout.decode()) and inert(done.stderr.decode())
        assert len(done.stderr.splitlines()) == (code != 0)


def test_file_names_and_arguments(folder, capfd):
    name = EVIL.replace("/", "") + ".onnx"
    os.rename("m.onnx", name)
    assert "\\x1b" in printed(capfd, name, "out.onnx")
    printed(capfd, name + "missing", "out.onnx", code=3)
    printed(capfd, name, "out.onnx", f"--{EVIL}", code=2)
    printed(capfd, name, "out.onnx", "--patterns", EVIL, code=2)
    printed(capfd, name, "out.onnx", "--target", EVIL, code=2)
    raw = os.fsdecode(b"\xff\xfe.onnx")  # no text at all
    os.rename(name, raw)
    printed(capfd, raw, "out.onnx")


def test_folders_of_models(folder, capfd):
    (folder / "in").mkdir()
    os.rename("m.onnx", folder / "in" / (EVIL.replace("/", "") + ".onnx"))
    (folder / "in" / ("bad" + EVIL.replace("/", "") + ".onnx")).write_bytes(b"\x1b[2J")
    text = printed(capfd, "in", "--out-dir", "out", "--jobs", "1", "--json", "report.jsonl", code=16)
    assert "\\x1b[2J" in text
    assert inert((folder / "report.jsonl").read_text())


def test_times(folder, capfd):
    assert "\\x1b[2J" in printed(capfd, "m.onnx", "out.onnx", "--time")
