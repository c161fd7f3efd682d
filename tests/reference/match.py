"""How far two sets of detections agree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .nms import iou


class Agreement(NamedTuple):
    """Share of the found that is true, share of the true that is found, and the IoU of every matched pair."""

    precision: float
    recall: float
    overlaps: np.ndarray


def match(found, truth, least_iou: float = 0.5) -> Agreement:
    """Pair detections of the same class greedily, the largest overlaps first, each used once.

    Parameters
    ----------
    found, truth : tuple of numpy.ndarray
        Boxes ``(n, 4)``, scores ``(n,)``, classes ``(n,)``.
    least_iou : float
        Pairs that overlap less do not count.

    Returns
    -------
    Agreement
        Precision of nothing found, and recall of nothing to find, are 1.
    """
    overlaps = np.zeros((len(found[0]), len(truth[0])))
    for i, box in enumerate(found[0]):
        overlaps[i] = np.where(found[2][i] == truth[2], np.nan_to_num(iou(box, truth[0])), 0)
    pairs = []
    while overlaps.size and overlaps.max() >= least_iou:
        i, j = np.unravel_index(overlaps.argmax(), overlaps.shape)
        pairs.append(overlaps[i, j])
        overlaps[i, :] = overlaps[:, j] = -1
    share = [len(pairs) / len(part[0]) if len(part[0]) else 1.0 for part in (found, truth)]
    return Agreement(*share, np.array(pairs))
