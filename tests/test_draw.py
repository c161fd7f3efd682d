"""Boxes and labels: geometry against NumPy, pictures against stored ones, counts that only the GPU knows."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from support.drawing import NAMES, bound_overlay, dirty_tiles, draw, forbid_reading, over, read_layer, rows_of
from support.pictures import check_picture

from raven.draw import palette
from raven.draw.boxes import BoxStyle
from raven.draw.glyphs import lay_out
from raven.draw.layer import TILE
from raven.draw.overlay import BoundOverlay, Overlay
from raven.errors import UsageError
from raven.gpu import Buffer, CommandPool, Device, Recorder, Submission, Timeline

# -- colours ---------------------------------------------------------------------------------------------------------


def test_colours_stand_out_on_black_and_white_and_from_each_other() -> None:
    for fill in palette.COLOURS:
        assert palette.contrast(fill, 0) >= 3, f"{fill:06X} on black"
        assert palette.contrast(fill, 0xFFFFFF) >= 3, f"{fill:06X} on white"
        assert palette.contrast(fill, palette.ink(fill)) >= 4.5, f"text on {fill:06X}"
    rgb = np.array([[c >> 16 & 255, c >> 8 & 255, c & 255] for c in palette.COLOURS], float)
    distance = np.linalg.norm(rgb[:, None] - rgb[None], axis=2)
    assert distance[~np.eye(len(rgb), dtype=bool)].min() > 30
    assert min(distance[i, i + 1] for i in range(len(rgb) - 1)) > 100, "neighbouring classes are too alike"


def test_contrast_of_known_pairs() -> None:
    assert palette.contrast(0, 0xFFFFFF) == pytest.approx(21)
    assert palette.contrast(0x777777, 0xFFFFFF) == pytest.approx(4.48, abs=0.01)  # the well-known #777 on white


# -- outlines against an oracle --------------------------------------------------------------------------------------


def expected_coverage(box: np.ndarray, size: tuple[int, int], style: BoxStyle) -> np.ndarray:
    """Coverage of one outline, from the distance of every pixel's centre to a rounded rectangle."""
    width, height = size
    half = style.line_width / 2
    if not (box == box).all():
        return np.zeros((height, width))
    x1, y1, x2, y2 = np.clip(box, 0, [width, height, width, height])
    if x2 <= x1 or y2 <= y1:
        return np.zeros((height, width))
    x1, x2 = np.clip([x1, x2], half, width - half)
    y1, y2 = np.clip([y1, y2], half, height - half)
    reach = np.array([x2 - x1, y2 - y1]) / 2
    radius = min(style.radius, *reach)
    py, px = np.mgrid[:height, :width] + 0.5
    qx, qy = np.abs(px - (x1 + x2) / 2) - reach[0] + radius, np.abs(py - (y1 + y2) / 2) - reach[1] + radius
    distance = np.hypot(np.maximum(qx, 0), np.maximum(qy, 0)) + np.minimum(np.maximum(qx, qy), 0) - radius
    return np.clip(half + 0.5 - np.abs(distance), 0, 1)


BOXES = {
    "inside": (20.3, 15.6, 90.1, 70.9),
    "whole pixels": (20, 16, 90, 70),
    "small": (30, 30, 34, 33),
    "smaller than the line": (30.2, 30.2, 30.9, 30.6),
    "all of the frame": (0, 0, 120, 90),
    "over the left and top": (-30, -20, 40, 30),
    "over the right and bottom": (80.5, 60.5, 500, 400),
    "around the frame": (-1e6, -1e6, 1e6, 1e6),
    "outside": (130, 10, 160, 40),
    "outside, negative": (-40, -40, -3, -3),
    "no width": (50, 20, 50, 60),
    "no area": (50, 50, 50, 50),
    "inside out": (60, 60, 20, 20),
    "not a number": (np.nan, 10, 50, 50),
    "not a number at the end": (10, 10, 50, np.nan),
    "endless": (-np.inf, 10, np.inf, 50),
}


