"""Frames as image files, one each, encoded by a few threads and put in place one by one."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from PIL import Image

from raven.errors import SinkError
from raven.sinks.base import DrawnFrame, StreamInfo
from raven.sinks.paths import NUMBER_FIELD, check_directory, reason, resolve_target

log = logging.getLogger("raven.sinks.images")

#: File suffix to Pillow's format and options.
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "jpg": ("JPEG", {"quality": 95}),
    "jpeg": ("JPEG", {"quality": 95}),
    "png": ("PNG", {"compress_level": 3}),
}

THREADS = 2
WAITING = 4  # images encoded or waiting: beyond that, `write` waits


class ImageDirSink:
    """Writes each frame as a JPEG or PNG.

    Parameters
    ----------
    path : str
        A directory (made if its parent is there), a pattern such as ``out/frame_%06d.png``, or one image file for a
        source of one image.
    format : {'jpg', 'png'}
        For a directory; a pattern or file says it by its suffix.

    Raises
    ------
    SinkError
        The format is unknown. `open` raises it for what cannot be written.
    """

    wants = frozenset({"rgba"})

    def __init__(self, path: str | os.PathLike[str], format: str = "jpg") -> None:
        self.path = os.fspath(path)
        self.notices: list[str] = []
        suffix = os.path.splitext(self.path)[1].lower().removeprefix(".")
        self._pattern = bool(NUMBER_FIELD.search(os.path.basename(self.path)))
        self._single = not self._pattern and suffix in FORMATS and not os.path.isdir(self.path)
        self.format = suffix if self._pattern or self._single else format
        if self.format not in FORMATS:
            raise SinkError(f"{self.path}: images are written as {', '.join(FORMATS)}, not as {self.format!r}")
        self._taken: set[str] = set()
        self._pending: deque[Future[None]] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._written = 0

    def open(self, info: StreamInfo) -> None:
        """Make the directory.

        Raises
        ------
        SinkError
        """
        if self._single:
            self._directory = resolve_target(self.path).parent
        else:
            self._directory = Path(os.path.dirname(self.path) or "." if self._pattern else self.path)
            self._make_directory()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="raven-images")

    def _make_directory(self) -> None:
        if self._directory.exists() and not self._directory.is_dir():
            raise SinkError(f"{self._directory} is a file: give a directory for the images")
        try:
            self._directory.mkdir(exist_ok=True)
        except OSError as error:
            raise SinkError(f"the directory {self._directory} cannot be made: {reason(error)}") from None
        check_directory(self._directory, self.path)

    def write(self, frame: DrawnFrame) -> None:
        """Hand one frame to the writers; its memory is free again on return.

        Raises
        ------
        SinkError
            This frame, or an earlier one, cannot be written.
        """
        if frame.rgba is None:
            raise SinkError(f"frame {frame.index} came to {self.path} without its RGBA picture")
        assert self._pool is not None, "write before open"
        target = self._directory / self._name(frame)
        self._reap(WAITING - 1)
        image = Image.fromarray(frame.rgba).convert("RGB")  # this copies
        self._pending.append(self._pool.submit(self._save, image, target))

    def _name(self, frame: DrawnFrame) -> str:
        if self._single:
            if self._taken:
                raise SinkError(f"{self.path} holds one image and a second came: give a directory or a name with %06d")
            name = os.path.basename(self.path)
        elif self._pattern:
            name = NUMBER_FIELD.sub(lambda field: field.group() % frame.index, os.path.basename(self.path))
        else:
            name = self._name_of_source(frame)
        self._taken.add(name)
        return name

    def _name_of_source(self, frame: DrawnFrame) -> str:
        """The source image's name with the new suffix; where two would be one, its own suffix or number tells them."""
        if not frame.name:
            return f"frame_{frame.index:06d}.{self.format}"
        stem = os.path.splitext(frame.name)[0]
        names = (stem, frame.name, f"{frame.name}_{frame.index:06d}")
        return next(f"{n}.{self.format}" for n in names if f"{n}.{self.format}" not in self._taken or n is names[2])

    def _save(self, image: Image.Image, target: Path) -> None:
        kind, options = FORMATS[self.format]
        partial = target.with_name(f".{target.name}.partial")
        try:
            image.save(partial, kind, **options)
            os.replace(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise

    def _reap(self, most: int) -> None:
        """Wait until at most ``most`` images are on their way, and raise what went wrong with any that is through."""
        while self._pending and (len(self._pending) > most or self._pending[0].done()):
            future = self._pending.popleft()
            try:
                future.result()
            except (OSError, ValueError) as error:
                kept = f"{self._written} images are finished"
                raise SinkError(f"{self.path}: an image cannot be written: {reason(error)}; {kept}") from None
            self._written += 1

    def close(self) -> None:
        """Wait for the last images.

        Raises
        ------
        SinkError
            One of them cannot be written.
        """
        if self._pool is None:
            return
        try:
            self._reap(0)
        finally:
            self._stop()

    def abort(self) -> None:
        """After a fault: let the images on their way be finished. Half-written ones are removed."""
        if self._pool is None:
            return
        while self._pending:
            with contextlib.suppress(SinkError):
                self._reap(0)
        self._stop()
        message = f"{self._written} finished images are kept in {self._directory}"
        self.notices.append(message)
        log.warning(message)

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
