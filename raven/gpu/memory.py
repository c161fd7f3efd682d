"""Device memory: few large blocks, sub-allocated, mapped once when the host can see them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from raven.errors import DeviceError
from raven.gpu import vk
from raven.gpu.vk import ffi

if TYPE_CHECKING:
    from raven.gpu.device import Device

#: ``device``: fastest for the GPU. ``upload``: written by the host. ``readback``: read by the host, cached.
MemoryKind = Literal["device", "upload", "readback"]

BLOCK = 32 << 20
_DEVICE_LOCAL, _VISIBLE, _COHERENT, _CACHED = 1, 2, 4, 8
_WANTED: dict[str, tuple[int, int]] = {  # (required, preferred) property flags
    "device": (0, _DEVICE_LOCAL),
    "upload": (_VISIBLE | _COHERENT, 0),
    "readback": (_VISIBLE | _COHERENT, _CACHED),
}


@dataclass
class Allocation:
    """A piece of a block. ``pointer`` is its host address, or 0 where the host cannot see the memory."""

    block: Block
    offset: int
    size: int

    @property
    def memory(self) -> Any:
        return self.block.memory

    @property
    def pointer(self) -> int:
        return self.block.pointer + self.offset if self.block.pointer else 0

    def free(self) -> None:
        self.block.release(self)


class Block:
    """One VkDeviceMemory and its free ranges."""

    def __init__(self, device: Device, type_index: int, size: int, visible: bool, export: Any = None) -> None:
        self.device, self.size, self.export = device, size, export
        flags = vk.new("VkMemoryAllocateFlagsInfo", flags=0x2, pNext=export or vk.NULL)  # device address
        info = vk.new("VkMemoryAllocateInfo", allocationSize=size, memoryTypeIndex=type_index, pNext=flags)
        self.memory = device.create("vkAllocateMemory", "VkDeviceMemory", info)
        self.pointer = self._map() if visible else 0
        self.free_ranges: list[tuple[int, int]] = [(0, size)]
        #: Called before the memory goes back to the driver: an API that imported it lets go of it.
        self.before_free: list[Callable[[], None]] = []

    def _map(self) -> int:
        out = ffi.new("void**")
        fn = self.device.fn
        vk.check(fn.vkMapMemory(self.device.handle, self.memory, 0, vk.WHOLE_SIZE, 0, out), "vkMapMemory")
        return vk.address(out[0])

    def take(self, size: int, alignment: int) -> Allocation | None:
        """First fit; None when no free range is large enough."""
        for index, (start, length) in enumerate(self.free_ranges):
            offset = -(-start // alignment) * alignment
            if offset + size > start + length:
                continue
            rest = [(start, offset - start), (offset + size, start + length - offset - size)]
            self.free_ranges[index : index + 1] = [item for item in rest if item[1]]
            return Allocation(self, offset, size)
        return None

    def release(self, allocation: Allocation) -> None:
        """Give a piece back and join it with free neighbours."""
        ranges = sorted([*self.free_ranges, (allocation.offset, allocation.size)])
        joined = [ranges[0]]
        for start, length in ranges[1:]:
            last_start, last_length = joined[-1]
            if last_start + last_length == start:
                joined[-1] = (last_start, last_length + length)
            else:
                joined.append((start, length))
        self.free_ranges = joined

    @property
    def empty(self) -> bool:
        return self.free_ranges == [(0, self.size)]

    def destroy(self) -> None:
        for let_go in self.before_free:
            let_go()
        self.device.destroy("vkFreeMemory", self.memory)


class Allocator:
    """Hands out pieces of blocks; buffers and images live in different blocks (bufferImageGranularity).

    Attributes
    ----------
    allocations : int
        Pieces handed out since the start. It must not grow after warm-up: the report compares it.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        properties = ffi.new("VkPhysicalDeviceMemoryProperties*")
        device.instance.fn.vkGetPhysicalDeviceMemoryProperties(device.physical.handle, properties)
        self._flags = [int(properties.memoryTypes[i].propertyFlags) for i in range(properties.memoryTypeCount)]
        self._pools: dict[tuple[Any, ...], list[Block]] = {}
        self._lock = threading.Lock()
        self.allocations = 0

    def allocate(self, requirements: Any, kind: MemoryKind, pool: str, export: Any = None) -> Allocation:
        """Find room for a resource.

        Parameters
        ----------
        requirements : VkMemoryRequirements
        kind : {'device', 'upload', 'readback'}
        pool : str
            Resources of different pools never share a block.
        export : cdata, optional
            A VkExportMemoryAllocateInfo: the block gets shared with another API.

        Raises
        ------
        DeviceError
            Memory is exhausted, or no memory type fits.
        """
        type_index = self._type(requirements.memoryTypeBits, kind)
        key = (type_index, pool, bool(export))
        with self._lock:
            self.allocations += 1
            blocks = self._pools.setdefault(key, [])
            for block in blocks:
                piece = block.take(requirements.size, requirements.alignment)
                if piece is not None:
                    return piece
            size = max(BLOCK, -(-int(requirements.size) // 65536) * 65536)
            block = Block(self.device, type_index, size, bool(self._flags[type_index] & _VISIBLE), export)
            blocks.append(block)
            piece = block.take(requirements.size, requirements.alignment)
            assert piece is not None, "a fresh block holds what it was sized for"
            return piece

    def _type(self, bits: int, kind: MemoryKind) -> int:
        required, preferred = _WANTED[kind]
        fitting = [i for i, flags in enumerate(self._flags) if bits >> i & 1 and flags & required == required]
        if not fitting:
            raise DeviceError(f"the device has no memory type for {kind!r} use (types {bits:#x}); see `raven doctor`")
        # The first of the fitting types is the driver's own preference; only a wanted property overrides that.
        return max(fitting, key=lambda i: (self._flags[i] & preferred == preferred, -i))

    def free(self, allocation: Allocation) -> None:
        """Give a piece back; a block that becomes empty goes back to the driver."""
        with self._lock:
            allocation.free()
            if allocation.block.empty:
                for blocks in self._pools.values():
                    if allocation.block in blocks:
                        blocks.remove(allocation.block)
                allocation.block.destroy()

    @property
    def reserved(self) -> int:
        """Bytes of device memory held from the driver."""
        return sum(block.size for blocks in self._pools.values() for block in blocks)
