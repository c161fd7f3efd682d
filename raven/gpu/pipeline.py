"""Pipelines and descriptor sets."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raven.gpu import vk
from raven.gpu.vk import ffi

if TYPE_CHECKING:
    from raven.gpu.buffer import Image
    from raven.gpu.device import Device

_COMPUTE, _VERTEX, _FRAGMENT = 0x20, 0x1, 0x10
_TASK, _MESH = 0x40, 0x80
_DESCRIPTOR = {"sampled": 2, "storage": 3}
#: A descriptor layout: (kind, count) a binding; kinds are ``sampled`` (Texture2D) and ``storage`` (RWTexture2D).
Bindings = Sequence[tuple[str, int]]


class Pipeline:
    """A compute or graphics pipeline and its layout.

    Parameters
    ----------
    name : str
        Shader file below shaders/, without ``.slang``.
    push_size : int
        Bytes of push constants, all stages.
    bindings : sequence of (str, int)
        Descriptor set 0.
    """

    def __init__(self, device: Device, name: str, push_size: int, bindings: Bindings, stages: int, point: int) -> None:
        self.device, self.name, self.push_size, self.push_stages, self.bind_point = (
            device,
            name,
            push_size,
            stages,
            point,
        )
        self.bindings = tuple(bindings)
        self.set_layout = self._set_layout() if bindings else None
        ranges = [vk.new("VkPushConstantRange", stageFlags=stages, size=push_size)] if push_size else []
        sets = [self.set_layout] if self.set_layout is not None else []
        info = vk.new(
            "VkPipelineLayoutCreateInfo",
            setLayoutCount=len(sets),
            pSetLayouts=sets,
            pushConstantRangeCount=len(ranges),
            pPushConstantRanges=ranges,
        )
        self.layout = device.create("vkCreatePipelineLayout", "VkPipelineLayout", info)
        self.handle: Any = None

    def _set_layout(self) -> Any:
        items = [
            vk.new(
                "VkDescriptorSetLayoutBinding",
                binding=index,
                descriptorType=_DESCRIPTOR[kind],
                descriptorCount=count,
                stageFlags=self.push_stages,
            )
            for index, (kind, count) in enumerate(self.bindings)
        ]
        info = vk.new("VkDescriptorSetLayoutCreateInfo", bindingCount=len(items), pBindings=items)
        return self.device.create("vkCreateDescriptorSetLayout", "VkDescriptorSetLayout", info)

    def _build(self, call: str, info: Any) -> None:
        out = ffi.new("VkPipeline*")
        function = getattr(self.device.fn, call)
        code = function(self.device.handle, self.device.pipeline_cache, 1, info, vk.NULL, out)
        vk.check(code, f"{call} ({self.name})")
        self.device.counts["VkPipeline"] += 1
        self.handle = out[0]

    def _stage(self, bit: int, entry: str, constants: Mapping[int, int]) -> Any:
        module = self.device.shader_module(self.device.shaders.spirv(self.name, entry))
        return vk.new(
            "VkPipelineShaderStageCreateInfo",
            stage=bit,
            module=module,
            pName="main",
            pSpecializationInfo=_specialisation(constants),
        )

    def descriptors(self, images: Sequence[Image | Sequence[Image]]) -> DescriptorSet:
        """Make a descriptor set: one image (or a list of them) a binding."""
        return DescriptorSet(self, images)

    def destroy(self) -> None:
        """Release the pipeline and its layouts; idempotent."""
        if self.handle is None:
            return
        self.device.destroy("vkDestroyPipeline", self.handle)
        self.device.destroy("vkDestroyPipelineLayout", self.layout)
        if self.set_layout is not None:
            self.device.destroy("vkDestroyDescriptorSetLayout", self.set_layout)
        self.handle = None


class ComputePipeline(Pipeline):
    """A compute pipeline.

    Parameters
    ----------
    entry : str
        Entry point in the Slang file.
    constants : mapping of int to int
        Specialisation constants by id (32-bit; give floats through their bits).
    """

    def __init__(
        self,
        device: Device,
        name: str,
        entry: str = "computeMain",
        *,
        push_size: int = 0,
        bindings: Bindings = (),
        constants: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(device, name, push_size, bindings, _COMPUTE, 1)
        stage = self._stage(_COMPUTE, entry, constants or {})
        info = vk.new("VkComputePipelineCreateInfo", stage=stage, layout=self.layout)
        self._build("vkCreateComputePipelines", info)


class GraphicsPipeline(Pipeline):
    """A graphics pipeline without vertex buffers, for dynamic rendering.

    Parameters
    ----------
    entries : tuple of str
        Vertex and fragment entry points, or task, mesh and fragment.
    target : str or None
        Format of the colour attachment (``R8G8B8A8_UNORM``); None: no attachment.
    blend : bool
        Premultiplied alpha over what is there.
    strip : bool
        Triangle strips instead of triangle lists.
    """

    def __init__(
        self,
        device: Device,
        name: str,
        entries: tuple[str, ...] = ("vertexMain", "fragmentMain"),
        *,
        target: str | None,
        push_size: int = 0,
        bindings: Bindings = (),
        constants: Mapping[int, int] | None = None,
        blend: bool = True,
        strip: bool = False,
    ) -> None:
        mesh = len(entries) == 3
        stages = _TASK | _MESH | _FRAGMENT if mesh else _VERTEX | _FRAGMENT
        super().__init__(device, name, push_size, bindings, stages, 0)
        bits = (_TASK, _MESH, _FRAGMENT) if mesh else (_VERTEX, _FRAGMENT)
        shaders = [self._stage(bit, entry, constants or {}) for bit, entry in zip(bits, entries, strict=True)]
        info = self._info(shaders, target, blend, strip, mesh)
        self._build("vkCreateGraphicsPipelines", info)

    def _info(self, shaders: list[Any], target: str | None, blend: bool, strip: bool, mesh: bool) -> Any:
        formats = [] if target is None else [int(getattr(vk, "VK_FORMAT_" + target))]
        rendering = vk.new(
            "VkPipelineRenderingCreateInfo", colorAttachmentCount=len(formats), pColorAttachmentFormats=formats
        )
        attachments = [_blend_state(blend)] if formats else []
        assembly = vk.new("VkPipelineInputAssemblyStateCreateInfo", topology=4 if strip else 3)
        return vk.new(
            "VkGraphicsPipelineCreateInfo",
            pNext=rendering,
            stageCount=len(shaders),
            pStages=shaders,
            pVertexInputState=vk.NULL if mesh else vk.new("VkPipelineVertexInputStateCreateInfo"),
            pInputAssemblyState=vk.NULL if mesh else assembly,
            pViewportState=vk.new("VkPipelineViewportStateCreateInfo", viewportCount=1, scissorCount=1),
            pRasterizationState=vk.new("VkPipelineRasterizationStateCreateInfo", lineWidth=1.0),
            pMultisampleState=vk.new("VkPipelineMultisampleStateCreateInfo", rasterizationSamples=1),
            pColorBlendState=vk.new(
                "VkPipelineColorBlendStateCreateInfo", attachmentCount=len(attachments), pAttachments=attachments
            ),
            pDynamicState=vk.new("VkPipelineDynamicStateCreateInfo", dynamicStateCount=2, pDynamicStates=[0, 1]),
            layout=self.layout,
        )


def _blend_state(blend: bool) -> Any:
    one, one_minus_alpha = 1, 7
    return vk.new(
        "VkPipelineColorBlendAttachmentState",
        blendEnable=int(blend),
        srcColorBlendFactor=one,
        dstColorBlendFactor=one_minus_alpha,
        srcAlphaBlendFactor=one,
        dstAlphaBlendFactor=one_minus_alpha,
        colorWriteMask=0xF,
    )


def _specialisation(constants: Mapping[int, int]) -> Any:
    if not constants:
        return vk.NULL
    entries = [
        vk.new("VkSpecializationMapEntry", constantID=key, offset=4 * slot, size=4)
        for slot, key in enumerate(constants)
    ]
    data = ffi.new("char[]", struct.pack(f"<{len(constants)}I", *(v & 0xFFFFFFFF for v in constants.values())))
    return vk.new(
        "VkSpecializationInfo",
        mapEntryCount=len(entries),
        pMapEntries=entries,
        dataSize=4 * len(constants),
        pData=data,
    )


class DescriptorSet:
    """One descriptor set with a pool of its own: sets are few, made at warm-up, and released one by one."""

    def __init__(self, pipeline: Pipeline, images: Sequence[Image | Sequence[Image]]) -> None:
        self.device = pipeline.device
        sizes = [
            vk.new("VkDescriptorPoolSize", type=_DESCRIPTOR[kind], descriptorCount=n) for kind, n in pipeline.bindings
        ]
        info = vk.new("VkDescriptorPoolCreateInfo", maxSets=1, poolSizeCount=len(sizes), pPoolSizes=sizes)
        self.pool = self.device.create("vkCreateDescriptorPool", "VkDescriptorPool", info)
        ask = vk.new(
            "VkDescriptorSetAllocateInfo",
            descriptorPool=self.pool,
            descriptorSetCount=1,
            pSetLayouts=[pipeline.set_layout],
        )
        out = ffi.new("VkDescriptorSet*")
        vk.check(self.device.fn.vkAllocateDescriptorSets(self.device.handle, ask, out), "vkAllocateDescriptorSets")
        self.handle = out[0]
        self._write(pipeline.bindings, images)

    def _write(self, bindings: Bindings, images: Sequence[Image | Sequence[Image]]) -> None:
        writes = []
        for index, ((kind, count), given) in enumerate(zip(bindings, images, strict=True)):
            group: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
            group += [group[-1]] * (count - len(group))  # unused slots repeat the last image: all must be valid
            infos = [vk.new("VkDescriptorImageInfo", imageView=image.view, imageLayout=1) for image in group]
            writes.append(
                vk.new(
                    "VkWriteDescriptorSet",
                    dstSet=self.handle,
                    dstBinding=index,
                    descriptorCount=count,
                    descriptorType=_DESCRIPTOR[kind],
                    pImageInfo=infos,
                )
            )
        data = vk.array("VkWriteDescriptorSet", writes)
        self.device.fn.vkUpdateDescriptorSets(self.device.handle, len(writes), data, 0, vk.NULL)

    def destroy(self) -> None:
        if self.pool is not None:
            self.device.destroy("vkDestroyDescriptorPool", self.pool)
            self.pool = None
