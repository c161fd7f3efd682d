"""What a head's passes are given, in the layout of shaders/detect/layout.slang."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raven.detect import heads
from raven.errors import UsageError

if TYPE_CHECKING:
    from raven.detect.heads import Plan
    from raven.frame.geometry import Placement

AGNOSTIC, FILTER = 1, 4
MAX_DETECTIONS = 1024  # the workgroup keeps their boxes in shared memory
WORK_HEADER_BYTES = 256
_PUSH = struct.Struct("<QQQ4Q3IIIIIffI")
_PARAMETERS = struct.Struct("<10fII")
_LEVEL = struct.Struct("<QIIfI")
PUSH_SIZE = _PUSH.size
_NO_LEVEL = 0xFFFFFFFF


@dataclass(frozen=True)
class Thresholds:
    """What is kept of a model's detections.

    Attributes
    ----------
    conf : float
        Least score, 0 to 1; equal counts.
    iou : float
        Boxes that overlap a better one by more than this are removed, 0 to 1.
    max_det : int
        The most rows, 1 to 1024.
    agnostic : bool
        Boxes of other classes are removed too.
    classes : tuple of int or None
        The only classes to keep; None: all.
    """

    conf: float = 0.25
    iou: float = 0.45
    max_det: int = 300
    agnostic: bool = False
    classes: tuple[int, ...] | None = None

    def check(self, class_count: int) -> None:
        """Raise UsageError where a value is impossible."""
        for name, value in (("confidence", self.conf), ("IoU", self.iou)):
            if not 0 <= value <= 1:
                raise UsageError(f"a {name} threshold of {value:g}: give 0 to 1")
        if not 1 <= self.max_det <= MAX_DETECTIONS:
            raise UsageError(f"at most {self.max_det} detections: give 1 to {MAX_DETECTIONS}")
        for number in self.classes or ():
            if not 0 <= number < class_count:
                raise UsageError(f"class {number}: this model has classes 0 to {class_count - 1}")


def pack_push(
    plan: Plan, limits: Thresholds, addresses: Sequence[int], parameters: int, work: int, detections: int
) -> bytes:
    """``HeadPush``.

    Parameters
    ----------
    addresses : sequence of int
        Device addresses of one batch item's outputs, in the plan's order.
    parameters, work, detections : int
        Device addresses of HeadParameters, Work, and the detections tensor's header.
    """
    tensors = [*addresses, *[addresses[0]] * (4 - len(addresses))]
    firsts = [level.first for level in plan.levels[1:4]] if plan.shader == "nanodet" else []
    firsts += [_NO_LEVEL] * (3 - len(firsts))
    flags = plan.flags | AGNOSTIC * limits.agnostic | FILTER * (limits.classes is not None)
    counts = (plan.anchors, plan.classes, plan.row, flags)
    return _PUSH.pack(parameters, work, detections, *tensors, *firsts, *counts, limits.conf, limits.iou, 0)


def pack_parameters(
    plan: Plan, limits: Thresholds, placement: Placement, size: tuple[int, int], boxes: Sequence[int]
) -> np.ndarray:
    """``HeadParameters``, as bytes.

    Parameters
    ----------
    size : tuple of int
        Width and height of the model's input.
    boxes : sequence of int
        Device addresses of each level's own boxes; empty where the levels have none.
    """
    content, crop = placement.content, placement.crop
    ratio = (crop[2] / content[2], crop[3] / content[3])
    numbers = (*content[:2], *ratio, *crop[:2], *placement.source, *size)
    data = _PARAMETERS.pack(*map(float, numbers), len(plan.levels), plan.bins)
    for index, level in enumerate(plan.levels):
        data += _LEVEL.pack(boxes[index] if boxes else 0, level.first, level.width, float(level.stride), 0)
    data += bytes(_LEVEL.size * (heads.MAX_LEVELS - len(plan.levels)))
    allowed = np.zeros(heads.MAX_CLASSES, bool)
    allowed[list(limits.classes or ())] = True
    return np.concatenate([np.frombuffer(data, np.uint8), np.packbits(allowed, bitorder="little")])
