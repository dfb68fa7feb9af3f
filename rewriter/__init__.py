"""onnx-warpfuse: finds geometry in exported ONNX models by what it computes, and gives it its name back.

    report = rewriter.fuse("model.onnx", "fused.onnx")      # files
    fused, report = rewriter.fuse(model)                    # objects: the same kind comes back

`python -m rewriter --help` is the same as a command.
"""

from __future__ import annotations

from rewriter.errors import RewriterError
from rewriter.fusing import fuse
from rewriter.report import Report
from rewriter.vocabulary import Match, Miss, Operator, Pattern

__version__ = "0.1.0"
__all__ = ["Match", "Miss", "Operator", "Pattern", "Report", "RewriterError", "__version__", "fuse"]
