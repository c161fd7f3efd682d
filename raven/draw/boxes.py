"""Outlines of boxes, drawn by one indirect instanced draw whose instance count is the detections' own."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from raven.gpu import Buffer, Device, GraphicsPipeline, Recorder
from raven.tensor import Tensor

#: A ring as a triangle strip: outer and inner corner by turns, and the first pair again.
VERTICES = 10
#: Vertical resolution for each pixel of line width.
_LINES_A_PIXEL = 300
_PUSH = struct.Struct("<2Q16s2I")


@dataclass(frozen=True)
class BoxStyle:
    """How outlines look on frames of a size.

    Attributes
    ----------
    size : tuple of int
        Width and height of the upright frame, in pixels.
    line_width : float
        Pixels of the frame.
    radius : float
        Of the corners of the outline's middle line, in pixels.
    """

    size: tuple[int, int]
    line_width: float
    radius: float

    @classmethod
    def of(cls, size: tuple[int, int], line_width: float | None = None) -> BoxStyle:
        """Style for a size of frame: a 300th of the height wide, at least 2 pixels, unless a width is given."""
        width = float(max(2, round(size[1] / _LINES_A_PIXEL)) if line_width is None else line_width)
        return cls(size, width, 1.5 * width)

    def pack(self) -> bytes:
        """The struct ``Outline`` of shaders/draw/shapes.slang."""
        return struct.pack("<4f", *self.size, self.line_width / 2, self.radius)


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
            device,
            "draw/boxes",
            target="R8G8B8A8_UNORM",
            push_size=_PUSH.size,
            strip=True,
        )

    def record(
        self,
        rec: Recorder,
        detections: Tensor,
        style: BoxStyle,
        args: tuple[Buffer, int],
    ) -> None:
        """Draw within a rendering scope on the layer.

        Parameters
        ----------
        args : tuple of Buffer and int
            Where the VkDrawIndirectCommand is: :data:`VERTICES` and the number of rows.
        """
        colours = self.palette.size // 8
        rec.bind(
            self.pipeline,
            _PUSH.pack(
                detections.header_address,
                self.palette.address,
                style.pack(),
                colours,
                0,
            ),
        )
        rec.draw_indirect(*args)

    def destroy(self) -> None:
        """Release the pipeline; idempotent."""
        self.pipeline.destroy()
