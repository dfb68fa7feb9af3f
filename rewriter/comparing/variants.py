"""The ways to run the two models: which there are here, and why others are absent."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence

from rewriter.comparing.report import Variant
from rewriter.errors import RewriterError

REFERENCE, CONTROL = "onnxruntime-unfused", "control"
FUSED, KERNELS = "onnxruntime-fused", "onnxruntime-kernels"
_RUNNERS = "rewriter.comparing.runners"


@dataclasses.dataclass(frozen=True)
class Source:
    """A model file, and the folder its external data lies in ("" if it has none)."""

    path: str
    folder: str = ""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A variant that can be tried.

    Attributes:
        variant: where its outcome goes.
        runner: "module:Class" to be made in a process of its own, or an object to be called in this one.
        options: for its `open`.
    """

    variant: Variant
    runner: object
    options: dict


def plan(unfused: Source, fused: Source, *, threads: int, providers: Sequence[str], scratch: str, custom: bool,
         module: object = None) -> list[Plan]:
    """Every variant, in the order of the table; those with `variant.missing` set are not to be run.

    Args:
        unfused, fused: the models.
        threads: intra-op threads.
        providers: execution providers of ONNX Runtime besides the CPU.
        scratch: folder for files of the runtimes' own.
        custom: whether the fused model has a node of `custom.ops`.
        module: a torch module that computes the same, or None.
    """
    library, no_library = _library() if custom else (None, "the fused model has no node of custom.ops")
    no_openvino = "" if importlib.util.find_spec("openvino") else "openvino is not installed (pip install openvino)"
    ort, openvino = f"{_RUNNERS}:OnnxRuntime", "rewriter.comparing.openvino:OpenVino"

    def of(model: str, **options) -> dict:
        source = unfused if model == "unfused" else fused
        return {"path": source.path, "folder": source.folder, "threads": threads, **options}

    plans = [
        Plan(Variant(REFERENCE, "ORT unfused", "unfused"), ort, of("unfused")),
        Plan(Variant(CONTROL, "ORT unfused again", "unfused", against=REFERENCE), ort, of("unfused")),
        Plan(Variant(FUSED, "ORT fused, functions", "fused", against=REFERENCE), ort, of("fused")),
        Plan(Variant(KERNELS, "ORT fused, kernels", "fused", against=REFERENCE, missing=no_library), ort,
             of("fused", library=library)),
    ]
    for provider in dict.fromkeys(providers):
        if provider == "CPUExecutionProvider":
            continue
        name = provider.removesuffix("ExecutionProvider")
        plans += [Plan(Variant(f"{name}-{model}", f"{name} {model}", model,
                               against="" if model == "unfused" else f"{name}-unfused"), ort,
                       of(model, provider=provider)) for model in ("unfused", "fused")]
    plans += [Plan(Variant(f"openvino-{model}", f"OpenVINO {model}", model, missing=no_openvino,
                           against="" if model == "unfused" else "openvino-unfused"), openvino,
                   of(model, scratch=scratch)) for model in ("unfused", "fused")]
    if module is None:
        plans.append(Plan(Variant("torch", "torch eager", "unfused", missing="rewriter.compare(..., module=...) was "
                                  "not given a torch module"), None, {}))
    else:
        from rewriter.comparing.eager import TorchEager

        plans.append(Plan(Variant("torch", "torch eager", "unfused"), TorchEager(module), {"threads": threads}))
    return plans


def _library() -> tuple[str | None, str]:
    """Path of the kernels, or why there is none."""
    try:
        from rewriter.runtimes.onnxruntime import library_path

        return library_path(), ""
    except ImportError:
        return None, "this onnx-warpfuse has no kernels"
    except RewriterError as error:
        return None, str(error)
