"""Size: weights of gigabytes stay on the disk, work and memory grow as the model does."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tracemalloc

import huge_models
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from cost_models import calls
from huge_models import chain
from onnx import TensorProto, helper, numpy_helper
from small_models import HEIGHT, WIDTH, externalize, feeds, plain, stn

import rewriter
from rewriter import checking, copying
from rewriter.errors import ExternalDataError, OutputError, RewriterError, UsageError

HUGE = 1 << 32  # bytes
LITTLE = 1 << 20  # of disk that copies of a hole may take
# The peak of the process itself: the one that getrusage tells may be that of the process it was forked from.
CHILD = """
import re, sys
from rewriter.cli import main
read = lambda: int(re.search(r"rchar: (\\d+)", open("/proc/self/io").read())[1])
before = read()
code = main(sys.argv[1:])
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10
print(code, read() - before, peak)
"""
on_linux = pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="asks Linux what a process read")


def run_child(*arguments) -> tuple[int, int, int]:
    """(exit code, bytes read, peak of resident memory in bytes) of a run of the command line."""
    done = subprocess.run([sys.executable, "-c", CHILD, *map(str, arguments), "--quiet"], capture_output=True,
                          text=True, check=True)
    code, read, peak = map(int, done.stdout.split())
    return code, read, peak


def on_disk(file) -> int:
    return file.stat().st_blocks * 512


def holes_exist(folder) -> bool:
    with open(folder / "probe", "wb") as file:
        file.truncate(HUGE)
    blocks = on_disk(folder / "probe")
    (folder / "probe").unlink()
    return blocks < LITTLE


def outputs(path) -> np.ndarray:
    """y of the model in a file, as ONNX Runtime reads it."""
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds())[0]


def locations(path) -> set[str]:
    return {entry.value for tensor in onnx.load(path, load_external_data=False).graph.initializer
            for entry in tensor.external_data if entry.key == "location"}


# --- data files of 4 GiB

@on_linux
@pytest.mark.parametrize(("output", "policy", "copied"), [
    ("a/out.onnx", "auto", None), ("b/out.onnx", "auto", "b/weights.bin"), ("a/out.onnx", "copy", "a/out.weights.bin"),
    ("out.onnx", "share", None)])
def test_four_gigabytes_are_neither_read_nor_held(tmp_path, output, policy, copied):
    if not holes_exist(tmp_path):
        pytest.skip("this file system has no holes")
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    huge_models.external(tmp_path / "a", HUGE)
    source = (tmp_path / "a/weights.bin").stat()
    for _ in range(2 if copied else 1):  # the second time the copy is there, and is compared
        code, read, peak = run_child(tmp_path / "a/in.onnx", tmp_path / output, "--data", policy)
        assert code == 0
        assert read < 64 << 20
        assert peak < 400 << 20
    written = set(tmp_path.rglob("*.bin")) - {tmp_path / "a/weights.bin"}
    assert written == ({tmp_path / copied} if copied else set())
    for path in written:
        assert path.stat().st_size == HUGE and on_disk(path) < LITTLE
    after = (tmp_path / "a/weights.bin").stat()
    assert (after.st_ino, after.st_mtime_ns) == (source.st_ino, source.st_mtime_ns)
    np.testing.assert_allclose(outputs(tmp_path / output), outputs(tmp_path / "a/in.onnx"), atol=1e-5)


# --- share or copy

def with_bias(folder, location: str = "weights.bin", name: str = "in.onnx"):
    """stn whose bias lies in a file."""
    model = stn(extra_node=True)
    data = next(tensor for tensor in model.graph.initializer if tensor.name == "bias").raw_data
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    (folder / location).write_bytes(data)
    onnx.save(externalize(model, "bias", location=location), folder / name)
    return data


def test_a_copy_in_the_same_folder_stands_alone(tmp_path):
    data = with_bias(tmp_path, "deep/weights.bin")
    want = outputs(tmp_path / "in.onnx")
    report = rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx", data="copy")
    assert report.bytes_after == (tmp_path / "out.onnx").stat().st_size
    assert locations(tmp_path / "out.onnx") == {"deep/out.weights.bin"}
    assert (tmp_path / "deep/out.weights.bin").read_bytes() == data
    (tmp_path / "deep/weights.bin").unlink()
    np.testing.assert_allclose(outputs(tmp_path / "out.onnx"), want, atol=1e-5)
    onnx.load(tmp_path / "out.onnx")


def test_an_unchanged_model_is_copied_with_nothing_but_the_new_location(tmp_path):
    with_bias(tmp_path)
    report = rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx", patterns=[], data="copy")
    assert not report.changed
    model = onnx.load(tmp_path / "in.onnx", load_external_data=False)
    next(t for t in model.graph.initializer if t.name == "bias").external_data[0].value = "out.weights.bin"
    assert onnx.load(tmp_path / "out.onnx", load_external_data=False) == model


def test_new_names_never_take_a_file_of_the_model_itself(tmp_path):
    """weights.bin would become out.weights.bin, which the model has too."""
    first, second = with_bias(tmp_path), bytes(range(48))
    model = onnx.load(tmp_path / "in.onnx", load_external_data=False)
    model.graph.node.append(helper.make_node("Neg", ["more"], ["unused"]))
    model.graph.initializer.append(numpy_helper.from_array(np.frombuffer(second, np.float32), "more"))
    (tmp_path / "out.weights.bin").write_bytes(second)
    onnx.save(externalize(model, "more", location="out.weights.bin"), tmp_path / "in.onnx")
    rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx", data="copy", overwrite_data=True)
    assert locations(tmp_path / "out.onnx") == {"out.2.weights.bin", "out.out.weights.bin"}
    assert (tmp_path / "out.2.weights.bin").read_bytes() == first
    assert (tmp_path / "out.out.weights.bin").read_bytes() == second
    assert (tmp_path / "weights.bin").read_bytes() == first and (tmp_path / "out.weights.bin").read_bytes() == second


def test_a_file_in_the_way_of_a_copy_is_kept(tmp_path):
    data = with_bias(tmp_path)
    (tmp_path / "out.weights.bin").write_bytes(b"of another model")
    with pytest.raises(OutputError, match="other content"):
        rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx", data="copy")
    assert (tmp_path / "out.weights.bin").read_bytes() == b"of another model"
    assert not (tmp_path / "out.onnx").exists()
    rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx", data="copy", overwrite_data=True)
    assert (tmp_path / "out.weights.bin").read_bytes() == data


def test_a_copy_in_place_is_made_once(tmp_path):
    """The first run leaves the file that other models may have; the second finds the model's own."""
    data = with_bias(tmp_path)
    rewriter.fuse(tmp_path / "in.onnx", in_place=True, data="copy")
    assert locations(tmp_path / "in.onnx") == {"in.weights.bin"}
    (tmp_path / "weights.bin").unlink()
    before = (tmp_path / "in.onnx").read_bytes()
    rewriter.fuse(tmp_path / "in.onnx", in_place=True, data="copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx", "in.weights.bin"]
    assert (tmp_path / "in.onnx").read_bytes() == before and (tmp_path / "in.weights.bin").read_bytes() == data


