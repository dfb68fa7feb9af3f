"""One variant, in the process it has for itself: open it, feed it, run it, time it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np

from rewriter.comparing.sessions import bound, make_session, outputs_of, to_value

SETTLE = 0.002  # seconds of untimed runs after others have had the caches
LONG = 0.010  # runs of this many seconds fill the caches themselves


class Unavailable(Exception):  # noqa: N818 - no error: the variant is absent
    """The runtime is there, but not what the variant needs of it."""


class Runner:
    """What every variant can do. A subclass makes a session, takes feeds and runs once."""

    def __init__(self):
        self._base = 0

    def open(self, **options) -> tuple[str, float]:
        """Make the session for the first time: the runtime's name with version, and the seconds it took."""
        self.options = options
        name = self.prepare()
        self._base = _memory("VmRSS") or 0
        return name, self.create()

    def create(self) -> float:
        """Make the session anew; seconds."""
        self.drop()
        start = time.perf_counter()
        self.make()
        return time.perf_counter() - start

    def settle(self) -> int | None:
        """Run a few times; `memory`, before anything is copied out."""
        for _ in range(2):
            self.run()
        return self.memory()

    def values(self) -> dict[str, np.ndarray]:
        """One run's outputs by name."""
        return self.fetch(self.run())

    def burst(self, seconds: float) -> list[float]:
        """Run times of a turn that lasts about this long: at least one."""
        start = time.perf_counter()
        self.run()
        took = time.perf_counter() - start
        times = [took] if took > LONG else []
        while not times and time.perf_counter() - start < SETTLE:
            self.run()
        end = time.perf_counter() + (seconds if not times else seconds - took)
        while not times or time.perf_counter() < end:
            begin = time.perf_counter()
            self.run()
            times.append(time.perf_counter() - begin)
        return times

    def memory(self) -> int | None:
        """The most this process used beyond what it did before the model was loaded, in bytes, where Linux tells."""
        peak = _memory("VmHWM")
        return None if peak is None else max(0, peak - self._base)

    def prepare(self) -> str: ...
    def make(self) -> None: ...
    def drop(self) -> None: ...
    def feed(self, arrays: dict[str, np.ndarray]) -> None: ...
    def run(self) -> object: ...
    def fetch(self, outputs: object) -> dict[str, np.ndarray]: ...
    def close(self) -> None: ...


class OnnxRuntime(Runner):
    """A model in ONNX Runtime."""

    def __init__(self):
        super().__init__()
        with contextlib.suppress(ImportError):  # `prepare` tells
            import onnxruntime  # noqa: F401

    def prepare(self) -> str:
        import onnxruntime as ort

        self._session, self._run, self._values = None, None, {}
        provider = self.options.get("provider", "CPUExecutionProvider")
        if provider not in ort.get_available_providers():
            raise Unavailable(f"onnxruntime {ort.__version__} has no {provider}; it has "
                              f"{', '.join(ort.get_available_providers())}")
        return f"ONNX Runtime {ort.__version__}"

    def make(self) -> None:
        path, folder = self.options["path"], self.options["folder"]
        model = Path(path).read_bytes() if folder else path
        self._session = make_session(
            model, folder=folder, **{key: self.options[key] for key in ("threads", "provider", "library")
                                     if key in self.options})

    def drop(self) -> None:
        self._session = self._run = None

    def feed(self, arrays: dict[str, np.ndarray]) -> None:
        self._values, self._run = {name: to_value(array) for name, array in arrays.items()}, None

    def run(self) -> object:
        if self._run is None:
            self._run = bound(self._session, self._values)
        return self._run()

    def fetch(self, outputs) -> dict[str, np.ndarray]:
        return outputs_of(self._session, outputs)


def _memory(field: str) -> int | None:
    """A field of this process's status in bytes; ru_maxrss would start from the parent's."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
