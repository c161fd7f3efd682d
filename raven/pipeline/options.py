"""What a run is asked to do, checked before anything is opened."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from raven.detect.parameters import MAX_DETECTIONS
from raven.errors import UsageError

DECODERS = ("auto", "nvdec", "cpu")
ROUTES = ("auto", "raster", "compute")


@dataclass(frozen=True)
class RunOptions:
    """A run: input, outputs, model, and how to do it. The command line has a flag for each.

    Attributes
    ----------
    input : str
        Video file, image, directory or glob of images.
    output : str or None
        Video file (.mp4, .mkv, .mov) or directory for images; None: no pictures are written.
    model : str
        Bundled name or path of an ONNX file.
    backend : {'auto', 'cpu', 'cuda', 'tensorrt', 'tensorrt-rtx'}
    conf, iou : float or None
        Thresholds in [0, 1]; None: the model card's.
    classes : tuple of str
        Names or ids to keep; empty: all.
    max_det : int
        Most detections a frame, 1 to 1024.
    agnostic : bool
        Suppress across classes.
    detections : str or None
        JSON lines file; ``-`` is standard output.
    frames : int or None
        Stop after this many.
    device : str or None
        Index, name or UUID of the Vulkan device.
    route : {'auto', 'raster', 'compute'}
    report, trace : str or None
        Files for the report (JSON) and the trace (Chrome's format).
    draw : bool
        Draw the detections.
    decoder : {'auto', 'nvdec', 'cpu'}
        ``auto``: NVDEC where the model runs on CUDA and the stream is one that it decodes.
    encoder, quality, preset
        Passed to the video sink.
    slots : int or None
        Frames in flight (None: chosen for the backend).
    sinks : tuple
        Further sinks, ready made (Python only).
    stop : threading.Event
        Set it to end the run early; what is finished is kept.
    """

    input: str
    output: str | None = None
    model: str = "nanodet_416"
    backend: str = "auto"
    conf: float | None = None
    iou: float | None = None
    classes: tuple[str, ...] = ()
    max_det: int = 300
    agnostic: bool = False
    detections: str | None = None
    frames: int | None = None
    device: str | None = None
    route: str = "auto"
    report: str | None = None
    trace: str | None = None
    draw: bool = True
    decoder: str = "auto"
    encoder: str = "auto"
    quality: int | None = None
    preset: str | None = None
    slots: int | None = None
    sinks: tuple[Any, ...] = ()
    stop: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("conf", "iou"):
            _unit_interval(name, getattr(self, name))
        _within("max-det", self.max_det, 1, MAX_DETECTIONS)
        if self.frames is not None:
            _within("frames", self.frames, 1, 2**53)
        if self.slots is not None:
            _within("slots", self.slots, 1, 64)
        _among("route", self.route, ROUTES)
        _among("decoder", self.decoder, DECODERS)


def _unit_interval(name: str, value: float | None) -> None:
    if value is not None and not 0 <= value <= 1:
        raise UsageError(f"--{name} {value:g} is outside 0 to 1; give a fraction such as 0.25")


def _among(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} {value!r} is not known; use one of {', '.join(known)}")


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(f"--{name} {value} is outside {low} to {high}; give a number in that range")
