"""From a decoder's picture to Raven's pixel formats: views where the layout is known, a conversion where it is not."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import av
import numpy as np
from av.video.reformatter import Interpolation, VideoReformatter

from raven.frame.format import PIXEL_FORMATS, ChromaSite, Matrix, PixelFormat

#: Formats whose first planes are those of a known one: only the range is said by the name, or alpha goes unread.
SAME_PLANES = {
    "yuvj420p": "yuv420p",
    "yuvj422p": "yuv422p",
    "yuvj444p": "yuv444p",
    "yuva420p": "yuv420p",
    "yuva422p": "yuv422p",
    "yuva444p": "yuv444p",
    "yuva420p10le": "yuv420p10le",
    "yuva422p10le": "yuv422p10le",
    "yuva444p10le": "yuv444p10le",
    "rgb0": "rgba",
    "bgr0": "bgra",
}

#: FFmpeg's AVColorSpace to the matrices that the shaders know. FCC is 601 to the second digit, SMPTE 240M is near 709.
MATRICES: dict[int, Matrix] = {1: "bt709", 4: "bt601", 5: "bt601", 6: "bt601", 7: "bt709", 9: "bt2020", 10: "bt2020"}

UNSPECIFIED = 2  # AVCOL_SPC_, AVCOL_PRI_ and AVCOL_TRC_UNSPECIFIED are all 2
FULL_RANGE = 2  # AVCOL_RANGE_JPEG
LIMITED_RANGE = 1  # AVCOL_RANGE_MPEG

# Chroma that has to be stretched is stretched as exactly as swscale can.
_EXACT = (
    Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP
)


def nearest_format(fmt: av.VideoFormat) -> str:
    """Name of the known pixel format that keeps most of ``fmt``: subsampling first, then depth (8 or 10 bits)."""
    if fmt.name in PIXEL_FORMATS:
        return fmt.name
    if fmt.name in SAME_PLANES:
        return SAME_PLANES[fmt.name]
    if fmt.is_rgb or fmt.has_palette or fmt.is_bayer or fmt.name.startswith("xyz"):
        return "rgb24"
    deep = "10le" if max(c.bits for c in fmt.components) > 8 else ""
    if len(fmt.components) < 3:  # luma, perhaps alpha
        return "gray10le" if deep else "gray"
    return _nearest_yuv(fmt, deep)


def _nearest_yuv(fmt: av.VideoFormat, deep: str) -> str:
    sub_x, sub_y = 64 // fmt.chroma_width(64), 64 // fmt.chroma_height(64)
    if fmt.name in ("nv21", "p012le", "p016le"):
        return "p010le" if deep else "nv12"
    if sub_y > 1 and sub_x > 1:
        return "yuv420p" + deep
    return ("yuv422p" if sub_x > 1 else "yuv444p") + deep


def is_full_range(frame: av.VideoFrame) -> bool:
    """True when luma runs from 0 to 255: said by the tag or by the name; grey without a tag is full range."""
    if frame.color_range in (LIMITED_RANGE, FULL_RANGE):
        return frame.color_range == FULL_RANGE
    return frame.format.name.startswith(("yuvj", "mono"))


def matrix_of(colorspace: int, height: int) -> Matrix:
    """YUV matrix by FFmpeg's tag; untagged: BT.601 below 720 lines, BT.709 from 720 on."""
    return MATRICES.get(colorspace, "bt709" if height >= 720 else "bt601")


def chroma_site_of(location: str) -> ChromaSite:
    """FFmpeg's name of a chroma location to Raven's; the bottom and top ones are taken for what lies nearest."""
    if location in ("center", "top"):
        return "center"
    return "topleft" if location == "topleft" else "left"


def color_tags(frame: av.VideoFrame, yuv: bool) -> dict[str, Any]:
    """The tags worth handing to an encoder, as FFmpeg's integers; RGB has neither matrix nor range to hand on."""
    tags = {"color_primaries": frame.color_primaries, "color_trc": frame.color_trc}
    if yuv:
        tags["colorspace"] = frame.colorspace
    found = {name: int(value) for name, value in tags.items() if value not in (0, UNSPECIFIED)}
    if yuv and is_full_range(frame):
        found["color_range"] = FULL_RANGE
    elif yuv and frame.color_range == LIMITED_RANGE:
        found["color_range"] = LIMITED_RANGE
    return found


