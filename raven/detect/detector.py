"""Detections out of a model's outputs, on the GPU: decode, sort, suppress, map to source pixels.

Two dispatches a frame. The first reads every score and appends the anchors that reach the threshold, as keys that hold
score, anchor and class. The second is one workgroup: it sorts the keys, decodes boxes only as their turn comes,
suppresses greedily, and writes rows and row count. Between frames nothing is reset by the host, and no count is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from raven.detect.heads import HeadSpec, plan
from raven.detect.parameters import PUSH_SIZE, WORK_HEADER_BYTES, Thresholds, pack_parameters, pack_push
from raven.errors import ModelError
from raven.gpu import Buffer, ComputePipeline, Device, Recorder
from raven.tensor import Tensor

if TYPE_CHECKING:
    from raven.frame.geometry import Placement

_THREADS = 64
#: Columns of a detections tensor: x1, y1, x2, y2, score, class, track id, flags.
COLUMNS = 8


class Detector:
    """A head's compiled passes, for one model.

    Parameters
    ----------
    spec : HeadSpec
        The head, from the model's card.
    shapes : sequence of tuple of int
        Shapes of the model's outputs in its own order, batch dimension first.
    dtypes : sequence of data-type
        Their types: float32 or float16 (labels may be integers).

    Attributes
    ----------
    plan : Plan
        How the outputs are read.

    Raises
    ------
    ModelError
        The outputs are not what the head makes.
    """

    def __init__(
        self, device: Device, spec: HeadSpec, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[Any]
    ) -> None:
        self.device, self.spec = device, spec
        self.shapes, self.dtypes = [tuple(s) for s in shapes], [np.dtype(d) for d in dtypes]
        self.plan = plan(spec, self.shapes, self.dtypes)
        kind = self.plan.element.capitalize()
        name = f"detect/{self.plan.shader}"
        self.select = ComputePipeline(
            device, name, f"select{kind}{'Eight' if self.plan.wide else ''}", push_size=PUSH_SIZE
        )
        self.finish = ComputePipeline(device, name, f"finish{kind}", push_size=PUSH_SIZE)

    def bind(
        self,
        outputs: Sequence[Tensor],
        placement: Placement,
        *,
        conf: float = 0.25,
        iou: float = 0.45,
        max_det: int = 300,
        agnostic: bool = False,
        classes: Sequence[int] | None = None,
        batch_index: int = 0,
    ) -> BoundDetector:
        """Give a slot its commands and memory.

        Parameters
        ----------
        outputs : sequence of Tensor
            The model's outputs, in its own order.
        placement : Placement
            Where the frame lies in the model's input.
        conf, iou : float
            Thresholds, 0 to 1: a score must reach the first, an overlap must exceed the second to remove a box.
        max_det : int
            The most detections, 1 to 1024.
        agnostic : bool
            Boxes of other classes are removed too.
        classes : sequence of int or None
            The only classes to keep.
        batch_index : int
            Which frame of the batch.

        Raises
        ------
        UsageError
            A threshold out of range.
        ModelError
            The outputs do not have the shapes that the detector was made for.
        """
        limits = Thresholds(conf, iou, max_det, agnostic, None if classes is None else tuple(classes))
        limits.check(self.plan.classes)
        self._check(outputs, batch_index)
        return BoundDetector(self, outputs, placement, limits, batch_index)

    def _check(self, outputs: Sequence[Tensor], batch_index: int) -> None:
        given = [(t.shape, t.dtype) for t in outputs]
        if given != list(zip(self.shapes, self.dtypes, strict=True)):
            shapes = ", ".join(str(list(t.shape)) for t in outputs)
            raise ModelError(f"outputs {shapes} are not those that the detector was made for: {self.shapes}")
        batch = self.shapes[self.plan.tensors[0]][0]
        if not 0 <= batch_index < batch:
            raise ModelError(f"frame {batch_index} of a batch of {batch}: give 0 to {batch - 1}")

    def destroy(self) -> None:
        """Release the pipelines; idempotent."""
        self.select.destroy()
        self.finish.destroy()


class BoundDetector:
    """A detector's commands and memory for one frame of a slot.

    Attributes
    ----------
    detections : Tensor
        float32 ``(max_det, 8)``: x1, y1, x2, y2 in upright source pixels, clipped to the frame; score; class; track id
        (-1: none yet); flags. Best first, of equal scores the lower anchor first; end-to-end heads keep their order.
        The header's ``produced`` is larger than the capacity when more boxes would have been kept: it then counts the
        rows plus all later candidates that no row removes, which is an upper bound.
    """

    def __init__(
        self, detector: Detector, outputs: Sequence[Tensor], placement: Placement, limits: Thresholds, batch_index: int
    ) -> None:
        device, plan = detector.device, detector.plan
        self.detector, self.placement = detector, placement
        self._addresses = [_item_address(t, batch_index) for t in outputs]
        self.detections = Tensor(device, (limits.max_det, COLUMNS), np.float32, rows=0)
        self._work = Buffer(device, WORK_HEADER_BYTES + 2 * 8 * plan.anchors)
        self._work.write(np.zeros(WORK_HEADER_BYTES, np.uint8))
        self._parameters = Buffer(device, len(self._pack(limits)))
        self._set(limits)

    def _pack(self, limits: Thresholds) -> np.ndarray:
        plan = self.detector.plan
        boxes = [self._addresses[level.boxes] for level in plan.levels if level.boxes is not None]
        return pack_parameters(plan, limits, self.placement, self.detector.spec.size, boxes)

    def _set(self, limits: Thresholds) -> None:
        """Write what the next recording will use."""
        self._parameters.write(self._pack(limits))
        plan = self.detector.plan
        tensors = [self._addresses[i] for i in plan.tensors]
        buffers = (self._parameters.address, self._work.address, self.detections.header_address)
        self._push = pack_push(plan, limits, tensors, *buffers)

    def record(self, rec: Recorder) -> None:
        """Record both passes. Before: the outputs are written, and the last reader of the detections is done (any stage
        to ``compute``). After: rows and header are written by ``compute``.
        """
        plan = self.detector.plan
        rec.bind(self.detector.select, self._push)
        rec.dispatch(-(-plan.anchors // (_THREADS * (8 if plan.wide else 1))))
        rec.barrier("compute", "compute")
        rec.bind(self.detector.finish, self._push)
        rec.dispatch(1)

    def destroy(self) -> None:
        """Release the slot's memory; idempotent. The GPU must have finished with it."""
        for item in (self.detections, self._work, self._parameters):
            item.destroy()


def _item_address(tensor: Tensor, batch_index: int) -> int:
    """Device address of one frame's part of a batched tensor; a tensor without a batch has one part."""
    return tensor.address + (tensor.nbytes // tensor.shape[0] * batch_index if tensor.shape[0] else 0)
