"""Recording of command buffers. They are recorded once, at warm-up, and submitted for every frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raven.gpu import vk
from raven.gpu.vk import ffi

if TYPE_CHECKING:
    from raven.gpu.buffer import Buffer, Image
    from raven.gpu.device import Device
    from raven.gpu.pipeline import DescriptorSet, Pipeline

_READ, _WRITE = 0x8000, 0x10000  # VK_ACCESS_2_MEMORY_READ and _WRITE
#: Stages by the words that :meth:`Recorder.barrier` takes.
_STAGES = {
    "transfer": 0x1000 | 0x800000000,  # transfer and clear
    "compute": 0x800,
    "vertex": 0x8,
    "fragment": 0x80,
    "target": 0x400,
    "indirect": 0x2 | 0x40000,  # indirect arguments and conditional rendering
    "host": 0x4000,
    "mesh": 0x80000 | 0x100000,
    "all": 0x10000,
}
_GENERAL = 1


class CommandPool:
    """Allocates command buffers of one queue family."""

    def __init__(self, device: Device, family: int) -> None:
        self.device = device
        info = vk.new("VkCommandPoolCreateInfo", queueFamilyIndex=family, flags=0x2)
        self.handle = device.create("vkCreateCommandPool", "VkCommandPool", info)

    def recorder(self) -> Recorder:
        """Begin a command buffer that may be submitted any number of times."""
        info = vk.new("VkCommandBufferAllocateInfo", commandPool=self.handle, commandBufferCount=1)
        out = ffi.new("VkCommandBuffer*")
        vk.check(self.device.fn.vkAllocateCommandBuffers(self.device.handle, info, out), "vkAllocateCommandBuffers")
        return Recorder(self.device, out[0])

    def free(self, commands: Any) -> None:
        self.device.fn.vkFreeCommandBuffers(
            self.device.handle, self.handle, 1, ffi.new("VkCommandBuffer[1]", [commands])
        )

    def destroy(self) -> None:
        if self.handle is not None:
            self.device.destroy("vkDestroyCommandPool", self.handle)
            self.handle = None


class Recorder:
    """Records one command buffer."""

    def __init__(self, device: Device, commands: Any) -> None:
        self.device, self.commands, self.fn = device, commands, device.fn
        begin = vk.new("VkCommandBufferBeginInfo")
        vk.check(self.fn.vkBeginCommandBuffer(commands, begin), "vkBeginCommandBuffer")

    def end(self) -> Any:
        """Finish; return the VkCommandBuffer."""
        vk.check(self.fn.vkEndCommandBuffer(self.commands), "vkEndCommandBuffer")
        return self.commands

    def barrier(self, before: str, after: str) -> None:
        """Make all writes of some stages visible to others.

        Parameters
        ----------
        before, after : str
            Words separated by blanks: transfer, compute, vertex, fragment, target, indirect, host, mesh, all.
        """
        source, target = (sum(_STAGES[word] for word in text.split()) for text in (before, after))
        item = vk.new(
            "VkMemoryBarrier2",
            srcStageMask=source,
            srcAccessMask=_READ | _WRITE,
            dstStageMask=target,
            dstAccessMask=_READ | _WRITE,
        )
        info = vk.new("VkDependencyInfo", memoryBarrierCount=1, pMemoryBarriers=item)
        self.fn.vkCmdPipelineBarrier2(self.commands, info)

    def image_to_general(self, image: Image) -> None:
        """Give a fresh image its one layout."""
        item = vk.new(
            "VkImageMemoryBarrier2",
            srcStageMask=_STAGES["all"],
            dstStageMask=_STAGES["all"],
            dstAccessMask=_READ | _WRITE,
            newLayout=_GENERAL,
            srcQueueFamilyIndex=vk.QUEUE_FAMILY_IGNORED,
            dstQueueFamilyIndex=vk.QUEUE_FAMILY_IGNORED,
            image=image.handle,
            subresourceRange=_range(),
        )
        info = vk.new("VkDependencyInfo", imageMemoryBarrierCount=1, pImageMemoryBarriers=item)
        self.fn.vkCmdPipelineBarrier2(self.commands, info)

    # -- compute -------------------------------------------------------------------------------------------------

    def bind(self, pipeline: Pipeline, push: bytes = b"", descriptors: DescriptorSet | None = None) -> None:
        """Bind a pipeline with its push constants and descriptor set."""
        point = pipeline.bind_point
        self.fn.vkCmdBindPipeline(self.commands, point, pipeline.handle)
        if descriptors is not None:
            sets = ffi.new("VkDescriptorSet[1]", [descriptors.handle])
            self.fn.vkCmdBindDescriptorSets(self.commands, point, pipeline.layout, 0, 1, sets, 0, vk.NULL)
        if push:
            if len(push) != pipeline.push_size:
                raise ValueError(
                    f"{pipeline.name}: {len(push)} bytes of push constants, layout has {pipeline.push_size}"
                )
            data = ffi.from_buffer(push)
            self.fn.vkCmdPushConstants(self.commands, pipeline.layout, pipeline.push_stages, 0, len(push), data)

    def dispatch(self, x: int, y: int = 1, z: int = 1) -> None:
        """Run the bound compute pipeline on this many workgroups."""
        self.fn.vkCmdDispatch(self.commands, x, y, z)

    def dispatch_indirect(self, buffer: Buffer, offset: int = 0) -> None:
        """Run the bound compute pipeline on as many workgroups as the buffer says at ``offset`` bytes."""
        self.fn.vkCmdDispatchIndirect(self.commands, buffer.handle, offset)

    # -- drawing -------------------------------------------------------------------------------------------------

    def begin_rendering(
        self, target: Image | None, size: tuple[int, int], clear: tuple[float, float, float, float] | None = None
    ) -> None:
        """Begin drawing onto an image (or onto nothing: fragment shaders then store through addresses)."""
        attachments = [] if target is None else [self._attachment(target, clear)]
        area = vk.new("VkRect2D", extent=vk.new("VkExtent2D", width=size[0], height=size[1]))
        info = vk.new(
            "VkRenderingInfo",
            renderArea=area,
            layerCount=1,
            colorAttachmentCount=len(attachments),
            pColorAttachments=attachments,
        )
        self.fn.vkCmdBeginRendering(self.commands, info)
        view = vk.new("VkViewport", width=size[0], height=size[1], maxDepth=1.0)
        self.fn.vkCmdSetViewport(self.commands, 0, 1, view)
        self.fn.vkCmdSetScissor(self.commands, 0, 1, area)

    @staticmethod
    def _attachment(target: Image, clear: tuple[float, float, float, float] | None) -> Any:
        value = ffi.new("VkClearValue*")
        value.color.float32 = clear or (0.0, 0.0, 0.0, 0.0)
        return vk.new(
            "VkRenderingAttachmentInfo",
            imageView=target.view,
            imageLayout=_GENERAL,
            loadOp=0 if clear is None else 1,
            storeOp=0,
            clearValue=value,
        )

    def end_rendering(self) -> None:
        self.fn.vkCmdEndRendering(self.commands)

    def draw(self, vertices: int, instances: int = 1) -> None:
        self.fn.vkCmdDraw(self.commands, vertices, instances, 0, 0)

    def draw_indirect(self, buffer: Buffer, offset: int = 0) -> None:
        """Draw what a VkDrawIndirectCommand at ``offset`` bytes says."""
        self.fn.vkCmdDrawIndirect(self.commands, buffer.handle, offset, 1, 16)

    def begin_condition(self, buffer: Buffer, offset: int) -> None:
        """Skip what follows where the 32-bit word at ``offset`` is zero (a no-op where the device cannot)."""
        if self.device.caps.conditional_rendering:
            info = vk.new("VkConditionalRenderingBeginInfoEXT", buffer=buffer.handle, offset=offset)
            self.fn.vkCmdBeginConditionalRenderingEXT(self.commands, info)

    def end_condition(self) -> None:
        if self.device.caps.conditional_rendering:
            self.fn.vkCmdEndConditionalRenderingEXT(self.commands)

    # -- transfers -----------------------------------------------------------------------------------------------

    def copy_buffer(self, source: Buffer, target: Buffer, size: int, source_at: int = 0, target_at: int = 0) -> None:
        region = vk.new("VkBufferCopy", srcOffset=source_at, dstOffset=target_at, size=size)
        self.fn.vkCmdCopyBuffer(self.commands, source.handle, target.handle, 1, region)

    def fill_buffer(self, buffer: Buffer, value: int = 0, offset: int = 0, size: int = vk.WHOLE_SIZE) -> None:
        """Fill with a 32-bit word."""
        self.fn.vkCmdFillBuffer(self.commands, buffer.handle, offset, size, value)

    def copy_buffer_to_image(self, source: Buffer, target: Image, offset: int = 0, row_pixels: int = 0) -> None:
        """Copy tightly packed (or ``row_pixels`` wide) pixels into the whole image."""
        region = self._region(target, offset, row_pixels)
        self.fn.vkCmdCopyBufferToImage(self.commands, source.handle, target.handle, _GENERAL, 1, region)

    def copy_image_to_buffer(self, source: Image, target: Buffer, offset: int = 0, row_pixels: int = 0) -> None:
        """Copy the whole image out, tightly packed or ``row_pixels`` wide."""
        region = self._region(source, offset, row_pixels)
        self.fn.vkCmdCopyImageToBuffer(self.commands, source.handle, _GENERAL, target.handle, 1, region)

    @staticmethod
    def _region(image: Image, offset: int, row_pixels: int) -> Any:
        layers = vk.new("VkImageSubresourceLayers", aspectMask=1, layerCount=1)
        extent = vk.new("VkExtent3D", width=image.width, height=image.height, depth=1)
        return vk.new(
            "VkBufferImageCopy",
            bufferOffset=offset,
            bufferRowLength=row_pixels,
            imageSubresource=layers,
            imageExtent=extent,
        )

    # -- time ----------------------------------------------------------------------------------------------------

    def timestamp(self, queries: Any, index: int) -> None:
        """Write the GPU's clock into a query once all commands so far have finished."""
        self.fn.vkCmdWriteTimestamp2(self.commands, _STAGES["all"], queries, index)

    def reset_queries(self, queries: Any, first: int, count: int) -> None:
        self.fn.vkCmdResetQueryPool(self.commands, queries, first, count)


def _range() -> Any:
    return vk.new("VkImageSubresourceRange", aspectMask=1, levelCount=1, layerCount=1)
