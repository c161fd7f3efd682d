"""Output pictures: bit-exact where nothing is drawn, blended as NumPy says, converted as swscale does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import av
import numpy as np
import pytest
from av.filter import Graph
from support.drawing import bound_overlay, dirty_tiles, forbid_reading, read_layer, rows_of
from support.pictures import check_picture

from raven.draw.compose import BoundCompose, Compose
from raven.draw.overlay import BoundOverlay
from raven.draw.regrid import Taps, output_site, rgb_to_yuv
from raven.errors import UsageError
from raven.frame.colour import upright_to_stored
from raven.frame.format import PIXEL_FORMATS, Frame, FrameFormat
from raven.frame.planes import PlaneSet
from raven.gpu import Buffer, CommandPool, Device, Recorder, Submission, Timeline

EMPTY = rows_of((0, 0, 1, 1, 0))[:0]
BOXES = rows_of((10, 30, 60, 60, 0), (20, 8, 90.5, 47.25, 2, 0.5), (-5, 50, 400, 400, 1, 0.07, 3))


def form(name: str, width: int, height: int, **tags: Any) -> FrameFormat:
    return FrameFormat(PIXEL_FORMATS[name], width, height, **tags)


def random_planes(format: FrameFormat, seed: int = 1) -> list[np.ndarray]:
    """Any code that the format can hold."""
    generator, pixel, planes = np.random.default_rng(seed), format.pixel, []
    for index, components in enumerate(pixel.planes):
        width, height = pixel.plane_size(index, format.width, format.height)
        codes = generator.integers(0, 2**pixel.depth, (height, width * components), dtype=np.uint16)
        planes.append((codes << (pixel.bits - pixel.depth) if pixel.msb_aligned else codes).astype(pixel.dtype))
    return planes


@contextmanager
def composed(
    device: Device, format: FrameFormat, planes: list[np.ndarray], wants: set[str], overlay: BoundOverlay | None = None
) -> Iterator[tuple[Compose, BoundCompose]]:
    """A frame on the GPU and the passes bound to it."""
    plane_set, compose = PlaneSet(device, format), Compose(device, wants, format)
    staging, bound = Buffer(device, plane_set.nbytes, "upload"), compose.bind(plane_set, overlay)
    try:
        plane_set.copy_in(Frame(0, 0, format, planes), staging.array())
        device.immediate(lambda rec: plane_set.record_upload(rec, staging))
        yield compose, bound
    finally:
        for item in (bound, compose, staging, plane_set):
            item.destroy()


def record_all(rec: Recorder, bound: BoundCompose, overlay: BoundOverlay | None) -> None:
    rec.barrier("all", "all")
    if overlay is not None:
        overlay.record(rec)
        rec.barrier("target compute", "compute transfer indirect")
    bound.record(rec)
    rec.barrier("all", "host all")


def run(device: Device, bound: BoundCompose, overlay: BoundOverlay | None = None) -> None:
    device.immediate(lambda rec: record_all(rec, bound, overlay))


def picture(
    device: Device, format: FrameFormat, planes: list[np.ndarray], rows: np.ndarray | None = None
) -> np.ndarray:
    """The NV12 picture, padding included."""
    size = format.upright_size
    with nullcontext((None, None)) if rows is None else bound_overlay(device, rows, size) as (_, overlay):  # noqa: SIM117
        with composed(device, format, planes, {"nv12"}, overlay) as (_, bound):
            run(device, bound, overlay)
            assert bound.nv12_array is not None
            return bound.nv12_array.copy()


def split(nv12: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Luma and chroma ``(h, w, 2)`` of even size."""
    width, height = (n + n % 2 for n in size)
    assert nv12.shape[0] == height * 3 // 2
    assert nv12.shape[1] % 64 == 0
    return nv12[:height, :width], nv12[height:, :width].reshape(height // 2, width // 2, 2)


def plane_420(planes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Luma (last row and column repeated to even size) and chroma of 4:2:0 planes, as stored."""
    luma = np.pad(planes[0], [(0, n % 2) for n in planes[0].shape], mode="edge")
    if len(planes) == 3:
        return luma, np.stack(planes[1:], axis=-1)
    return luma, planes[1].reshape(planes[1].shape[0], -1, 2)


# -- nothing drawn: the source's own samples -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["yuv420p", "nv12"])
@pytest.mark.parametrize(
    "size", [(768, 576), (64, 2), (130, 98), (101, 67), (100, 67), (101, 66), (1, 1), (3, 1)], ids=str
)
def test_untouched_frames_are_bit_exact(device: Device, name: str, size: tuple[int, int]) -> None:
    format = form(name, *size)
    planes = random_planes(format)
    for rows in (None, EMPTY):
        luma, chroma = split(picture(device, format, planes, rows), size)
        expected = plane_420(planes)
        np.testing.assert_array_equal(luma, expected[0])
        np.testing.assert_array_equal(chroma, expected[1])


@pytest.mark.parametrize("name", ["yuv420p10le", "p010le"])
@pytest.mark.parametrize("full", [False, True], ids=["limited", "full"])
def test_ten_bits_are_rounded(device: Device, name: str, full: bool) -> None:
    format = form(name, 101, 66, full_range=full)
    planes = random_planes(format)
    luma, chroma = split(picture(device, format, planes), (101, 66))
    for mine, codes, middle in zip((luma, chroma), plane_420(planes), (0, 1), strict=True):
        whole = (codes >> 6 if name == "p010le" else codes).astype(np.int64)
        if full:
            exact = (whole - 512 * middle) * 255 / 1023 + 128 * middle
            assert np.abs(mine - np.clip(exact, 0, 255)).max() <= 0.501
        else:
            np.testing.assert_array_equal(mine, np.minimum((whole + 2) >> 2, 255))


# -- turned, mirrored, other subsampling -------------------------------------------------------------------------------


def turned(plane: np.ndarray, rotation: int, mirror: bool) -> np.ndarray:
    return np.rot90(plane[:, ::-1] if mirror else plane, -rotation // 90)


def sloped(format: FrameFormat, upright: np.ndarray) -> float | np.ndarray:
    """A chroma that changes linearly over the upright picture, ``(..., 2)`` points to 8-bit values."""
    return 60 + upright @ np.array([0.9, 0.55])


def sloped_planes(format: FrameFormat) -> list[np.ndarray]:
    """Random luma; chroma sampled from :func:`sloped` at the very points where the format's samples lie."""
    pixel, planes = format.pixel, random_planes(format)
    width, height = pixel.plane_size(1, format.width, format.height)
    y, x = np.mgrid[:height, :width].astype(float)
    left = pixel.sub_x == 1 or format.chroma_site != "center"
    top = pixel.sub_y == 1 or format.chroma_site == "topleft"
    stored = np.stack([pixel.sub_x * x + (0.5 if left else 1.0), pixel.sub_y * y + (0.5 if top else 1.0)], axis=-1)
    inverse = np.linalg.inv(np.vstack([upright_to_stored(format), [0, 0, 1]]))
    points = stored @ inverse[:2, :2].T + inverse[:2, 2]
    codes = np.round(np.asarray(sloped(format, points)) * 2 ** (pixel.depth - 8)).astype(pixel.dtype)
    for index in range(1, len(planes)):
        planes[index] = np.repeat(codes, pixel.planes[index], axis=1)
    return planes


CASES = [
    (name, rotation, mirror, site)
    for name in ("yuv420p", "nv12", "yuv422p", "yuv444p", "yuv420p10le")
    for rotation in (0, 90, 180, 270)
    for mirror in (False, True)
    for site in (("left", "center", "topleft") if name == "yuv420p" else ("left",))
]


@pytest.mark.parametrize(("name", "rotation", "mirror", "site"), CASES)
def test_turned_pictures(device: Device, name: str, rotation: int, mirror: bool, site: str) -> None:
    """Luma is moved exactly; chroma is what a linear slope has at the output's own sites."""
    format = form(name, 46, 34, rotation=rotation, mirror=mirror, chroma_site=site)
    planes = sloped_planes(format)
    luma, chroma = split(picture(device, format, planes), format.upright_size)
    whole = planes[0] if format.pixel.depth == 8 else np.minimum((planes[0].astype(int) + 2) >> 2, 255)
    np.testing.assert_array_equal(luma, turned(whole, rotation, mirror))
    y, x = np.mgrid[: chroma.shape[0], : chroma.shape[1]].astype(float)
    points = np.stack([2 * x, 2 * y], axis=-1) + output_site(format)
    difference = np.abs(chroma - np.asarray(sloped(format, points))[..., None])
    assert difference[1:-1, 1:-1].max() <= 1.01
    assert difference.max() <= 2.0, "the border repeats its samples"


def test_taps() -> None:
    assert Taps.at(3, shrink=False) == Taps(3, (1.0,))
    assert Taps.at(3.5, shrink=False) == Taps(3, (0.5, 0.5))
    assert Taps.at(3, shrink=True) == Taps(2, (0.25, 0.5, 0.25))
    assert Taps.at(3.5, shrink=True) == Taps(3, (0.5, 0.5))


# -- by way of RGB -----------------------------------------------------------------------------------------------------


def swscale(planes: np.ndarray, name: str, target: str, options: str) -> np.ndarray:
    """A packed picture through FFmpeg's scale filter."""
    frame, graph = av.VideoFrame.from_ndarray(planes, format=name), Graph()
    source = graph.add_buffer(template=None, width=frame.width, height=frame.height, format=frame.format, time_base=1)
    scale = graph.add("scale", f"flags=accurate_rnd+full_chroma_int+full_chroma_inp+bilinear:{options}")
    last, sink = graph.add("format", f"pix_fmts={target}"), graph.add("buffersink")
    for one, other in ((source, scale), (scale, last), (last, sink)):
        one.link_to(other)
    graph.configure()
    graph.push(frame)
    return graph.pull().to_ndarray()


def smooth_rgb(width: int, height: int, channels: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    waves = [128 + 120 * np.sin(x / 23), 128 + 120 * np.cos(y / 19), 128 + 120 * np.sin((x + y) / 29), 255 + 0 * x]
    return np.stack(waves[:channels], axis=-1).astype(np.uint8)


@pytest.mark.parametrize(("name", "height"), [("rgb24", 96), ("bgr24", 96), ("rgba", 720), ("bgra", 96), ("gray", 96)])
def test_packed_pictures_become_nv12_as_swscale_makes_them(device: Device, name: str, height: int) -> None:
    width, channels = 160, PIXEL_FORMATS[name].planes[0]
    pixels = smooth_rgb(width, height, channels)
    matrix = "bt709" if height >= 720 else "bt601"
    options = f"out_color_matrix={matrix}:out_range=limited:in_range=full:out_h_chr_pos=0:out_v_chr_pos=128"
    source = pixels if name != "gray" else np.repeat(pixels, 3, axis=2)
    expected = swscale(source, name if name != "gray" else "rgb24", "nv12", options)
    mine = picture(device, form(name, width, height), [pixels.reshape(height, -1)])
    for one, other in zip(
        split(mine, (width, height)), split(np.pad(expected, ((0, 0), (0, 32))), (width, height)), strict=True
    ):
        assert np.abs(one.astype(int) - other).max() <= 2


def test_packed_pictures_of_odd_size_repeat_the_edge(device: Device) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (33, 51, 3), dtype=np.uint8)
    luma, chroma = split(picture(device, form("rgb24", 51, 33), [pixels.reshape(33, -1)]), (51, 33))
    padded = np.pad(pixels, ((0, 1), (1, 1), (0, 0)), mode="edge").astype(float) / 255
    matrix = rgb_to_yuv("bt601", False)
    yuv = padded @ matrix[:, :3].T + matrix[:, 3]
    np.testing.assert_allclose(luma, yuv[:, 1:, 0], atol=0.51)
    rows = (yuv[0::2] + yuv[1::2])[..., 1:] / 8
    np.testing.assert_allclose(chroma, rows[:, 0:-1:2] + 2 * rows[:, 1::2] + rows[:, 2::2], atol=0.51)


def test_colour_tags_of_packed_pictures(device: Device) -> None:
    cases = {("rgb24", 576): 6, ("bgra", 720): 1, ("gray", 4): 6}
    for (name, height), space in cases.items():
        compose = Compose(device, {"nv12"}, form(name, 16, height))
        compose.destroy()
        assert compose.output_color == {"color_primaries": 1, "color_trc": 13, "colorspace": space, "color_range": 1}
    compose = Compose(device, {"nv12"}, form("nv12", 16, 1080, matrix="bt2020"))
    compose.destroy()
    assert compose.output_color == {}
    assert compose.matrix == "bt2020"


@pytest.mark.parametrize("name", ["yuv420p", "nv12", "yuv444p", "yuv420p10le", "rgb24", "bgra", "gray"])
def test_rgba_is_upright(device: Device, name: str) -> None:
    """Smooth frames against swscale; turned and mirrored, the same picture turned."""
    width, height = 64, 48
    base = smooth_rgb(width, height, 3)
    packed = {
        "gray": base[..., :1],
        "rgb24": base,
        "bgra": np.dstack([base[..., ::-1], np.full((height, width), 9, np.uint8)]),
    }
    planes = [packed[name].reshape(height, -1)] if name in packed else _planes_of(base, name)
    expected = np.repeat(packed["gray"], 3, axis=2) if name == "gray" else base
    for rotation, mirror in ((0, False), (90, False), (270, True)):
        format = form(name, width, height, rotation=rotation, mirror=mirror)
        with composed(device, format, planes, {"rgba"}) as (_, bound):
            run(device, bound)
            assert bound.rgba_array is not None
            assert bound.nv12_array is None
            mine = bound.rgba_array.copy()
        assert (mine[..., 3] == 255).all()
        difference = np.abs(mine[..., :3].astype(int) - turned(expected, rotation, mirror)).max()
        assert difference <= (0 if not format.pixel.yuv else 3)


def _planes_of(base: np.ndarray, name: str) -> list[np.ndarray]:
    """A picture's planes in a YUV format by swscale."""
    options = "out_color_matrix=bt601:out_range=limited:in_range=full:out_h_chr_pos=0:out_v_chr_pos=128"
    if PIXEL_FORMATS[name].sub_x == 1:
        options = "out_color_matrix=bt601:out_range=limited:in_range=full"
    frame = swscale(base, "rgb24", name, options)
    height, width = base.shape[:2]
    flat = frame.reshape(-1)
    planes, at = [], 0
    for index, components in enumerate(PIXEL_FORMATS[name].planes):
        columns, rows = PIXEL_FORMATS[name].plane_size(index, width, height)
        planes.append(flat[at : at + rows * columns * components].reshape(rows, -1))
        at += planes[-1].size
    return planes


# -- drawn on ----------------------------------------------------------------------------------------------------------


def blended(nv12: np.ndarray, layer: np.ndarray, format: FrameFormat) -> tuple[np.ndarray, np.ndarray]:
    """NumPy's blend of a layer over an untouched NV12 picture, as floats."""
    size = format.upright_size
    luma, chroma = split(nv12, size)
    matrix = rgb_to_yuv(format.matrix, format.full_range)
    over = np.pad(layer.astype(float) / 255, ((0, size[1] % 2), (0, size[0] % 2), (0, 0)), mode="edge")
    small = over.reshape(luma.shape[0] // 2, 2, luma.shape[1] // 2, 2, 4).mean(axis=(1, 3))
    new_luma = luma * (1 - over[..., 3]) + over @ matrix[0]
    return new_luma, chroma * (1 - small[..., 3:]) + small @ matrix[1:].T


DRAWN = [
    form("yuv420p", 112, 80),
    form("nv12", 112, 80, matrix="bt709", full_range=True),
    form("yuv420p", 111, 79, matrix="bt2020"),
    form("yuv420p10le", 112, 80),
    form("yuv444p", 80, 112, rotation=90, mirror=True),
]


@pytest.mark.parametrize("format", DRAWN, ids=lambda f: f"{f.pixel.name}-{f.width}-{f.rotation}")
def test_blend_matches_numpy_and_leaves_the_rest_alone(device: Device, format: FrameFormat) -> None:
    planes, size = random_planes(format), format.upright_size
    untouched = picture(device, format, planes)
    with (
        bound_overlay(device, BOXES, size) as (_, overlay),
        composed(device, format, planes, {"nv12"}, overlay) as (_, bound),
    ):
        device.immediate(overlay.record)
        layer = read_layer(device, overlay)
        assert dirty_tiles(overlay).any()
        device.immediate(bound.record)
        first = bound.nv12_array.copy()  # type: ignore[union-attr]
        assert not read_layer(device, overlay).any(), "the layer is empty again"
        assert not overlay.tiles.read(64 + 4 * overlay.surface.count).any(), "no flag is left"
        for _ in range(2):
            run(device, bound, overlay)
            np.testing.assert_array_equal(bound.nv12_array, first)
    luma, chroma = split(first, size)
    expected = blended(untouched, layer, format)
    np.testing.assert_allclose(luma, np.clip(expected[0], 0, 255), atol=0.52)
    np.testing.assert_allclose(chroma, np.clip(expected[1], 0, 255), atol=0.52)
    bare = np.pad(layer[..., 3] == 0, ((0, size[1] % 2), (0, size[0] % 2)), mode="edge")
    np.testing.assert_array_equal(luma[bare], split(untouched, size)[0][bare])
    assert 0.2 < bare.mean() < 0.95


def test_picture_follows_the_gpus_count(device: Device) -> None:
    """One recording of drawing and composing; a GPU command changes the count before each submission of it."""
    format, counts, queue = form("yuv420p", 112, 80), [2, 0, 3, 1], device.graphics[0]
    planes = random_planes(format)
    expected = [picture(device, format, planes, BOXES[:count]) for count in counts]
    pool, timeline, table = CommandPool(device, queue.family), Timeline(device), Buffer(device, 4 * len(counts))
    table.write(np.array(counts, np.uint32))
    with (
        bound_overlay(device, BOXES, (112, 80), capacity=3) as (detections, overlay),
        composed(device, format, planes, {"nv12"}, overlay) as (_, bound),
        pytest.MonkeyPatch.context() as patch,
    ):
        forbid_reading(patch)
        rec = pool.recorder()
        record_all(rec, bound, overlay)
        drawing = Submission(queue, rec.end(), [timeline], [timeline])
        for turn, one in enumerate(expected):
            rec = pool.recorder()
            rec.copy_buffer(table, detections.buffer, 4, 4 * turn, 4)
            Submission(queue, rec.end(), [timeline], [timeline]).submit((2 * turn,), (2 * turn + 1,))
            drawing.submit((2 * turn + 1,), (2 * turn + 2,))
            assert timeline.wait(2 * turn + 2, 20)
            np.testing.assert_array_equal(bound.nv12_array[:, :112], one[:, :112])
    device.wait_idle()  # the driver may still be busy with a semaphore whose value is there already
    for item in (pool, timeline, table):
        item.destroy()


def test_both_pictures_at_once(device: Device) -> None:
    format = form("yuv420p", 112, 80)
    planes = random_planes(format)
    alone = picture(device, format, planes, BOXES)
    with (
        bound_overlay(device, BOXES, (112, 80)) as (_, overlay),
        composed(device, format, planes, {"nv12", "rgba"}, overlay) as (_, bound),
        composed(device, format, planes, {"rgba"}) as (_, plain),
    ):
        run(device, plain)
        device.immediate(overlay.record)
        layer = read_layer(device, overlay).astype(float)
        device.immediate(bound.record)
        np.testing.assert_array_equal(bound.nv12_array[:, :112], alone[:, :112])
        expected = plain.rgba_array * (1 - layer[..., 3:] / 255) + layer
        np.testing.assert_allclose(bound.rgba_array, expected, atol=0.52)
        assert bound.nbytes == 128 * 120 + 112 * 80 * 4


def test_picture_drawn_on_video(device: Device) -> None:
    """The NV12 picture as a player shows it."""
    width, height = 320, 240
    base = smooth_rgb(width, height, 3) // 2 + 60
    planes = _planes_of(base, "yuv420p")
    rows = rows_of((20, 40, 150, 200, 0), (170.5, 60.25, 300.5, 220.75, 2, 0.5, 4), (120, 5, 230, 90, 5, 1.0))
    mine = picture(device, form("yuv420p", width, height), planes, rows)[:, :width]
    shown = av.VideoFrame.from_ndarray(np.ascontiguousarray(mine), format="nv12").to_ndarray(format="rgb24")
    check_picture("compose_video", shown)


def test_unknown_picture_is_refused(device: Device) -> None:
    with pytest.raises(UsageError, match="no output picture p010; there are nv12 and rgba"):
        Compose(device, {"p010"}, form("nv12", 16, 16))
