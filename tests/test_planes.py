"""Planes on the GPU: every byte of a frame arrives, whatever its rows look like on the host."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raven.errors import DeviceError
from raven.frame.colour import fold
from raven.frame.format import PIXEL_FORMATS, Frame, FrameFormat
from raven.frame.planes import PlaneSet
from raven.gpu import Buffer, Device, Image


def random_planes(format: FrameFormat, padding: int) -> list[np.ndarray]:
    """Planes whose rows are ``padding`` samples longer than they need to be, as decoders have them."""
    rng, pixel, planes = np.random.default_rng(5), format.pixel, []
    for index, components in enumerate(pixel.planes):
        width, height = pixel.plane_size(index, format.width, format.height)
        shape = (height, width * components + padding)
        planes.append(rng.integers(0, 2**pixel.bits, shape, pixel.dtype)[:, : width * components])
    return planes


def read_image(device: Device, image: Image) -> np.ndarray:
    """The image's bytes, a row a row."""
    size = {"R8_UNORM": 1, "R8G8_UNORM": 2, "R16_UNORM": 2, "R16G16_UNORM": 4, "R32G32_UINT": 8}[image.format]
    out = Buffer(device, image.width * image.height * size, "readback")
    try:
        device.immediate(lambda rec: rec.copy_image_to_buffer(image, out))
        return out.read().reshape(image.height, -1)
    finally:
        out.destroy()


def upload(device: Device, planes: PlaneSet, frame: Frame) -> None:
    staging = Buffer(device, 256 + planes.nbytes, "upload")
    try:
        planes.copy_in(frame, staging.array()[256:])
        device.immediate(lambda rec: planes.record_upload(rec, staging, 256))
    finally:
        staging.destroy()


@pytest.mark.parametrize("name", sorted(PIXEL_FORMATS))
@pytest.mark.parametrize("size", [(64, 48), (101, 67), (1, 1)], ids=str)
@pytest.mark.parametrize("padding", [0, 13])
def test_every_byte_arrives(device: Device, name: str, size: tuple[int, int], padding: int) -> None:
    format = FrameFormat(PIXEL_FORMATS[name], *size)
    given, planes = random_planes(format, padding), PlaneSet(device, format)
    try:
        upload(device, planes, Frame(0, 0, format, given))
        for plane, image in zip(given, planes.images, strict=True):
            np.testing.assert_array_equal(read_image(device, image), np.ascontiguousarray(plane).view(np.uint8))
        assert len(planes.words) == (len(given) if device.physical.type == "cpu" else 0)
        for plane, image in zip(given, planes.words, strict=False):
            raw = np.ascontiguousarray(plane).view(np.uint8)
            np.testing.assert_array_equal(read_image(device, image)[:, : raw.shape[1]], raw)
    finally:
        planes.destroy()


@pytest.mark.parametrize(("name", "width"), [("rgb24", 5473), ("rgba", 8200), ("gray", 16384)])
def test_rows_longer_than_an_image_are_folded(device: Device, name: str, width: int) -> None:
    format = FrameFormat(PIXEL_FORMATS[name], width, 3)
    given, planes = random_planes(format, 0), PlaneSet(device, format)
    columns, pieces = fold(format)
    try:
        upload(device, planes, Frame(0, 0, format, given))
        rows = read_image(device, planes.images[0]).reshape(3, columns * pieces)
        np.testing.assert_array_equal(rows[:, : given[0].shape[1]], given[0])
        assert (pieces > 1) == (width * format.pixel.planes[0] > 16384)
    finally:
        planes.destroy()


@settings(max_examples=300)
@given(width=st.integers(1, 40000), name=st.sampled_from(["rgb24", "rgba", "gray"]))
def test_folded_rows_fit(width: int, name: str) -> None:
    format = FrameFormat(PIXEL_FORMATS[name], width, 1)
    columns, pieces = fold(format)
    samples = width * format.pixel.planes[0]
    assert columns <= 16384 and columns * (pieces - 1) < samples <= columns * pieces


def test_nothing_is_left_when_images_do_not_fit(device: Device) -> None:
    before = +device.counts
    with pytest.raises(DeviceError, match="pixels: this device takes 1 to"):
        PlaneSet(device, FrameFormat(PIXEL_FORMATS["yuv420p"], 8, 200_000))
    assert +device.counts == before
