"""Video files and streams, decoded through PyAV: every frame once, in presentation order, planes as stored."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import av.error
import av.logging
import numpy as np
from av.video.stream import VideoStream

from raven.errors import SourceError, UsageError
from raven.frame.format import Frame, FrameFormat
from raven.sources.base import SourceInfo
from raven.sources.orientation import from_display_matrix
from raven.sources.pixels import (
    MATRICES,
    UNSPECIFIED,
    PlaneReader,
    chroma_site_of,
    color_tags,
    is_full_range,
    matrix_of,
)
from raven.sources.tail import Tail
from raven.sources.timing import Timestamps, frame_rate_of

log = logging.getLogger("raven.sources.video")

#: FFmpeg reads plain text as terminal art: never what a user of a video tool means.
NOT_VIDEO = {"tty", "bin", "xbin", "adf", "idf"}
#: Containers that store decoding times only.
DTS_ONLY = {"avi"}
#: Codecs whose untagged grey is limited range, as their colour is.
VIDEO_GREY = {"h264", "hevc", "av1", "libdav1d", "vp8", "vp9", "mpeg2video", "mpeg4", "prores"}
#: Failed reads or packets in a row, up to the end, that make the rest of a source unreadable rather than damaged.
HOPELESS = 25
#: Seconds without an answer after which a network source has failed.
NETWORK_TIMEOUT_S = 10.0


class VideoSource:
    """A video file (or any URL that FFmpeg opens) as a source of frames.

    Damaged packets are skipped and counted in a notice. A file that breaks off delivers what it has, then raises.

    Parameters
    ----------
    uri : str
        Path or URL.
    frames : int, optional
        Stop after this many frames.

    Attributes
    ----------
    info : SourceInfo
    notices : list of str

    Raises
    ------
    SourceError
        The input is missing, empty, no video, or holds no picture that can be decoded.
    UsageError
        ``frames`` is below 1.
    """

    def __init__(self, uri: str | os.PathLike[str], frames: int | None = None) -> None:
        if frames is not None and frames < 1:
            raise UsageError(f"{frames} frames asked for: the least is 1")
        self.uri = os.fspath(uri)
        self.notices: list[str] = []
        self._limit = frames
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._container = open_container(self.uri)
        try:
            self._prepare()
        except BaseException:
            self._container.close()
            raise

    # Opening

    def _prepare(self) -> None:
        self._stream = find_video(self._container, self.uri)
        self._stream.thread_type = "AUTO"
        self._packets = self._broken = self._trailing = self._concealed = self._reshaped = 0
        self._tail = Tail()
        self._fault: str | None = None
        self._decoded = self._decode_all()
        first = next(self._decoded, None)
        if first is None:
            raise SourceError(self._fault or self._no_picture())
        self._first: av.VideoFrame | None = first
        self._reader = PlaneReader(first, self._stream.codec_context.name in VIDEO_GREY)
        self._format = self._describe(first)
        self.info = self._inform(first)
        rate = self.info.frame_rate or Fraction(25)
        self._times = Timestamps(round(1 / rate / self.info.time_base), self._container.format.name in DTS_ONLY)

    def _no_picture(self) -> str:
        if self._packets == 0:
            return f"{self.uri} holds a video stream without any frame: nothing to read"
        return f"{self.uri}: none of its {self._packets} packets can be decoded: the file is damaged"

    def _describe(self, first: av.VideoFrame) -> FrameFormat:
        mirror, rotation = self._orientation(first)
        yuv = self._reader.pixel.yuv
        if self._reader.converted:
            self.notices.append(f"{first.format.name} is read as {self._reader.pixel.name}")
        elif first.format.name.startswith("yuva"):
            self.notices.append(f"the alpha of {first.format.name} is ignored")
        matrix = matrix_of(first.colorspace, first.height)
        if yuv and first.colorspace not in MATRICES and first.colorspace != UNSPECIFIED:
            self.notices.append(f"colour matrix {first.colorspace} of FFmpeg is unknown here: read as {matrix}")
        return FrameFormat(
            self._reader.pixel,
            first.width,
            first.height,
            matrix=matrix,
            full_range=is_full_range(first) if yuv else True,
            chroma_site=chroma_site_of(chroma_location(self._container, self._stream)),
            rotation=rotation,
            mirror=mirror,
            sample_aspect_ratio=Fraction(self._stream.sample_aspect_ratio or 1),
        )

    def _orientation(self, first: av.VideoFrame) -> tuple[bool, int]:
        data: Any = first.side_data.get("DISPLAYMATRIX")
        if data is None:
            return False, 0
        mirror, rotation, exact = from_display_matrix(np.frombuffer(data, np.int32).tolist())
        if not exact:
            self.notices.append(f"the container's turn is no multiple of 90 degrees: {rotation} is taken")
        return mirror, rotation

    def _inform(self, first: av.VideoFrame) -> SourceInfo:
        stream = self._stream
        frames = stream.frames or None
        if self._limit is not None and frames is not None:
            frames = min(frames, self._limit)
        return SourceInfo(
            uri=self.uri,
            format=self._format,
            time_base=Fraction(stream.time_base or Fraction(1, 1000)),
            frame_rate=frame_rate_of(stream.average_rate, stream.base_rate),
            frames=frames,
            duration=self._duration(),
            color=color_tags(first, self._reader.pixel.yuv),
        )

    def _duration(self) -> float | None:
        if self._stream.duration and self._stream.time_base:
            return float(self._stream.duration * self._stream.time_base)
        return self._container.duration / 1e6 if self._container.duration else None

    @property
    def codec(self) -> str:
        """FFmpeg's name of the codec."""
        return str(self._stream.codec_context.name)

    # Reading

    def __iter__(self) -> Iterator[Frame]:
        """Frames in presentation order; a source is read once."""
        index = 0
        try:
            while self._limit is None or index < self._limit:
                with self._lock:
                    frame = None if self._closing.is_set() else self._next(index)
                if frame is None:
                    break
                yield frame
                index += 1
            else:
                self._report()
                return
            if not self._closing.is_set():
                self._finish(index)
        finally:
            if self._closing.is_set():
                self.close()

    def _next(self, index: int) -> Frame | None:
        picture, self._first = self._first or next(self._decoded, None), None
        if picture is None:
            return None
        if not self._reader.matches(picture):
            self._note_new_layout(picture, index)
        planes, owner = self._reader.read(picture)
        self._concealed += picture.is_corrupt
        return Frame(index, self._times.next(picture.pts, picture.dts), self._format, planes, owner)

    def _note_new_layout(self, picture: av.VideoFrame, index: int) -> None:
        if not self._reshaped:
            self.notices.append(
                f"from frame {index} the stream is {picture.width}x{picture.height} {picture.format.name}: "
                f"brought to {self._format.width}x{self._format.height} {self._format.pixel.name}"
            )
        self._reshaped += 1

    def _decode_all(self) -> Iterator[av.VideoFrame]:
        last, count = None, 0
        for packet in self._read_packets():
            for picture in self._decode(packet):
                last, count = picture.pts, count + 1
                yield picture
        if count and count < self._packets:
            yield from self._decode_tail(last)

    def _decode(self, packet: Any) -> list[av.VideoFrame]:
        try:
            pictures = self._stream.decode(packet)
        except EOFError:  # the decoder was drained already
            return []
        except av.error.FFmpegError as error:
            log.debug("%s: packet %d: %s", self.uri, self._packets, error)
            self._broken += 1
            self._trailing += 1
            if isinstance(error, BlockingIOError):  # it kept an older packet: empty it, or it takes no more
                self._stream.codec_context.flush_buffers()
            return []
        if pictures:
            self._trailing = 0
        return pictures

    def _decode_tail(self, last: int | None) -> Iterator[av.VideoFrame]:
        """Some packets gave no picture: look for those that were lost while the decoder was drained."""
        broken = 0
        for picture in self._tail.decode(self._stream.codec_context, last):
            if picture is None:
                broken += 1
            else:
                yield picture
        self._broken = max(self._broken, broken)

    def _read_packets(self) -> Iterator[av.Packet[VideoStream] | None]:
        """Packets of the stream, then None to flush the decoder. A broken read is tried again from where it stopped."""
        failures = 0
        while True:
            try:
                for packet in self._container.demux(self._stream):
                    if packet.size == 0 and packet.dts is None:
                        break
                    failures = 0
                    self._packets += 1
                    self._tail.add(packet)
                    yield packet
                break
            except av.error.FFmpegError as error:
                failures += 1
                self._broken += 1
                if not isinstance(error, av.error.InvalidDataError) or failures >= HOPELESS:
                    self._fault = f"{self.uri} cannot be read on after packet {self._packets}: {_reason(error)}"
                    break
        yield None

    def _finish(self, index: int) -> None:
        """After the last frame: say what was mended; raise when the input broke off."""
        self._report()
        expected = self._stream.frames
        if self._fault:
            raise SourceError(f"{self._fault}; {index} frames were delivered")
        if self._trailing >= HOPELESS:
            raise SourceError(
                f"{self.uri}: the last {self._trailing} packets are unreadable; {index} frames were delivered"
            )
        if expected and self._packets < expected:
            raise SourceError(
                f"{self.uri} is truncated: {self._packets} of {expected} frames are there and were delivered up to it"
            )

    def _report(self) -> None:
        if self._broken:
            self.notices.append(f"broken packets skipped: {self._broken} of {self._packets}")
        if self._concealed:
            self.notices.append(f"damaged frames that the decoder patched: {self._concealed}")
        if self._times.repaired:
            self.notices.append(f"frames without a usable time that were given one: {self._times.repaired}")

    def close(self) -> None:
        """End the reading and free the decoder; frames handed out stay valid. Idempotent, from any thread."""
        self._closing.set()
        # A read in progress closes the container itself when it returns.
        if self._lock.acquire(blocking=False):
            try:
                self._container.close()
            finally:
                self._lock.release()


