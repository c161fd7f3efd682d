"""What a run shows on standard error: a progress bar while it goes on, its figures at the end."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

#: Seconds between two looks of the bar: the callback comes for every frame, and drawing costs a millisecond.
INTERVAL = 0.1


class ProgressBar:
    """A bar with frames, frames a second and time left; nothing where standard error is not a terminal.

    Parameters
    ----------
    shown : bool
        False: never.
    """

    def __init__(self, shown: bool = True) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            auto_refresh=False,
            disable=not (shown and console.is_terminal),
        )
        self._task = self._bar.add_task("frames", total=None, rate="")
        self._last = self._started = 0.0

    def update(self, done: int, total: int | None) -> None:
        """The pipeline's progress callback."""
        now = perf_counter()
        if not self._started:
            self._started = now
        if now - self._last < INTERVAL:
            return
        self._last = now
        seconds = now - self._started
        rate = f"{(done - 1) / seconds:.1f}/s" if seconds else ""
        self._bar.update(self._task, completed=done, total=total, rate=rate, refresh=True)

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()


def print_report(report: Mapping[str, Any]) -> None:
    """Print notices, the figures of a run and a table of its stages to standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for notice in report["notices"]:
        console.print(f"notice: {notice}", markup=False)
    console.print(_summary(report), markup=False)
    if report["stages"]:
        console.print(_stages(report["stages"]))
    for path in report["outputs"]:
        console.print(f"wrote {path}" if path != "-" else "wrote detections to standard output", markup=False)


def _summary(report: Mapping[str, Any]) -> str:
    found = f", {report['detections']} detections" if report["detections"] >= 0 else ""
    lines = [
        f"{report['frames']} frames in {report['seconds']:.2f} s: {report['fps']:.1f} frames/s{found}"
        + (" (interrupted)" if report["interrupted"] else ""),
        f"{report['model']} on {report['backend']}, drawn by {report['device']} ({report['route']} route)",
        f"first frame after {report['first_frame_seconds']:.2f} s, "
        f"host submits {report['host_submit_us'].get('p50', 0):.0f} us a frame, "
        f"reads back {report['bytes_read_back_per_frame'] / 1024:.1f} KiB a frame, "
        f"peak memory {report['peak_memory_mib']:.0f} MiB",
    ]
    if report["overflowed"]:
        lines.append(f"{report['overflowed']} frames had more detections than --max-det")
    return "\n".join(lines)


def _stages(stages: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("stage")
    for title in ("mean ms", "p50 ms", "p99 ms", "busy"):
        table.add_column(title, justify="right")
    for name, row in stages.items():
        numbers = [f"{row[key]:.2f}" for key in ("mean_ms", "p50_ms", "p99_ms")]
        table.add_row(name, *numbers, f"{row['share']:.0%}")
    return table
