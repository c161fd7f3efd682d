"""Detections of one frame on the host, with the field names that supervision uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Detections:
    """What was found in a frame.

    Attributes
    ----------
    xyxy : numpy.ndarray
        ``(n, 4)`` float32: left, top, right, bottom in pixels of the upright source frame.
    confidence : numpy.ndarray
        ``(n,)`` float32 in [0, 1], highest first.
    class_id : numpy.ndarray
        ``(n,)`` int32.
    class_name : list of str
    tracker_id : numpy.ndarray or None
        ``(n,)`` int32; None without a tracker.
    """

    xyxy: np.ndarray
    confidence: np.ndarray
    class_id: np.ndarray
    class_name: list[str]
    tracker_id: np.ndarray | None = None

    @classmethod
    def from_rows(cls, rows: np.ndarray, names: tuple[str, ...]) -> Detections:
        """Copy rows of a detections tensor, ``(n, 8)`` float32."""
        ids = rows[:, 5].astype(np.int32)
        tracks = rows[:, 6].astype(np.int32)
        return cls(
            xyxy=rows[:, :4].copy(),
            confidence=rows[:, 4].copy(),
            class_id=ids,
            class_name=[names[i] if i < len(names) else str(i) for i in ids],
            tracker_id=tracks if (tracks >= 0).any() else None,
        )

    def __len__(self) -> int:
        return len(self.xyxy)

    def __iter__(self) -> Iterator[tuple[np.ndarray, float, str]]:
        """Box, confidence and class name of each detection."""
        return iter(zip(self.xyxy, self.confidence.tolist(), self.class_name, strict=True))

    def to_supervision(self) -> Any:
        """The same as a ``supervision.Detections``.

        Raises
        ------
        ImportError
            supervision is not installed.
        """
        import supervision

        return supervision.Detections(
            xyxy=self.xyxy,
            confidence=self.confidence,
            class_id=self.class_id.astype(int),
            tracker_id=None if self.tracker_id is None else self.tracker_id.astype(int),
            data={"class_name": np.array(self.class_name)},
        )
