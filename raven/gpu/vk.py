"""The one place that touches the Vulkan binding.

The package ``vulkan`` brings C declarations for cffi and a Python wrapper. The wrapper frees nested structs too early
and costs microseconds a call, so only the declarations are used: calls go to function pointers fetched from the
driver, and :func:`new` keeps whatever a struct points to alive for as long as the struct itself.
"""

from __future__ import annotations

import re
import weakref
from functools import cache
from typing import Any

from vulkan._vulkancache import ffi

from raven.errors import DeviceError

WHOLE_SIZE = 0xFFFFFFFFFFFFFFFF
QUEUE_FAMILY_IGNORED = 0xFFFFFFFF
SUBPASS_EXTERNAL = 0xFFFFFFFF
NULL = ffi.NULL

_LOADERS = ("libvulkan.so.1", "libvulkan.so", "vulkan-1.dll", "libvulkan.1.dylib", "libMoltenVK.dylib")
_alive: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()


@cache
def loader() -> Any:
    """Return the Vulkan loader library.

    Raises
    ------
    DeviceError
        When no loader is installed.
    """
    for name in _LOADERS:
        try:
            return ffi.dlopen(name)
        except OSError:
            continue
    raise DeviceError(
        "no Vulkan loader (libvulkan.so.1) found; on Debian or Ubuntu: apt-get install libvulkan1 mesa-vulkan-drivers"
    )


def __getattr__(name: str) -> Any:
    """Vulkan's constants by name: ``vk.VK_FORMAT_R8_UNORM``."""
    if not name.startswith("VK_"):
        raise AttributeError(name)
    value = getattr(loader(), name)
    globals()[name] = value
    return value


_ODD_STYPES = {
    f"VkPhysicalDeviceVulkan{major}{minor}{kind}": f"VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_{major}_{minor}_{word}"
    for major, minor in ((1, 1), (1, 2), (1, 3))
    for kind, word in (("Features", "FEATURES"), ("Properties", "PROPERTIES"))
}
_ODD_STYPES["VkPhysicalDevice16BitStorageFeatures"] = "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES"
_ODD_STYPES["VkPhysicalDeviceIDProperties"] = "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES"
_ODD_STYPES["VkPhysicalDeviceRobustness2FeaturesEXT"] = "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ROBUSTNESS_2_FEATURES_EXT"
_SUFFIX = re.compile(r"(KHR|EXT|NV)$")
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+")


@cache
def _structure_type(name: str) -> int:
    """VkStructureType of a struct, from its name."""
    if name in _ODD_STYPES:
        return int(getattr(loader(), _ODD_STYPES[name]))
    suffix = _SUFFIX.search(name)
    stem = _SUFFIX.sub("", name.removeprefix("Vk"))
    words = [re.sub(r"(\D)2$", r"\1_2", w) for w in _WORDS.findall(stem)]
    full = "VK_STRUCTURE_TYPE_" + "_".join(words).upper() + (f"_{suffix[0]}" if suffix else "")
    return int(getattr(loader(), full))


@cache
def _has_stype(name: str) -> bool:
    return any(field == "sType" for field, _ in ffi.typeof(name).fields or ())


def new(name: str, **fields: Any) -> Any:
    """Make a struct and keep what it points to alive.

    Parameters
    ----------
    name : str
        C type, as ``VkBufferCreateInfo``; ``sType`` is filled in.
    **fields
        ``str`` becomes a C string, a list becomes an array of the field's type, cdata pointers are stored as they are.
        A nested struct given as a pointer to it is copied in.

    Returns
    -------
    cdata
        A pointer to the struct.
    """
    struct = ffi.new(name + "*")
    if _has_stype(name):
        struct.sType = _structure_type(name)
    kept: list[Any] = []
    types = dict(ffi.typeof(name).fields)
    for key, value in fields.items():
        setattr(struct, key, _field(types[key].type, value, kept))
    _alive[struct] = kept
    return struct


