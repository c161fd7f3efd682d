"""Where a picture lies in a model's input, and how boxes come back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from raven.errors import UsageError

Resize = Literal["letterbox", "stretch", "crop"]
Align = Literal["center", "topleft"]
Rounding = Literal["round", "floor"]


@dataclass(frozen=True)
class Placement:
    """Where an upright source picture lies in the model's input. Coordinates are pixel edges: 0 to the size.

    Attributes
    ----------
    source : (int, int)
        Width and height of the upright source picture.
    target : (int, int)
        Width and height of the model's input.
    content : (int, int, int, int)
        x, y, width, height of the picture in the target: integers, and the same ones map boxes back.
    crop : (float, float, float, float)
        x, y, width, height of the part of the source that fills the content.
    """

    source: tuple[int, int]
    target: tuple[int, int]
    content: tuple[int, int, int, int]
    crop: tuple[float, float, float, float]

    @property
    def scale(self) -> tuple[float, float]:
        """Target pixels a source pixel."""
        return self.content[2] / self.crop[2], self.content[3] / self.crop[3]

    def forward(self, points: np.ndarray) -> np.ndarray:
        """Source points ``(..., 2)`` to target points."""
        return (np.asarray(points) - self.crop[:2]) * self.scale + self.content[:2]

    def inverse(self, points: np.ndarray) -> np.ndarray:
        """Target points ``(..., 2)`` to source points."""
        return (np.asarray(points) - self.content[:2]) / self.scale + self.crop[:2]


def place(
    source: tuple[int, int],
    target: tuple[int, int],
    resize: Resize = "letterbox",
    align: Align = "center",
    rounding: Rounding = "round",
    sample_aspect_ratio: Fraction | float = 1,
) -> Placement:
    """Place a picture in a model's input.

    Parameters
    ----------
    source, target : (int, int)
        Width and height in pixels, at least 1.
    resize : {'letterbox', 'stretch', 'crop'}
        Fit inside and pad; fill and distort; or cover and cut.
    align : {'center', 'topleft'}
        Where a letterboxed picture lies.
    rounding : {'round', 'floor'}
        How the size of a letterboxed picture becomes integral.
    sample_aspect_ratio : Fraction or float
        Width of a source pixel over its height; letterbox and crop keep the picture's true shape.

    Raises
    ------
    UsageError
        A size below 1 pixel.
    """
    if min(*source, *target) < 1:
        raise UsageError(f"cannot place {source[0]}x{source[1]} in {target[0]}x{target[1]}: sizes start at 1 pixel")
    width, height = source
    whole = (0.0, 0.0, float(width), float(height))
    if resize == "stretch":
        return Placement(source, target, (0, 0, *target), whole)
    shown = width * float(sample_aspect_ratio)
    if resize == "crop":
        return Placement(source, target, (0, 0, *target), _cover(source, shown, target))
    return Placement(source, target, _fit(shown, height, target, align, rounding), whole)


def _fit(
    width: float, height: float, target: tuple[int, int], align: Align, rounding: Rounding
) -> tuple[int, int, int, int]:
    factor = min(target[0] / width, target[1] / height)
    # Floor is what `int(side * factor)` in the usual scripts does, floating-point error included: 432 * (416 / 768) is
    # 233 there. Models that were prepared so need the same; rounding to nearest has no such trap.
    integral = math.floor if rounding == "floor" else lambda v: math.floor(v + 0.5)
    size = [min(max(1, integral(side * factor)), most) for side, most in zip((width, height), target, strict=True)]
    x, y = (0, 0) if align == "topleft" else ((target[0] - size[0]) // 2, (target[1] - size[1]) // 2)
    return x, y, size[0], size[1]


def _cover(source: tuple[int, int], shown: float, target: tuple[int, int]) -> tuple[float, float, float, float]:
    width, height = source
    factor = max(target[0] / shown, target[1] / height)
    part_w, part_h = target[0] / (factor * shown) * width, target[1] / factor
    return (width - part_w) / 2, (height - part_h) / 2, part_w, part_h
