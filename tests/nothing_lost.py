"""Fuse every model of onnx's backend test suite, alone and beside something that fuses, and count what became of them.

    python tests/nothing_lost.py [--every 1] [-k NAME] [--runs]

Alone, a model in which nothing is fused must come out byte for byte. Joined with an island (an affine grid written out,
with inputs, outputs, weights of its own), the island must be fused, and without it the model must be the one it was, to
every field and in every order. `--runs` also holds the suite's expected outputs against ONNX Runtime wherever it gives
them for the model alone.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper
from small_models import base_grid

import rewriter
from rewriter.errors import RewriterError
from rewriter.vocabulary import PATTERN_KEY

ISLAND = "island."
LOWEST = 11  # opset from which on something is fused


@functools.cache
def suite() -> list:
    """Every model of the backend test suite that comes with onnx, as its TestCase: operators, their expansions into
    functions, and models from files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import model as models
        from onnx.backend.test.case.node import collect_testcases
        from onnx.backend.test.case.test_case import TestCase

        cases = [case for case in (*collect_testcases(), *models.collect_testcases()) if case.model is not None]
        data = Path(onnx.__file__).parent / "backend/test/data"
        cases += [TestCase(f"{path.parent.name}_{path.stem}", "", None, None, onnx.load(path), None, "file", 0, 0)
                  for path in sorted(data.rglob("*.onnx"))]
    return cases


