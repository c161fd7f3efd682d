"""Buffers and images: a Vulkan object and its piece of memory, released together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from raven.errors import DeviceError
from raven.gpu import vk
from raven.gpu.memory import MemoryKind
from raven.gpu.vk import ffi

if TYPE_CHECKING:
    from raven.gpu.device import Device

# Transfer both ways, storage, indirect and device address: cheap to declare, and every buffer may need them.
_USAGE = 0x1 | 0x2 | 0x20 | 0x100 | 0x20000
_CONDITIONAL = 0x200


def buffer_usage(device: Device) -> int:
    """VkBufferUsageFlags of every buffer on a device."""
    return _USAGE | (_CONDITIONAL if device.caps.conditional_rendering else 0)


class Buffer:
    """A buffer with a device address.

    Parameters
    ----------
    size : int
        Bytes.
    kind : {'device', 'upload', 'readback'}
    shared : bool
        Place it in a block that can be exported to CUDA.

    Attributes
    ----------
    address : int
        64-bit device address, at least 256-byte aligned.
    pointer : int
        Host address, 0 where the host cannot see the memory.
    """

    def __init__(self, device: Device, size: int, kind: MemoryKind = "device", shared: bool = False) -> None:
        self.device, self.size, self.shared = device, size, shared
        usage = buffer_usage(device)
        external = device.external_buffer_info() if shared else vk.NULL
        info = vk.new("VkBufferCreateInfo", size=size, usage=usage, pNext=external, **device.sharing())
        self.handle = device.create("vkCreateBuffer", "VkBuffer", info)
        needs = ffi.new("VkMemoryRequirements*")
        device.fn.vkGetBufferMemoryRequirements(device.handle, self.handle, needs)
        needs.alignment = max(needs.alignment, 256)
        export = device.export_memory_info() if shared else None
        self.allocation = device.memory.allocate(needs, kind, "buffer", export)
        where = self.allocation
        code = device.fn.vkBindBufferMemory(device.handle, self.handle, where.memory, where.offset)
        vk.check(code, "vkBindBufferMemory")
        ask = vk.new("VkBufferDeviceAddressInfo", buffer=self.handle)
        self.address = int(device.fn.vkGetBufferDeviceAddress(device.handle, ask))
        self.pointer = where.pointer

    def array(self, dtype: Any = np.uint8, offset: int = 0, count: int | None = None) -> np.ndarray:
        """View mapped memory as a flat NumPy array. Valid until the buffer is destroyed.

        Raises
        ------
        DeviceError
            The memory is not visible to the host.
        """
        if not self.pointer:
            raise DeviceError("this buffer is in device memory that the host cannot see; copy it to a readback buffer")
        kind = np.dtype(dtype)
        size = (self.size - offset) // kind.itemsize * kind.itemsize if count is None else count * kind.itemsize
        raw = ffi.buffer(ffi.cast("char*", self.pointer + offset), size)
        return np.frombuffer(raw, dtype=kind)

    def write(self, data: np.ndarray, offset: int = 0) -> None:
        """Copy an array's bytes in, through a staging buffer where the host cannot see this one. It waits: for set-up.

        Parameters
        ----------
        offset : int
            Bytes, a multiple of 4.
        """
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        if not raw.size:
            return
        if self.pointer:
            self.array(np.uint8, offset, raw.size)[:] = raw
            return
        size = -(-raw.size // 4) * 4
        staging = Buffer(self.device, size, "upload")
        try:
            staging.array(np.uint8, 0, raw.size)[:] = raw
            self.device.immediate(lambda rec: rec.copy_buffer(staging, self, size, 0, offset))
        finally:
            staging.destroy()

    def read(self, offset: int = 0, size: int | None = None) -> np.ndarray:
        """Copy bytes out as uint8: an explicit read-back that waits for the GPU; for set-up and tests."""
        size = self.size - offset if size is None else size
        if self.pointer:
            return self.array(np.uint8, offset, size).copy()
        if not size:
            return np.zeros(0, np.uint8)
        staging = Buffer(self.device, size, "readback")
        try:
            self.device.immediate(lambda rec: rec.copy_buffer(self, staging, size, offset, 0))
            return staging.array(np.uint8, 0, size).copy()
        finally:
            staging.destroy()

    def destroy(self) -> None:
        """Release the buffer and its memory; idempotent. The GPU must have finished with it."""
        if self.handle is not None:
            self.device.destroy("vkDestroyBuffer", self.handle)
            self.device.memory.free(self.allocation)
            self.handle = None


class Image:
    """A 2-D image with one view, kept in the GENERAL layout for all of its life.

    One layout for everything spares transitions; what a driver gains from special layouts on these small images was
    not measurable, and GENERAL is what storage access needs anyway.

    Parameters
    ----------
    width, height : int
    format : str
        Vulkan's name without prefix: ``R8_UNORM``, ``R8G8B8A8_UNORM``...
    usage : str
        Any of ``sampled storage target transfer``, separated by blanks.
    """

    _USAGE = {"transfer": 0x3, "sampled": 0x4, "storage": 0x8, "target": 0x10}

    def __init__(self, device: Device, width: int, height: int, format: str, usage: str, shared: bool = False) -> None:
        limit = int(device.physical.limits.maxImageDimension2D)
        if not (0 < width <= limit and 0 < height <= limit):
            raise DeviceError(f"an image of {width}x{height} pixels: this device takes 1 to {limit} a side; scale it")
        self.device, self.width, self.height, self.format = device, width, height, format
        self.vk_format = int(getattr(vk, "VK_FORMAT_" + format))
        bits = sum(self._USAGE[word] for word in usage.split())
        external = device.external_image_info() if shared else vk.NULL
        info = vk.new(
            "VkImageCreateInfo",
            pNext=external,
            imageType=vk.VK_IMAGE_TYPE_2D,
            format=self.vk_format,
            extent=vk.new("VkExtent3D", width=width, height=height, depth=1),
            mipLevels=1,
            arrayLayers=1,
            samples=1,
            tiling=vk.VK_IMAGE_TILING_OPTIMAL,
            usage=bits,
            **device.sharing(),
        )
        self.handle = device.create("vkCreateImage", "VkImage", info)
        needs = ffi.new("VkMemoryRequirements*")
        device.fn.vkGetImageMemoryRequirements(device.handle, self.handle, needs)
        export = device.export_memory_info() if shared else None
        self.allocation = device.memory.allocate(needs, "device", "image", export)
        where = self.allocation
        code = device.fn.vkBindImageMemory(device.handle, self.handle, where.memory, where.offset)
        vk.check(code, "vkBindImageMemory")
        view = vk.new(
            "VkImageViewCreateInfo",
            image=self.handle,
            viewType=vk.VK_IMAGE_VIEW_TYPE_2D,
            format=self.vk_format,
            subresourceRange=_whole(),
        )
        self.view = device.create("vkCreateImageView", "VkImageView", view)
        device.immediate(lambda rec: rec.image_to_general(self))

    def destroy(self) -> None:
        """Release the image and its memory; idempotent. The GPU must have finished with it."""
        if self.handle is not None:
            self.device.destroy("vkDestroyImageView", self.view)
            self.device.destroy("vkDestroyImage", self.handle)
            self.device.memory.free(self.allocation)
            self.handle = None


def _whole() -> Any:
    return vk.new("VkImageSubresourceRange", aspectMask=1, levelCount=1, layerCount=1)
