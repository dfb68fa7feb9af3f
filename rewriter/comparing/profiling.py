"""Where a model's time goes, by ONNX Runtime's own profiler, traced back to the nodes of the model.

Every node gets a name of ours before the session is made. The optimizer keeps the names of most nodes and names some
after a value they make; what is left was made by the optimizer, or comes from a function's body.
"""

from __future__ import annotations

import collections
import json
import os
import re
import time
from collections.abc import Iterable

import numpy as np
import onnx

from rewriter.comparing.fragments import DOMAIN, walk
from rewriter.comparing.report import Operator, Profile
from rewriter.comparing.sessions import bound, make_session, to_value

_TOKEN = re.compile(r"wf(\d+|body)_")
_SUFFIX = "_kernel_time"
RUNS = 30
LONGEST = 3.0  # seconds of runs


class Profiler:
    """Profiles one model, in a process of its own."""

    def profile(self, arrays: dict[str, np.ndarray], concerned: Iterable[int], scratch: str,
                options: dict) -> Profile:
        """Run the model under the profiler.

        Args:
            arrays: what it is fed.
            concerned: positions in `walk` of the nodes that the two models do not share.
            scratch: folder for the profile.
            options: of the variant, as for `open`.
        """
        model = onnx.load(options["path"], load_external_data=False)
        made = named(model)
        if "library" not in options:
            model = expanded(model)
        folder = options["folder"] or os.path.dirname(os.path.abspath(options["path"]))
        session = make_session(model.SerializeToString(), folder=folder, threads=options["threads"],
                               library=options.get("library"), profile=os.path.join(scratch, "profile"))
        run = bound(session, {name: to_value(array) for name, array in arrays.items()})
        runs, end = 0, time.perf_counter() + LONGEST
        while runs < 3 or (runs < RUNS and time.perf_counter() < end):
            run()
            runs += 1
        path = session.end_profiling()
        with open(path) as file:
            events = json.load(file)
        os.unlink(path)
        return read(events, made, set(concerned))


def named(model: onnx.ModelProto) -> dict[str, int]:
    """Give every node a name of ours, in place; values by name, with the position of the node that makes them."""
    made = {}
    for place in walk(model):
        place.node.name = f"wf{place.position}_"
        made.update(dict.fromkeys(filter(None, place.node.output), place.position))
    return made


def expanded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A `named` model with the functions of `custom.ops` inlined, as ONNX Runtime would, but with names of ours."""
    ours = [(function.domain, function.name) for function in model.functions if function.domain == DOMAIN]
    if not ours:
        return model
    from onnx.inliner import inline_selected_functions

    model = inline_selected_functions(model, ours)
    for place in walk(model):
        if not _TOKEN.match(place.node.name):
            place.node.name = f"wfbody_{place.position}"
    return model


def read(events: list[dict], made: dict[str, int], concerned: set[int]) -> Profile:
    """A profile from ONNX Runtime's events, medians over the runs.

    Args:
        events: of the trace, in order.
        made: what `named` returned.
        concerned: positions of the nodes that the two models do not share.
    """
    runs: list[list[tuple[str, str, float]]] = [[]]
    for event in events:
        if event.get("name") == "model_run":
            runs.append([])
        elif event.get("cat") == "Node" and event["name"].endswith(_SUFFIX):
            runs[-1].append((event["name"].removesuffix(_SUFFIX), event["args"].get("op_name", ""), event["dur"] / 1e6))
    runs = [run for run in runs if run][1:] or [run for run in runs if run]  # the first allocates
    seconds: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for run in runs:
        once: dict[tuple[str, str], float] = collections.defaultdict(float)
        for name, operator, took in run:
            once[name, operator] += took
        for key, took in once.items():
            seconds[key].append(took)
    operators: dict[str, list[float]] = collections.defaultdict(list)
    part = unknown = 0.0
    for (name, operator), took in seconds.items():
        median = float(np.median(took))
        operators[operator].append(median)
        origin = _origin(name, made, concerned)
        part += median if origin else 0.0
        unknown += median if origin is None else 0.0
    ranked = sorted((Operator(name, sum(times), len(times)) for name, times in operators.items()),
                    key=lambda operator: -operator.seconds)
    return Profile(sum(operator.seconds for operator in ranked), part, unknown, ranked)


def _origin(name: str, made: dict[str, int], concerned: set[int]) -> bool | None:
    """Whether a node of the optimized graph comes from a node that is concerned; None if that cannot be told."""
    tokens = _TOKEN.findall(name)
    if tokens:
        return any(token == "body" or int(token) in concerned for token in tokens)
    value = name
    while value:  # relu_1_nchwc, ReorderOutput_token_5
        if value in made:
            return made[value] in concerned
        value = value.rpartition("_")[0]
    return None
