"""Encoded video files that survive a crash: written in fragments under a partial name, put in place when whole."""

from __future__ import annotations

import contextlib
import logging
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.error
import numpy as np
from av.video.reformatter import VideoReformatter

from raven.errors import SinkError
from raven.sinks.base import DrawnFrame, StreamInfo
from raven.sinks.encoder import ENCODERS, choose_encoder, encoder_options, open_encoder
from raven.sinks.paths import partial_path, put_in_place, reason, resolve_target

log = logging.getLogger("raven.sinks.video")

#: File suffix to FFmpeg's muxer.
CONTAINERS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}

#: Fragments of at most a second, the header with the first of them (so that an edit list can say where time starts),
#: and an ordinary index at the end: whatever is on the disk plays, and the times stay what they were.
FRAGMENTED = {"movflags": "hybrid_fragmented+delay_moov+frag_keyframe", "frag_duration": "1000000"}
EAGER = {"flush_packets": "1"}

USUAL_RATE = Fraction(25)


class VideoSink:
    """Writes H.264 or H.265 in MP4, MOV or Matroska.

    Times are kept in the source's units, so a variable frame rate stays as it was (Matroska itself rounds to
    milliseconds). While it is written, ``out.mp4`` is ``out.partial.mp4``; that name stays, playable, after a fault.

    Parameters
    ----------
    path : str
        Output file, suffix .mp4, .m4v, .mov or .mkv.
    encoder : {'auto', 'libx264', 'libx265', 'h264_nvenc', 'hevc_nvenc'}
    quality : float, optional
        Constant rate factor, 0 (best) to 51.
    preset : str, optional
        Speed against size, in the encoder's words.

    Raises
    ------
    SinkError
        The suffix or the encoder is unknown. `open` raises it for what cannot be written.
    UsageError
        Quality or preset are out of range.
    """

    wants = frozenset({"nv12"})

    def __init__(
        self,
        path: str | os.PathLike[str],
        encoder: str = "auto",
        quality: float | None = None,
        preset: str | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.notices: list[str] = []
        self._suffix = Path(self.path).suffix.lower()
        if self._suffix not in CONTAINERS:
            raise SinkError(f"{self.path}: no video container ends so; known are {', '.join(CONTAINERS)}")
        self.encoder = choose_encoder(encoder)
        self._options = encoder_options(self.encoder, quality, preset)
        self._container: Any = None
        self._written = 0
        self._cut_short = False
        self._reformatter = VideoReformatter()

    # Opening

    def open(self, info: StreamInfo) -> None:
        """Create the file in progress and open the encoder.

        Raises
        ------
        SinkError
            The directory is missing or not writable, or the encoder does not open.
        """
        self._target = resolve_target(self.path)
        self._partial = partial_path(self._target)
        self._width, self._height = info.width + info.width % 2, info.height + info.height % 2
        self._time_base = info.time_base
        self._frame_seconds = 1 / (info.frame_rate or USUAL_RATE)
        self._frame_units = max(1, round(self._frame_seconds / info.time_base))
        if (self._width, self._height) != (info.width, info.height):
            self.notices.append(
                f"{info.width}x{info.height} is odd: written as {self._width}x{self._height}, as 4:2:0 video needs"
            )
        created = not self._partial.exists()
        try:
            self._start(info)
        except BaseException as error:
            self._discard(remove=created)
            if isinstance(error, (av.error.FFmpegError, OSError)):
                raise SinkError(f"{self.path} cannot be written: {reason(error)}") from None
            raise

    def _start(self, info: StreamInfo) -> None:
        with open(self._partial, "ab"):  # FFmpeg's own words for a failure here are poor
            pass
        fragmented = {} if self._suffix == ".mkv" else FRAGMENTED
        self._container = av.open(
            str(self._partial), "w", format=CONTAINERS[self._suffix], container_options={**fragmented, **EAGER}
        )
        self._stream: Any = self._container.add_stream(self.encoder, rate=info.frame_rate or USUAL_RATE)
        self._configure(self._stream.codec_context, info)
        open_encoder(self._stream.codec_context, self.encoder)
        self._container.start_encoding()

    def _configure(self, context: Any, info: StreamInfo) -> None:
        context.width, context.height = self._width, self._height
        context.pix_fmt = self._pixel_format = ENCODERS[self.encoder][3]
        context.time_base = info.time_base
        context.sample_aspect_ratio = info.sample_aspect_ratio
        context.thread_count = 0
        context.thread_type = "AUTO"  # PyAV's default would have x264 cut each picture into slices
        context.options = self._options
        if self.encoder in ("libx265", "hevc_nvenc") and self._suffix != ".mkv":
            context.codec_tag = "hvc1"  # the tag that Apple's players ask for
        for name, value in info.color.items():
            if not (name == "colorspace" and value == 0):  # 0 is RGB: what is encoded here is not
                setattr(context, name, value)

    # Writing

    def write(self, frame: DrawnFrame) -> None:
        """Encode one frame. Its memory is free again on return.

        Raises
        ------
        SinkError
            The disk is full or the encoder failed. What was written so far stays under the partial name.
        """
        if frame.nv12 is None:
            raise SinkError(f"frame {frame.index} came to {self.path} without its NV12 planes")
        picture = wrap_nv12(frame.nv12, self._width, self._height)
        if self._pixel_format != "nv12":
            # By one thread: swscale with several gave wrong rows now and then.
            picture = self._reformatter.reformat(picture, format=self._pixel_format, threads=1)
        picture.pts, picture.time_base = frame.pts, self._time_base
        self._mux(picture)
        self._written += 1

    def _mux(self, picture: av.VideoFrame | None) -> None:
        try:
            for packet in self._stream.encode(picture):
                packet.duration = self._frame_units  # counts for the last frame alone: the others end with the next
                self._container.mux_one(packet)
        except (av.error.FFmpegError, OSError) as error:
            self._cut_short = True
            raise SinkError(self._failed(error)) from None

    def _failed(self, error: BaseException) -> str:
        return f"{self.path} cannot be written on: {reason(error)}; what is finished is kept in {self._partial.name}"

    def close(self) -> None:
        """Finish the file and give it its name.

        Raises
        ------
        SinkError
            It cannot be finished; what was written stays under the partial name.
        """
        if self._container is None:
            return
        if not self._written:
            self.abort()
            raise SinkError(f"no frame came to {self.path}: nothing was written")
        self._mux(None)
        container, self._container = self._container, None
        try:
            container.close()
            self._put_in_place()
        except (av.error.FFmpegError, OSError) as error:
            raise SinkError(self._failed(error)) from None

    def _put_in_place(self) -> None:
        if self._suffix == ".mkv":
            put_in_place(self._partial, self._target)
            return
        whole = self._target.with_name(f".{self._target.stem}.finishing{self._suffix}")
        try:
            remux(self._partial, whole, CONTAINERS[self._suffix], self._frame_seconds)
            put_in_place(whole, self._target)
        except (av.error.FFmpegError, OSError) as error:
            whole.unlink(missing_ok=True)
            self.notices.append(
                f"the index of {self.path} stays at its end ({reason(error)}): it plays, but streams late"
            )
            put_in_place(self._partial, self._target)
            return
        self._partial.unlink(missing_ok=True)

    def abort(self) -> None:
        """After a fault: finish what there is under the partial name. Nothing is put under the final name."""
        if self._container is None:
            return
        with contextlib.suppress(SinkError):
            self._mux(None)
        self._discard(remove=not self._written)
        if self._written:
            which = "what was written of" if self._cut_short else "all of"
            message = f"{which} {self._written} finished frames is kept in {self._partial}"
            self.notices.append(message)
            log.warning(message)

    def _discard(self, remove: bool) -> None:
        container, self._container = self._container, None
        if container is not None:
            with contextlib.suppress(av.error.FFmpegError, OSError):
                container.close()
        if remove:
            with contextlib.suppress(OSError):
                self._partial.unlink(missing_ok=True)


def wrap_nv12(nv12: np.ndarray, width: int, height: int) -> av.VideoFrame:
    """An FFmpeg picture over the planes of ``nv12``, without a copy where NumPy lets its memory be shared.

    Parameters
    ----------
    nv12 : numpy.ndarray
        ``(height + height // 2, stride)`` uint8, stride at least ``width``.
    width, height : int
        Even size in pixels.

    Raises
    ------
    SinkError
        The array has another shape.
    """
    rows, stride = nv12.shape
    if rows != height + height // 2 or stride < width:
        raise SinkError(f"NV12 of {stride}x{rows} bytes does not hold {width}x{height}: a frame changed its size")
    luma, chroma = nv12[:height, :width], nv12[height:, :width]
    try:
        return av.VideoFrame.from_dlpack((luma, chroma), format="nv12", width=width, height=height)
    except (BufferError, ValueError, TypeError):  # read-only, or columns apart
        picture = av.VideoFrame(width, height, "nv12")
        for plane, values in zip(picture.planes, (luma, chroma), strict=True):
            np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, -1)[:, :width] = values
        return picture


def remux(source: Path, target: Path, muxer: str, frame_seconds: Fraction) -> None:
    """Copy the packets of ``source`` into an ordinary MP4 or MOV with the index at its start.

    ``frame_seconds`` is how long a frame usually lasts. It is said anew, because an MP4 stores what lies between two
    decoding times instead, and with a variable rate and B-frames the whole would seem to last longer than it does.
    """
    options = {"movflags": "faststart"}
    with av.open(str(source)) as old, av.open(str(target), "w", format=muxer, container_options=options) as new:
        stream = old.streams.video[0]
        copy = new.add_stream_from_template(stream, opaque=True)
        duration = max(1, round(frame_seconds / (stream.time_base or 1)))
        copy.codec_context.codec_tag = stream.codec_context.codec_tag
        for packet in old.demux(stream):
            if packet.dts is not None:
                packet.stream, packet.duration = copy, duration
                new.mux(packet)