def _field(ctype: Any, value: Any, kept: list[Any]) -> Any:
    if isinstance(value, str):
        value = ffi.new("char[]", value.encode())
    elif isinstance(value, (list, tuple)) and ctype.kind == "pointer":
        value = array(ctype.item.cname.replace("const ", ""), value)
    elif isinstance(value, ffi.CData) and ctype.kind in ("struct", "union") and ffi.typeof(value).kind == "pointer":
        kept.append(value)
        return value[0]
    if isinstance(value, ffi.CData):
        kept.append(value)
    return value


def array(ctype: str, values: Any) -> Any:
    """Make a C array and keep the elements' own allocations alive; strings become ``char*``, pointers are copied in."""
    kept = list(values)
    if ctype.rstrip().endswith("*") and all(isinstance(v, str) for v in kept):
        kept = [ffi.new("char[]", v.encode()) for v in kept]
    items = [v[0] if isinstance(v, ffi.CData) and _points_to(v, ctype) else v for v in kept]
    result = ffi.new(f"{ctype}[]", items)
    _alive[result] = kept
    return result


def _points_to(value: Any, ctype: str) -> bool:
    kind = ffi.typeof(value)
    return kind.kind == "pointer" and kind.item.kind == "struct" and kind.item == ffi.typeof(ctype)


def string(value: Any) -> str:
    """Python string of a C char array."""
    return str(ffi.string(value).decode("utf-8", "replace"))


def address(handle: Any) -> int:
    """Integer value of a pointer or handle."""
    return int(ffi.cast("uintptr_t", handle))


def version(number: int) -> str:
    """``1.3.230`` for a packed API version."""
    return f"{number >> 22 & 0x7F}.{number >> 12 & 0x3FF}.{number & 0xFFF}"


def make_version(major: int, minor: int, patch: int = 0) -> int:
    """Packed API version."""
    return major << 22 | minor << 12 | patch


@cache
def _result_name(code: int) -> str:
    return str(ffi.typeof("VkResult").elements.get(code, code))


_REMEDIES = {
    "VK_ERROR_DEVICE_LOST": "the GPU was reset or removed; start again, and see `raven doctor`",
    "VK_ERROR_OUT_OF_DEVICE_MEMORY": "GPU memory is exhausted; close other programs or use a smaller frame or model",
    "VK_ERROR_OUT_OF_HOST_MEMORY": "host memory is exhausted; close other programs",
    "VK_ERROR_INCOMPATIBLE_DRIVER": "no Vulkan driver; on Debian or Ubuntu: apt-get install mesa-vulkan-drivers",
    "VK_ERROR_TOO_MANY_OBJECTS": "the driver's object limit is reached",
}


def check(code: int, call: str, *allowed: int) -> int:
    """Raise DeviceError unless ``code`` is VK_SUCCESS or one of ``allowed``; return it otherwise."""
    if code == 0 or code in allowed:
        return code
    name = _result_name(code)
    raise DeviceError(f"{call} failed with {name}; {_REMEDIES.get(name, 'see `raven doctor`')}")


class Functions:
    """Function pointers of one instance or device, fetched once by attribute: ``fn.vkCreateBuffer``."""

    def __init__(self, get: Any, handle: Any) -> None:
        self._get, self._handle = get, handle

    def __getattr__(self, name: str) -> Any:
        pointer = self._get(self._handle, name.encode())
        if pointer == NULL:
            raise DeviceError(f"the Vulkan driver has no {name}; update the driver or see `raven doctor`")
        function = ffi.cast("PFN_" + name, pointer)
        setattr(self, name, function)
        return function

    def enumerate(self, name: str, ctype: str, *args: Any) -> Any:
        """Call a two-step enumeration (count, then array) and return the array."""
        function = getattr(self, name)
        count = ffi.new("uint32_t*")
        function(*args, count, NULL)
        items = ffi.new(f"{ctype}[]", count[0])
        if _has_stype(ctype) if ffi.typeof(ctype).kind == "struct" else False:
            for item in items:
                item.sType = _structure_type(ctype)
        function(*args, count, items)
        return items[0 : count[0]] if count[0] else []
