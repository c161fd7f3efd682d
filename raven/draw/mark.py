"""Puts the tiles that boxes and labels touch on the layer's list: one workgroup a detection."""

from __future__ import annotations

import struct

from raven.draw.boxes import BoxStyle
from raven.draw.labels import LabelText
from raven.draw.layer import Layer
from raven.gpu import Buffer, ComputePipeline, Device, Recorder
from raven.tensor import Tensor

_PUSH = struct.Struct("<2Q24s16s4I")


class Mark:
    """The pass, compiled once.

    Parameters
    ----------
    boxes : bool
        Whether outlines are drawn.
    """

    def __init__(self, device: Device, boxes: bool) -> None:
        self.boxes = boxes
        self.pipeline = ComputePipeline(device, "draw/mark", push_size=_PUSH.size)

    def record(
        self,
        rec: Recorder,
        detections: Tensor,
        layer: Layer,
        text: LabelText | None,
        style: BoxStyle,
        args: tuple[Buffer, int],
    ) -> None:
        """Run as many workgroups as there are rows.

        Parameters
        ----------
        text : LabelText or None
            None where no labels are drawn.
        args : tuple of Buffer and int
            Where the VkDispatchIndirectCommand is.
        """
        push = _PUSH.pack(
            detections.header_address,
            layer.tiles.address,
            bytes(24) if text is None else text.pack(),
            style.pack(),
            layer.columns,
            layer.count,
            self.boxes,
            text is not None,
        )
        rec.bind(self.pipeline, push)
        rec.dispatch_indirect(*args)

    def destroy(self) -> None:
        """Release the pipeline; idempotent."""
        self.pipeline.destroy()
