"""What every source offers: a description, then frames in presentation order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from raven.frame.format import Frame, FrameFormat


@dataclass(frozen=True)
class SourceInfo:
    """What is known of a source before its first frame.

    Attributes
    ----------
    uri : str
        As the user gave it.
    format : FrameFormat
        Of the first frame.
    time_base : Fraction
        Seconds a unit of ``Frame.pts``.
    frame_rate : Fraction or None
        Average frames a second as a rational (24000/1001), or None for a folder of images.
    frames : int or None
        Number of frames, when the container says.
    duration : float or None
        Seconds, when the container says.
    color : dict
        Tags to hand to an encoder unchanged: ``color_primaries``, ``color_trc``, ``colorspace``, ``color_range``
        (FFmpeg's integers; absent when untagged).
    live : bool
        A live source drops old frames; others never do.
    kind : str
        ``video``, ``images``.
    """

    uri: str
    format: FrameFormat
    time_base: Fraction
    frame_rate: Fraction | None
    frames: int | None
    duration: float | None
    color: dict[str, Any]
    live: bool = False
    kind: str = "video"


class Source(Protocol):
    """A stream of frames. ``close`` is idempotent and may be called from another thread to end a blocked read."""

    info: SourceInfo
    #: One-line notices for the user (a conversion, a repaired timestamp), read after opening and at the end.
    notices: list[str]

    def __iter__(self) -> Iterator[Frame]: ...

    def close(self) -> None: ...
