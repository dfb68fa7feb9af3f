"""A fused model beside the unfused one: values, speed, memory, and where the time went.

`compare` is the library call; `rewriter.comparing.options` is the command line's. Every variant (a model in a runtime)
lives in a process of its own, and takes turns with the others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from rewriter.comparing.progress import Report
    from rewriter.comparing.report import Comparison
    from rewriter.vocabulary import Pattern


def compare(unfused: Any, fused: Any = None, *, patterns: Iterable[Pattern | str] | None = None, seconds: float = 20.0,
            threads: int | None = None, providers: Sequence[str] = (), dims: Mapping[str, int] | None = None,
            inputs: Mapping[str, np.ndarray | tuple[int, ...]] | None = None, seed: int = 0, sweep: str | None = None,
            module: Any = None, progress: Report | None = None) -> Comparison:
    """Run a model unfused and fused, in every runtime there is, and tell what fusing bought.

    Args:
        unfused: a model of any kind that `fuse` takes. Weights of a ModelProto or graphsurgeon Graph must be in it.
        fused: another; by default what `fuse` makes of the first.
        patterns: for that `fuse`.
        seconds: that timing may last; it ends sooner once the ratios are known to some percent.
        threads: of each variant; default: every physical core.
        providers: execution providers of ONNX Runtime to try besides the CPU ("CUDAExecutionProvider").
        dims: sizes of dims that the inputs leave open, by symbol, or as "input:axis" for one without a name.
        inputs: by name an array to feed, or a shape to be filled with random data.
        seed: of the random data.
        sweep: "H,W=64..1080" or "batch=1,2,8": the same at several sizes of open dims.
        module: a torch module that computes the same, to be run eagerly in this process; it takes the inputs in the
            model's order.
        progress: called with (share done, seconds left at most, what is being done).

    Returns:
        The Comparison. `agrees` says whether all fused values are the unfused ones within the tolerance, `variants`
        has every number, `to_dict()` is ready for JSON, and `rewriter.comparing.page.html` makes the page of it.

    Raises:
        RewriterError: a model that cannot be read; two models with other inputs or outputs (InterfaceError); no runtime
            runs the unfused model (RunError); an argument that does not fit (UsageError).

    Example:
        >>> from onnx import parser
        >>> import rewriter
        >>> model = parser.parse_model('''<ir_version: 8, opset_import: ["" : 18]>
        ...     agraph (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }''')
        >>> rewriter.compare(model, seconds=0.1).agrees
        True
    """
    from rewriter.comparing.comparison import Settings, compare_sides
    from rewriter.comparing.models import from_object, fused_from
    from rewriter.comparing.sweep import parse
    from rewriter.fusing import choose_patterns

    chosen = choose_patterns(patterns)
    settings = Settings(seconds=seconds, threads=threads, providers=tuple(providers), dims=dict(dims or {}),
                        given=dict(inputs or {}), seed=seed, swept=parse(sweep) if sweep else None, module=module,
                        progress=progress)
    with tempfile.TemporaryDirectory(prefix="warpfuse-") as scratch:
        before = from_object(unfused, "unfused", scratch)
        after = fused_from(before, chosen, scratch) if fused is None else from_object(fused, "fused", scratch)
        return compare_sides(before, after, settings)
