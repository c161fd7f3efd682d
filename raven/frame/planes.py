"""A decoded frame's planes on the GPU."""

from __future__ import annotations

import numpy as np

from raven.frame.format import Frame, FrameFormat
from raven.gpu import Buffer, Device, Image, Recorder

_FORMATS = {(1, 8): "R8_UNORM", (2, 8): "R8G8_UNORM", (1, 16): "R16_UNORM", (2, 16): "R16G16_UNORM"}
# Buffer-to-image copies want offsets that are multiples of the texel size; a cache line also helps the host's copy.
_ALIGN = 64


class PlaneSet:
    """Images for the planes of frames of one format.

    Parameters
    ----------
    device : Device
    format : FrameFormat
    shared : bool
        Place the images in memory that CUDA can import.

    Attributes
    ----------
    images : list of Image
        Packed formats lie in one 8-bit image of ``width * components`` columns.
    nbytes : int
        Bytes of staging memory that a frame takes.
    """

    def __init__(self, device: Device, format: FrameFormat, shared: bool = False) -> None:
        self.format = format
        self._shapes = [self._shape(plane) for plane in range(len(format.pixel.planes))]
        self.offsets, self.nbytes = self._lay_out()
        self.images = [self._image(device, plane, shared) for plane in range(len(self._shapes))]

    def _shape(self, plane: int) -> tuple[int, int]:
        """Rows and samples a row."""
        width, height = self.format.pixel.plane_size(plane, self.format.width, self.format.height)
        return height, width * self.format.pixel.planes[plane]

    def _lay_out(self) -> tuple[list[int], int]:
        offsets, at = [], 0
        for rows, samples in self._shapes:
            offsets.append(at)
            size = rows * samples * self.format.pixel.dtype.itemsize
            at += -(-size // _ALIGN) * _ALIGN
        return offsets, at

    def _image(self, device: Device, plane: int, shared: bool) -> Image:
        pixel, (rows, samples) = self.format.pixel, self._shapes[plane]
        components = pixel.planes[plane] if pixel.yuv else 1
        name = _FORMATS[components, pixel.bits]
        return Image(device, samples // components, rows, name, "sampled transfer", shared)

    def copy_in(self, frame: Frame, staging: np.ndarray) -> None:
        """Copy a frame's planes into mapped memory, tightly packed.

        Parameters
        ----------
        staging : numpy.ndarray
            ``(nbytes,)`` uint8.
        """
        dtype = self.format.pixel.dtype
        for plane, offset, shape in zip(frame.planes, self.offsets, self._shapes, strict=True):
            size = shape[0] * shape[1] * dtype.itemsize
            np.copyto(staging[offset : offset + size].view(dtype).reshape(shape), plane)

    def record_upload(self, rec: Recorder, staging: Buffer, offset: int = 0) -> None:
        """Record the copies from staging memory into the images."""
        for image, at in zip(self.images, self.offsets, strict=True):
            rec.copy_buffer_to_image(staging, image, offset + at)

    def destroy(self) -> None:
        """Release the images; the GPU must have finished with them."""
        for image in self.images:
            image.destroy()
