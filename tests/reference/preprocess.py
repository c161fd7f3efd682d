"""A picture into a model's input, with OpenCV.

A card is a plain dict as TOML reads it; only its ``input`` table is used here, with the defaults that the format
documents.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np


class Prepared(NamedTuple):
    """A model's input and the way back: model pixel = source pixel * scale + offset."""

    tensor: np.ndarray
    scale: tuple[float, float]
    offset: tuple[float, float]


def setting(card: dict, key: str, default):
    return card.get("input", {}).get(key, default)


def preprocess(image_bgr: np.ndarray, card: dict, size=None, dtype=np.float32, exact: bool = False) -> Prepared:
    """Resize, pad, order and normalise.

    Parameters
    ----------
    image_bgr : numpy.ndarray
        ``(height, width, 3)`` uint8, as OpenCV reads pictures.
    card : dict
    size : (int, int), optional
        Width and height of the model's input; else the card's.
    dtype : data-type
    exact : bool
        Interpolate in float32 rather than in OpenCV's 8-bit fixed point, which rounds each pixel.
    """
    size = tuple(size or setting(card, "size", None))
    image = image_bgr.astype(np.float32) if exact else image_bgr
    how = setting(card, "resize", "letterbox")
    picture, scale, offset = {"letterbox": letterbox, "stretch": stretch, "crop": crop}[how](image, size, card)
    return Prepared(normalise(picture, card, dtype), scale, offset)


def letterbox(image: np.ndarray, size: tuple[int, int], card: dict):
    height, width = image.shape[:2]
    factor = min(size[0] / width, size[1] / height)
    whole = math.floor if setting(card, "rounding", "round") == "floor" else lambda v: math.floor(v + 0.5)
    new_w, new_h = (min(max(1, whole(side * factor)), most) for side, most in zip((width, height), size, strict=True))
    centred = setting(card, "align", "center") == "center"
    left, top = ((size[0] - new_w) // 2, (size[1] - new_h) // 2) if centred else (0, 0)
    small = cv2.resize(image, (new_w, new_h), interpolation=cv2.INTER_LINEAR)
    edges = (top, size[1] - new_h - top, left, size[0] - new_w - left)
    padded = cv2.copyMakeBorder(small, *edges, cv2.BORDER_CONSTANT, value=padding_bgr(card))
    return padded, (new_w / width, new_h / height), (float(left), float(top))


def padding_bgr(card: dict) -> list[float]:
    pad = setting(card, "pad", 114)
    values = list(pad) if isinstance(pad, list | tuple) else [pad] * 3
    return values if setting(card, "channels", "rgb") == "bgr" else values[::-1]


def stretch(image: np.ndarray, size: tuple[int, int], card: dict):
    height, width = image.shape[:2]
    resized = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
    return resized, (size[0] / width, size[1] / height), (0.0, 0.0)


def crop(image: np.ndarray, size: tuple[int, int], card: dict):
    """Cover the input, cut what is left over on both sides alike. The cut may fall between pixels."""
    height, width = image.shape[:2]
    factor = max(size[0] / width, size[1] / height)
    offset = ((size[0] - width * factor) / 2, (size[1] - height * factor) / 2)
    xs = (np.arange(size[0]) + 0.5 - offset[0]) / factor - 0.5
    ys = (np.arange(size[1]) + 0.5 - offset[1]) / factor - 0.5
    sampled = bilinear(image.astype(np.float32), xs, ys)
    if image.dtype == np.uint8:
        sampled = np.clip(np.floor(sampled + 0.5), 0, 255).astype(np.uint8)
    return sampled, (factor, factor), offset


def bilinear(image: np.ndarray, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """Samples at a grid of positions, where 0 is the first pixel's centre; edges are repeated."""
    (x0, x1, fx), (y0, y1, fy) = (neighbours(v, n) for v, n in ((xs, image.shape[1]), (ys, image.shape[0])))
    rows = image[y0] * (1 - fy)[:, None, None] + image[y1] * fy[:, None, None]
    return (rows[:, x0] * (1 - fx)[:, None] + rows[:, x1] * fx[:, None]).astype(np.float32)


def neighbours(positions: np.ndarray, count: int):
    first = np.floor(positions)
    low, high = (np.clip(first + k, 0, count - 1).astype(int) for k in (0, 1))
    return low, high, (positions - first).astype(np.float32)


def normalise(picture_bgr: np.ndarray, card: dict, dtype) -> np.ndarray:
    """(pixel / scale - mean) / std in the card's channel order and layout, with a batch dimension."""
    picture = picture_bgr if setting(card, "channels", "rgb") == "bgr" else picture_bgr[:, :, ::-1]
    mean, std = (np.array(setting(card, key, [v] * 3), np.float32) for key, v in (("mean", 0), ("std", 1)))
    values = (picture.astype(np.float32) / np.float32(setting(card, "scale", 1)) - mean) / std
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    if setting(card, "layout", "NCHW") == "NCHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[None], dtype)
