"""The seam to CUDA. Everything here needs an NVIDIA GPU, and skips elsewhere with the reason."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from raven.errors import BackendError
from raven.gpu import CommandPool, ComputePipeline, Device, Submission, Timeline
from raven.interop import cuda
from raven.tensor import Tensor

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def seam(device: Device) -> Iterator[cuda.CudaSeam]:
    try:
        one = cuda.CudaSeam(device)
    except BackendError as error:
        pytest.skip(str(error))
    yield one
    one.close()


def _copy_out(pointer: int, count: int) -> np.ndarray:
    out = np.zeros(count, np.float32)
    cuda.call(cuda.cu.cuMemcpyDtoH(out.ctypes.data, pointer, out.nbytes), "cuMemcpyDtoH")
    return out


def test_both_sides_see_the_same_bytes(device: Device, seam: cuda.CudaSeam) -> None:
    tensor = Tensor.from_numpy(device, np.arange(1000, dtype=np.float32), shared=True)
    try:
        pointer = seam.pointer(tensor)
        np.testing.assert_array_equal(_copy_out(pointer, 1000), np.arange(1000))
        given = np.full(1000, 7, np.float32)
        cuda.call(cuda.cu.cuMemcpyHtoD(pointer, given.ctypes.data, given.nbytes), "cuMemcpyHtoD")
        np.testing.assert_array_equal(tensor.read(), given)
    finally:
        tensor.destroy()


COUNT = 1 << 20
STEPS = 100


class Relay:
    """Vulkan adds 1 slowly in a hundred steps, CUDA copies, Vulkan adds 1: a lost wait or signal shows.

    Parameters
    ----------
    cut : str
        ``wait`` or ``signal``: what CUDA leaves out; empty: nothing.
    """

    def __init__(self, device: Device, seam: cuda.CudaSeam, cut: str = "") -> None:
        self.device, self.seam, self.cut = device, seam, cut
        self.first, self.second = (Tensor.from_numpy(device, np.zeros(COUNT, np.int32), shared=True) for _ in range(2))
        self.pipeline = ComputePipeline(device, "selftest/increment", push_size=8)
        self.pool = CommandPool(device, device.compute[0].family)
        self.shared, self.done = Timeline(device, shared=True), Timeline(device)
        self.stream = cuda.call(cuda.cu.cuStreamCreate(1), "cuStreamCreate")
        self.theirs = seam.timeline(self.shared)
        self.into = Submission(device.compute[0], self._commands(self.first, STEPS), [], [self.shared])
        self.back = Submission(device.compute[-1], self._commands(self.second, 1), [self.shared], [self.done])

    def _commands(self, tensor: Tensor, steps: int) -> object:
        rec = self.pool.recorder()
        rec.bind(self.pipeline, struct.pack("<Q", tensor.header_address))
        for _ in range(steps):
            rec.dispatch(COUNT // 64)
            rec.barrier("compute", "all")
        return rec.end()

    def turn(self, number: int) -> bool:
        """One round; whether the result is right and came."""
        self.into.submit((), (2 * number + 1,))
        if self.cut != "wait":
            self.theirs.wait(2 * number + 1, self.stream)
        source, target = self.seam.pointer(self.first), self.seam.pointer(self.second)
        copied = cuda.cu.cuMemcpyDtoDAsync(target, source, self.first.nbytes, self.stream)
        cuda.call(copied, "cuMemcpyDtoDAsync")
        if self.cut != "signal":
            self.theirs.signal(2 * number + 2, self.stream)
        self.back.submit((2 * number + 2,), (number + 1,))
        if not self.done.wait(number + 1, 2.0):
            self.shared.signal(2 * number + 2)  # let the GPU go
            return False
        return bool((self.second.read() == STEPS * (number + 1) + 1).all())

    def close(self) -> None:
        cuda.call(cuda.cu.cuStreamSynchronize(self.stream), "cuStreamSynchronize")
        self.device.wait_idle()
        self.seam.drop_timeline(self.theirs)
        cuda.cu.cuStreamDestroy(self.stream)
        for item in (self.done, self.shared, self.pool, self.pipeline, self.second, self.first):
            item.destroy()


def test_cuda_waits_for_vulkan_and_vulkan_for_cuda(device: Device, seam: cuda.CudaSeam) -> None:
    relay = Relay(device, seam)
    try:
        assert all(relay.turn(number) for number in range(200))
    finally:
        relay.close()


@pytest.mark.parametrize("cut", ["wait", "signal"])
def test_without_the_wait_or_the_signal_it_fails(device: Device, seam: cuda.CudaSeam, cut: str) -> None:
    """The test above proves nothing unless it notices what it is there to notice."""
    relay = Relay(device, seam, cut)
    try:
        assert not all(relay.turn(number) for number in range(20))
    finally:
        relay.close()


def test_a_thousand_rounds_leave_nothing(device: Device, seam: cuda.CudaSeam) -> None:
    def once() -> None:
        tensor = Tensor(device, (1 << 20,), shared=True)
        timeline = Timeline(device, shared=True)
        theirs = seam.timeline(timeline)
        assert seam.pointer(tensor)
        seam.drop_timeline(theirs)
        timeline.destroy()
        tensor.destroy()

    def free_memory() -> int:
        return int(cuda.call(cuda.cu.cuMemGetInfo(), "cuMemGetInfo")[0])

    for _ in range(10):
        once()
    descriptors, free = len(os.listdir("/proc/self/fd")), free_memory()
    for _ in range(1000):
        once()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert free - free_memory() < 1 << 20


def test_another_gpu_is_named(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "cuda_devices", lambda: [(0, "Other GPU", "00" * 16)])
    with pytest.raises(BackendError, match=rf"{re.escape(device.name)}.*Other GPU.*not the same GPU"):
        cuda.matching_device(device)
