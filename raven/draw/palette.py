"""The colours of classes: fixed by class id, readable on light and on dark ground."""

from __future__ import annotations

import numpy as np

#: Fill colours, 0xRRGGBB, by class id modulo their number. Chosen in OKLCH: neighbours far apart in hue, the most
#: vivid colour of each hue whose relative luminance is 0.16 to 0.29, which is what gives 3:1 against black and white.
COLOURS: tuple[int, ...] = (
    0xEB0027, 0x0174E0, 0x04A52D, 0xA41DFE, 0xD47601, 0x0D9DA4, 0xDC05A0, 0x929300, 0x047EA7, 0xFF4091,
    0x068660, 0x7F7FFF, 0x946F06, 0xF024FE, 0x679D02, 0x7C8796, 0xC55104, 0x9A62A8, 0x2E8B57, 0xFE496A,
)  # fmt: skip


def luminance(colour: int) -> float:
    """Relative luminance of an sRGB colour, 0 to 1 (WCAG 2.1).

    Parameters
    ----------
    colour : int
        0xRRGGBB.
    """
    srgb = np.array([colour >> 16 & 255, colour >> 8 & 255, colour & 255]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(first: int, second: int) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.1)."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def ink(fill: int) -> int:
    """Colour of text on a fill: white where that has contrast enough for text (4.5:1), else whichever has more."""
    if contrast(fill, 0xFFFFFF) >= 4.5:
        return 0xFFFFFF
    return max((0xFFFFFF, 0x000000), key=lambda text: contrast(fill, text))


def table() -> np.ndarray:
    """Fill and ink of every colour as the shaders read them: uint32 ``(n, 2)``, 0xRRGGBB."""
    return np.array([(fill, ink(fill)) for fill in COLOURS], np.uint32)
