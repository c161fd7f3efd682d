"""How long ago this process started."""

from __future__ import annotations

import os
import time
from time import perf_counter

_IMPORTED = perf_counter()


def seconds_since_start() -> float:
    """Seconds since the process was started by the system (since this module's import where that is not known)."""
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return perf_counter() - _IMPORTED
