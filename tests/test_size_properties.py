"""Grids whose size follows from random arithmetic at run time, in random spellings, with and without an impostor step.

What is fused agrees at many sizes, also far beyond those that a proof tries; what is declined survives, with a reason.
`properties.py` sets the number of examples.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from properties import EXAMPLES
from size_models import AXES, PLANES, PRODUCTS, SOURCES, SizeSketch

import rewriter

FIXED = [(1, 7, 9), (2, 9, 7), (1, 8, 8), (3, 2, 31), (1, 40, 2), (2, 300, 3), (1, 5, 299), (1, 64, 48), (1, 5, 7)]
STEPS = ("double", "half", "plus", "less", "up to a multiple", "down to a multiple", "floor", "ceil", "cast", "min",
         "max", "clip", "where", "if", "other", "twice")
CONDITIONS = ("above", "below", "at", "even", "rest", "rest by division", "area", "sum", "ratio", "equal sizes", "both",
              "either", "one", "other above", "step", "batch", "difference")
CHANGES = ("where", "if", "min", "max", "other size", "plus a remainder", "plus a quotient", "less what is above",
           "plus the flag")
PLACES = ("length", "length", "unit", "factor", "swapped", "offset", "position")
POSITIONS = ("min", "where", "step")


def stepped(s: SizeSketch, step: str, k: int, a, other):
    """One step of size arithmetic; k is the constant in it."""
    if step == "double":
        return s.binary("Mul", a, 2)
    if step == "twice":
        return s.binary("Add", a, a)
    if step == "half":
        return s.binary("Max", s.binary("Div", a, 2), 2)
    if step == "plus":
        return s.binary("Add", a, k)
    if step == "less":
        return s.binary("Max", s.binary("Sub", a, k), 2)
    if step == "up to a multiple":
        k = k % 32 + 2
        return s.binary("Mul", s.binary("Div", s.binary("Add", a, k - 1), k), k)
    if step == "down to a multiple":
        k = k % 8 + 2
        return s.binary("Max", s.binary("Sub", a, s.binary("Mod", a, k)), k)
    if step in ("floor", "ceil", "cast"):
        return s.binary("Max", s.rounded(step.capitalize(), a, (0.5, 0.75, 1.5)[k % 3]), 2)
    if step in ("min", "max"):
        return s.binary(step.capitalize(), a, k)
    if step == "clip":
        return s.clip(a, 2, k)
    if step == "other":
        return s.binary(("Add", "Min", "Max")[k % 3], a, other)
    condition = s.binary(("Less", "Greater", "Equal")[k % 3], a, k)
    return (s.where if step == "where" else s.branch)(condition, a, s.binary("Add", a, 1))


def condition(s: SizeSketch, form: str, k: int, a, other, batch):
    """When an impostor shows: a comparison of sizes."""
    if form in ("above", "other above"):
        return s.binary("Greater", a if form == "above" else other, k)
    if form in ("below", "at"):
        return s.binary("Less" if form == "below" else "Equal", a, k)
    if form == "even":
        return s.binary("Equal", s.binary("Mod", a, 2), 0)
    if form == "rest":
        return s.binary("Equal", s.binary("Mod", a, k % 40 + 2), k % 7)
    if form == "rest by division":
        whole = s.binary("Mul", s.binary("Div", a, k % 40 + 2), k % 40 + 2)
        return s.binary("Equal", s.binary("Sub", a, whole), k % 7)
    if form == "area":
        return s.binary("Greater", s.binary("Mul", a, other), 50 * k)
    if form == "sum":
        return s.binary("Greater", s.binary("Add", a, other), k)
    if form == "ratio":
        return s.binary("Greater", a, s.binary("Mul", other, k % 60 + 2))
    if form == "equal sizes":
        return s.binary("Equal", a, s.binary("Add", other, k % 5))
    if form == "both":
        return s.binary("And", s.binary("Greater", a, k), s.binary("Greater", other, k // 2))
    if form == "either":
        return s.binary("Or", s.binary("Less", a, k // 9), s.binary("Greater", other, k))
    if form == "one":
        return s.binary("Xor", s.binary("Greater", a, k), s.binary("Greater", other, k))
    if form == "step":
        return s.binary("Equal", s.binary("Mod", s.binary("Div", a, k), 2), 1)
    if form == "batch":
        return s.binary("Greater", batch, k % 5 + 1)
    return s.binary("Equal", s.binary("Sub", a, other), k)


def changed(s: SizeSketch, form: str, k: int, flag, a, other):
    """A size that is another one where the flag is set, or by itself."""
    if form in ("where", "if"):
        return (s.where if form == "where" else s.branch)(flag, s.binary("Add", a, 1), a)
    if form in ("min", "max"):
        return s.binary(form.capitalize(), a, k)
    if form == "other size":
        return other
    if form == "plus a remainder":
        return s.binary("Add", a, s.binary("Mod", a, k % 5 + 2))
    if form == "plus a quotient":
        return s.binary("Add", a, s.binary("Div", a, k))
    if form == "less what is above":
        return s.binary("Sub", a, s.binary("Div", s.binary("Max", s.binary("Sub", a, k), 0), 2))
    return s.where(flag, s.binary("Mul", a, 2), a)


def moved(s: SizeSketch, form: str, k: int, axis: str, n) -> tuple:
    """An axis on which pixels from the k-th on lie elsewhere, and a number that tells whether there are any."""
    positions, edge = s.indices("float range", n), s.real(k)
    if form == "min":
        shift = s.op("Sub", [positions, s.op("Min", [positions, edge])])
    elif form == "where":
        shift = s.op("Where", [s.op("Less", [positions, edge]), s.real(0), s.real(0.5)])
    else:
        shift = s.op("Floor", [s.op("Div", [positions, edge])])
    return s.op("Add", [axis, shift]), s.binary("Max", n, k + (form == "min"))


@st.composite
def grids(draw):
    """(sketch, model, whether a size or value differs from the plain grid's at given sizes or None)."""
    pick, numbers = (lambda options: draw(st.sampled_from(options))), st.integers(3, 290)
    s = SizeSketch(draw(st.integers(12, 21)), pick(SOURCES))
    batch, h0, w0 = s.raw_sizes()
    plans = [draw(st.lists(st.tuples(st.sampled_from(STEPS), numbers), max_size=3)) for _ in range(2)]

    def sizes():
        h, w = h0, w0
        for step, k in plans[0]:
            h = stepped(s, step, k, h, w0)
        for step, k in plans[1]:
            w = stepped(s, step, k, w, h0)
        return h, w

    h, w = sizes()
    again = sizes() if draw(st.booleans()) else (h, w)  # computed a second time, for the second use
    place, differs = (pick(PLACES) if draw(st.booleans()) else None), None
    lengths, unit = [h, w], s.real(1)
    if place is not None:
        which, k = draw(st.integers(0, 1)), draw(numbers)
        near, far = (h, w) if which == 0 else (w, h)
        flag = condition(s, pick(CONDITIONS), k, near, far, batch)
        plain, other = s.number(1), near
        if place == "length":
            form = pick(CHANGES)
            other = lengths[which] = changed(s, form, k, flag, near, far)
        elif place != "position":
            other = s.where(flag, s.binary("Add", plain, 1), plain)
        if place == "unit":
            unit = s.floated(other)
    corners = draw(st.booleans())
    x, y = s.axis(pick(AXES), w, lengths[1], corners), s.axis(pick(AXES), h, lengths[0], corners)
    if place == "position":
        plain = s.number(k)
        x, other = moved(s, pick(POSITIONS), k, x, w)
    if place is not None:
        compared = near if place == "length" else plain
        differs = lambda at: other.of(at) != compared.of(at)  # noqa: E731
    form = pick(PRODUCTS)
    plane = "" if form == "separable" else s.plane(pick(PLANES), x, y, h, w, unit)
    h, w = again
    if place == "swapped":
        h, w = s.where(flag, w, h), s.where(flag, h, w)
    grid = s.product(form, plane, x, y, unit, pick([-1, batch]), h, w)
    if place in ("factor", "offset"):
        grid = s.op({"factor": "Mul", "offset": "Add"}[place], [grid, s.floated(other)])
    model = s.model(grid, s.opset >= 16 and draw(st.booleans()))
    return s, model, differs


def tried(s: SizeSketch, differs) -> list:
    """Sizes to hold the models against each other at: fixed ones, those beside constants, where an impostor shows."""
    generator = random.Random(len(s.nodes))
    beside = {min(max(k + d, 2), 300) for k in s.constants for d in (-1, 0, 1)}
    pool = sorted({*beside, *generator.choices(range(2, 301), k=12), 2, 3, 300})
    pairs = [(generator.randint(1, 3), h, w) for h, w in itertools.product(pool, pool)]
    pairs += [(generator.randint(1, 7), n, n) for n in pool]
    generator.shuffle(pairs)
    pairs.sort(key=lambda p: p[1] * p[2] > 20_000)
    chosen = [*FIXED, *pairs[:3]]
    if differs is not None:
        for shows in (True, False):
            chosen += [p for p in pairs if differs(p) == shows][:3]
    return list(dict.fromkeys(chosen))


def test_sizes_from_arithmetic(session, tally):
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=grids())
    def check(case):
        s, model, differs = case
        fused, report = rewriter.fuse(model)
        found = {f.operator for f in report.fused}
        plain = "plain" if differs is None else "impostor"
        tally[f"{plain}: {'fused' if found else 'declined'}"] += 1
        if not found:
            assert fused.SerializeToString() == model.SerializeToString()
            if model.graph.node[-1].op_type == "GridSample":
                assert report.missed and all(m.reason for m in report.missed)
            event(f"{plain}: {report.missed[0].reason if report.missed else 'no reason'}")
            return
        before, after = session(model), session(fused)
        sampled = model.graph.node[-1].op_type == "GridSample"
        for sizes in tried(s, differs):
            feeds = s.feeds(sizes)
            try:
                want = before(feeds)["y"]
            except Exception:
                continue  # nothing to agree with
            if min(want.shape[2:] if sampled else want.shape[1:3]) < 2:
                continue  # what is proven is proven for axes of 2 pixels and more
            got, scale = after(feeds)["y"], max(1.0, float(np.abs(want).max()))
            assert got.shape == want.shape, f"at {sizes}"
            # at the image's border a sample is as steep as pixels are narrow
            off, limit = float(np.abs(got - want).max()), (2e-3 if sampled else 1e-5) * scale
            assert off <= limit, f"off by {off:.2g} at {sizes}"
            tally["compared at sizes"] += 1

    check()
    assert tally["plain: fused"] > 0.5 * (tally["plain: fused"] + tally["plain: declined"])
