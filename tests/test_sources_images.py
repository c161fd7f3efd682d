"""Image sources against Pillow: natural order, EXIF, odd modes, damaged files."""

from __future__ import annotations

import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from support import media

from raven.errors import SourceError, UsageError
from raven.frame.format import Frame
from raven.sources import ImageSource, VideoSource, open_source
from raven.sources.images import natural_key


def pixels(frame: Frame) -> np.ndarray:
    """A frame's picture, upright, by NumPy alone."""
    stored = frame.planes[0].reshape(frame.format.height, frame.format.width, -1)
    mirrored = stored[:, ::-1] if frame.format.mirror else stored
    return np.rot90(mirrored, -(frame.format.rotation // 90))


def only(path: Path) -> Frame:
    (frame,) = open_source(path)
    return frame


def test_natural_order(tmp_path: Path) -> None:
    names = ["frame10.png", "frame2.png", "frame1.png", "Frame3.png", "frame2b.png", "frame02.png"]
    for name in names:
        media.make_image(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    got = [f.name for f in ImageSource(tmp_path)]
    assert got == ["frame1.png", "frame02.png", "frame2.png", "frame2b.png", "Frame3.png", "frame10.png"]


def test_natural_order_compares_any_names() -> None:
    names = ["", "1", "a", "1a", "a1", "²", "a²", "10", "9"]
    assert sorted(names, key=natural_key).index("9") < sorted(names, key=natural_key).index("10")


@pytest.mark.parametrize("pattern", ["shot_*.png", "shot_%03d.png", "shot_00[0-9].png"])
def test_patterns(tmp_path: Path, pattern: str) -> None:
    for i in (2, 0, 1):
        media.make_image(tmp_path / f"shot_{i:03d}.png", value=i)
    media.make_image(tmp_path / "other.png", value=9)
    source = open_source(tmp_path / pattern)
    got = [(f.index, f.pts, f.name, int(f.planes[0][0, 2])) for f in source]
    assert got == [(i, i, f"shot_00{i}.png", i) for i in range(3)]
    assert (source.info.time_base, source.info.frame_rate, source.info.kind) == (Fraction(1, 25), None, "images")
    assert source.info.frames == 3


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
def test_exif_orientation_is_pillows(tmp_path: Path, orientation: int, suffix: str) -> None:
    path = media.make_image(tmp_path / f"one.{suffix}", orientation=orientation)
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    frame = only(path)
    assert frame.format.upright_size == expected.shape[1::-1]
    np.testing.assert_array_equal(pixels(frame), expected)
    if suffix != "tif":  # Pillow turns those itself
        assert (frame.format.width, frame.format.height) == (20, 12)


def test_modes(tmp_path: Path) -> None:
    grey = np.arange(240, dtype=np.uint8).reshape(12, 20)
    rgb = np.stack([grey, grey[::-1], grey.T.reshape(12, 20)], -1)
    made = {
        "grey.png": (Image.fromarray(grey), grey),
        "rgb.png": (Image.fromarray(rgb), rgb),
        "deep.png": (Image.fromarray(grey.astype(np.uint16) * 257), grey),
        "float.tif": (Image.fromarray(grey.astype(np.float32) / 255), grey),
        "bits.png": (Image.fromarray(grey > 99), np.where(grey > 99, 255, 0)),
        "palette.png": (Image.fromarray(grey).convert("P"), np.stack([grey] * 3, -1)),
        "cmyk.tif": (Image.fromarray(rgb).convert("CMYK"), rgb),
    }
    for name, (image, expected) in made.items():
        image.save(tmp_path / name)
        frame = only(tmp_path / name)
        assert frame.format.pixel.name == ("gray" if expected.ndim == 2 else "rgb24"), name
        np.testing.assert_array_equal(pixels(frame).squeeze(), expected, err_msg=name)


def test_transparency_lies_over_white(tmp_path: Path) -> None:
    rgba = np.zeros((4, 6, 4), np.uint8)
    rgba[..., 0], rgba[:, :3, 3] = 200, 255
    Image.fromarray(rgba).save(tmp_path / "half.png")
    got = pixels(only(tmp_path / "half.png"))
    assert got[0, 0].tolist() == [200, 0, 0]
    assert got[0, 5].tolist() == [255, 255, 255]


def test_sizes_may_differ(tmp_path: Path) -> None:
    for i, size in enumerate([(20, 12), (8, 30), (20, 12)]):
        media.make_image(tmp_path / f"{i}.png", size)
    source = ImageSource(tmp_path)
    assert [(f.format.width, f.format.height) for f in source] == [(20, 12), (8, 30), (20, 12)]
    assert (source.info.format.width, source.info.format.height) == (20, 12)


def test_unreadable_images_are_skipped_and_named(tmp_path: Path) -> None:
    for i in range(12):
        media.make_image(tmp_path / f"{i}.png", value=i)
    (tmp_path / "0.png").write_bytes(b"")
    (tmp_path / "3.png").write_text("no image at all")
    whole = (tmp_path / "7.png").read_bytes()
    (tmp_path / "7.png").write_bytes(whole[: len(whole) // 2])
    source = ImageSource(tmp_path)
    got = [(f.index, f.name) for f in source]
    assert got == list(enumerate(f"{i}.png" for i in (1, 2, 4, 5, 6, 8, 9, 10, 11)))
    assert [note.split("/")[-1].split()[0] for note in source.notices] == ["0.png", "3.png", "7.png"]
    assert all("\n" not in note for note in source.notices)


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    for name in ("a.png", "b.jpg"):
        (tmp_path / name).write_text("no image")
    with pytest.raises(SourceError, match=r"none of the 2 images.*a\.png"):
        ImageSource(tmp_path)
    with pytest.raises(SourceError, match=r"a\.png cannot be read \(no image that Pillow knows\)$"):
        ImageSource(tmp_path / "a.png")


def test_no_match_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no file matches .*\*\.png"):
        open_source(tmp_path / "*.png")
    with pytest.raises(SourceError, match="does not exist"):
        open_source(tmp_path / "none.png")


def test_limit_and_close(tmp_path: Path) -> None:
    for i in range(20):
        media.make_image(tmp_path / f"{i}.png")
    assert [f.index for f in ImageSource(tmp_path, frames=3)] == [0, 1, 2]
    with pytest.raises(UsageError):
        ImageSource(tmp_path, frames=0)
    before = threading.active_count()
    source = ImageSource(tmp_path)
    frames = iter(source)
    next(frames)
    closer = threading.Thread(target=source.close)
    closer.start()
    closer.join(5)
    source.close()
    assert len(list(frames)) < 19
    assert threading.active_count() <= before + 2  # the pool's threads end by themselves


def test_choice_of_source(tmp_path: Path) -> None:
    assert isinstance(open_source(media.make_image(tmp_path / "still.png")), ImageSource)
    assert isinstance(open_source(tmp_path), ImageSource)
    assert isinstance(open_source(media.make_clip(tmp_path / "clip.mp4", 2)), VideoSource)
