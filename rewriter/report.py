"""What a run did, for programs: the command line's text and `--json` are both made from this."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Fused:
    """One replacement.

    Attributes:
        pattern: name of the pattern that made it.
        operator: op_type of `custom.ops` it became, or None where a chain vanished or became stock nodes, or where a
            fused node only takes its size from elsewhere.
        node: name of the node whose output was replaced.
        tensor: name of the replaced value.
        scope: path of the graph it lives in ("graph", "graph/If_3.then_branch", "function my::f").
        nodes: how many nodes it replaced (those that are gone).
        note: what was found, in words.
    """

    pattern: str
    operator: str | None
    node: str
    tensor: str
    scope: str
    nodes: int
    note: str


@dataclasses.dataclass(frozen=True)
class Missed:
    """One near miss, left alone.

    Attributes:
        pattern: name of the pattern that looked.
        node: name of the anchor node; op_type: its type.
        tensor: the value at fault, "" where there is none.
        scope: as in `Fused`.
        reason: one line.
    """

    pattern: str
    node: str
    op_type: str
    tensor: str
    scope: str
    reason: str


@dataclasses.dataclass
class Report:
    """The outcome of one `fuse`.

    Attributes:
        fused, missed: what was replaced, and the near misses with their reasons.
        nodes_before, nodes_after: nodes of the model, subgraphs and the model's own functions included, `Constant`
            nodes and the bodies of `custom.ops` functions not.
        bytes_before, bytes_after: size of the serialized model without external data, or None where unknown.
        ir_version_before, ir_version_after: they differ only where functions joined a model below IR version 8.
        functions: names of the `custom.ops` functions the model carries afterwards.
        warnings: sentences a user should read.
        target: what the model was written for, see `rewriter.runtimes.targets`.
        retargeted: nodes that were written in another form for it, those of earlier runs included.
        needs: what else the target takes to run the model, one sentence each.
    """

    fused: list[Fused] = dataclasses.field(default_factory=list)
    missed: list[Missed] = dataclasses.field(default_factory=list)
    nodes_before: int = 0
    nodes_after: int = 0
    bytes_before: int | None = None
    bytes_after: int | None = None
    ir_version_before: int = 0
    ir_version_after: int = 0
    functions: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    target: str = "portable"
    retargeted: int = 0
    needs: list[str] = dataclasses.field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether the model differs from the one that came in."""
        return bool(self.fused or self.retargeted)

    def count(self, operator: str) -> int:
        """How many nodes of `operator` this run made and a later pattern did not absorb."""
        made = sum(f.operator == operator for f in self.fused)
        absorbed = sum(f.pattern == "affine_grid_sample" for f in self.fused) if operator == "AffineGrid" else 0
        return max(made - absorbed, 0)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries and lists, ready for `json.dump`."""
        return dataclasses.asdict(self)
