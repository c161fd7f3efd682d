"""Vulkan: instance, device, memory, images, pipelines, commands, timelines, and the Slang compiler."""

from raven.gpu.buffer import Buffer, Image
from raven.gpu.clock import GpuClock
from raven.gpu.commands import CommandPool, Recorder
from raven.gpu.device import Capabilities, Device, list_devices
from raven.gpu.pipeline import ComputePipeline, DescriptorSet, GraphicsPipeline, Pipeline
from raven.gpu.timeline import Queue, Submission, Timeline

__all__ = [
    "Buffer",
    "Capabilities",
    "CommandPool",
    "ComputePipeline",
    "DescriptorSet",
    "Device",
    "GpuClock",
    "GraphicsPipeline",
    "Image",
    "Pipeline",
    "Queue",
    "Recorder",
    "Submission",
    "Timeline",
    "list_devices",
]
