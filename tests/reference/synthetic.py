"""Made-up outputs of every head: crowded, with equal scores, boxes without an area, nothing, and one pile.

Numbers lie on coarse grids, so that equal scores and overlaps exactly at a threshold are common.
"""

from __future__ import annotations

import numpy as np

KINDS = ("crowd", "ties", "degenerate", "empty", "pile")
#: A head table of each type; sizes are for a 64x64 input.
HEADS = {
    "yolov5": {"type": "yolov5"},
    "yolov8": {"type": "yolov8"},
    "end2end": {"type": "end2end"},
    "yolox": {"type": "yolox", "strides": [8, 16, 32]},
    "nanodet": {"type": "nanodet", "strides": [8, 16, 32], "bins": 11},
    "detr": {"type": "detr", "scores": "logit", "coordinates": "normalized"},
    "detr-labels": {"type": "detr-labels", "boxes": "xyxy"},
    "centerface": {"type": "centerface"},
}
SIZE = (64, 64)


def outputs(head: str, kind: str, seed: int, classes: int = 5, dtype=np.float32) -> list[np.ndarray]:
    """Outputs of a head for one frame, with the batch dimension.

    Parameters
    ----------
    head : str
        A key of ``HEADS``.
    kind : str
        One of ``KINDS``.
    seed : int
    classes : int
    dtype : data-type
        Of floating-point outputs.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind), list(HEADS).index(head)])
    made = MAKERS[head](rng, kind, classes)
    return [np.ascontiguousarray(a[None], a.dtype if a.dtype.kind in "iu" else dtype) for a in made]


def steps(rng, shape, low: float, high: float, step: float) -> np.ndarray:
    return np.round(rng.uniform(low, high, shape) / step) * step


def some_scores(rng, shape, kind: str) -> np.ndarray:
    if kind == "empty":
        return np.zeros(shape)
    if kind == "ties":
        return rng.choice([0.25, 0.5, 0.75], shape)
    return steps(rng, shape, 0, 1, 1 / 64) * (rng.random(shape) < 0.5)


def some_boxes(rng, n: int, kind: str) -> np.ndarray:
    """Centre and size in model pixels."""
    if kind == "pile":
        return np.tile([32.0, 32.0, 20.0, 20.0], (n, 1)) + steps(rng, (n, 4), 0, 1, 0.5)
    centre, size = steps(rng, (n, 2), -4, 68, 2), steps(rng, (n, 2), 2, 24, 2)
    if kind == "degenerate":
        size[rng.random(n) < 0.5, rng.integers(2)] = 0
    return np.concatenate([centre, size], 1)


def as_corners(boxes: np.ndarray) -> np.ndarray:
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)


def make_yolov5(rng, kind, classes, n=126):
    parts = some_boxes(rng, n, kind), some_scores(rng, (n, 1), kind), some_scores(rng, (n, classes), kind)
    return [np.concatenate(parts, 1)]


def make_yolov8(rng, kind, classes, n=84):
    return [np.concatenate([some_boxes(rng, n, kind), some_scores(rng, (n, classes), kind)], 1).T]


def make_end2end(rng, kind, classes, n=30):
    ids = rng.integers(0, classes, (n, 1))
    return [np.concatenate([as_corners(some_boxes(rng, n, kind)), some_scores(rng, (n, 1), kind), ids], 1)]


def make_yolox(rng, kind, classes, n=84):
    spread = 0.0 if kind == "pile" else 1.0
    place = steps(rng, (n, 2), -spread, spread, 0.25)
    logs = steps(rng, (n, 2), -1, 1.5, 0.125)
    if kind == "degenerate":
        logs[rng.random(n) < 0.5] = -200  # exp gives zero
    return [np.concatenate([place, logs, some_scores(rng, (n, 1), kind), some_scores(rng, (n, classes), kind)], 1)]


def make_nanodet(rng, kind, classes, bins=11):
    counts = [(64 // stride) ** 2 for stride in (8, 16, 32)]
    scores = [some_scores(rng, (n, classes), kind) for n in counts]
    spread = 0.0 if kind == "pile" else 2.0
    sides = [steps(rng, (n, 4 * bins), -spread, spread, 0.25) for n in counts]
    if kind == "degenerate":
        for part in sides:
            part[::2] = np.tile([60.0] + [0.0] * (bins - 1), 4)  # every side in bin 0
    return [part for pair in zip(scores, sides, strict=True) for part in pair]


def make_detr(rng, kind, classes, n=40):
    scores = np.full((n, classes), -20.0) if kind == "empty" else steps(rng, (n, classes), -6, 3, 0.25)
    return [np.zeros((n, classes)) if kind == "ties" else scores, some_boxes(rng, n, kind) / 64]


def make_detr_labels(rng, kind, classes, n=40):
    return [rng.integers(0, classes, n), as_corners(some_boxes(rng, n, kind)), some_scores(rng, n, kind)]


def make_centerface(rng, kind, classes):
    logs = np.full((2, 16, 16), -200.0) if kind == "degenerate" else steps(rng, (2, 16, 16), 0, 2, 0.25)
    heat = some_scores(rng, (1, 16, 16), kind)
    return [heat, logs, steps(rng, (2, 16, 16), -0.5, 0.5, 0.125), np.zeros((10, 16, 16))]


MAKERS = {
    "yolov5": make_yolov5,
    "yolov8": make_yolov8,
    "end2end": make_end2end,
    "yolox": make_yolox,
    "nanodet": make_nanodet,
    "detr": make_detr,
    "detr-labels": make_detr_labels,
    "centerface": make_centerface,
}
