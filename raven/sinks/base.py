"""What every sink offers, and what it is handed: finished frames, in order."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from raven.sources.base import SourceInfo


@dataclass(frozen=True)
class StreamInfo:
    """What a sink is told before the first frame.

    Attributes
    ----------
    width, height : int
        Upright size of the drawn frames, in pixels (as the picture is, before any padding to even).
    time_base : Fraction
        Seconds a unit of ``pts``.
    frame_rate : Fraction or None
        Nominal frames a second.
    sample_aspect_ratio : Fraction
        Of the upright picture.
    color : dict
        Colour tags of the source, see :class:`~raven.sources.base.SourceInfo`.
    source : SourceInfo or None
    class_names : tuple of str
        Names by class id, for sinks that write data.
    """

    width: int
    height: int
    time_base: Fraction
    frame_rate: Fraction | None
    sample_aspect_ratio: Fraction
    color: dict[str, Any]
    source: SourceInfo | None = None
    class_names: tuple[str, ...] = ()


@dataclass
class DrawnFrame:
    """A finished frame as the sinks see it. Arrays are views of GPU-mapped memory: valid only during ``write``.

    Attributes
    ----------
    index, pts
        As of the source frame.
    nv12 : numpy.ndarray or None
        ``(H + H/2, stride)`` uint8: luma rows, then interleaved chroma rows; H and W rounded up to even.
        Columns past the even width are padding. Present when a sink asked for ``nv12``.
    rgba : numpy.ndarray or None
        ``(height, width, 4)`` uint8. Present when a sink asked for ``rgba``.
    detections : numpy.ndarray or None
        ``(n, 8)`` float32 rows x1, y1, x2, y2 (upright source pixels), score, class, track id (-1: none), flags.
        Present when a sink asked for ``detections``.
    name : str or None
        File name of the source image.
    width, height : int
        Size of this upright frame in pixels (images of a folder may differ).
    """

    index: int
    pts: int
    nv12: np.ndarray | None = None
    rgba: np.ndarray | None = None
    detections: np.ndarray | None = None
    name: str | None = None
    width: int = 0
    height: int = 0


class Sink(Protocol):
    """Receives every frame in order, from one thread."""

    #: Any of ``nv12``, ``rgba``, ``detections``: what must be read back for this sink.
    wants: frozenset[str]
    notices: list[str]

    def open(self, info: StreamInfo) -> None:
        """Prepare the output. Raises SinkError when it cannot be written."""
        ...

    def write(self, frame: DrawnFrame) -> None: ...

    def close(self) -> None:
        """Finalise: what was written becomes a playable file under its final name."""
        ...

    def abort(self) -> None:
        """After a fault: keep what was finished playable, leave no half-written file under the final name."""
        ...
