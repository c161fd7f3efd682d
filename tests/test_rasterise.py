"""The rasterise pass against OpenCV: resize, letterbox, layouts, types, normalisation, orientation."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from support.rasterising import by_way, rasterise

from raven.errors import ModelError, UsageError
from raven.frame.format import PIXEL_FORMATS, Frame, FrameFormat
from raven.frame.geometry import place
from raven.frame.planes import PlaneSet
from raven.frame.rasterise import InputSpec, Rasteriser
from raven.frame.routes import choose_route
from raven.gpu import Buffer, Device
from raven.tensor import Tensor


def picture(width: int, height: int, seed: int = 0) -> np.ndarray:
    """Smooth colours with noise and hard edges, ``(height, width, 3)`` uint8 RGB."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (height, width, 3), np.uint8)
    y, x = np.mgrid[0:height, 0:width]
    ramp = np.stack([x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x + y) % 256], 2).astype(np.uint8)
    return np.where(((x // 9 + y // 7) % 2 == 0)[..., None], noise, ramp)


def rgb_format(width: int, height: int, **options) -> FrameFormat:
    return FrameFormat(PIXEL_FORMATS["rgb24"], width, height, **options)


def opencv(image: np.ndarray, spec: InputSpec, placement) -> np.ndarray:
    """Letterbox or stretch with OpenCV, ``(H, W, 3)`` float64 pixel values in RGB."""
    x, y, width, height = placement.content
    target = np.empty((spec.size[1], spec.size[0], 3), np.float64)
    target[:] = spec.rgb(spec.pad)
    target[y : y + height, x : x + width] = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    return target


SIZES = [(768, 576), (1919, 1080), (1, 200), (333, 1), (1, 1), (240, 427), (64, 48), (415, 417)]


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("resize", ["letterbox", "stretch"])
def test_against_opencv(device: Device, size: tuple[int, int], resize: str) -> None:
    image, spec = picture(*size), InputSpec((416, 288), pad=(114.0, 114.0, 114.0))
    placement = place(size, spec.size, resize)
    got = rasterise(device, rgb_format(*size), [image.reshape(size[1], -1)], spec, placement)
    assert np.abs(got.transpose(1, 2, 0) - opencv(image, spec, placement)).max() <= 1.5


@pytest.mark.parametrize("size", [(768, 576), (1919, 1080), (240, 427)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_crop_against_opencv(device: Device, size: tuple[int, int]) -> None:
    """OpenCV's warpAffine has the same crop as a sub-pixel rectangle; its 1/32 pixel grid costs a little."""
    image, spec = cv2.GaussianBlur(picture(*size), (0, 0), 3), InputSpec((300, 300))
    placement = place(size, spec.size, "crop")
    x, y, width, height = placement.crop
    sx, sy = width / 300, height / 300
    matrix = np.array([[sx, 0, x + sx / 2 - 0.5], [0, sy, y + sy / 2 - 0.5]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    expected = cv2.warpAffine(image, matrix, spec.size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    got = rasterise(device, rgb_format(*size), [image.reshape(size[1], -1)], spec, placement)
    assert np.abs(got.transpose(1, 2, 0) - expected.astype(np.float64)).max() <= 1.5


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int8", "int32"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("channels", ["rgb", "bgr"])
def test_types_layouts_and_channels(device: Device, dtype: str, layout: str, channels: str) -> None:
    mean, std, pad, scale = (10.0, 20.0, 30.0), (1.0, 2.0, 4.0), (0.0, 114.0, 255.0), 1.0
    spec = InputSpec((97, 64), layout, channels, np.dtype(dtype), mean, std, scale, pad)
    image = picture(200, 100)
    placement = place((200, 100), spec.size, "letterbox", "topleft")
    got = rasterise(device, rgb_format(200, 100), [image.reshape(100, -1)], spec, placement)
    got = got.transpose(1, 2, 0) if layout == "NCHW" else got
    expected = opencv(image, spec, placement)
    expected = expected if channels == "rgb" else expected[..., ::-1]
    expected = (expected / scale - mean) / std
    if dtype in ("uint8", "int8"):
        limits = np.iinfo(dtype)
        expected = np.clip(np.rint(expected), limits.min, limits.max)
    tolerance = 1.5 + (dtype not in ("float32", "float16"))
    assert np.abs(got.astype(np.float64) - expected).max() <= tolerance
    outside = placement.content[3]
    np.testing.assert_allclose(got[outside:].astype(np.float64), expected[outside:], atol=0.51)


def test_imagenet_normalisation_is_exact(device: Device) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    spec = InputSpec((64, 64), mean=mean, std=std, scale=255.0)
    image = picture(64, 64)
    got = rasterise(device, rgb_format(64, 64), [image.reshape(64, -1)], spec, place((64, 64), (64, 64)))
    expected = (image / 255.0 - mean) / std
    np.testing.assert_allclose(got.transpose(1, 2, 0), expected, atol=2e-6)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("mirror", [False, True])
def test_orientation_is_exact(device: Device, rotation: int, mirror: bool) -> None:
    stored = picture(53, 31)
    upright = np.rot90(stored[:, ::-1] if mirror else stored, -rotation // 90)
    format = rgb_format(53, 31, rotation=rotation, mirror=mirror)
    assert format.upright_size == (upright.shape[1], upright.shape[0])
    spec = InputSpec(format.upright_size, dtype=np.dtype(np.uint8))
    placement = place(format.upright_size, spec.size)
    got = rasterise(device, format, [stored.reshape(31, -1)], spec, placement)
    np.testing.assert_array_equal(got.transpose(1, 2, 0), upright)


def yuv_planes(format: FrameFormat) -> list[np.ndarray]:
    rng, pixel, planes = np.random.default_rng(3), format.pixel, []
    for index, components in enumerate(pixel.planes):
        width, height = pixel.plane_size(index, format.width, format.height)
        codes = rng.integers(0, 2**pixel.depth, (height, width * components), np.uint16)
        planes.append((codes << (6 if pixel.msb_aligned else 0)).astype(pixel.dtype))
    return planes


@pytest.mark.parametrize("name", ["nv12", "yuv420p", "p010le", "yuv422p"])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("mirror", [False, True])
def test_turned_yuv_is_the_upright_picture_turned(device: Device, name: str, rotation: int, mirror: bool) -> None:
    """Odd sizes: chroma planes reach beyond the picture, and must be turned about the luma's edges."""
    plain = FrameFormat(PIXEL_FORMATS[name], 53, 31)
    turned = FrameFormat(PIXEL_FORMATS[name], 53, 31, rotation=rotation, mirror=mirror)
    planes, own, other = yuv_planes(plain), plain.upright_size, turned.upright_size
    stored = rasterise(device, plain, planes, InputSpec(own), place(own, own)).transpose(1, 2, 0)
    got = rasterise(device, turned, planes, InputSpec(other), place(other, other)).transpose(1, 2, 0)
    np.testing.assert_array_equal(got, np.rot90(stored[:, ::-1] if mirror else stored, -rotation // 90))


@pytest.mark.parametrize(("rotation", "mirror"), [(90, False), (180, False), (180, True), (0, True), (270, True)])
def test_turned_and_letterboxed(device: Device, rotation: int, mirror: bool) -> None:
    stored = cv2.GaussianBlur(picture(160, 90), (0, 0), 1)
    upright = np.ascontiguousarray(np.rot90(stored[:, ::-1] if mirror else stored, -rotation // 90))
    format, spec = rgb_format(160, 90, rotation=rotation, mirror=mirror), InputSpec((96, 64), pad=(1.0, 2.0, 3.0))
    placement = place(format.upright_size, spec.size)
    got = rasterise(device, format, [stored.reshape(90, -1)], spec, placement)
    assert np.abs(got.transpose(1, 2, 0) - opencv(upright, spec, placement)).max() <= 1.5


@pytest.mark.parametrize("name", ["bgr24", "rgba", "bgra", "gray"])
def test_packed_orders(device: Device, name: str) -> None:
    image = picture(40, 20)
    stored = {
        "bgr24": image[..., ::-1],
        "rgba": np.dstack([image, np.full((20, 40), 9, np.uint8)]),
        "bgra": np.dstack([image[..., ::-1], np.full((20, 40), 9, np.uint8)]),
        "gray": image[..., :1],
    }[name]
    spec = InputSpec((40, 20), dtype=np.dtype(np.uint8))
    format = FrameFormat(PIXEL_FORMATS[name], 40, 20)
    got = rasterise(device, format, [stored.reshape(20, -1)], spec, place((40, 20), (40, 20)))
    np.testing.assert_array_equal(got.transpose(1, 2, 0), image if name != "gray" else np.repeat(image[..., :1], 3, 2))


def test_a_photograph_wider_than_an_image(device: Device) -> None:
    image = picture(5473, 4)
    spec = InputSpec((5473, 4), dtype=np.dtype(np.uint8))
    got = rasterise(device, rgb_format(5473, 4), [image.reshape(4, -1)], spec, place(spec.size, spec.size))
    np.testing.assert_array_equal(got.transpose(1, 2, 0), image)


@pytest.mark.parametrize("target", [(128, 96), (126, 95), (2000, 40), (16, 16)], ids=str)
@pytest.mark.parametrize("name", ["yuv420p", "nv12", "p010le", "yuv444p10le", "rgb24", "bgra", "gray"])
def test_all_ways_agree(device: Device, name: str, target: tuple[int, int]) -> None:
    """By compute and raster, pixel by pixel and by strips; :func:`rasterise` compares them."""
    format = FrameFormat(PIXEL_FORMATS[name], 211, 97, mirror=True, rotation=180)
    planes = yuv_planes(format)
    for resize in ("letterbox", "crop"):
        got = rasterise(
            device, format, planes, InputSpec(target, pad=(9.0, 9.0, 9.0)), place((211, 97), target, resize)
        )
        assert np.ptp(got) > 20


@pytest.mark.parametrize("by_strips", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_half_floats_are_the_nearest(device: Device, layout: str, by_strips: bool) -> None:
    image, placement = picture(90, 70), place((90, 70), (64, 64))
    single, half = (
        by_way(
            device,
            rgb_format(90, 70),
            [image.reshape(70, -1)],
            InputSpec((64, 64), layout, dtype=np.dtype(dtype), mean=(100.0, 110.0, 120.0), std=(57.0, 58.0, 59.0)),
            placement,
            "compute",
            by_strips,
        )
        for dtype in ("float32", "float16")
    )
    np.testing.assert_array_equal(half, single.astype(np.float16))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_integers_are_rounded_half_to_even_and_clamped(device: Device, dtype: str) -> None:
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    spec = InputSpec((16, 16), dtype=np.dtype(dtype), mean=(100.0, 0.5, -3.0), std=(2.0, 1.0, 0.25))
    format = FrameFormat(PIXEL_FORMATS["gray"], 16, 16)
    got = rasterise(device, format, [values], spec, place((16, 16), (16, 16))).transpose(1, 2, 0)
    exact = np.rint((values[..., None] - np.array(spec.mean)) / spec.std)
    limits = np.iinfo(dtype)
    np.testing.assert_array_equal(got, np.clip(exact, limits.min, limits.max).astype(dtype))


def test_int32_does_not_wrap(device: Device) -> None:
    values = np.array([[0, 1, 128, 255]], np.uint8)
    spec = InputSpec((4, 1), dtype=np.dtype(np.int32), mean=(128.0,) * 3, std=(1e-9, 1e-9, -1e-9))
    format = FrameFormat(PIXEL_FORMATS["gray"], 4, 1)
    got = rasterise(device, format, [values], spec, place((4, 1), (4, 1))).astype(np.int64)
    assert (got[0, 0, [0, 1]] == -(2**31)).all() and got[0, 0, 3] > 2**31 - 200
    assert (got[2, 0, [0, 1]] > 2**31 - 200).all() and got[2, 0, 3] == -(2**31)


@pytest.mark.parametrize("by_strips", [False, True])
def test_a_picture_of_a_batch_leaves_the_others_alone(device: Device, by_strips: bool) -> None:
    image, format, size = picture(64, 48), rgb_format(64, 48), (32, 32)
    tensor, planes = Tensor(device, (3, 3, 32, 32)), PlaneSet(device, format)
    staging, rasteriser = (
        Buffer(device, planes.nbytes, "upload"),
        Rasteriser(device, InputSpec(size), "compute", by_strips),
    )
    bound = rasteriser.bind(planes, place((64, 48), size), tensor, 1)
    try:
        tensor.write(np.full(tensor.shape, -5, np.float32))
        planes.copy_in(Frame(0, 0, format, [image.reshape(48, -1)]), staging.array())
        device.immediate(lambda rec: planes.record_upload(rec, staging))
        device.immediate(bound.record)
        first, second, third = tensor.read()
        assert (first == -5).all() and (third == -5).all() and second.min() >= 0 and np.ptp(second) > 100
    finally:
        for item in (bound, rasteriser, staging, planes, tensor):
            item.destroy()


def test_automatic_route_is_the_faster_of_what_was_measured(device: Device) -> None:
    spec, format = InputSpec((64, 64)), rgb_format(64, 64)
    route, timings = choose_route(device, spec, format, place((64, 64), (64, 64)))
    assert set(timings) == {"rasterise_raster_us", "rasterise_compute_us"}
    assert timings[f"rasterise_{route}_us"] == min(timings.values()) > 0
    assert choose_route(device, spec, format, place((64, 64), (64, 64)), "raster") == ("raster", {})
    with pytest.raises(UsageError, match="no route 'mesh': choose auto, raster or compute"):
        choose_route(device, spec, format, place((64, 64), (64, 64)), "mesh")


def test_a_type_that_cannot_be_drawn_is_named() -> None:
    with pytest.raises(ModelError, match="input is float64; pictures can be float32"):
        InputSpec((8, 8), dtype=np.dtype(np.float64)).constants()
