"""Files that lie, are cut or are damaged: a code and one line, or an output that is a model; nothing half done."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from hostile.bombs import constant, info, model, node
from onnx import TensorProto, helper, numpy_helper
from small_models import HEIGHT, WIDTH, base_grid, externalize, feeds, plain, stn

from rewriter import cli
from rewriter.evaluator.table import LARGEST

BASE = base_grid().tobytes()
REFUSED, DAMAGED = {5, 6, 7}, 120  # DAMAGED: files of each kind of damage


def ended(capsys, *arguments) -> tuple[int, str, str]:
    code = cli.main(arguments)
    return code, *capsys.readouterr()


def listing(folder: Path) -> dict[str, tuple]:
    """What lies in a folder, links not followed."""
    return {path.name: (os.lstat(path).st_mode, os.lstat(path).st_size) for path in folder.iterdir()}


def refused(capsys, tmp_path, name: str = "m.onnx") -> tuple[int, str]:
    """Run the command line in a folder; it must say one line and write nothing. The code and the line."""
    before = listing(tmp_path)
    code, out, err = ended(capsys, name, "out.onnx")
    assert listing(tmp_path) == before
    assert out == "" and len(err.splitlines()) == 1 and err.startswith("error: ") and "Traceback" not in err
    assert err[:-1].isprintable()
    return code, err


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path / "models")
    return tmp_path / "models"


def _outside(folder):
    (folder.parent / "base.bin").write_bytes(BASE)
    return {"location": "../base.bin"}


def _absolute(folder):
    (folder / "base.bin").write_bytes(BASE)
    return {"location": str(folder / "base.bin")}


def _link(folder):
    (folder.parent / "base.bin").write_bytes(BASE)
    (folder / "base.bin").symlink_to(folder.parent / "base.bin")
    return {"location": "base.bin"}


def _folder_link(folder):
    (folder / "all").symlink_to("/")
    return {"location": "all/etc/hostname"}


def _device(folder):
    (folder / "base.bin").symlink_to("/dev/zero")
    return {"location": "base.bin"}


def _fifo(folder):
    os.mkfifo(folder / "base.bin")
    return {"location": "base.bin"}


def _hard_link(folder):
    (folder.parent / "base.bin").write_bytes(BASE)
    os.link(folder.parent / "base.bin", folder / "base.bin")
    return {"location": "base.bin"}


def _too_long(folder):
    (folder / "base.bin").write_bytes(BASE)
    return {"location": "base.bin", "offset": 0, "length": 1 << 40}


def _beyond(folder):
    (folder / "base.bin").write_bytes(BASE)
    return {"location": "base.bin", "offset": 1 << 62, "length": len(BASE)}


def _escapes(folder):
    return {"location": "\x1b[2J\x1b]0;title\x07\u202ekcab.bin"}


@pytest.mark.parametrize("lie", [_outside, _absolute, _link, _folder_link, _device, _fifo, _hard_link, _too_long,
                                 _beyond, _escapes])
def test_external_data(capsys, folder, lie):
    onnx.save(externalize(stn(), "base", **lie(folder)), folder / "m.onnx")
    code, line = refused(capsys, folder)
    assert code == 7 and "tensor 'base'" in line


def test_overlapping_ranges_are_shared_weights(capsys, folder):
    """Nothing is wrong with them: nothing is written into them."""
    (folder / "base.bin").write_bytes(BASE)
    twice = externalize(stn(), "base", location="base.bin")
    twice.graph.initializer.add().CopyFrom(twice.graph.initializer[0])
    twice.graph.initializer[-1].name = "same"
    del twice.graph.initializer[-1].dims[:]
    twice.graph.initializer[-1].dims.extend([HEIGHT * WIDTH // 2, 3])
    for key, value in (("offset", 64), ("length", len(BASE) // 2)):
        twice.graph.initializer[-1].external_data.add(key=key, value=str(value))
    twice.graph.node.append(node("Relu", ["same"], "positive"))
    twice.graph.output.append(info("positive", TensorProto.FLOAT, [HEIGHT * WIDTH // 2, 3]))
    onnx.save(twice, folder / "m.onnx")
    code, _, err = ended(capsys, "m.onnx", "out.onnx")
    assert (code, err) == (0, "")
    made = onnx.load(folder / "out.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(made.graph.initializer[-1]).ravel(),
                                  np.frombuffer(BASE, np.float32)[16:][:HEIGHT * WIDTH // 2 * 3])
    assert (folder / "base.bin").read_bytes() == BASE


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "fifo", "../models", "m\0.onnx"])
def test_inputs_that_are_no_files(capsys, folder, path):
    os.mkfifo(folder / "fifo")
    code, _ = refused(capsys, folder, path)
    assert code in {3, 4, 5}


def _undefined(made):
    made.graph.node[0].input[0] = "nowhere\x1b[31m"


def _cycle(made):
    made.graph.node[0].input[0] = "y"


def _twice(made):
    made.graph.node[1].output[0] = made.graph.node[0].output[0]


def _itself(made):
    made.graph.node[0].input[0] = made.graph.node[0].output[0]


@pytest.mark.parametrize("change", [_undefined, _cycle, _twice, _itself])
def test_graphs_that_make_no_sense(capsys, folder, change):
    made = plain()
    change(made)
    onnx.save(made, folder / "m.onnx")
    assert refused(capsys, folder)[0] == 6


@pytest.mark.parametrize("version", [-1, 2**31, 1 << 40, 2**63 - 1])
def test_functions_of_no_known_opset(capsys, folder, version):
    """Behind a node of an unknown operator, which is where onnx's checker stops."""
    made = plain()
    made.graph.node.add(op_type="AffineGrid", domain="custom.ops", input=["x", "x"], output=["unknown"])
    body = [helper.make_node("Transpose", ["a"], ["b"])]
    made.functions.append(helper.make_function("own", "f", ["a"], ["b"], body, [helper.make_opsetid("", version)]))
    made.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(made, folder / "m.onnx")
    assert refused(capsys, folder)[0] == 6


