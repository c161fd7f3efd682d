"""Blends a layer's dirty tiles over finished pictures and empties the layer."""

from __future__ import annotations

import struct
from collections.abc import Collection

import numpy as np

from raven.draw.layer import DISPATCH_OFFSET, Layer
from raven.draw.pictures import nv12_stride
from raven.gpu import Buffer, ComputePipeline, DescriptorSet, Device, Recorder

_PUSH = struct.Struct("<3Q6I12f")


class Blend:
    """The pass, compiled once.

    Parameters
    ----------
    wants : collection of {'nv12', 'rgba'}
    matrix : numpy.ndarray
        :func:`raven.draw.regrid.rgb_to_yuv` of the NV12 picture.
    """

    def __init__(self, device: Device, wants: Collection[str], matrix: np.ndarray) -> None:
        self.matrix = matrix
        self.pipeline = ComputePipeline(
            device,
            "draw/compose_blend",
            push_size=_PUSH.size,
            bindings=[("storage", 1)],
            constants={0: "nv12" in wants, 1: "rgba" in wants},
        )

    def bind(self, layer: Layer, nv12: Buffer | None, rgba: Buffer | None) -> BoundBlend:
        """Give a slot's layer and pictures; None where a picture is not wanted."""
        return BoundBlend(self, layer, nv12, rgba)

    def destroy(self) -> None:
        """Release the pipeline; idempotent."""
        self.pipeline.destroy()


class BoundBlend:
    """The pass with a slot's memory."""

    def __init__(self, blend: Blend, layer: Layer, nv12: Buffer | None, rgba: Buffer | None) -> None:
        self.blend, self.layer = blend, layer
        self.descriptors: DescriptorSet = blend.pipeline.descriptors([layer.image])
        self.push = _PUSH.pack(
            layer.tiles.address,
            nv12.address if nv12 is not None else 0,
            rgba.address if rgba is not None else 0,
            *layer.size,
            nv12_stride(layer.size[0]),
            layer.columns,
            layer.count,
            0,
            *blend.matrix.reshape(-1),
        )

    def record(self, rec: Recorder) -> None:
        """Before: layer, tiles and pictures are written. After: ``compute`` has written all three."""
        rec.bind(self.blend.pipeline, self.push, self.descriptors)
        rec.dispatch_indirect(self.layer.tiles, DISPATCH_OFFSET)

    def destroy(self) -> None:
        """Release the descriptors; idempotent."""
        self.descriptors.destroy()
