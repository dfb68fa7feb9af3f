"""onnx-warpfuse: finds geometry in exported ONNX models by what it computes, and gives it its name back.

    report = rewriter.fuse("model.onnx", "fused.onnx")      # files
    fused, report = rewriter.fuse(model)                    # objects: the same kind comes back
    rewriter.compare("model.onnx", "fused.onnx").to_dict()  # values, speed and memory, before and after
    session = onnxruntime.InferenceSession("fused.onnx", rewriter.session_options())    # on our kernels

`python -m rewriter --help` is the same as a command.
"""

from __future__ import annotations

from rewriter.comparing import compare
from rewriter.errors import RewriterError
from rewriter.fusing import fuse, inline
from rewriter.report import Report
from rewriter.runtimes.onnxruntime import library_path, session_options
from rewriter.vocabulary import Match, Miss, Operator, Pattern

__version__ = "0.1.0"
__all__ = ["Match", "Miss", "Operator", "Pattern", "Report", "RewriterError", "__version__", "compare", "fuse",
           "inline", "library_path", "session_options"]
