"""Walking graphs: bodies, what reads what, what is dead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx_ir as ir

MOST_STEPS = 100  # readers looked at before a node counts as alive


def onnx_opset(imports: Mapping[str, int]) -> int:
    """The version of ai.onnx among opset imports, under either of its names; 0 if there is none."""
    return imports.get("", imports.get("ai.onnx", 0))


def constant_integers(value: ir.Value | None) -> list[int] | None:
    """The elements of an initializer that no caller overrides, or of a Constant, if they are integers."""
    if value is None or value.is_graph_input():
        return None
    node, tensor = value.producer(), value.const_value
    if node is not None:
        if (node.domain, node.op_type) != ("", "Constant"):
            return None
        given = next(iter(node.attributes.values()), None)
        if given is None or given.is_ref():
            return None
        if given.name in ("value_int", "value_ints"):
            return [given.value] if given.name == "value_int" else list(given.value)
        tensor = given.value if given.name == "value" else None
    if tensor is None or not tensor.dtype.is_integer():
        return None
    return tensor.numpy().ravel().tolist()


def bodies(node: ir.Node) -> list[ir.Graph]:
    """The graphs among a node's attributes."""
    return [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]


def captured(graph: ir.Graph) -> list[ir.Value]:
    """Values that a body reads, or gives, and does not make itself."""
    return [v for node in graph.all_nodes() for v in node.inputs if v is not None and v.graph is not graph] + [
        v for v in graph.outputs if v.graph is not graph]


def nested_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes of a graph and of the bodies in it, each body behind its node."""
    for node in graph:
        yield node
        for body in bodies(node):
            yield from nested_nodes(body)


def fit_to_expand(model: ir.Model, most: int, deepest: int) -> bool:
    """Whether a model with the calls of its functions written out has at most `most` nodes, and calls at most `deepest`
    deep: a few functions that call each other twice are more nodes than there is time for."""
    graphs = {(f.domain, f.name): f.graph for f in model.functions.values()}
    calls = {key: [at for node in graph.all_nodes() if (at := (node.domain, node.op_type)) in graphs]
             for key, graph in graphs.items()}
    callers: dict[tuple, list[tuple]] = {key: [] for key in graphs}
    for key, called in calls.items():
        for other in called:
            callers[other].append(key)
    missing = {key: len(called) for key, called in calls.items()}
    nodes: dict[tuple, int] = {}
    depths: dict[tuple, int] = {}
    ready = [key for key, count in missing.items() if not count]
    while ready:
        key = ready.pop()
        nodes[key] = sum(1 + nodes.get((node.domain, node.op_type), 0) for node in graphs[key].all_nodes())
        depths[key] = 1 + max((depths[other] for other in calls[key]), default=0)
        if nodes[key] > most or depths[key] > deepest:
            return False
        for caller in callers[key]:
            missing[caller] -= 1
            if not missing[caller]:
                ready.append(caller)
    if len(nodes) < len(graphs):
        return False  # the rest call themselves
    return sum(1 + nodes.get((node.domain, node.op_type), 0) for node in model.graph.all_nodes()) <= most


def graph_inputs(values: Iterable[ir.Value]) -> set[ir.Value]:
    """The graph inputs that values are computed from, by any operators."""
    stack, seen, found = list(values), set(), set()
    while stack:
        value = stack.pop()
        if value is None or value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is not None:
            stack.extend(node.inputs)
            stack.extend(v for body in bodies(node) for v in body.outputs)
        elif value.is_graph_input():
            found.add(value)
    return found


def is_dead(node: ir.Node) -> bool:
    """Whether nothing that an output depends on reads what the node makes: some exporters leave such nodes."""
    stack, seen = [node], set()
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        if len(seen) > MOST_STEPS or any(value.is_graph_output() for value in current.outputs):
            return False
        seen.add(current)
        stack.extend(use.node for value in current.outputs for use in value.uses())
    return True


def survivors(root: ir.Value, covers: Iterable[ir.Node]) -> list[ir.Node]:
    """The nodes among `covers` that must stay when `root` is replaced, because others read what they make."""
    owner = {inner: node for node in covers for body in bodies(node) for inner in body.all_nodes()}
    covered = set(covers)
    alive: dict[ir.Node, bool] = {}

    def stays(node: ir.Node) -> bool:
        if node not in alive:
            alive[node] = False
            alive[node] = any(needed(value) for value in node.outputs if value is not root)
        return alive[node]

    def needed(value: ir.Value) -> bool:
        inside = owner.get(value.producer())  # what a body makes goes with the node around it
        if value.is_graph_output() and (inside is None or stays(inside)):
            return True
        return any(stays(user) if user in covered else stays(owner[user]) if user in owner else not is_dead(user)
                   for user in (use.node for use in value.uses()))

    return [node for node in covered if stays(node)]
