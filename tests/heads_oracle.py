"""What tests of heads and NMS expect, from the decoders and the greedy loop of tests/reference.

Scores, and boxes of plain arithmetic, are the same to the bit as the GPU's. Boxes that need ``exp`` are not, so
:func:`clear_of` moves the IoU threshold away from every pair's overlap: then the boxes kept must be the same all the
same.
"""

from __future__ import annotations

import numpy as np

from raven.detect.card import HEAD_TYPES
from raven.detect.heads import HeadSpec
from tests.reference.decoders import NO_NMS, ORDERED, Decoded, decode
from tests.reference.nms import by_score, candidates, iou, nms

#: Heads whose boxes need exp.
INEXACT = ("yolox", "nanodet", "centerface")
_CARD_TYPES = {ours: card for card, ours in HEAD_TYPES.items()}


def card_head(spec: HeadSpec) -> dict:
    """A card's head table for a spec."""
    return {
        "type": _CARD_TYPES[spec.type],
        "strides": list(spec.strides),
        "bins": spec.bins,
        "scores": "logit" if spec.logits else "probability",
        "coordinates": "normalized" if spec.normalised else "pixels",
        "boxes": "xyxy" if spec.corners else "cxcywh",
    }


def decoded(spec: HeadSpec, outputs: list[np.ndarray]) -> Decoded:
    """All anchors of one frame's outputs, without the batch dimension."""
    return decode([a[None] for a in outputs], card_head(spec), spec.size)


def considered(found: Decoded, spec: HeadSpec, limits: dict) -> np.ndarray:
    """Anchors that reach the threshold, in the order in which their turn comes."""
    index = candidates(found.boxes, found.scores, limits["conf"], found.classes, limits["classes"])
    return index if card_head(spec)["type"] in ORDERED else by_score(index, found.scores)


def selected(found: Decoded, spec: HeadSpec, limits: dict) -> tuple[np.ndarray, int]:
    """Anchors kept, best first, and how many the header must say would have been."""
    order, free = considered(found, spec, limits), card_head(spec)["type"] in NO_NMS
    if free:
        return order[: limits["max_det"]], len(order)
    picks = (limits["conf"], limits["iou"], limits["max_det"], limits["agnostic"], limits["classes"])
    kept = nms(found.boxes, found.scores, found.classes, *picks)
    if len(kept) < limits["max_det"]:
        return kept, len(kept)
    left = order[np.flatnonzero(order == kept[-1])[0] + 1 :]
    for index in kept:
        rival = limits["agnostic"] | (found.classes[left] == found.classes[index])
        left = left[~(rival & (iou(found.boxes[index], found.boxes[left]) > np.float32(limits["iou"])))]
    return kept, len(kept) + len(left)


def clear_of(found: Decoded, spec: HeadSpec, limits: dict, margin: float = 1e-4) -> float:
    """An IoU threshold near the one given from which no pair of candidates is closer than the margin."""
    order = considered(found, spec, limits)
    pairs = [iou(found.boxes[index], found.boxes[order[place + 1 :]]) for place, index in enumerate(order)]
    values = np.sort(np.concatenate(pairs)) if pairs else np.zeros(0)
    for step in range(1000):
        threshold = (limits["iou"] + 1.7 * margin * step) % 1
        if np.searchsorted(values, threshold - margin) == np.searchsorted(values, threshold + margin):
            return threshold
    raise AssertionError("no threshold is clear of every pair; draw other boxes")


def to_source(boxes: np.ndarray, placement) -> np.ndarray:
    """Model pixels to source pixels, clipped, in float64."""
    content, crop = np.array(placement.content, float), np.array(placement.crop, float)
    points = boxes.astype(float).reshape(-1, 2, 2)
    mapped = (points - content[:2]) * crop[2:] / content[2:] + crop[:2]
    return np.clip(mapped, 0, placement.source).reshape(-1, 4)
