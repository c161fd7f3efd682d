"""How a frame's pixels are stored: planes, depth, colour matrix, range, and the turn that makes it upright."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np

Matrix = Literal["bt601", "bt709", "bt2020"]
ChromaSite = Literal["left", "center", "topleft"]


@dataclass(frozen=True)
class PixelFormat:
    """The memory layout of a frame.

    Attributes
    ----------
    name : str
        FFmpeg's name (``nv12``, ``yuv420p``, ``p010le``, ``rgb24``...).
    planes : tuple of int
        Components a plane: ``(1, 2)`` for NV12, ``(1, 1, 1)`` for I420, ``(3,)`` for packed RGB.
    sub_x, sub_y : int
        Chroma subsampling, 1 or 2.
    depth : int
        Significant bits of a component.
    bits : int
        Bits that a component is stored in, 8 or 16 (little endian).
    msb_aligned : bool
        True when the significant bits are the high ones (P010); false when they are the low ones (yuv420p10le).
    yuv : bool
        False for RGB orders and grey.
    order : str
        Order of components in a packed plane: ``rgb``, ``bgr``, ``rgba``, ``bgra``, ``gray``; empty for YUV.
    """

    name: str
    planes: tuple[int, ...]
    sub_x: int = 1
    sub_y: int = 1
    depth: int = 8
    bits: int = 8
    msb_aligned: bool = False
    yuv: bool = True
    order: str = ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy type of one component."""
        return np.dtype(np.uint8 if self.bits == 8 else np.uint16)

    def plane_size(self, plane: int, width: int, height: int) -> tuple[int, int]:
        """Width and height of a plane in pixels; chroma of an odd size is rounded up, as FFmpeg does."""
        if plane == 0 or not self.yuv:
            return width, height
        return -(-width // self.sub_x), -(-height // self.sub_y)


#: Formats that the GPU passes read as they are. Sources convert anything else to the nearest of these.
PIXEL_FORMATS: dict[str, PixelFormat] = {
    f.name: f
    for f in (
        PixelFormat("yuv420p", (1, 1, 1), 2, 2),
        PixelFormat("yuv422p", (1, 1, 1), 2, 1),
        PixelFormat("yuv444p", (1, 1, 1), 1, 1),
        PixelFormat("yuv420p10le", (1, 1, 1), 2, 2, 10, 16),
        PixelFormat("yuv422p10le", (1, 1, 1), 2, 1, 10, 16),
        PixelFormat("yuv444p10le", (1, 1, 1), 1, 1, 10, 16),
        PixelFormat("nv12", (1, 2), 2, 2),
        PixelFormat("p010le", (1, 2), 2, 2, 10, 16, True),
        PixelFormat("rgb24", (3,), yuv=False, order="rgb"),
        PixelFormat("bgr24", (3,), yuv=False, order="bgr"),
        PixelFormat("rgba", (4,), yuv=False, order="rgba"),
        PixelFormat("bgra", (4,), yuv=False, order="bgra"),
        PixelFormat("gray", (1,), yuv=False, order="gray"),
    )
}


@dataclass(frozen=True)
class FrameFormat:
    """Everything about a frame's pixels that stays the same from frame to frame.

    Attributes
    ----------
    pixel : PixelFormat
    width, height : int
        Size as stored, before rotation, in pixels.
    matrix : {'bt601', 'bt709', 'bt2020'}
        YUV matrix (untagged: 601 below 720 lines, 709 from 720 on).
    full_range : bool
        True for 0-255 luma, false for 16-235.
    chroma_site : {'left', 'center', 'topleft'}
        Where chroma samples lie between luma samples (MPEG-2 and H.264: left).
    rotation : {0, 90, 180, 270}
        Clockwise turn, in degrees, that makes the stored picture upright.
    mirror : bool
        Mirror left to right, before the turn.
    sample_aspect_ratio : Fraction
        Width of a stored pixel over its height.
    """

    pixel: PixelFormat
    width: int
    height: int
    matrix: Matrix = "bt601"
    full_range: bool = False
    chroma_site: ChromaSite = "left"
    rotation: int = 0
    mirror: bool = False
    sample_aspect_ratio: Fraction = Fraction(1)

    @property
    def upright_size(self) -> tuple[int, int]:
        """Width and height of the picture after mirroring and rotation, in pixels."""
        if self.rotation in (90, 270):
            return self.height, self.width
        return self.width, self.height


@dataclass
class Frame:
    """One decoded frame on the host.

    Attributes
    ----------
    index : int
        Position in the source, from 0, without gaps.
    pts : int
        Presentation time in units of the source's ``time_base``.
    format : FrameFormat
    planes : list of numpy.ndarray
        One array a plane, ``(height, width * components)``, uint8 or uint16, rows maybe strided. They may be views
        of the decoder's memory: valid until ``owner`` is dropped.
    owner : object
        What keeps the planes' memory alive.
    name : str or None
        File name, for image sources.
    surface : object or None
        Planes in device memory instead (see :class:`raven.sources.nvdec.Surface`); ``planes`` is empty then.
    """

    index: int
    pts: int
    format: FrameFormat
    planes: list[np.ndarray]
    owner: Any = field(default=None, repr=False)
    name: str | None = None
    surface: Any = None
