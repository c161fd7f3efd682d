"""Video decoded on the GPU by NVDEC, through PyNvVideoCodec; the container is still read by PyAV.

PyAV says what the stream is (colour, turn, times), NVDEC makes the pictures, and they stay on the device. Times are
those of the container's packets in ascending order, which is the order in which frames leave a decoder.
"""

from __future__ import annotations

import heapq
import importlib.util
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import av

from raven.errors import SourceError
from raven.frame.format import PIXEL_FORMATS, Frame
from raven.sources.base import SourceInfo
from raven.sources.timing import Timestamps
from raven.sources.video import VideoSource

log = logging.getLogger("raven.sources")

#: FFmpeg's codec names that NVDEC decodes, and what its pictures are for each pixel format of the stream.
CODECS = frozenset({"h264", "hevc", "av1", "libdav1d"})
SURFACES = {"yuv420p": "nv12", "yuv420p10le": "p010le"}
#: Frames decoded ahead, and frames taken at a time.
AHEAD, BATCH = 16, 8
#: Packets looked at before the earliest time among them is given out: more than any codec reorders.
_REORDER = 64


@dataclass
class Surface:
    """A decoded frame in device memory: address and bytes a row of each plane. Valid until the next batch is taken."""

    planes: tuple[tuple[int, int], ...]
    owner: Any


def obstacle(source: VideoSource) -> str | None:
    """Why NVDEC is not used for a source, None when it can be tried."""
    if importlib.util.find_spec("PyNvVideoCodec") is None:
        return "PyNvVideoCodec is not installed"
    if "://" in source.uri:
        return "only files are decoded on the GPU"
    if source.codec not in CODECS:
        return f"NVDEC does not decode {source.codec}"
    if source.info.format.pixel.name not in SURFACES:
        return f"NVDEC does not decode {source.info.format.pixel.name}"
    return None


class NvdecSource:
    """Frames of a video file, decoded on the GPU.

    Parameters
    ----------
    base : VideoSource
        The same file opened by PyAV. It takes over, from the first frame on, when NVDEC refuses the stream.
    frames : int or None
        Stop after this many.

    Attributes
    ----------
    info : SourceInfo
        As the base's, with the surfaces' pixel format.
    notices : list of str
    """

    def __init__(self, base: VideoSource, frames: int | None = None) -> None:
        self.base, self.uri, self._limit = base, base.uri, frames
        pixel = PIXEL_FORMATS[SURFACES[base.info.format.pixel.name]]
        self.info: SourceInfo = replace(base.info, format=replace(base.info.format, pixel=pixel))
        self.notices: list[str] = base.notices
        self._decoder: Any = None
        self._closing = threading.Event()

    def start(self, device: int, context: int, stream: int, synchronise: Any) -> None:
        """Make the decoder.

        Parameters
        ----------
        device : int
            CUDA device.
        context, stream : int
            CUDA handles; pictures are ready for work that follows on this stream.
        synchronise : callable
            Waits for the stream: called before surfaces go back to the decoder.
        """
        import PyNvVideoCodec as nvc

        self._synchronise = synchronise
        try:
            self._decoder = nvc.ThreadedDecoder(
                self.uri,
                AHEAD,
                gpu_id=device,
                cuda_context=context,
                cuda_stream=stream,
                use_device_memory=True,
                output_color_type=nvc.OutputColorType.NATIVE,
            )
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            self.notices.append(f"NVDEC refuses the stream ({reason}): decoded on the CPU")

    def __iter__(self) -> Iterator[Frame]:
        """Frames in presentation order, with ``surface`` set and ``planes`` empty."""
        if self._decoder is None:
            yield from self.base
            return
        count = 0
        with av.open(self.uri) as container:
            times = self._times(container)
            for surface in self._surfaces():
                if self._limit is not None and count >= self._limit:
                    return
                yield Frame(count, next(times), self.info.format, [], surface.owner, surface=surface)
                count += 1
        self._check(count)

    def _surfaces(self) -> Iterator[Surface]:
        row_bytes = self.info.format.width * self.info.format.pixel.dtype.itemsize
        while not self._closing.is_set():
            batch = self._decoder.get_batch_frames(BATCH)
            if not batch:
                return
            for picture in batch:
                yield Surface(_planes(picture, row_bytes), picture)
            self._synchronise()  # the decoder may use these surfaces again from here on

    def _times(self, container: Any) -> Iterator[int]:
        stream = container.streams.video[0]
        rate = self.info.frame_rate
        repaired = Timestamps(round(1 / rate / self.info.time_base) if rate else 1)
        waiting: list[int] = []
        for packet in container.demux(stream):
            if packet.pts is not None and packet.size:
                heapq.heappush(waiting, packet.pts)
            if len(waiting) > _REORDER:
                yield repaired.next(heapq.heappop(waiting), None)
        while waiting:
            yield repaired.next(heapq.heappop(waiting), None)
        while True:
            yield repaired.next(None, None)

    def _check(self, count: int) -> None:
        expected = self.base.info.frames
        if expected is not None and count < expected and not self._closing.is_set():
            raise SourceError(
                f"{self.uri} breaks off: {count} of {expected} frames could be decoded; the file is damaged"
            )

    def close(self) -> None:
        """Let go of decoder and file; idempotent."""
        self._closing.set()
        decoder, self._decoder = self._decoder, None
        if decoder is not None and hasattr(decoder, "end"):
            decoder.end()
        self.base.close()


def _planes(picture: Any, row_bytes: int) -> tuple[tuple[int, int], ...]:
    """Address and bytes from row to row of luma and chroma.

    For 16-bit pictures the decoder gives strides in samples, against the interface's rule.
    """
    views = [view.__cuda_array_interface__ for view in picture.cuda()]
    strides = [int(view["strides"][0]) for view in views]
    factor = 1 if min(strides) >= row_bytes else 2
    return tuple((int(view["data"][0]), stride * factor) for view, stride in zip(views, strides, strict=True))
