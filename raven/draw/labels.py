"""Labels with class name and score, drawn by one indirect instanced draw: an instance a detection, a quad each."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from raven.draw.boxes import BoxStyle
from raven.draw.glyphs import TextRuns, lay_out
from raven.gpu import Buffer, Device, GraphicsPipeline, Recorder
from raven.tensor import Tensor

VERTICES = 4
_PUSH = struct.Struct("<3Q24s16s2IfI")


def default_text_size(height: int) -> int:
    """Font size in pixels for a frame of so many lines: a 45th of it, at least 11."""
    return max(11, round(height / 45))


class LabelText:
    """Class names in GPU memory, laid out for one size of frame.

    Parameters
    ----------
    class_names : sequence of str
    size : tuple of int
        Width and height of the upright frame: a name takes at most 60 % of the width.
    text_size : int or None
        Font size in pixels (None: by the frame's height).
    font : Path or None
        A font file instead of DejaVu Sans Bold.
    """

    def __init__(
        self,
        device: Device,
        class_names: Sequence[str],
        size: tuple[int, int],
        text_size: int | None,
        font: Path | None,
    ) -> None:
        self.classes = len(class_names)
        runs = lay_out(
            class_names,
            text_size or default_text_size(size[1]),
            max(1, int(size[0] * 0.6)),
            font,
        )
        self.runs: TextRuns = runs
        self.names = Buffer(device, runs.names.nbytes)
        self.names.write(runs.names)
        self.texels = Buffer(device, -(-runs.texels.size // 4) * 4)
        self.texels.write(np.pad(runs.texels, (0, -runs.texels.size % 4)))

    def pack(self) -> bytes:
        """The struct ``LabelShape`` of shaders/draw/text.slang."""
        runs = self.runs
        widths = sum(min(width, 255) << 8 * slot for slot, width in enumerate(runs.cell_widths))
        return struct.pack("<Q4I", self.names.address, self.classes, runs.height, runs.padding, widths)

    def destroy(self) -> None:
        """Release the memory; idempotent."""
        self.names.destroy()
        self.texels.destroy()


class Labels:
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
            "draw/labels",
            target="R8G8B8A8_UNORM",
            push_size=_PUSH.size,
            strip=True,
        )

    def record(
        self,
        rec: Recorder,
        detections: Tensor,
        text: LabelText,
        style: BoxStyle,
        args: tuple[Buffer, int],
    ) -> None:
        """Draw within a rendering scope on the layer.

        Parameters
        ----------
        style : BoxStyle
            Of the boxes that the labels stand on.
        args : tuple of Buffer and int
            Where the VkDrawIndirectCommand is: :data:`VERTICES` and the number of rows.
        """
        push = _PUSH.pack(
            detections.header_address,
            self.palette.address,
            text.texels.address,
            text.pack(),
            style.pack(),
            self.palette.size // 8,
            text.runs.cell_pitch,
            min(text.runs.height / 5, style.radius + style.line_width / 2),
            0,
        )
        rec.bind(self.pipeline, push)
        rec.draw_indirect(*args)

    def destroy(self) -> None:
        """Release the pipeline; idempotent."""
        self.pipeline.destroy()
