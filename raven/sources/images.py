"""Still images as frames: a directory, a pattern, or one file, in natural order, decoded ahead of the reader."""

from __future__ import annotations

import glob
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction

import numpy as np
from PIL import Image, UnidentifiedImageError

from raven.errors import SourceError, UsageError
from raven.frame.format import PIXEL_FORMATS, Frame, FrameFormat
from raven.sources.base import SourceInfo
from raven.sources.orientation import from_exif

#: What counts as an image in a directory.
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".avif", ".jp2"})

THREADS = 2
AHEAD = 4  # images decoded or being decoded beyond the one handed out
_ORIENTATION = 0x0112
_NUMBER_FIELD = re.compile(r"%0?\d*d")


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts ``frame2`` before ``frame10``: runs of digits compare as numbers."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(p), p) if p.isdecimal() else (1, 0, p.lower()) for p in parts if p] + [(2, 0, name)]


def is_image(path: str) -> bool:
    """True when the name ends as an image's does."""
    return os.path.splitext(path)[1].lower() in IMAGE_SUFFIXES


def list_images(uri: str) -> list[str]:
    """Paths that ``uri`` (a directory, a pattern with ``*?[`` or ``%06d``, or a file) stands for, in natural order.

    Raises
    ------
    SourceError
        There are none.
    """
    if os.path.isdir(uri):
        found = [entry.path for entry in os.scandir(uri) if entry.is_file() and is_image(entry.name)]
        if not found:
            raise SourceError(f"{uri} is a directory without images ({_suffixes()}): give a video file or images")
    elif os.path.exists(uri):
        found = [uri]
    else:
        pattern = _NUMBER_FIELD.sub("[0-9]*", uri)
        found = [path for path in glob.glob(pattern) if os.path.isfile(path)]
        if not found:
            raise SourceError(f"no file matches {uri}: check the name or the pattern")
    return sorted(found, key=natural_key)


def _suffixes() -> str:
    return ", ".join(sorted(IMAGE_SUFFIXES))


class ImageSource:
    """Images in natural order, as stored: EXIF orientation is told by the frame's format, not applied.

    Sizes may differ: each frame carries its own format. An unreadable image is skipped with a notice. Transparent
    images are laid over white, 16-bit grey is cut to 8 bits, CMYK and palettes become RGB. Only the first picture of
    an animation counts.

    Parameters
    ----------
    uri : str
        Directory, pattern or file.
    frames : int, optional
        Stop after this many frames.

    Raises
    ------
    SourceError
        Nothing matches, or no image can be read.
    UsageError
        ``frames`` is below 1.
    """

    def __init__(self, uri: str | os.PathLike[str], frames: int | None = None) -> None:
        if frames is not None and frames < 1:
            raise UsageError(f"{frames} frames asked for: the least is 1")
        self.uri = os.fspath(uri)
        self.notices: list[str] = []
        self._limit = frames
        paths = list_images(self.uri)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="raven-images")
        self._images = self._decode_ahead(paths)
        self._first = next(self._images, None)
        if self._first is None:
            self.close()
            raise SourceError(self._none_readable(len(paths)))
        self.info = SourceInfo(
            uri=self.uri,
            format=self._first.format,
            time_base=Fraction(1, 25),
            frame_rate=None,
            frames=min(len(paths), frames or len(paths)),
            duration=None,
            color={},
            kind="images",
        )

    def _none_readable(self, count: int) -> str:
        if count == 1:
            return self.notices[0].removesuffix(": skipped")
        return f"none of the {count} images of {self.uri} can be read; the first: {self.notices[0]}"

    def __iter__(self) -> Iterator[Frame]:
        """Frames in natural order of their names; a source is read once."""
        index = 0
        while self._limit is None or index < self._limit:
            frame, self._first = self._first or next(self._images, None), None
            if frame is None:
                return
            frame.index = frame.pts = index
            yield frame
            index += 1

    def _decode_ahead(self, paths: Iterable[str]) -> Iterator[Frame]:
        """Frames of the readable images, with at most AHEAD decodings waiting."""
        pending: deque[tuple[str, Future[Frame]]] = deque()
        left = iter(paths)
        while True:
            for path in left:
                if not self._submit(path, pending):
                    return
                if len(pending) >= AHEAD:
                    break
            if not pending:
                return
            path, future = pending.popleft()
            if future.cancelled():
                return
            try:
                frame = future.result()
            except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError) as error:
                self.notices.append(f"{path} cannot be read ({_first_line(error)}): skipped")
                continue
            yield frame

    def _submit(self, path: str, pending: deque[tuple[str, Future[Frame]]]) -> bool:
        """False once the source is closed."""
        try:
            pending.append((path, self._pool.submit(read_image, path)))
        except RuntimeError:
            return False
        return True

    def close(self) -> None:
        """Stop decoding ahead. Idempotent, from any thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def read_image(path: str) -> Frame:
    """Decode one image; index and time are 0.

    Raises
    ------
    OSError, ValueError, SyntaxError
        Whatever Pillow makes of a damaged file.
    """
    if os.path.getsize(path) == 0:
        raise OSError("empty, 0 bytes")
    try:
        with Image.open(path) as image:
            image.load()
            # After loading: Pillow turns TIFFs by itself, and takes the tag away when it does.
            mirror, rotation = from_exif(image.getexif().get(_ORIENTATION, 1))
            pixels = to_pixels(image)
    except UnidentifiedImageError:
        raise OSError("no image that Pillow knows") from None
    height, width = pixels.shape[:2]
    pixel = PIXEL_FORMATS["gray" if pixels.ndim == 2 else "rgb24"]
    fmt = FrameFormat(pixel, width, height, full_range=True, rotation=rotation, mirror=mirror)
    return Frame(0, 0, fmt, [pixels.reshape(height, -1)], pixels, os.path.basename(path))


def to_pixels(image: Image.Image) -> np.ndarray:
    """``(height, width)`` grey or ``(height, width, 3)`` RGB, uint8, of an image in any of Pillow's modes."""
    if image.mode.startswith("I") or image.mode == "F":
        return _deep_grey(np.asarray(image))
    if image.mode in ("L", "1") and "transparency" not in image.info:
        return np.array(image.convert("L"))
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return np.array(Image.alpha_composite(white, rgba).convert("RGB"))
    return np.array(image.convert("RGB"))


def _deep_grey(values: np.ndarray) -> np.ndarray:
    """16-bit integers keep their high byte; floats are 0 to 1 if none is above 1, else 0 to 255."""
    if np.issubdtype(values.dtype, np.floating):
        top = np.nanmax(values, initial=0)
        scaled = np.nan_to_num(values) * (255 if top <= 1 else 1)
        values = np.clip(np.rint(scaled), 0, 255)
    else:
        values = np.clip(values.astype(np.int64) >> 8, 0, 255)
    return values.astype(np.uint8)
