"""Tensors: NumPy in and out, every type, the header's words, rows set on the GPU's side."""

from __future__ import annotations

import numpy as np
import pytest

from raven.errors import DeviceError
from raven.gpu import Device
from raven.tensor import Tensor, header


@pytest.mark.parametrize("dtype", header.DTYPES)
def test_numpy_round_trip(device: Device, dtype: str) -> None:
    given = (np.arange(60) % 7 - 2 * (dtype[0] in "fi")).reshape(5, 3, 4).astype(dtype)
    tensor = Tensor.from_numpy(device, given)
    try:
        assert tensor.read().dtype == given.dtype
        np.testing.assert_array_equal(tensor.read(), given)
        if tensor.data_pointer:  # mapped: the view is the memory itself
            np.testing.assert_array_equal(tensor.array, given)
        else:
            with pytest.raises(DeviceError, match="copy it to a readback buffer"):
                _ = tensor.array
    finally:
        tensor.destroy()


@pytest.mark.parametrize("shape", [(), (1,), (0, 8), (65, 2), (1, 2, 3, 4, 5, 6, 1, 2)])
def test_header_words(device: Device, shape: tuple[int, ...]) -> None:
    tensor = Tensor(device, shape, np.float16, vertices=8)
    try:
        words = tensor.read_header()
        rows = shape[0] if shape else 1
        assert list(words[:7]) == [8, rows, 0, 0, (rows + 63) // 64, 1, 1]
        assert list(words[7:12]) == [2, len(shape), rows, rows, 0]
        assert list(words[12:20]) == list(shape) + [0] * (8 - len(shape))
        assert not words[20:].any()
        assert tensor.address == tensor.header_address + 256
        assert tensor.address % 256 == 0
    finally:
        tensor.destroy()


def test_fewer_rows_than_capacity(device: Device) -> None:
    tensor = Tensor(device, (100, 8), rows=0)
    try:
        assert tensor.read().shape == (0, 8)
        tensor.write(np.ones((3, 8), np.float32))
        assert tensor.read().shape == (3, 8)
        assert tensor.read_header()[header.CAPACITY] == 100
        with pytest.raises(ValueError, match=r"\(101, 8\) does not fit a tensor of \(100, 8\)"):
            tensor.write(np.ones((101, 8), np.float32))
    finally:
        tensor.destroy()


def test_unsupported_type_is_named(device: Device) -> None:
    with pytest.raises(ValueError, match="complex64 is not supported"):
        Tensor(device, (1,), np.complex64)
    with pytest.raises(ValueError, match="at most 8 dimensions"):
        Tensor(device, (1,) * 9)
