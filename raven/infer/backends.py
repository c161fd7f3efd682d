"""Which inference runtimes there are, which are installed, and which to take."""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
from dataclasses import dataclass

from raven.errors import BackendError, UsageError


@dataclass(frozen=True)
class Backend:
    """A way to run models.

    Attributes
    ----------
    module : str
        Raven's module for it, with ``load(path, **options)``.
    packages : tuple of str
        Modules that it needs, the runtime first.
    provider : str
        Provider that an ONNX Runtime must have been built with; empty: none.
    extra : str
        Extra of Raven's package that installs it.
    """

    module: str
    packages: tuple[str, ...]
    provider: str
    extra: str


#: Fastest first: ``auto`` takes the first one that is there.
BACKENDS = {
    "tensorrt": Backend("raven.infer.tensorrt", ("tensorrt", "cuda.bindings"), "", "tensorrt"),
    "tensorrt-rtx": Backend("raven.infer.tensorrt_rtx", ("tensorrt_rtx", "cuda.bindings"), "", "tensorrt-rtx"),
    "cuda": Backend("raven.infer.onnxruntime_cuda", ("onnxruntime", "cuda.bindings"), "CUDAExecutionProvider", "cuda"),
    "cpu": Backend("raven.infer.onnxruntime", ("onnxruntime",), "CPUExecutionProvider", "cpu"),
}
NAMES = ("auto", "cpu", "cuda", "tensorrt", "tensorrt-rtx")


def available_backends() -> tuple[str, ...]:
    """Names of the backends that can be asked for on this machine, fastest first."""
    return tuple(name for name in BACKENDS if _obstacle(name) is None)


def choose_backend(name: str = "auto") -> tuple[str, str]:
    """The backend to take, and why.

    Parameters
    ----------
    name : {'auto', 'cpu', 'cuda', 'tensorrt', 'tensorrt-rtx'}

    Raises
    ------
    BackendError
        It is not there; a run never falls back to another one in silence.
    UsageError
        The name is not known.
    """
    if name not in NAMES:
        raise UsageError(f"backend {name!r} is not known; use one of {', '.join(NAMES)}")
    if name == "auto":
        return _automatic()
    if obstacle := _obstacle(name):
        raise BackendError(f"backend {name!r} is not available: {obstacle}; available: {_listed()}")
    return name, "asked for"


def module_of(name: str) -> str:
    """Raven's module for a backend."""
    return BACKENDS[name].module


def _automatic() -> tuple[str, str]:
    for name in BACKENDS:
        if _obstacle(name) is None:
            faster = [
                other for other in list(BACKENDS)[: list(BACKENDS).index(name)] if _exists(BACKENDS[other].module)
            ]
            return name, f"not available: {', '.join(faster)}" if faster else "the fastest there is"
    raise BackendError(f"no inference runtime is installed; {_install('cpu')}")


def _obstacle(name: str) -> str | None:
    """Why a backend cannot be used, in words with the remedy; None when it can."""
    backend = BACKENDS[name]
    if not _exists(backend.module):
        return "this version of Raven does not have it"
    runtime, *others = backend.packages
    if obstacle := _lacks([runtime], backend) or _lacks_provider(backend) or _lacks(others, backend):
        return obstacle
    return None if name == "cpu" else _lacks_gpu()


def _lacks(packages: list[str], backend: Backend) -> str | None:
    absent = [package for package in packages if not _exists(package)]
    return f"{absent[0]} is not installed, {_install(backend.extra)}" if absent else None


def _lacks_provider(backend: Backend) -> str | None:
    runtime = backend.packages[0]
    try:
        provided = _providers() if backend.provider else ("",)
    except Exception as error:  # a broken installation raises anything: ImportError, OSError, AttributeError
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return f"{runtime} is broken ({reason}), pip install --force-reinstall {runtime}"
    if backend.provider not in provided:
        return f"the {runtime} installed lacks {backend.provider}, {_swap(backend.extra)}"
    return None


@functools.cache
def _lacks_gpu() -> str | None:
    """Ask the driver, not the runtime, whose answer is what it was built for."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    except OSError:
        return "there is no NVIDIA driver, install it"
    return f"the NVIDIA driver finds no GPU (error {failed}), run nvidia-smi" if failed or not count.value else None


def _providers() -> tuple[str, ...]:
    return tuple(importlib.import_module("onnxruntime").get_available_providers())


@functools.cache
def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _install(extra: str) -> str:
    return f"pip install 'raven-gpu[{extra}]'"


def _swap(extra: str) -> str:
    # The two packages overwrite each other's files, so the one that is there has to go first.
    return f"pip uninstall onnxruntime && {_install(extra)}"


def _listed() -> str:
    return ", ".join(available_backends()) or "none"
