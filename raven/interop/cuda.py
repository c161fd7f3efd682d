"""CUDA's side of the seam: Vulkan's memory blocks and timelines, imported once.

Only the driver interface of cuda-python is used. Ownership follows the CUDA manual: a descriptor that was imported
belongs to CUDA, one whose import failed is still ours; a mapped buffer is freed before the memory it came from is
released, and neither before the work on it has finished.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from raven.errors import BackendError, DeviceError
from raven.gpu import Buffer, Device, Timeline, vk
from raven.gpu.buffer import buffer_usage
from raven.gpu.memory import Block
from raven.gpu.vk import ffi
from raven.tensor import Tensor, header

try:
    from cuda.bindings import driver as cu
except ImportError:  # the seam is optional; asking for it says what is missing
    cu = None

_OPAQUE_FD = 0x1


def call(result: tuple[Any, ...], what: str) -> Any:
    """Value of a driver call.

    Raises
    ------
    BackendError
        Naming the call and CUDA's own name for the error.
    """
    code, *values = result
    if int(code):
        raise BackendError(f"CUDA: {what} failed with {code.name}; see `raven doctor`")
    return values[0] if len(values) == 1 else tuple(values)


def cuda_devices() -> list[tuple[int, str, str]]:
    """Index, name and UUID of every CUDA device.

    Raises
    ------
    BackendError
        cuda-python or NVIDIA's driver is missing.
    """
    if cu is None:
        raise BackendError("cuda-python is not installed; pip install 'raven-gpu[cuda]'")
    call(cu.cuInit(0), "cuInit")
    found = []
    for index in range(call(cu.cuDeviceGetCount(), "cuDeviceGetCount")):
        device = call(cu.cuDeviceGet(index), "cuDeviceGet")
        name = call(cu.cuDeviceGetName(256, device), "cuDeviceGetName").split(b"\0")[0].decode()
        uuid = bytes(call(cu.cuDeviceGetUuid(device), "cuDeviceGetUuid").bytes).hex()
        found.append((index, name, uuid))
    return found


def matching_device(device: Device) -> int:
    """Index of the CUDA device that is the same GPU as a Vulkan device, by UUID.

    Raises
    ------
    BackendError
        None is: the message names both sides.
    """
    found = cuda_devices()
    for index, _, uuid in found:
        if uuid == device.physical.uuid:
            return index
    seen = ", ".join(f"{name} ({uuid})" for _, name, uuid in found) or "none"
    raise BackendError(
        f"Vulkan runs on {device.name} ({device.physical.uuid}), CUDA sees {seen}: not the same GPU; "
        "choose one with --device, or use --backend cpu"
    )


class CudaSeam:
    """Shares a Vulkan device's memory and timelines with CUDA on the same GPU.

    Parameters
    ----------
    device : Device

    Raises
    ------
    BackendError
        No CUDA, another GPU, or memory that this driver cannot export.
    """

    def __init__(self, device: Device) -> None:
        caps = device.caps
        if not (caps.external_memory_fd and caps.external_semaphore_fd):
            raise BackendError(
                f"{device.name} cannot export memory or semaphores as descriptors (on Windows their handle types are "
                "not written yet); use --backend cpu"
            )
        require_exportable(device)
        self.device, self.index = device, matching_device(device)
        self.ordinal = call(cu.cuDeviceGet(self.index), "cuDeviceGet")
        self.context = call(cu.cuDevicePrimaryCtxRetain(self.ordinal), "cuDevicePrimaryCtxRetain")
        self.make_current()
        self._blocks: dict[Block, _ImportedBlock] = {}
        self._timelines: list[CudaTimeline] = []

    def make_current(self) -> None:
        """Bind the GPU's primary context to the calling thread."""
        call(cu.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")

    def pointer(self, tensor: Tensor) -> int:
        """CUDA address of a shared tensor's data."""
        return self.address(tensor.buffer) + header.BYTES

    def address(self, buffer: Buffer) -> int:
        """CUDA address of a shared buffer; its block is imported at the first call."""
        allocation = buffer.allocation
        block = allocation.block
        if block.export is None:
            raise BackendError("this memory is not shared with CUDA; make it with shared=True")
        if block not in self._blocks:
            self._blocks[block] = _ImportedBlock(self.device, block)
            block.before_free.append(lambda: self._drop(block))
        return self._blocks[block].address + allocation.offset

    def _drop(self, block: Block) -> None:
        """CUDA lets go of a block before Vulkan frees it, and not while CUDA still works on it."""
        imported = self._blocks.pop(block, None)
        if imported is not None:
            call(cu.cuCtxSynchronize(), "cuCtxSynchronize")
            imported.close()

    def timeline(self, timeline: Timeline) -> CudaTimeline:
        """A shared timeline as CUDA streams see it."""
        one = CudaTimeline(self.device, timeline)
        self._timelines.append(one)
        return one

    def drop_timeline(self, one: CudaTimeline) -> None:
        """Let go of an imported timeline; its streams must have finished."""
        self._timelines.remove(one)
        one.close()

    def close(self) -> None:
        """Let go of everything imported, once CUDA has finished; idempotent."""
        if self.context is None:
            return
        self.make_current()
        call(cu.cuCtxSynchronize(), "cuCtxSynchronize")
        for timeline in self._timelines:
            timeline.close()
        for imported in self._blocks.values():
            imported.close()
        self._timelines, self._blocks = [], {}
        call(cu.cuDevicePrimaryCtxRelease(self.ordinal), "cuDevicePrimaryCtxRelease")
        self.context = None


class _ImportedBlock:
    """One VkDeviceMemory in CUDA's address space."""

    def __init__(self, device: Device, block: Block) -> None:
        self.memory: Any = None
        self.address = 0
        descriptor = _memory_descriptor(device, block)
        ask = cu.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
        ask.type = cu.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
        ask.handle.fd, ask.size = descriptor, block.size
        with _ours_until_imported(descriptor):
            self.memory = call(cu.cuImportExternalMemory(ask), "cuImportExternalMemory")
        view = cu.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
        view.offset, view.size = 0, block.size
        try:
            self.address = int(
                call(cu.cuExternalMemoryGetMappedBuffer(self.memory, view), "cuExternalMemoryGetMappedBuffer")
            )
        except BaseException:
            cu.cuDestroyExternalMemory(self.memory)
            raise

    def close(self) -> None:
        if self.memory is not None:
            call(cu.cuMemFree(self.address), "cuMemFree")
            call(cu.cuDestroyExternalMemory(self.memory), "cuDestroyExternalMemory")
            self.memory = None


class CudaTimeline:
    """A Vulkan timeline semaphore that CUDA streams wait for and signal."""

    def __init__(self, device: Device, timeline: Timeline) -> None:
        info = vk.new("VkSemaphoreGetFdInfoKHR", semaphore=timeline.handle, handleType=_OPAQUE_FD)
        out = ffi.new("int*")
        vk.check(device.fn.vkGetSemaphoreFdKHR(device.handle, info, out), "vkGetSemaphoreFdKHR")
        ask = cu.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
        ask.type = cu.CUexternalSemaphoreHandleType.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
        ask.handle.fd = int(out[0])
        with _ours_until_imported(int(out[0])):
            self.handle = call(cu.cuImportExternalSemaphore(ask), "cuImportExternalSemaphore")
        self._wait = cu.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS()
        self._signal = cu.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()

    def wait(self, value: int, stream: Any) -> None:
        """Make a stream wait until the timeline reaches a value; the host goes on."""
        self._wait.params.fence.value = value
        call(cu.cuWaitExternalSemaphoresAsync([self.handle], [self._wait], 1, stream), "cuWaitExternalSemaphoresAsync")

    def signal(self, value: int, stream: Any) -> None:
        """Make a stream signal a value once its work so far is done."""
        self._signal.params.fence.value = value
        call(
            cu.cuSignalExternalSemaphoresAsync([self.handle], [self._signal], 1, stream),
            "cuSignalExternalSemaphoresAsync",
        )

    def close(self) -> None:
        if self.handle is not None:
            call(cu.cuDestroyExternalSemaphore(self.handle), "cuDestroyExternalSemaphore")
            self.handle = None


def _memory_descriptor(device: Device, block: Block) -> int:
    info = vk.new("VkMemoryGetFdInfoKHR", memory=block.memory, handleType=_OPAQUE_FD)
    out = ffi.new("int*")
    vk.check(device.fn.vkGetMemoryFdKHR(device.handle, info, out), "vkGetMemoryFdKHR")
    return int(out[0])


class _ours_until_imported(contextlib.AbstractContextManager[None]):
    """Close a descriptor when its import fails; a successful import takes it over."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            os.close(self.descriptor)


def require_exportable(device: Device) -> None:
    """Check that buffers of Raven's usage can be exported.

    Raises
    ------
    DeviceError
        They cannot.
    """
    info = vk.new("VkPhysicalDeviceExternalBufferInfo", usage=buffer_usage(device), handleType=_OPAQUE_FD)
    out = vk.new("VkExternalBufferProperties")
    device.instance.fn.vkGetPhysicalDeviceExternalBufferProperties(device.physical.handle, info, out)
    if not out.externalMemoryProperties.externalMemoryFeatures & 0x2:
        raise DeviceError(f"{device.name} cannot export buffers; use --backend cpu")
