"""What a run says of itself at its end."""

from __future__ import annotations

import json
import os
import resource
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from raven.errors import SinkError
from raven.pipeline.statistics import Durations, Statistics


@dataclass
class Report:
    """Figures of a finished run.

    Attributes
    ----------
    frames : int
        Frames that came out.
    seconds, fps : float
        From the first frame asked for until every output is whole.
    first_frame_seconds : float
        From the start of the process to the first frame written.
    stages : dict
        By stage: ``mean_ms``, ``p50_ms``, ``p99_ms``, and ``share`` (busy part of the run).
    host_submit_us : dict
        ``p50`` and ``p99`` of the host time spent submitting a frame, in microseconds.
    bytes_read_back_per_frame, host_waits_per_frame : float
    allocations_after_warm_up : int
        Vulkan memory blocks and objects made while frames ran: zero, unless picture sizes changed.
    peak_memory_mib : float
        Peak resident memory of the process, MiB.
    detections : int
        Boxes in all, when a sink asked for them; else -1.
    overflowed : int
        Frames with more detections than ``--max-det``, when a sink asked for detections.
    interrupted : bool
    """

    frames: int = 0
    seconds: float = 0.0
    fps: float = 0.0
    first_frame_seconds: float = 0.0
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    host_submit_us: dict[str, float] = field(default_factory=dict)
    bytes_read_back_per_frame: float = 0.0
    host_waits_per_frame: float = 0.0
    allocations_after_warm_up: int = 0
    device: str = ""
    driver: str = ""
    route: str = ""
    backend: str = ""
    model: str = ""
    slots: int = 0
    peak_memory_mib: float = 0.0
    detections: int = -1
    overflowed: int = 0
    interrupted: bool = False
    notices: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``--report`` writes it."""
        return asdict(self)

    def measure(self, statistics: Statistics) -> None:
        """Fill in the stages' figures; ``seconds`` must be set."""
        self.stages = {name: _stage(durations, self.seconds) for name, durations in statistics.stages.items()}
        submit = statistics.submit.summary()
        self.host_submit_us = {"p50": round(submit.p50 / 1e3, 2), "p99": round(submit.p99 / 1e3, 2)}
        self.peak_memory_mib = peak_memory()

    def write(self, path: str) -> None:
        """Write the report as JSON.

        Raises
        ------
        SinkError
            The file cannot be written.
        """
        try:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(self.as_dict(), file, indent=2)
                file.write("\n")
        except OSError as error:
            raise SinkError(
                f"cannot write the report {path}: {os.strerror(error.errno or 0)}; choose another path"
            ) from None


def _stage(durations: Durations, seconds: float) -> dict[str, float]:
    summary = durations.summary()
    return {
        "mean_ms": round(summary.mean / 1e6, 4),
        "p50_ms": round(summary.p50 / 1e6, 4),
        "p99_ms": round(summary.p99 / 1e6, 4),
        "share": round(summary.total / 1e9 / seconds, 4) if seconds else 0.0,
    }


def peak_memory() -> float:
    """Peak resident memory of this process in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)
