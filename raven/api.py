"""The Python interface: :func:`run` a job, or :func:`stream` its results one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Queue
from typing import Any

import numpy as np

from raven.detections import Detections
from raven.pipeline import Report, RunOptions
from raven.pipeline import run as run_options
from raven.sinks.base import DrawnFrame, StreamInfo


@dataclass(frozen=True)
class Result:
    """One finished frame.

    Attributes
    ----------
    index : int
        Position in the source, from 0.
    time : float
        Presentation time in seconds.
    detections : Detections
    image : numpy.ndarray or None
        ``(height, width, 4)`` uint8 RGBA with the drawing, when ``images=True`` was asked for.
    name : str or None
        File name, for images.
    """

    index: int
    time: float
    detections: Detections
    image: np.ndarray | None = None
    name: str | None = None


def run(input: str, output: str | None = None, **options: Any) -> Report:
    """Do the whole job: decode, detect, draw, write.

    Parameters
    ----------
    input : str
        Video file, image, directory or glob of images.
    output : str, optional
        Video file or directory for images.
    **options
        Fields of :class:`~raven.pipeline.RunOptions`: ``model``, ``conf``, ``detections``, ``frames``...

    Raises
    ------
    RavenError
        One line: the value, the limit, the remedy.
    """
    return run_options(RunOptions(input=input, output=output, **options))


def stream(input: str, *, images: bool = False, **options: Any) -> Iterator[Result]:
    """Yield the result of every frame, in order, while later frames are being worked on.

    A slow consumer slows the source; leaving the loop ends the run.

    Parameters
    ----------
    input : str
    images : bool
        Also copy every drawn picture to the host (a read-back of 4 bytes a pixel).
    **options
        Fields of :class:`~raven.pipeline.RunOptions`; ``output`` may be given as well.

    Raises
    ------
    RavenError
        As :func:`run`, from the loop.
    """
    stop = threading.Event()
    sink = _ResultSink(images, stop)
    chosen = RunOptions(input=input, sinks=(sink,), stop=stop, **options)
    thread = threading.Thread(target=_run_into, args=(chosen, sink), name="raven-run", daemon=True)
    thread.start()
    try:
        while not isinstance(item := sink.results.get(), _End):
            yield item
        if item.cause is not None:
            raise item.cause
    finally:
        stop.set()
        sink.drain(thread)


@dataclass(frozen=True)
class _End:
    cause: BaseException | None = None


def _run_into(options: RunOptions, sink: _ResultSink) -> None:
    try:
        run_options(options)
        sink.results.put(_End())
    except BaseException as error:
        sink.results.put(_End(error))


class _ResultSink:
    """Copies each frame's results and hands them to the consumer, one waiting at most."""

    def __init__(self, images: bool, stop: threading.Event) -> None:
        self.wants = frozenset({"detections", "rgba"} if images else {"detections"})
        self.notices: list[str] = []
        self.results: Queue[Any] = Queue(maxsize=1)
        self._stop = stop

    def open(self, info: StreamInfo) -> None:
        self._names, self._base = info.class_names, info.time_base

    def write(self, frame: DrawnFrame) -> None:
        if self._stop.is_set():
            return
        assert frame.detections is not None
        found = Detections.from_rows(frame.detections, self._names)
        image = None if frame.rgba is None else frame.rgba.copy()
        self.results.put(Result(frame.index, float(frame.pts * self._base), found, image, frame.name))

    def close(self) -> None:
        """Nothing to finish."""

    def abort(self) -> None:
        """Nothing to keep."""

    def drain(self, thread: threading.Thread) -> None:
        """Let a run that waits for its consumer go on to its end."""
        while thread.is_alive():
            while not self.results.empty():
                self.results.get_nowait()
            thread.join(0.01)