def test_a_folder_above_can_share(tmp_path):
    (tmp_path / "a").mkdir()
    with_bias(tmp_path / "a")
    rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "out.onnx", data="share")
    assert locations(tmp_path / "out.onnx") == {"a/weights.bin"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "out.onnx"]
    np.testing.assert_allclose(outputs(tmp_path / "out.onnx"), outputs(tmp_path / "a/in.onnx"), atol=1e-5)
    onnx.load(tmp_path / "out.onnx")


def test_another_folder_cannot_share(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with_bias(tmp_path / "a")
    with pytest.raises(OutputError, match=r"cannot be shared.*--data copy"):
        rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "b/out.onnx", data="share")
    assert not any((tmp_path / "b").iterdir())


def test_why_another_folder_cannot_share(tmp_path):
    """Should a newer version take such locations, there would be more to share."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with_bias(tmp_path / "a")
    os.symlink("../a/weights.bin", tmp_path / "b/link.bin")
    for location in ("../a/weights.bin", str(tmp_path / "a/weights.bin"), "link.bin"):
        onnx.save(externalize(stn(extra_node=True), "bias", location=location), tmp_path / "b/m.onnx")
        with pytest.raises(Exception, match=r"inside|relative|symbolic|sym-?link"):
            onnx.load(tmp_path / "b/m.onnx")
        with pytest.raises(Exception, match=r"[Ee]xternal data"):
            ort.InferenceSession(tmp_path / "b/m.onnx", providers=["CPUExecutionProvider"])


def test_no_such_policy(tmp_path):
    with_bias(tmp_path)
    with pytest.raises(UsageError, match="'link' is none of auto, share, copy"):
        rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx", data="link")


HOLDERS = """<ir_version: 10, opset_import: ["" : 18, "mine" : 1]> agraph (float[2] x, bool c) => (float[2] y)
    <float[2] direct = {1, 2}> {
    node = Constant <value = float[2] held {1, 2}> ()
    some = If (c) <then_branch = then () => (float[2] a) { a = Constant <value = float[2] inner {1, 2}> () },
                   else_branch = other () => (float[2] b) { b = mine.f (x) }>
    first = Add (some, node)
    y = Add (first, direct)
}
<domain: "mine", opset_import: ["" : 18]> f (p) => (q) {
    k = Constant <value = float[2] deep {1, 2}> ()
    q = Add (p, k)
}"""


def test_every_tensor_is_relocated(tmp_path):
    """Of initializers, attributes, bodies and functions."""
    model = onnx.parser.parse_model(HOLDERS)
    (tmp_path / "weights.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
    graph = model.graph
    held = [graph.initializer[0], graph.node[0].attribute[0].t, model.functions[0].node[0].attribute[0].t,
            next(a.g for a in graph.node[1].attribute if a.name == "then_branch").node[0].attribute[0].t]
    for tensor in held:
        tensor.ClearField("float_data")
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.bin")
    onnx.save(model, tmp_path / "in.onnx")
    rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx", data="copy")
    for tensor in held:
        tensor.external_data[0].value = "out.weights.bin"
    assert onnx.load(tmp_path / "out.onnx", load_external_data=False) == model


def test_many_models_at_once(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("one", "two"):
        with_bias(tmp_path / "a", f"{name}.bin", f"{name}.onnx")
    command = [sys.executable, "-m", "rewriter", tmp_path / "a/one.onnx", tmp_path / "a/two.onnx", "--quiet", "--jobs",
               "1", "--out-dir"]
    assert subprocess.run([*command, tmp_path, "--data", "share"], check=False).returncode == 0
    assert locations(tmp_path / "one.onnx") == {"a/one.bin"} and locations(tmp_path / "two.onnx") == {"a/two.bin"}
    refused = subprocess.run([*command, tmp_path / "c", "--data", "share"], capture_output=True, text=True, check=False)
    assert refused.returncode == 17 and "all models failed" in refused.stderr
    assert subprocess.run([*command, tmp_path, "--data", "copy"], check=False).returncode == 0
    assert locations(tmp_path / "one.onnx") == {"one.bin"}
    assert (tmp_path / "one.bin").read_bytes() == (tmp_path / "a/one.bin").read_bytes()


# --- copying

def sparse(path, *parts: tuple[int, bytes], size: int) -> None:
    with open(path, "wb") as file:
        for start, data in parts:
            file.seek(start)
            file.write(data)
        file.truncate(size)


@pytest.mark.parametrize("without", [(), ("copy_file_range",), ("SEEK_DATA",), ("copy_file_range", "SEEK_DATA")],
                         ids=str)
def test_a_copy_has_the_bytes(tmp_path, monkeypatch, without):
    """On systems that know of holes, or copy by themselves, and on others."""
    for name in without:
        monkeypatch.delattr(os, name, raising=False)
    size = 5 << 20
    sparse(tmp_path / "from", (0, b"begin"), (3_000_001, bytes(range(256)) * 7000), (size - 1, b"!"), size=size)
    sparse(tmp_path / "hole", size=size)
    (tmp_path / "empty").write_bytes(b"")
    for name in ("from", "hole", "empty"):
        with open(tmp_path / "to", "wb") as target:
            copying.copy(str(tmp_path / name), target)
        assert (tmp_path / "to").read_bytes() == (tmp_path / name).read_bytes()
        assert copying.same(str(tmp_path / "to"), str(tmp_path / name))
    sparse(tmp_path / "other", (0, b"begin"), (3_000_001, bytes(range(256)) * 7000), size=size)
    for one, other in (("from", "other"), ("from", "hole"), ("hole", "empty")):
        assert not copying.same(str(tmp_path / one), str(tmp_path / other))
        assert not copying.same(str(tmp_path / other), str(tmp_path / one))
    (tmp_path / "zeros").write_bytes(bytes(size))
    assert copying.same(str(tmp_path / "zeros"), str(tmp_path / "hole"))


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_file_cut_short_while_it_is_copied(tmp_path, monkeypatch, by_hand):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with_bias(tmp_path / "a")
    if by_hand:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    monkeypatch.setattr(copying, "_parts", lambda file, size: [(0, size + 1)])
    with pytest.raises(ExternalDataError, match="cut short"):
        rewriter.fuse(tmp_path / "a/in.onnx", tmp_path / "b/out.onnx")
    assert not any((tmp_path / "b").iterdir())


# --- weights inside of the file

@on_linux
def test_inline_weights_cost_a_few_times_the_file(tmp_path):
    size = 200_000_000
    huge_models.inline(tmp_path / "in.onnx", size)
    assert (tmp_path / "in.onnx").stat().st_size == size
    _, _, little = run_child(save(tmp_path, stn()), tmp_path / "little.onnx")
    code, read, peak = run_child(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert code == 0
    assert read < 1.1 * size
    assert peak - little < 5.5 * size
    fused = onnx.load(tmp_path / "out.onnx")
    assert [node.op_type for node in fused.graph.node if node.op_type != "Constant"] == ["AffineGridSample"]
    assert len(next(t for t in fused.graph.initializer if t.name == "table").raw_data) > size - 20_000


def save(folder, model):
    onnx.save(model, folder / "little_in.onnx")
    return folder / "little_in.onnx"


def test_more_than_a_protobuf_holds_is_refused(tmp_path):
    huge_models.inline(tmp_path / "in.onnx", 1 << 31)
    with pytest.raises(RewriterError, match="2 GiB"):
        rewriter.fuse(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_weights_that_were_checked_are_not_checked_again():
    model = stn(extra_node=True)
    data = model.SerializeToString()
    assert checking.complaint(model, data, largest=100, checked=True) is None
    model.graph.node.add(op_type="Frobnicate", output=["z"])
    assert "Frobnicate" in checking.complaint(model, model.SerializeToString(), largest=100, checked=True)
    bad = stn(extra_node=True)
    bad.graph.initializer[-1].raw_data = b"none"  # the checker must see it where it was not checked before
    assert "raw_data" in checking.complaint(bad, bad.SerializeToString(), largest=100)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.complex128])
def test_declared_size_is_that_of_the_elements(dtype):
    assert checking.declared_size(numpy_helper.from_array(np.zeros((3, 5), dtype))) == 15 * np.dtype(dtype).itemsize


def test_declared_size_of_strings_is_asked_of_protobuf():
    tensor = numpy_helper.from_array(np.array(["a", "long text"], object))
    assert checking.declared_size(tensor) == tensor.ByteSize()


# --- many nodes

def weighted(count: int) -> onnx.ModelProto:
    return chain(count, weights=True)


def wide(count: int) -> onnx.ModelProto:
    """One value that all nodes read, and a sum over all that they make."""
    names = [f"v{k}" for k in range(count)]
    nodes = [helper.make_node("Add", ["x", "x"], [name]) for name in names]
    nodes.append(helper.make_node("Sum", names, ["y"]))
    model = plain()
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def nested(count: int) -> onnx.ModelProto:
    """A chain of Ifs, whose branches read what is around them."""
    model = stn()
    graph = model.graph
    graph.node[-1].output[0] = "v0"
    graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    image = [1, 3, HEIGHT, WIDTH]
    for k in range(count // 4):
        branches = {name: helper.make_graph(
            [helper.make_node("Add", [f"v{k}", f"v{k}"], [f"{name}{k}_a"]),
             helper.make_node("Mul", [f"{name}{k}_a", "x"], [f"{name}{k}"])], name, [],
            [helper.make_tensor_value_info(f"{name}{k}", TensorProto.FLOAT, image)]) for name in ("one", "other")}
        out = "y" if k == count // 4 - 1 else f"v{k + 1}"
        graph.node.append(helper.make_node("If", ["c"], [out], then_branch=branches["one"],
                                           else_branch=branches["other"]))
    return model


def calling(count: int) -> onnx.ModelProto:
    """Calls of a function."""
    model = plain(("Relu",))
    names = ["x", *(f"v{k}" for k in range(count - 1)), "y"]
    del model.graph.node[:]
    model.graph.node.extend(helper.make_node("f", [a, a], [b], domain="mine") for a, b in itertools.pairwise(names))
    model.opset_import.add(domain="mine", version=1)
    model.functions.append(helper.make_function("mine", "f", ["p", "q"], ["r"], [
        helper.make_node("Add", ["p", "q"], ["s"]), helper.make_node("Mul", ["s", "p"], ["r"])],
        [helper.make_opsetid("", 18)]))
    return model


KINDS = [chain, weighted, wide, nested, calling]


@pytest.mark.parametrize("make", KINDS)
def test_the_work_is_linear_in_the_number_of_nodes(make):
    calls(make(40))  # imports, caches
    (few, called), (many, more) = calls(make(2_000)), calls(make(8_000))
    assert few.changed == many.changed == (make in (chain, weighted, nested))
    assert more <= 4.2 * called


def test_the_memory_is_linear_in_the_number_of_nodes():
    rewriter.fuse(chain(40))
    peaks = []
    for count in (2_000, 8_000):
        model = chain(count)
        tracemalloc.start()
        try:
            assert rewriter.fuse(model)[1].changed
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] <= 4.4 * peaks[0]