def open_container(uri: str) -> av.container.InputContainer:
    """Open ``uri`` for reading.

    Raises
    ------
    SourceError
        One line that says what is wrong with it.
    """
    network = "://" in uri
    if not network:
        _check_file(uri)
    try:
        # An absolute path is never taken for a protocol, whatever colons it holds.
        return av.open(uri if network else os.path.abspath(uri), timeout=NETWORK_TIMEOUT_S if network else None)
    except (av.error.InvalidDataError, EOFError):
        raise SourceError(
            f"{uri} is no video that FFmpeg can read: it is truncated, damaged, or of another kind"
        ) from None
    except (av.error.FFmpegError, OSError) as error:
        raise SourceError(f"{uri} cannot be opened: {_reason(error)}") from None


def _check_file(path: str) -> None:
    if not path:
        raise SourceError("the input's name is empty: give a file, a directory, a pattern or a URL")
    if os.path.isdir(path):
        raise SourceError(f"{path} is a directory, not a video: give a file in it, or a directory of images")
    if not os.path.exists(path):
        raise SourceError(f"{path} does not exist: check the name")
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        raise SourceError(f"{path} is empty (0 bytes)")


def find_video(container: av.container.InputContainer, uri: str) -> VideoStream:
    """The first stream of moving pictures; cover art does not count.

    Raises
    ------
    SourceError
        There is none, or no decoder for it.
    """
    if container.format.name in NOT_VIDEO:
        raise SourceError(f"{uri} is text, not a video")
    art = av.stream.Disposition.attached_pic
    videos = [s for s in container.streams.video if not s.disposition & art]
    if not videos:
        kinds = ", ".join(sorted({s.type for s in container.streams if s.type != "video"}))
        raise SourceError(f"{uri} holds no video" + (f": only {kinds}" if kinds else "; it is empty"))
    if videos[0].codec_context is None:
        raise SourceError(f"{uri}: FFmpeg has no decoder for its video; convert it to H.264 first")
    return videos[0]


_LOG_LEVELS = threading.Lock()


def chroma_location(container: av.container.InputContainer, stream: VideoStream) -> str:
    """FFmpeg's name of where chroma lies (``left``, ``center``, ``topleft``...), or ``unspecified``.

    PyAV has no attribute for it, but FFmpeg's own description of a stream says it at log level verbose.
    """
    with _LOG_LEVELS:
        before = av.logging.get_level()
        av.logging.set_level(av.logging.VERBOSE)
        av.logging.set_libav_level(av.logging.VERBOSE)
        try:
            lines = container.dumps_format().splitlines()  # type: ignore[attr-defined]  # missing in PyAV's stubs
        finally:
            av.logging.set_libav_level(av.logging.INFO)
            av.logging.set_level(before)
    mine = [line for line in lines if f"Stream #0:{stream.index}" in line and "Video:" in line]
    words = mine[0].replace("(", ",").replace(")", ",").split(",") if mine else []
    known = {"left", "center", "topleft", "top", "bottomleft", "bottom"}
    return next((word.strip() for word in words if word.strip() in known), "unspecified")


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error).splitlines()[0]
