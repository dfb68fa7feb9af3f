"""Composes models at random, fuses them, and holds fused against unfused in ONNX Runtime.

    WARPFUSE_CASES=folder python tests/soak/run.py --count 20000 --seed 0 --jobs 2

Seeds are worked on in chunks, each in a process of its own, so that a crash costs one model and is counted. Not
collected by pytest; `test_soak.py` runs a few, and the seeds of what was ever found.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import faulthandler
import json
import random
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from soak.compose import Composed, compose
from soak.mutations import mutate
from soak.oracle import Verdict, judge
from soak.parts import Part, folders, load, opsets

CHUNK = 100
MOST_PARTS = 3
PATIENCE = 1200  # seconds for a chunk


def model_of(seed: int, parts: tuple[Part, ...]) -> tuple[Composed, random.Random]:
    """The model of a seed, and the generator for what else is drawn."""
    rng = random.Random(seed)
    opset = rng.choice(opsets(parts))
    fitting = [part for part in parts if part.opset == opset]
    made = compose([rng.choice(fitting) for _ in range(rng.randint(1, MOST_PARTS))], rng)
    mutate(made, rng)
    return made, rng


def try_seed(seed: int, parts: tuple[Part, ...], *, kernels: bool) -> dict:
    """Verdict, reason, story and counts of one seed."""
    made, rng = model_of(seed, parts)
    verdict, reason, counts = judge(made, rng, kernels=kernels)
    return {"seed": seed, "verdict": verdict.name, "reason": reason, "story": made.story, "counts": counts}


def _work(options: argparse.Namespace) -> int:
    """What a child does: a line of JSON for each seed."""
    faulthandler.enable()
    parts = load(tuple(folders()))
    for seed in range(options.seed, options.seed + options.count):
        print(json.dumps(try_seed(seed, parts, kernels=not options.no_kernels)), flush=True)
    return 0


def _chunk(first: int, count: int, options: argparse.Namespace) -> list[dict]:
    """A chunk in a child; what kills the child is noted, and the rest goes on in another."""
    done: list[dict] = []
    while len(done) < count:
        command = [sys.executable, __file__, "--child", "--seed", str(first + len(done)), "--count",
                   str(count - len(done)), *(["--no-kernels"] if options.no_kernels else [])]
        try:
            child = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            text, why = child.stdout, f"exit code {child.returncode}{_where(child.stderr)}"
        except subprocess.TimeoutExpired as error:
            text, why = (error.stdout or b"").decode(), f"not done within {PATIENCE} s"
        lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"seed"') and line.endswith("}")]
        done += lines
        if len(done) < count:
            done.append({"seed": first + len(done), "verdict": "CRASHED", "reason": why, "story": [], "counts": {}})
    return done


def _where(errors: str) -> str:
    """The innermost calls of what faulthandler wrote, or else the last line."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    calls = [line for line in lines if line.startswith("File ")][:4] or lines[-1:]
    return "".join(f" < {call}" for call in calls)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuse models composed at random and compare.")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-kernels", action="store_true", help="on functions only")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return _work(options)
    verdicts: collections.Counter[str] = collections.Counter()
    operators: collections.Counter[str] = collections.Counter()
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        starts = range(options.seed, options.seed + options.count, CHUNK)
        last = options.seed + options.count
        for index, results in enumerate(pool.map(lambda start: _chunk(start, min(CHUNK, last - start), options),
                                                 starts)):
            for result in results:
                verdicts[result["verdict"]] += 1
                operators.update(result["counts"])
                if result["verdict"] in ("WRONG", "CRASHED"):
                    print(f"seed {result['seed']}: {result['verdict']}: {result['reason']} | "
                          f"{'; '.join(result['story'])}", flush=True)
            if index % 10 == 9:
                print(f"{sum(verdicts.values())} models after {time.monotonic() - begin:.0f} s: {dict(verdicts)}",
                      flush=True)
    for verdict in Verdict:
        print(f"{verdicts[verdict.name]:>8,}  {verdict.value}")
    print(f"fused: {', '.join(f'{number:,} {name}' for name, number in sorted(operators.items()))}")
    bad = verdicts["WRONG"] + verdicts["CRASHED"]
    print(f"{sum(verdicts.values()):,} models, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
