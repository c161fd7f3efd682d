"""Where frames come from: video files, streams, images."""

from __future__ import annotations

import os

from raven.errors import SourceError
from raven.sources.base import Source, SourceInfo
from raven.sources.images import ImageSource, is_image
from raven.sources.video import VideoSource

__all__ = ["ImageSource", "Source", "SourceInfo", "VideoSource", "open_source"]


def open_source(uri: str | os.PathLike[str], frames: int | None = None) -> Source:
    """Open whatever ``uri`` names.

    Parameters
    ----------
    uri : str
        A directory, a pattern (``*?[`` or ``%06d``) or a file of images; anything else is a video file or URL.
    frames : int, optional
        Stop after this many frames.

    Raises
    ------
    SourceError
        One line that names the input, what it was tried as, and what is wrong.
    UsageError
        ``frames`` is below 1.
    """
    name = os.fspath(uri)
    if "://" in name:
        return VideoSource(name, frames)
    if os.path.isdir(name):
        return ImageSource(name, frames)
    if os.path.exists(name):
        return ImageSource(name, frames) if is_image(name) else VideoSource(name, frames)
    if any(mark in name for mark in "*?[%"):
        return ImageSource(name, frames)
    if name.isdecimal():
        raise SourceError(f"{name} is no file (tried as a path); cameras cannot be opened: give a file or a URL")
    raise SourceError(f"{name} does not exist (tried as a video file, an image and a directory): check the name")
