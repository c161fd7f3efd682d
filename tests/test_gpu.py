"""The GPU layer: devices, memory, commands, timelines."""

from __future__ import annotations

import itertools
import os
import struct

import numpy as np
import pytest

from raven.errors import DeviceError, ShaderError
from raven.gpu import CommandPool, ComputePipeline, Device, Image, Submission, Timeline, list_devices
from raven.gpu.shaders import ShaderLibrary
from raven.gpu.slang import compiler_path
from raven.tensor import Tensor


def test_increment(device: Device) -> None:
    tensor = Tensor.from_numpy(device, np.arange(1000, dtype=np.int32))
    pipeline = ComputePipeline(device, "selftest/increment", push_size=8)
    try:

        def record(rec):
            rec.bind(pipeline, struct.pack("<Q", tensor.header_address))
            rec.dispatch_indirect(tensor.buffer, 16)

        device.immediate(record)
        np.testing.assert_array_equal(tensor.read(), np.arange(1, 1001))
    finally:
        pipeline.destroy()
        tensor.destroy()


def test_submit_waits_for_the_host(device: Device) -> None:
    tensor = Tensor.from_numpy(device, np.zeros(64, np.int32))
    pipeline = ComputePipeline(device, "selftest/increment", push_size=8)
    pool, timeline = CommandPool(device, device.graphics[0].family), Timeline(device)
    try:
        rec = pool.recorder()
        rec.bind(pipeline, struct.pack("<Q", tensor.header_address))
        rec.dispatch(1)
        submission = Submission(device.graphics[0], rec.end(), [timeline], [timeline])
        for turn in range(5):
            submission.submit((2 * turn + 1,), (2 * turn + 2,))
            assert not timeline.wait(2 * turn + 2, 0.01)
            timeline.signal(2 * turn + 1)
            assert timeline.wait(2 * turn + 2, 5)
        assert (tensor.read() == 5).all()
    finally:
        device.wait_idle()
        for item in (timeline, pool, pipeline, tensor):
            item.destroy()


def test_nothing_is_left_after_twenty_devices() -> None:
    def open_and_close() -> None:
        with Device() as one:
            tensor = Tensor(one, (10, 8))
            image = Image(one, 64, 64, "R8_UNORM", "sampled transfer")
            pipeline = ComputePipeline(one, "selftest/increment", push_size=8)
            pipeline.destroy()
            image.destroy()
            tensor.destroy()
        assert not +one.counts, dict(one.counts)

    open_and_close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        open_and_close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_is_suballocated_and_returned(device: Device) -> None:
    blocks = device.counts["VkDeviceMemory"]
    tensors = [Tensor(device, (1000,)) for _ in range(200)]
    assert device.counts["VkDeviceMemory"] <= blocks + 1
    ranges = sorted((t.buffer.allocation.offset, t.buffer.allocation.size, t.buffer.address) for t in tensors)
    assert all(a[0] + a[1] <= b[0] for a, b in itertools.pairwise(ranges))
    assert all(r[2] % 256 == 0 for r in ranges)
    for tensor in tensors:
        tensor.destroy()
    assert device.counts["VkDeviceMemory"] == blocks


def test_device_is_chosen_by_index_name_and_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    first = list_devices()[0]
    for selector in (str(first["index"]), first["name"][:6].upper(), first["uuid"]):
        with Device(selector) as chosen:
            assert chosen.physical.uuid == first["uuid"]
    with pytest.raises(DeviceError, match=r"no device matches --device 'no such'; there are: 0: "):
        Device("no such")
    monkeypatch.setenv("RAVEN_DEVICE", "77")
    with pytest.raises(DeviceError, match="77"):
        Device()


@pytest.mark.skipif(compiler_path() is None, reason="slangpy, which holds the compiler, is not installed")
def test_compile_error_shows_file_line_and_message(tmp_path) -> None:
    (tmp_path / "bad.slang").write_text(
        '[shader("compute")]\n[numthreads(1,1,1)]\nvoid computeMain()\n{\n    int x = unknown_thing;\n}\n'
    )
    with pytest.raises(ShaderError, match=r"unknown_thing") as caught:
        ShaderLibrary(tmp_path).compile("bad", "computeMain")
    assert "bad.slang" in str(caught.value)
    assert "5" in str(caught.value)
    with pytest.raises(ShaderError, match=r"no entry point 'other'; it has computeMain"):
        ShaderLibrary(tmp_path).compile("bad", "other")


def test_too_large_image_names_the_limit(device: Device) -> None:
    limit = device.physical.limits.maxImageDimension2D
    with pytest.raises(DeviceError, match=f"1 to {limit}"):
        Image(device, limit + 1, 1, "R8_UNORM", "sampled")
