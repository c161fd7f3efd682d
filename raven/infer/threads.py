"""How many threads a runtime on the host is given."""

from __future__ import annotations

import os
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def physical_cores() -> int:
    """Physical cores that this process may use.

    Hyper-threads of one core share its arithmetic units, and a container's quota may be less than what it sees.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores = len({_core(cpu) for cpu in allowed})
    return max(1, min(cores, _quota(cores)))


def share_cores(cores: int) -> tuple[int, int]:
    """Workers that run the model side by side, and threads that each gives to an operator.

    Frames are independent, so whole frames share the cores better than the parts of one do: on two cores YOLOX-nano
    took 15 ms a frame by one worker with two threads and 10 ms by two with one. From five cores on, workers get more
    threads each, so that memory and latency stay bounded.
    """
    workers = cores if cores <= 4 else max(4, cores // 4)
    return workers, max(1, cores // workers)


def _core(cpu: int) -> tuple[str, str]:
    folder = _TOPOLOGY / f"cpu{cpu}" / "topology"
    try:
        return (folder / "physical_package_id").read_text().strip(), (folder / "core_id").read_text().strip()
    except OSError:
        return "", str(cpu)  # not known: count it as a core of its own


def _quota(otherwise: int) -> int:
    """Whole processors that the control group grants."""
    try:
        quota, period = _QUOTA.read_text().split()
        return int(quota) // int(period)
    except (OSError, ValueError):  # no such file, or "max"
        return otherwise
