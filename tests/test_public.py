"""The names and promises of the public face."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import subprocess
import sys

import rewriter
from rewriter import errors


def test_names():
    assert sorted(rewriter.__all__) == [
        "Match", "Miss", "Operator", "Pattern", "Report", "RewriterError", "__version__", "compare", "fuse", "inline",
        "library_path", "session_options"]
    assert all(inspect.getdoc(getattr(rewriter, name)) for name in rewriter.__all__ if name != "__version__")


def test_signature_of_fuse():
    parameters = inspect.signature(rewriter.fuse).parameters
    assert list(parameters) == [
        "model", "output", "patterns", "target", "dry_run", "in_place", "data_dir", "data",
        "overwrite_data", "follow_input_size"]
    assert [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY] == [
        "patterns", "target", "dry_run", "in_place", "data_dir", "data", "overwrite_data",
        "follow_input_size"]
    assert (parameters["in_place"].default, parameters["dry_run"].default) == (False, False)


def test_version_is_the_distributions():
    assert rewriter.__version__ == importlib.metadata.version("onnx-warpfuse")


def test_exit_codes_are_distinct_and_documented():
    kinds = errors.RewriterError.__subclasses__()
    assert len({kind.exit_code for kind in kinds}) == len(kinds)
    others = {0, 130, errors.CLOSED_PIPE, errors.KEPT_GOING}
    assert set(errors.exit_codes()) == others | {kind.exit_code for kind in kinds}
    assert all(inspect.getdoc(kind) and kind.meaning for kind in kinds)


def test_import_is_light():
    program = ("import rewriter, rewriter.cli, sys, json; "
               "print(json.dumps([m for m in ('torch', 'onnxruntime', 'onnxscript', 'onnx_graphsurgeon') "
               "if m in sys.modules]))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_report_is_plain_data():
    report = rewriter.Report(warnings=["w"])
    assert json.loads(json.dumps(report.to_dict()))["warnings"] == ["w"]
    assert not report.changed
