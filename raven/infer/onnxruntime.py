"""ONNX Runtime on the CPU, reading and writing mapped tensors in place."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from raven.errors import ModelError, UsageError
from raven.infer import faults
from raven.infer.base import MappedTensor, Shape, TensorSpec
from raven.infer.threads import physical_cores

log = logging.getLogger("raven.infer")

#: Element types that tensors have, by the runtime's name.
DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}
#: An integer input of this name wants the picture's width and height to scale boxes by. It is given the model's own
#: size, so that boxes come out in model pixels as those of any other head.
SIZE_INPUT = "orig_target_sizes"
#: Rows kept of an output whose row count depends on the data.
MAX_ROWS = 1024
_FATAL = 4


class OnnxModel:
    """A model in an ONNX Runtime session on the CPU; see :class:`raven.infer.base.Model`.

    Parameters
    ----------
    path : Path
        An .onnx file.
    threads : int or None
        Threads inside an operator; None: one a physical core.
    max_rows : int
        Rows kept of outputs whose row count depends on the data.

    Raises
    ------
    ModelError
        The file is not a model that this runtime can run.
    UsageError
        ``threads`` below 1.
    """

    backend = "onnxruntime-cpu"

    def __init__(self, path: Path, *, threads: int | None = None, max_rows: int = MAX_ROWS) -> None:
        faults.check_file(path)
        if threads is not None and threads < 1:
            raise UsageError(f"{threads} threads for the model: give 1 or more")
        self.path, self.name, self.max_rows = path, path.stem, max_rows
        self.threads = threads or physical_cores()
        self.notices: list[str] = []
        self._session: Any = _open(path, self.threads)
        declared = [_spec(path, item) for item in self._session.get_inputs()]
        self.inputs = tuple(spec for spec in declared if not _is_size_input(spec))
        self.outputs = tuple(_spec(path, item) for item in self._session.get_outputs())
        self.size_inputs = tuple(spec for spec in declared if _is_size_input(spec))
        self.metadata: Mapping[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
        self._resolved: dict[Shape, tuple[tuple[Shape, ...], frozenset[int]]] = {}
        if not self.inputs:
            raise ModelError(f"{path}: it has no input for a picture; give a model with one")

    def resolve(self, input_shape: Sequence[int]) -> tuple[Shape, ...]:
        """Shapes of the outputs; see :meth:`raven.infer.base.Model.resolve`.

        Shapes that the file leaves open are found by running the model twice, on zeros and on noise.
        """
        return self._layout(tuple(int(n) for n in input_shape))[0]

    def _layout(self, shape: Shape) -> tuple[tuple[Shape, ...], frozenset[int]]:
        """Output shapes, and which outputs have shapes that depend on the data."""
        if shape not in self._resolved:
            self.inputs[0].check(shape, self.name)
            self._resolved[shape] = self._probe(shape)
        return self._resolved[shape]

    def _probe(self, shape: Shape) -> tuple[tuple[Shape, ...], frozenset[int]]:
        if all(spec.static for spec in self.outputs):
            return tuple(tuple(map(int, spec.shape)) for spec in self.outputs), frozenset()  # type: ignore[arg-type]
        first, second = (self._try(shape, noisy) for noisy in (False, True))
        varying = frozenset(i for i, pair in enumerate(zip(first, second, strict=True)) if _varies(*pair))
        if varying:
            names = ", ".join(repr(self.outputs[i].name) for i in sorted(varying))
            self.notices.append(f"{self.name}: the shape of {names} depends on the picture; it is copied once a frame")
        largest = [
            _largest(a, b, self.max_rows) if i in varying else a
            for i, (a, b) in enumerate(zip(first, second, strict=True))
        ]
        return tuple(largest), varying

    def _try(self, shape: Shape, noisy: bool) -> list[Shape]:
        """Output shapes of one run on made-up data."""
        feeds = {spec.name: _made_up(self._shape_of(spec, shape), spec.dtype, noisy) for spec in self.inputs}
        feeds |= {spec.name: _size_array(spec, shape) for spec in self.size_inputs}
        try:
            return [tuple(array.shape) for array in self._session.run(None, feeds)]
        except Exception as error:
            raise faults.run_error(self.name, error) from None

    def _shape_of(self, spec: TensorSpec, picture: Shape) -> Shape:
        """An input's shape: the first one's is known, open dimensions of others are 1 but for the batch."""
        if spec is self.inputs[0]:
            return picture
        return tuple(n if isinstance(n, int) else (picture[0] if i == 0 else 1) for i, n in enumerate(spec.shape))

    def bind(self, inputs: Sequence[MappedTensor], outputs: Sequence[MappedTensor]) -> OnnxBinding:
        """Tie the session to tensors; see :meth:`raven.infer.base.Model.bind`."""
        if self._session is None:
            raise ModelError(f"{self.name}: the model is closed; load it again")
        _check_tensors(self.name, "input", self.inputs, inputs)
        _check_tensors(self.name, "output", self.outputs, outputs)
        for spec, tensor in zip(self.inputs, inputs, strict=True):
            spec.check(tensor.shape, self.name)
        shapes, varying = self._layout(tuple(inputs[0].shape))
        for index, (spec, tensor) in enumerate(zip(self.outputs, outputs, strict=True)):
            if index not in varying and tuple(tensor.shape) != shapes[index]:
                raise ModelError(
                    f"{self.name}: output {spec.name!r} has shape {list(shapes[index])}, its tensor "
                    f"{list(tensor.shape)}; make the tensor as resolve() says"
                )
        return OnnxBinding(self, self._session, inputs, outputs, varying)

    def close(self) -> None:
        """Release the session; idempotent. Bindings made before keep it alive until they are closed."""
        self._session = None


class OnnxBinding:
    """A session's run on fixed memory; see :class:`raven.infer.base.Binding`."""

    def __init__(
        self,
        model: OnnxModel,
        session: Any,
        inputs: Sequence[MappedTensor],
        outputs: Sequence[MappedTensor],
        varying: frozenset[int],
    ) -> None:
        self.name, self.in_place, self.dropped = model.name, not varying, 0
        self.shapes = tuple(tuple(tensor.shape) for tensor in outputs)
        self._session, self._io = session, session.io_binding()
        self._lock = threading.Lock()
        self._sizes = [(spec, _size_array(spec, tuple(inputs[0].shape))) for spec in model.size_inputs]
        self._varying = [(i, model.outputs[i].name, outputs[i].array) for i in sorted(varying)]
        self._keep = (inputs, outputs)  # their memory must outlive the binding
        for spec, tensor in zip(model.inputs, inputs, strict=True):
            self._io.bind_input(spec.name, "cpu", 0, spec.dtype.type, list(tensor.shape), tensor.data_pointer)
        for spec, size in self._sizes:
            self._io.bind_input(spec.name, "cpu", 0, spec.dtype.type, list(size.shape), size.ctypes.data)
        for index, (spec, tensor) in enumerate(zip(model.outputs, outputs, strict=True)):
            # Varying outputs too, to keep the order; run() binds them anew each time.
            if index in varying:
                self._io.bind_output(spec.name, "cpu")
            else:
                self._io.bind_output(spec.name, "cpu", 0, spec.dtype.type, list(tensor.shape), tensor.data_pointer)

    def run(self) -> None:
        """Run the model on what the inputs hold.

        An output whose shape depends on the data is copied into its tensor, the rest of the tensor is zeroed, and what
        does not fit is counted in ``dropped``.
        """
        with self._lock:
            if self._io is None:
                raise ModelError(f"{self.name}: its binding is closed; make a new one")
            for _, name, _ in self._varying:
                # The runtime would otherwise try to write the next result into the last one's memory.
                self._io.bind_output(name, "cpu")
            try:
                self._session.run_with_iobinding(self._io)
            except Exception as error:
                raise faults.run_error(self.name, error) from None
            if self._varying:
                self._copy_varying()

    def _copy_varying(self) -> None:
        made = self._io.get_outputs()
        shapes, self.dropped = list(self.shapes), 0
        for index, _, target in self._varying:
            array = made[index].numpy()
            self.dropped += _copy_fitting(array, target)
            shapes[index] = tuple(array.shape)
        self.shapes = tuple(shapes)
        if self.dropped:
            log.warning("%s: %d rows of a frame do not fit and are dropped", self.name, self.dropped)

    def close(self) -> None:
        """Let go of the memory; idempotent. Waits for a run in another thread."""
        with self._lock:
            self._io = self._session = None
            self._keep = ((), ())
            self._varying = []


