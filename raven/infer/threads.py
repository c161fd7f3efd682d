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
