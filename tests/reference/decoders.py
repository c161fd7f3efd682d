"""Heads: a model's outputs to boxes x1, y1, x2, y2 in model pixels (float32), scores (float32) and classes.

Every decoder takes the outputs of one frame in the model's order, without the batch dimension, a card's ``head`` table
and the input's width and height.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

F = np.float32
#: Heads whose rows are final: no NMS, and for those in ORDERED the model's own order.
NO_NMS = frozenset({"end2end", "detr", "detr-labels"})
ORDERED = frozenset({"end2end", "detr-labels"})


class Decoded(NamedTuple):
    """Boxes ``(n, 4)``, scores ``(n,)`` and class ids ``(n,)`` of every anchor."""

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray


def decode(outputs, head: dict, size: tuple[int, int], names=None) -> Decoded:
    """Decode by the head's type.

    Parameters
    ----------
    outputs : sequence of numpy.ndarray
        With the batch dimension; the first frame is taken.
    head : dict
        A card's ``head`` table.
    size : (int, int)
    names : sequence of str, optional
        The outputs' names, needed where the head refers to them.
    """
    frame = [np.asarray(o)[0] for o in outputs]
    frame = [a.astype(F) if a.dtype.kind == "f" else a for a in frame]
    with np.errstate(over="ignore", invalid="ignore"):
        return DECODERS[head["type"]](frame, head, size, list(names or []))


def corners(cx, cy, w, h) -> np.ndarray:
    half_w, half_h = w * F(0.5), h * F(0.5)
    return np.stack([cx - half_w, cy - half_h, cx + half_w, cy + half_h], 1).astype(F)


def best_class(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Highest score of each anchor and its class, the lowest id of equal ones (as argmax has it); NaN never wins."""
    scores = np.where(np.isnan(scores), F(-np.inf), scores)
    classes = scores.argmax(1)
    return scores[np.arange(len(scores)), classes].astype(F), classes


def yolov5(frame, head, size, names) -> Decoded:
    rows = frame[0]
    scores, classes = best_class(rows[:, 5:] * rows[:, 4:5])
    return Decoded(corners(*rows[:, :4].T), scores, classes)


def yolov8(frame, head, size, names) -> Decoded:
    rows = frame[0]
    scores, classes = best_class(rows[4:].T)
    return Decoded(corners(*rows[:4]), scores, classes)


def end2end(frame, head, size, names) -> Decoded:
    rows = frame[0]
    return Decoded(rows[:, :4].astype(F), rows[:, 4].astype(F), rows[:, 5].astype(int))


def grid(size: tuple[int, int], strides) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Column, row and stride of every anchor, level by level, row by row."""
    columns, rows, steps = [], [], []
    for stride in strides:
        wide, high = -(-size[0] // stride), -(-size[1] // stride)
        columns.append(np.tile(np.arange(wide), high))
        rows.append(np.repeat(np.arange(high), wide))
        steps.append(np.full(wide * high, stride))
    return tuple(np.concatenate(part).astype(F) for part in (columns, rows, steps))


def yolox(frame, head, size, names) -> Decoded:
    rows = frame[0]
    column, row, stride = grid(size, head.get("strides", (8, 16, 32)))
    scores, classes = best_class(rows[:, 5:] * rows[:, 4:5])
    cx, cy = (rows[:, 0] + column) * stride, (rows[:, 1] + row) * stride
    w, h = np.exp(rows[:, 2]) * stride, np.exp(rows[:, 3]) * stride
    return Decoded(corners(cx, cy, w, h), scores, classes)


def nanodet(frame, head, size, names) -> Decoded:
    levels = [nanodet_level(frame, head, size, stride) for stride in head.get("strides", (8, 16, 32))]
    return Decoded(*(np.concatenate(part) for part in zip(*levels, strict=True)))


def nanodet_level(frame, head, size, stride) -> Decoded:
    column, row, _ = grid(size, [stride])
    found = [a for a in frame if len(a) == len(column)]
    bins = head.get("bins") or min(a.shape[1] for a in found) // 4
    distances = next(a for a in found if a.shape[1] == 4 * bins)
    scores = next(a for a in found if a is not distances)
    left, top, right, bottom = (expected(distances, bins) * F(stride)).T
    cx, cy = (column * F(stride) + F((stride - 1) / 2) for column in (column, row))
    boxes = np.stack([cx - left, cy - top, cx + right, cy + bottom], 1).astype(F)
    return Decoded(boxes, *best_class(scores))


def expected(distances: np.ndarray, bins: int) -> np.ndarray:
    """Softmax over each side's bins, and the mean bin."""
    logits = distances.reshape(-1, 4, bins).astype(np.float64)
    weights = np.exp(logits - logits.max(2, keepdims=True))
    return ((weights / weights.sum(2, keepdims=True)) @ np.arange(bins)).astype(F)


def role(frame, head, names, key: str, otherwise) -> np.ndarray:
    """The output that plays a role: by the name that the head gives, else the first that fits."""
    named = head.get("outputs", {}).get(key)
    return frame[names.index(named)] if named in names else next(a for a in frame if otherwise(a))


def detr(frame, head, size, names) -> Decoded:
    boxes = role(frame, head, names, "boxes", lambda a: a.shape[-1] == 4)
    scores, classes = best_class(role(frame, head, names, "scores", lambda a: a is not boxes))
    if head.get("scores", "probability") == "logit":
        scores = (1 / (1 + np.exp(-scores.astype(np.float64)))).astype(F)
    return Decoded(query_boxes(boxes, head, size), scores, classes)


def detr_labels(frame, head, size, names) -> Decoded:
    boxes = role(frame, head, names, "boxes", lambda a: a.ndim == 2)
    labels = role(frame, head, names, "labels", lambda a: a.ndim == 1 and a.dtype.kind in "iu")
    scores = role(frame, head, names, "scores", lambda a: a.ndim == 1 and a is not labels)
    return Decoded(query_boxes(boxes, head, size), scores.astype(F), labels.astype(int))


def query_boxes(boxes: np.ndarray, head, size) -> np.ndarray:
    made = boxes.astype(F) if head.get("boxes", "cxcywh") == "xyxy" else corners(*boxes.T)
    return made * np.array([*size, *size], F) if head.get("coordinates", "pixels") == "normalized" else made


def centerface(frame, head, size, names) -> Decoded:
    heat = role(frame, head, names, "scores", lambda a: a.shape[0] == 1)
    sizes = role(frame, head, names, "sizes", lambda a: a.shape[0] == 2)
    offsets = role(frame, head, names, "offsets", lambda a: a.shape[0] == 2 and a is not sizes)
    stride = F(size[0] / heat.shape[2])
    row, column = (part.astype(F).ravel() for part in np.indices(heat.shape[1:]))
    cy, cx = ((cell + o.ravel() + F(0.5)) * stride for cell, o in zip((row, column), offsets, strict=True))
    h, w = (np.exp(s.ravel()) * stride for s in sizes)
    return Decoded(corners(cx, cy, w, h), heat.ravel().astype(F), np.zeros(heat.size, int))


DECODERS = {
    "yolov5": yolov5,
    "yolov8": yolov8,
    "end2end": end2end,
    "yolox": yolox,
    "nanodet": nanodet,
    "detr": detr,
    "detr-labels": detr_labels,
    "centerface": centerface,
}
