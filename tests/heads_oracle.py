"""NumPy's word on heads and NMS: plain decoders and a plain greedy loop, written apart from the shaders.

Boxes are float32 so that comparisons at a threshold fall as they do on the GPU; what cannot be compared to the bit
(``exp``) is kept away from thresholds by :func:`clear_of`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

F = np.float32


@dataclass
class Decoded:
    """Best score and class of every anchor, and its box (x1, y1, x2, y2 in model pixels)."""

    scores: np.ndarray
    classes: np.ndarray
    boxes: np.ndarray


def cxcywh(v: np.ndarray) -> np.ndarray:
    half = v[:, 2:] * F(0.5)
    return np.concatenate([v[:, :2] - half, v[:, :2] + half], 1)


def best(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    clean = np.where(np.isnan(scores), -np.inf, scores)
    ids = clean.argmax(1)
    return clean[np.arange(len(ids)), ids], ids


def cells(size: tuple[int, int], strides) -> tuple[np.ndarray, np.ndarray]:
    """x, y of every anchor's cell, and its stride."""
    grids, steps = [], []
    for stride in strides:
        ys, xs = np.mgrid[: -(-size[1] // stride), : -(-size[0] // stride)]
        grids.append(np.stack([xs.ravel(), ys.ravel()], 1))
        steps.append(np.full(xs.size, stride))
    return np.concatenate(grids).astype(F), np.concatenate(steps).astype(F)[:, None]


def yolov5(spec, outputs) -> Decoded:
    rows = outputs[0]
    scores, ids = best(rows[:, 5:] * rows[:, 4:5])
    return Decoded(scores, ids, cxcywh(rows[:, :4]))


def yolov8(spec, outputs) -> Decoded:
    rows = outputs[0].T
    scores, ids = best(rows[:, 4:])
    return Decoded(scores, ids, cxcywh(rows[:, :4]))


def yolo26(spec, outputs) -> Decoded:
    rows = outputs[0]
    return Decoded(rows[:, 4], rows[:, 5].astype(int), rows[:, :4])


def yolox(spec, outputs) -> Decoded:
    rows = outputs[0]
    cell, stride = cells(spec.size, spec.strides)
    scores, ids = best(rows[:, 5:] * rows[:, 4:5])
    size = (np.exp(rows[:, 2:4].astype(float)) * stride).astype(F)
    return Decoded(scores, ids, cxcywh(np.concatenate([(rows[:, :2] + cell) * stride, size], 1)))


def nanodet(spec, outputs) -> Decoded:
    levels = len(spec.strides)
    scores, ids = best(np.concatenate(outputs[:levels]))
    sides = np.concatenate(outputs[levels:]).astype(float)
    weights = np.exp(sides.reshape(len(sides), 4, -1))
    reach = (weights * np.arange(weights.shape[2])).sum(2) / weights.sum(2)
    cell, stride = cells(spec.size, spec.strides)
    centre = cell * stride + (stride - 1) / 2
    return Decoded(
        scores, ids, np.concatenate([centre - reach[:, :2] * stride, centre + reach[:, 2:] * stride], 1).astype(F)
    )


def detr(spec, outputs) -> Decoded:
    scores, ids = best(outputs[0])
    if spec.logits:
        scores = (1 / (1 + np.exp(-scores.astype(float)))).astype(F)
    return Decoded(scores, ids, query_boxes(spec, outputs[1]))


def query_boxes(spec, boxes: np.ndarray) -> np.ndarray:
    boxes = boxes if spec.corners else cxcywh(boxes)
    return boxes * np.array(spec.size * 2, F) if spec.normalised else boxes


def detr_labels(spec, outputs) -> Decoded:
    labels, boxes, scores = outputs
    return Decoded(scores, labels.astype(int), query_boxes(spec, boxes))


def centerface(spec, outputs) -> Decoded:
    heat, sizes, offsets = outputs[:3]
    ys, xs = np.mgrid[: heat.shape[1], : heat.shape[2]]
    cell = np.stack([xs.ravel(), ys.ravel()], 1).astype(F)
    offset = np.stack([offsets[1].ravel(), offsets[0].ravel()], 1)
    size = (np.exp(np.stack([sizes[1].ravel(), sizes[0].ravel()], 1).astype(float)) * 4).astype(F)
    centre = (cell + offset + F(0.5)) * F(4)
    return Decoded(heat.ravel(), np.zeros(heat.size, int), cxcywh(np.concatenate([centre, size], 1)))


DECODERS = {
    "yolov5": yolov5,
    "yolov8": yolov8,
    "yolo26": yolo26,
    "yolox": yolox,
    "nanodet": nanodet,
    "detr": detr,
    "detr-labels": detr_labels,
    "centerface": centerface,
}
#: Heads that keep the model's order and suppress nothing; heads that suppress nothing; heads whose boxes need exp.
ORDERED = ("yolo26", "detr-labels")
FREE = (*ORDERED, "detr")
INEXACT = ("yolox", "nanodet", "centerface")


def overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """IoU in float32, no special cases: a division by zero is NaN and suppresses nothing."""
    with np.errstate(all="ignore"):
        wide = np.maximum(np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0]), F(0))
        high = np.maximum(np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1]), F(0))
        inter = wide * high
        area = (box[2] - box[0]) * (box[3] - box[1])
        areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
        return inter / (area + areas - inter)


def candidates(found: Decoded, head: str, limits) -> np.ndarray:
    """Anchors that reach the threshold, in the order in which they are considered."""
    with np.errstate(invalid="ignore"):
        chosen = (found.scores >= F(limits["conf"])) & np.isfinite(found.boxes).all(1)
    if limits["classes"] is not None:
        chosen &= np.isin(found.classes, limits["classes"])
    index = np.flatnonzero(chosen)
    return index if head in ORDERED else index[np.argsort(-found.scores[index], kind="stable")]


def nms(found: Decoded, head: str, limits) -> tuple[np.ndarray, int]:
    """Anchors kept, best first, and how many would have been (an upper bound once there are too many)."""
    left, kept = candidates(found, head, limits), []
    while len(left) and len(kept) < limits["max_det"]:
        first, left = left[0], left[1:]
        kept.append(first)
        if head not in FREE:
            hit = overlap(found.boxes[first], found.boxes[left]) > F(limits["iou"])
            if not limits["agnostic"]:
                hit &= found.classes[left] == found.classes[first]
            left = left[~hit]
    return np.array(kept, int), len(kept) + len(left)


def clear_of(found: Decoded, head: str, limits, margin: float = 1e-4) -> float:
    """An IoU threshold near the one given from which no pair of candidates is closer than the margin."""
    index = candidates(found, head, limits)
    pairs = [overlap(found.boxes[i], found.boxes[index[k + 1 :]]) for k, i in enumerate(index)]
    values = np.concatenate(pairs) if pairs else np.zeros(0)
    for step in range(1000):
        threshold = (limits["iou"] + 1.7 * margin * step) % 1
        if not (np.abs(values - threshold) < margin).any():
            return threshold
    raise AssertionError("no threshold is clear of every pair; draw other boxes")


def to_source(boxes: np.ndarray, placement) -> np.ndarray:
    """Model pixels to source pixels, clipped, in float64."""
    content, crop = np.array(placement.content, float), np.array(placement.crop, float)
    points = boxes.astype(float).reshape(-1, 2, 2)
    mapped = (points - content[:2]) * crop[2:] / content[2:] + crop[:2]
    return np.clip(mapped, 0, placement.source).reshape(-1, 4)
