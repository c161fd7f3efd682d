"""How far two sets of detections agree: greedy one-to-one matching by IoU within a class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Tally:
    """Boxes matched, boxes found, boxes that the reference has."""

    matched: int = 0
    found: int = 0
    expected: int = 0

    @property
    def precision(self) -> float:
        return self.matched / max(self.found, 1)

    @property
    def recall(self) -> float:
        return self.matched / max(self.expected, 1)

    def add(self, found: np.ndarray, expected: np.ndarray, least: float) -> None:
        """Add one frame.

        Parameters
        ----------
        found, expected : numpy.ndarray
            ``(n, 5)``: x1, y1, x2, y2, class.
        least : float
            IoU from which two boxes are the same.
        """
        self.found += len(found)
        self.expected += len(expected)
        self.matched += matches(found, expected, least)


def matches(found: np.ndarray, expected: np.ndarray, least: float) -> int:
    """Number of pairs, best IoU first, each box in one pair at most."""
    if not len(found) or not len(expected):
        return 0
    overlaps = iou(found[:, None, :4], expected[None, :, :4])
    overlaps[found[:, None, 4] != expected[None, :, 4]] = 0
    count = 0
    while (best := overlaps.max()) >= least:
        row, column = np.unravel_index(overlaps.argmax(), overlaps.shape)
        overlaps[row], overlaps[:, column] = -1, -1
        count += best > 0
    return count


def iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of broadcast boxes ``(..., 4)``."""
    wide = np.clip(np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0]), 0, None)
    high = np.clip(np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1]), 0, None)
    area = [(c[..., 2] - c[..., 0]) * (c[..., 3] - c[..., 1]) for c in (a, b)]
    return wide * high / np.maximum(area[0] + area[1] - wide * high, 1e-9)
