"""GPU clocks: timestamps that a command buffer writes and the host reads once the work is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raven.gpu import vk
from raven.gpu.vk import ffi

if TYPE_CHECKING:
    from raven.gpu.commands import Recorder
    from raven.gpu.device import Device


class GpuClock:
    """Times of some spans of recorded work. On devices whose clocks mean nothing (CPU drivers) it does nothing.

    Parameters
    ----------
    device : Device
    spans : int
        Each span has a begin and an end, and may be in a command buffer of its own.
    """

    def __init__(self, device: Device, spans: int) -> None:
        self.device, self.on = device, device.caps.timestamps
        self._count = 2 * spans
        self._pool = None
        if self.on:
            info = vk.new("VkQueryPoolCreateInfo", queryType=vk.VK_QUERY_TYPE_TIMESTAMP, queryCount=self._count)
            self._pool = device.create("vkCreateQueryPool", "VkQueryPool", info)
            self._out = ffi.new("uint64_t[]", self._count)

    def begin(self, rec: Recorder, span: int) -> None:
        """Record the begin of a span."""
        if self._pool is not None:
            rec.reset_queries(self._pool, 2 * span, 2)
            rec.timestamp(self._pool, 2 * span)

    def end(self, rec: Recorder, span: int) -> None:
        """Record the end of a span."""
        if self._pool is not None:
            rec.timestamp(self._pool, 2 * span + 1)

    def read(self, span: int) -> int:
        """Nanoseconds of a span whose work is done; it never waits."""
        if self._pool is None:
            return 0
        fn, device = self.device.fn, self.device
        flags = vk.VK_QUERY_RESULT_64_BIT
        fn.vkGetQueryPoolResults(device.handle, self._pool, 2 * span, 2, 16, self._out, 8, flags)
        return int((self._out[1] - self._out[0]) * device.caps.timestamp_period)

    def destroy(self) -> None:
        """Release the queries; idempotent."""
        if self._pool is not None:
            self.device.destroy("vkDestroyQueryPool", self._pool)
            self._pool = None
