"""Small clips and images for tests, and what FFmpeg's own tools say about them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

needs_ffmpeg = pytest.mark.skipif(
    not (shutil.which("ffmpeg") and shutil.which("ffprobe")), reason="needs the ffmpeg and ffprobe programs as oracles"
)

X264 = {"crf": "12", "preset": "ultrafast", "g": "12"}


def luma(index: int, width: int, height: int) -> np.ndarray:
    """A picture that tells its index and its orientation: a ramp, a bright corner at the top left, a moving bar."""
    ramp = np.add.outer(np.arange(height) * 2, np.arange(width)) % 128 + 32
    picture = ramp.astype(np.uint8)
    picture[: height // 4, : width // 4] = 235
    left = index * 4 % (width - 4)
    picture[height // 2 : height // 2 + 4, left : left + 4] = 16
    return picture


def picture(index: int, width: int, height: int, pix_fmt: str = "yuv420p") -> av.VideoFrame:
    """`luma` with some colour, in any pixel format. One thread: swscale with several gives wrong rows now and then."""
    grey = luma(index, width, height)
    rgb = np.stack([grey, np.roll(grey, index, 0), 255 - grey], axis=-1)
    return av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24").reformat(format=pix_fmt, threads=1)


def make_clip(
    path: Path,
    frames: int = 24,
    size: tuple[int, int] = (64, 48),
    rate: Fraction = Fraction(25),
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    pts: Sequence[int] | None = None,
    time_base: Fraction | None = None,
    tags: Mapping[str, int] | None = None,
    turn: tuple[float, bool, bool] | None = None,
    sar: Fraction | None = None,
    options: Mapping[str, str] | None = None,
    container_options: Mapping[str, str] | None = None,
) -> Path:
    """Write a clip with PyAV and return its path.

    Parameters
    ----------
    pts, time_base
        Presentation times and their unit, for a variable frame rate; else one frame every ``1 / rate``.
    tags
        Attributes of the codec context: ``colorspace``, ``color_range``...
    turn
        Counter-clockwise degrees, horizontal and vertical flip for the display matrix.
    """
    width, height = size
    with av.open(str(path), "w", container_options=dict(container_options or {})) as out:
        stream = out.add_stream(codec, rate=rate, options=dict(X264 if options is None else options))
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        base = time_base or 1 / rate
        stream.codec_context.time_base = base
        if sar is not None:
            stream.codec_context.sample_aspect_ratio = sar
        for name, value in (tags or {}).items():
            setattr(stream.codec_context, name, value)
        if turn is not None:
            stream.set_display_rotation(turn[0], hflip=turn[1], vflip=turn[2])
        out.start_encoding()
        for i in range(frames):
            frame = picture(i, width, height, pix_fmt)
            frame.pts, frame.time_base = (i if pts is None else pts[i]), base
            for name, value in (tags or {}).items():
                setattr(frame, name, value)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def make_sound(path: Path, codec: str = "aac", seconds: float = 0.3, cover: Path | None = None) -> Path:
    """A file of sound alone, by the ffmpeg program; ``cover`` is attached as a picture."""
    art = (
        ["-i", str(cover), "-map", "0", "-map", "1", "-c:v", "copy", "-disposition:v", "attached_pic"] if cover else []
    )
    ffmpeg("-f", "lavfi", "-i", f"sine=duration={seconds}", *art, "-c:a", codec, str(path))
    return path


def ffmpeg(*arguments: str) -> bytes:
    """Run ffmpeg quietly and return what it wrote to standard output."""
    command = ["ffmpeg", "-v", "error", "-y", *arguments]
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60).stdout


def ffprobe(path: Path, entries: str) -> Any:
    """What ffprobe says of the first video stream, as parsed JSON."""
    command = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", entries, "-of", "json", str(path)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60).stdout)


def probed_pts(path: Path) -> list[int]:
    """Presentation times by ffprobe, in stream units."""
    return [int(f["best_effort_timestamp"]) for f in ffprobe(path, "frame=best_effort_timestamp")["frames"]]


def raw_frames(path: Path, pix_fmt: str, frame_bytes: int, upright: bool = False) -> list[bytes]:
    """Every frame as ffmpeg decodes it, without dropping or doubling any."""
    turn = [] if upright else ["-noautorotate"]
    flags = ["-sws_flags", "bilinear+accurate_rnd+full_chroma_int+full_chroma_inp"]
    data = ffmpeg(*turn, "-i", str(path), "-vsync", "passthrough", *flags, "-pix_fmt", pix_fmt, "-f", "rawvideo", "-")
    assert len(data) % frame_bytes == 0
    return [data[i : i + frame_bytes] for i in range(0, len(data), frame_bytes)]


def planes_as_bytes(planes: Iterable[np.ndarray]) -> bytes:
    """Planes one after the other without padding, as ffmpeg's rawvideo has them."""
    return b"".join(np.ascontiguousarray(p).tobytes() for p in planes)


def make_image(path: Path, size: tuple[int, int] = (20, 12), orientation: int | None = None, value: int = 0) -> Path:
    """A picture without symmetry, with an EXIF orientation if asked."""
    width, height = size
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([x * 255 // width, y * 255 // height, np.full_like(x, value)], axis=-1).astype(np.uint8)
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    image.save(path, exif=exif)
    return path
