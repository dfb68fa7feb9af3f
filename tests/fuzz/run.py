"""A coverage-guided fuzzer (atheris) over the reader and over the pass, on mutations of real models.

    python tests/fuzz/run.py --seconds 60                  # a time-boxed run, from the seeds
    python tests/fuzz/run.py --seconds 3600 --corpus DIR   # goes on from, and adds to, a folder of inputs

The last line has the executions and findings; a finding is kept as `crash-*` in the folder, and its seed belongs into
`test_fuzz.py`. Not collected by pytest.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
MEMORY = 4096  # MB
PATIENCE = 60  # seconds for one input


def fuzz(corpus: str, seconds: int) -> None:
    """Run atheris in this process, which it ends."""
    import atheris

    with atheris.instrument_imports(include=["rewriter", "patterns"]):
        from fuzz.targets import read_and_fuse

        import rewriter.fusing
        import rewriter.opening  # noqa: F401
        from patterns import ALL  # noqa: F401
    from fuzz.mutating import mutate

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        made = mutate(data, seed)
        return made if len(made) <= most else data[:most]

    atheris.Setup([sys.argv[0], corpus, f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY}", f"-timeout={PATIENCE}",
                   "-max_len=60000", "-print_final_stats=1", f"-artifact_prefix={corpus}/", "-verbosity=1"],
                  lambda data: read_and_fuse(data) and None, custom_mutator=mutator)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the reader and the pass.")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", help="folder of inputs; default: a temporary one")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        fuzz(options.corpus, options.seconds)
        return 0
    from fuzz.seeds import models, strangers

    with tempfile.TemporaryDirectory() as temporary:
        corpus = Path(options.corpus or temporary)
        corpus.mkdir(parents=True, exist_ok=True)
        for name, data in {**models(), **strangers()}.items():
            (corpus / f"seed-{name}").write_bytes(data)
        limit = 2 * MEMORY << 20
        child = subprocess.run(
            [sys.executable, __file__, "--child", "--corpus", str(corpus), "--seconds", str(options.seconds)],
            capture_output=True, text=True, errors="replace", check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit * 4, limit * 4)),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        done = re.search(r"stat::number_of_executed_units:\s*(\d+)", child.stderr)
        findings = sorted(path.name for path in corpus.glob("*-*") if re.match("crash|timeout|oom|leak", path.name))
        if findings or child.returncode:
            print("\n".join(child.stderr.splitlines()[-40:]))
        inputs = len(list(corpus.iterdir()))
        print(f"{int(done[1]) if done else 0:,} executions, {len(findings)} findings, {inputs} inputs in the corpus")
        if findings and options.corpus is None:
            for name in findings:
                (Path.cwd() / name).write_bytes((corpus / name).read_bytes())
        return 1 if findings or child.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
