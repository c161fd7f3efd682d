"""Screenshot tests: a picture is compared with the stored one; where they differ, a difference image is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

TESTS = Path(__file__).resolve().parents[1]


def check_picture(name: str, picture: np.ndarray, tolerance: int = 1) -> None:
    """Compare with ``tests/pictures/NAME.png``; RAVEN_ACCEPT_PICTURES=1 stores the new one instead.

    Parameters
    ----------
    picture : numpy.ndarray
        uint8 ``(height, width, 3)`` or ``(height, width, 4)``.
    tolerance : int
        Largest difference of a component that counts as equal.
    """
    path = TESTS / "pictures" / f"{name}.png"
    if os.environ.get("RAVEN_ACCEPT_PICTURES") == "1":
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(picture).save(path, optimize=True)
        return
    assert path.is_file(), f"{path} is not stored; look at the picture and run again with RAVEN_ACCEPT_PICTURES=1"
    stored = np.asarray(Image.open(path))
    assert stored.shape == picture.shape, f"{name}: {picture.shape}, stored {stored.shape}"
    difference = np.abs(stored.astype(int) - picture).max(axis=2)
    if difference.max() > tolerance:
        where = _save_difference(name, picture, stored, difference)
        count = int((difference > tolerance).sum())
        raise AssertionError(f"{name}: {count} pixels differ by up to {difference.max()}; see {where}")


def _save_difference(name: str, picture: np.ndarray, stored: np.ndarray, difference: np.ndarray) -> Path:
    """Side by side: now, stored, and where they differ (bright)."""
    folder = TESTS / "_diff"
    folder.mkdir(exist_ok=True)
    bright = np.repeat(np.minimum(difference * 8, 255)[..., None], 3, axis=2).astype(np.uint8)
    path = folder / f"{name}.png"
    Image.fromarray(np.concatenate([picture[..., :3], stored[..., :3], bright], axis=1)).save(path)
    return path
