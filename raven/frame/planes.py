"""A decoded frame's planes on the GPU."""

from __future__ import annotations

import numpy as np

from raven.frame.colour import fold
from raven.frame.format import Frame, FrameFormat
from raven.gpu import Buffer, Device, Image, Recorder

_FORMATS = {(1, 8): "R8_UNORM", (2, 8): "R8G8_UNORM", (1, 16): "R16_UNORM", (2, 16): "R16G16_UNORM"}
_TEXEL_BYTES = {name: components * bits // 8 for (components, bits), name in _FORMATS.items()}
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
        Packed formats lie in one 8-bit image of ``width * components`` columns, folded where those are too many: see
        :func:`raven.frame.colour.fold`.
    words : list of Image
        The same rows as pairs of 32-bit words, on CPU devices only: see :mod:`raven.frame.strips`.
    nbytes : int
        Bytes of staging memory that a frame takes: rows padded to pairs of words.
    """

    def __init__(self, device: Device, format: FrameFormat, shared: bool = False) -> None:
        self.format = format
        self.images: list[Image] = []
        self.words: list[Image] = []
        self._shapes = [self._shape(plane) for plane in range(len(format.pixel.planes))]
        self._pitches = [self._pitch(samples) for _, samples in self._shapes]
        self.offsets, self.nbytes = self._lay_out()
        try:
            self._make_images(device, shared)
        except BaseException:
            self.destroy()
            raise

    def _shape(self, plane: int) -> tuple[int, int]:
        """Rows and samples a row."""
        width, height = self.format.pixel.plane_size(plane, self.format.width, self.format.height)
        return height, width * self.format.pixel.planes[plane]

    def _pitch(self, samples: int) -> int:
        """Bytes a row of staging memory: whole pairs of words."""
        columns, pieces = (samples, 1) if self.format.pixel.yuv else fold(self.format)
        return -(-columns * pieces * self.format.pixel.dtype.itemsize // 8) * 8

    def _lay_out(self) -> tuple[list[int], int]:
        offsets, at = [], 0
        for (rows, _), pitch in zip(self._shapes, self._pitches, strict=True):
            offsets.append(at)
            at += -(-rows * pitch // _ALIGN) * _ALIGN
        return offsets, at

    def _make_images(self, device: Device, shared: bool) -> None:
        pixel, usage = self.format.pixel, "sampled transfer"
        for components, (rows, samples) in zip(pixel.planes, self._shapes, strict=True):
            together = components if pixel.yuv else 1
            columns, pieces = (samples // together, 1) if pixel.yuv else fold(self.format)
            name = _FORMATS[together, pixel.bits]
            self.images.append(Image(device, columns, rows * pieces, name, usage, shared))
        if device.physical.type == "cpu":
            for pitch, (rows, _) in zip(self._pitches, self._shapes, strict=True):
                self.words.append(Image(device, pitch // 8, rows, "R32G32_UINT", usage))

    def copy_in(self, frame: Frame, staging: np.ndarray) -> None:
        """Copy a frame's planes into mapped memory; planes without padding go in one piece.

        Parameters
        ----------
        staging : numpy.ndarray
            ``(nbytes,)`` uint8.
        """
        dtype = self.format.pixel.dtype
        for plane, offset, (rows, samples), pitch in zip(
            frame.planes, self.offsets, self._shapes, self._pitches, strict=True
        ):
            target = staging[offset : offset + rows * pitch].view(dtype).reshape(rows, -1)
            np.copyto(target[:, :samples], plane)

    def rows(self) -> list[tuple[int, int, int, int]]:
        """Where each plane lies in staging memory: offset, bytes from row to row, bytes of a row that count, rows."""
        size = self.format.pixel.dtype.itemsize
        return [
            (offset, pitch, samples * size, rows)
            for offset, pitch, (rows, samples) in zip(self.offsets, self._pitches, self._shapes, strict=True)
        ]

    def record_upload(self, rec: Recorder, staging: Buffer, offset: int = 0) -> None:
        """Record the copies from staging memory into the images."""
        for image, at, pitch in zip(self.images, self.offsets, self._pitches, strict=True):
            pieces = 1 if self.format.pixel.yuv else fold(self.format)[1]
            rec.copy_buffer_to_image(staging, image, offset + at, pitch // pieces // _TEXEL_BYTES[image.format])
        for image, at in zip(self.words, self.offsets, strict=False):
            rec.copy_buffer_to_image(staging, image, offset + at)

    def destroy(self) -> None:
        """Release the images; the GPU must have finished with them."""
        for image in (*self.images, *self.words):
            image.destroy()
