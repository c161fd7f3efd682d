"""Boxes and labels of a frame's detections, drawn into a layer without the host knowing how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from raven.draw import boxes, labels, palette
from raven.draw.boxes import Boxes, BoxStyle
from raven.draw.labels import Labels, LabelText
from raven.draw.layer import Layer
from raven.draw.mark import Mark
from raven.errors import UsageError
from raven.gpu import Buffer, Device, Image, Recorder
from raven.tensor import Tensor
from raven.tensor.header import INSTANCE_COUNT

_COUNT_OFFSET = 4 * INSTANCE_COUNT
# Offsets of the indirect commands: two draws, and a dispatch with a workgroup a detection.
_BOXES, _LABELS, _MARK = 0, 16, 32


class Overlay:
    """What is drawn on frames, compiled once.

    Parameters
    ----------
    class_names : sequence of str
        By class id; ids past the end show ``?``.
    line_width : float or None
        Of outlines, in source pixels (None: a 300th of the frame's height, at least 2).
    text_size : int or None
        Font size in source pixels (None: a 45th of the frame's height, at least 11).
    boxes, labels : bool
        What to draw.
    font : Path or None
        A font file for labels instead of DejaVu Sans Bold.

    Raises
    ------
    UsageError
        A size out of range.
    """

    def __init__(
        self,
        device: Device,
        class_names: Sequence[str],
        *,
        line_width: float | None = None,
        text_size: int | None = None,
        boxes: bool = True,
        labels: bool = True,
        font: Path | None = None,
    ) -> None:
        if line_width is not None and not 0.5 <= line_width <= 100:
            raise UsageError(f"a line width of {line_width:g} pixels: give 0.5 to 100")
        if text_size is not None and not 6 <= text_size <= 200:
            raise UsageError(f"a text size of {text_size} pixels: give 6 to 200")
        self.device, self.class_names, self.line_width, self.text_size = (
            device,
            tuple(class_names),
            line_width,
            text_size,
        )
        self.font = font
        table = palette.table()
        self.palette = Buffer(device, table.nbytes)
        self.palette.write(table)
        self.boxes = Boxes(device, self.palette) if boxes else None
        self.labels = Labels(device, self.palette) if labels else None
        self.mark = Mark(device, boxes)

    def bind(self, detections: Tensor, size: tuple[int, int]) -> BoundOverlay:
        """Give a slot its layer.

        Parameters
        ----------
        detections : Tensor
            float32 ``(capacity, 8)``; the rows in use stand in its header.
        size : tuple of int
            Width and height of the upright frame, in pixels.
        """
        return BoundOverlay(self, detections, size)

    def destroy(self) -> None:
        """Release pipelines and tables; idempotent."""
        for item in (self.boxes, self.labels, self.mark, self.palette):
            if item is not None:
                item.destroy()


class BoundOverlay:
    """An overlay's commands and memory for one slot.

    Attributes
    ----------
    layer : Image
        R8G8B8A8_UNORM, premultiplied alpha, of the upright frame's size.
    tiles : Buffer
        Which 8x8 tiles of it hold anything; see :mod:`raven.draw.layer`.
    surface : Layer
        Both of them, for further passes that draw.
    """

    def __init__(self, overlay: Overlay, detections: Tensor, size: tuple[int, int]) -> None:
        device = overlay.device
        self.overlay, self.detections, self.size = overlay, detections, size
        self.style = BoxStyle.of(size, overlay.line_width)
        self.surface = Layer(device, size)
        self.text = None
        if overlay.labels is not None:
            self.text = LabelText(device, overlay.class_names, size, overlay.text_size, overlay.font)
        draws = [boxes.VERTICES, 0, 0, 0, labels.VERTICES, 0, 0, 0]
        self.args = Buffer(device, 48)
        self.args.write(np.array([*draws, 0, 1, 1, 0], np.uint32))

    @property
    def layer(self) -> Image:
        return self.surface.image

    @property
    def tiles(self) -> Buffer:
        return self.surface.tiles

    def record(self, rec: Recorder) -> None:
        """Record the drawing. Before: the detections are written (any stage to ``transfer compute vertex indirect``).

        After: the layer is written by ``target``, the tiles by ``compute``; composing must follow, which empties both.
        """
        self.surface.record_reset(rec)
        for count_at in (_BOXES + 4, _LABELS + 4, _MARK):
            rec.copy_buffer(self.detections.buffer, self.args, 4, _COUNT_OFFSET, count_at)
        rec.barrier("transfer", "indirect compute")
        self.overlay.mark.record(
            rec,
            self.detections,
            self.surface,
            self.text,
            self.style,
            (self.args, _MARK),
        )
        rec.begin_rendering(self.layer, self.size)
        rec.begin_condition(self.detections.buffer, _COUNT_OFFSET)
        self._draw(rec)
        rec.end_condition()
        rec.end_rendering()

    def _draw(self, rec: Recorder) -> None:
        overlay = self.overlay
        if overlay.boxes is not None:
            overlay.boxes.record(rec, self.detections, self.style, (self.args, _BOXES))
        if overlay.labels is not None and self.text is not None:
            overlay.labels.record(rec, self.detections, self.text, self.style, (self.args, _LABELS))

    def destroy(self) -> None:
        """Release the slot's memory; idempotent. The GPU must have finished with it."""
        for item in (self.surface, self.text, self.args):
            if item is not None:
                item.destroy()
