"""The whole of it: a picture to detections in its own pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .decoders import NO_NMS, ORDERED, Decoded, decode
from .nms import by_score, candidates, nms
from .preprocess import Prepared, preprocess


class Found(NamedTuple):
    """Boxes ``(n, 4)`` x1, y1, x2, y2 in source pixels, clipped to the picture; scores; class ids. Best first."""

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray


def detect(image_bgr: np.ndarray, card: dict, run, size=None, names=None, exact: bool = False, **thresholds) -> Found:
    """Detect in one picture.

    Parameters
    ----------
    image_bgr : numpy.ndarray
        ``(height, width, 3)`` uint8.
    card : dict
        A card as TOML reads it.
    run : callable
        Takes the input tensor, returns the outputs.
    size : (int, int), optional
        Width and height of the model's input, when the card does not say.
    names : sequence of str, optional
        The outputs' names.
    exact : bool
        Interpolate in float32.
    **thresholds
        ``conf``, ``iou``, ``max_det``, ``agnostic``, ``wanted``; else the card's.
    """
    size = tuple(size or card["input"]["size"])
    prepared = preprocess(image_bgr, card, size, exact=exact)
    decoded = decode(run(prepared.tensor), card["head"], size, names)
    kept = select(decoded, card, **thresholds)
    height, width = image_bgr.shape[:2]
    boxes = to_source(decoded.boxes[kept], prepared, (width, height))
    return Found(boxes, decoded.scores[kept], decoded.classes[kept])


def select(decoded: Decoded, card: dict, conf=None, iou=None, max_det=None, agnostic=False, wanted=None) -> np.ndarray:
    """Anchors kept, in the order in which they are reported."""
    limits = {"conf": 0.25, "iou": 0.45, "max_det": 300, **card.get("thresholds", {})}
    given = {"conf": conf, "iou": iou, "max_det": max_det}
    limits.update({key: value for key, value in given.items() if value is not None})
    boxes, scores, classes = decoded
    if card["head"]["type"] in NO_NMS:
        index = candidates(boxes, scores, limits["conf"], classes, wanted)
        index = index if card["head"]["type"] in ORDERED else by_score(index, scores)
        return index[: limits["max_det"]]
    return nms(boxes, scores, classes, limits["conf"], limits["iou"], limits["max_det"], agnostic, wanted)


def to_source(boxes: np.ndarray, prepared: Prepared, size: tuple[int, int]) -> np.ndarray:
    """Model pixels to source pixels, clipped to the picture."""
    scale, offset, most = (np.array([*pair, *pair], float) for pair in (prepared.scale, prepared.offset, size))
    return np.clip((boxes - offset) / scale, 0, most).astype(np.float32)
