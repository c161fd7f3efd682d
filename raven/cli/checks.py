"""What ``raven doctor`` looks at, one function a matter. None may raise: a broken part is a finding."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes
    ----------
    name : str
    status : {'ok', 'warn', 'fail'}
        ``fail``: the main job, a video in and a video out, cannot run. ``warn``: something optional is amiss.
    detail : str
    remedy : str
        What to do about it; empty when nothing needs to be done.
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""


def python() -> Iterator[Check]:
    """The interpreter and the system."""
    yield Check("python", "ok", f"{platform.python_version()} on {platform.platform()}, {os.cpu_count()} CPUs")


# -- Vulkan ------------------------------------------------------------------------------------------------------------


def vulkan_loader() -> Iterator[Check]:
    """The loader library."""
    from raven.gpu import vk

    vk.loader()
    yield Check("vulkan loader", "ok", "found")


def vulkan_devices() -> Iterator[Check]:
    """Every device, what it lacks, and whether the one that a run would take opens."""
    from raven.gpu import list_devices

    devices = list_devices()
    usable = [device for device in devices if not device["missing"]]
    for device in devices:
        yield _device(device, bool(usable))
    if not devices:
        yield Check("vulkan device", "fail", "the loader found none", "apt-get install mesa-vulkan-drivers (software)")
    if usable:
        yield from _opening()


def _device(device: dict[str, Any], another: bool) -> Check:
    name = f"vulkan device {device['index']}"
    detail = f"{device['name']} ({device['type']}), {device['driver']}, Vulkan {device['api']}"
    if device["missing"]:
        lacks = f"{detail}; lacks {', '.join(device['missing'])}"
        return Check(name, "warn" if another else "fail", lacks, "update its driver, or install mesa-vulkan-drivers")
    flags = {key: on for key, on in device["capabilities"].items() if isinstance(on, bool)}
    has = ", ".join(key for key, on in flags.items() if on) or "none"
    without = ", ".join(key for key, on in flags.items() if not on) or "none"
    return Check(name, "ok", f"{detail}; optional: {has}; without: {without}")


def _opening() -> Iterator[Check]:
    from raven.gpu import Device

    with Device(validation=False) as device:
        queues = f"{len(device.graphics)} graphics and {len(device.compute)} compute queues"
        yield Check("vulkan open", "ok", f"a run would take {device.name}: {queues}")


def validation_layer() -> Iterator[Check]:
    """The Khronos validation layer, which tests need."""
    from raven.errors import DeviceError
    from raven.gpu.instance import Instance

    Instance(validation=False).close()  # without any Vulkan this is not about the layer
    try:
        Instance(validation=True).close()
    except DeviceError as error:
        yield Check(
            "validation layer", "warn", _text(error), "only tests need it: apt-get install vulkan-validationlayers"
        )
    else:
        yield Check("validation layer", "ok", "there (RAVEN_VALIDATION=1 turns it on)")


def shaders() -> Iterator[Check]:
    """Compiled shaders, or a compiler for those that are not."""
    from raven.gpu.cache import cache_dir
    from raven.gpu.shaders import SHIPPED, ShaderLibrary, all_entries
    from raven.gpu.slang import compiler_path, compiler_version

    library, folders = ShaderLibrary(), (SHIPPED, cache_dir("spirv"))
    files = [library.file_name(name, entry) for name, entry, _ in all_entries()]
    absent = [file for file in files if not any((folder / file).is_file() for folder in folders)]
    compiler = compiler_path()
    detail = f"{len(files) - len(absent)} of {len(files)} compiled"
    known = f"Slang {compiler_version()}" if compiler else "no Slang compiler"
    if files and (compiler or not absent):
        yield Check("shaders", "ok", f"{detail}, {known}")
    else:
        yield Check("shaders", "fail", f"{detail}, {known}", "pip install slangpy, or reinstall raven-gpu")


# -- inference ---------------------------------------------------------------------------------------------------------

_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")


def onnx_runtime() -> Iterator[Check]:
    """ONNX Runtime, its providers, and the clash of its two packages."""
    packages = {name: version for name in _RUNTIMES if (version := _version(name))}
    if importlib.util.find_spec("onnxruntime") is None:
        yield Check("onnxruntime", "fail", "not installed", "pip install 'raven-gpu[cpu]', or 'raven-gpu[cuda]'")
        return
    runtime = importlib.import_module("onnxruntime")
    providers = ", ".join(name.removesuffix("ExecutionProvider") for name in runtime.get_available_providers())
    yield Check("onnxruntime", "ok", f"{runtime.__version__}, providers: {providers}")
    if len(packages) > 1:
        both = " and ".join(f"{name} {version}" for name, version in packages.items())
        remedy = "pip uninstall -y onnxruntime onnxruntime-gpu, then pip install one of them"
        yield Check("onnxruntime clash", "warn", f"{both} overwrite each other's files", remedy)


def bundled_model() -> Iterator[Check]:
    """The default model's file."""
    from raven.models import find_model
    from raven.pipeline.options import RunOptions

    name = RunOptions.model  # the field's default
    yield Check("bundled model", "ok", f"{name}: {find_model(name)}")