def load(path: Path, **options: Any) -> OnnxModel:
    """Load a model; options are those of :class:`OnnxModel`."""
    return OnnxModel(path, **options)


def _open(path: Path, threads: int) -> Any:
    ort.set_default_logger_severity(_FATAL)  # what it would log is in the exception
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    options.intra_op_num_threads = threads
    # Threads that spin between operators take the processor from the encoder's and the driver's.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise faults.load_error(path, error) from None


def _spec(path: Path, item: Any) -> TensorSpec:
    if item.type not in DTYPES:
        kinds = ", ".join(np.dtype(t).name for t in DTYPES.values())
        raise ModelError(f"{path}: {item.name!r} is a {item.type}; Raven takes {kinds}")
    shape = tuple(n if isinstance(n, int) and n >= 0 else (n if isinstance(n, str) else None) for n in item.shape)
    return TensorSpec(item.name, shape, np.dtype(DTYPES[item.type]))


def _is_size_input(spec: TensorSpec) -> bool:
    return spec.name == SIZE_INPUT and spec.dtype.kind == "i" and len(spec.shape) == 2


def _size_array(spec: TensorSpec, picture: Shape) -> np.ndarray:
    """Width and height of an NCHW picture for every frame of the batch."""
    batch, _, height, width = picture
    return np.ascontiguousarray(np.tile([width, height], (batch, 1)), spec.dtype)


