"""Which route draws frames into the tensor faster on this device: measured, not assumed."""

from __future__ import annotations

from contextlib import ExitStack
from time import perf_counter
from typing import Any

from raven.errors import UsageError
from raven.frame.format import FrameFormat
from raven.frame.geometry import Placement
from raven.frame.planes import PlaneSet
from raven.frame.rasterise import InputSpec, Rasteriser, Route
from raven.gpu import CommandPool, Device, Submission, Timeline
from raven.gpu.timeline import wait_or_fail
from raven.tensor import Tensor

ROUTES: tuple[Route, ...] = ("raster", "compute")
# Of each route: a first turn that warms up, then as many as fit into the time, but at least two and at most ten.
_SECONDS = 0.01
_TURNS = (2, 10)


def choose_route(
    device: Device, spec: InputSpec, format: FrameFormat, placement: Placement, requested: str = "auto"
) -> tuple[Route, dict[str, float]]:
    """Choose the route.

    Parameters
    ----------
    requested : {'auto', 'raster', 'compute'}
        Anything but ``auto`` is taken as it is, unmeasured.

    Returns
    -------
    route : {'raster', 'compute'}
    timings : dict
        Microseconds a frame by route, submission included: the best of a few; empty when nothing was measured.

    Raises
    ------
    UsageError
        There is no such route.
    """
    for route in ROUTES:
        if requested == route:
            return route, {}
    if requested != "auto":
        raise UsageError(f"there is no route {requested!r}: choose auto, {' or '.join(ROUTES)}")
    timings = {route: measure_route(device, spec, format, placement, route) for route in ROUTES}
    return min(ROUTES, key=timings.__getitem__), {f"rasterise_{k}_us": round(v, 1) for k, v in timings.items()}


def measure_route(device: Device, spec: InputSpec, format: FrameFormat, placement: Placement, route: Route) -> float:
    """Microseconds of drawing one frame by a route, from submission until the host sees it done."""
    width, height = spec.size
    with ExitStack() as made:

        def keep(item: Any) -> Any:
            made.callback(item.destroy)
            return item

        tensor = keep(Tensor(device, (1, 3, height, width), spec.dtype))
        planes = keep(PlaneSet(device, format))
        bound = keep(keep(Rasteriser(device, spec, route)).bind(planes, placement, tensor))
        pool = keep(CommandPool(device, device.graphics[0].family))
        timeline = keep(Timeline(device))
        rec = pool.recorder()
        bound.record(rec)
        return _best(Submission(device.graphics[0], rec.end(), (), [timeline]), timeline)


def _best(submission: Submission, timeline: Timeline) -> float:
    _once(submission, timeline, 1)
    times: list[float] = []
    begun = perf_counter()
    while len(times) < _TURNS[0] or (len(times) < _TURNS[1] and perf_counter() - begun < _SECONDS):
        times.append(_once(submission, timeline, len(times) + 2))
    return min(times)


def _once(submission: Submission, timeline: Timeline, turn: int) -> float:
    begun = perf_counter()
    submission.submit((), (turn,))
    wait_or_fail(timeline, turn, "drawing a frame into the tensor")
    return (perf_counter() - begun) * 1e6
