"""Outlines of boxes, drawn by one indirect instanced draw whose instance count is the detections' own."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from raven.draw.layer import Layer
from raven.gpu import Buffer, Device, GraphicsPipeline, Recorder
from raven.tensor import Tensor

#: A ring as a triangle strip: outer and inner corner by turns, and the first pair again.
VERTICES = 10
_PUSH = struct.Struct("<3Q3If2ff4x")


@dataclass(frozen=True)
class BoxStyle:
    """How outlines look.

    Attributes
    ----------
    line_width : float
        Pixels of the source.
    radius : float
        Of the corners of the outline's middle line, in pixels.
    """

    line_width: float
    radius: float

    @classmethod
    def for_height(cls, height: int, line_width: float | None = None) -> BoxStyle:
        """Style for a frame of so many lines: about a 300th of the height, at least 2 pixels, unless given."""
        width = float(max(2, round(height / 300))) if line_width is None else float(line_width)
        return cls(width, 1.5 * width)


class Boxes:
    """The pass, compiled once.

    Parameters
    ----------
    palette : Buffer
        :func:`raven.draw.palette.table`.
    """

    def __init__(self, device: Device, palette: Buffer) -> None:
        self.palette = palette
        self.pipeline = GraphicsPipeline(
            device, "draw/boxes", target="R8G8B8A8_UNORM", push_size=_PUSH.size, strip=True
        )

    def record(self, rec: Recorder, detections: Tensor, layer: Layer, style: BoxStyle, args: tuple[Buffer, int]) -> None:
        """Draw within a rendering scope on the layer.

        Parameters
        ----------
        args : tuple of Buffer and int
            Where the VkDrawIndirectCommand is: :data:`VERTICES` and the number of rows.
        """
        push = _PUSH.pack(
            detections.header_address,
            layer.tiles.address,
            self.palette.address,
            self.palette.size // 8,
            layer.columns,
            layer.count,
            style.line_width / 2,
            *layer.size,
            style.radius,
        )
        rec.bind(self.pipeline, push)
        rec.draw_indirect(*args)

    def destroy(self) -> None:
        """Release the pipeline; idempotent."""
        self.pipeline.destroy()
