"""Where finished frames go: video files, images, JSON Lines, nowhere."""

from __future__ import annotations

import os

from raven.errors import SinkError
from raven.sinks.base import DrawnFrame, Sink, StreamInfo
from raven.sinks.encoder import available_encoders
from raven.sinks.images import FORMATS, ImageDirSink
from raven.sinks.jsonl import JsonLinesSink
from raven.sinks.null import NullSink
from raven.sinks.paths import check_output
from raven.sinks.video import CONTAINERS, VideoSink

__all__ = [
    "DrawnFrame",
    "ImageDirSink",
    "JsonLinesSink",
    "NullSink",
    "Sink",
    "StreamInfo",
    "VideoSink",
    "available_encoders",
    "check_output",
    "open_sink",
]


def open_sink(
    path: str | os.PathLike[str],
    encoder: str = "auto",
    quality: float | None = None,
    preset: str | None = None,
) -> Sink:
    """The sink that ``path`` asks for by its form; nothing is written before its ``open``.

    Parameters
    ----------
    path : str
        ``.mp4 .m4v .mov .mkv``: video. A directory, a name without suffix, or a name in ``.jpg .png`` (with ``%06d``
        for many): images. ``.jsonl`` or ``-``: JSON Lines.
    encoder, quality, preset
        For video, see `VideoSink`.

    Raises
    ------
    SinkError
        The suffix or the encoder is unknown; the message lists those that are known.
    UsageError
        Quality or preset are out of range.
    """
    name = os.fspath(path)
    suffix = os.path.splitext(name)[1].lower()
    if name == "-" or suffix in (".jsonl", ".ndjson"):
        return JsonLinesSink(name)
    if suffix in CONTAINERS and not os.path.isdir(name):
        return VideoSink(name, encoder, quality, preset)
    if os.path.isdir(name) or name.endswith(os.sep) or not suffix or suffix[1:] in FORMATS:
        return ImageDirSink(name)
    known = ", ".join([*CONTAINERS, *(f".{f}" for f in FORMATS), ".jsonl"])
    raise SinkError(f"{name}: the suffix {suffix} is unknown; known are {known}, and a directory for images")
