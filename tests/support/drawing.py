"""What the tests of drawing share: detections from rows, and a layer as NumPy sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from raven.draw.overlay import BoundOverlay, Overlay
from raven.gpu import Buffer, Device
from raven.tensor import Tensor

NAMES = ("person", "bicycle", "Straßenbahn", "Kühlschrank", "светофор", "Typography AVATAR")


def rows_of(*boxes: Sequence[float], score: float = 0.91, track: int = -1) -> np.ndarray:
    """Detections ``(n, 8)`` from ``(x1, y1, x2, y2, class)`` with more columns as given."""
    rows = np.zeros((len(boxes), 8), np.float32)
    rows[:, 4], rows[:, 6] = score, track
    for row, (x1, y1, x2, y2, kind, *rest) in zip(rows, boxes, strict=True):
        row[:4], row[5] = (x1, y1, x2, y2), kind
        row[[4, 6][: len(rest)]] = rest
    return rows


@contextmanager
def bound_overlay(
    device: Device, rows: np.ndarray, size: tuple[int, int], capacity: int = 300, **style: object
) -> Iterator[tuple[Tensor, BoundOverlay]]:
    """Detections and an overlay bound to them."""
    detections = Tensor(device, (capacity, 8))
    detections.write(rows)
    overlay = Overlay(device, NAMES, **style)  # type: ignore[arg-type]
    bound = overlay.bind(detections, size)
    try:
        yield detections, bound
    finally:
        for item in (bound, overlay, detections):
            item.destroy()


def read_layer(device: Device, bound: BoundOverlay) -> np.ndarray:
    """The layer, uint8 ``(height, width, 4)``, premultiplied."""
    width, height = bound.size
    out = Buffer(device, width * height * 4, "readback")
    try:
        device.immediate(lambda rec: rec.copy_image_to_buffer(bound.layer, out))
        return out.read().reshape(height, width, 4)
    finally:
        out.destroy()


def draw(device: Device, rows: np.ndarray, size: tuple[int, int], **style: object) -> np.ndarray:
    """Draw once; return the layer."""
    with bound_overlay(device, rows, size, **style) as (_, bound):
        device.immediate(bound.record)
        return read_layer(device, bound)


def dirty_tiles(bound: BoundOverlay) -> np.ndarray:
    """Flags of tiles on the list, bool ``(rows, columns)``; checks that list and flags agree."""
    surface = bound.surface
    words = bound.tiles.read().view(np.uint32)
    listed = np.sort(words[16 : 16 + words[0]])
    flags = words[16 + surface.count : 16 + 2 * surface.count]
    np.testing.assert_array_equal(listed, np.flatnonzero(flags))
    return flags.reshape(-1, surface.columns) != 0


def over(layer: np.ndarray, ground: np.ndarray) -> np.ndarray:
    """A layer over an RGB picture."""
    alpha = layer[..., 3:].astype(float) / 255
    return np.clip(layer[..., :3] + ground * (1 - alpha) + 0.5, 0, 255).astype(np.uint8)


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way for the host to see what is in GPU memory raises."""

    def poisoned(*args: object, **options: object) -> None:
        raise AssertionError("the host looked at GPU memory")

    for owner, names in ((Tensor, ("read", "read_header")), (Buffer, ("read", "array"))):
        for name in names:
            monkeypatch.setattr(owner, name, poisoned)
    monkeypatch.setattr(Tensor, "array", property(poisoned))
    monkeypatch.setattr(Tensor, "data_pointer", property(poisoned))
