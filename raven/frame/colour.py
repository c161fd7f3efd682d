"""From stored samples to upright RGB: the numbers that shaders/frame/source.slang works with."""

from __future__ import annotations

import struct

import numpy as np

from raven.frame.format import FrameFormat, Matrix

#: Weights of red and blue in luma (ITU-R BT.601, BT.709, BT.2020).
LUMA_WEIGHTS: dict[Matrix, tuple[float, float]] = {
    "bt601": (0.299, 0.114),
    "bt709": (0.2126, 0.0722),
    "bt2020": (0.2627, 0.0593),
}
#: Columns that an image has at most on every device of note.
MAX_COLUMNS = 16384
_KINDS = {"planar": 0, "semiplanar": 1, "packed": 2}


def yuv_to_rgb(matrix: Matrix, full_range: bool, depth: int) -> np.ndarray:
    """Matrix from a sample (Y, U, V, 1), each 0 to 1 at the format's largest value, to RGB in 0 to 1.

    Returns
    -------
    numpy.ndarray
        ``(3, 4)`` float64.
    """
    red, blue = LUMA_WEIGHTS[matrix]
    green = 1 - red - blue
    top, unit = float(2**depth - 1), float(2 ** (depth - 8))
    black, luma, chroma = (0.0, top, top) if full_range else (16 * unit, 219 * unit, 224 * unit)
    middle = 128 * unit
    y = np.array([top / luma, 0, 0, -black / luma])
    u = np.array([0, top / chroma, 0, -middle / chroma])
    v = np.array([0, 0, top / chroma, -middle / chroma])
    to_red = y + 2 * (1 - red) * v
    to_blue = y + 2 * (1 - blue) * u
    to_green = (y - red * to_red - blue * to_blue) / green
    return np.stack([to_red, to_green, to_blue])


def upright_to_stored(format: FrameFormat) -> np.ndarray:
    """Affine map from an upright point to the stored picture, in pixel-edge coordinates.

    The upright picture is the stored one mirrored left to right (if asked for), then turned clockwise.

    Returns
    -------
    numpy.ndarray
        ``(2, 3)`` float64.
    """
    width, height = format.width, format.height
    turned = {
        0: [[1, 0, 0], [0, 1, 0]],
        90: [[0, 1, 0], [-1, 0, height]],
        180: [[-1, 0, width], [0, -1, height]],
        270: [[0, -1, width], [1, 0, 0]],
    }[format.rotation]
    result = np.array(turned, np.float64)
    if format.mirror:
        result[0] = -result[0] + [0, 0, width]
    return result


def chroma_map(format: FrameFormat) -> tuple[float, float, float, float]:
    """Scale and shift from stored luma coordinates to those of the chroma planes, by subsampling and siting."""
    pixel = format.pixel
    left = pixel.sub_x == 2 and format.chroma_site in ("left", "topleft")
    top = pixel.sub_y == 2 and format.chroma_site == "topleft"
    return 1 / pixel.sub_x, 1 / pixel.sub_y, 0.25 * left, 0.25 * top


def sample_scale(format: FrameFormat) -> float:
    """What a normalised texel is multiplied with so that the format's largest value is 1."""
    pixel = format.pixel
    shift = pixel.bits - pixel.depth if pixel.msb_aligned else 0
    return (2**pixel.bits - 1) / ((2**pixel.depth - 1) << shift)


def fold(format: FrameFormat) -> tuple[int, int]:
    """Columns and pieces that a row of a packed plane is cut into: large photographs have too many bytes a row.

    Returns
    -------
    columns, pieces : int
        Columns in eights; one piece where the row fits.
    """
    samples = format.width * format.pixel.planes[0]
    pieces = -(-samples // MAX_COLUMNS)
    return (samples, 1) if pieces == 1 else (-(-samples // (8 * pieces)) * 8, pieces)


def source_view(format: FrameFormat, to_upright: np.ndarray | None = None) -> bytes:
    """The bytes of SourceView: part of a pass's push constants.

    Parameters
    ----------
    to_upright : numpy.ndarray, optional
        Affine map ``(3, 3)`` from the pass's own points to upright ones (default: they are the same).
    """
    stored = upright_to_stored(format)
    if to_upright is not None:
        stored = stored @ to_upright
    sizes = format.width, format.height, *format.pixel.plane_size(1, format.width, format.height)
    return struct.pack("<6f4i", *stored[:, :2].reshape(-1), *stored[:, 2], *sizes)


def source_constants(format: FrameFormat) -> dict[int, int]:
    """Specialisation constants 0 to 19 of every pipeline that reads a source."""
    pixel = format.pixel
    if not pixel.yuv:
        order = [pixel.order.index(letter) if letter in pixel.order else 0 for letter in "rgb"]
        columns, pieces = fold(format)
        values = (_KINDS["packed"], pixel.planes[0], *order)
        return {**dict(enumerate(values)), 17: columns, 18: pieces}
    rgb = yuv_to_rgb(format.matrix, format.full_range, pixel.depth)
    codes = 2**pixel.bits - 1
    rgb *= 255
    rgb[:, :3] *= sample_scale(format) / codes
    numbers = (*chroma_map(format), rgb[0, 0], rgb[0, 2], rgb[1, 1], rgb[1, 2], rgb[2, 1], *rgb[:, 3])
    kind = _KINDS["semiplanar" if len(pixel.planes) == 2 else "planar"]
    return {0: kind, **{5 + slot: float_bits(number) for slot, number in enumerate(numbers)}, 19: float_bits(codes)}


def float_bits(value: float) -> int:
    """The bits of a float32, as specialisation constants take them."""
    return int(np.float32(value).view(np.uint32))
