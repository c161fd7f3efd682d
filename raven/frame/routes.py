"""Which route draws frames into the tensor faster on this device: measured, not assumed."""

from __future__ import annotations

from time import perf_counter

from raven.frame.format import FrameFormat
from raven.frame.geometry import Placement
from raven.frame.planes import PlaneSet
from raven.frame.rasterise import InputSpec, Rasteriser, Route
from raven.gpu import CommandPool, Device, Submission, Timeline
from raven.tensor import Tensor

ROUTES: tuple[Route, ...] = ("raster", "compute")
_ROUNDS = 5


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
        Microseconds a frame by route, submission included: the best of five; empty when nothing was measured.
    """
    if requested != "auto":
        return ("raster" if requested == "raster" else "compute"), {}
    timings = {route: measure_route(device, spec, format, placement, route) for route in ROUTES}
    return min(ROUTES, key=timings.__getitem__), {f"rasterise_{k}_us": round(v, 1) for k, v in timings.items()}


def measure_route(device: Device, spec: InputSpec, format: FrameFormat, placement: Placement, route: Route) -> float:
    """Microseconds of drawing one frame by a route, from submission until the host sees it done."""
    width, height = spec.size
    tensor = Tensor(device, (1, 3, height, width), spec.dtype)
    planes, rasteriser = PlaneSet(device, format), Rasteriser(device, spec, route)
    bound = rasteriser.bind(planes, placement, tensor)
    pool, timeline = CommandPool(device, device.graphics[0].family), Timeline(device)
    try:
        rec = pool.recorder()
        bound.record(rec)
        submission = Submission(device.graphics[0], rec.end(), (), [timeline])
        return min(_once(submission, timeline, turn) for turn in range(1, _ROUNDS + 2))
    finally:
        for item in (timeline, pool, bound, rasteriser, planes, tensor):
            item.destroy()


def _once(submission: Submission, timeline: Timeline, turn: int) -> float:
    begun = perf_counter()
    submission.submit((), (turn,))
    timeline.wait(turn, 10.0)
    return (perf_counter() - begun) * 1e6
