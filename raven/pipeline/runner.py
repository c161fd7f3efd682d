"""A run: stage threads around the ring, from the source's first frame to the sinks' last."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from time import perf_counter, perf_counter_ns
from typing import Any

from raven.errors import RavenError, SinkError
from raven.pipeline.engine import Engine
from raven.pipeline.options import RunOptions
from raven.pipeline.report import Report
from raven.pipeline.ring import Ring
from raven.pipeline.slot import DRAW, RASTERISE, Slot
from raven.pipeline.startup import seconds_since_start
from raven.pipeline.statistics import Statistics
from raven.pipeline.trace import Trace
from raven.sinks import Sink, StreamInfo
from raven.sinks.base import DrawnFrame
from raven.sources import Source

log = logging.getLogger("raven.pipeline")

Progress = Callable[[int, int | None], None]


class Runner:
    """Moves frames from a source through an engine to sinks.

    The caller's thread writes to the sinks, one decodes and submits, and on the host a few run the model, each a frame
    of its own. They meet in the ring; the first error of any ends all.
    """

    def __init__(
        self,
        options: RunOptions,
        source: Source,
        sinks: Sequence[Sink],
        engine: Engine,
        trace: Trace,
        progress: Progress | None,
    ) -> None:
        self.options, self.source, self.sinks, self.engine = options, source, sinks, engine
        self.trace, self.progress = trace, progress
        self.statistics, self.report = Statistics(), Report()
        self.ring: Ring[Slot] = Ring(engine.slots)
        self._submit_ns = [0] * len(engine.slots)
        self._objects_at_warm_up = -1
        self._size: tuple[int, int] | None = None

    # -- threads ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end of the source, a stop, or a fault.

        Raises
        ------
        RavenError
            The first cause. What the sinks had finished is kept.
        """
        threads = [
            threading.Thread(target=self._guard, args=(stage,), name=f"raven-{name}", daemon=True)
            for name, stage in self._background_stages()
        ]
        self._started = perf_counter()
        for thread in threads:
            thread.start()
        self._guard(self._write)
        if self.ring.cause is not None:
            self.source.close()  # ends a read that blocks
        for thread in threads:
            thread.join(10.0)
        raise_cause(self.ring.cause)

    def _background_stages(self) -> list[tuple[str, Callable[[], None]]]:
        workers = 0 if self.engine.shared else self.engine.workers
        return [("source", self._read), *((f"infer-{number}", self._infer) for number in range(workers))]

    def _guard(self, stage: Callable[[], None]) -> None:
        try:
            stage()
        except BaseException as error:
            log.debug("stage failed", exc_info=True)
            self.ring.fail(error)

    def finish(self) -> Report:
        """The report; called once the sinks are closed, since closing is part of the work."""
        seconds = perf_counter() - self._started
        report, engine = self.report, self.engine
        report.seconds = round(seconds, 4)
        report.fps = round(report.frames / seconds, 3) if seconds else 0.0
        report.interrupted = self.options.stop.is_set()
        report.measure(self.statistics)
        report.device, report.driver = engine.device.name, engine.device.physical.driver
        report.route, report.backend, report.model = engine.route, engine.model.backend, engine.card.name
        report.slots, report.timings = len(engine.slots), engine.timings
        report.bytes_read_back_per_frame = float(engine.slots[0].bytes_read_back)
        waits = sum(slot.host_waits for slot in engine.slots)
        report.host_waits_per_frame = round(waits / report.frames, 3) if report.frames else 0.0
        if report.overflowed:
            report.notices.append(
                f"{report.overflowed} frames had more than {self.options.max_det} detections and lost the weakest; "
                "raise --max-det"
            )
        return report

    # -- source ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        if self.engine.shared:
            self.engine.model.seam.make_current()
        frames = iter(self.source)
        while not self.options.stop.is_set():
            slot = self.ring.take("free")
            if slot is None:
                break
            begun = perf_counter_ns()
            frame = next(frames, None)
            if frame is None:
                break
            self._span("decode", "source", begun, frame.index)
            begun = perf_counter_ns()
            slot.load(frame)
            frame.planes, frame.owner = [], None  # the decoder may have its memory back
            self._span("upload", "source", begun, frame.index)
            self._submit_ns[slot.index] = slot.submit_input()
            if self.engine.shared:
                self._enqueue(slot)
            else:
                self.ring.put("input", slot)
            self.ring.put("output", slot)  # in order; the sink waits until this one is ready
        for _ in range(self.engine.workers):
            self.ring.put("input", None)
        self.ring.put("output", None)

    def _enqueue(self, slot: Slot) -> None:
        """A model on the GPU: its run and command buffer B are enqueued at once, and nobody waits before the sink."""
        begun = perf_counter_ns()
        slot.enqueue_model()
        self._span("infer", "source", begun, slot.frame.index)
        self._submit_ns[slot.index] += slot.submit_output()

    # -- model -----------------------------------------------------------------------------------------------------

    def _infer(self) -> None:
        while (slot := self.ring.take("input")) is not None:
            waited = perf_counter_ns()
            slot.wait_input()
            self._gpu_span("rasterise", slot, slot.clock.read(RASTERISE), waited)
            begun = perf_counter_ns()
            slot.run_model()
            self._span("infer", threading.current_thread().name, begun, slot.frame.index)
            self._submit_ns[slot.index] += slot.submit_output()

    # -- sinks -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        while (slot := self._next_drawn()) is not None:
            waited = perf_counter_ns()
            slot.wait_output()
            if self.engine.shared:
                self._gpu_span("rasterise", slot, slot.clock.read(RASTERISE), waited)
            self._gpu_span("draw", slot, slot.clock.read(DRAW), waited)
            self.statistics.submit.add(self._submit_ns[slot.index])
            begun = perf_counter_ns()
            self._deliver(slot)
            self._span("write", "sink", begun, slot.frame.index)
            self.report.frames += 1
            self._note_first_frame()
            self.ring.put("free", slot)
            if self.progress is not None:
                self.progress(self.report.frames, self._total())

    def _next_drawn(self) -> Slot | None:
        """The next frame in order, once its last command buffer is on its way; None at the end or after a fault."""
        slot = self.ring.take("output")
        while slot is not None and not slot.submitted.wait(0.1):
            if self.ring.ended:
                return None
        return slot

    def _deliver(self, slot: Slot) -> None:
        drawn = self._drawn(slot)
        self._check_size(slot)
        for sink in self.sinks:
            sink.write(drawn)

    def _drawn(self, slot: Slot) -> DrawnFrame:
        width, height = slot.frame.format.upright_size
        drawn = DrawnFrame(slot.frame.index, slot.frame.pts, name=slot.frame.name, width=width, height=height)
        if slot.composed is not None:
            drawn.nv12, drawn.rgba = slot.composed.nv12_array, slot.composed.rgba_array
        if slot.found is not None:
            drawn.detections, overflow = slot.detections()
            self.report.detections = max(self.report.detections, 0) + len(drawn.detections)
            self.report.overflowed += overflow
        return drawn

    def _check_size(self, slot: Slot) -> None:
        size = slot.frame.format.upright_size
        if self._size not in (None, size) and "nv12" in self.engine.pictures:
            raise SinkError(
                f"{slot.frame.name or 'frame ' + str(slot.frame.index)} is {size[0]}x{size[1]}, the video is "
                f"{self._size[0]}x{self._size[1]}; write to a directory of images instead"  # type: ignore[index]
            )
        self._size = size

    def _note_first_frame(self) -> None:
        if self.report.frames == 1:
            self.report.first_frame_seconds = round(seconds_since_start(), 3)
        if self.report.frames == len(self.engine.slots):
            self._objects_at_warm_up = self.engine.live_objects
        elif self._objects_at_warm_up >= 0:
            self.report.allocations_after_warm_up = self.engine.live_objects - self._objects_at_warm_up

    def _total(self) -> int | None:
        known = [n for n in (self.source.info.frames, self.options.frames) if n]
        return min(known, default=None)

    def _gpu_span(self, stage: str, slot: Slot, busy: int, waited: int) -> None:
        """Count a stage on the GPU: by its clock, or where that means nothing by how long the next stage waited."""
        now = perf_counter_ns()
        self.statistics.stages[stage].add(busy or now - waited)
        if self.trace.on:
            begun = now - busy if busy else max(slot.started, waited)
            self.trace.span("gpu", stage, stage, begun, now, slot.frame.index)

    def _span(self, stage: str, row: str, begun: int, frame: int) -> None:
        now = perf_counter_ns()
        self.statistics.stages[stage].add(now - begun)
        if self.trace.on:
            self.trace.span("host", row, stage, begun, now, frame)


def stream_info(source: Source, engine: Engine) -> StreamInfo:
    """What the sinks are told before the first frame."""
    info = source.info
    width, height = info.format.upright_size
    aspect = info.format.sample_aspect_ratio
    turned = info.format.rotation in (90, 270)
    return StreamInfo(
        width=width,
        height=height,
        time_base=info.time_base,
        frame_rate=info.frame_rate,
        sample_aspect_ratio=1 / aspect if turned else aspect,
        color={**engine.color, **info.color},
        source=info,
        class_names=tuple(engine.card.names),
    )


def abort_all(sinks: Sequence[Sink]) -> None:
    """Abort every sink; a second fault does not hide the first."""
    for sink in sinks:
        with contextlib.suppress(RavenError):
            sink.abort()


def raise_cause(cause: Any) -> None:
    """Raise what ended the run."""
    if cause is not None:
        raise cause
