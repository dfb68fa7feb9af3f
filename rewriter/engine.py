"""The pass: every pattern over every scope, replacements, dead nodes, and the functions that join the model."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from rewriter.builder import Builder, Names
from rewriter.errors import InternalError
from rewriter.evaluator.budget import Budget, ExhaustedError
from rewriter.functions import all_nodes, attach, is_ours, own_graphs
from rewriter.graphs import bodies, captured, is_dead
from rewriter.report import Fused, Missed, Report
from rewriter.scopes import Facts, Scope, scopes
from rewriter.vocabulary import DOMAIN, DOMAIN_VERSION, PATTERN_KEY, Match, Miss, Pattern

MOST_PASSES = 8
FROM_KEY = "onnx_warpfuse.from"  # metadata of a node we made, beside PATTERN_KEY: the nodes it stands for


def run(model: ir.Model, patterns: Sequence[Pattern]) -> Report:
    """Rewrite `model` in place and say what was done. Deterministic; a model in which nothing matches is untouched.

    Raises:
        InternalError: a pattern raised something that is not a stated Miss; names the pattern and the node.
    """
    report = Report(ir_version_before=model.ir_version, nodes_before=count_nodes(model))
    used = {op.name: op for pattern in patterns for op in pattern.operators}
    taken, bare = foreign_operators(model, used), bare_nodes(model, used)
    names, budget = None, Budget(report.nodes_before)
    for _ in range(MOST_PASSES):  # what one pass made can show the next the shape of what lies behind it
        report.missed = []
        facts, before = Facts(model, budget), len(report.fused)
        for pattern, scope, node in _anchors(facts, patterns):
            answer = _answer(pattern, node, scope)
            if isinstance(answer, Match) and (miss := _obstacle(answer, scope, used, taken, bare)) is not None:
                answer = miss
            if isinstance(answer, Miss):
                report.missed.append(Missed(
                    pattern.name, node.name or "", node.op_type, answer.tensor, scope.path, answer.reason))
            elif answer is not None:
                names = names or Names(all_names(model))
                report.fused.append(_replace(answer, pattern, node, scope, names))
        if len(report.fused) == before:
            break
        free = {name: op for name, op in used.items() if name not in taken and not _is_left(bare[name])}
        report.functions = attach(model, free)
    report.missed = _still_there(report)
    report.ir_version_after = model.ir_version
    report.nodes_after = count_nodes(model) if report.fused else report.nodes_before
    return report


def _anchors(facts: Facts, patterns: Sequence[Pattern]) -> Iterator[tuple[Pattern, Scope, ir.Node]]:
    """What each pattern is to look at, in order; nodes that were replaced meanwhile are left out."""
    for pattern in patterns:
        for scope in scopes(facts):
            for node in reversed(tuple(scope.graph)):
                anchor = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
                if node.graph is not None and anchor in pattern.anchors:
                    yield pattern, scope, node


@contextlib.contextmanager
def _blaming(pattern: Pattern, node: ir.Node, scope: Scope):
    """Only a stated Miss is a decline: whatever a pattern raises is a bug, and the message says whose and where."""
    try:
        yield
    except Exception as error:
        raise InternalError(
            f"pattern {pattern.name} failed at node {node.name!r} ({node.op_type}) in {scope.path}: "
            f"{type(error).__name__}: {error}") from error


def _answer(pattern: Pattern, node: ir.Node, scope: Scope) -> Match | Miss | None:
    with _blaming(pattern, node, scope):
        try:
            return pattern.match(node, scope)
        except Exception as error:
            name = node.outputs[0].name or "" if node.outputs else ""
            if isinstance(error, ExhaustedError):
                return Miss(str(error), name)
            # patterns may rely on what operators demand of their operands; onnx.checker does not look at that
            if scope.facts.contradiction is not None:
                return Miss(f"the model contradicts itself: {scope.facts.contradiction}", name)
            raise


def _obstacle(match: Match, scope: Scope, used, taken: dict[str, str],
              bare: dict[str, dict[ir.Node, None]]) -> Miss | None:
    """Why a proven match cannot be written into this model."""
    if match.operator is None:
        return None
    reason = taken.get(match.operator) or scope.refusal(used[match.operator])
    left = bare[match.operator]
    if reason is None and _is_left(left) and not any(node in left and node.graph is not None for node in match.covers):
        reason = f"the model uses {DOMAIN}::{match.operator} without a function"
    return None if reason is None else Miss(reason, match.root.name)


def _is_left(nodes: dict[ir.Node, None]) -> bool:
    """Whether some are still in the model; from the end on, where replacing begins, the others are forgotten."""
    while nodes and (last := next(reversed(nodes))).graph is None:
        del nodes[last]
    return bool(nodes)


def foreign_operators(model: ir.Model, used: Iterable[str]) -> dict[str, str]:
    """Operators of ours whose names the model gives a meaning of its own, with the reason to keep away."""
    version = model.opset_imports.get(DOMAIN, DOMAIN_VERSION)
    if version != DOMAIN_VERSION:
        return dict.fromkeys(used, f"the model imports version {version} of {DOMAIN}, not {DOMAIN_VERSION}")
    defined = {f.name: f for f in model.functions.values() if f.domain == DOMAIN}
    return {name: f"the model defines {DOMAIN}::{name} itself"
            for name in used if name in defined and not is_ours(defined[name])}


def bare_nodes(model: ir.Model, used: Iterable[str]) -> dict[str, dict[ir.Node, None]]:
    """Nodes that bear the name of an operator of ours and have no function: what they mean is not known here.

    As long as one of them is in the model no function of that name may join it. A match that covers one speaks for
    all of that name.
    """
    defined = {f.name for f in model.functions.values() if f.domain == DOMAIN}
    bare: dict[str, dict[ir.Node, None]] = {name: {} for name in used}
    for node in all_nodes(model):
        if node.domain == DOMAIN and node.op_type in bare and node.op_type not in defined:
            bare[node.op_type][node] = None
    return bare


def _replace(match: Match, pattern: Pattern, anchor: ir.Node, scope: Scope, names: Names) -> Fused:
    root = match.root
    producer = root.producer()
    builder = Builder(names, root.name or anchor.op_type, scope)
    with _blaming(pattern, anchor, scope), scope.facts.budget.building():
        value = match.build(builder)
    origin = {k: v for node in (*sorted_nodes(match.covers), producer) for k, v in node.metadata_props.items()}
    origin[PATTERN_KEY] = pattern.name
    origin[FROM_KEY] = ",".join(node.name or node.op_type for node in sorted_nodes(match.covers))
    for node in builder.nodes:
        node.metadata_props.update(origin if node.domain == DOMAIN else {PATTERN_KEY: pattern.name})
        for output in node.outputs:
            scope.facts.shapes.adopt(output)
    for declared, shape in match.shapes.items():
        declared.shape = shape
    graph = producer.graph
    graph.insert_after(producer, builder.nodes)
    value = _take_over(root, value, builder, graph, scope)
    gone = _remove_dead(match.covers, root)
    label = producer.name or anchor.name or ""
    return Fused(pattern.name, match.operator, label, value.name or "", scope.path, gone, match.note)


def _take_over(root: ir.Value, value: ir.Value, builder: Builder, graph: ir.Graph, scope: Scope) -> ir.Value:
    """Put `value` where `root` was: its uses, its place among the outputs, its name."""
    if value.producer() not in builder.nodes and root.is_graph_output():
        # the name of an output must survive even where nothing is left to compute
        node = ir.Node("", "Identity", [value], num_outputs=1, name=builder.name("Identity"))
        graph.insert_after(root.producer(), [node])
        builder.nodes.append(node)
        value = node.outputs[0]
    made = value.producer() in builder.nodes
    root.replace_all_uses_with(value, replace_graph_outputs=True)
    if made:
        if root.type is not None and (value.type is None or value.is_graph_output()):
            value.type = root.type
        if root.shape is not None:
            value.shape = root.shape if value.is_graph_output() else _joint_shape(root.shape, value.shape)
        name, root.name = root.name, builder.name("replaced")
        value.name = name
        value.metadata_props.update(root.metadata_props)
        value.meta.update(root.meta)  # its quantization
        value.doc_string = root.doc_string
        scope.facts.shapes.adopt(value, like=root)
    return value


def _joint_shape(declared: ir.Shape, proven: ir.Shape | None) -> ir.Shape:
    """What the model declares of a value, as far as it does and nothing proven speaks against it."""
    if proven is None:
        return declared
    pairs = [(a if isinstance(a, int) else a.value, b if isinstance(b, int) else b.value)
             for a, b in zip(declared, proven)]
    if len(declared) != len(proven) or any(a != b for a, b in pairs if isinstance(a, int) and isinstance(b, int)):
        return proven
    return ir.Shape([b if a is None else a for a, b in pairs],
                    denotations=[declared.get_denotation(axis) for axis in range(len(pairs))])


def _remove_dead(covers, root: ir.Value) -> int:
    """Remove what only the replaced value needed, from the covered nodes upwards; returns how many nodes went."""
    queue = collections.deque([root.producer(), *reversed(sorted_nodes(covers))])
    gone = 0
    while queue:
        node = queue.popleft()
        if node is None or node.graph is None:
            continue
        users = {use.node: None for value in node.outputs for use in value.uses()}
        if users and is_dead(node):  # they were dead before: they go first
            queue.extendleft([node, *users])
            continue
        if users or any(value.is_graph_output() for value in node.outputs):
            continue
        feeders = [v for v in node.inputs if v is not None]
        for body in bodies(node):
            feeders += captured(body)
            _dissolve(body)
        node.graph.remove(node, safe=True)
        gone += node.op_type != "Constant"
        for value in feeders:
            if value.producer() is not None:
                queue.append(value.producer())
            elif not value.uses() and not value.is_graph_input() and not value.is_graph_output():
                home = value.graph
                if home is not None and value.name in home.initializers:
                    del home.initializers[value.name]
    return gone


def _dissolve(graph: ir.Graph) -> None:
    """Detach the nodes of a removed body from the values they read."""
    for node in reversed(tuple(graph.all_nodes())):
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)


def _still_there(report: Report) -> list[Missed]:
    """One miss a place: the outermost that names a tensor, none where the node was fused from another anchor."""
    fused = {(f.scope, f.node) for f in report.fused if f.node}  # many nodes may have no name
    first: dict[tuple, Missed] = {}
    for miss in report.missed:
        if (miss.scope, miss.node) not in fused:
            first.setdefault((miss.pattern, miss.scope, miss.tensor), miss)
    return list(first.values())


def sorted_nodes(nodes) -> list[ir.Node]:
    """Nodes in the order of their names: sets have none, and files must come out the same on every run."""
    return sorted(nodes, key=lambda node: (node.name or "", node.outputs[0].name if node.outputs else ""))


def count_nodes(model: ir.Model) -> int:
    return sum(node.op_type != "Constant" for node in all_nodes(model))


def all_names(model: ir.Model) -> set[str]:
    """Every name a new value or node must not take."""
    taken: set[str] = set()
    for graph in own_graphs(model):
        taken.update(v.name for v in (*graph.inputs, *graph.initializers.values()) if v.name)
        for node in graph.all_nodes():
            taken.update(v.name for v in node.outputs if v.name)
            taken.add(node.name or "")
            for body in bodies(node):
                taken.update(v.name for v in (*body.inputs, *body.initializers.values()) if v.name)
    return taken
