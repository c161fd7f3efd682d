"""Placement: integral contents, and boxes that come back where they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raven.errors import UsageError
from raven.frame.geometry import place

_SIDE = st.integers(1, 8192)


@given(
    source=st.tuples(_SIDE, _SIDE),
    target=st.tuples(st.integers(1, 2048), st.integers(1, 2048)),
    resize=st.sampled_from(["letterbox", "stretch", "crop"]),
    align=st.sampled_from(["center", "topleft"]),
    rounding=st.sampled_from(["round", "floor"]),
    aspect=st.sampled_from([1, 16 / 15, 0.5, 2]),
)
def test_corners_come_back(source, target, resize, align, rounding, aspect) -> None:
    placement = place(source, target, resize, align, rounding, aspect)
    corners = np.array([[0, 0], [source[0], 0], [0, source[1]], source, [source[0] / 3, source[1] / 7]], np.float64)
    there = placement.forward(corners)
    assert np.abs(placement.inverse(there) - corners).max() < 0.01
    x, y, width, height = placement.content
    assert x >= 0 and y >= 0 and width >= 1 and height >= 1
    assert x + width <= target[0] and y + height <= target[1]
    if resize != "crop":
        np.testing.assert_allclose(there[0], (x, y), atol=1e-6)
        np.testing.assert_allclose(there[3], (x + width, y + height), atol=1e-6)


@given(source=st.tuples(_SIDE, _SIDE), target=st.tuples(st.integers(1, 2048), st.integers(1, 2048)))
def test_crop_covers_the_target_from_inside_the_source(source, target) -> None:
    x, y, width, height = place(source, target, "crop").crop
    assert x >= -1e-6 and y >= -1e-6
    assert x + width <= source[0] + 1e-6 and y + height <= source[1] + 1e-6
    assert width / height == pytest.approx(target[0] / target[1], rel=1e-6)


@pytest.mark.parametrize(("rounding", "height"), [("round", 234), ("floor", 233)])
def test_the_documented_rounding(rounding: str, height: int) -> None:
    assert place((768, 432), (416, 416), rounding=rounding).content[3] == height


def test_rounding_to_nearest_fills_the_limiting_side() -> None:
    for side in range(1, 2000):
        assert place((side, side), (416, 416)).content == (0, 0, 416, 416)


def test_odd_padding_is_one_pixel_larger_at_the_end() -> None:
    assert place((768, 433), (416, 416)).content == (0, 90, 416, 235)


def test_wide_pixels_make_a_wide_picture() -> None:
    assert place((720, 576), (640, 640), sample_aspect_ratio=64 / 45).content[2:] == (640, 360)


def test_empty_pictures_are_refused() -> None:
    with pytest.raises(UsageError, match="0x5 in 416x416: sizes start at 1"):
        place((0, 5), (416, 416))
