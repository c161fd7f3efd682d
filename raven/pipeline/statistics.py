"""Durations of stages, kept in a fixed amount of memory however long the run is."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np

# Buckets grow by 1 % each, from 100 ns to about 4,000 s: percentiles are within 1 %.
_GROWTH = math.log(1.01)
_LEAST = 100.0
_BUCKETS = 2450


@dataclass(frozen=True)
class Summary:
    """Mean, median and 99th percentile of a stage, in nanoseconds, and how often it ran."""

    count: int
    mean: float
    p50: float
    p99: float
    total: float


class Durations:
    """A histogram of durations with logarithmic buckets. Adding is cheap and may come from several threads."""

    def __init__(self) -> None:
        self._buckets = np.zeros(_BUCKETS, np.int64)
        self._count, self._total = 0, 0
        self._lock = threading.Lock()

    def add(self, nanoseconds: int) -> None:
        slot = int(math.log(max(nanoseconds, _LEAST) / _LEAST) / _GROWTH)
        with self._lock:
            self._buckets[min(slot, _BUCKETS - 1)] += 1
            self._count += 1
            self._total += nanoseconds

    def summary(self) -> Summary:
        """What was added so far; zeros when nothing was."""
        if not self._count:
            return Summary(0, 0.0, 0.0, 0.0, 0.0)
        mean = self._total / self._count
        return Summary(self._count, mean, self._percentile(0.5), self._percentile(0.99), float(self._total))

    def _percentile(self, part: float) -> float:
        rank = math.ceil(part * self._count)
        slot = int(np.searchsorted(np.cumsum(self._buckets), rank))
        return _LEAST * math.exp((slot + 0.5) * _GROWTH)


class Statistics:
    """Durations by stage name, in the order of the frame's life."""

    STAGES = ("decode", "upload", "rasterise", "infer", "draw", "write")

    def __init__(self) -> None:
        self.stages = {name: Durations() for name in self.STAGES}
        #: Host time of all the queue submissions of a frame.
        self.submit = Durations()
