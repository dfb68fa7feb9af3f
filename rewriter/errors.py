"""Everything that can go wrong and is nobody's bug, one class each, with the exit code the command line gives it."""

from __future__ import annotations

from typing import ClassVar


class RewriterError(Exception):
    """Base of every error raised on purpose. `str(error)` is one line: what is wrong, where, and what to do.

    Attributes:
        exit_code: of `python -m rewriter`.
        meaning: what the exit code says, for `--help`.
    """

    exit_code: ClassVar[int] = 1
    meaning: ClassVar[str] = "an error without a code of its own"


class UsageError(RewriterError, ValueError):
    """An argument that makes no sense: an unknown pattern, no output."""

    exit_code = 2
    meaning = "the command line is wrong"


class MissingFileError(RewriterError):
    """The input file does not exist or cannot be read."""

    exit_code = 3
    meaning = "the input does not exist or cannot be read"


class DirectoryError(RewriterError):
    """The input is a directory."""

    exit_code = 4
    meaning = "the input is a directory"


class NotOnnxError(RewriterError):
    """The input does not parse as an ONNX model: another format, or truncated."""

    exit_code = 5
    meaning = "the input is not an ONNX model, or is cut short"


class InvalidModelError(RewriterError):
    """`onnx.checker` (plain, not full) refuses the model, or onnx_ir cannot represent it."""

    exit_code = 6
    meaning = "onnx.checker refuses the model"


class ExternalDataError(RewriterError):
    """A tensor's external data is missing, shorter than the tensor, or not below the model's folder."""

    exit_code = 7
    meaning = "external data is missing, too short, or outside the model's folder"


class OutputError(RewriterError):
    """The output cannot be written; whatever was there before is still there."""

    exit_code = 8
    meaning = "the output cannot be written (what was there before still is)"


class RunError(RewriterError):
    """A runtime does not load or run a model that is to be timed."""

    exit_code = 9
    meaning = "the model that --time or --compare was to run cannot be run"


class InternalError(RewriterError):
    """A bug: a pattern or the engine raised what it must not, or made an invalid model. Nothing was written."""

    exit_code = 10
    meaning = "a bug of onnx-warpfuse; nothing was written"


class KernelsError(RewriterError):
    """The library of kernels is not part of this installation, or ONNX Runtime does not load it."""

    exit_code = 12
    meaning = "the kernels are not part of this installation, or ONNX Runtime does not load them"


class MismatchError(RewriterError):
    """Fused, a model gives other values than before, beyond the tolerance."""

    exit_code = 14
    meaning = "--compare: the fused model's values are not the unfused model's"


class InterfaceError(RewriterError):
    """Two models that are to be compared do not have the same inputs and outputs."""

    exit_code = 15
    meaning = "--compare-only: the models do not have the same inputs and outputs"


class SomeFailedError(RewriterError):
    """Of many models some were fused and some failed."""

    exit_code = 16
    meaning = "--out-dir: some of the models failed"


class AllFailedError(RewriterError):
    """Of many models none was fused."""

    exit_code = 17
    meaning = "--out-dir: all of the models failed"


class TargetError(RewriterError):
    """The model holds something of ours that the target cannot be given; the message names the node and the reason."""

    exit_code = 13
    meaning = "the target that was asked for cannot run a node of the fused model"


CLOSED_PIPE = 141  # exit code where the reader of our output has left, as shells give it
KEPT_GOING = 11  # exit code where --keep-going wrote the input through after an InternalError


def exit_codes() -> dict[int, str]:
    """Every exit code with its meaning, in order; `--help` and the documentation are made from this."""
    codes = {0: "done, also where there was nothing to fuse",
             KEPT_GOING: "as 10, but --keep-going wrote the input through unchanged",
             CLOSED_PIPE: "what is printed was not read to its end; the model is written",
             130: "interrupted (143: terminated); no file was left half written"}
    codes.update((kind.exit_code, kind.meaning) for kind in RewriterError.__subclasses__())
    return dict(sorted(codes.items()))
