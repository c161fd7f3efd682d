"""Colour conversion against FFmpeg's swscale, asked for accurate rounding and full chroma interpolation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from av.filter import Graph
from support.rasterising import rasterise

from raven.frame.colour import yuv_to_rgb
from raven.frame.format import PIXEL_FORMATS, FrameFormat
from raven.frame.geometry import place
from raven.frame.rasterise import InputSpec
from raven.gpu import Device

SHARED = Path(os.environ.get("RAVEN_SHARED", Path(__file__).parents[2] / "shared"))
SPACES = ["bt601", "bt709", "bt2020"]
FORMATS = ["nv12", "yuv420p", "p010le", "yuv422p", "yuv444p", "yuv420p10le", "yuv422p10le", "yuv444p10le"]
#: swscale's chroma positions, in 256ths of a luma sample.
SITES = {"left": (0, 128), "center": (128, 128), "topleft": (0, 0)}
#: EBU bars at 75 %: the BT.601 codes that the standard prints, and what they show.
BARS = {
    (180, 128, 128): (191, 191, 191),
    (162, 44, 142): (191, 191, 0),
    (131, 156, 44): (0, 191, 191),
    (112, 72, 58): (0, 191, 0),
    (84, 184, 198): (191, 0, 191),
    (65, 100, 212): (191, 0, 0),
    (35, 212, 114): (0, 0, 191),
    (16, 128, 128): (0, 0, 0),
}


def chart(name: str, width: int, height: int, full: bool) -> av.VideoFrame:
    """Ramps, patches and edges, kept inside the legal range so that clipping does not hide an error."""
    pixel = PIXEL_FORMATS[name]
    unit = 2 ** (pixel.depth - 8)
    frame = av.VideoFrame(width, height, name)
    for index, components in enumerate(pixel.planes):
        plane_width, plane_height = pixel.plane_size(index, width, height)
        y, x = np.mgrid[0:plane_height, 0:plane_width]
        for component in range(components):
            chroma = index + component
            wave = [x * 3 + y * 2, 120 * np.sin(x / 9) + 120 + y / 7, 120 * np.cos(y / 11) + 120 + x / 5][chroma]
            low, high = (0, 255) if full else (16, 240 if chroma else 235)
            value = (low + np.asarray(wave) % (high - low)) if chroma == 0 else np.clip(wave, low, high)
            value = np.floor(value * unit).astype(np.uint16) << (6 if pixel.msb_aligned else 0)
            _samples(frame, index, pixel)[:, component::components] = value
    return frame


def _samples(frame: av.VideoFrame, plane: int, pixel) -> np.ndarray:
    """A writable view of a plane, without the padding of its rows."""
    width, height = pixel.plane_size(plane, frame.width, frame.height)
    data = np.frombuffer(frame.planes[plane], pixel.dtype).reshape(height, -1)
    return data[:, : width * pixel.planes[plane]]


def swscale(frame: av.VideoFrame, matrix: str, full: bool, site: str = "left") -> np.ndarray:
    """RGB of a frame by swscale, ``(H, W, 3)`` float64 in 0 to 255."""
    graph, pixel, (across, down) = Graph(), PIXEL_FORMATS[frame.format.name], SITES[site]
    flags = "accurate_rnd+full_chroma_int+full_chroma_inp+bilinear"
    arguments = (
        f"flags={flags}:in_color_matrix={matrix}:in_range={'full' if full else 'limited'}:out_range=full"
        # A position where chroma is not subsampled would shift it.
        + (f":in_h_chr_pos={across}" if pixel.sub_x == 2 else "")
        + (f":in_v_chr_pos={down}" if pixel.sub_y == 2 else "")
    )
    source = graph.add_buffer(template=None, width=frame.width, height=frame.height, format=frame.format, time_base=1)
    scale = graph.add("scale", arguments)
    form = graph.add("format", "pix_fmts=rgb24")
    sink = graph.add("buffersink")
    for one, other in ((source, scale), (scale, form), (form, sink)):
        one.link_to(other)
    graph.configure()
    graph.push(frame)
    return graph.pull().to_ndarray().astype(np.float64)


def raven(device: Device, frame: av.VideoFrame, format: FrameFormat) -> np.ndarray:
    planes = [_samples(frame, index, format.pixel) for index in range(len(format.pixel.planes))]
    size = (frame.width, frame.height)
    return rasterise(device, format, planes, InputSpec(size), place(size, size)).transpose(1, 2, 0).astype(np.float64)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("matrix", SPACES)
@pytest.mark.parametrize("full", [False, True], ids=["limited", "full"])
def test_charts_against_swscale(device: Device, name: str, matrix: str, full: bool) -> None:
    frame = chart(name, 160, 90, full)
    format = FrameFormat(PIXEL_FORMATS[name], 160, 90, matrix=matrix, full_range=full)
    difference = np.abs(raven(device, frame, format) - swscale(frame, matrix, full))
    assert difference.max() <= 2.0, (
        f"{difference.max():.2f} at {np.unravel_index(difference.argmax(), difference.shape)}"
    )


@pytest.mark.parametrize("site", sorted(SITES))
@pytest.mark.parametrize("name", ["yuv420p", "nv12", "p010le"])
def test_chroma_sites_against_swscale(device: Device, name: str, site: str) -> None:
    frame = chart(name, 160, 90, False)
    got = raven(device, frame, FrameFormat(PIXEL_FORMATS[name], 160, 90, chroma_site=site))
    difference = {other: np.abs(got - swscale(frame, "bt601", False, other)).max() for other in SITES}
    assert difference.pop(site) <= 2.0
    assert min(difference.values()) > 4.0, "the chart does not tell the sites apart"


@pytest.mark.parametrize("name", ["yuv420p", "nv12", "p010le", "yuv422p"])
def test_odd_sizes_against_swscale(device: Device, name: str) -> None:
    """Of an odd picture swscale stretches the chroma planes to fit; of the even one around it, it does not."""
    pixel, frame = PIXEL_FORMATS[name], chart(name, 152, 88, False)
    luma, *chroma = [_samples(frame, index, pixel) for index in range(len(pixel.planes))]
    rows = pixel.plane_size(1, 151, 87)[1]
    planes = [luma[:87, :151], *(plane[:rows] for plane in chroma)]
    got = rasterise(device, FrameFormat(pixel, 151, 87), planes, InputSpec((151, 87)), place((151, 87), (151, 87)))
    assert np.abs(got.transpose(1, 2, 0) - swscale(frame, "bt601", False)[:87, :151]).max() <= 2.0


def test_printed_colour_bars(device: Device) -> None:
    """What the standard prints holds for the oracle and for the pass, which share nothing else.

    The codes are rounded: half a code of chroma is up to 1.01 of blue, half a code of luma 0.58.
    """
    frame = av.VideoFrame(8 * len(BARS), 4, "yuv444p")
    for plane in range(3):
        _samples(frame, plane, PIXEL_FORMATS["yuv444p"])[:] = np.repeat([code[plane] for code in BARS], 8)
    expected = np.repeat(np.array(list(BARS.values()), np.float64), 8, axis=0)
    format = FrameFormat(PIXEL_FORMATS["yuv444p"], frame.width, 4)
    assert np.abs(swscale(frame, "bt601", False) - expected).max() <= 2.0
    assert np.abs(raven(device, frame, format) - expected).max() <= 1.6


@pytest.mark.parametrize("matrix", SPACES)
def test_the_oracle_tells_matrices_and_ranges_apart(matrix: str) -> None:
    """Were swscale to ignore what it is asked for, the tests above would prove nothing."""
    frame = chart("yuv444p", 64, 64, False)
    own = swscale(frame, matrix, False)
    others = [swscale(frame, other, False) for other in SPACES if other != matrix] + [swscale(frame, matrix, True)]
    assert all(np.abs(own - other).max() > 4 for other in others)


def real_frames() -> Iterator[av.VideoFrame]:
    with av.open(str(SHARED / "video" / "vtest.mp4")) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index % 200 == 0:
                yield frame


needs_clip = pytest.mark.skipif(
    not (SHARED / "video" / "vtest.mp4").is_file(), reason="needs vtest.mp4 of the shared folder"
)


@needs_clip
def test_letterboxed_real_frames_against_swscale_and_opencv(device: Device) -> None:
    """The usual order: to RGB in full size, clipped, then resized. One pixel in twenty of this clip is out of range."""
    spec = InputSpec((416, 416))
    for frame in real_frames():
        format = FrameFormat(PIXEL_FORMATS[frame.format.name], frame.width, frame.height)
        placement = place(format.upright_size, spec.size)
        x, y, width, height = placement.content
        planes = [_samples(frame, index, format.pixel) for index in range(len(format.pixel.planes))]
        got = rasterise(device, format, planes, spec, placement)[:, y : y + height, x : x + width]
        rgb = swscale(frame, "bt601", False).astype(np.uint8)
        expected = cv2.resize(rgb, (width, height), interpolation=cv2.INTER_LINEAR)
        assert np.abs(got.transpose(1, 2, 0) - expected.astype(np.float64)).max() <= 1.5


@needs_clip
def test_real_frames_against_swscale(device: Device) -> None:
    for frame in real_frames():
        format = FrameFormat(PIXEL_FORMATS[frame.format.name], frame.width, frame.height)
        assert np.abs(raven(device, frame, format) - swscale(frame, "bt601", False)).max() <= 2.0


@pytest.mark.parametrize("matrix", SPACES)
@pytest.mark.parametrize("depth", [8, 10])
def test_grey_white_and_black(matrix: str, depth: int) -> None:
    top, unit = 2**depth - 1, 2 ** (depth - 8)
    for full, black, white in ((False, 16 * unit, 235 * unit), (True, 0, top)):
        to_rgb = yuv_to_rgb(matrix, full, depth)
        for luma, expected in ((black, 0), (white, 1)):
            sample = np.array([luma / top, 128 * unit / top, 128 * unit / top, 1])
            np.testing.assert_allclose(to_rgb @ sample, [expected] * 3, atol=1e-12)
