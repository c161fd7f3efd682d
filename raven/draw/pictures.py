"""Passes that make a whole output picture from a frame's planes, before anything is drawn on it."""

from __future__ import annotations

import math
import struct
from typing import Protocol

import numpy as np

from raven.draw.regrid import Taps, grid
from raven.frame.colour import float_bits, sample_scale, source_constants, source_view
from raven.frame.format import FrameFormat
from raven.frame.planes import PlaneSet
from raven.gpu import Buffer, ComputePipeline, DescriptorSet, Device, Recorder

_SOURCE = [("sampled", 3)]


def nv12_stride(width: int) -> int:
    """Bytes a row of NV12: the width rounded up to 64, which suits encoders and every pass here."""
    return -(-width // 64) * 64


def nv12_rows(height: int) -> int:
    """Rows of luma and chroma together."""
    return 3 * ((height + 1) // 2)


class BoundPicture(Protocol):
    """A picture pass with a slot's memory."""

    def record(self, rec: Recorder) -> None:
        """Before: planes are written. After: ``transfer compute`` have written the picture."""

    def destroy(self) -> None: ...


class PicturePass(Protocol):
    """A picture pass, compiled once."""

    def bind(self, planes: PlaneSet, target: Buffer) -> BoundPicture: ...

    def destroy(self) -> None: ...


def copies_planes(format: FrameFormat) -> bool:
    """Whether a frame's planes are NV12's own samples, in its order, so that they are only moved."""
    pixel = format.pixel
    plain = pixel.yuv and pixel.depth == 8 and (pixel.sub_x, pixel.sub_y) == (2, 2)
    return plain and not (format.rotation or format.mirror or format.width % 2 or format.height % 2)


class CopyNv12:
    """Upright 8-bit 4:2:0 of even size: planes are copied, and I420's chroma is interleaved."""

    push = struct.Struct("<3Q2I")

    def __init__(self, device: Device, format: FrameFormat) -> None:
        self.device, self.format = device, format
        planar = len(format.pixel.planes) == 3
        self.interleave = (
            ComputePipeline(device, "draw/compose_interleave", push_size=self.push.size) if planar else None
        )

    def bind(self, planes: PlaneSet, target: Buffer) -> BoundPicture:
        return _BoundCopy(self, planes, target)

    def destroy(self) -> None:
        if self.interleave is not None:
            self.interleave.destroy()


class _BoundCopy:
    def __init__(self, owner: CopyNv12, planes: PlaneSet, target: Buffer) -> None:
        self.owner, self.planes, self.target = owner, planes, target
        self.stride = nv12_stride(owner.format.width)
        self.luma_bytes = self.stride * owner.format.height
        # Chroma rows that are half as long as the picture's, so that words of both line up.
        self.plane_bytes = self.luma_bytes // 4
        self.chroma = Buffer(owner.device, 2 * self.plane_bytes) if owner.interleave is not None else None

    def record(self, rec: Recorder) -> None:
        images = self.planes.images
        rec.copy_image_to_buffer(images[0], self.target, 0, self.stride)
        if self.chroma is None:
            rec.copy_image_to_buffer(images[1], self.target, self.luma_bytes, self.stride // 2)
            return
        for slot in range(2):
            rec.copy_image_to_buffer(images[1 + slot], self.chroma, slot * self.plane_bytes, self.stride // 2)
        rec.barrier("transfer", "compute")
        self._interleave(rec, self.chroma)

    def _interleave(self, rec: Recorder, chroma: Buffer) -> None:
        pipeline = self.owner.interleave
        assert pipeline is not None, "planar formats have one"
        words = self.plane_bytes // 8
        addresses = (
            chroma.address,
            chroma.address + self.plane_bytes,
            self.target.address + self.luma_bytes,
        )
        rec.bind(pipeline, self.owner.push.pack(*addresses, words, 0))
        rec.dispatch(math.ceil(words / 64))

    def destroy(self) -> None:
        if self.chroma is not None:
            self.chroma.destroy()


class _BoundCompute:
    """One dispatch that reads the planes; four pixels by two a thread, or one."""

    def __init__(
        self,
        pipeline: ComputePipeline,
        push: bytes,
        planes: PlaneSet,
        size: tuple[int, int],
        block: tuple[int, int],
    ) -> None:
        self.pipeline, self.push = pipeline, push
        self.descriptors: DescriptorSet = pipeline.descriptors([planes.images])
        self.groups = (
            math.ceil(size[0] / (16 * block[0])),
            math.ceil(size[1] / (4 * block[1])),
        )

    def record(self, rec: Recorder) -> None:
        rec.bind(self.pipeline, self.push, self.descriptors)
        rec.dispatch(*self.groups)

    def destroy(self) -> None:
        self.descriptors.destroy()


class PlanesToNv12:
    """Any YUV format as upright 8-bit NV12 in the source's own matrix and range."""

    push = struct.Struct("<Q14i3fI")

    def __init__(self, device: Device, format: FrameFormat) -> None:
        self.format = format
        self.pipeline = ComputePipeline(
            device,
            "draw/compose_planes",
            push_size=self.push.size,
            bindings=_SOURCE,
            constants={0: source_constants(format)[0], **_tap_constants(grid(format).taps)},
        )

    def bind(self, planes: PlaneSet, target: Buffer) -> BoundPicture:
        size = self.format.upright_size
        return _BoundCompute(self.pipeline, self._push(target), planes, size, (4, 2))

    def _push(self, target: Buffer) -> bytes:
        format, where = self.format, grid(self.format)
        pixel = format.pixel
        taps_x, taps_y = where.taps
        return self.push.pack(
            target.address,
            *format.upright_size,
            *where.origin,
            *where.right,
            *where.down,
            *(taps_x.first, taps_y.first),
            *where.step,
            *pixel.plane_size(1, format.width, format.height),
            *self._levels(),
            nv12_stride(format.upright_size[0]),
        )

    def _levels(self) -> tuple[float, float, float]:
        """Texel to code, code to 8 bits, and what chroma is then off by: full range is no power of two."""
        depth = self.format.pixel.depth
        top = 2**depth - 1
        scale = 255 / top if self.format.full_range else 2.0 ** (8 - depth)
        return sample_scale(self.format) * top, scale, 128 - 2 ** (depth - 1) * scale

    def destroy(self) -> None:
        self.pipeline.destroy()


def _tap_constants(taps: tuple[Taps, Taps]) -> dict[int, int]:
    """Specialisation constants 32 to 39: numbers of taps, then weights."""
    values = [len(one.weights) for one in taps]
    for one in taps:
        values += [float_bits(weight) for weight in (*one.weights, 0.0, 0.0)[:3]]
    return dict(enumerate(values, 32))


class ConvertPicture:
    """A picture by way of RGB.

    Parameters
    ----------
    entry : {'nv12Main', 'rgbaMain'}
        NV12 from packed formats, RGBA from any.
    matrix : numpy.ndarray
        :func:`raven.draw.regrid.rgb_to_yuv` of the NV12 picture.
    """

    push = struct.Struct("<40sQ2i2I12f")

    def __init__(self, device: Device, format: FrameFormat, entry: str, matrix: np.ndarray) -> None:
        self.format, self.matrix, self.block = (
            format,
            matrix,
            (4, 2) if entry == "nv12Main" else (1, 1),
        )
        self.pipeline = ComputePipeline(
            device,
            "draw/compose_convert",
            entry,
            push_size=self.push.size,
            bindings=_SOURCE,
            constants=source_constants(format),
        )

    def bind(self, planes: PlaneSet, target: Buffer) -> BoundPicture:
        size = self.format.upright_size
        view, stride = source_view(self.format), nv12_stride(size[0])
        push = self.push.pack(view, target.address, *size, stride, 0, *self.matrix.reshape(-1))
        return _BoundCompute(self.pipeline, push, planes, size, self.block)

    def destroy(self) -> None:
        self.pipeline.destroy()
