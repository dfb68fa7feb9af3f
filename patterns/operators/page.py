"""The page that fixes `custom.ops`, rendered from the operators: `python -m patterns.operators.page [PATH]`.

Without a path it goes to standard output.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence

from patterns.operators import OPERATORS
from rewriter.vocabulary import DOMAIN, DOMAIN_VERSION, Operator

HEAD = f"""\
<!-- Rendered by `python -m patterns.operators.page rewriter/docs/custom_ops.md`; a test holds it to the code. -->
# `{DOMAIN}`, version {DOMAIN_VERSION}

What this page says holds for every kernel, plugin, converter and fallback function of these operators, and for every
file that holds them.

**Versions.** Version {DOMAIN_VERSION} is final: a file fused by any release runs, with the same meaning, with every
later library. Operators may be added to it; none is changed or removed, and none gets a new input or attribute. What
would change a meaning gets a new version of the domain, and libraries then register both.

**Files.** A fused model imports `{DOMAIN}` {DOMAIN_VERSION} and carries one function for each operator it uses, without
overloads, generated for the model's `ai.onnx` version and for its uses there; a registered kernel wins over it. All
attributes below are written on every node, since a function's defaults reach no kernel; a reader still honours the
defaults. Nodes may carry further attributes, which serve the functions only (such as `perm`, `dtype`, `fold`): their
names and meanings are not fixed, and kernels ignore every attribute that is not listed here.

**Batch rule** (AffineGrid, AffineGridSample). theta's batch and size[0] broadcast against each other: they are equal,
or one of them is 1 and adapts. Anything else is an error. So a grid of constant extent and dynamic batch carries the
constant size (1, 1, H, W).
"""

FOOT = """\
## Not `ai.onnx::AffineGrid`

| | `custom.ops::AffineGrid` | `ai.onnx::AffineGrid` |
|---|---|---|
| axis of length 1, align_corners = 1 | coordinate 0, as PyTorch | -1 in onnx's reference, 1 in ONNX Runtime |
| size[0] unlike theta's batch | either may be 1 | must be equal |
| size | (N, C, [D,] H, W), C ignored | the same |
| first `ai.onnx` version | 11 | 20 |
| bfloat16, float16 | computed in float32, rounded once | left to the runtime |

On all other inputs the two are equal up to rounding.
"""


def render(operators: Sequence[Operator] = tuple(OPERATORS.values())) -> str:
    """The page in Markdown."""
    return "\n".join([HEAD, *(_section(operator) for operator in operators), FOOT])


def _section(operator: Operator) -> str:
    lines = [f"## {operator.name}", "",
             f"`{operator.signature}`, from `ai.onnx` {operator.since} on. {operator.summary}", ""]
    tables = (("Input", operator.inputs), ("Attribute", operator.attributes), ("Output", operator.outputs))
    for title, rows in tables:
        lines += [f"| {title} | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows), ""]
    return "\n".join([*lines, *(f"- {sentence}" for sentence in operator.edge_cases), ""])


def main(arguments: Sequence[str]) -> int:
    if arguments:
        pathlib.Path(arguments[0]).write_text(render(), encoding="utf-8")
    else:
        sys.stdout.write(render())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
