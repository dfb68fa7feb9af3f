"""A fused subgraph drawn small: the nodes that were there above each other, and the node that is there now."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from rewriter.comparing.report import Fragment, Piece
from rewriter.comparing.svg import escape, figure, text
from rewriter.units import plural, size

LETTER, HEIGHT, GAP, LAYER = 6.9, 24, 14, 46
LABELLED = 24  # nodes; more are drawn as dots
DOT, DOT_GAP, DOT_LAYER = 10, 6, 17
ARROW = 70
NOTED = 1024  # bytes of constants worth a note


def draw(fragment: Fragment) -> str:
    """Before, an arrow, after."""
    before, after = _Graph(fragment.before), _Graph(fragment.after)
    height = max(before.height, after.height, 40.0)
    parts = [*before.at(0, (height - before.height) / 2)]
    start, middle = before.width + 14, height / 2
    parts.append(f'<path d="M{start:.0f} {middle}h{ARROW - 28}m-8 -6l8 6l-8 6" class="arrow"/>')
    parts += after.at(before.width + ARROW, (height - after.height) / 2)
    return figure(before.width + ARROW + after.width, height, parts, summary(fragment))


def summary(fragment: Fragment) -> str:
    """In words: "9 nodes and 3.15 MB of constants become AffineGridSample"."""
    constants = sum(piece.constants for piece in fragment.before)
    became = ", ".join(piece.operator for piece in fragment.after) or "nothing at all"
    also = f" and {size(constants)} of constants" if constants >= NOTED else ""
    return f"{plural(len(fragment.before), 'node', 'nodes')}{also} became {became}"


def census(pieces: Sequence[Piece]) -> str:
    """Which operators, and how many: "Cast 8, Reshape 7"."""
    return ", ".join(f"{name} {count}" for name, count in collections.Counter(
        piece.operator for piece in pieces).most_common())


class _Graph:
    """Pieces in layers: each below all that it takes from."""

    def __init__(self, pieces: Sequence[Piece]):
        self._pieces, self._dots = pieces, len(pieces) > LABELLED
        depths: list[int] = []
        for piece in pieces:
            depths.append(1 + max((depths[source] for source in piece.sources), default=-1))
        self._layers: list[list[int]] = [[] for _ in range(max(depths, default=-1) + 1)]
        for index, depth in enumerate(depths):
            self._layers[depth].append(index)
        gap = DOT_GAP if self._dots else GAP
        self.width = max((sum(self._wide(index) + gap for index in layer) - gap for layer in self._layers),
                         default=20.0)
        self.height = max(0.0, len(self._layers) * self._tall - (self._tall - self._high))
        self._places: dict[int, tuple[float, float]] = {}
        for depth, layer in enumerate(self._layers):
            layer.sort(key=self._wish)
            x = (self.width - sum(self._wide(index) + gap for index in layer) + gap) / 2
            for index in layer:
                self._places[index] = (x + self._wide(index) / 2, depth * self._tall)
                x += self._wide(index) + gap

    def at(self, left: float, top: float) -> list[str]:
        """The drawing with its corner there."""
        edges, nodes = [], []
        for index, piece in enumerate(self._pieces):
            x, y = (a + b for a, b in zip(self._places[index], (left, top)))
            for source in piece.sources:
                a, b = (p + q for p, q in zip(self._places[source], (left, top)))
                b += self._high
                bend = (b + y) / 2
                edges.append(f'<path d="M{a:.1f} {b:.1f}C{a:.1f} {bend:.1f} {x:.1f} {bend:.1f} {x:.1f} {y:.1f}" '
                             'class="edge"/>')
            nodes.append(self._node(piece, x, y, self._wide(index)))
        return edges + nodes

    def _node(self, piece: Piece, x: float, y: float, wide: float) -> str:
        constants = f", {size(piece.constants)} of constants" if piece.constants >= NOTED else ""
        title = f"<title>{escape(piece.operator + constants)}</title>"
        kind = "custom" if piece.custom else "weighty" if constants else "plain"
        shape = (f'<rect x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{self._high}" '
                 f'rx="{5 if not self._dots else 6}" class="node {kind}"/>')
        label = "" if self._dots else text(x, y + 16, piece.operator, "label", "middle")
        return f"<g>{title}{shape}{label}</g>"

    def _wish(self, index: int) -> float:
        """Where a piece would like to be: below the middle of what it takes from."""
        sources = self._pieces[index].sources
        return sum(self._places[source][0] for source in sources) / len(sources) if sources else self.width

    def _wide(self, index: int) -> float:
        return float(DOT) if self._dots else 18 + LETTER * len(self._pieces[index].operator)

    @property
    def _high(self) -> int:
        return DOT if self._dots else HEIGHT

    @property
    def _tall(self) -> int:
        return DOT_LAYER if self._dots else LAYER