@pytest.mark.parametrize("place", [b"relu_v0", b"Relu", b"plain", b"x"])
def test_text_that_is_no_text(capsys, folder, place):
    """Protobuf's text is UTF-8; parsers that do not look hand over bytes."""
    data = plain().SerializeToString().replace(b"Relu_v0", b"relu_v0")
    assert place in data
    (folder / "m.onnx").write_bytes(data.replace(place, b"\xff" * len(place)))
    code, line = refused(capsys, folder)
    assert code == 6 and "UTF-8" in line


def test_dims_that_no_data_fill(capsys, folder):
    made = stn()
    made.graph.initializer[0].dims[:] = [1 << 40, 1 << 40, 3]
    onnx.save(made, folder / "m.onnx")
    code, _, err = ended(capsys, "m.onnx", "out.onnx")
    assert (code, len(err.splitlines())) == (6, 1)
    assert listing(folder).keys() == {"m.onnx"}


@pytest.mark.parametrize("dims", [[1, 3, 1 << 40, 1 << 40], [1, 1 << 62, 2, 2], [2**31] * 4, [0, 0, 0, 0]])
def test_inputs_of_giant_shape(capsys, folder, dims):
    made = stn()
    for value in (made.graph.input[0], made.graph.output[0]):
        value.type.CopyFrom(info("x", TensorProto.FLOAT, dims).type)
    onnx.save(made, folder / "m.onnx")
    code, _, err = ended(capsys, "m.onnx", "out.onnx")
    assert (code, err) == (0, "")
    onnx.checker.check_model(onnx.load(folder / "out.onnx"))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38, 1e-45])
@pytest.mark.parametrize("share", [1.0, 0.001])
def test_bases_that_are_no_grid(capsys, folder, number, share, run):
    """A base of one finite number everywhere makes one point of the whole grid, and that is affine."""
    made, base = stn(), base_grid()
    places = np.random.default_rng(0).random(base.shape) < share
    assert places.any()
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.where(places, np.float32(number), base), "base"))
    onnx.save(made, folder / "m.onnx")
    code, _, err = ended(capsys, "m.onnx", "out.onnx")
    assert (code, err) == (0, "")
    data = (folder / "out.onnx").read_bytes()
    if np.isfinite(number) and share == 1:
        np.testing.assert_array_equal(run(onnx.load_from_string(data), feeds())["y"], run(made, feeds())["y"])
    else:
        assert data == (folder / "m.onnx").read_bytes()


def _truncated(data: bytes, rng: random.Random) -> bytes:
    return data[:rng.randrange(len(data))]


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _spliced(data: bytes, rng: random.Random) -> bytes:
    a, b = sorted(rng.randrange(len(data)) for _ in range(2))
    return data[:a] + data[b:] if rng.random() < 0.5 else data[:b] + data[a:]


@pytest.mark.parametrize("damage", [_truncated, _flipped, _spliced])
def test_damaged_files(capsys, folder, damage):
    """A bit of a weight may flip unseen: then it is a model like any other."""
    made = stn(extra_node=True)
    del made.graph.node[-1], made.graph.initializer[-1]  # what would be most of the file
    made.graph.node[-1].output[0] = "y"
    data, codes = made.SerializeToString(), set()
    headers = data[:200] + data[-600:]  # where nothing but structure is
    for seed in range(DAMAGED):
        rng = random.Random(seed)
        (folder / "m.onnx").write_bytes(damage(data if seed % 2 else headers, rng))
        before = listing(folder)
        code, _, err = ended(capsys, "m.onnx", "out.onnx")
        codes.add(code)
        if code:
            assert code in REFUSED and len(err.splitlines()) == 1 and listing(folder) == before
        else:
            assert err == ""
            onnx.checker.check_model((folder / "out.onnx").read_bytes())
            os.remove(folder / "out.onnx")
    assert codes & REFUSED


def test_a_constant_just_too_large_is_never_made(capsys, folder):
    """The limit on elements holds before anything is allocated."""
    made = ([constant("one", [1], np.float32), constant("shape", [LARGEST + 1]), node("Expand", ["one", "shape"], "v"),
             constant("columns", [1, -1, 3]), node("Reshape", ["v", "columns"], "base"),
             node("MatMul", ["base", "theta"], "y")], "y")
    onnx.save(model(made, lambda made: (made[0], [info("y", TensorProto.FLOAT, list("abc"))])), folder / "m.onnx")
    assert ended(capsys, "m.onnx", "out.onnx")[0] == 0
    assert (folder / "out.onnx").read_bytes() == (folder / "m.onnx").read_bytes()


def test_text_where_numbers_belong(capsys, folder):
    text = helper.make_tensor("base", TensorProto.STRING, [3], [b"a", b"b", b"c"])
    made = stn()
    made.graph.initializer[0].CopyFrom(text)
    onnx.save(made, folder / "m.onnx")
    assert ended(capsys, "m.onnx", "out.onnx")[0] == 0
    assert (folder / "out.onnx").read_bytes() == (folder / "m.onnx").read_bytes()
