"""Runs the rasterise pass on one frame, by every way that there is, and hands back what they wrote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raven.frame.format import Frame, FrameFormat
from raven.frame.geometry import Placement
from raven.frame.planes import PlaneSet
from raven.frame.rasterise import InputSpec, Rasteriser, Route
from raven.gpu import Buffer, Device
from raven.tensor import Tensor


def rasterise(
    device: Device, format: FrameFormat, planes: Sequence[np.ndarray], spec: InputSpec, placement: Placement
) -> np.ndarray:
    """The input tensor's picture; all ways must agree bit for bit.

    Returns
    -------
    numpy.ndarray
        ``(3, H, W)`` or ``(H, W, 3)``.
    """
    ways = [(route, by_strips) for by_strips in (True, False) for route in ("compute", "raster")]
    results = [by_way(device, format, planes, spec, placement, *way) for way in ways]
    for way, result in zip(ways, results, strict=True):
        np.testing.assert_array_equal(result.view(np.uint8), results[0].view(np.uint8), f"{way} differs from {ways[0]}")
    return results[0]


def by_way(
    device: Device,
    format: FrameFormat,
    planes: Sequence[np.ndarray],
    spec: InputSpec,
    placement: Placement,
    route: Route,
    by_strips: bool,
) -> np.ndarray:
    """What one route wrote; ``by_strips`` makes a difference on CPU devices only."""
    width, height = spec.size
    shape = (1, 3, height, width) if spec.layout == "NCHW" else (1, height, width, 3)
    made = [PlaneSet(device, format), Rasteriser(device, spec, route, by_strips), Tensor(device, shape, spec.dtype)]
    plane_set, rasteriser, tensor = made
    made.append(Buffer(device, plane_set.nbytes, "upload"))
    made.append(rasteriser.bind(plane_set, placement, tensor))
    try:
        tensor.write(np.full(shape, 77, spec.dtype))  # nothing may be left unwritten
        plane_set.copy_in(Frame(0, 0, format, list(planes)), made[3].array())
        device.immediate(lambda rec: plane_set.record_upload(rec, made[3]))
        device.immediate(made[4].record)
        return tensor.read()[0]
    finally:
        for item in reversed(made):
            item.destroy()
