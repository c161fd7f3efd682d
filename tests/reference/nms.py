"""Greedy non-maximum suppression, to the letter: what the fast ones must equal."""

from __future__ import annotations

import numpy as np

F = np.float32


def iou(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union in float32, as inter / (area A + area B - inter).

    Where the union is zero the quotient is NaN or infinite, as in any float32 arithmetic; NaN exceeds no threshold.
    """
    box, others = box.astype(F), others.astype(F)
    width = np.maximum(np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0]), F(0))
    height = np.maximum(np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1]), F(0))
    inter = width * height
    area = (box[2] - box[0]) * (box[3] - box[1])
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        return inter / (area + areas - inter)


def candidates(boxes, scores, conf: float, classes=None, wanted=None) -> np.ndarray:
    """Indices of anchors whose score reaches the threshold, compared in float32, and whose box is finite."""
    with np.errstate(invalid="ignore"):
        chosen = (scores.astype(F) >= F(conf)) & np.isfinite(boxes).all(1)
    if wanted is not None:
        chosen &= np.isin(classes, wanted)
    return np.flatnonzero(chosen)


def by_score(index: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Highest score first, of equal ones the lower anchor first."""
    return index[np.lexsort((index, -scores[index].astype(np.float64)))]


def nms(boxes, scores, classes, conf: float, iou_threshold: float, max_det: int, agnostic=False, wanted=None):
    """Indices of the boxes kept, best first.

    A box is removed by a better box that was itself kept, of its class unless ``agnostic``, when their overlap
    exceeds the threshold.

    Parameters
    ----------
    boxes : numpy.ndarray
        ``(n, 4)`` x1, y1, x2, y2.
    scores, classes : numpy.ndarray
        ``(n,)``
    conf, iou_threshold : float
    max_det : int
    agnostic : bool
    wanted : sequence of int, optional
        The only classes to consider.
    """
    order = by_score(candidates(boxes, scores, conf, classes, wanted), scores)
    alive, kept = np.ones(len(order), bool), []
    for place, index in enumerate(order):
        if not alive[place]:
            continue
        kept.append(index)
        if len(kept) == max_det:
            break
        rest = order[place + 1 :]
        rival = np.ones(len(rest), bool) if agnostic else classes[rest] == classes[index]
        alive[place + 1 :] &= ~(rival & (iou(boxes[index], boxes[rest]) > F(iou_threshold)))
    return np.array(kept, int)
