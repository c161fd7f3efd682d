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


def test_cuda_waits_for_vulkan_and_vulkan_for_cuda(device: Device, seam: cuda.CudaSeam) -> None:
    """Vulkan adds 1, CUDA copies, Vulkan adds 1: a lost wait or signal shows as a stale or early number."""
    cu = cuda.cu
    first = Tensor.from_numpy(device, np.zeros(1 << 20, np.int32), shared=True)
    second = Tensor.from_numpy(device, np.zeros(1 << 20, np.int32), shared=True)
    pipeline = ComputePipeline(device, "selftest/increment", push_size=8)
    pool = CommandPool(device, device.compute[0].family)
    shared, done = Timeline(device, shared=True), Timeline(device)
    stream = cuda.call(cu.cuStreamCreate(1), "cuStreamCreate")
    theirs = seam.timeline(shared)

    def commands(tensor: Tensor) -> object:
        rec = pool.recorder()
        rec.bind(pipeline, struct.pack("<Q", tensor.header_address))
        rec.dispatch((1 << 20) // 64)
        rec.barrier("compute", "all")
        return rec.end()

    queues = device.compute
    into = Submission(queues[0], commands(first), [], [shared])
    back = Submission(queues[-1], commands(second), [shared], [done])
    try:
        for turn in range(200):
            into.submit((), (2 * turn + 1,))
            theirs.wait(2 * turn + 1, stream)
            size = first.nbytes
            cuda.call(
                cu.cuMemcpyDtoDAsync(seam.pointer(second), seam.pointer(first), size, stream), "cuMemcpyDtoDAsync"
            )
            theirs.signal(2 * turn + 2, stream)
            back.submit((2 * turn + 2,), (turn + 1,))
            assert done.wait(turn + 1, 5)
            assert (second.read() == turn + 2).all(), turn
    finally:
        cuda.call(cu.cuStreamSynchronize(stream), "cuStreamSynchronize")
        device.wait_idle()
        seam.drop_timeline(theirs)
        cu.cuStreamDestroy(stream)
        for item in (done, shared, pool, pipeline, second, first):
            item.destroy()


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
