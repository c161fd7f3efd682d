"""The Vulkan instance, its validation messages, and the list of physical devices."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import Any

from raven.errors import DeviceError
from raven.gpu import vk
from raven.gpu.vk import ffi

log = logging.getLogger("raven.gpu")

VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
API_VERSION = vk.make_version(1, 3)
_LEVELS = {0x1: logging.DEBUG, 0x10: logging.INFO, 0x100: logging.WARNING, 0x1000: logging.ERROR}

_PERFORMANCE = 0x4

#: Every warning or error of the validation layer in this process, oldest first. Tests fail when it grows.
validation_messages: list[str] = []


@ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT")
def _on_message(severity: int, kinds: int, data: Any, user: Any) -> int:
    text = vk.string(data.pMessage)
    if int(kinds) == _PERFORMANCE and "instead of GENERAL" in text:
        return 0  # images stay in that layout on purpose: see gpu.buffer.Image
    log.log(_LEVELS.get(int(severity), logging.INFO), "validation: %s", text)
    if severity >= 0x100:
        validation_messages.append(text)
    return 0


def validation_wanted() -> bool:
    """True when RAVEN_VALIDATION asks for the validation layer."""
    return os.environ.get("RAVEN_VALIDATION", "0") not in ("", "0")


@dataclass
class Instance:
    """A Vulkan instance.

    Only what is there is asked for: the debug messenger with validation, the surface extensions with a window.

    Parameters
    ----------
    validation : bool or None
        Turn the Khronos validation layer on (None: as RAVEN_VALIDATION says).
    extensions : tuple of str
        Instance extensions that must be there (a window's).

    Raises
    ------
    DeviceError
        No loader, no driver, a missing layer or extension.
    """

    validation: bool | None = None
    extensions: tuple[str, ...] = ()
    handle: Any = field(default=None, init=False)
    fn: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        lib = vk.loader()
        if self.validation is None:
            self.validation = validation_wanted()
        self._global = vk.Functions(lib.vkGetInstanceProcAddr, vk.NULL)
        info = self._create_info()
        out = ffi.new("VkInstance*")
        vk.check(self._global.vkCreateInstance(info, vk.NULL, out), "vkCreateInstance")
        self.handle = out[0]
        self.fn = vk.Functions(lib.vkGetInstanceProcAddr, self.handle)
        self._messenger = self._make_messenger() if self.validation else None

    def _create_info(self) -> Any:
        layers, names = [], list(self.extensions)
        if self.validation:
            layers.append(VALIDATION_LAYER)
            names.append("VK_EXT_debug_utils")
        self._require("layer", layers, self._layers(), "apt-get install vulkan-validationlayers")
        self._require("extension", names, self._extensions(layers), "update the Vulkan loader and driver")
        return vk.new(
            "VkInstanceCreateInfo",
            pApplicationInfo=vk.new("VkApplicationInfo", pApplicationName="raven", apiVersion=API_VERSION),
            enabledLayerCount=len(layers),
            ppEnabledLayerNames=layers,
            enabledExtensionCount=len(names),
            ppEnabledExtensionNames=names,
        )

    def _layers(self) -> set[str]:
        found = self._global.enumerate("vkEnumerateInstanceLayerProperties", "VkLayerProperties")
        return {vk.string(item.layerName) for item in found}

    def _extensions(self, layers: list[str]) -> set[str]:
        names: set[str] = set()
        for layer in [vk.NULL, *(ffi.new("char[]", name.encode()) for name in layers)]:
            found = self._global.enumerate("vkEnumerateInstanceExtensionProperties", "VkExtensionProperties", layer)
            names |= {vk.string(item.extensionName) for item in found}
        return names

    @staticmethod
    def _require(kind: str, wanted: list[str], present: set[str], remedy: str) -> None:
        missing = [name for name in wanted if name not in present]
        if missing:
            raise DeviceError(f"Vulkan instance {kind} {', '.join(missing)} is not installed; {remedy}")

    def _make_messenger(self) -> Any:
        info = vk.new(
            "VkDebugUtilsMessengerCreateInfoEXT",
            messageSeverity=0x1100,  # warnings and errors
            messageType=0x7,  # general, validation, performance
            pfnUserCallback=_on_message,
        )
        out = ffi.new("VkDebugUtilsMessengerEXT*")
        vk.check(self.fn.vkCreateDebugUtilsMessengerEXT(self.handle, info, vk.NULL, out), "vkCreateDebugUtilsMessenger")
        return out[0]

    def physical_devices(self) -> list[PhysicalDevice]:
        """All devices that the drivers offer, in the loader's order."""
        found = self.fn.enumerate("vkEnumeratePhysicalDevices", "VkPhysicalDevice", self.handle)
        return [PhysicalDevice(self, index, handle) for index, handle in enumerate(found)]

    def close(self) -> None:
        """Destroy the instance; idempotent."""
        if self.handle is None:
            return
        if self._messenger is not None:
            self.fn.vkDestroyDebugUtilsMessengerEXT(self.handle, self._messenger, vk.NULL)
        self.fn.vkDestroyInstance(self.handle, vk.NULL)
        self.handle = None


_TYPES = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
_RANK = {"discrete": 0, "integrated": 1, "virtual": 2, "cpu": 3, "other": 4}


class PhysicalDevice:
    """What can be known of a device before it is opened: name, type, UUID, versions, extensions, limits."""

    def __init__(self, instance: Instance, index: int, handle: Any) -> None:
        self.instance, self.index, self.handle = instance, index, handle
        fn = instance.fn
        ids = vk.new("VkPhysicalDeviceIDProperties")
        driver = vk.new("VkPhysicalDeviceDriverProperties", pNext=ids)
        host = vk.new("VkPhysicalDeviceExternalMemoryHostPropertiesEXT", pNext=driver)
        mesh = vk.new("VkPhysicalDeviceMeshShaderPropertiesEXT", pNext=host)
        properties = vk.new("VkPhysicalDeviceProperties2", pNext=mesh)
        fn.vkGetPhysicalDeviceProperties2(handle, properties)
        self.properties = properties.properties
        self._keep = (properties, mesh, host, driver, ids)
        self.name = vk.string(self.properties.deviceName)
        self.type = _TYPES.get(self.properties.deviceType, "other")
        self.api = int(self.properties.apiVersion)
        self.uuid = bytes(ids.deviceUUID).hex()
        self.driver = f"{vk.string(driver.driverName)} {vk.string(driver.driverInfo)}".strip()
        self.limits = self.properties.limits
        found = fn.enumerate("vkEnumerateDeviceExtensionProperties", "VkExtensionProperties", handle, vk.NULL)
        self.extensions = {vk.string(item.extensionName) for item in found}

    @property
    def rank(self) -> tuple[int, int]:
        """Order of preference: discrete, integrated, virtual, CPU, then by index."""
        return _RANK[self.type], self.index

    def features(self, *names: str) -> dict[str, Any]:
        """Feature structs by type name, chained onto VkPhysicalDeviceFeatures2 (key ``VkPhysicalDeviceFeatures2``)."""
        chain: dict[str, Any] = {}
        following = vk.NULL
        for name in reversed(names):
            following = chain[name] = vk.new(name, pNext=following)
        chain["VkPhysicalDeviceFeatures2"] = vk.new("VkPhysicalDeviceFeatures2", pNext=following)
        self.instance.fn.vkGetPhysicalDeviceFeatures2(self.handle, chain["VkPhysicalDeviceFeatures2"])
        return chain


def choose_device(devices: list[PhysicalDevice], selector: str | None) -> PhysicalDevice:
    """Pick a device.

    Parameters
    ----------
    selector : str or None
        Index, UUID (with or without dashes) or part of the name; None: RAVEN_DEVICE, then discrete, integrated,
        virtual, CPU.

    Raises
    ------
    DeviceError
        None present, or none (or several) match the selector.
    """
    if not devices:
        raise DeviceError(
            "the Vulkan loader found no device; on Debian or Ubuntu: apt-get install mesa-vulkan-drivers (software)"
        )
    selector = selector if selector is not None else os.environ.get("RAVEN_DEVICE") or None
    if selector is None:
        return min(devices, key=lambda device: device.rank)
    return _matching(devices, selector)


def _matching(devices: list[PhysicalDevice], selector: str) -> PhysicalDevice:
    listing = "; ".join(f"{d.index}: {d.name} ({d.uuid})" for d in devices)
    if selector.isdigit() and len(selector) < 4:
        found = [d for d in devices if d.index == int(selector)]
    else:
        plain = selector.replace("-", "").lower()
        found = [d for d in devices if d.uuid == plain] or [d for d in devices if selector.lower() in d.name.lower()]
    if len(found) != 1:
        what = "no device matches" if not found else f"{len(found)} devices match"
        raise DeviceError(f"{what} --device {selector!r}; there are: {listing}")
    return found[0]
