"""ONNX Runtime on CUDA: a session and a stream a slot, its run captured into a graph of Raven's own.

The runtime reads the input tensor and writes the outputs in memory that Vulkan and CUDA share, on a stream that waits
for and signals the slot's timeline. The host neither waits nor copies. Capturing the run ourselves, instead of by the
runtime's own option, makes a frame cost one graph launch of 2 to 4 microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raven.errors import BackendError, ModelError
from raven.gpu import Device, Timeline
from raven.infer.base import Model, Shape, TensorSpec
from raven.infer.cuda_graph import CudaGraph
from raven.interop.cuda import CudaSeam, call, cu
from raven.tensor import Tensor

_PROVIDER = "CUDAExecutionProvider"


class CudaModel:
    """A model that runs on the GPU that also draws.

    Parameters
    ----------
    path : Path
        ONNX file.
    description : Model
        The same file loaded on the host: it knows names, types and shapes.
    tf32 : bool
        Allow TensorFloat-32: faster, and off by up to 1e-1 in raw outputs; so it is off.
    prefer_nhwc : bool
        Ask the runtime for its channels-last kernels.

    Attributes
    ----------
    asynchronous : bool
        True: bindings enqueue work instead of running it.
    """

    asynchronous = True
    backend = "onnxruntime-cuda"

    def __init__(self, path: Path, description: Model, tf32: bool = False, prefer_nhwc: bool = False) -> None:
        self.path, self._description = path, description
        self.name = description.name
        self.inputs: tuple[TensorSpec, ...] = description.inputs
        self.outputs: tuple[TensorSpec, ...] = description.outputs
        self.metadata: Mapping[str, str] = description.metadata
        self.notices: list[str] = list(description.notices)
        self._options = {"use_tf32": str(int(tf32)), "prefer_nhwc": str(int(prefer_nhwc))}
        self.seam: CudaSeam | None = None

    def connect(self, device: Device) -> None:
        """Join the model to a Vulkan device on the same GPU.

        Raises
        ------
        BackendError
            CUDA sees another GPU, or the driver cannot share memory.
        """
        self.seam = CudaSeam(device)

    def resolve(self, input_shape: Sequence[int]) -> tuple[Shape, ...]:
        """Shapes of the outputs; see :meth:`raven.infer.base.Model.resolve`."""
        return self._description.resolve(input_shape)

    def bind(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], timeline: Timeline) -> CudaBinding:
        """Make a session on a stream of its own, tied to a slot's shared tensors and timeline."""
        if self.seam is None:
            raise BackendError("the CUDA model is not joined to a device; call connect() first")
        return CudaBinding(self, self.seam, inputs, outputs, timeline)

    def session(self, stream: Any) -> Any:
        """An ONNX Runtime session whose kernels go onto a stream.

        Raises
        ------
        BackendError
            The CUDA provider does not start.
        ModelError
            The file cannot be loaded.
        """
        import onnxruntime as ort

        assert self.seam is not None
        settings = ort.SessionOptions()
        settings.log_severity_level = 4
        options = {"device_id": str(self.seam.index), "user_compute_stream": str(int(stream)), **self._options}
        try:
            session = ort.InferenceSession(str(self.path), settings, providers=[(_PROVIDER, options)])
        except Exception as error:
            raise ModelError(
                f"{self.path}: ONNX Runtime cannot load it on CUDA: {str(error).splitlines()[0]}"
            ) from None
        if _PROVIDER not in session.get_providers():
            raise BackendError(
                "ONNX Runtime could not start its CUDA provider (CUDA 13 and cuDNN 9 must be found); see `raven doctor`"
            )
        return session

    def close(self) -> None:
        """Let go of the GPU; bindings must be closed first."""
        if self.seam is not None:
            self.seam.close()
            self.seam = None
        self._description.close()


class CudaBinding:
    """One slot's session, stream and graph."""

    in_place = True
    dropped = 0

    def __init__(
        self,
        model: CudaModel,
        seam: CudaSeam,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        timeline: Timeline,
    ) -> None:
        import onnxruntime as ort

        self._seam, self._model = seam, model
        seam.make_current()
        self.stream = call(cu.cuStreamCreate(1), "cuStreamCreate")  # non-blocking: no implicit order with others
        self.timeline = seam.timeline(timeline)
        self._session = model.session(self.stream)
        self._io = self._session.io_binding()
        for spec, tensor in zip(model.inputs, inputs, strict=True):
            self._io.bind_input(spec.name, "cuda", seam.index, tensor.dtype, tensor.shape, seam.pointer(tensor))
        for spec, tensor in zip(model.outputs, outputs, strict=True):
            self._io.bind_output(spec.name, "cuda", seam.index, tensor.dtype, tensor.shape, seam.pointer(tensor))
        self._run_options = ort.RunOptions()
        self._run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        self.shapes = tuple(tensor.shape for tensor in outputs)
        self._graph = self._capture()

    def _capture(self) -> CudaGraph | None:
        try:
            return CudaGraph(self._enqueue_session, self.stream)
        except BackendError as error:
            self._model.notices.append(f"{error}; it is launched kernel by kernel")
            return None

    def _enqueue_session(self) -> None:
        self._session.run_with_iobinding(self._io, self._run_options)

    def enqueue(self, wait: int, signal: int) -> None:
        """Enqueue: wait for a value of the slot's timeline, run, signal another. The host goes on at once."""
        self.timeline.wait(wait, self.stream)
        if self._graph is not None:
            self._graph.launch()
        else:
            self._enqueue_session()
        self.timeline.signal(signal, self.stream)

    def run(self) -> None:
        """Run once and wait; for warm-up and tests."""
        self._seam.make_current()
        if self._graph is not None:
            self._graph.launch()
        else:
            self._enqueue_session()
        call(cu.cuStreamSynchronize(self.stream), "cuStreamSynchronize")

    def close(self) -> None:
        """Release graph, session and stream once the GPU has finished; idempotent."""
        if self.stream is None:
            return
        self._seam.make_current()
        call(cu.cuStreamSynchronize(self.stream), "cuStreamSynchronize")
        if self._graph is not None:
            self._graph.close()
        self._io = self._session = None
        self._seam.drop_timeline(self.timeline)
        call(cu.cuStreamDestroy(self.stream), "cuStreamDestroy")
        self.stream = None


def load(path: Path, **options: Any) -> CudaModel:
    """Load a model; options are those of :class:`CudaModel`."""
    from raven.infer.onnxruntime import OnnxModel

    return CudaModel(path, OnnxModel(path), **options)
