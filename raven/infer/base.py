"""What every inference runtime offers: a model that says its shapes, and bindings that run it in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from raven.errors import ModelError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model, as its file declares it.

    Attributes
    ----------
    name : str
    shape : tuple of int, str or None
        A name or None stands for a dimension that the file leaves open.
    dtype : numpy.dtype
    """

    name: str
    shape: tuple[int | str | None, ...]
    dtype: np.dtype[Any]

    @property
    def static(self) -> bool:
        """True when every dimension is a number."""
        return all(isinstance(n, int) for n in self.shape)

    def check(self, shape: Sequence[int], model: str) -> None:
        """Raise ModelError unless a concrete shape fits this one."""
        if len(shape) != len(self.shape):
            raise ModelError(f"{model}: input {self.name!r} has {len(self.shape)} dimensions, not {len(shape)}")
        for axis, (wanted, given) in enumerate(zip(self.shape, shape, strict=True)):
            if isinstance(wanted, int) and wanted != given:
                raise ModelError(_misfit(model, self, axis, given))

    def __str__(self) -> str:
        return f"{self.name} {self.dtype.name} [{', '.join(str(n or '?') for n in self.shape)}]"


def _misfit(model: str, spec: TensorSpec, axis: int, given: int) -> str:
    fixed = spec.shape[axis]
    if axis == 0:
        return f"{model}: a batch of {given} was asked for and the file fixes {fixed}; export it with a dynamic batch"
    return (
        f"{model}: dimension {axis} of input {spec.name!r} is fixed at {fixed}, not {given}; "
        f"give it {fixed} or export it with that dimension dynamic"
    )


class MappedTensor(Protocol):
    """The part of a tensor that a runtime on the host needs; :class:`raven.tensor.Tensor` is one."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def data_pointer(self) -> int:
        """Host address of the data, 0 where the host cannot see it."""
        ...

    @property
    def array(self) -> np.ndarray:
        """View of the whole data, without a copy."""
        ...


class Binding(Protocol):
    """A model's run tied to fixed memory: made once a slot, run for every frame.

    Attributes
    ----------
    in_place : bool
        True when every output is written straight into its tensor. False when one or more have a shape that depends
        on the data: the runtime allocates those, and they are copied once.
    shapes : tuple of tuple of int
        Shapes of the outputs in the last run.
    dropped : int
        Rows of the last run that did not fit a tensor.
    """

    in_place: bool
    shapes: tuple[Shape, ...]
    dropped: int

    def run(self) -> None:
        """Read the inputs' memory, write the outputs'. Raises ModelError when the runtime fails."""
        ...

    def close(self) -> None:
        """Let go of the memory; idempotent."""
        ...


class Model(Protocol):
    """A model loaded into a runtime.

    Attributes
    ----------
    name : str
        File name without its ending.
    backend : str
        Runtime and provider, such as ``onnxruntime-cpu``.
    inputs, outputs : tuple of TensorSpec
        Inputs are those that the caller fills.
    metadata : mapping of str to str
        What the exporter wrote into the file.
    notices : list of str
        One-line remarks for the user.
    """

    name: str
    backend: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    metadata: Mapping[str, str]
    notices: list[str]

    def resolve(self, input_shape: Sequence[int]) -> tuple[Shape, ...]:
        """Shapes of the outputs for a shape of the first input; the largest there can be where they vary.

        Raises
        ------
        ModelError
            The model does not take such an input.
        """
        ...

    def bind(self, inputs: Sequence[MappedTensor], outputs: Sequence[MappedTensor]) -> Binding:
        """Tie the model to memory that outlives the binding. One binding runs at a time, several may exist.

        Raises
        ------
        ModelError
            A tensor's shape or type is not the model's.
        """
        ...

    def close(self) -> None:
        """Release the model; idempotent."""
        ...
