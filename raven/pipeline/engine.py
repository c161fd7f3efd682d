"""The engine: device, model and passes, made once, and the slots that use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from raven.detect.card import ModelCard, load_card
from raven.detect.classes import class_ids
from raven.detect.detector import Detector
from raven.draw.compose import Compose
from raven.draw.overlay import Overlay
from raven.errors import ModelError
from raven.frame.format import FrameFormat
from raven.frame.geometry import place
from raven.frame.rasterise import InputSpec, Rasteriser
from raven.frame.routes import choose_route
from raven.gpu import Device, Queue
from raven.gpu.memory import MemoryKind
from raven.infer import choose_backend, load_model
from raven.infer.threads import physical_cores, share_cores
from raven.interop.surfaces import SurfaceCopier
from raven.models import find_model
from raven.pipeline.options import RunOptions
from raven.pipeline.slot import Slot
from raven.sources.nvdec import NvdecSource
from raven.tensor import Tensor

#: Frames in flight beside those that the model works on: source and sink each hold one, and one waits.
SPARE_SLOTS = 3
#: On a GPU small models leave room for each other, and hand-offs between Vulkan and CUDA overlap.
SLOTS_GPU = 6


class Engine:
    """One GPU, one model, and a ring of slots.

    Parameters
    ----------
    options : RunOptions
    format : FrameFormat
        Of the first frame: the route is chosen by measuring with it.
    pictures : frozenset of str
        Output pictures that sinks want: ``nv12``, ``rgba``, both or none.
    reads_detections : bool
        Whether a sink wants the detections on the host.
    on_device : bool
        Frames come as surfaces in CUDA memory.

    Raises
    ------
    RavenError
        No device, no runtime, or a model that cannot be used; the message says which and what to do.
    """

    def __init__(
        self,
        options: RunOptions,
        format: FrameFormat,
        pictures: frozenset[str],
        reads_detections: bool,
        on_device: bool = False,
    ) -> None:
        self.options, self.pictures, self.reads_detections = options, pictures, reads_detections
        self.on_device = on_device
        self.notices: list[str] = []
        self._closing: list[Callable[[], None]] = []
        self._compose: dict[FrameFormat, Compose] = {}
        try:
            self._open(format)
        except BaseException:
            self.close()
            raise

    def _open(self, format: FrameFormat) -> None:
        path = find_model(self.options.model)
        with ThreadPoolExecutor(1) as helper:  # the device starts while the runtime reads the model
            opening = helper.submit(Device, self.options.device)
            try:
                self._load(path)
            finally:
                self.device = opening.result()
                self._closing.append(self.device.close)
        self.shared = bool(getattr(self.model, "asynchronous", False))
        self.copier: Any = None
        if self.shared:
            self.model.connect(self.device)
            self.copier = self._own_closing(SurfaceCopier(self.model.seam))
        self.spec = self._input_spec()
        self._input_shape = self._shape_of_input()
        self.output_shapes = self.model.resolve(self._input_shape)
        self._choose_route(format)
        self._make_passes()
        count = self.options.slots or (SLOTS_GPU if self.shared else self.workers + SPARE_SLOTS)
        self.slots: list[Slot] = []
        self._closing.append(self._close_slots)
        for index in range(count):
            self.slots.append(Slot(self, index))
            self.slots[-1].build(format, self.on_device)

    def _own_closing(self, part: Any) -> Any:
        self._closing.append(part.close)
        return part

    # -- the model -------------------------------------------------------------------------------------------------

    def _load(self, path: Path) -> None:
        self.workers, threads = share_cores(physical_cores())
        on_host = choose_backend(self.options.backend)[0] == "cpu"
        self.model: Any = load_model(path, self.options.backend, **({"threads": threads} if on_host else {}))
        self._closing.append(self.model.close)
        self.card: ModelCard = load_card(path, self.model.inputs, self.model.outputs, self.model.metadata)
        self.notices += [*self.model.notices, *self.card.notices]
        self.classes = class_ids(self.options.classes, self.card.names)

    def _input_spec(self) -> InputSpec:
        card, given = self.card, self.model.inputs[0]
        return InputSpec(
            size=card.input_size(given.shape),
            layout=card.layout,
            channels=card.channels,
            dtype=given.dtype,
            mean=card.mean,
            std=card.std,
            scale=card.scale,
            pad=card.pad,
        )

    def _shape_of_input(self) -> tuple[int, ...]:
        batch = self.model.inputs[0].shape[0]
        if isinstance(batch, int) and batch > 1:
            raise ModelError(
                f"{self.options.model}: its batch is fixed at {batch}, Raven runs one frame a time; "
                "export it with a batch of 1 or a dynamic one"
            )
        width, height = self.spec.size
        return (1, 3, height, width) if self.spec.layout == "NCHW" else (1, height, width, 3)

    def new_inputs(self) -> list[Tensor]:
        """Input tensors of one slot."""
        spec = self.model.inputs[0]
        kind: MemoryKind = "device" if self._model_sees_device_memory else "readback"
        layout = self.spec.layout
        return [Tensor(self.device, self._input_shape, spec.dtype, layout=layout, kind=kind, shared=self.shared)]

    def new_outputs(self) -> list[Tensor]:
        """Output tensors of one slot, as large as the model can make them."""
        pairs = zip(self.output_shapes, self.model.outputs, strict=True)
        kind: MemoryKind = "device" if self._model_sees_device_memory else "upload"
        return [Tensor(self.device, shape, spec.dtype, kind=kind, shared=self.shared) for shape, spec in pairs]

    @property
    def _model_sees_device_memory(self) -> bool:
        """A model on the host needs mapped memory; on a CPU or integrated device all memory is."""
        return self.shared or self.device.caps.host_memory

    def bind_model(self, slot: Slot) -> Any:
        """Tie the model to a slot's tensors, and to its timeline where the model runs on the GPU."""
        if self.shared:
            return self.model.bind(slot.inputs, slot.outputs, slot.time)
        return self.model.bind(slot.inputs, slot.outputs)

    def queues_of(self, slot: Slot) -> tuple[Queue, Queue]:
        """Queues of a slot's two command buffers.

        Slots on queues of their own overlap. Queues that only compute hand over to CUDA faster, so what draws nothing
        goes there.
        """
        before = self.device.compute if self.route == "compute" else self.device.graphics
        after = self.device.graphics if self.overlay is not None else self.device.compute
        return before[2 * slot.index % len(before)], after[(2 * slot.index + 1) % len(after)]

    # -- passes ----------------------------------------------------------------------------------------------------

    def _choose_route(self, format: FrameFormat) -> None:
        card = self.card
        placement = place(
            format.upright_size, self.spec.size, card.resize, card.align, card.rounding, format.sample_aspect_ratio
        )
        self.route, self.timings = choose_route(self.device, self.spec, format, placement, self.options.route)

    def _make_passes(self) -> None:
        device, options = self.device, self.options
        self.rasteriser = self._own(Rasteriser(device, self.spec, self.route))
        types = [output.dtype for output in self.model.outputs]
        head = self.card.head_spec(self.spec.size, [output.name for output in self.model.outputs])
        self.detector = self._own(Detector(device, head, self.output_shapes, types))
        draws = options.draw and bool(self.pictures)
        self.overlay = self._own(Overlay(device, self.card.names)) if draws else None

    def _own(self, part: Any) -> Any:
        self._closing.append(part.destroy)
        return part

    def bind_detector(self, outputs: Sequence[Tensor], placement: Any) -> Any:
        """A slot's head and NMS with the run's thresholds."""
        options, card = self.options, self.card
        return self.detector.bind(
            list(outputs),
            placement,
            conf=card.conf if options.conf is None else options.conf,
            iou=card.iou if options.iou is None else options.iou,
            max_det=options.max_det,
            agnostic=options.agnostic,
            classes=self.classes,
        )

    def compose(self, format: FrameFormat) -> Compose:
        """The pass that makes output pictures from frames of a format; made once a format."""
        if format not in self._compose:
            self._compose[format] = self._own(Compose(self.device, self.pictures, format))
        return self._compose[format]

    @property
    def color(self) -> dict[str, Any]:
        """Colour tags of the output picture when the source carries none of its own (RGB)."""
        return next(iter(self._compose.values())).output_color if self._compose else {}

    # -- warm-up and end -------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Run the model once on what is in a slot's input, so that no frame pays for first-time set-up."""
        slot = self.slots[0]
        for tensor in slot.inputs:
            if tensor.buffer.pointer:
                tensor.array.fill(np.zeros((), tensor.dtype))
        slot.binding.run()

    def start_decoder(self, source: NvdecSource) -> None:
        """Make a source's decoder on the GPU and the stream that its surfaces are copied on."""
        seam, copier = self.model.seam, self.copier
        source.start(seam.index, int(seam.context), int(copier.stream), copier.synchronise)

    @property
    def live_objects(self) -> int:
        """Vulkan objects and memory blocks alive or ever allocated: equal numbers mean that nothing was made."""
        return sum(self.device.counts.values()) + self.device.memory.allocations

    def _close_slots(self) -> None:
        for slot in self.slots:
            slot.destroy()

    def close(self) -> None:
        """Release everything, in reverse order; idempotent."""
        device = getattr(self, "device", None)
        if device is not None and device.handle is not None:
            device.wait_idle()
        while self._closing:
            self._closing.pop()()