class PlaneReader:
    """Turns decoded pictures of one layout into planes.

    Parameters
    ----------
    first : av.VideoFrame
        The first picture: its layout is that of every other.
    grey_is_video : bool
        True when a picture of luma alone, without a range tag, comes from a video codec, so is limited range.

    Attributes
    ----------
    pixel : PixelFormat
        What the planes are in.
    converted : bool
        True when the pictures go through swscale.
    """

    def __init__(self, first: av.VideoFrame, grey_is_video: bool) -> None:
        self._key = _layout(first)
        self._reformatter = VideoReformatter()
        target = nearest_format(first.format)
        if target.startswith("gray") and not self._grey_is_full(first, grey_is_video):
            self._luma_only, self._target = True, target
            self.pixel = PIXEL_FORMATS["yuv420p10le" if target == "gray10le" else "yuv420p"]
        else:
            self._luma_only, self._target = False, "gray" if target == "gray10le" else target
            self.pixel = PIXEL_FORMATS[self._target]
        self.converted = not _readable_as(first.format.name, self._target)
        self._range = FULL_RANGE if is_full_range(first) else LIMITED_RANGE

    @staticmethod
    def _grey_is_full(frame: av.VideoFrame, grey_is_video: bool) -> bool:
        return is_full_range(frame) or (frame.color_range == 0 and not grey_is_video)

    def matches(self, frame: av.VideoFrame) -> bool:
        """True when ``frame`` has the size and format of the first one."""
        return _layout(frame) == self._key

    def read(self, frame: av.VideoFrame) -> tuple[list[np.ndarray], av.VideoFrame]:
        """Planes of ``frame`` and the picture that owns their memory. One of another layout is brought to the first's.

        Returns
        -------
        planes : list of numpy.ndarray
            ``(height, width * components)``, read-only views where the layout allows.
        owner : av.VideoFrame
        """
        if self.converted or not self.matches(frame):
            frame = self._convert(frame)
        if self._luma_only:
            return self._with_neutral_chroma(frame), frame
        return [plane_view(frame, self.pixel, i) for i in range(len(self.pixel.planes))], frame

    def _convert(self, frame: av.VideoFrame) -> av.VideoFrame:
        _, width, height = self._key
        options: dict[str, Any] = {}
        if self.pixel.yuv and not frame.format.is_rgb:
            # Same range in and out: levels must not be stretched on the way.
            options = {"src_color_range": self._range, "dst_color_range": self._range}
        # By one thread: swscale with several gave wrong rows now and then (P010 to yuv420p10le, one time in 200).
        return self._reformatter.reformat(
            frame, width, height, self._target, interpolation=_EXACT, threads=1, **options
        )

    def _with_neutral_chroma(self, frame: av.VideoFrame) -> list[np.ndarray]:
        width, height = self.pixel.plane_size(1, frame.width, frame.height)
        neutral = _neutral(width, height, self.pixel.depth)
        return [plane_view(frame, self.pixel, 0), neutral, neutral]


def _layout(frame: av.VideoFrame) -> tuple[str, int, int]:
    return frame.format.name, frame.width, frame.height


def _readable_as(name: str, target: str) -> bool:
    return name == target or SAME_PLANES.get(name) == target


@lru_cache(maxsize=4)
def _neutral(width: int, height: int, depth: int) -> np.ndarray:
    plane = np.full((height, width), 1 << (depth - 1), np.uint8 if depth == 8 else np.uint16)
    plane.flags.writeable = False
    return plane


def plane_view(frame: av.VideoFrame, pixel: PixelFormat, index: int) -> np.ndarray:
    """Plane ``index`` as ``(height, width * components)`` over the decoder's own memory, rows ``line_size`` apart.

    It is read-only: the decoder may still predict from this memory.
    """
    plane = frame.planes[index]
    width, height = pixel.plane_size(index, frame.width, frame.height)
    if plane.line_size % pixel.dtype.itemsize:
        raise ValueError(f"line size {plane.line_size} is no multiple of {pixel.dtype.itemsize} bytes")
    rows: np.ndarray = np.frombuffer(memoryview(plane), pixel.dtype).reshape(plane.height, -1)
    view = rows[:height, : width * pixel.planes[index]]
    if plane.line_size < 0:  # stored bottom row first: PyAV hands out the bytes in order of address
        view = np.ascontiguousarray(view[::-1])
    view.flags.writeable = False
    return view