def tiles_of(layer: np.ndarray) -> np.ndarray:
    """Alpha by tile, ``(rows, 8, columns, 8)``."""
    alpha = np.pad(layer[..., 3], [(0, -n % TILE) for n in layer.shape[:2]])
    return alpha.reshape(alpha.shape[0] // TILE, TILE, -1, TILE)


@pytest.mark.parametrize("line_width", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("name", BOXES)
def test_outline_matches_numpy(device: Device, name: str, line_width: float) -> None:
    size = (120, 90)
    rows = rows_of((*BOXES[name], 3))
    with bound_overlay(device, rows, size, line_width=line_width, labels=False) as (_, bound):
        device.immediate(bound.record)
        layer, dirty = read_layer(device, bound), dirty_tiles(bound)
        style = bound.style
    coverage = expected_coverage(rows[0, :4].astype(float), size, style)
    fill = palette.COLOURS[3]
    colour = np.array([fill >> 16 & 255, fill >> 8 & 255, fill & 255, 255])
    np.testing.assert_allclose(layer, coverage[..., None] * colour, atol=1.01)
    touched = tiles_of(layer).max(axis=(1, 3)) > 0
    assert dirty[touched].all(), "a tile that was drawn on is not on the list"


def test_first_row_is_drawn_last(device: Device) -> None:
    layer = draw(device, rows_of((10, 10, 60, 60, 0), (10, 10, 60, 60, 1)), (80, 80), labels=False)
    fill = palette.COLOURS[0]
    assert tuple(layer[10, 30]) == (fill >> 16 & 255, fill >> 8 & 255, fill & 255, 255)


def test_few_tiles_are_dirty_for_a_large_box(device: Device) -> None:
    with bound_overlay(device, rows_of((100, 100, 600, 500, 0)), (768, 576), labels=False) as (_, bound):
        device.immediate(bound.record)
        dirty = dirty_tiles(bound)
    assert dirty.sum() < 300
    assert not dirty[20:56, 20:68].any(), "the inside of the box is not drawn on"


def test_default_sizes_follow_the_height() -> None:
    assert [BoxStyle.of((0, h)).line_width for h in (240, 576, 1080, 2160)] == [2, 2, 4, 7]


def test_impossible_styles_are_refused(device: Device) -> None:
    with pytest.raises(UsageError, match=r"line width of 0 pixels: give 0.5 to 100"):
        Overlay(device, NAMES, line_width=0)
    with pytest.raises(UsageError, match=r"text size of 500 pixels: give 6 to 200"):
        Overlay(device, NAMES, text_size=500)


# -- pictures --------------------------------------------------------------------------------------------------------


def ground(size: tuple[int, int]) -> np.ndarray:
    """Dark on the left, light on the right."""
    picture = np.full((size[1], size[0], 3), 205, np.uint8)
    picture[:, : size[0] // 2] = 45
    return picture


SCENE = rows_of(
    (100, 100, 260, 400, 0, 0.914),
    (5, 3, 120, 90, 1, 1.0),
    (650, 200, 767.6, 420.3, 2, 0.07, 12),
    (300.5, 200.5, 420.2, 300.7, 3, 0.5),
    (500, 0, 768, 100, 4, 0.66),
    (430, 440, 560, 576, 5, 0.88),
    (0, 540, 60, 576, 77, 0.999, 54321),
)


def test_picture_of_a_scene(device: Device) -> None:
    size = (768, 576)
    check_picture("draw_scene", over(draw(device, SCENE, size), ground(size)))


def test_picture_at_full_hd_scale(device: Device) -> None:
    size = (800, 1080)
    rows = rows_of((60.5, 200.25, 420.5, 900.75, 5), (480, 60, 780, 420, 2, 0.05), (500, 700, 640, 1079, 0, 1.0, 7))
    check_picture("draw_tall", over(draw(device, rows, size), ground(size)))


def test_picture_of_a_tiny_frame(device: Device) -> None:
    size = (97, 61)
    check_picture("draw_tiny", over(draw(device, rows_of((8, 30, 60, 58, 5), (70, 2, 90, 20, 0)), size), ground(size)))


BORDERS = {
    "left": (-40, 60, 20, 120),
    "top": (80, -50, 160, 20),
    "right": (300, 60, 330, 120),
    "bottom": (80, 225, 160, 300),
    "corner": (310, 0, 320, 10),
    "bottom corner": (316, 236, 320, 240),
}


@pytest.mark.parametrize("border", BORDERS)
def test_label_stays_inside_the_frame(device: Device, border: str) -> None:
    """The whole label is there: as many opaque pixels as in the middle of a frame, less the rounded corners."""
    size = (320, 240)
    style = {"boxes": False, "text_size": 14}
    free = draw(device, rows_of((60, 5, 200, 200, 0)), size, **style)[..., 3]
    held = draw(device, rows_of((*BORDERS[border], 0)), size, **style)[..., 3]
    width, height = (np.ptp(np.flatnonzero(free.any(axis=axis))) + 1 for axis in (0, 1))
    overlap = 2 if border in ("left", "right", "bottom", "bottom corner") else 0  # it stands on its box's outline
    assert height == lay_out(NAMES, 14, 192).height
    assert np.ptp(np.flatnonzero(held.any(axis=0))) + 1 == width
    assert np.ptp(np.flatnonzero(held.any(axis=1))) + 1 == height + overlap
    assert abs(int((held > 128).sum()) - int((free > 128).sum()) - overlap * width) <= 16


def test_label_stands_on_its_box_or_inside_it(device: Device) -> None:
    label_rows = np.flatnonzero(draw(device, rows_of((60, 100, 200, 200, 0)), (320, 240), boxes=False).any(axis=(1, 2)))
    assert label_rows[-1] == 100, "the outline is rows 99 and 100, and the label covers it"
    assert len(label_rows) == lay_out(NAMES, 11, 192).height + 2
    inside = np.flatnonzero(draw(device, rows_of((60, 5, 200, 200, 0)), (320, 240), boxes=False).any(axis=(1, 2)))
    assert inside[0] == 4


def label_width(device: Device, **columns: float) -> int:
    rows = rows_of((60, 100, 200, 200, columns.get("kind", 0)), score=columns.get("score", 0.5))
    rows[:, 6] = columns.get("track", -1)
    layer = draw(device, rows, (320, 240), boxes=False, text_size=14)
    return int(np.ptp(np.flatnonzero(layer.any(axis=(0, 2)))) + 1)


def test_numbers_take_the_width_of_their_digits(device: Device) -> None:
    runs = lay_out(NAMES, 14, 192)
    digit, percent, sharp, blank = runs.cell_widths
    plain = int(runs.names[0, 1]) + 2 * runs.padding + blank + percent
    assert label_width(device, score=0.07) == plain + digit
    assert label_width(device, score=0.5) == plain + 2 * digit
    assert label_width(device, score=1.0) == label_width(device, score=0.996) == plain + 3 * digit
    assert label_width(device, score=np.nan) == label_width(device, score=-3) == plain + digit
    assert label_width(device, track=12) == plain + 4 * digit + sharp + blank
    assert label_width(device, kind=999) == plain + 2 * digit - int(runs.names[0, 1]) + int(runs.names[-1, 1])


def test_text_is_the_fonts(device: Device) -> None:
    """The name's pixels in the label are Pillow's rendering of it, digit cells included."""
    runs = lay_out(NAMES, 14, 192)
    layer = draw(device, rows_of((60, 100, 200, 200, 0)), (320, 240), boxes=False, text_size=14).astype(float)
    top, left = 99 - runs.height, 59 + runs.padding
    offset, width = (int(n) for n in runs.names[0])
    name = runs.texels[offset : offset + width * runs.height].reshape(runs.height, width) / 255
    fill, ink = (np.array([c >> 16 & 255, c >> 8 & 255, c & 255]) for c in palette.table()[0].tolist())
    expected = fill + (ink - fill) * name[..., None]
    np.testing.assert_allclose(layer[top : top + runs.height, left : left + width, :3], expected, atol=1.01)


def test_names_too_long_end_in_an_ellipsis() -> None:
    runs = lay_out(["a very long name indeed, far beyond the frame", "short"], 14, 100)
    assert 60 < runs.names[0, 1] <= 100
    assert runs.names[1, 1] < 60


def test_characters_without_a_glyph_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "raven"):
        lay_out(["person", "Bär", "猫"], 14, 100)
    assert "no glyphs for 猫:" in caplog.text


def test_a_font_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.ttf").write_text("not a font")
    with pytest.raises(UsageError, match=r"cannot read the label font .*no.ttf"):
        lay_out(["person"], 14, 100, tmp_path / "no.ttf")


# -- counts that only the GPU knows ----------------------------------------------------------------------------------


def copy_and_clear(bound: BoundOverlay, frame: Buffer, rec: Recorder) -> None:
    """What composing does to the layer, done plainly: take the picture, empty layer and flags."""
    rec.copy_image_to_buffer(bound.layer, frame)
    rec.barrier("transfer", "target transfer")
    rec.begin_rendering(bound.layer, bound.size, (0.0, 0.0, 0.0, 0.0))
    rec.end_rendering()
    rec.fill_buffer(bound.tiles, 0, 64)


def test_count_is_the_gpus_own(device: Device) -> None:
    """One recording, submitted for every count: what is drawn follows the count that a GPU command wrote before."""
    size, most, counts = (320, 240), 12, [3, 12, 0, 7, 0, 1]
    rows = rows_of(*((4 + 26 * i, 40, 24 + 26 * i, 60, 0) for i in range(most)))
    queue = device.graphics[0]
    pool, timeline = CommandPool(device, queue.family), Timeline(device)
    frames = [Buffer(device, size[0] * size[1] * 4, "readback") for _ in counts]
    table = Buffer(device, 4 * len(counts))
    table.write(np.array(counts, np.uint32))
    with bound_overlay(device, rows, size, most) as (detections, bound), pytest.MonkeyPatch.context() as patch:
        forbid_reading(patch)
        rec = pool.recorder()
        rec.barrier("all", "all")
        bound.record(rec)
        drawing = rec.end()
        value = 0
        for turn, frame in enumerate(frames):
            rec = pool.recorder()
            rec.barrier("all", "all")
            rec.copy_buffer(table, detections.buffer, 4, 4 * turn, 4)
            before = rec.end()
            rec = pool.recorder()
            rec.barrier("all", "all")
            copy_and_clear(bound, frame, rec)
            for commands in (before, drawing, rec.end()):
                Submission(queue, commands, [timeline], [timeline]).submit((value,), (value + 1,))
                value += 1
            assert timeline.wait(value, 20)
        patch.undo()
    pictures = [frame.read().reshape(size[1], size[0], 4)[..., 3] for frame in frames]
    device.wait_idle()  # the driver may still be busy with a semaphore whose value is there already
    for item in (pool, timeline, table, *frames):
        item.destroy()
    drawn = [sum(bool(p[58:62, 4 + 26 * i : 24 + 26 * i].any()) for i in range(most)) for p in pictures]
    assert drawn == counts
    assert not pictures[2].any()


def test_nothing_detected_draws_nothing(device: Device) -> None:
    with bound_overlay(device, rows_of((10, 10, 60, 60, 0))[:0], (80, 80)) as (_, bound):
        device.immediate(bound.record)
        assert not read_layer(device, bound).any()
        assert not dirty_tiles(bound).any()


def test_three_hundred_boxes(device: Device) -> None:
    generator = np.random.default_rng(5)
    corners = generator.uniform(0, [700, 500], (300, 2))
    boxes = np.concatenate([corners, corners + generator.uniform(5, 200, (300, 2))], axis=1)
    rows = rows_of(*((*box, i % 90) for i, box in enumerate(boxes.tolist())))
    with bound_overlay(device, rows, (768, 576)) as (_, bound):
        device.immediate(bound.record)
        layer, dirty = read_layer(device, bound), dirty_tiles(bound)
    touched = tiles_of(layer).max(axis=(1, 3)) > 0
    assert dirty[touched].all()
    assert touched.mean() > 0.9
    for x1, y1, x2, y2 in rows[:20, :4]:  # the first rows are on top: nothing of theirs is missing
        middle = (min(int(y2), 575), min(int((x1 + x2) / 2), 767))
        assert layer[middle][3] > 0 or layer[middle[0] - 1, middle[1]][3] > 0, (x1, y1)
