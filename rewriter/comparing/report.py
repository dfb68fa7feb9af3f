"""What a comparison found, as plain data: the terminal's text, the page and `--json` are all made from this.

Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from rewriter.comparing.inputs import Spec
from rewriter.comparing.statistics import Ratio, Spread, judge


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """A model on disk: its name, its size with external data, and its nodes (as `rewriter.Report` counts them)."""

    name: str
    bytes: int
    nodes: int


@dataclasses.dataclass(frozen=True)
class OutputError:
    """How far one output of one variant is from the reference.

    Attributes:
        output: its name.
        absolute: largest |a - b|; infinite where only one of them is a number.
        relative: largest |a - b| / |b| where |b| is at least a thousandth of the output's largest magnitude.
        exact: the same against the float64 run, absolute, or None without one.
        outliers: share of the elements beyond the tolerance.
        good: whether that is at most what the tolerance allows.
    """

    output: str
    absolute: float
    relative: float
    exact: float | None
    outliers: float
    good: bool


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """What is allowed for one output, absolute, for which share of its elements, and why."""

    output: str
    allowed: float
    outliers: float
    why: str


@dataclasses.dataclass
class Variant:
    """One way to run one of the models, and what became of it.

    Attributes:
        key: stable identifier ("onnxruntime-fused").
        label: for people.
        model: "unfused" or "fused".
        runtime: "ONNX Runtime 1.32.0", as it called itself.
        missing: why it was not run, or "".
        failed: what went wrong when it was, or "".
        creation: seconds that making the session takes, median of a few.
        memory: the most the process used beyond what it used before the model was loaded, runs included.
        times: of one run.
        faster: how many times as fast as the unfused model in the same runtime; None for unfused ones.
        against: key of that variant.
        errors: one for each output; empty for the reference.
    """

    key: str
    label: str
    model: str
    runtime: str = ""
    missing: str = ""
    failed: str = ""
    creation: float | None = None
    memory: int | None = None
    times: Spread | None = None
    faster: Ratio | None = None
    against: str = ""
    errors: list[OutputError] = dataclasses.field(default_factory=list)

    @property
    def ran(self) -> bool:
        """Whether there is anything to show of it."""
        return not self.missing and not self.failed

    @property
    def good(self) -> bool:
        """Whether its values are within the tolerance."""
        return all(error.good for error in self.errors)

    @property
    def error(self) -> OutputError | None:
        """The worst of its outputs."""
        return max(self.errors, key=lambda error: (not error.good, error.absolute), default=None)


@dataclasses.dataclass(frozen=True)
class Operator:
    """Time that one type of operator takes in one run, and how many nodes of it there are."""

    name: str
    seconds: float
    count: int


@dataclasses.dataclass(frozen=True)
class Profile:
    """Where one run of a model goes, by ONNX Runtime's profiler.

    Attributes:
        total: seconds in operators.
        concerned: seconds of that in what was fused (before), or in what it became (after).
        unknown: seconds in nodes that the optimizer made and that could not be traced back to a node of the model.
        operators: the longest first.
    """

    total: float
    concerned: float
    unknown: float
    operators: list[Operator]

    @property
    def share(self) -> float:
        """The part of the whole that was concerned, 0 to 1."""
        return self.concerned / self.total if self.total else 0.0


@dataclasses.dataclass(frozen=True)
class Piece:
    """A node of a drawn subgraph.

    Attributes:
        operator: op_type.
        custom: whether it is of `custom.ops`.
        sources: positions of the pieces whose outputs it takes.
        constants: bytes of its constant inputs.
    """

    operator: str
    custom: bool
    sources: tuple[int, ...]
    constants: int


@dataclasses.dataclass(frozen=True)
class Fragment:
    """A subgraph and what took its place, both in an order in which they run; `count` of the same form."""

    before: tuple[Piece, ...]
    after: tuple[Piece, ...]
    where: str
    count: int = 1


@dataclasses.dataclass(frozen=True)
class SweepPoint:
    """One size: medians and ratios by variant, the largest absolute error, and whether that is within the tolerance."""

    size: int
    times: dict[str, Spread]
    faster: dict[str, Ratio]
    absolute: float
    good: bool
    failed: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """How the ratio changes with the sizes of some open dims."""

    dims: tuple[str, ...]
    points: list[SweepPoint]


@dataclasses.dataclass
class Comparison:
    """A fused model beside the unfused one.

    Attributes:
        unfused, fused: the models.
        rewriter, date, cpu, threads: what measured, when (ISO, local), and on what.
        inputs: what was fed; `assumed`: sizes of open dims that nobody gave; `seed`: of the random data.
        variants: all there are, also those that could not be run.
        reference: key of the variant whose values the others are held against.
        stable: whether the unfused model gives the same values twice; if not, none can be held against it.
        tolerances: one an output.
        float64: which float64 run there was, or why there was none.
        histogram: [decade of |a - b| or None for equal, elements] of the fused model in ONNX Runtime, all outputs.
        control: the reference model against itself, in a second process.
        before, after: profiles, or None where there are none; `unprofiled` says why.
        fragments: what was fused.
        sweep: if one was asked for.
        busy: whether the machine had other work to do before this began.
        notes: sentences a user should read.
    """

    unfused: ModelFacts
    fused: ModelFacts
    rewriter: str
    date: str
    cpu: str
    threads: int
    inputs: tuple[Spec, ...]
    assumed: dict[str, int]
    seed: int
    variants: list[Variant]
    reference: str = ""
    stable: bool = True
    tolerances: list[Tolerance] = dataclasses.field(default_factory=list)
    float64: str = ""
    histogram: list[tuple[int | None, int]] = dataclasses.field(default_factory=list)
    control: Ratio | None = None
    before: Profile | None = None
    after: Profile | None = None
    unprofiled: str = ""
    fragments: list[Fragment] = dataclasses.field(default_factory=list)
    sweep: Sweep | None = None
    busy: bool = False
    notes: list[str] = dataclasses.field(default_factory=list)

    def variant(self, key: str) -> Variant | None:
        """The variant of this key, if there is one."""
        return next((variant for variant in self.variants if variant.key == key), None)

    @property
    def mismatched(self) -> list[Variant]:
        """Fused variants whose values are not the unfused model's."""
        if not self.stable:
            return []
        return [variant for variant in self.variants if variant.ran and variant.model == "fused" and not variant.good]

    @property
    def agrees(self) -> bool:
        """Whether a fused variant ran, and all that did give the unfused model's values, at every size."""
        ran = any(variant.ran and variant.model == "fused" for variant in self.variants)
        swept = self.sweep.points if self.sweep and self.stable else ()
        return ran and not self.mismatched and all(point.good for point in swept)

    def outcome(self, variant: Variant) -> str:
        """"faster", "slower" or "noise", or "" where there is no ratio."""
        return judge(variant.faster, self.control) if variant.faster else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries and lists, ready for `json.dump`."""
        from rewriter.comparing.verdict import verdict

        return {**_plain(dataclasses.asdict(self)), "agrees": self.agrees, "verdict": verdict(self)}


def _plain(value: Any) -> Any:
    """JSON has no infinity: such an error becomes the string "inf"."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if (isinstance(value, float) and value != value) or value in (float("inf"),) else value