def _made_up(shape: Shape, dtype: np.dtype[Any], noisy: bool) -> np.ndarray:
    if not noisy:
        return np.zeros(shape, dtype)
    return (np.random.default_rng(0).random(shape, np.float32) * (1 if dtype == np.bool_ else 127)).astype(dtype)


def _varies(first: Shape, second: Shape) -> bool:
    """An output without any rows on made-up pictures varies as well: it would be of no use otherwise."""
    return first != second or 0 in first


def _largest(first: Shape, second: Shape, max_rows: int) -> Shape:
    return tuple(a if a == b and a > 0 else max(a, b, max_rows) for a, b in zip(first, second, strict=True))


def _copy_fitting(array: np.ndarray, target: np.ndarray) -> int:
    """Copy the part of an array that fits, zero the rest of the target; return how many rows were left out."""
    fits = tuple(slice(min(a, t)) for a, t in zip(array.shape, target.shape, strict=True))
    target.fill(0)
    target[fits] = array[fits]
    return max((a - t for a, t in zip(array.shape, target.shape, strict=True)), default=0) if array.size else 0


def _check_tensors(model: str, kind: str, specs: Sequence[TensorSpec], tensors: Sequence[MappedTensor]) -> None:
    if len(specs) != len(tensors):
        raise ModelError(f"{model}: {len(tensors)} {kind} tensors were given and it has {len(specs)} {kind}s")
    for spec, tensor in zip(specs, tensors, strict=True):
        if np.dtype(tensor.dtype) != spec.dtype:
            raise ModelError(
                f"{model}: {kind} {spec.name!r} is {spec.dtype.name}, its tensor {np.dtype(tensor.dtype).name}; "
                f"make the tensor {spec.dtype.name}"
            )
        if not tensor.data_pointer:
            raise ModelError(
                f"{model}: the tensor of {kind} {spec.name!r} is not visible to the host; the cpu backend needs memory "
                "that is (kind 'upload' or 'readback')"
            )
