"""One slot of the frame ring: fixed memory, and command buffers recorded once."""

from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from raven.frame.format import Frame, FrameFormat
from raven.frame.geometry import place
from raven.frame.planes import PlaneSet
from raven.gpu import Buffer, CommandPool, GpuClock, Queue, Recorder, Submission, Timeline
from raven.gpu.memory import MemoryKind
from raven.gpu.timeline import wait_or_fail
from raven.tensor import Tensor, header

if TYPE_CHECKING:
    from raven.pipeline.engine import Engine

#: Spans of the GPU clock.
RASTERISE, DRAW = 0, 1
#: Timeline values of the n-th frame of a slot are 4n + one of these.
PLANES, INPUT, MODEL, DRAWN = 1, 2, 3, 4


class Slot:
    """Memory and commands of one frame in flight.

    ``time`` orders the slot's frame: its planes are there, its input tensor is drawn, the model has run. ``done`` says
    that the frame is drawn; it is a semaphore of its own because the host waits for it, and a host wait on one that
    CUDA signals is slow.

    Attributes
    ----------
    frame : Frame
        The frame being worked on.
    index : int
        Number of the slot, for traces.
    started : int
        ``perf_counter_ns`` when the last submission was made.
    """

    frame: Frame
    started = 0

    def __init__(self, engine: Engine, index: int) -> None:
        self.engine, self.index = engine, index
        device = engine.device
        self.time, self.done = Timeline(device, shared=engine.shared), Timeline(device)
        #: Set once command buffer B is submitted: from then on ``done`` is sure to come.
        self.submitted = threading.Event()
        self.clock = GpuClock(device, 2)
        self.inputs = engine.new_inputs()
        self.outputs = engine.new_outputs()
        self.binding = engine.bind_model(self)
        self._turn = 0
        self._built_for: tuple[FrameFormat, bool] | None = None
        self._parts: list[Any] = []
        self.found: Buffer | None = None

    # -- building: at warm-up, and again only when the picture's format changes ------------------------------------

    def build(self, format: FrameFormat, on_device: bool = False) -> None:
        """Make memory and record commands for frames of a format; nothing to do when it is the last one's.

        Parameters
        ----------
        on_device : bool
            Frames come as surfaces in CUDA memory.
        """
        if (format, on_device) == self._built_for:
            return
        self._release()
        engine, device = self.engine, self.engine.device
        self._built_for = (format, on_device)
        self.planes = self._keep(PlaneSet(device, format))
        kind: MemoryKind = "device" if on_device else "upload"
        self.staging = self._keep(Buffer(device, self.planes.nbytes, kind, shared=on_device))
        self.placement = place(
            format.upright_size,
            engine.spec.size,
            engine.card.resize,
            engine.card.align,
            engine.card.rounding,
            format.sample_aspect_ratio,
        )
        self.rasterise = self._keep(engine.rasteriser.bind(self.planes, self.placement, self.inputs[0]))
        self.detector = self._keep(engine.bind_detector(self.outputs, self.placement))
        self.overlay = None
        if engine.overlay is not None:
            self.overlay = self._keep(engine.overlay.bind(self.detector.detections, format.upright_size))
        self.composed = None
        if engine.pictures:
            self.composed = self._keep(engine.compose(format).bind(self.planes, self.overlay))
        self.found = self._keep(self._new_read_back()) if engine.reads_detections else None
        self._record()

    def _keep(self, part: Any) -> Any:
        self._parts.append(part)
        return part

    def _new_read_back(self) -> Buffer:
        return Buffer(self.engine.device, self.detector.detections.buffer.size, "readback")

    def _record(self) -> None:
        before, after = self.engine.queues_of(self)
        first, second = self._record_input(before), self._record_output(after)
        self._input = Submission(before, first, [self.time], [self.time])
        self._output = Submission(after, second, [self.time], [self.done])

    def _recorder(self, queue: Queue) -> Recorder:
        pool: CommandPool = self._keep(CommandPool(self.engine.device, queue.family))
        return pool.recorder()

    def _record_input(self, queue: Queue) -> Any:
        """Command buffer A: planes up, input tensor drawn."""
        rec = self._recorder(queue)
        self.clock.begin(rec, RASTERISE)
        self.planes.record_upload(rec, self.staging)
        rec.barrier("transfer", "all")
        self.rasterise.record(rec)
        rec.barrier("all", "host all")
        self.clock.end(rec, RASTERISE)
        return rec.end()

    def _record_output(self, queue: Queue) -> Any:
        """Command buffer B: head, NMS, overlays, output pictures."""
        rec = self._recorder(queue)
        self.clock.begin(rec, DRAW)
        rec.barrier("host all", "compute")
        self.detector.record(rec)
        rec.barrier("compute", "all")
        if self.overlay is not None:
            self.overlay.record(rec)
            rec.barrier("target fragment compute", "compute fragment transfer indirect")
        if self.composed is not None:
            self.composed.record(rec)
        if self.found is not None:
            rec.copy_buffer(self.detector.detections.buffer, self.found, self.found.size)
        rec.barrier("all", "host all")
        self.clock.end(rec, DRAW)
        return rec.end()

    # -- a frame ---------------------------------------------------------------------------------------------------

    def load(self, frame: Frame) -> None:
        """Copy a frame's planes into staging memory: from the host at once, from a surface on the GPU's time."""
        self.build(frame.format, frame.surface is not None)
        self.frame = frame
        self._turn += 1
        self.submitted.clear()
        if frame.surface is not None:
            copier, timeline = self.engine.copier, self.binding.timeline
            copier.enqueue(frame.surface.planes, self.planes.rows(), self.staging, timeline, self._value(PLANES))
            return
        self.planes.copy_in(frame, self.staging.array())
        self.time.signal(self._value(PLANES))

    def submit_input(self) -> int:
        """Submit command buffer A; return the host's nanoseconds in the call."""
        self.started = perf_counter_ns()
        return self._input.submit((self._value(PLANES),), (self._value(INPUT),))

    def wait_input(self) -> None:
        """Wait until the input tensor is drawn: what a model on the host waits for."""
        wait_or_fail(self.time, self._value(INPUT), "the input tensor")

    def run_model(self) -> None:
        """Run the model on the host and say so on the timeline."""
        self.binding.run()
        self.time.signal(self._value(MODEL))

    def enqueue_model(self) -> None:
        """Enqueue the model's run on the GPU, between the two command buffers; the host goes on."""
        self.binding.enqueue(self._value(INPUT), self._value(MODEL))

    def submit_output(self) -> int:
        """Submit command buffer B; return the host's nanoseconds in the call."""
        self.started = perf_counter_ns()
        spent = self._output.submit((self._value(MODEL),), (self._value(DRAWN),))
        self.submitted.set()
        return spent

    def wait_output(self) -> None:
        """Wait until the frame is drawn: what the sinks wait for."""
        wait_or_fail(self.done, self._value(DRAWN), "the drawn frame")

    def _value(self, step: int) -> int:
        return 4 * (self._turn - 1) + step

    # -- what the sinks see ----------------------------------------------------------------------------------------

    def detections(self) -> tuple[np.ndarray, bool]:
        """Rows found (a view of mapped memory) and whether there were more than fit."""
        assert self.found is not None
        words = self.found.array(np.uint32, 0, header.WORDS)
        capacity = self.detector.detections.capacity
        rows = self.found.array(np.float32, header.BYTES, capacity * 8).reshape(capacity, 8)
        return rows[: int(words[header.INSTANCE_COUNT])], bool(words[header.PRODUCED] > words[header.CAPACITY])

    @property
    def bytes_read_back(self) -> int:
        """Bytes that the host reads of every frame."""
        pictures = self.composed.nbytes if self.composed is not None else 0
        return pictures + (self.found.size if self.found is not None else 0)

    @property
    def host_waits(self) -> int:
        return self.time.host_waits + self.done.host_waits

    # -- end -------------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        while self._parts:
            self._parts.pop().destroy()

    def destroy(self) -> None:
        """Release everything; the GPU must be idle."""
        self._release()
        self.binding.close()
        tensors: list[Tensor] = [*self.inputs, *self.outputs]
        for tensor in tensors:
            tensor.destroy()
        for timeline in (self.time, self.done):
            timeline.destroy()
        self.clock.destroy()
