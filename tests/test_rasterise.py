"""The rasterise pass against OpenCV: resize, letterbox, layouts, types, normalisation, orientation."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from raven.errors import ModelError
from raven.frame.format import PIXEL_FORMATS, FrameFormat
from raven.frame.geometry import place
from raven.frame.rasterise import InputSpec
from raven.frame.routes import choose_route
from raven.gpu import Device
from tests.support.rasterising import rasterise


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


def test_automatic_route_is_the_faster_of_what_was_measured(device: Device) -> None:
    spec, format = InputSpec((64, 64)), rgb_format(64, 64)
    route, timings = choose_route(device, spec, format, place((64, 64), (64, 64)))
    assert set(timings) == {"rasterise_raster_us", "rasterise_compute_us"}
    assert timings[f"rasterise_{route}_us"] == min(timings.values()) > 0
    assert choose_route(device, spec, format, place((64, 64), (64, 64)), "raster") == ("raster", {})


def test_a_type_that_cannot_be_drawn_is_named() -> None:
    with pytest.raises(ModelError, match="input is float64; pictures can be float32"):
        InputSpec((8, 8), dtype=np.dtype(np.float64)).constants()
