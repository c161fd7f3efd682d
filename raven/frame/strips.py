"""Four neighbouring pixels a thread, from 32-bit words: how CPU devices draw frames into the tensor.

What counts on a CPU device is the number of loads and stores. Texels of one byte are fetched lane by lane there, words
by vector instructions, and words serve several pixels. shaders/frame/rasterise_strips.slang does the reading. Measured
on two cores with llvmpipe, 416x416 from I420 of 768x576: 1.5 ms, and 4.2 ms a pixel a thread.
"""

from __future__ import annotations

import math

from raven.frame.format import FrameFormat
from raven.frame.geometry import Placement

PIXELS = 4
#: Constants of a pipeline that writes padding and reads nothing.
PADDING = {23: 0}
_MAX_WORDS = 12
#: x, y, width, height in the target.
Area = tuple[int, int, int, int]


def texel_bytes(format: FrameFormat, plane: int) -> int:
    """Bytes of all samples of a texel."""
    return format.pixel.planes[plane] * format.pixel.dtype.itemsize


def fit(format: FrameFormat, placement: Placement) -> bool:
    """Whether a frame can be drawn by strips: no quarter turn, a width in fours, no downscale by ten or so."""
    flat = format.rotation in (0, 180) and placement.target[0] % PIXELS == 0
    return flat and max(_words(format, placement)) <= _MAX_WORDS


def constants(format: FrameFormat, placement: Placement) -> dict[int, int]:
    """Specialisation constants 23 to 27."""
    luma, chroma = _words(format, placement)
    last = min(1, len(format.pixel.planes) - 1)
    return {
        23: luma,
        24: chroma,
        25: format.pixel.dtype.itemsize,
        26: texel_bytes(format, 0),
        27: texel_bytes(format, last),
    }


def _words(format: FrameFormat, placement: Placement) -> tuple[int, int]:
    """Words that the texels of four pixels lie in, in the first plane and in those of chroma."""
    step = placement.crop[2] / placement.content[2]
    last = min(1, len(format.pixel.planes) - 1)
    return _reach(step, texel_bytes(format, 0)), _reach(step / format.pixel.sub_x, texel_bytes(format, last))


def _reach(step: float, size: int) -> int:
    # The first texel to the last, one more to the right, and rounding of coordinates may add another.
    texels = math.ceil((PIXELS - 1) * step + 1e-3) + 2
    misaligned = 4 - math.gcd(4, size)
    return -(-(texels * size + misaligned) // 4)


def regions(placement: Placement) -> tuple[Area, list[Area]]:
    """The content, widened to whole strips, and the areas of padding around it."""
    (width, height), (x, y, w, h) = placement.target, placement.content
    left, right = x // PIXELS * PIXELS, -(-(x + w) // PIXELS) * PIXELS
    around = [
        (0, 0, width, y),
        (0, y + h, width, height - y - h),
        (0, y, left, h),
        (right, y, width - right, h),
    ]
    return (left, y, right - left, h), [area for area in around if area[2] and area[3]]
