"""Class names and digits as rows of coverage, made once at start; the GPU puts labels together from them.

A whole name is one run: FreeType lays it out with the font's own advances and kerning, at the very size in which it
is shown, and the shader copies it texel by texel. So text is as crisp as the font's hinting makes it, any script that
the font holds works, and a label needs one quad instead of one a letter.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from raven.errors import UsageError

logger = logging.getLogger(__name__)

#: DejaVu Sans Bold 2.37, with its licence beside it.
FONT = Path(__file__).parent / "assets" / "DejaVuSans-Bold.ttf"
#: What the shader composes, in the order of its cell numbers; the last is a blank.
CELLS = "0123456789%# "
UNKNOWN = "?"
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class TextRuns:
    """Everything that labels are made of.

    Attributes
    ----------
    texels : numpy.ndarray
        uint8 coverage: the cells, each ``height`` rows of ``cell_pitch``, then the names, each ``height`` rows of its
        own width.
    names : numpy.ndarray
        uint32 ``(classes + 1, 2)``: offset into ``texels`` and width of each name; the last is for unknown classes.
    cell_widths : tuple of int
        Advance of a digit, of ``%``, of ``#`` and of a blank, in pixels.
    cell_pitch, height, padding : int
        Pixels; the height is the whole label's, the padding is left and right of the text.
    """

    texels: np.ndarray
    names: np.ndarray
    cell_widths: tuple[int, int, int, int]
    cell_pitch: int
    height: int
    padding: int


class _Face:
    """A font at a size, and where its base line lies in a label."""

    def __init__(self, path: Path, size: int) -> None:
        try:
            self.font = ImageFont.truetype(str(path), size)
        except OSError as error:
            raise UsageError(f"cannot read the label font {path}: {error}; give a TrueType or OpenType file") from None
        capital = -self.font.getbbox("H", anchor="ls")[1]
        descent = self.font.getbbox("gpqy", anchor="ls")[3]
        margin = max(round(size * 0.28), descent + 1)
        self.height, self.baseline = int(capital + 2 * margin), int(capital + margin)

    def width(self, text: str) -> int:
        """Whole pixels that a text takes, without parts of glyphs cut off."""
        return max(
            1,
            int(
                np.ceil(
                    max(
                        self.font.getlength(text),
                        self.font.getbbox(text, anchor="ls")[2],
                    )
                )
            ),
        )

    def draw(self, text: str, width: int) -> np.ndarray:
        """Coverage, uint8 ``(height, width)``; a text narrower than that is centred."""
        picture = Image.new("L", (width, self.height))
        left = (width - self.width(text)) // 2
        ImageDraw.Draw(picture).text((left, self.baseline), text, fill=255, font=self.font, anchor="ls")
        return np.asarray(picture)

    def shorten(self, text: str, limit: int) -> str:
        """Cut the end of a text that is wider than ``limit`` pixels, with an ellipsis in its place."""
        if self.width(text) <= limit:
            return text
        length = next(
            (n for n in range(len(text) - 1, 0, -1) if self.width(text[:n] + _ELLIPSIS) <= limit),
            0,
        )
        return text[:length].rstrip() + _ELLIPSIS

    def missing(self, texts: Sequence[str]) -> str:
        """Characters that the font has no glyph for: they come out as its picture of one that does not exist."""
        absent = bytes(self.font.getmask("\U0010fffe"))
        found = {c for c in set("".join(texts)) if not c.isspace() and bytes(self.font.getmask(c)) == absent}
        return "".join(sorted(found))


def lay_out(class_names: Sequence[str], size: int, limit: int, font: Path | None = None) -> TextRuns:
    """Rasterise names and digits.

    Parameters
    ----------
    class_names : sequence of str
        Any Unicode; line breaks and tabs become blanks.
    size : int
        Font size in pixels.
    limit : int
        Widest name in pixels; longer ones end in an ellipsis.
    font : Path, optional
        A font file instead of DejaVu Sans Bold.

    Raises
    ------
    UsageError
        The font cannot be read.
    """
    face = _Face(font or FONT, size)
    texts = [" ".join(name.split()) for name in class_names] + [UNKNOWN]
    if absent := face.missing(texts):
        logger.warning(
            "the label font has no glyphs for %s: class names show boxes there; choose another font",
            absent,
        )
    digit, percent, sharp, blank = (
        *map(face.width, "0%#"),
        round(face.font.getlength(" ")),
    )
    pitch = max(digit, percent, sharp)
    cells = [face.draw(c, digit if c.isdigit() else face.width(c)) for c in CELLS[:-1]]
    runs = [np.pad(cell, ((0, 0), (0, pitch - cell.shape[1]))) for cell in cells]
    names = [face.draw(text, face.width(text)) for text in (face.shorten(t, limit) for t in texts)]
    offsets = np.cumsum([0, *(run.size for run in runs + names)])[len(runs) : -1]
    return TextRuns(
        texels=np.concatenate([run.reshape(-1) for run in runs + names]),
        names=np.array(
            [(at, name.shape[1]) for at, name in zip(offsets, names, strict=True)],
            np.uint32,
        ),
        cell_widths=(digit, percent, sharp, blank),
        cell_pitch=pitch,
        height=face.height,
        padding=max(3, round(size * 0.35)),
    )
