"""A sink that keeps nothing: for measuring, and for runs whose result is the statistics."""

from __future__ import annotations

from collections.abc import Iterable

from raven.sinks.base import DrawnFrame, StreamInfo


class NullSink:
    """Counts frames and drops them.

    Parameters
    ----------
    wants : iterable of {'nv12', 'rgba', 'detections'}
        What is to be read back all the same, so that its cost is measured.

    Attributes
    ----------
    frames : int
        Frames written so far.
    """

    def __init__(self, wants: Iterable[str] = ()) -> None:
        self.wants = frozenset(wants)
        self.notices: list[str] = []
        self.frames = 0

    def open(self, info: StreamInfo) -> None:
        """Nothing to prepare."""

    def write(self, frame: DrawnFrame) -> None:
        """Count one frame."""
        self.frames += 1

    def close(self) -> None:
        """Nothing to finish."""

    def abort(self) -> None:
        """Nothing to keep."""
