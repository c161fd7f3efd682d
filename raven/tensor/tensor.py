"""A tensor in GPU memory whose first dimension may change without the host knowing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from raven.gpu import Buffer, Device
from raven.gpu.memory import MemoryKind
from raven.tensor import header


class Tensor:
    """A header and data in one buffer.

    Parameters
    ----------
    device : Device
    shape : sequence of int
        As allocated: ``shape[0]`` is the capacity. The rows in use stand in the header, on the GPU.
    dtype : data-type
        float32, float16, uint8, int8, int32, int64, uint32, uint16, bool or float64.
    layout : str
        What the dimensions mean, ``NCHW`` or ``NHWC`` for pictures; empty otherwise.
    kind : {'device', 'upload', 'readback'}
        Memory to place it in. On a CPU device all of it is host-mapped.
    vertices : int
        Vertices an instance when the tensor is drawn through its own header.
    rows : int or None
        Rows in use at the start (None: all).
    shared : bool
        Place it in memory that CUDA can import.

    Attributes
    ----------
    address, header_address : int
        Device addresses of the data and of the header 256 bytes before it.
    nbytes : int
        Bytes of data.

    Raises
    ------
    ValueError
        More than 8 dimensions, a negative one, or an unsupported type.
    DeviceError
        GPU memory is exhausted.
    """

    def __init__(
        self,
        device: Device,
        shape: Sequence[int],
        dtype: Any = np.float32,
        *,
        layout: str = "",
        kind: MemoryKind = "device",
        vertices: int = 6,
        rows: int | None = None,
        shared: bool = False,
    ) -> None:
        if len(shape) > header.MAX_RANK or min(shape, default=0) < 0:
            raise ValueError(f"a tensor of shape {tuple(shape)}: at most {header.MAX_RANK} dimensions, none negative")
        self.device, self.shape, self.dtype, self.layout = device, tuple(int(n) for n in shape), np.dtype(dtype), layout
        self.capacity = self.shape[0] if self.shape else 1
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        words = header.pack(self.shape, self.dtype, self.capacity, vertices)
        # Padded to 256 bytes and never empty: runtimes round up, and Vulkan has no empty buffers.
        self.buffer = Buffer(device, header.BYTES + max(256, -(-self.nbytes // 256) * 256), kind, shared)
        if rows is not None:
            _set_rows(words, rows)
        self.buffer.write(words)

    @classmethod
    def from_numpy(cls, device: Device, array: np.ndarray, **options: Any) -> Tensor:
        """Make a tensor of an array's shape and type, and copy the array into it."""
        tensor = cls(device, array.shape, array.dtype, **options)
        tensor.write(array)
        return tensor

    @property
    def address(self) -> int:
        return self.buffer.address + header.BYTES

    @property
    def header_address(self) -> int:
        return self.buffer.address

    @property
    def data_pointer(self) -> int:
        """Host address of the data, 0 where the host cannot see it."""
        return self.buffer.pointer + header.BYTES if self.buffer.pointer else 0

    @property
    def array(self) -> np.ndarray:
        """NumPy view of the whole data in mapped memory, without a copy.

        Raises
        ------
        DeviceError
            The memory is not visible to the host: use :meth:`read`.
        """
        count = math.prod(self.shape)
        return self.buffer.array(self.dtype, header.BYTES, count).reshape(self.shape)

    def write(self, array: np.ndarray) -> None:
        """Copy an array into the data and set the rows in use. For set-up and tests: it waits for the GPU.

        Raises
        ------
        ValueError
            It does not fit: more rows than the capacity, or other dimensions differ.
        """
        array = np.ascontiguousarray(array, self.dtype)
        if array.shape[1:] != self.shape[1:] or (array.ndim and array.shape[0] > self.capacity):
            raise ValueError(f"an array of shape {array.shape} does not fit a tensor of {self.shape}")
        words = self.read_header()
        _set_rows(words, array.shape[0] if array.ndim else 1)
        self.buffer.write(words)
        self.buffer.write(array, header.BYTES)

    def read(self) -> np.ndarray:
        """Copy the rows in use to the host: an explicit read-back that waits for the GPU."""
        rows = int(self.read_header()[header.INSTANCE_COUNT])
        raw = self.buffer.read(header.BYTES, self.nbytes)
        data = raw.view(self.dtype)[: math.prod(self.shape)].reshape(self.shape)
        return data[:rows] if self.shape else data

    def read_header(self) -> np.ndarray:
        """Copy the header's 64 words to the host."""
        return self.buffer.read(0, header.BYTES).view(np.uint32)

    def destroy(self) -> None:
        """Release the memory; idempotent. The GPU must have finished with it."""
        self.buffer.destroy()

    def __repr__(self) -> str:
        return (
            f"Tensor(shape={self.shape}, dtype={self.dtype.name}, layout={self.layout!r}, device={self.device.name!r})"
        )


def _set_rows(words: np.ndarray, rows: int) -> None:
    words[header.INSTANCE_COUNT] = words[header.PRODUCED] = rows
    words[header.GROUPS] = -(-rows // header.ROWS_A_GROUP)
    if words[header.RANK]:
        words[header.SHAPE] = rows
