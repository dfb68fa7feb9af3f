"""The whole comparison: parity first, then speed, then where the time went."""

from __future__ import annotations

import dataclasses
import datetime
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np

from rewriter.comparing import parity, sweep
from rewriter.comparing.cast import Cast
from rewriter.comparing.fragments import DOMAIN, changes, fragments, walk
from rewriter.comparing.inputs import check_dims, input_specs, make_feeds, open_dims
from rewriter.comparing.machine import cpu_name, load, physical_cores
from rewriter.comparing.models import Side, check_interfaces
from rewriter.comparing.progress import Progress, Report
from rewriter.comparing.racing import race
from rewriter.comparing.report import Comparison, Profile, Variant
from rewriter.comparing.statistics import speedup, spread
from rewriter.comparing.variants import CONTROL, FUSED, KERNELS, REFERENCE, Plan, plan
from rewriter.comparing.verdict import headline
from rewriter.errors import RunError
from rewriter.workers import Worker, WorkerError

LONGEST = 60.0  # seconds for the float64 run, and for a profile
CREATIONS = 2  # more sessions after the first, where they are made quickly
QUICK = 1.0  # seconds
BUSY = 0.5  # load a core from which times are not to be trusted


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user asked for.

    Attributes:
        seconds: that the timing may last; it ends sooner when the ratios are known well enough.
        threads: of each variant; None is every physical core.
        providers: execution providers of ONNX Runtime besides the CPU.
        dims: sizes of open dims.
        given: by input an array, or a shape to be filled with random data.
        seed: of the random data.
        swept: dims and sizes of a sweep.
        module: a torch module.
        progress: told how far it is.
    """

    seconds: float = 20.0
    threads: int | None = None
    providers: Sequence[str] = ()
    dims: Mapping[str, int] = dataclasses.field(default_factory=dict)
    given: Mapping[str, np.ndarray | tuple[int, ...]] = dataclasses.field(default_factory=dict)
    seed: int = 0
    swept: tuple[tuple[str, ...], tuple[int, ...]] | None = None
    module: object = None
    progress: Report | None = None


def compare_sides(unfused: Side, fused: Side, settings: Settings) -> Comparison:
    """Run both in every way there is.

    Raises:
        InterfaceError: they are not called alike.
        UsageError: an input or a dim that the model does not have.
        RunError: no runtime can run the unfused model, or no data can be made for an input.
    """
    from rewriter import __version__

    check_interfaces(unfused, fused)
    inputs = input_specs(unfused.proto.graph)
    check_dims(inputs, settings.dims)
    if settings.swept:
        sweep.check(inputs, settings.swept[0])
    dims = dict(settings.dims)
    if settings.swept:  # the rest is done at the middle of the sweep
        dims = {**dict.fromkeys(settings.swept[0], settings.swept[1][len(settings.swept[1]) // 2]), **dims}
    feeds = make_feeds(inputs, dims=dims, given=settings.given, seed=settings.seed)
    threads, busy = settings.threads or physical_cores(), load()
    comparison = Comparison(
        unfused.facts, fused.facts, __version__, datetime.datetime.now().isoformat(" ", "minutes"), cpu_name(), threads,
        feeds.specs, feeds.assumed, settings.seed, [], fragments=fragments(unfused.proto, fused.proto))
    if busy is not None and busy > BUSY * physical_cores():
        comparison.busy = True
        comparison.notes.append(f"the machine was busy before this began (load {busy:.1f} on {physical_cores()} "
                                "cores): times, and ratios too, can be far from those on a quiet one")
    custom = any(place.node.domain == DOMAIN for place in walk(fused.proto))
    with tempfile.TemporaryDirectory(prefix="warpfuse-") as scratch:
        plans = plan(unfused.source, fused.source, threads=threads, providers=settings.providers, scratch=scratch,
                     custom=custom, module=settings.module)
        comparison.variants = [item.variant for item in plans]
        with Cast(plans) as cast:
            _Run(comparison, unfused, fused, settings, plans, cast, scratch).all(feeds)
    return comparison


class _Run:
    """The steps, which share what they found."""

    def __init__(self, comparison: Comparison, unfused: Side, fused: Side, settings: Settings, plans: list[Plan],
                 cast: Cast, scratch: str):
        self.comparison, self.unfused, self.fused, self.settings = comparison, unfused, fused, settings
        self.plans, self.cast, self.scratch = plans, cast, scratch
        self.names = [output.name for output in unfused.proto.graph.output]
        self.jumping = parity.jumps(unfused.proto) or parity.jumps(fused.proto)
        sizes = settings.swept[1] if settings.swept else ()
        self.each = max(1.0, settings.seconds / 4)
        self.progress = Progress(settings.progress, [
            ("starting the runtimes", 2.0 * sum(not item.variant.missing for item in plans)), ("a float64 run", 3.0),
            ("timing", settings.seconds), ("making sessions", 2.0), ("profiling", 6.0),
            *([("sweeping", self.each * len(sizes))] if sizes else [])])

    def all(self, feeds) -> None:
        values = self.open(feeds.arrays)
        self.judge(values, feeds.arrays)
        self.time()
        self.create()
        self.profile(feeds.arrays)
        if self.settings.swept:
            dims, sizes = self.settings.swept
            self.progress.next()
            others = {name: size for name, size in {**feeds.assumed, **self.settings.dims}.items()
                      if name in open_dims(input_specs(self.unfused.proto.graph)) and name not in dims}
            self.comparison.sweep = sweep.sweep(
                self.cast, input_specs(self.unfused.proto.graph), self.names, dims, sizes, fixed=others,
                given=dict(self.settings.given), seed=self.settings.seed, seconds=self.each, jumping=self.jumping,
                step=self.progress.within)
        self.progress.within(1.0)

    def open(self, arrays: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        """Every variant's outputs, of those that run."""
        self.progress.next()
        values = {}
        for index, item in enumerate(self.plans):
            key = item.variant.key
            if self.cast.open(key) and (outputs := self.cast.feed(key, arrays, self.names)) is not None:
                values[key] = outputs
            self.progress.within((index + 1) / len(self.plans))
        unfused = [key for key in values if self.variant(key).model == "unfused" and key != CONTROL]
        if not unfused:
            first = next((v for v in self.comparison.variants if v.failed), self.comparison.variants[0])
            hint = f" (sizes were assumed: {self.comparison.assumed}; set them with --dim)" if (
                self.comparison.assumed) else ""
            raise RunError(f"no runtime can run the unfused model; {first.label} {first.failed or first.missing}{hint}")
        self.comparison.reference = unfused[0]
        if unfused[0] != REFERENCE:
            self.comparison.notes.append(f"{self.variant(unfused[0]).label} is what all values are held against, "
                                         f"because {self.variant(REFERENCE).label} {self.variant(REFERENCE).failed}")
        return values

    def judge(self, values: dict[str, dict[str, np.ndarray]], arrays: dict[str, np.ndarray]) -> None:
        """Parity."""
        self.progress.next()
        comparison, reference = self.comparison, values[self.comparison.reference]
        shapes = [array.shape for array in arrays.values()]
        wide = parity.tolerances(reference, shapes, jumping=self.jumping, exact=None)
        again = parity.compare_outputs(values.get(CONTROL, reference), reference, wide, None)
        comparison.stable = all(error.good for error in again)
        exact, comparison.float64 = self.exact(arrays) if comparison.stable else (
            None, "none: the unfused model gives other values every time")
        comparison.tolerances = wide if exact is None else parity.tolerances(
            reference, shapes, jumping=self.jumping, exact=exact)
        for key, outputs in values.items():
            variant = self.variant(key)
            sibling = comparison.variant(variant.against)
            own = {error.output: error.absolute for error in (sibling.errors if sibling else ())}
            if key != comparison.reference:
                variant.errors = parity.compare_outputs(outputs, reference, comparison.tolerances, exact, own)
        if FUSED in values or KERNELS in values:
            comparison.histogram = parity.histogram(values.get(KERNELS if FUSED not in values else FUSED), reference)

    def exact(self, arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray] | None, str]:
        with Worker("rewriter.comparing.float64:Float64", lean=True) as worker:
            try:
                values, how = worker.call("values", self.unfused.source.path, self.unfused.source.folder, arrays,
                                          timeout=LONGEST)
            except WorkerError as error:
                return None, f"none: {error}"
        return values, how

    def time(self) -> None:
        """Interleaved turns."""
        self.progress.next()
        pairs = [(key, against) for key in self.cast.playing if (against := self.against(key))]
        times = race({key: self.cast.turn(key) for key in self.cast.playing}, pairs, seconds=self.settings.seconds,
                     step=self.progress.within, failed=lambda key, error: self.cast.drop(key, error, "stopped running"))
        for key, series in times.items():
            self.variant(key).times = spread(series)
            if self.against(key) in times:
                self.variant(key).faster = speedup(times[self.against(key)], series)
        if (control := self.comparison.variant(CONTROL)) is not None:
            self.comparison.control = control.faster

    def create(self) -> None:
        """More sessions: a single creation is no measurement."""
        self.progress.next()
        keys = [key for key in self.cast.playing if self.variant(key).creation is not None]
        made = {key: [self.variant(key).creation] for key in keys if self.variant(key).creation < QUICK}
        for _ in range(CREATIONS):
            for key in list(made):
                if (took := self.cast.ask(key, "create", "does not load again")) is None:
                    del made[key]
                else:
                    made[key].append(took)
        for key, times in made.items():
            self.variant(key).creation = float(np.median(times))

    def profile(self, arrays: dict[str, np.ndarray]) -> None:
        """Profiles of the unfused model, and of the fused one in its best variant."""
        self.progress.next()
        comparison, best = self.comparison, headline(self.comparison)
        gone, come = changes(self.unfused.proto, self.fused.proto)
        try:
            comparison.before = self.profiled(REFERENCE, [place.position for place in gone], arrays)
            self.progress.within(0.5)
            if best is not None and best.key in (FUSED, KERNELS):
                comparison.after = self.profiled(best.key, [place.position for place in come], arrays)
        except WorkerError as error:
            comparison.unprofiled = str(error)

    def profiled(self, key: str, concerned: list[int], arrays: dict[str, np.ndarray]) -> Profile | None:
        if not self.variant(key).ran:
            return None
        options = next(item.options for item in self.plans if item.variant.key == key)
        with Worker("rewriter.comparing.profiling:Profiler", lean=True) as worker:
            return worker.call("profile", arrays, concerned, self.scratch, options, timeout=LONGEST)

    def against(self, key: str) -> str:
        """The unfused variant in the same runtime."""
        return self.variant(key).against

    def variant(self, key: str) -> Variant:
        return self.comparison.variant(key)