def opset(model: onnx.ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def joined(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with an island in it, at places that depend on `seed`.

    A model of other domains alone imports the newest ai.onnx for it.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    if not opset(result):
        result.opset_import.add(domain="", version=onnx.defs.onnx_opset_version())
    return add_island(result, result.graph, seed)


def add_island(model: onnx.ModelProto, graph: onnx.GraphProto, seed: int = 0) -> onnx.ModelProto:
    """Put an island into a graph of `model`, a body too: island.theta [2, 2, 3] -> island.y [2, 5, 7, 2]."""
    def place(items) -> int:
        return seed % (len(items) + 1)

    name = ISLAND.__add__
    nodes = [helper.make_node("Transpose", [name("theta")], [name("theta_t")], name("transpose"), perm=[0, 2, 1]),
             helper.make_node("MatMul", [name("base"), name("theta_t")], [name("flat")], name("matmul")),
             helper.make_node("Reshape", [name("flat"), name("shape")], [name("y")], name("reshape"))]
    weights = [numpy_helper.from_array(base_grid(5, 7), name("base")),
               numpy_helper.from_array(np.array([2, 5, 7, 2], np.int64), name("shape"))]
    if model.ir_version < 4:  # initializers are inputs there, and can be overridden
        nodes = [helper.make_node("Constant", [], [w.name], w.name, value=w) for w in weights] + nodes
    else:
        for weight in weights:
            graph.initializer.insert(place(graph.initializer), weight)
    if 0 < opset(model) < 5:  # the shape was an attribute
        del nodes[-1].input[1:]
        nodes[-1].attribute.append(helper.make_attribute("shape", [2, 5, 7, 2]))
    at = place(graph.node)
    for index, node in enumerate(nodes):
        graph.node.insert(at + index, node)
    graph.value_info.insert(place(graph.value_info), helper.make_tensor_value_info(
        name("flat"), TensorProto.FLOAT, [2, 35, 3]))
    if graph is model.graph:
        graph.input.append(helper.make_tensor_value_info(name("theta"), TensorProto.FLOAT, [2, 2, 3]))
        graph.output.append(helper.make_tensor_value_info(name("y"), TensorProto.FLOAT, [2, 5, 7, 2]))
    return model


def without_island(model: onnx.ModelProto, like: onnx.ModelProto) -> onnx.ModelProto:
    """A joined model without its island and without what fusing it adds: `like`, if nothing was lost."""
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    _drop(rest.opset_import, lambda entry: entry.domain == "custom.ops")
    _drop(rest.functions, lambda function: function.domain == "custom.ops")
    pending = [rest.graph, *rest.functions]
    while pending:
        holder = pending.pop()
        _drop(holder.node, lambda node: any(output.startswith(ISLAND) for output in node.output))
        _drop(holder.value_info, lambda value: value.name.startswith(ISLAND))
        if isinstance(holder, onnx.GraphProto):
            for items in (holder.initializer, holder.input, holder.output):
                _drop(items, lambda item: item.name.startswith(ISLAND))
        else:
            _drop(holder.opset_import, lambda entry: entry.domain == "custom.ops")
        pending += [g for node in holder.node for a in node.attribute
                    for g in (*((a.g,) if a.HasField("g") else ()), *a.graphs)]
    if like.ir_version < 8:
        rest.ir_version = like.ir_version
    return rest


def _drop(items, condition: Callable) -> None:
    for index in reversed(range(len(items))):
        if condition(items[index]):
            del items[index]


def differences(one: Message, other: Message, path: str = "model") -> list[str]:
    """The paths of all fields in which two messages differ, unknown fields included."""
    found = []
    for field in one.DESCRIPTOR.fields:
        here = f"{path}.{field.name}"
        left, right = getattr(one, field.name), getattr(other, field.name)
        if hasattr(left, "extend"):
            if len(left) != len(right):
                found.append(f"{here}: {len(left)} and {len(right)} items")
            pairs = [(f"{here}[{i}]", a, b) for i, (a, b) in enumerate(zip(left, right))]
        else:
            pairs = [(here, left, right)]
            if one.HasField(field.name) != other.HasField(field.name):
                found.append(f"{here}: only in one of them")
        for place, a, b in pairs:
            if isinstance(a, Message):
                if a.ByteSize() or b.ByteSize():
                    found += differences(a, b, place)
            elif a != b and not (a != a and b != b):  # NaN is not itself
                found.append(f"{place}: {a!r:.60} and {b!r:.60}")
    if not found and one.SerializeToString(deterministic=True) != other.SerializeToString(deterministic=True):
        found.append(f"{path}: fields unknown here, or bits of NaN")
    return found


def changed(before: onnx.ModelProto, after: onnx.ModelProto) -> list[str]:
    """What differs between a model and its fused form beyond what fusing may do: remove nodes with their weights and
    value_info, make new ones, and have nodes read what was made.

    Of all that is still there the order is the same, and every field but a node's inputs.
    """
    may = ("graph", "functions", "opset_import", "ir_version")
    found = differences(_bare(before, *may), _bare(after, *may))
    found += _unkept(before.opset_import, after.opset_import, "model.opset_import", lambda entry: entry.domain)
    found += _changed_nodes(before.graph, after.graph, "model.graph")
    later = {(f.domain, f.name, f.overload): f for f in after.functions}
    for function in before.functions:
        path = f"model.functions[{function.name}]"
        own = later.get((function.domain, function.name, function.overload))
        if own is None:
            found.append(f"{path}: is gone")
        elif function.domain != "custom.ops":
            found += _changed_nodes(function, own, path)
    return found


def _changed_nodes(before, after, path: str) -> list[str]:
    """The same for a graph or a function."""
    may = [name for name in ("node", "initializer", "value_info", "quantization_annotation", "opset_import")
           if name in before.DESCRIPTOR.fields_by_name]
    found = differences(_bare(before, *may), _bare(after, *may), path)
    for name in may[1:]:
        key = {"quantization_annotation": lambda item: item.tensor_name, "opset_import": lambda item: item.domain}.get(
            name, lambda item: item.name)
        found += _unkept(getattr(before, name), getattr(after, name), f"{path}.{name}", key)
    nodes = [{(node.op_type, node.domain, *node.output): node for node in holder.node} for holder in (before, after)]
    nodes[1] = {key: node for key, node in nodes[1].items()
                if node == nodes[0].get(key) or not any(entry.key == PATTERN_KEY for entry in node.metadata_props)}
    for key in nodes[0].keys() & nodes[1].keys():
        one, other = nodes[0][key], nodes[1][key]
        here = f"{path}.node[{one.name or key}]"
        found += differences(_bare(one, "input", "attribute"), _bare(other, "input", "attribute"), here)
        if len(one.input) != len(other.input) or [a.name for a in one.attribute] != [a.name for a in other.attribute]:
            found.append(f"{here}: other inputs or attributes")
        for left, right in zip(one.attribute, other.attribute):
            found += differences(_bare(left, "g"), _bare(right, "g"), here)
            if left.HasField("g"):
                found += _changed_nodes(left.g, right.g, f"{here}.{left.name}")
    order = [[key for key in own if key in nodes[0] and key in nodes[1]] for own in nodes]
    return found if order[0] == order[1] else [*found, f"{path}.node: another order"]


def _unkept(before, after, path: str, key: Callable) -> list[str]:
    """Items that are in both lists and differ, have changed places or are not repeated as often."""
    both = set(map(key, before)) & set(map(key, after))
    kept = [[item for item in items if key(item) in both] for items in (before, after)]
    if list(map(key, kept[0])) != list(map(key, kept[1])):
        return [f"{path}: another order, or repeated"]
    return [line for a, b in zip(*kept) for line in differences(a, b, f"{path}[{key(a)}]")]


def _bare(message: Message, *fields: str) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    for name in fields:
        copy.ClearField(name)
    return copy


def is_refused(model: onnx.ModelProto) -> bool:
    """Whether onnx.checker, the plain one, refuses a model."""
    try:
        onnx.checker.check_model(model)
    except Exception:  # versions differ in what they raise
        return True
    return False


def alone(model: onnx.ModelProto) -> tuple[str, onnx.ModelProto | None]:
    """What becomes of a model: (outcome, fused model). An outcome with a colon in it is a failure."""
    data = model.SerializeToString()
    try:
        fused, report = rewriter.fuse(model)
    except RewriterError as error:
        return ("refused" if is_refused(model) else f"refused: {error}"), None
    if model.SerializeToString() != data:
        return "changed: the model handed in", None
    if report.changed:
        lost = changed(model, fused)
        return (f"lost: {'; '.join(lost[:3])}" if lost else "fused"), fused
    return ("byte for byte" if fused.SerializeToString() == data else "lost: not byte for byte"), None


def beside(model: onnx.ModelProto, seed: int = 0) -> tuple[str, onnx.ModelProto | None]:
    """What becomes of a model, in which by itself nothing is fused, joined with an island: as `alone`."""
    with_island = joined(model, seed)
    outcome, fused = alone(with_island)
    if outcome == "byte for byte":
        return (outcome if 0 < opset(model) < LOWEST else "left: the island was not fused"), None
    if outcome != "fused":
        return outcome, None
    reference = onnx.ModelProto()
    reference.CopyFrom(model)
    if not opset(model):
        reference.opset_import.append(with_island.opset_import[-1])
    lost = differences(reference, without_island(fused, model))
    return (f"lost: {'; '.join(lost[:3])}" if lost else "fused"), fused


def gives(model: onnx.ModelProto, case) -> list[np.ndarray] | None:
    """The outputs of a case's data in ONNX Runtime (the island's left out); None where it does not run it."""
    import onnxruntime as ort

    results = []
    try:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_outputs() if not value.name.startswith(ISLAND)]
        for inputs, _ in case.data_sets:
            feeds = dict(zip((v.name for v in session.get_inputs() if not v.name.startswith(ISLAND)), inputs))
            if any(value.name.startswith(ISLAND) for value in session.get_inputs()):
                feeds[ISLAND + "theta"] = np.zeros((2, 2, 3), np.float32)
            results += session.run(names, feeds)
    except Exception:  # whatever it has against a model, or a dtype that numpy has not
        return None
    return results


def as_expected(results: list, case) -> bool:
    """Whether outputs are the suite's, by its own tolerances."""
    wanted = [array for _, outputs in case.data_sets for array in outputs]
    try:
        return len(results) == len(wanted) and all(_near(got, want, case) for got, want in zip(results, wanted))
    except (TypeError, ValueError):  # sequences of arrays of several shapes, and other kinds
        return False


def _near(got, want, case) -> bool:
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(_near(*pair, case) for pair in zip(got, want))
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or want.dtype.kind not in "fiubc":
        return got.shape == want.shape and np.array_equal(got, want)
    return np.allclose(got, want, rtol=case.rtol, atol=case.atol, equal_nan=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth model")
    parser.add_argument("--runs", action="store_true", help="also run them in ONNX Runtime")
    parser.add_argument("-k", default="", help="only models whose name contains this")
    options = parser.parse_args()
    counts = {kind: collections.Counter() for kind in ("alone", "beside an island", "expected outputs")}
    failures = []

    def note(kind: str, outcome: str, case) -> None:
        counts[kind][outcome.partition(":")[0]] += 1
        if ":" in outcome:
            failures.append(f"{case.name}, {kind}: {outcome}")

    chosen = [case for case in itertools.islice(suite(), 0, None, options.every) if options.k in case.name]
    for seed, case in enumerate(chosen):
        outcome, fused = alone(case.model)
        note("alone", outcome, case)
        if outcome == "byte for byte":
            outcome, fused = beside(case.model, seed)
            note("beside an island", outcome, case)
        if options.runs and fused is not None and case.data_sets:
            before = gives(case.model, case)
            if before is None or not as_expected(before, case):
                note("expected outputs", "not in ONNX Runtime", case)
            else:
                after = gives(fused, case)
                held = after is not None and as_expected(after, case)
                note("expected outputs", "hold" if held else "broken: other values than the suite's", case)
    lines = [f"{len(chosen)} models"]
    lines += [f"{kind}: " + ", ".join(f"{outcome} {count}" for outcome, count in sorted(counter.items()))
              for kind, counter in counts.items() if counter]
    sys.stdout.write("\n".join([*lines, f"failures: {len(failures)}", *failures]) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