def nvidia() -> Iterator[Check]:
    """The NVIDIA driver and the packages that make use of it."""
    there = _loads("libcuda.so.1")
    detail = "libcuda.so.1 loads" if there else "no NVIDIA driver (libcuda.so.1): the CPU backend is used"
    yield Check("nvidia driver", "ok", detail)
    yield _package("cuda-python", "cuda.bindings", there, "raven-gpu[cuda]")
    yield _package("pynvvideocodec", "PyNvVideoCodec", there, "raven-gpu[cuda]")
    yield _package("tensorrt", "tensorrt", False, "tensorrt")
    yield _package("tensorrt-rtx", "tensorrt_rtx", False, "tensorrt-rtx")


def _package(name: str, module: str, wanted: bool, install: str) -> Check:
    try:
        found = importlib.util.find_spec(module) is not None
    except ImportError:  # its parent package is not there
        found = False
    if found:
        return Check(name, "ok", _version(name) or "installed")
    if wanted:
        return Check(name, "warn", "not installed", f"pip install '{install}'")
    return Check(name, "ok", "not installed (optional)")


# -- the rest ----------------------------------------------------------------------------------------------------------


def window() -> Iterator[Check]:
    """GLFW and a display, which only a preview window needs."""
    if importlib.util.find_spec("glfw") is None:
        yield Check("window", "ok", "glfw is not installed (optional: pip install 'raven-gpu[window]')")
        return
    display = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    if display or sys.platform != "linux":
        yield Check("window", "ok", f"glfw {_version('glfw')}, display {display or 'native'}")
    else:
        yield Check("window", "ok", f"glfw {_version('glfw')}; no display: DISPLAY and WAYLAND_DISPLAY are not set")


def encoders() -> Iterator[Check]:
    """PyAV's encoders for video."""
    from raven.sinks import available_encoders

    names, version = available_encoders(), _version("av")
    if "libx264" in names:
        yield Check("encoders", "ok", f"{', '.join(names)} (PyAV {version})")
    else:
        others = ", ".join(names) or "none"
        yield Check(
            "encoders", "fail", f"no libx264 in PyAV {version}; has {others}", "pip install --force-reinstall av"
        )


def cache_folder() -> Iterator[Check]:
    """Whether compiled pipelines and shaders can be kept between runs."""
    from raven.gpu.cache import cache_dir

    folder = cache_dir("spirv").parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = f"{folder} cannot be written: {error.strerror}"
        yield Check("cache", "warn", reason, "every start compiles again; set RAVEN_CACHE to a folder that can")
    else:
        yield Check("cache", "ok", str(folder))


#: (name shown when it breaks, function, status when it breaks)
ALL: tuple[tuple[str, Callable[[], Iterator[Check]], Status], ...] = (
    ("python", python, "fail"),
    ("vulkan loader", vulkan_loader, "fail"),
    ("vulkan device", vulkan_devices, "fail"),
    ("validation layer", validation_layer, "warn"),
    ("shaders", shaders, "fail"),
    ("onnxruntime", onnx_runtime, "fail"),
    ("bundled model", bundled_model, "fail"),
    ("nvidia driver", nvidia, "warn"),
    ("encoders", encoders, "fail"),
    ("window", window, "warn"),
    ("cache", cache_folder, "warn"),
)


def run_checks() -> list[Check]:
    """Every finding, in order; a check that raises becomes one."""
    found: list[Check] = []
    for name, check, status in ALL:
        try:
            found.extend(check())
        except Exception as error:  # whatever is broken, the rest is still worth knowing
            text, _, remedy = _text(error).partition("; ")
            found.append(Check(name, status, text, remedy))
    return found


def _text(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if type(error).__module__.startswith("raven.") else f"{type(error).__name__}: {text}"


def _version(package: str) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return ""


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
