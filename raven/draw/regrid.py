"""From a stored picture's sample grid to that of upright NV12, and from RGB to YUV."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from raven.frame.colour import LUMA_WEIGHTS, chroma_map, upright_to_stored
from raven.frame.format import FrameFormat, Matrix


def rgb_to_yuv(matrix: Matrix, full_range: bool) -> np.ndarray:
    """Matrix from (R, G, B, 1), each 0 to 1, to 8-bit Y, Cb and Cr.

    Returns
    -------
    numpy.ndarray
        ``(3, 4)`` float64.
    """
    red, blue = LUMA_WEIGHTS[matrix]
    weights = np.array([red, 1 - red - blue, blue])
    luma, chroma, black = (255, 255, 0) if full_range else (219, 224, 16)
    cb = (np.array([0, 0, 1]) - weights) / (2 * (1 - blue)) * chroma
    cr = (np.array([1, 0, 0]) - weights) / (2 * (1 - red)) * chroma
    return np.column_stack([[weights * luma, cb, cr], [black, 128, 128]])


@dataclass(frozen=True)
class Taps:
    """The chroma texels along one stored axis that an output sample is made of.

    Attributes
    ----------
    first : int
        Texel of the first tap for output sample (0, 0).
    weights : tuple of float
        One to three; their sum is 1.
    """

    first: int
    weights: tuple[float, ...]

    @classmethod
    def at(cls, centre: float, shrink: bool) -> Taps:
        """Taps around a point.

        Parameters
        ----------
        centre : float
            In texels; 0 is the first one's centre.
        shrink : bool
            The output has half as many samples: average over a texel's width, besides interpolating.
        """
        found: dict[int, float] = {}
        for point in (centre - 0.5, centre + 0.5) if shrink else (centre,):
            low = math.floor(point)
            for texel, weight in ((low, 1 - (point - low)), (low + 1, point - low)):
                if weight:
                    found[texel] = found.get(texel, 0.0) + weight / (2 if shrink else 1)
        first = min(found)
        return cls(
            first,
            tuple(found.get(texel, 0.0) for texel in range(first, max(found) + 1)),
        )


@dataclass(frozen=True)
class Grid:
    """Where upright samples lie in the stored picture.

    Attributes
    ----------
    origin, right, down : tuple of int
        Stored pixel of upright pixel (0, 0), and the steps for one to the right and one down.
    step : tuple of int
        Chroma texels a chroma sample, along the stored axes.
    taps : tuple of Taps
        Along the stored axes.
    """

    origin: tuple[int, int]
    right: tuple[int, int]
    down: tuple[int, int]
    step: tuple[int, int]
    taps: tuple[Taps, Taps]


def output_site(format: FrameFormat) -> tuple[float, float]:
    """Point of the first chroma sample of the output, in upright pixel-edge coordinates.

    A picture that is 4:2:0 and upright already keeps its site; any other gets MPEG-2's and H.264's, left.
    """
    pixel = format.pixel
    if (pixel.sub_x, pixel.sub_y) != (2, 2) or format.rotation or format.mirror or format.chroma_site == "left":
        return 0.5, 1.0
    return (0.5, 0.5) if format.chroma_site == "topleft" else (1.0, 1.0)


def grid(format: FrameFormat) -> Grid:
    """Work out the grid of a YUV format."""
    stored = upright_to_stored(format)
    turn, shift = stored[:, :2], stored[:, 2]
    pixel = np.floor(turn @ [0.5, 0.5] + shift).astype(int)
    scale_x, scale_y, shift_x, shift_y = chroma_map(format)
    point = turn @ output_site(format) + shift
    centres = (point[0] * scale_x + shift_x - 0.5, point[1] * scale_y + shift_y - 0.5)
    subs = (format.pixel.sub_x, format.pixel.sub_y)
    taps = tuple(Taps.at(float(centre), sub == 1) for centre, sub in zip(centres, subs, strict=True))
    right, down = turn.T
    return Grid(_pair(pixel), _pair(right), _pair(down), (2 // subs[0], 2 // subs[1]), (taps[0], taps[1]))


def _pair(values: np.ndarray) -> tuple[int, int]:
    return int(values[0]), int(values[1])
