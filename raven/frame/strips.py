"""Four neighbouring pixels a thread, from 32-bit words: how CPU devices draw frames into the tensor.

What counts on a CPU device is the number of loads and stores. Texels of one byte are fetched lane by lane there, words
by vector instructions, and words serve several pixels. shaders/frame/rasterise_strips.slang does the reading. Measured
on two cores with llvmpipe, 416x416 from I420 of 768x576: 2.3 ms, and 9.9 ms a pixel a thread.
"""

from __future__ import annotations

import math

from raven.frame.format import FrameFormat
from raven.frame.geometry import Placement

PIXELS = 4
#: The specialisation constant that says which way strips run; padding needs no other.
DIRECTION = 30
#: More words than this are not worth sharing: finding the right one among them costs more than reading it again.
_MOST_SHARED = 6
#: x, y, width, height in the target.
Area = tuple[int, int, int, int]


def runs_down(format: FrameFormat) -> bool:
    """Whether the four pixels lie one below the other in the target, being neighbours in a row of the source."""
    return format.rotation in (90, 270)


def fit(format: FrameFormat, placement: Placement) -> bool:
    """Whether the target divides into strips."""
    return placement.target[1 if runs_down(format) else 0] % PIXELS == 0


def threads(format: FrameFormat, area: Area) -> tuple[int, int]:
    """Strips across and down in an area."""
    _, _, width, height = area
    return (width, height // PIXELS) if runs_down(format) else (width // PIXELS, height)


def constants(format: FrameFormat, placement: Placement) -> dict[int, int]:
    """Specialisation constants 23 to 30 for a picture."""
    axis = 1 if runs_down(format) else 0
    step = placement.crop[2 + axis] / placement.content[2 + axis]
    luma_bytes, chroma_bytes = _texel_bytes(format)
    luma, luma_shared = _words(step, 2, luma_bytes)
    chroma, chroma_shared = _words(step / format.pixel.sub_x, 3, chroma_bytes)
    values = (luma, chroma, format.pixel.dtype.itemsize, luma_bytes, chroma_bytes, luma_shared, chroma_shared, axis)
    return {23 + slot: int(value) for slot, value in enumerate(values)}


def _texel_bytes(format: FrameFormat) -> tuple[int, int]:
    """Bytes of all samples of a texel, in the first plane and in those of chroma."""
    planes = format.pixel.planes
    return planes[0] * format.pixel.dtype.itemsize, planes[min(1, len(planes) - 1)] * format.pixel.dtype.itemsize


def _words(step: float, texels: int, size: int) -> tuple[int, bool]:
    """Words to read of a row, in pairs, and whether all four pixels find theirs in them.

    Parameters
    ----------
    step : float
        Texels from one pixel to the next.
    texels : int
        Texels in a row that one pixel takes.
    size : int
        Bytes of a texel.
    """
    misaligned = 8 - math.gcd(8, size)
    # Rounding of coordinates may add one texel.
    shared = -(-((math.ceil((PIXELS - 1) * step + 1e-3) + texels) * size + misaligned) // 8) * 2
    if shared <= _MOST_SHARED:
        return shared, True
    return -(-(texels * size + misaligned) // 8) * 2, False


def regions(format: FrameFormat, placement: Placement) -> tuple[Area, list[Area]]:
    """The content, widened to whole strips, and the areas of padding around it."""
    (width, height), content = placement.target, list(placement.content)
    axis = 1 if runs_down(format) else 0
    end = content[axis] + content[2 + axis]
    content[axis] -= content[axis] % PIXELS
    content[2 + axis] = -(-end // PIXELS) * PIXELS - content[axis]
    x, y, w, h = content
    if axis:
        around = [(0, 0, x, height), (x + w, 0, width - x - w, height), (x, 0, w, y), (x, y + h, w, height - y - h)]
    else:
        around = [(0, 0, width, y), (0, y + h, width, height - y - h), (0, y, x, h), (x + w, y, width - x - w, h)]
    return (x, y, w, h), [area for area in around if area[2] and area[3]]
