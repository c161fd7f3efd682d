"""Which mirroring and which clockwise turn make a stored picture upright: display matrices and EXIF."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: EXIF orientation to (mirror, rotation): mirror left to right first, then turn clockwise.
EXIF: dict[int, tuple[bool, int]] = {
    1: (False, 0),
    2: (True, 0),
    3: (False, 180),
    4: (True, 180),
    5: (True, 270),
    6: (False, 90),
    7: (True, 90),
    8: (False, 270),
}


def from_exif(orientation: int) -> tuple[bool, int]:
    """``(mirror, rotation)`` of an EXIF orientation, 1 to 8; anything else is taken as upright."""
    return EXIF.get(orientation, (False, 0))


def from_display_matrix(matrix: Sequence[int]) -> tuple[bool, int, bool]:
    """``(mirror, rotation, exact)`` of FFmpeg's 3x3 display matrix.

    A pixel (x, y), y pointing down, is shown at (a x + c y, b x + d y) for the matrix (a b u, c d v, x y w). Mirroring
    before a clockwise turn by t gives c = -sin t and d = cos t whether mirrored or not, and a negative determinant
    when it is. ``exact`` is false when the angle is no multiple of 90 degrees: the nearest is taken.
    """
    a, b, c, d = (float(matrix[i]) for i in (0, 1, 3, 4))
    determinant = a * d - b * c
    if determinant == 0:
        return False, 0, True
    angle = math.degrees(math.atan2(-c, d)) % 360
    turn = round(angle / 90) % 4 * 90
    off = abs((angle - turn + 180) % 360 - 180)
    return determinant < 0, turn, off < 1
