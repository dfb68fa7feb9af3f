"""What the measurements were made on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def physical_cores() -> int:
    """Cores that this process may use, two threads of one core counted once; at least 1."""
    try:
        usable = os.sched_getaffinity(0)
    except AttributeError:  # not Linux
        return max(1, os.cpu_count() or 1)
    try:
        cores = {tuple((_TOPOLOGY / f"cpu{cpu}" / "topology" / name).read_text().strip()
                       for name in ("physical_package_id", "core_id")) for cpu in usable}
    except OSError:
        cores = usable
    return max(1, min(len(cores), _quota()))


def cpu_name() -> str:
    """The processor in its maker's words, or the architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown processor"


def load() -> float | None:
    """How many cores' worth of work the machine had in the last minute, where the system tells."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _quota() -> int:
    """CPUs that a container may use at once, rounded up."""
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, -(-int(quota) // int(period)))
    except (OSError, ValueError):  # none is set
        return os.cpu_count() or 1
