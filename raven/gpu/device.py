"""The logical device: what it can do, its queues, and a count of every object made from it."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from raven.errors import DeviceError
from raven.gpu import vk
from raven.gpu.commands import CommandPool, Recorder
from raven.gpu.instance import Instance, PhysicalDevice, choose_device
from raven.gpu.memory import Allocator
from raven.gpu.shaders import ShaderLibrary
from raven.gpu.timeline import Queue, Timeline
from raven.gpu.vk import ffi

_VK12 = "VkPhysicalDeviceVulkan12Features"
_VK13 = "VkPhysicalDeviceVulkan13Features"
_CORE = "VkPhysicalDeviceFeatures2"
#: (struct, field) of every feature that Raven cannot do without.
_REQUIRED = (
    (_CORE, "shaderInt64"),
    (_CORE, "fragmentStoresAndAtomics"),
    (_CORE, "shaderInt16"),
    (_VK12, "bufferDeviceAddress"),
    (_VK12, "timelineSemaphore"),
    (_VK12, "storageBuffer8BitAccess"),
    (_VK12, "shaderInt8"),
    (_VK13, "dynamicRendering"),
    (_VK13, "synchronization2"),
)
_OPTIONAL_CORE = ("robustBufferAccess", "shaderFloat64")
_OPTIONAL_12 = ("hostQueryReset", "shaderFloat16", "scalarBlockLayout", "shaderBufferInt64Atomics")


@dataclass(frozen=True)
class Capabilities:
    """Optional things that this device has; everything else is required and checked on opening."""

    conditional_rendering: bool = False
    mesh_shader: bool = False
    external_memory_fd: bool = False
    external_semaphore_fd: bool = False
    swapchain: bool = False
    timestamps: bool = False
    timestamp_period: float = 1.0
    shader_float16: bool = False
    int64_atomics: bool = False
    host_memory: bool = False


def _probe(physical: PhysicalDevice) -> tuple[Capabilities, dict[str, Any], list[str]]:
    """Capabilities, the feature chain as the driver reports it, and the names of what is required but missing."""
    has = physical.extensions.__contains__
    names = [_VK12, _VK13, "VkPhysicalDevice16BitStorageFeatures"]
    if has("VK_EXT_conditional_rendering"):
        names.append("VkPhysicalDeviceConditionalRenderingFeaturesEXT")
    if has("VK_EXT_mesh_shader"):
        names.append("VkPhysicalDeviceMeshShaderFeaturesEXT")
    chain = physical.features(*names)
    missing = [field for struct, field in _REQUIRED if not _feature(chain, struct, field)]
    if not chain["VkPhysicalDevice16BitStorageFeatures"].storageBuffer16BitAccess:
        missing.append("storageBuffer16BitAccess")
    if physical.api < vk.make_version(1, 3):
        missing.append(f"Vulkan 1.3 (has {vk.version(physical.api)})")
    conditional = chain.get("VkPhysicalDeviceConditionalRenderingFeaturesEXT")
    mesh = chain.get("VkPhysicalDeviceMeshShaderFeaturesEXT")
    caps = Capabilities(
        conditional_rendering=bool(conditional and conditional.conditionalRendering),
        mesh_shader=bool(mesh and mesh.meshShader and mesh.taskShader),
        external_memory_fd=has("VK_KHR_external_memory_fd"),
        external_semaphore_fd=has("VK_KHR_external_semaphore_fd"),
        swapchain=has("VK_KHR_swapchain"),
        timestamps=bool(physical.limits.timestampComputeAndGraphics) and physical.type != "cpu",
        timestamp_period=float(physical.limits.timestampPeriod),
        shader_float16=bool(chain[_VK12].shaderFloat16),
        int64_atomics=bool(chain[_VK12].shaderBufferInt64Atomics),
        host_memory=physical.type in ("cpu", "integrated"),
    )
    return caps, chain, missing


def _feature(chain: dict[str, Any], struct: str, field: str) -> bool:
    owner = chain[struct].features if struct == _CORE else chain[struct]
    return bool(getattr(owner, field))


def list_devices() -> list[dict[str, Any]]:
    """Describe every Vulkan device: index, name, type, driver, api, uuid, missing features, capabilities.

    Raises
    ------
    DeviceError
        No loader or no driver.
    """
    instance = Instance(validation=False)
    try:
        return [_describe(physical) for physical in instance.physical_devices()]
    finally:
        instance.close()


def _describe(physical: PhysicalDevice) -> dict[str, Any]:
    caps, _, missing = _probe(physical)
    return {
        "index": physical.index,
        "name": physical.name,
        "type": physical.type,
        "driver": physical.driver,
        "api": vk.version(physical.api),
        "uuid": physical.uuid,
        "missing": missing,
        "capabilities": asdict(caps),
    }


class Device:
    """An open Vulkan device.

    Parameters
    ----------
    selector : str or None
        Index, name or UUID; None: RAVEN_DEVICE, then discrete, integrated, virtual, CPU.
    validation : bool or None
        The validation layer (None: RAVEN_VALIDATION). With it, robust buffer access is on too.
    surface_extensions : tuple of str
        Instance extensions of a window system; they switch the swapchain on.

    Attributes
    ----------
    caps : Capabilities
    physical : PhysicalDevice
    memory : Allocator
    shaders : ShaderLibrary
    graphics, compute : list of Queue
        Queues that can draw, and queues that only compute (the same list where there are none of the latter).
    counts : collections.Counter
        Live Vulkan objects by type. All zero after :meth:`close`.

    Raises
    ------
    DeviceError
        No such device, or it lacks something required (the message names it).
    """

    def __init__(
        self,
        selector: str | None = None,
        *,
        validation: bool | None = None,
        surface_extensions: tuple[str, ...] = (),
    ) -> None:
        self.handle: Any = None
        self.counts: Counter[str] = Counter()
        self._immediate_lock = threading.Lock()
        self.instance = Instance(validation, surface_extensions)
        try:
            self.physical = choose_device(self.instance.physical_devices(), selector)
            self.caps, features, missing = _probe(self.physical)
            if missing:
                raise DeviceError(
                    f"{self.physical.name} lacks {', '.join(missing)}; update its driver or choose another"
                )
            self._create(features, bool(surface_extensions))
        except BaseException:
            self.instance.close()
            raise
        self.memory = Allocator(self)
        self.shaders = ShaderLibrary()
        self._modules: dict[bytes, Any] = {}
        self._pipeline_cache = _PipelineCache(self)
        self._pool = CommandPool(self, self.graphics[0].family)
        self._once = Timeline(self)

    @property
    def name(self) -> str:
        """The device's name as the driver gives it."""
        return self.physical.name

    # -- creation ------------------------------------------------------------------------------------------------

    def _create(self, features: dict[str, Any], surface: bool) -> None:
        wanted = self._wanted_features(features)
        extensions = self._wanted_extensions(surface)
        families = self._families()
        infos = [
            vk.new("VkDeviceQueueCreateInfo", queueFamilyIndex=f, queueCount=n, pQueuePriorities=[1.0] * n)
            for f, n in families.items()
        ]
        info = vk.new(
            "VkDeviceCreateInfo",
            pNext=wanted,
            queueCreateInfoCount=len(infos),
            pQueueCreateInfos=infos,
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=extensions,
        )
        out = ffi.new("VkDevice*")
        vk.check(self.instance.fn.vkCreateDevice(self.physical.handle, info, vk.NULL, out), "vkCreateDevice")
        self.handle = out[0]
        self.fn = vk.Functions(self.instance.fn.vkGetDeviceProcAddr, self.handle)
        queues = {f: [Queue(self, f, i) for i in range(n)] for f, n in families.items()}
        self.graphics = queues[self._graphics_family]
        self.compute = queues.get(self._compute_family, self.graphics)

    def _wanted_features(self, reported: dict[str, Any]) -> Any:
        """A chain of only what is required, and what is optional and there."""
        core = vk.new("VkPhysicalDeviceFeatures2")
        new12, new13 = vk.new(_VK12), vk.new(_VK13)
        mine = {_CORE: core.features, _VK12: new12, _VK13: new13}
        for struct, field in _REQUIRED:
            setattr(mine[struct], field, 1)
        for field in _OPTIONAL_12:
            setattr(new12, field, getattr(reported[_VK12], field))
        core.features.shaderFloat64 = reported[_CORE].features.shaderFloat64
        core.features.robustBufferAccess = int(bool(self.instance.validation))
        store16 = vk.new("VkPhysicalDevice16BitStorageFeatures", storageBuffer16BitAccess=1)
        chain = [core, new12, new13, store16]
        if self.caps.conditional_rendering:
            chain.append(vk.new("VkPhysicalDeviceConditionalRenderingFeaturesEXT", conditionalRendering=1))
        if self.caps.mesh_shader:
            chain.append(vk.new("VkPhysicalDeviceMeshShaderFeaturesEXT", meshShader=1, taskShader=1))
        for first, second in itertools.pairwise(chain):
            first.pNext = second
        self._feature_chain = chain  # alive until the device is made
        return core

    def _wanted_extensions(self, surface: bool) -> list[str]:
        caps = self.caps
        optional = {
            "VK_EXT_conditional_rendering": caps.conditional_rendering,
            "VK_EXT_mesh_shader": caps.mesh_shader,
            "VK_KHR_external_memory_fd": caps.external_memory_fd,
            "VK_KHR_external_semaphore_fd": caps.external_semaphore_fd,
            "VK_KHR_swapchain": surface,
        }
        if surface and not caps.swapchain:
            raise DeviceError(f"{self.physical.name} cannot present to a window; use `raven run -o FILE` instead")
        return [name for name, on in optional.items() if on]

    def _families(self) -> dict[int, int]:
        """Queue counts by family: one that draws, and one that only computes where there is such a family."""
        query = self.instance.fn.vkGetPhysicalDeviceQueueFamilyProperties
        count = ffi.new("uint32_t*")
        query(self.physical.handle, count, vk.NULL)
        found = ffi.new("VkQueueFamilyProperties[]", count[0])
        query(self.physical.handle, count, found)
        flags = [int(item.queueFlags) for item in found]
        draws = [i for i, f in enumerate(flags) if f & 1 and f & 2]
        computes = [i for i, f in enumerate(flags) if f & 2 and not f & 1]
        if not draws:
            raise DeviceError(f"{self.physical.name} has no queue that both draws and computes; choose another device")
        self._graphics_family = draws[0]
        self._compute_family = computes[0] if computes else draws[0]
        return {f: min(int(found[f].queueCount), 8) for f in {self._graphics_family, self._compute_family}}

    # -- objects -------------------------------------------------------------------------------------------------

    def create(self, call: str, ctype: str, info: Any) -> Any:
        """Call a vkCreate or vkAllocate function and count the object."""
        out = ffi.new(ctype + "*")
        vk.check(getattr(self.fn, call)(self.handle, info, vk.NULL, out), call)
        self.counts[ctype] += 1
        return out[0]

    def destroy(self, call: str, handle: Any) -> None:
        """Call a vkDestroy or vkFree function and count the object off."""
        getattr(self.fn, call)(self.handle, handle, vk.NULL)
        self.counts[ffi.typeof(handle).cname.replace("struct ", "").replace("_T *", "").rstrip(" *")] -= 1

    def shader_module(self, code: bytes) -> Any:
        """VkShaderModule of SPIR-V, made once."""
        if code not in self._modules:
            words = ffi.from_buffer("uint32_t[]", code)
            info = vk.new("VkShaderModuleCreateInfo", codeSize=len(code), pCode=words)
            self._modules[code] = self.create("vkCreateShaderModule", "VkShaderModule", info)
        return self._modules[code]

    @property
    def pipeline_cache(self) -> Any:
        """The VkPipelineCache that every pipeline goes through."""
        return self._pipeline_cache.handle

    def sharing(self) -> dict[str, Any]:
        """Fields of a create-info: resources belong to every queue family in use, so that no pass hands them over."""
        families = sorted({self._graphics_family, self._compute_family})
        if len(families) == 1:
            return {}
        indices = {"queueFamilyIndexCount": len(families), "pQueueFamilyIndices": families}
        return {"sharingMode": vk.VK_SHARING_MODE_CONCURRENT, **indices}

    def export_memory_info(self) -> Any:
        """VkExportMemoryAllocateInfo for memory shared with CUDA."""
        return vk.new("VkExportMemoryAllocateInfo", handleTypes=0x1)  # opaque fd

    def external_buffer_info(self) -> Any:
        """VkExternalMemoryBufferCreateInfo for a buffer shared with CUDA."""
        return vk.new("VkExternalMemoryBufferCreateInfo", handleTypes=0x1)

    def external_image_info(self) -> Any:
        """VkExternalMemoryImageCreateInfo for an image shared with CUDA."""
        return vk.new("VkExternalMemoryImageCreateInfo", handleTypes=0x1)

    # -- work ----------------------------------------------------------------------------------------------------

    def immediate(self, record: Callable[[Recorder], None]) -> None:
        """Record, submit and wait. For set-up and tests only; the frame path never calls it."""
        with self._immediate_lock:
            recorder = self._pool.recorder()
            record(recorder)
            commands = recorder.end()
            target = self._once.value() + 1
            self.graphics[0].submit_once(commands, self._once, target)
            self._once.wait(target)
            self._pool.free(commands)

    def wait_idle(self) -> None:
        """Wait until the GPU has nothing left to do; for tear-down."""
        vk.check(self.fn.vkDeviceWaitIdle(self.handle), "vkDeviceWaitIdle")

    def close(self) -> None:
        """Destroy the device and its instance; idempotent. Objects made from it must be destroyed first."""
        if self.handle is None:
            return
        self.fn.vkDeviceWaitIdle(self.handle)
        self._pipeline_cache.close()
        self._once.destroy()
        self._pool.destroy()
        for module in self._modules.values():
            self.destroy("vkDestroyShaderModule", module)
        self.fn.vkDestroyDevice(self.handle, vk.NULL)
        self.handle = None
        self.instance.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _PipelineCache:
    """Compiled pipelines kept on disk, one file a device and driver; the driver rejects a file that is not its own."""

    def __init__(self, device: Device) -> None:
        from raven.gpu.cache import cache_dir

        identity = f"{device.physical.uuid}-{device.physical.properties.driverVersion:x}"
        self.device, self.path = device, cache_dir("pipelines") / f"{identity}.bin"
        data = self._load()
        info = vk.new(
            "VkPipelineCacheCreateInfo",
            initialDataSize=len(data),
            pInitialData=ffi.from_buffer(data) if data else vk.NULL,
        )
        self.handle = device.create("vkCreatePipelineCache", "VkPipelineCache", info)
        self._loaded = len(data)

    def _load(self) -> bytes:
        try:
            data = self.path.read_bytes()
        except OSError:
            return b""
        # VkPipelineCacheHeaderVersionOne: size, version, vendor, device, then the driver's cache UUID.
        expected = bytes(self.device.physical.properties.pipelineCacheUUID)
        return data if len(data) > 32 and data[16:32] == expected else b""

    def close(self) -> None:
        """Write the cache back if it grew, then destroy it."""
        from raven.gpu.cache import write_atomically

        size = ffi.new("size_t*")
        fn, handle = self.device.fn, self.device.handle
        fn.vkGetPipelineCacheData(handle, self.handle, size, vk.NULL)
        if size[0] > self._loaded:
            data = ffi.new("char[]", size[0])
            fn.vkGetPipelineCacheData(handle, self.handle, size, data)
            write_atomically(self.path, bytes(ffi.buffer(data, size[0])))
        self.device.destroy("vkDestroyPipelineCache", self.handle)
