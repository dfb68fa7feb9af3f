"""What runs where, cell by cell: `test_matrix.py` runs every cell, and rewriter/docs/runtimes.md holds the table.

    python tests/targets/matrix.py        # write the table into the page again

A mark is "both", "static" (sizes and shapes that are constant) or "dynamic" (sizes are inputs, every dim is open),
followed by the letters of reasons; letters alone: neither runs; "": no element type of the operator.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "rewriter" / "docs" / "runtimes.md"
FENCE = ("<!-- table: python tests/targets/matrix.py -->\n", "<!-- end of the table -->\n")
DTYPES = ("float16", "bfloat16", "float32", "float64", "integers, bool")


class Reason(NamedTuple):
    """A footnote, and how it shows.

    text: what the page says.
    error: what the exception says, as a regular expression. None: nothing is refused.
    mode, padding_mode: which uses of a sampler it concerns; None: all.
    wrong: those uses run, and give other values; so they do unfused. Without it and `error`, float64 is less exact.
    """

    text: str
    error: str | None = None
    mode: str | None = None
    padding_mode: str | None = None
    wrong: bool = False

    @property
    def part(self) -> bool:
        """Whether it concerns some uses only: the others run."""
        return self.mode is not None

    def concerns(self, attributes: dict) -> bool:
        return self.mode in (None, attributes.get("mode")) and \
            self.padding_mode in (None, attributes.get("padding_mode"))


REASONS = {
    "a": Reason("ONNX Runtime multiplies no bfloat16 on the CPU", r"Could not find an implementation for Mul"),
    "b": Reason("computed in float32"),
    "c": Reason("OpenVINO's GridSample takes images only",
                r"takes images only, not volumes|Conversion is failed for: custom.ops.AffineGridSample"),
    "d": Reason("OpenCV adds no size that is an input to one that is constant", r"All inputs should have equal types"),
    "e": Reason("OpenCV's GridSample takes no float64", r"Unsupported input depth for GridSample"),
    "f": Reason("wrong for cubic with border padding, unfused as well", mode="cubic", padding_mode="border",
                wrong=True),
}
BOTH = ("both", "both", "both", "both", "")
COARSE = ("both", "both", "both", "both b", "")
TURN = ("both",) * 5
PRODUCT = ("both", "a", "both", "both", "")
IMAGES = ("c", "c", "c", "c", "")
CONSTANT = ("static d", "static d", "static d", "static d", "")
GRIDS = {"AffineGrid 2-D": BOTH, "AffineGrid 3-D": BOTH, "AffineGridSample 2-D": BOTH, "AffineGridSample 3-D": BOTH,
         "Rot90": TURN}
OPENVINO = {"AffineGrid 2-D": COARSE, "AffineGrid 3-D": COARSE, "AffineGridSample 2-D": COARSE,
            "AffineGridSample 3-D": IMAGES, "Rot90": (*COARSE[:4], "both"), "CustomRotScale": COARSE}
TABLE = {  # runtime -> operator -> a mark for each of DTYPES
    "ONNX Runtime, functions": GRIDS | {"CustomRotScale": PRODUCT},
    "ONNX Runtime, kernels": GRIDS | {"CustomRotScale": BOTH},
    "ONNX Runtime, `--target stock`": GRIDS | {"CustomRotScale": PRODUCT},
    "onnxruntime-web": GRIDS | {"CustomRotScale": PRODUCT},
    "ReferenceEvaluator": GRIDS | {"AffineGridSample 2-D": ("both f", "both f", "both f", "both b f", ""),
                                   "AffineGridSample 3-D": COARSE, "CustomRotScale": BOTH},
    "OpenVINO, `register(core)`": OPENVINO,
    "OpenVINO, `--target openvino`": OPENVINO,
    "OpenVINO, C++ extension": OPENVINO,
    "OpenCV dnn, `--target stock`": {
        "AffineGrid 2-D": CONSTANT, "AffineGrid 3-D": CONSTANT, "AffineGridSample 2-D": (*CONSTANT[:3], "d e", ""),
        "AffineGridSample 3-D": (*CONSTANT[:3], "d e", ""), "Rot90": TURN, "CustomRotScale": BOTH},
}


def read(mark: str, sizes: str) -> tuple[bool, list[Reason]]:
    """Whether any use runs with such sizes ("static" or "dynamic"), and the reasons that hold for them."""
    word, *letters = mark.split() if mark[:1] and len(mark.split()[0]) > 1 else ["", *mark.split()]
    runs = word in ("both", sizes)
    # beside "static" a reason that concerns every use is the one why the other sizes do not run
    return runs, [REASONS[x] for x in letters if not runs or REASONS[x].part or REASONS[x].error is None]


def render() -> str:
    """The table and its footnotes, in Markdown."""
    lines = [f"| runtime | operator | {' | '.join(DTYPES)} |", "|---" * (len(DTYPES) + 2) + "|"]
    for runtime, rows in TABLE.items():
        merged: dict[tuple, list[str]] = {}
        for operator, marks in rows.items():
            merged.setdefault(marks, []).append(operator)
        for index, (marks, operators) in enumerate(merged.items()):
            lines.append(f"| {runtime if index == 0 else ''} | {', '.join(operators)} | "
                         f"{' | '.join(_shown(mark) for mark in marks)} |")
    lines += ["| TensorRT | all | " + " | ".join(["not run"] * len(DTYPES)) + " |", ""]
    lines += [f"- **{letter}**: {reason.text}." for letter, reason in REASONS.items()]
    return "\n".join(lines) + "\n"


def _shown(mark: str) -> str:
    return re.sub(r"\b([a-z])\b", r"**\1**", mark)


def placed(page: str) -> str:
    """The page with the table between its two comments."""
    before, rest = page.split(FENCE[0])
    _, after = rest.split(FENCE[1])
    return f"{before}{FENCE[0]}\n{render()}\n{FENCE[1]}{after}"


def main() -> int:
    PAGE.write_text(placed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
