"""The image that overlays are drawn into, and the GPU's own list of which of its tiles hold anything.

A source's planes are never drawn on. Overlays go into a layer of premultiplied colour that is empty but for what the
frame's detections put there, and the 8x8 tiles that they touch are put on a list (shaders/draw/layer.slang).
Composing then visits the listed tiles only, and empties them again, so the cost of drawing follows what was drawn.
"""

from __future__ import annotations

import numpy as np

from raven.gpu import Buffer, Device, Image, Recorder

#: Pixels along a side. Outlines are thin: with tiles of 8 the blend has half as many pixels to visit as with 16.
TILE = 8
#: Byte offset in :attr:`Layer.tiles` of the VkDispatchIndirectCommand with a workgroup for every four dirty tiles.
DISPATCH_OFFSET = 4
_LIST_OFFSET = 64


class Layer:
    """A drawing layer of one slot.

    Parameters
    ----------
    size : tuple of int
        Width and height of the upright frame, in pixels.

    Attributes
    ----------
    image : Image
        R8G8B8A8_UNORM, premultiplied alpha; all zero between frames.
    tiles : Buffer
        Count, dispatch arguments, list and flags of dirty tiles.
    columns, count : int
        Tiles a row, and tiles in all.
    """

    def __init__(self, device: Device, size: tuple[int, int]) -> None:
        self.size = size
        self.columns, rows = -(-size[0] // TILE), -(-size[1] // TILE)
        self.count = self.columns * rows
        self.image = Image(device, *size, "R8G8B8A8_UNORM", "target storage sampled transfer")
        self.tiles = Buffer(device, _LIST_OFFSET + 8 * self.count)
        words = np.zeros(self.tiles.size // 4, np.uint32)
        words[:6] = (0, 0, 1, 1, self.columns, rows)
        self.tiles.write(words)
        device.immediate(self._clear)

    def _clear(self, rec: Recorder) -> None:
        rec.begin_rendering(self.image, self.size, (0.0, 0.0, 0.0, 0.0))
        rec.end_rendering()

    def record_reset(self, rec: Recorder) -> None:
        """Empty the list (a transfer); the flags were taken back by whoever composed the last frame."""
        rec.fill_buffer(self.tiles, 0, 0, 8)

    def destroy(self) -> None:
        """Release the memory; idempotent."""
        self.image.destroy()
        self.tiles.destroy()
