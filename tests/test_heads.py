"""Every head against NumPy's decoders, on a thousand random cases each: the same boxes kept, in the same order."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
import pytest

from raven.detect.detector import Detector
from raven.detect.heads import HEADS, HeadSpec
from raven.frame.geometry import Placement
from raven.gpu import Device
from raven.tensor import Tensor
from tests.heads_oracle import INEXACT, clear_of, decoded, selected, to_source
from tests.reference.decoders import Decoded

#: Fewer are enough where a submission takes long.
CASES = int(os.environ.get("RAVEN_HEAD_CASES", "1000"))


@dataclass
class Model:
    """A head and the shapes of what it reads."""

    spec: HeadSpec
    dtype: str = "float32"
    classes: int = 5
    anchors: int = 84
    labels: str = "int64"
    arrays: list[np.ndarray] = field(default_factory=list)


SIZE = (64, 48)
MODELS = [
    Model(HeadSpec("yolov5", SIZE)),
    Model(HeadSpec("yolov5", SIZE), "float16", 80, 30),
    Model(HeadSpec("yolov8", SIZE)),
    Model(HeadSpec("yolov8", SIZE), "float32", 80, 63),
    Model(HeadSpec("yolov8", SIZE), "float16", 3, 100),
    Model(HeadSpec("yolov8", SIZE), "float32", 1, 5),
    Model(HeadSpec("yolo26", SIZE)),
    Model(HeadSpec("yolo26", SIZE), "float16", 80),
    Model(HeadSpec("yolox", SIZE)),
    Model(HeadSpec("yolox", (72, 40), strides=(8, 16)), "float16", 80),
    Model(HeadSpec("nanodet", SIZE, classes=8, bins=11), classes=8),
    Model(HeadSpec("nanodet", SIZE, classes=5, bins=8), "float16"),
    Model(HeadSpec("nanodet", (60, 60), classes=80, bins=8, strides=(8, 16, 32, 64)), classes=80),
    Model(HeadSpec("detr", SIZE, logits=True, normalised=True)),
    Model(HeadSpec("detr", SIZE), "float16", 80),
    Model(HeadSpec("detr-labels", SIZE, classes=5, corners=True)),
    Model(HeadSpec("detr-labels", SIZE, classes=5, normalised=True), "float16", labels="int32"),
    Model(HeadSpec("centerface", SIZE)),
    Model(HeadSpec("centerface", SIZE), "float16"),
]


def grid(rng, shape, low: float, high: float, step: float) -> np.ndarray:
    """Random numbers on a coarse grid, so that ties and exact thresholds are common."""
    return np.round(rng.uniform(low, high, shape) / step) * step


def some_boxes(rng, n: int) -> np.ndarray:
    """Centre and size in model pixels: crowded, partly outside, some without an area."""
    centre, size = grid(rng, (n, 2), -4, 60, 2), grid(rng, (n, 2), 0, 24, 2)
    return np.concatenate([centre, size], 1)


def some_scores(rng, shape) -> np.ndarray:
    scores = grid(rng, shape, 0, 1, 1 / 16)
    return scores * (rng.random(shape) < rng.choice([0.02, 0.2, 1.0]))


def rows(rng, m: Model, boxes: np.ndarray) -> np.ndarray:
    objectness = grid(rng, (len(boxes), 1), 0, 1, 1 / 16)
    return np.concatenate([boxes, objectness, some_scores(rng, (len(boxes), m.classes))], 1)


def offsets_and_logs(rng, n: int) -> np.ndarray:
    return np.concatenate([grid(rng, (n, 2), -1, 1, 0.25), rng.uniform(-2, 1.5, (n, 2))], 1)


def level_counts(spec: HeadSpec) -> list[int]:
    return [-(-spec.size[0] // s) * -(-spec.size[1] // s) for s in spec.strides]


def draw(rng, m: Model) -> list[np.ndarray]:
    """Outputs of one frame, without the batch dimension."""
    kind, n = m.spec.type, m.anchors
    if kind == "yolov5":
        made = [rows(rng, m, some_boxes(rng, n))]
    elif kind == "yolov8":
        made = [np.concatenate([some_boxes(rng, n), some_scores(rng, (n, m.classes))], 1).T]
    elif kind == "yolo26":
        made = [np.concatenate([some_boxes(rng, n), some_scores(rng, (n, 1)), rng.integers(0, m.classes, (n, 1))], 1)]
    elif kind == "yolox":
        made = [rows(rng, m, offsets_and_logs(rng, sum(level_counts(m.spec))))]
    elif kind == "nanodet":
        counts = level_counts(m.spec)
        made = [some_scores(rng, (c, m.classes)) for c in counts]
        made += [rng.normal(0, 2, (c, 4 * m.spec.bins)) for c in counts]
    elif kind == "detr":
        scores = grid(rng, (n, m.classes), -6, 3, 1 / 8) if m.spec.logits else some_scores(rng, (n, m.classes))
        made = [scores, some_boxes(rng, n) / (64 if m.spec.normalised else 1)]
    elif kind == "detr-labels":
        made = [rng.integers(0, 5, n), some_boxes(rng, n) / (64 if m.spec.normalised else 1), some_scores(rng, n)]
    else:
        shape = (m.spec.size[1] // 4, m.spec.size[0] // 4)
        made = [some_scores(rng, (1, *shape)), rng.uniform(-1, 2, (2, *shape)), rng.normal(0, 0.5, (2, *shape))]
    dtypes = [m.labels if kind == "detr-labels" and i == 0 else m.dtype for i in range(len(made))]
    return [np.ascontiguousarray(a, d) for a, d in zip(made, dtypes, strict=True)]


def some_limits(rng, m: Model) -> dict:
    classes = None
    if rng.random() < 0.2:
        classes = sorted(rng.choice(m.classes, rng.integers(1, m.classes + 1), replace=False).tolist())
    if m.spec.type == "centerface":
        classes = None
    return {
        "conf": float(rng.choice([0, 1 / 16, 0.25, 0.5, 0.9375, 1, 0.3])),
        "iou": float(rng.choice([0, 0.25, 1 / 3, 0.45, 0.5, 0.7, 1])),
        "max_det": int(rng.choice([1, 3, 20, 300])),
        "agnostic": bool(rng.random() < 0.3),
        "classes": classes,
    }


PLACEMENTS = [
    Placement(source=(64, 48), target=(64, 48), content=(0, 0, 64, 48), crop=(0.0, 0.0, 64.0, 48.0)),
    Placement(source=(768, 576), target=(64, 48), content=(3, 5, 58, 41), crop=(0.0, 0.0, 768.0, 576.0)),
    Placement(source=(1920, 1081), target=(64, 48), content=(0, 0, 64, 48), crop=(300.5, 20.25, 1280.0, 960.0)),
]


def run(device: Device, detector: Detector, tensors: list[Tensor], placement: Placement, limits: dict, **more):
    """Rows and header of one frame."""
    bound = detector.bind(tensors, placement, **limits, **more)
    try:
        device.immediate(bound.record)
        return bound.detections.read(), bound.detections.read_header()
    finally:
        bound.destroy()


def check(found: Decoded, spec: HeadSpec, limits: dict, placement: Placement, rows, header) -> None:
    kept, produced = selected(found, spec, limits)
    assert (header[1], header[10], header[12]) == (len(kept), produced, len(kept))
    np.testing.assert_array_equal(rows[:, 5], found.classes[kept])
    np.testing.assert_allclose(rows[:, 4], found.scores[kept], rtol=0, atol=3e-7)
    np.testing.assert_allclose(rows[:, :4], to_source(found.boxes[kept], placement), rtol=0, atol=1e-3)
    assert (rows[:, 6] == -1).all() and (rows[:, 7] == 0).all()


@pytest.mark.parametrize("head", HEADS)
def test_the_same_boxes_are_kept_as_by_numpy(device: Device, head: str) -> None:
    models = [m for m in MODELS if m.spec.type == head]
    rng = np.random.default_rng(7)
    kept = 0
    for m in models:
        first = draw(rng, m)
        tensors = [Tensor.from_numpy(device, a[None]) for a in first]
        detector = Detector(device, m.spec, [t.shape for t in tensors], [t.dtype for t in tensors])
        for _ in range(-(-CASES // len(models))):
            arrays, limits = draw(rng, m), some_limits(rng, m)
            for tensor, array in zip(tensors, arrays, strict=True):
                tensor.write(array[None])
            found = decoded(m.spec, arrays)
            if head in INEXACT:
                limits["iou"] = clear_of(found, m.spec, limits)
            if m.spec.logits:
                limits["conf"] = min(1.0, limits["conf"] + 1e-4)
            placement = PLACEMENTS[rng.integers(len(PLACEMENTS))]
            result, header = run(device, detector, tensors, placement, limits)
            check(found, m.spec, limits, placement, result, header)
            kept += len(result)
        for item in (detector, *tensors):
            item.destroy()
    assert kept > CASES
