"""Timeline semaphores and the queues that wait for and signal them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from raven.errors import DeviceError
from raven.gpu import vk
from raven.gpu.vk import ffi

if TYPE_CHECKING:
    from raven.gpu.device import Device

_ALL_COMMANDS = 0x10000
VK_TIMEOUT = 2


class Timeline:
    """A timeline semaphore: a 64-bit number that only grows.

    Attributes
    ----------
    host_waits : int
        Blocking waits that the host made on it.
    """

    def __init__(self, device: Device, shared: bool = False) -> None:
        self.device, self.host_waits = device, 0
        export = vk.new("VkExportSemaphoreCreateInfo", handleTypes=0x1) if shared else vk.NULL
        kind = vk.new("VkSemaphoreTypeCreateInfo", semaphoreType=1, pNext=export)
        info = vk.new("VkSemaphoreCreateInfo", pNext=kind)
        self.handle = device.create("vkCreateSemaphore", "VkSemaphore", info)
        self._handles = ffi.new("VkSemaphore[1]", [self.handle])
        self._out = ffi.new("uint64_t*")

    def value(self) -> int:
        """The number it has reached."""
        out = ffi.new("uint64_t*")
        vk.check(self.device.fn.vkGetSemaphoreCounterValue(self.device.handle, self.handle, out), "vkGetSemaphoreValue")
        return int(out[0])

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Block the calling thread until the number is reached.

        Parameters
        ----------
        timeout : float or None
            Seconds; None waits for ever.

        Returns
        -------
        bool
            False when the time ran out.
        """
        self.host_waits += 1
        values = ffi.new("uint64_t[1]", [value])
        info = vk.new("VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=self._handles, pValues=values)
        nanoseconds = 0xFFFFFFFFFFFFFFFF if timeout is None else int(timeout * 1e9)
        code = self.device.fn.vkWaitSemaphores(self.device.handle, info, nanoseconds)
        return vk.check(code, "vkWaitSemaphores", VK_TIMEOUT) != VK_TIMEOUT

    def signal(self, value: int) -> None:
        """Set the number from the host; it must be larger than any before."""
        info = vk.new("VkSemaphoreSignalInfo", semaphore=self.handle, value=value)
        vk.check(self.device.fn.vkSignalSemaphore(self.device.handle, info), "vkSignalSemaphore")

    def destroy(self) -> None:
        if self.handle is not None:
            self.device.destroy("vkDestroySemaphore", self.handle)
            self.handle = None


class Queue:
    """A device queue. Submitting is serialised, since Vulkan wants it so."""

    def __init__(self, device: Device, family: int, index: int) -> None:
        self.device, self.family, self.index = device, family, index
        out = ffi.new("VkQueue*")
        device.fn.vkGetDeviceQueue(device.handle, family, index, out)
        self.handle, self.lock = out[0], threading.Lock()

    def submit_once(self, commands: Any, timeline: Timeline, value: int) -> None:
        """Submit commands that signal ``value``; for set-up."""
        Submission(self, commands, signals=[timeline]).submit((), (value,))


class Submission:
    """A submit that is prepared once: only the timeline values change from frame to frame.

    Parameters
    ----------
    commands : VkCommandBuffer
    waits, signals : sequence of Timeline
    """

    def __init__(
        self, queue: Queue, commands: Any, waits: Sequence[Timeline] = (), signals: Sequence[Timeline] = ()
    ) -> None:
        self.queue = queue
        self._waits = self._infos(waits)
        self._signals = self._infos(signals)
        self._commands = vk.array(
            "VkCommandBufferSubmitInfo", [vk.new("VkCommandBufferSubmitInfo", commandBuffer=commands)]
        )
        self._info = vk.new(
            "VkSubmitInfo2",
            waitSemaphoreInfoCount=len(waits),
            pWaitSemaphoreInfos=self._waits,
            commandBufferInfoCount=1,
            pCommandBufferInfos=self._commands,
            signalSemaphoreInfoCount=len(signals),
            pSignalSemaphoreInfos=self._signals,
        )
        self._call = queue.device.fn.vkQueueSubmit2

    @staticmethod
    def _infos(timelines: Sequence[Timeline]) -> Any:
        return vk.array(
            "VkSemaphoreSubmitInfo",
            [vk.new("VkSemaphoreSubmitInfo", semaphore=t.handle, stageMask=_ALL_COMMANDS) for t in timelines],
        )

    def submit(self, waits: Sequence[int], signals: Sequence[int]) -> int:
        """Submit with these timeline values.

        Returns
        -------
        int
            Host time of the call, in nanoseconds.
        """
        started = perf_counter_ns()
        for slot, value in enumerate(waits):
            self._waits[slot].value = value
        for slot, value in enumerate(signals):
            self._signals[slot].value = value
        with self.queue.lock:
            code = self._call(self.queue.handle, 1, self._info, vk.NULL)
        if code:
            vk.check(code, "vkQueueSubmit2")
        return perf_counter_ns() - started


def wait_or_fail(timeline: Timeline, value: int, what: str, timeout: float = 30.0) -> None:
    """Wait, and raise DeviceError rather than hang when the GPU does not get there."""
    if not timeline.wait(value, timeout):
        raise DeviceError(f"the GPU did not finish {what} within {timeout:g} s; it may be hung: see `raven doctor`")
