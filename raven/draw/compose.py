"""Output pictures: a frame's own samples, with what was drawn blended over them where something was drawn.

Untouched pixels of an upright 8-bit 4:2:0 frame come out bit for bit as they went in: planes are copied, and the blend
works in the source's own matrix and range on the layer's dirty tiles only.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from raven.draw.blend import Blend
from raven.draw.overlay import BoundOverlay
from raven.draw.pictures import (
    ConvertPicture,
    CopyNv12,
    PicturePass,
    PlanesToNv12,
    copies_planes,
    nv12_rows,
    nv12_stride,
)
from raven.draw.regrid import rgb_to_yuv
from raven.errors import UsageError
from raven.frame.format import FrameFormat, Matrix
from raven.frame.planes import PlaneSet
from raven.gpu import Buffer, Device, Recorder

_PICTURES = frozenset({"nv12", "rgba"})
_HD_LINES = 720
# FFmpeg's numbers: BT.709 is 1, SMPTE 170M is 6; sRGB has BT.709's primaries and a transfer curve of its own, 13.
_COLORSPACE: dict[Matrix, int] = {"bt601": 6, "bt709": 1}
_SRGB = {"color_primaries": 1, "color_trc": 13, "color_range": 1}


class Compose:
    """The passes that make pictures of a format, compiled once.

    Parameters
    ----------
    wants : collection of {'nv12', 'rgba'}
    format : FrameFormat

    Attributes
    ----------
    matrix : {'bt601', 'bt709', 'bt2020'}
    full_range : bool
        Of the NV12 picture: the source's own, or for RGB BT.709 from 720 lines on, else BT.601, limited range.
    output_color : dict
        FFmpeg's colour tags of an NV12 picture made from RGB; empty for YUV, whose tags stay the source's.

    Raises
    ------
    UsageError
        A picture of another name.
    """

    def __init__(self, device: Device, wants: Collection[str], format: FrameFormat) -> None:
        if unknown := set(wants) - _PICTURES:
            raise UsageError(f"no output picture {', '.join(sorted(unknown))}; there are nv12 and rgba")
        self.device, self.wants, self.format = device, frozenset(wants), format
        self.matrix, self.full_range = _output_colour(format)
        self.output_color: dict[str, Any] = {}
        if not format.pixel.yuv:
            self.output_color = {**_SRGB, "colorspace": _COLORSPACE[self.matrix]}
        coefficients = rgb_to_yuv(self.matrix, self.full_range)
        self.passes: dict[str, PicturePass] = {}
        if "nv12" in self.wants:
            self.passes["nv12"] = self._nv12(coefficients)
        if "rgba" in self.wants:
            self.passes["rgba"] = ConvertPicture(device, format, "rgbaMain", coefficients)
        self.blend = Blend(device, self.wants, coefficients)

    def _nv12(self, coefficients: np.ndarray) -> PicturePass:
        if copies_planes(self.format):
            return CopyNv12(self.device, self.format)
        if self.format.pixel.yuv:
            return PlanesToNv12(self.device, self.format)
        return ConvertPicture(self.device, self.format, "nv12Main", coefficients)

    def bind(self, planes: PlaneSet, overlay: BoundOverlay | None = None) -> BoundCompose:
        """Give a slot its pictures.

        Parameters
        ----------
        planes : PlaneSet
            The frame.
        overlay : BoundOverlay, optional
            What is drawn on it.
        """
        return BoundCompose(self, planes, overlay)

    def destroy(self) -> None:
        """Release the pipelines; idempotent."""
        for one in self.passes.values():
            one.destroy()
        self.blend.destroy()


def _output_colour(format: FrameFormat) -> tuple[Matrix, bool]:
    if format.pixel.yuv:
        return format.matrix, format.full_range
    return ("bt709" if format.upright_size[1] >= _HD_LINES else "bt601"), False


class _Picture:
    """Memory of one picture: made where the GPU is fastest, and read where the host is."""

    def __init__(self, device: Device, size: int) -> None:
        self.host = Buffer(device, size, "readback")
        self.made = self.host if device.caps.host_memory else Buffer(device, size)
        self.made.write(np.zeros(size, np.uint8))

    def record_read_back(self, rec: Recorder) -> None:
        if self.made is not self.host:
            rec.copy_buffer(self.made, self.host, self.host.size)

    def destroy(self) -> None:
        self.made.destroy()
        self.host.destroy()


class BoundCompose:
    """The passes with a slot's memory.

    Attributes
    ----------
    nv12_array : numpy.ndarray or None
        View of mapped memory, uint8 ``(H + H/2, stride)``: H and the width rounded up to even, the last row and column
        repeated; the stride is a multiple of 64, and columns past the even width are padding.
    rgba_array : numpy.ndarray or None
        View of mapped memory, uint8 ``(height, width, 4)``.
    """

    def __init__(self, compose: Compose, planes: PlaneSet, overlay: BoundOverlay | None) -> None:
        width, height = compose.format.upright_size
        shapes = {
            "nv12": (nv12_rows(height), nv12_stride(width)),
            "rgba": (height, width, 4),
        }
        self._pictures = {name: _Picture(compose.device, int(np.prod(shapes[name]))) for name in compose.passes}
        self._bound = [one.bind(planes, self._pictures[name].made) for name, one in compose.passes.items()]
        made = {name: picture.made for name, picture in self._pictures.items()}
        self._blend = None
        if overlay is not None:
            self._blend = compose.blend.bind(overlay.surface, made.get("nv12"), made.get("rgba"))
        self.nv12_array, self.rgba_array = (
            self._pictures[name].host.array().reshape(shapes[name]) if name in made else None for name in shapes
        )

    @property
    def nv12(self) -> Buffer | None:
        """The NV12 picture as the host reads it."""
        return self._pictures["nv12"].host if "nv12" in self._pictures else None

    @property
    def rgba(self) -> Buffer | None:
        """The RGBA picture as the host reads it."""
        return self._pictures["rgba"].host if "rgba" in self._pictures else None

    @property
    def nbytes(self) -> int:
        """Bytes that the host reads a frame."""
        return sum(picture.host.size for picture in self._pictures.values())

    def record(self, rec: Recorder) -> None:
        """Record all of it.

        Before: planes are written, and the overlay (``target compute`` to ``compute transfer indirect``). After:
        ``compute transfer`` have written the pictures; a barrier to ``host`` must follow before the host reads.
        """
        for one in self._bound:
            one.record(rec)
        if self._blend is not None:
            rec.barrier("transfer compute", "compute")
            self._blend.record(rec)
        if any(picture.made is not picture.host for picture in self._pictures.values()):
            rec.barrier("transfer compute", "transfer")
            for picture in self._pictures.values():
                picture.record_read_back(rec)

    def destroy(self) -> None:
        """Release the slot's memory; idempotent. The GPU must have finished with it."""
        self.nv12_array = self.rgba_array = None
        for bound in self._bound:
            bound.destroy()
        if self._blend is not None:
            self._blend.destroy()
        for picture in self._pictures.values():
            picture.destroy()
